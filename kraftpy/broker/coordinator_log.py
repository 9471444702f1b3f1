"""A partition of an internal topic, as the coordinator on it sees it.

Bound to one leadership: whatever is asked of it after that is refused, also if this broker leads
the partition again by then, since the shard of the old epoch knows nothing of what happened in
between.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftpy.broker.partition import ALL_IN_SYNC, Partition
from kraftpy.broker.replica_ports import ReplicaError
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.log.errors import LogError
from kraftpy.log.offsets import Isolation
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.errors import RecordDataError
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import Buffer, Clock

__all__ = ["PartitionShardLog"]


class PartitionShardLog:
    """Fits coordinator.ports.ShardLog."""

    __slots__ = ("_clock", "_leader_epoch", "_max_batch_bytes", "_partition")

    def __init__(
        self, partition: Partition, clock: Clock, *, max_batch_bytes: Callable[[], int]
    ) -> None:
        """`max_batch_bytes` is asked for each write: it may change at any time."""
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._clock = clock
        self._max_batch_bytes = max_batch_bytes

    @property
    def max_batch_bytes(self) -> int:
        return self._max_batch_bytes()

    @property
    def is_led(self) -> bool:
        partition = self._partition
        return partition.is_leader and partition.leader_epoch == self._leader_epoch

    @property
    def log_start_offset(self) -> int:
        return self._partition.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._partition.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._partition.log.high_watermark

    def append(
        self,
        batch: Buffer,
        *,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = 0,
    ) -> int:
        self._check_leadership()
        try:
            info = self._partition.append(
                batch,
                required_acks=ALL_IN_SYNC,
                now_ms=self._clock.monotonic_ms(),
                origin=AppendOrigin.COORDINATOR,
                guard=guard,
                transaction_version=transaction_version,
            )
        except (ReplicaError, LogError, RecordDataError) as error:
            raise CoordinatorError(error.error_code, str(error)) from error
        return info.first_offset

    async def read(self, offset: int, max_bytes: int) -> Buffer:
        self._check_leadership()
        try:
            found = self._partition.log.read(offset, max_bytes, Isolation.LOG_END)
            if found.records is None:
                return b""
            part = found.records
            data = await part.file.read(part.length, part.position)
        except (LogError, RecordDataError) as error:
            raise CoordinatorError(error.error_code, str(error)) from error
        except OSError as error:
            raise CoordinatorError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._check_leadership()
        return data

    def _check_leadership(self) -> None:
        if not self.is_led:
            raise CoordinatorError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"leader epoch {self._leader_epoch} is over"
            )
