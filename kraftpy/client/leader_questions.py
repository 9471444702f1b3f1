"""Questions that only a partition's leader can answer: ListOffsets and OffsetForLeaderEpoch.

Questions are collected and sent together, one call for each leader, each partition at most once in
a call. A question whose leader is unknown, lost or the wrong one is asked again after a while,
until its time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kraftpy.client.backoff import Backoff
from kraftpy.client.calls import Call, TopicPartition, earliest
from kraftpy.client.cluster import Broker, Cluster
from kraftpy.client.errors import ConnectionLost, KafkaError, error_code
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraftpy.protocol.schema.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraftpy.protocol.tables import Request

if TYPE_CHECKING:
    from kraftpy.client.settings import ClientSettings
    from kraftpy.world import Random

__all__ = [
    "EARLIEST_TIMESTAMP",
    "LATEST_TIMESTAMP",
    "EpochEnds",
    "LeaderQuestions",
    "OffsetAnswer",
    "OffsetLookup",
    "OffsetsByTime",
    "Question",
]

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
_CONSUMER = -1


class OffsetAnswer(NamedTuple):
    """An offset (-1: there is none) with what the leader says about the record there."""

    offset: int
    leader_epoch: int
    timestamp_ms: int = -1


class OffsetLookup:
    """Offsets on their way."""

    __slots__ = ("_outcomes", "_wheres")

    def __init__(self, wheres: Iterable[TopicPartition]) -> None:
        self._wheres = list(wheres)
        self._outcomes: dict[TopicPartition, OffsetAnswer | Exception] = {}

    @property
    def is_done(self) -> bool:
        return len(self._outcomes) == len(self._wheres)

    def settle(self, where: TopicPartition, outcome: OffsetAnswer | Exception) -> None:
        self._outcomes[where] = outcome

    def result(self) -> dict[TopicPartition, OffsetAnswer]:
        """All of them, in the order asked for; raises the first failure."""
        found = {}
        for where in self._wheres:
            outcome = self._outcomes[where]
            if isinstance(outcome, Exception):
                raise outcome
            found[where] = outcome
        return found


class Question:
    """`argument` is a timestamp or an epoch. `settle` is called once, with answer or failure."""

    __slots__ = (
        "_settle",
        "argument",
        "asked",
        "expires_ms",
        "is_in_flight",
        "not_before_ms",
        "where",
    )

    def __init__(
        self,
        where: TopicPartition,
        argument: int,
        settle: Callable[[OffsetAnswer | Exception], None],
        *,
        expires_ms: int | None,
    ) -> None:
        self.where = where
        self.argument = argument
        self.expires_ms = expires_ms
        self.not_before_ms = 0
        self.is_in_flight = False
        self._settle = settle

    def settle(self, outcome: OffsetAnswer | Exception) -> None:
        self._settle(outcome)


class Kind(Protocol):
    """How one sort of question looks on the wire."""

    def request(self, items: Sequence[tuple[Question, int]]) -> Request:
        """The request for these questions, each with the epoch of its leader."""
        ...

    def read(self, answer: Any) -> Iterator[tuple[TopicPartition, int, OffsetAnswer]]:
        """Partition, error code and answer for each item."""
        ...


class OffsetsByTime:
    """ListOffsets."""

    __slots__ = ("_isolation_level",)

    def __init__(self, isolation_level: int) -> None:
        self._isolation_level = isolation_level

    def request(self, items: Sequence[tuple[Question, int]]) -> Request:
        topics: dict[str, ListOffsetsTopic] = {}
        for question, leader_epoch in items:
            name = question.where.topic
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=question.where.partition,
                    current_leader_epoch=leader_epoch,
                    timestamp=question.argument,
                )
            )
        return ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=self._isolation_level,
            topics=list(topics.values()),
        )

    def read(
        self, answer: ListOffsetsResponse
    ) -> Iterator[tuple[TopicPartition, int, OffsetAnswer]]:
        for topic in answer.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition_index)
                found = OffsetAnswer(each.offset, each.leader_epoch, each.timestamp)
                yield where, each.error_code, found


class EpochEnds:
    """OffsetForLeaderEpoch: where an epoch, or the last one before it, ends in the leader's log."""

    __slots__ = ()

    def request(self, items: Sequence[tuple[Question, int]]) -> Request:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for question, leader_epoch in items:
            name = question.where.topic
            topic = topics.setdefault(name, OffsetForLeaderTopic(topic=name))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=question.where.partition,
                    current_leader_epoch=leader_epoch,
                    leader_epoch=question.argument,
                )
            )
        return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=list(topics.values()))

    def read(
        self, answer: OffsetForLeaderEpochResponse
    ) -> Iterator[tuple[TopicPartition, int, OffsetAnswer]]:
        for topic in answer.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.topic, each.partition)
                yield where, each.error_code, OffsetAnswer(each.end_offset, each.leader_epoch)


