"""ListOffsets (2): offsets by time, or by one of the times that stand for a place.

| time | what is answered |
| --- | --- |
| -1 | the end, as far as the asker may see: the high watermark, or the last stable offset |
| -2 | the log start |
| -3 | the record with the largest time (version 7) |
| -4 | the first offset on local disks: the log start, for there is no other storage (version 8) |
| -5 | the last offset in remote storage: none (version 9) |
| -6 | the first offset that waits for its upload there: none (version 11) |

A time is looked for at once as far as what is needed lies in memory and a slice of 2 ms goes. What
takes longer goes on in a task and is answered from there; the partition is asked again then whether
it may answer, since much can happen meanwhile.

Nothing is answered that the asker may not see yet. A new leader may not know for a moment how far
the old one had committed; until it does, an answer could go back behind an earlier one, so there is
none (KIP-207).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.fetch_reader import bound_offset
from kraftpy.broker.hosted_replicas import HostedReplicas, find_again, log_of
from kraftpy.broker.partition import Partition, ReplicaError
from kraftpy.log.errors import LogError
from kraftpy.log.offsets import UNKNOWN, FoundOffset, Isolation
from kraftpy.log.pacing import Pace
from kraftpy.log.time_search import TimeSearch
from kraftpy.net.line import Spawn
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
from kraftpy.security.acl_terms import AclOperation, ResourceType
from kraftpy.world import Clock

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


class _Lookup:
    """A time that is looked for in one partition, and who asks."""

    __slots__ = ("answer", "isolation", "needs_leader", "partition", "search", "version", "wanted")

    def __init__(
        self,
        partition: Partition,
        wanted: ListOffsetsPartition,
        answer: ListOffsetsPartitionResponse,
        *,
        isolation: Isolation,
        needs_leader: bool,
        version: int,
    ) -> None:
        timestamp_ms = None if wanted.timestamp == MAX_TIMESTAMP else wanted.timestamp
        self.partition = partition
        self.wanted = wanted
        self.answer = answer
        self.isolation = isolation
        self.needs_leader = needs_leader
        self.version = version
        self.search = TimeSearch(log_of(partition), timestamp_ms)

    def check(self, replicas: HostedReplicas) -> None:
        """Whether the partition may answer still. Raises ReplicaError."""
        code = find_again(self.partition, replicas)
        if code == ErrorCode.NONE:
            code = self.partition.check_epoch(self.wanted.current_leader_epoch)
        if code != ErrorCode.NONE:
            raise ReplicaError(code, code.message)
        if self.needs_leader:
            self.partition.check_leader()

    def settle(self) -> None:
        """Answer with what was found. Raises ReplicaError."""
        found = self.search.found
        if found is None or found.offset >= bound_offset(self.partition, self.isolation):
            # There may be something that the last leader had committed.
            _check_committed(self.partition, self.isolation, self.version)
            found = _NOWHERE
        _fill(self.answer, found, self.version)


class ListOffsetsHandler(Handler):
    api_key = 2

    def __init__(self, replicas: HostedReplicas, *, clock: Clock, spawn: Spawn) -> None:
        self._replicas = replicas
        self._clock = clock
        self._spawn = spawn
        # Of all searches that take longer.
        self._pace = Pace(clock)

    def handle(
        self, request: ListOffsetsRequest, context: RequestContext
    ) -> ListOffsetsResponse | None:
        counts = Counter(
            (topic.name, wanted.partition_index)
            for topic in request.topics
            for wanted in topic.partitions
        )
        response = ListOffsetsResponse()
        pace = Pace(self._clock)
        pace.begin()
        pending = []
        for topic in request.topics:
            answers = []
            may_describe = context.access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
            for wanted in topic.partitions:
                answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
                answers.append(answer)
                if not may_describe:
                    answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    continue
                if counts[topic.name, wanted.partition_index] > 1:
                    answer.error_code = ErrorCode.INVALID_REQUEST
                    continue
                try:
                    lookup = self._find(topic.name, wanted, request, context.api_version, answer)
                    if lookup is None:
                        continue
                    lookup.search.run_warm(pace)
                    if lookup.search.is_done:
                        lookup.settle()
                    else:
                        pending.append(lookup)
                except (ReplicaError, LogError, RecordDataError) as error:
                    answer.error_code = error.error_code
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        if not pending:
            return response
        self._spawn(partial(context.respond_with, partial(self._finish, pending, response)))
        return None

    async def _finish(
        self, lookups: Sequence[_Lookup], response: ListOffsetsResponse
    ) -> ListOffsetsResponse:
        for lookup in lookups:
            try:
                await self._finish_one(lookup)
            except (ReplicaError, LogError, RecordDataError) as error:
                lookup.answer.error_code = error.error_code
        return response

    async def _finish_one(self, lookup: _Lookup) -> None:
        try:
            await lookup.search.run(self._pace)
        except LogError:
            # A log that was closed may have left this broker; that is what the asker must know.
            lookup.check(self._replicas)
            raise
        lookup.check(self._replicas)
        lookup.settle()

    def _find(
        self,
        topic: str,
        wanted: ListOffsetsPartition,
        request: ListOffsetsRequest,
        version: int,
        answer: ListOffsetsPartitionResponse,
    ) -> _Lookup | None:
        """Fill the answer, or say what has to be looked for first."""
        timestamp = wanted.timestamp
        if timestamp < 0 and version < _FIRST_VERSIONS.get(timestamp, version + 1):
            raise ReplicaError(ErrorCode.UNSUPPORTED_VERSION, f"time {timestamp}")
        partition = self._replicas.lookup((topic, wanted.partition_index))
        if isinstance(partition, ErrorCode):
            raise ReplicaError(partition, partition.message)
        code = partition.check_epoch(wanted.current_leader_epoch)
        if code != ErrorCode.NONE:
            raise ReplicaError(code, code.message)
        needs_leader = request.replica_id != _DEBUGGER
        if needs_leader:
            partition.check_leader()
        if request.replica_id != _CONSUMER:
            isolation = Isolation.LOG_END
        elif request.isolation_level == _READ_COMMITTED:
            isolation = Isolation.COMMITTED
        else:
            isolation = Isolation.HIGH_WATERMARK
        if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
            return _Lookup(
                partition,
                wanted,
                answer,
                isolation=isolation,
                needs_leader=needs_leader,
                version=version,
            )
        _fill(answer, _place(partition, timestamp, isolation, version), version)
        return None

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


def _fill(answer: ListOffsetsPartitionResponse, found: FoundOffset, version: int) -> None:
    answer.timestamp = found.timestamp_ms
    answer.offset = found.offset
    if version >= 4:
        answer.leader_epoch = found.leader_epoch


def _place(partition: Partition, timestamp: int, isolation: Isolation, version: int) -> FoundOffset:
    """What a time that stands for a place means."""
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log_of(partition).earliest_offset()
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOWHERE
    _check_committed(partition, isolation, version)
    return FoundOffset(bound_offset(partition, isolation), NO_TIMESTAMP, partition.leader_epoch)


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
