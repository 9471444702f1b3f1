"""A DeleteRecords that waits until every living replica has deleted what it should.

As in delayed_produce.py, each partition begins as timed out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kraftpy.broker.hosted_replicas import HostedReplicas, find_again
from kraftpy.broker.partition import Partition
from kraftpy.log.offsets import UNKNOWN
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k21_delete_records import DeleteRecordsPartitionResult
from kraftpy.purgatory.operation import DelayedOperation

__all__ = ["DelayedDeleteRecords", "PendingDeletion"]


class PendingDeletion:
    """What the leader has deleted, and perhaps not yet everybody."""

    __slots__ = ("_required_offset", "answer", "partition")

    def __init__(
        self, partition: Partition, required_offset: int, answer: DeleteRecordsPartitionResult
    ) -> None:
        self.partition = partition
        self.answer = answer
        self._required_offset = required_offset

    def is_decided(self, replicas: HostedReplicas) -> bool:
        """Whether the answer now says what became of it."""
        partition = self.partition
        code = find_again(partition, replicas)
        if code is ErrorCode.NONE and not partition.is_leader:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        low_watermark = UNKNOWN
        if code is ErrorCode.NONE:
            low_watermark = partition.low_watermark
            if low_watermark < self._required_offset:
                return False
        self.answer.error_code = code
        self.answer.low_watermark = low_watermark
        return True


class DelayedDeleteRecords(DelayedOperation):
    __slots__ = ("_pending", "_replicas", "_respond")

    def __init__(
        self,
        delay_ms: int,
        pending: Sequence[PendingDeletion],
        replicas: HostedReplicas,
        *,
        respond: Callable[[], None],
    ) -> None:
        super().__init__(delay_ms)
        self._pending = list(pending)
        self._replicas = replicas
        self._respond = respond
        for each in pending:
            each.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            each.answer.low_watermark = UNKNOWN

    def try_complete(self) -> bool:
        self._pending = [each for each in self._pending if not each.is_decided(self._replicas)]
        return not self._pending and self.force_complete()

    def on_complete(self) -> None:
        self._respond()
