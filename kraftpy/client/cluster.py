"""What a client knows about its cluster: brokers, topics, leaders; learned by Metadata requests.

It starts from the bootstrap addresses and asks for the topics that somebody wants. It asks again
when somebody has reason to believe that the picture is old (`refresh`), when the picture has its
age, and at once for a topic that is new; otherwise no sooner than `retry_backoff_ms` after the last
answer, so that many disappointed partitions make one request.

Any broker can answer. The one that disappointed longest ago is asked, the bootstrap addresses among
them: a cluster that has moved while we slept is found again as long as one of them leads to it.

A partition's leader epoch never goes back for the same topic id: a broker that has slept must not
talk us into an old leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kraftpy.client.backoff import Backoff
from kraftpy.client.calls import Call, TopicPartition
from kraftpy.client.errors import error_code
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from kraftpy.client.settings import ClientSettings
    from kraftpy.world import Address, Random

__all__ = ["Broker", "Cluster", "Leader", "PartitionInfo", "TopicInfo", "topic_info"]

_NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return (self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the last answer had it. With an error there are no partitions to work with."""

    name: str
    topic_id: Uuid
    partitions: dict[int, PartitionInfo]
    error: ErrorCode
    is_internal: bool = False


class Leader(NamedTuple):
    broker: Broker
    epoch: int


class Cluster:
    """One client's picture of the cluster; part of its core."""

    __slots__ = (
        "_allow_auto_create",
        "_asked_ms",
        "_backoff",
        "_bootstrap",
        "_disappointed",
        "_in_flight",
        "_is_stale",
        "_names",
        "_not_before_ms",
        "_settings",
        "_topics",
        "_wanted",
        "brokers",
        "cluster_id",
        "controller_id",
        "failure",
        "updates",
    )

    def __init__(
        self,
        bootstrap: Sequence[Address],
        settings: ClientSettings,
        random: Random,
        *,
        allow_auto_create: bool,
    ) -> None:
        if not bootstrap:
            raise ValueError("at least one bootstrap server is needed")
        self._bootstrap = list(bootstrap)
        self._settings = settings
        self._allow_auto_create = allow_auto_create
        self._backoff = Backoff(
            initial_ms=settings.retry_backoff_ms,
            max_ms=settings.retry_backoff_max_ms,
            random=random,
        )
        self._wanted: dict[str, None] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._names: dict[Uuid, str] = {}
        # When each address let us down last; those not in here never did.
        self._disappointed: dict[Address, int] = {}
        self._is_stale = True
        self._in_flight = False
        self._asked_ms = 0
        self._not_before_ms = 0
        self.brokers: dict[int, Broker] = {}
        self.cluster_id: str | None = None
        self.controller_id = _NO_LEADER
        self.updates = 0
        # Why the last attempt to learn something failed; None after a success.
        self.failure: Exception | None = None

    def want(self, topic: str) -> None:
        """Keep this topic in the picture from now on."""
        if topic not in self._wanted:
            self._wanted[topic] = None
            self._is_stale = True
            if self.failure is None:
                self._not_before_ms = 0

    def refresh(self) -> None:
        """Something contradicts the picture: ask again soon."""
        self._is_stale = True

    def disappoint(self, address: Address, now_ms: int) -> None:
        """A node could not be reached: ask another one, and ask soon."""
        self._disappointed[address] = now_ms
        self._is_stale = True

    def topic(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def name_of(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def leader(self, where: TopicPartition) -> Leader | None:
        """Who leads the partition, as far as is known."""
        info = self.partition(where)
        broker = None if info is None else self.brokers.get(info.leader_id)
        return None if info is None or broker is None else Leader(broker, info.leader_epoch)

    def partition(self, where: TopicPartition) -> PartitionInfo | None:
        topic = self._topics.get(where.topic)
        return None if topic is None else topic.partitions.get(where.partition)

    def learn_leader(
        self, where: TopicPartition, leader_id: int, leader_epoch: int, endpoint: Broker | None
    ) -> bool:
        """A refusal named the partition's new leader (KIP-951); is that news, and of use?"""
        info = self.partition(where)
        if info is None or leader_id < 0 or leader_epoch <= info.leader_epoch:
            return False
        if endpoint is not None:
            self.brokers[leader_id] = endpoint
        if leader_id not in self.brokers:
            return False
        self._topics[where.topic].partitions[where.partition] = PartitionInfo(
            where.partition,
            leader_id,
            leader_epoch,
            info.replicas,
            info.isr,
            info.offline_replicas,
            ErrorCode.NONE,
        )
        return True

    def any_address(self) -> Address:
        """A node to ask what every node can answer: the one that disappointed longest ago."""
        known = [broker.address for broker in self.brokers.values()]
        candidates = dict.fromkeys([*known, *self._bootstrap])
        return min(candidates, key=lambda address: self._disappointed.get(address, -1))

    def calls(self, now_ms: int) -> list[Call]:
        due_ms = self.wake_at_ms()
        if due_ms is None or due_ms > now_ms:
            return []
        self._in_flight = True
        self._is_stale = False
        address = self.any_address()
        topics = [MetadataRequestTopic(name=name) for name in self._wanted]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._allow_auto_create)

        def failed(failure: Exception, at_ms: int) -> None:
            self._failed(address, failure, at_ms)

        return [Call(address, request, answered=self._answered, failed=failed)]

    def wake_at_ms(self) -> int | None:
        if self._in_flight:
            return None
        if self._is_stale:
            return self._not_before_ms
        return max(self._not_before_ms, self._asked_ms + self._settings.metadata_max_age_ms)

    def _failed(self, address: Address, failure: Exception, now_ms: int) -> None:
        self._in_flight = False
        self.failure = failure
        self.disappoint(address, now_ms)
        # With another address to try there is no reason to wait.
        next_address = self.any_address()
        if next_address in self._disappointed:
            self._not_before_ms = now_ms + self._backoff.failed()

    def _answered(self, answer: MetadataResponse, now_ms: int) -> None:
        self._in_flight = False
        self._asked_ms = now_ms
        self._not_before_ms = now_ms + self._settings.retry_backoff_ms
        self._backoff.succeeded()
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.brokers = {}
            self._is_stale = True
            return
        self.failure = None
        self.updates += 1
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        if answer.brokers:
            self.brokers = {
                each.node_id: Broker(each.node_id, each.host, each.port, each.rack)
                for each in answer.brokers
            }
        for topic in answer.topics:
            if topic.name is not None:
                self._learn_topic(topic.name, topic)

    def _learn_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        known = self._topics.get(name)
        older = {}
        if known is not None:
            if known.topic_id == topic.topic_id:
                older = known.partitions
            else:
                self._names.pop(known.topic_id, None)
        info = topic_info(name, topic)
        for partition, before in older.items():
            now = info.partitions.get(partition)
            if now is not None and before.leader_epoch > now.leader_epoch >= 0:
                info.partitions[partition] = before
        self._topics[name] = info
        if topic.topic_id != ZERO_UUID:
            self._names[topic.topic_id] = name


def topic_info(name: str, topic: MetadataResponseTopic) -> TopicInfo:
    """A topic of a Metadata answer, its partitions in order."""
    return TopicInfo(
        name,
        topic.topic_id,
        {
            each.partition_index: PartitionInfo(
                each.partition_index,
                each.leader_id,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
                error_code(each.error_code),
            )
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        },
        error_code(topic.error_code),
        topic.is_internal,
    )
