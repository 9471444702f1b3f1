"""The states of a broker as its heartbeats see them, and what each heartbeat makes of them.

    FENCED               may not serve: it registers, catches up, or has lost its session
    UNFENCED             serves
    CONTROLLED_SHUTDOWN  hands its leaderships over, then waits until all others know
    SHUTDOWN_NOW         may stop at once; in the metadata it is fenced

A broker's present state is what its registration says, so that it survives a failover of the
controller. SHUTDOWN_NOW is only ever an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kraftpy.metadata.records import RegisterBrokerRecord

__all__ = ["BrokerState", "Wishes", "next_state", "present_state"]


class BrokerState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a heartbeat asks for, and what decides whether it is granted."""

    fence: bool = False
    shut_down: bool = False
    # The broker has replayed its own registration.
    is_caught_up: bool = False
    # It leads a partition.
    leads: bool = False
    # All others have replayed the last record of its controlled shutdown.
    is_shutdown_known: bool = False


def present_state(broker: RegisterBrokerRecord) -> BrokerState:
    if broker.fenced:
        return BrokerState.FENCED
    if broker.in_controlled_shutdown:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.UNFENCED


def next_state(present: BrokerState, wishes: Wishes) -> BrokerState:
    """What becomes of a broker by a heartbeat with these wishes."""
    if present is BrokerState.FENCED:
        if wishes.shut_down:
            return BrokerState.SHUTDOWN_NOW
        may_serve = wishes.is_caught_up and not wishes.fence
        return BrokerState.UNFENCED if may_serve else BrokerState.FENCED
    if present is BrokerState.UNFENCED:
        if wishes.fence:
            return BrokerState.SHUTDOWN_NOW if wishes.shut_down else BrokerState.FENCED
        if wishes.shut_down:
            return BrokerState.CONTROLLED_SHUTDOWN if wishes.leads else BrokerState.SHUTDOWN_NOW
        return BrokerState.UNFENCED
    if wishes.leads or not wishes.is_shutdown_known:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.SHUTDOWN_NOW
