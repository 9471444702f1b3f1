"""What a hosted replica is told about the cluster, and whom it tells what happened to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kraftpy.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraftpy.broker.partition import Partition

__all__ = ["BrokerStates", "PartitionEvents", "ReplicaError"]


class ReplicaError(Exception):
    """This replica can't do what was asked; `error_code` is what the asker is told."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message


class PartitionEvents(Protocol):
    """Told what has happened, by the partition that it happened to, when its state is whole again.

    Whoever is told may call the partition.
    """

    def appended(self, partition: Partition) -> None:
        """The leader's log has grown."""
        ...

    def high_watermark_moved(self, partition: Partition) -> None: ...

    def log_start_moved(self, partition: Partition) -> None:
        """Somebody's log start is another, so perhaps the lowest of all replicas is."""
        ...

    def isr_wanted(self, partition: Partition) -> None:
        """There is a proposal to be sent to the controller."""
        ...

    def role_changed(self, partition: Partition) -> None:
        """It leads, follows, or is led by somebody else than before."""
        ...


class BrokerStates(Protocol):
    """What the metadata says about other brokers."""

    def is_alive(self, broker_id: int) -> bool:
        """Registered and not fenced."""
        ...

    def eligible_epoch(self, broker_id: int) -> int | None:
        """The broker's epoch if it may be in an ISR: alive and not shutting down."""
        ...
