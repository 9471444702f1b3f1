"""The ISR as a leader sees it: what the controller committed, and the one change it has proposed.

The leader proposes, the controller decides, and in between the leader does not know which of the
two ISRs holds: the controller may already elect from the new one. So until it knows, the leader
acts on the larger of the two (the maximal ISR) where it matters for committing records: a member
that is being added already has to have them, one that is being removed still has to.

A proposal is answered, or overtaken by metadata with a newer partition epoch. A refusal that
proves that nothing happened takes it back. One that does not prove it leaves it pending, without
being sent again, until metadata says how things are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kraftpy.protocol.errors import ErrorCode

__all__ = ["CommittedIsr", "IsrAnswer", "IsrProposal", "Verdict", "verdict"]


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """What the controller has written, as of a partition epoch."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A change that the leader asks for: by one member to add, or some to remove."""

    base: CommittedIsr
    isr: tuple[int, ...]
    # The incarnation of each member of `isr`, as the leader knows it; -1 if it doesn't.
    broker_epochs: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        added = tuple([member for member in self.isr if member not in self.base.isr])
        return self.base.isr + added


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """What the controller says about one partition."""

    error: ErrorCode
    leader_id: int = -1
    isr: tuple[int, ...] = ()
    leader_epoch: int = -1
    partition_epoch: int = -1


class Verdict(Enum):
    """What an error in the controller's answer means for a proposal."""

    COMMITTED = "committed"
    # The controller has certainly changed nothing.
    NOT_DONE = "not done"
    # Some earlier attempt may have been carried out; metadata will tell.
    IN_DOUBT = "in doubt"
    # Ask again.
    RETRY = "retry"


_VERDICTS = {
    ErrorCode.NONE: Verdict.COMMITTED,
    ErrorCode.INELIGIBLE_REPLICA: Verdict.NOT_DONE,
    ErrorCode.OPERATION_NOT_ATTEMPTED: Verdict.NOT_DONE,
    ErrorCode.FENCED_LEADER_EPOCH: Verdict.IN_DOUBT,
    ErrorCode.INVALID_UPDATE_VERSION: Verdict.IN_DOUBT,
    ErrorCode.INVALID_REQUEST: Verdict.IN_DOUBT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Verdict.IN_DOUBT,
    ErrorCode.UNKNOWN_TOPIC_ID: Verdict.IN_DOUBT,
    ErrorCode.NEW_LEADER_ELECTED: Verdict.IN_DOUBT,
}


def verdict(error: ErrorCode) -> Verdict:
    return _VERDICTS.get(error, Verdict.RETRY)
