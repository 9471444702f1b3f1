"""A group's committed offsets: OffsetCommit and OffsetFetch, asked again until their time is over.

A commit is made in the name that the member had when it was asked for. If the member has lost the
partitions meanwhile, the commit fails: it would overwrite what their new owner says.

Whoever reads offsets waits for transactions that are about to change them (`require_stable`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kraftpy.client.backoff import Backoff
from kraftpy.client.calls import Call, TopicPartition, earliest
from kraftpy.client.errors import KafkaError, error_code
from kraftpy.client.group_member import GroupMetadata, is_lost
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kraftpy.protocol.schema.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from kraftpy.client.cluster import Cluster
    from kraftpy.client.coordinator_finder import CoordinatorFinder
    from kraftpy.client.settings import ConsumerSettings
    from kraftpy.protocol.tables import Request
    from kraftpy.world import Random

__all__ = ["Commit", "CommittedLookup", "GroupOffsets", "OffsetAndMetadata"]

# From version 10 on topics go by their ids, which must be known.
_LAST_WITH_NAMES = 9
_NOT_COMMITTED = -1
_NO_LONGER_A_MEMBER = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class OffsetAndMetadata(NamedTuple):
    """The next offset to read, the epoch of the record before, and a word of the user's."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class _Run:
    """One request under way."""

    __slots__ = ("_when_done", "expires_ms", "failure", "is_done", "is_in_flight", "not_before_ms")

    def __init__(self, expires_ms: int) -> None:
        self.expires_ms = expires_ms
        self.not_before_ms = 0
        self.is_in_flight = False
        self.is_done = False
        self.failure: Exception | None = None
        self._when_done: list[Callable[[], None]] = []

    def when_done(self, waiter: Callable[[], None]) -> None:
        if self.is_done:
            waiter()
        else:
            self._when_done.append(waiter)

    def finish(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.is_done = True
        waiters, self._when_done = self._when_done, []
        for waiter in waiters:
            waiter()


class Commit(_Run):
    """Offsets on their way; `result` raises why they were not committed."""

    __slots__ = ("identity", "offsets")

    def __init__(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: GroupMetadata,
        expires_ms: int,
    ) -> None:
        super().__init__(expires_ms)
        self.offsets = dict(offsets)
        self.identity = identity

    def result(self) -> None:
        if self.failure is not None:
            raise self.failure


class CommittedLookup(_Run):
    """Committed offsets on their way; None where there is none."""

    __slots__ = ("_found", "wheres")

    def __init__(self, wheres: Iterable[TopicPartition], expires_ms: int) -> None:
        super().__init__(expires_ms)
        self.wheres = list(wheres)
        self._found: dict[TopicPartition, OffsetAndMetadata] = {}

    def learn(self, where: TopicPartition, offset: OffsetAndMetadata) -> None:
        self._found[where] = offset

    def result(self) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if self.failure is not None:
            raise self.failure
        return {where: self._found.get(where) for where in self.wheres}


class GroupOffsets:
    """`identity` and `may_commit` are the member's (see group_member.py)."""

    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: Cluster,
        finder: CoordinatorFinder,
        random: Random,
        *,
        identity: Callable[[], GroupMetadata],
        may_commit: Callable[[GroupMetadata, Collection[TopicPartition]], bool],
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._finder = finder
        self._identity = identity
        self._may_commit = may_commit
        self._backoff = Backoff(
            initial_ms=settings.client.retry_backoff_ms,
            max_ms=settings.client.retry_backoff_max_ms,
            random=random,
        )
        self._commits: list[Commit] = []
        self._lookups: list[CommittedLookup] = []

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int) -> Commit:
        expires_ms = now_ms + self._settings.default_api_timeout_ms
        commit = Commit(offsets, self._identity(), expires_ms)
        if not offsets:
            commit.finish()
            return commit
        self._commits.append(commit)
        self._finder.is_wanted = True
        return commit

    def look_up(
        self, wheres: Iterable[TopicPartition], now_ms: int, *, forever: bool = False
    ) -> CommittedLookup:
        timeout_ms = 1 << 62 if forever else self._settings.default_api_timeout_ms
        lookup = CommittedLookup(wheres, now_ms + timeout_ms)
        if not lookup.wheres:
            lookup.finish()
            return lookup
        for where in lookup.wheres:
            self._cluster.want(where.topic)
        self._lookups.append(lookup)
        self._finder.is_wanted = True
        return lookup

    def calls(self, now_ms: int) -> list[Call]:
        calls = []
        self._commits = [run for run in self._commits if not run.is_done]
        self._lookups = [run for run in self._lookups if not run.is_done]
        runs: list[Commit | CommittedLookup] = [*self._commits, *self._lookups]
        for run in runs:
            if self._finder.failure is not None:
                run.finish(self._finder.failure)
            elif run.expires_ms <= now_ms:
                timeout_ms = self._settings.default_api_timeout_ms
                why = f"not done in {timeout_ms} ms: {run.failure or 'no coordinator'}"
                run.finish(KafkaError(ErrorCode.REQUEST_TIMED_OUT, why))
            elif not run.is_in_flight and run.not_before_ms <= now_ms and self._finder.address:
                calls += self._call(run)
        return calls

    def wake_at_ms(self) -> int | None:
        moment = None
        for run in (*self._commits, *self._lookups):
            if run.is_done:
                continue
            moment = earliest(moment, run.expires_ms)
            if not run.is_in_flight and self._finder.address is not None:
                moment = earliest(moment, run.not_before_ms)
        return moment

    def _call(self, run: Commit | CommittedLookup) -> list[Call]:
        if isinstance(run, CommittedLookup):
            request, topics = self._fetch_request(run)
        elif self._may_commit(run.identity, run.offsets):
            request, topics = self._commit_request(run)
        else:
            why = "the partitions are not this member's any more: the group has rebalanced"
            run.finish(KafkaError(ErrorCode.ILLEGAL_GENERATION, why))
            return []
        run.is_in_flight = True

        def answered(answer: Any, now_ms: int) -> None:
            run.is_in_flight = False
            if not run.is_done:
                if isinstance(run, Commit):
                    codes = _read_commit(answer)
                else:
                    codes = _read_fetch(answer, run, topics)
                self._judge(run, codes, now_ms)

        def failed(failure: Exception, now_ms: int) -> None:
            run.is_in_flight = False
            if run.is_done:
                return
            if is_lost(failure):
                self._again(run, failure, now_ms)
            else:
                run.finish(failure)

        max_version = None if ZERO_UUID not in topics else _LAST_WITH_NAMES
        return [self._finder.call(request, answered, failed, max_version=max_version)]

    def _judge(self, run: Commit | CommittedLookup, codes: list[ErrorCode], now_ms: int) -> None:
        """One that will not pass decides; otherwise all of it is asked again."""
        failures = [code for code in codes if code != ErrorCode.NONE]
        passing = [code for code in failures if self._may_pass(run, code)]
        if not failures:
            self._backoff.succeeded()
            run.finish()
        elif len(passing) < len(failures):
            code = next(code for code in failures if code not in passing)
            run.finish(KafkaError(code))
        else:
            for code in dict.fromkeys(passing):
                self._finder.has_moved(code, now_ms)
                if code.refreshes_metadata:
                    self._cluster.refresh()
            self._again(run, KafkaError(passing[0]), now_ms)

    def _may_pass(self, run: Commit | CommittedLookup, code: ErrorCode) -> bool:
        if isinstance(run, CommittedLookup) and code in _NO_LONGER_A_MEMBER:
            # A heartbeat tells it, too; then it is asked as nobody, or as who it is by then.
            return True
        # The next heartbeat brings the epoch that the coordinator is in already.
        is_behind = code == ErrorCode.STALE_MEMBER_EPOCH and self._identity().generation >= 0
        return code.retriable or is_behind

    def _again(self, run: Commit | CommittedLookup, failure: Exception, now_ms: int) -> None:
        run.failure = failure
        run.not_before_ms = now_ms + self._backoff.failed()

    def _topic_id(self, name: str) -> Uuid:
        topic = self._cluster.topic(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def _commit_request(self, run: Commit) -> tuple[Request, dict[Uuid, str]]:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (name, partition), offset in run.offsets.items():
            topic = topics.get(name)
            if topic is None:
                topic_id = self._topic_id(name)
                topic = topics[name] = OffsetCommitRequestTopic(name=name, topic_id=topic_id)
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        group_id, generation, member_id, instance_id = self._identity()
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=list(topics.values()),
        )
        return request, {topic.topic_id: name for name, topic in topics.items()}

    def _fetch_request(self, run: CommittedLookup) -> tuple[Request, dict[Uuid, str]]:
        topics: dict[str, OffsetFetchRequestTopics] = {}
        for name, partition in run.wheres:
            topic = topics.get(name)
            if topic is None:
                topic_id = self._topic_id(name)
                topic = topics[name] = OffsetFetchRequestTopics(name=name, topic_id=topic_id)
            topic.partition_indexes.append(partition)
        group_id, generation, member_id, _ = self._identity()
        group = OffsetFetchRequestGroup(group_id=group_id, topics=list(topics.values()))
        if generation >= 0 and self._settings.group_protocol == "consumer":
            group.member_id = member_id
            group.member_epoch = generation
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        return request, {topic.topic_id: name for name, topic in topics.items()}


def _read_commit(answer: OffsetCommitResponse) -> list[ErrorCode]:
    return [error_code(each.error_code) for topic in answer.topics for each in topic.partitions]


def _read_fetch(
    answer: OffsetFetchResponse, lookup: CommittedLookup, names: Mapping[Uuid, str]
) -> list[ErrorCode]:
    codes = []
    for group in answer.groups:
        codes.append(error_code(group.error_code))
        for topic in group.topics:
            name = topic.name or names.get(topic.topic_id, "")
            for each in topic.partitions:
                codes.append(error_code(each.error_code))
                if each.error_code == ErrorCode.NONE and each.committed_offset > _NOT_COMMITTED:
                    lookup.learn(
                        TopicPartition(name, each.partition_index),
                        OffsetAndMetadata(
                            each.committed_offset,
                            each.committed_leader_epoch,
                            each.metadata or "",
                        ),
                    )
    return codes