class LeaderQuestions:
    """The questions of one sort that one client has open."""

    __slots__ = ("_backoff", "_cluster", "_kind", "_open", "_retry_ms")

    def __init__(
        self, kind: Kind, cluster: Cluster, settings: ClientSettings, random: Random
    ) -> None:
        self._kind = kind
        self._cluster = cluster
        self._retry_ms = settings.retry_backoff_ms
        self._backoff = Backoff(
            initial_ms=settings.retry_backoff_ms,
            max_ms=settings.retry_backoff_max_ms,
            random=random,
        )
        self._open: list[Question] = []

    def ask(self, question: Question) -> None:
        self._cluster.want(question.where.topic)
        self._open.append(question)

    def calls(self, now_ms: int) -> list[Call]:
        self._expire(now_ms)
        loads: dict[int, dict[TopicPartition, tuple[Question, int]]] = {}
        brokers: dict[int, Broker] = {}
        for question in list(self._open):
            if question.is_in_flight or question.not_before_ms > now_ms:
                continue
            leader = self._cluster.leader(question.where)
            if leader is None:
                self._without_leader(question, now_ms)
                continue
            node_id = leader.broker.node_id
            load = loads.setdefault(node_id, {})
            if question.where not in load:
                brokers[node_id] = leader.broker
                load[question.where] = (question, leader.epoch)
                question.is_in_flight = True
        return [self._call(brokers[node_id], load) for node_id, load in loads.items()]

    def wake_at_ms(self) -> int | None:
        return earliest(
            *(each.expires_ms for each in self._open),
            *(each.not_before_ms for each in self._open if not each.is_in_flight),
        )

    def _expire(self, now_ms: int) -> None:
        for question in list(self._open):
            if question.expires_ms is not None and question.expires_ms <= now_ms:
                why = f"no answer about {question.where}"
                if self._cluster.failure is not None:
                    why += f": {self._cluster.failure}"
                self._settle(question, KafkaError(ErrorCode.REQUEST_TIMED_OUT, why))

    def _without_leader(self, question: Question, now_ms: int) -> None:
        """Learn more about the topic, unless what is known rules an answer out."""
        topic = self._cluster.topic(question.where.topic)
        error = ErrorCode.NONE if topic is None else topic.error
        if error != ErrorCode.NONE and not error.retriable:
            why = f"topic {question.where.topic}: {error.message}"
            self._settle(question, KafkaError(error, why))
            return
        self._cluster.refresh()
        question.not_before_ms = now_ms + self._retry_ms

    def _call(self, broker: Broker, load: dict[TopicPartition, tuple[Question, int]]) -> Call:
        def answered(answer: Any, now_ms: int) -> None:
            self._backoff.succeeded()
            for where, number, found in self._kind.read(answer):
                item = load.pop(where, None)
                if item is not None:
                    self._answered(item[0], error_code(number), found, now_ms)
            for question, _ in load.values():
                self._again(question, now_ms)

        def failed(failure: Exception, now_ms: int) -> None:
            self._cluster.disappoint(broker.address, now_ms)
            for question, _ in load.values():
                if isinstance(failure, ConnectionLost):
                    self._again(question, now_ms)
                else:
                    self._settle(question, failure)

        request = self._kind.request(list(load.values()))
        return Call(broker.address, request, answered=answered, failed=failed)

    def _answered(
        self, question: Question, code: ErrorCode, found: OffsetAnswer, now_ms: int
    ) -> None:
        if code == ErrorCode.NONE:
            self._settle(question, found)
        elif code.retriable:
            self._cluster.refresh()
            self._again(question, now_ms)
        else:
            self._settle(question, KafkaError(code, f"{question.where}: {code.message}"))

    def _again(self, question: Question, now_ms: int) -> None:
        question.is_in_flight = False
        question.not_before_ms = now_ms + self._backoff.failed()

    def _settle(self, question: Question, outcome: OffsetAnswer | Exception) -> None:
        if question in self._open:
            self._open.remove(question)
            question.settle(outcome)
