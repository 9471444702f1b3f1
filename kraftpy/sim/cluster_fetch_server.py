"""How a simulated broker serves its followers: as the API handlers do, without waiting.

Sessions are remembered for each follower, and an answer tells everything that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftpy.broker.partition import Partition, ReplicaError
from kraftpy.log.errors import LogError
from kraftpy.log.offsets import Isolation
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k01_fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from kraftpy.protocol.schema.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kraftpy.sim.cluster_data_rules import DataRules, PartitionKey

__all__ = ["FetchServer"]

_LATEST = -1


class _Session:
    """What a follower has asked for, and the epoch of its next request."""

    __slots__ = ("asked", "epoch", "session_id")

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.epoch = 0
        self.asked: dict[PartitionKey, FetchPartition] = {}


class FetchServer:
    """Of one process; it forgets its sessions with it."""

    __slots__ = ("_hosted", "_rules", "_sessions", "_sessions_made")

    def __init__(self, hosted: Mapping[PartitionKey, Partition], rules: DataRules) -> None:
        self._hosted = hosted
        self._rules = rules
        self._sessions: dict[int, _Session] = {}
        self._sessions_made = 0

    def fetch(self, request: FetchRequest, max_bytes: int, now_ms: int) -> FetchResponse:
        """The answer to a follower; partitions give at most so much, or one batch."""
        follower_id = request.replica_state.replica_id
        session = self._sessions.get(follower_id)
        if request.session_epoch == 0:
            self._sessions_made += 1
            session = self._sessions[follower_id] = _Session(self._sessions_made)
        elif session is None or session.session_id != request.session_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif session.epoch != request.session_epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch += 1
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                session.asked.pop((forgotten.topic_id, index), None)
        for topic in request.topics:
            for asked in topic.partitions:
                session.asked[topic.topic_id, asked.partition] = asked
        answers = [
            FetchableTopicResponse(
                topic_id=key[0],
                partitions=[self._read(request.replica_state, key, asked, max_bytes, now_ms)],
            )
            for key, asked in session.asked.items()
        ]
        return FetchResponse(session_id=session.session_id, responses=answers)

    def _read(
        self,
        follower: ReplicaState,
        key: PartitionKey,
        asked: FetchPartition,
        max_bytes: int,
        now_ms: int,
    ) -> PartitionData:
        partition = self._hosted.get(key)
        if partition is None:
            return _refused(key, ErrorCode.UNKNOWN_TOPIC_ID)
        error = partition.check_epoch(asked.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return _refused(key, error)
        log = partition.log
        try:
            partition.check_leader()
            if asked.last_fetched_epoch >= 0:
                diverging = partition.divergence(asked.last_fetched_epoch, asked.fetch_offset)
                if diverging is not None:
                    return PartitionData(
                        partition_index=key[1],
                        high_watermark=-1,
                        records=b"",
                        diverging_epoch=EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
                    )
            read = log.read(asked.fetch_offset, max_bytes, Isolation.LOG_END)
        except (ReplicaError, LogError) as trouble:
            return _refused(key, trouble.error_code)
        counts = partition.follower_fetched(
            follower.replica_id,
            read.fetch_offset,
            log_start_offset=asked.log_start_offset,
            leader_end_offset=log.log_end_offset,
            broker_epoch=follower.replica_epoch,
            now_ms=now_ms,
        )
        self._rules.served(partition, asked.current_leader_epoch)
        if not counts:
            return _refused(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        records = read.records
        return PartitionData(
            partition_index=key[1],
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            records=b""
            if records is None
            else records.file.pread(records.length, records.position),
        )

    def find_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        by_name = {each.topic_partition: each for each in self._hosted.values()}
        topics = []
        for topic in request.topics:
            found = []
            for asked in topic.partitions:
                partition = by_name.get((topic.name, asked.partition_index))
                error, offset = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
                if partition is not None:
                    error = partition.check_epoch(asked.current_leader_epoch)
                    log = partition.log
                    is_latest = asked.timestamp == _LATEST
                    offset = log.log_end_offset if is_latest else log.log_start_offset
                    if not partition.is_leader:
                        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                found.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, offset=offset, error_code=error
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
        return ListOffsetsResponse(topics=topics)


def _refused(key: PartitionKey, error: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=key[1], error_code=error, high_watermark=-1, records=b"")
