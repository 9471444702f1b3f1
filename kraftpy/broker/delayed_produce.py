"""A Produce that waits until its records are safe enough.

With acks=all that is when everybody in sync has them; the leader itself counts only with what it
has flushed, where `flush.messages` asks for that. With acks=1 nothing is waited for but this flush.

The operation holds the partitions that the answer waits for and nothing else: what failed, or was
safe with the append itself, is decided before. Each begins as timed out, which is true of it until
something better is known; so when the time is over, nothing has to be done but to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kraftpy.broker.hosted_replicas import HostedReplicas, find_again
from kraftpy.broker.partition import ALL_IN_SYNC, Partition
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.observe.metrics import MetricName
from kraftpy.protocol.errors import ErrorCode
from kraftpy.purgatory.operation import DelayedOperation

__all__ = ["DelayedProduce", "PendingAppend", "expired_produce"]


def expired_produce(topic_partition: TopicPartition | None = None) -> MetricName:
    """Counts the waits that were in vain, for a partition that is led here, or for all."""
    tags: tuple[tuple[str, str], ...] = ()
    if topic_partition is not None:
        topic, index = topic_partition
        tags = (("topic", topic), ("partition", str(index)))
    return MetricName("kafka.server", "DelayedProducerMetrics", "ExpiresPerSec", tags)


class HasErrorCode(Protocol):
    """A partition's part of an answer."""

    error_code: int


class PendingAppend:
    """Records that the leader has, and that are perhaps not safe yet."""

    __slots__ = ("_acks", "answer", "partition", "required_offset")

    def __init__(
        self,
        partition: Partition,
        required_offset: int,
        answer: HasErrorCode,
        *,
        acks: int,
    ) -> None:
        self.partition = partition
        self.required_offset = required_offset
        self.answer = answer
        self._acks = acks

    def verdict(self, replicas: HostedReplicas) -> ErrorCode | None:
        """What became of them; None while that is open."""
        partition = self.partition
        found = find_again(partition, replicas)
        if found is not ErrorCode.NONE:
            return found
        if not partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.verdict_of(partition)

    def verdict_of(self, leader: Partition) -> ErrorCode | None:
        if self._acks != ALL_IN_SYNC:
            return ErrorCode.NONE if leader.log.recovery_point >= self.required_offset else None
        if leader.log.high_watermark < self.required_offset:
            return None
        if leader.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE


class DelayedProduce(DelayedOperation):
    __slots__ = ("_on_expired", "_pending", "_replicas", "_respond")

    def __init__(
        self,
        delay_ms: int,
        pending: Sequence[PendingAppend],
        replicas: HostedReplicas,
        *,
        respond: Callable[[], None],
        on_expired: Callable[[Sequence[PendingAppend]], None],
    ) -> None:
        """`respond` sends the answer that the pending ones are parts of."""
        super().__init__(delay_ms)
        self._pending = list(pending)
        self._replicas = replicas
        self._respond = respond
        self._on_expired = on_expired
        for each in pending:
            each.answer.error_code = ErrorCode.REQUEST_TIMED_OUT

    def try_complete(self) -> bool:
        still_pending = []
        for each in self._pending:
            code = each.verdict(self._replicas)
            if code is None:
                still_pending.append(each)
            else:
                each.answer.error_code = code
        self._pending = still_pending
        return not still_pending and self.force_complete()

    def on_complete(self) -> None:
        self._respond()

    def on_expiration(self) -> None:
        self._on_expired(self._pending)
