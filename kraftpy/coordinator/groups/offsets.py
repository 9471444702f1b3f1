"""Offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete, and their part in transactions.

Offsets belong to groups of every kind, and also to consumers that use a group id for nothing but
this: an Empty classic group is made for them, by replay of the first offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftpy.coordinator.groups.classic_group import ClassicGroup
from kraftpy.coordinator.groups.directory import GroupDirectory, no_such_group
from kraftpy.coordinator.groups.group import CommitCheck
from kraftpy.coordinator.groups.metrics import GroupMetrics
from kraftpy.coordinator.groups.offsets_state import OffsetState, StoredOffset
from kraftpy.coordinator.groups.offsets_table import TopicPartition
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorError, CoordinatorRecord, Outcome
from kraftpy.coordinator.ports import ShardContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema.group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kraftpy.protocol.schema.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kraftpy.protocol.schema.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kraftpy.protocol.schema.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kraftpy.protocol.tables import RecordValue

__all__ = ["Offsets", "offset_tombstone"]

# What Kafka writes: the newest one, or the one with a time of expiry, which only old clients set.
_VALUE_VERSION: Final = 4
_VALUE_VERSION_WITH_EXPIRY: Final = 1
_NOT_SAID: Final = -1
# Clients that mean "for ever" ask for the longest time that they can write.
_LATEST_MS: Final = 2**63 - 1
_NO_OFFSET: Final = -1
_NO_PRODUCER: Final = -1
# Since this version of OffsetCommit, clients know that there may be no such group.
_KNOWS_NO_SUCH_GROUP: Final = 9


class Offsets:
    __slots__ = (
        "_context",
        "_directory",
        "_keep_alive",
        "_max_metadata_length",
        "_metrics",
        "state",
    )

    def __init__(
        self,
        context: ShardContext,
        directory: GroupDirectory,
        settings: GroupSettings,
        metrics: GroupMetrics,
        *,
        keep_alive: Callable[[ClassicGroup, str], None],
    ) -> None:
        """`keep_alive` is told of members that commit."""
        self._context = context
        self._directory = directory
        self._max_metadata_length = settings.offset_metadata_max_length
        self._metrics = metrics
        self._keep_alive = keep_alive
        self.state = OffsetState(context.timeline)

    # Committing.

    def commit(
        self, request: OffsetCommitRequest, api_version: int
    ) -> Outcome[OffsetCommitResponse]:
        """Topics have their names, in every version, and their ids if the client sent ids."""
        check = self._check_commit(request, api_version)
        now_ms = self._context.clock.wall_ms()
        has_expiry = request.retention_time_ms != _NOT_SAID
        expire_ms = min(now_ms + request.retention_time_ms, _LATEST_MS) if has_expiry else _NOT_SAID
        commit = _Commit(request.group_id, check, now_ms, expire_ms, self._max_metadata_length)
        answer = OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=each.partition_index,
                            error_code=commit.take(topic.name, topic.topic_id, each),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
        self._metrics.offset_commits(len(commit.records))
        return Outcome(commit.records, answer)

    def commit_transactional(
        self, request: TxnOffsetCommitRequest, api_version: int
    ) -> Outcome[TxnOffsetCommitResponse]:
        """To be written within the producer's transaction."""
        try:
            return self._commit_transactional(request, api_version)
        except CoordinatorError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:
                # Producers know of generations, but not of member epochs.
                raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION) from error
            raise

    def _commit_transactional(
        self, request: TxnOffsetCommitRequest, api_version: int
    ) -> Outcome[TxnOffsetCommitResponse]:
        check = self._check_transactional_commit(request, api_version)
        now_ms = self._context.clock.wall_ms()
        commit = _Commit(request.group_id, check, now_ms, _NOT_SAID, self._max_metadata_length)
        answer = TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=each.partition_index,
                            error_code=commit.take(topic.name, ZERO_UUID, each),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
        self._metrics.offset_commits(len(commit.records))
        return Outcome(commit.records, answer)

    def _check_commit(self, request: OffsetCommitRequest, api_version: int) -> CommitCheck | None:
        group = self._directory.get(request.group_id)
        epoch = request.generation_id_or_member_epoch
        if group is None:
            if epoch < 0:
                return None
            if api_version >= _KNOWS_NO_SUCH_GROUP:
                raise no_such_group(request.group_id)
            raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
        check = group.validate_offset_commit(
            request.member_id,
            request.group_instance_id,
            epoch,
            is_transactional=False,
            api_version=api_version,
        )
        if isinstance(group, ClassicGroup):
            self._keep_alive(group, request.member_id)
        return check

    def _check_transactional_commit(
        self, request: TxnOffsetCommitRequest, api_version: int
    ) -> CommitCheck | None:
        group = self._directory.get(request.group_id)
        if group is None:
            if request.generation_id < 0:
                return None
            raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
        return group.validate_offset_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            is_transactional=True,
            api_version=api_version,
        )

    # Reading.

    def fetch(
        self, request: OffsetFetchRequestGroup, *, is_stable: bool
    ) -> OffsetFetchResponseGroup:
        """The offsets of a group; topics have their names, and their ids if the client sent ids.

        `is_stable`: with what is not committed yet, so that the answer has to wait for that, and
        without what a transaction may still change. Otherwise as it is committed.
        """
        answer = OffsetFetchResponseGroup(group_id=request.group_id)
        group = (
            self._directory.get(request.group_id)
            if is_stable
            else self._directory.committed_get(request.group_id)
        )
        if group is not None:
            group.validate_committed_offset_fetch(request.member_id, request.member_epoch)
        if request.topics is None:
            if group is not None:
                answer.topics = self._all_of(request.group_id, is_stable=is_stable)
            return answer
        for topic in request.topics:
            found = []
            for index in topic.partition_indexes:
                stored = None
                if group is not None:
                    stored = self._stored(request.group_id, (topic.name, index), is_stable)
                if stored is not None and _is_of_another(stored.topic_id, topic.topic_id):
                    stored = None
                found.append(
                    self._as_answer(request.group_id, (topic.name, index), stored, is_stable)
                )
            answer.topics.append(
                OffsetFetchResponseTopics(
                    name=topic.name, topic_id=topic.topic_id, partitions=found
                )
            )
        return answer

    def _stored(
        self, group_id: str, partition: TopicPartition, is_stable: bool
    ) -> StoredOffset | None:
        committed = self.state.committed
        if is_stable:
            return committed.get(group_id, partition)
        return committed.committed_get(group_id, partition)

    def _as_answer(
        self,
        group_id: str,
        partition: TopicPartition,
        stored: StoredOffset | None,
        is_stable: bool,
    ) -> OffsetFetchResponsePartitions:
        answer = OffsetFetchResponsePartitions(
            partition_index=partition[1], committed_offset=_NO_OFFSET, metadata=""
        )
        if is_stable and self.state.is_pending(group_id, partition):
            answer.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        elif stored is not None:
            answer.committed_offset = stored.offset
            answer.committed_leader_epoch = stored.leader_epoch
            answer.metadata = stored.metadata
        return answer

    def _all_of(self, group_id: str, *, is_stable: bool) -> list[OffsetFetchResponseTopics]:
        committed = self.state.committed
        items = (
            committed.of_group(group_id) if is_stable else committed.committed_of_group(group_id)
        )
        topics: dict[str, OffsetFetchResponseTopics] = {}
        for partition, stored in items:
            name = partition[0]
            if name not in topics:
                topics[name] = OffsetFetchResponseTopics(name=name)
            answer = self._as_answer(group_id, partition, stored, is_stable)
            topics[name].partitions.append(answer)
        return list(topics.values())

    # Deleting.

    def delete(self, request: OffsetDeleteRequest) -> Outcome[OffsetDeleteResponse]:
        group = self._directory.find(request.group_id)
        group.validate_offset_delete()
        records: list[CoordinatorRecord] = []
        answer = OffsetDeleteResponse()
        for topic in request.topics:
            is_subscribed = group.is_subscribed_to(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
            response = OffsetDeleteResponseTopic(name=topic.name)
            for each in topic.partitions:
                partition = (topic.name, each.partition_index)
                response.partitions.append(
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                )
                if not is_subscribed and self._is_there(request.group_id, partition):
                    records.append(offset_tombstone(request.group_id, partition))
            answer.topics.append(response)
        self._metrics.offset_deletions(len(records))
        return Outcome(records, answer)

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """What deletes all offsets of a group, also those that are pending."""
        return [
            offset_tombstone(group_id, partition)
            for partition in self.state.partitions_of(group_id)
        ]

    def _is_there(self, group_id: str, partition: TopicPartition) -> bool:
        return self.state.newest_record_offset(group_id, partition) >= 0

    # Replay.

    def replay(
        self,
        offset: int,
        producer_id: int,
        key: OffsetCommitKey | LegacyOffsetCommitKey,
        value: RecordValue | None,
    ) -> None:
        partition = (key.topic, key.partition)
        if not isinstance(value, OffsetCommitValue | LegacyOffsetCommitValue):
            self.state.remove(key.group, partition)
            return
        if self._directory.get(key.group) is None:
            self._directory.put(ClassicGroup(key.group, self._context.clock.wall_ms()))
        stored = StoredOffset.of_record(offset, value)
        if producer_id == _NO_PRODUCER:
            self.state.put(key.group, partition, stored)
        else:
            self.state.put_pending(producer_id, key.group, partition, stored)


class _Commit:
    """The records of one commit, as they come together."""

    __slots__ = ("_check", "_expire_ms", "_group_id", "_max_metadata_length", "_now_ms", "records")

    def __init__(
        self,
        group_id: str,
        check: CommitCheck | None,
        now_ms: int,
        expire_ms: int,
        max_metadata_length: int,
    ) -> None:
        self._group_id = group_id
        self._check = check
        self._now_ms = now_ms
        self._expire_ms = expire_ms
        self._max_metadata_length = max_metadata_length
        self.records: list[CoordinatorRecord] = []

    def take(
        self,
        topic: str,
        topic_id: Uuid,
        given: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    ) -> ErrorCode:
        """Take a partition's offset in; says why not. Raises CoordinatorError for all of them."""
        metadata = given.committed_metadata or ""
        if _java_length_exceeds(metadata, self._max_metadata_length):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if self._check is not None:
            self._check(topic, topic_id, given.partition_index)
        value = OffsetCommitValue(
            offset=given.committed_offset,
            leader_epoch=given.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=self._now_ms,
            expire_timestamp=self._expire_ms,
            topic_id=topic_id,
        )
        has_expiry = self._expire_ms != _NOT_SAID
        version = _VALUE_VERSION_WITH_EXPIRY if has_expiry else _VALUE_VERSION
        key = _key(self._group_id, (topic, given.partition_index))
        self.records.append(CoordinatorRecord(key, value, version))
        return ErrorCode.NONE


def offset_tombstone(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    return CoordinatorRecord(_key(group_id, partition))


def _key(group_id: str, partition: TopicPartition) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=partition[0], partition=partition[1])


def _is_of_another(stored: Uuid, asked: Uuid) -> bool:
    """Whether an offset is that of a topic which had the name before; who doesn't say, is right."""
    return ZERO_UUID not in (stored, asked) and stored != asked


def _java_length_exceeds(text: str, limit: int) -> bool:
    """Kafka measures in UTF-16 code units: one or two for a character."""
    if 2 * len(text) <= limit:
        return False
    return len(text.encode("utf-16-le", "surrogatepass")) > 2 * limit
