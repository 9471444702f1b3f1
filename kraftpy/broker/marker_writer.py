"""Writes transaction markers into the partitions that this broker leads, and waits until they hold.

A marker is a control batch of its own. In partitions of `__consumer_offsets` it also makes a
group's offsets valid, or drops them; there the group coordinator writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from kraftpy.broker.delayed_produce import DelayedProduce, PendingAppend
from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.broker.partition import ALL_IN_SYNC, ReplicaError
from kraftpy.coordinator.batch import Producer
from kraftpy.coordinator.outcome import CoordinatorError, Reply
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.errors import LogError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraftpy.records.control import EndTransactionMarker, build_end_transaction
from kraftpy.records.errors import RecordDataError
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import Clock

__all__ = ["CompleteInGroups", "MarkerWriter"]

_GROUP_TOPIC: Final = "__consumer_offsets"

# CoordinatorRuntime.complete_transaction of the groups.
CompleteInGroups: TypeAlias = Callable[
    [int, EndTransactionMarker, Reply[EndTransactionMarker], Producer, int], None
]


class _Writing:
    """One request: how much of it is open, and what to do at the end."""

    __slots__ = ("_finished", "_open_count", "pending")

    def __init__(self, finished: Callable[[], None]) -> None:
        self._finished = finished
        self._open_count = 1
        self.pending: list[PendingAppend] = []

    def begin(self) -> None:
        self._open_count += 1

    def end(self) -> None:
        self._open_count -= 1
        if self._open_count == 0:
            self._finished()


class MarkerWriter:
    def __init__(
        self,
        replicas: HostedReplicas,
        complete_in_groups: CompleteInGroups,
        *,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        """`timeout_ms`, for all to have the markers, is `request.timeout.ms`."""
        self._replicas = replicas
        self._complete_in_groups = complete_in_groups
        self._clock = clock
        self._timeout_ms = timeout_ms

    def write(
        self, request: WriteTxnMarkersRequest, reply: Callable[[WriteTxnMarkersResponse], None]
    ) -> None:
        """Write all of them; the reply comes when everybody in sync has them, or won't."""
        answer = WriteTxnMarkersResponse()
        writing = _Writing(lambda: reply(answer))
        for marker in request.markers:
            topics: list[WritableTxnMarkerTopicResult] = []
            answer.markers.append(
                WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)
            )
            for topic in marker.topics:
                results = [
                    WritableTxnMarkerPartitionResult(partition_index=index)
                    for index in topic.partition_indexes
                ]
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
                for result in results:
                    if topic.name == _GROUP_TOPIC:
                        self._write_in_group(marker, result, writing)
                    else:
                        self._append(marker, (topic.name, result.partition_index), result, writing)
        if writing.pending:
            writing.begin()
            operation = DelayedProduce(
                self._timeout_ms,
                writing.pending,
                self._replicas,
                respond=writing.end,
                on_expired=lambda late: None,
            )
            keys = [each.partition.topic_partition for each in writing.pending]
            self._replicas.produce_purgatory.try_complete_else_watch(operation, keys)
        writing.end()

    def _write_in_group(
        self,
        marker: WritableTxnMarker,
        result: WritableTxnMarkerPartitionResult,
        writing: _Writing,
    ) -> None:
        def replied(answer: EndTransactionMarker | CoordinatorError) -> None:
            if isinstance(answer, CoordinatorError):
                result.error_code = answer.code
            writing.end()

        writing.begin()
        self._complete_in_groups(
            result.partition_index,
            EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch),
            replied,
            Producer(marker.producer_id, marker.producer_epoch),
            marker.transaction_version,
        )

    def _append(
        self,
        marker: WritableTxnMarker,
        name: TopicPartition,
        result: WritableTxnMarkerPartitionResult,
        writing: _Writing,
    ) -> None:
        partition = self._replicas.lookup(name)
        if isinstance(partition, ErrorCode):
            result.error_code = partition
            return
        batch = build_end_transaction(
            EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self._clock.wall_ms(),
        )
        try:
            info = partition.append(
                batch,
                required_acks=ALL_IN_SYNC,
                now_ms=self._clock.monotonic_ms(),
                origin=AppendOrigin.COORDINATOR,
                transaction_version=marker.transaction_version,
            )
        except (ReplicaError, LogError, RecordDataError) as error:
            result.error_code = error.error_code
            return
        append = PendingAppend(partition, info.last_offset + 1, result, acks=ALL_IN_SYNC)
        code = append.verdict_of(partition)
        if code is None:
            writing.pending.append(append)
        else:
            result.error_code = code
