"""ListOffsets (2): offsets by time, or by one of the times that stand for a place.

| time | what is answered |
| --- | --- |
| -1 | the end, as far as the asker may see: the high watermark, or the last stable offset |
| -2 | the log start |
| -3 | the record with the largest time (version 7) |
| -4 | the first offset on local disks: the log start, for there is no other storage (version 8) |
| -5 | the last offset in remote storage: none (version 9) |
| -6 | the first offset that waits for its upload there: none (version 11) |

Nothing is answered that the asker may not see yet. A new leader may not know for a moment how far
the old one had committed; until it does, an answer could go back behind an earlier one, so there is
none (KIP-207).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.fetch_reader import bound_offset
from kraftpy.broker.hosted_replicas import HostedReplicas, log_of
from kraftpy.broker.partition import Partition, ReplicaError
from kraftpy.log.errors import LogError
from kraftpy.log.offsets import UNKNOWN, FoundOffset, Isolation
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kraftpy.records.batch import NO_TIMESTAMP
from kraftpy.records.errors import RecordDataError

__all__ = ["ListOffsetsHandler"]

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_FIRST_VERSIONS: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE: Final = 5
_CONSUMER: Final = -1
# A tool that asks any replica.
_DEBUGGER: Final = -2
_READ_COMMITTED: Final = 1
_NOWHERE: Final = FoundOffset(UNKNOWN, NO_TIMESTAMP, UNKNOWN)


class ListOffsetsHandler(Handler):
    api_key = 2

    def __init__(self, replicas: HostedReplicas) -> None:
        self._replicas = replicas

    def handle(self, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
        version = context.api_version
        counts = Counter(
            (topic.name, wanted.partition_index)
            for topic in request.topics
            for wanted in topic.partitions
        )
        response = ListOffsetsResponse()
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
                answers.append(answer)
                if counts[topic.name, wanted.partition_index] > 1:
                    answer.error_code = ErrorCode.INVALID_REQUEST
                    continue
                try:
                    found = self._find(topic.name, wanted, request, version)
                except (ReplicaError, LogError, RecordDataError) as error:
                    answer.error_code = error.error_code
                    continue
                answer.timestamp = found.timestamp_ms
                answer.offset = found.offset
                if version >= 4:
                    answer.leader_epoch = found.leader_epoch
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return response

    def _find(
        self, topic: str, wanted: ListOffsetsPartition, request: ListOffsetsRequest, version: int
    ) -> FoundOffset:
        timestamp = wanted.timestamp
        if timestamp < 0 and version < _FIRST_VERSIONS.get(timestamp, version + 1):
            raise ReplicaError(ErrorCode.UNSUPPORTED_VERSION, f"time {timestamp}")
        partition = self._replicas.lookup((topic, wanted.partition_index))
        if isinstance(partition, ErrorCode):
            raise ReplicaError(partition, partition.message)
        code = partition.check_epoch(wanted.current_leader_epoch)
        if code != ErrorCode.NONE:
            raise ReplicaError(code, code.message)
        if request.replica_id != _DEBUGGER:
            partition.check_leader()
        if request.replica_id != _CONSUMER:
            isolation = Isolation.LOG_END
        elif request.isolation_level == _READ_COMMITTED:
            isolation = Isolation.COMMITTED
        else:
            isolation = Isolation.HIGH_WATERMARK
        return _offset_at(partition, timestamp, isolation, version)

    def error_answer(
        self, request: ListOffsetsRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=wanted.partition_index, error_code=code
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def error_codes(self, response: ListOffsetsResponse) -> Iterator[int]:
        for topic in response.topics:
            for answer in topic.partitions:
                yield answer.error_code


def _offset_at(
    partition: Partition, timestamp: int, isolation: Isolation, version: int
) -> FoundOffset:
    log = log_of(partition)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.earliest_offset()
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOWHERE
    if timestamp == LATEST:
        _check_committed(partition, isolation, version)
        return FoundOffset(bound_offset(partition, isolation), NO_TIMESTAMP, partition.leader_epoch)
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp()
    else:
        found = log.offset_by_time(timestamp)
    if found is not None and found.offset < bound_offset(partition, isolation):
        return found
    # There may be something that the last leader had committed.
    _check_committed(partition, isolation, version)
    return _NOWHERE


def _check_committed(partition: Partition, isolation: Isolation, version: int) -> None:
    """A leader knows what its predecessors committed once it has committed something itself."""
    latest = partition.log.epochs.latest
    if (
        isolation is not Isolation.LOG_END
        and partition.is_leader
        and latest is not None
        and partition.log.high_watermark < latest.start_offset
    ):
        is_named = version >= _FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        code = ErrorCode.OFFSET_NOT_AVAILABLE if is_named else ErrorCode.LEADER_NOT_AVAILABLE
        raise ReplicaError(code, "the high watermark of the last leader is not known yet")
