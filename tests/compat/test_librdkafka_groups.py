"""librdkafka's groups, in both protocols, and its transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from compat.data_cluster import SECONDS, DataCluster
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

pytestmark = pytest.mark.compat

PROTOCOLS = ("classic", "consumer")
PARTITIONS = 4
RECORDS = 200


class Member:
    """A consumer in a group, with what it was given and what it has read."""

    def __init__(self, cluster: DataCluster, group: str, protocol: str, **settings: Any) -> None:
        base: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            # Nobody is lost because the machine does other work.
            base |= {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 500}
        self.consumer = Consumer(base | settings)
        self.read: list[Message] = []
        self.lost: list[int] = []

    def subscribe(self, *topics: str) -> None:
        self.consumer.subscribe(list(topics), on_revoke=self._revoked)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.lost += [each.partition for each in partitions]

    @property
    def owned(self) -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    @property
    def values(self) -> list[str]:
        return [(message.value() or b"").decode() for message in self.read]

    def poll(self) -> None:
        for message in self.consumer.consume(100, 0.05):
            error = message.error()
            # Who was not polled for too long rejoins. The usual limit is five minutes.
            if error is None or error.code() != KafkaError._MAX_POLL_EXCEEDED:
                assert error is None, error
                self.read.append(message)

    def commit(self) -> None:
        """Commit what was read; who has read nothing since a rebalance has nothing to commit."""
        positions = self.consumer.position(self.consumer.assignment())
        known = [each for each in positions if each.offset >= 0]
        if known:
            self.consumer.commit(offsets=known, asynchronous=False)


@contextmanager
def members(
    cluster: DataCluster, group: str, protocol: str, *each_settings: dict[str, Any]
) -> Iterator[list[Member]]:
    made = [Member(cluster, group, protocol, **settings) for settings in each_settings]
    try:
        yield made
    finally:
        for member in made:
            member.consumer.close()


def until(condition: Callable[[], bool], *polled: Member, seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, [sorted(each.owned) for each in polled]
        for member in polled:
            member.poll()


def all_of(topic: str) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(PARTITIONS)}


def fill(cluster: DataCluster, topic: str, first: int = 0, count: int = RECORDS) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("cluster", ["one_node", "three_nodes"], indirect=True)
def test_members_come_and_go(cluster: DataCluster, protocol: str) -> None:
    """Every record is read, and who comes later goes on where the group has committed."""
    topic = cluster.topic(PARTITIONS)
    group = f"come-and-go-{topic}-{protocol}"
    with members(cluster, group, protocol, {}, {}) as (first, second):
        first.subscribe(topic)
        until(lambda: first.owned == all_of(topic), first)
        fill(cluster, topic)
        until(lambda: len(first.read) >= RECORDS, first)
        first.commit()
        second.subscribe(topic)
        until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
        assert first.owned | second.owned == all_of(topic)
        fill(cluster, topic, first=RECORDS)
        until(lambda: len(first.read) + len(second.read) >= 2 * RECORDS, first, second)
        assert len(second.read) == RECORDS // 2
        first.commit()
        second.commit()
        second.consumer.unsubscribe()
        until(lambda: first.owned == all_of(topic), first, second)
        fill(cluster, topic, first=2 * RECORDS)
        until(lambda: len(first.read) + len(second.read) >= 3 * RECORDS, first)
        # Nothing is read twice where nobody was lost.
        read = sorted(map(int, first.values + second.values))
        assert read == list(range(3 * RECORDS))
        first.commit()
    committed = Member(cluster, group, protocol).consumer
    found = committed.committed(
        [TopicPartition(topic, each) for each in range(PARTITIONS)], timeout=SECONDS
    )
    committed.close()
    assert [each.offset for each in found] == [3 * RECORDS // PARTITIONS] * PARTITIONS


@pytest.mark.parametrize(
    ("protocol", "settings"),
    [
        ("classic", {"partition.assignment.strategy": "cooperative-sticky"}),
        ("consumer", {"group.remote.assignor": "uniform"}),
    ],
)
def test_what_need_not_move_stays(
    three_nodes: DataCluster, protocol: str, settings: dict[str, Any]
) -> None:
    """Cooperative rebalancing: who has a partition afterwards has not lost it meanwhile."""
    topic = three_nodes.topic(PARTITIONS)
    group = f"stays-{topic}"
    with members(three_nodes, group, protocol, settings, settings) as (first, second):
        first.subscribe(topic)
        until(lambda: first.owned == all_of(topic), first)
        second.subscribe(topic)
        until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
        assert sorted(first.lost) == sorted(partition for _, partition in second.owned)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_that_restarts_gets_its_own_again(
    three_nodes: DataCluster, protocol: str
) -> None:
    """Nobody else notices."""
    topic = three_nodes.topic(PARTITIONS)
    group = f"static-{topic}"
    one, two = ({"group.instance.id": name} for name in ("one", "two"))
    with members(three_nodes, group, protocol, one) as (first,):
        first.subscribe(topic)
        second = Member(three_nodes, group, protocol, **two)
        second.subscribe(topic)
        until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
        theirs, ours = second.owned, first.owned
        lost = list(first.lost)
        second.consumer.close()
        with members(three_nodes, group, protocol, two) as (again,):
            again.subscribe(topic)
            until(lambda: again.owned == theirs, first, again)
            assert first.owned == ours
            assert first.lost == lost


def test_two_members_of_one_name_are_not_both_heard(three_nodes: DataCluster) -> None:
    topic = three_nodes.topic(PARTITIONS)
    group = f"fenced-{topic}"
    name = {"group.instance.id": "the-one"}
    with members(three_nodes, group, "classic", name, name) as (first, second):
        first.subscribe(topic)
        until(lambda: first.owned == all_of(topic), first)
        second.subscribe(topic)
        until(lambda: second.owned == all_of(topic), second)
        with pytest.raises(AssertionError, match="fenced"):
            until(lambda: False, first)


def test_a_member_that_falls_silent_is_replaced(three_nodes: DataCluster) -> None:
    """A classic one leaves by itself; of the new protocol it would wait for its session's end."""
    topic = three_nodes.topic(PARTITIONS)
    group = f"silent-{topic}"
    sleepy = {"max.poll.interval.ms": 6000, "session.timeout.ms": 6000}
    with members(three_nodes, group, "classic", {}, sleepy) as (first, second):
        first.subscribe(topic)
        second.subscribe(topic)
        until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
        until(lambda: first.owned == all_of(topic), first)


def test_a_pattern_is_resolved_by_the_broker(three_nodes: DataCluster) -> None:
    """KIP-848: also of topics that come later."""
    topics = [three_nodes.topic(PARTITIONS) for _ in range(2)]
    group = f"pattern-{topics[0]}"
    with members(three_nodes, group, "consumer", {}) as (member,):
        member.subscribe(f"^({topics[0]}|{topics[1]})$")
        until(lambda: member.owned == all_of(topics[0]) | all_of(topics[1]), member)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_administration_of_groups(three_nodes: DataCluster, protocol: str) -> None:
    topic = three_nodes.topic(PARTITIONS)
    group = f"admin-{topic}"
    admin = three_nodes.admin
    fill(three_nodes, topic)
    with members(three_nodes, group, protocol, {"client.id": "me"}) as (member,):
        member.subscribe(topic)
        until(lambda: len(member.read) == RECORDS, member)
        member.commit()
        found = admin.describe_consumer_groups([group])[group].result(SECONDS)
        assert found.state == ConsumerGroupState.STABLE
        assert found.type.name == protocol.upper()
        [described] = found.members
        assert (described.client_id, described.host) == ("me", "/127.0.0.1")
        given = {(each.topic, each.partition) for each in described.assignment.topic_partitions}
        assert given == all_of(topic)
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])[group].result(SECONDS)

    def is_empty() -> bool:
        listed = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(SECONDS)
        return group in {each.group_id for each in listed.valid}

    # Who closes does not wait for long until the broker has heard of it.
    until(is_empty)
    admin.delete_consumer_groups([group])[group].result(SECONDS)
    listed = admin.list_consumer_groups().result(SECONDS)
    assert group not in {each.group_id for each in listed.valid}


def transactional(cluster: DataCluster, name: str, **settings: Any) -> Producer:
    base = {"bootstrap.servers": cluster.bootstrap, "transactional.id": name}
    producer = Producer(base | settings)
    producer.init_transactions(SECONDS)
    return producer


def read_committed(cluster: DataCluster, topic: str, count: int) -> list[str]:
    settings = {"isolation.level": "read_committed"}
    group = f"reads-{topic}-{time.monotonic_ns()}"
    with members(cluster, group, "consumer", settings) as (reader,):
        reader.subscribe(topic)
        until(lambda: len(reader.read) >= count, reader)
        return sorted(reader.values)


@pytest.mark.parametrize("cluster", ["one_node", "three_nodes"], indirect=True)
def test_transactions_are_seen_whole_or_not_at_all(cluster: DataCluster) -> None:
    topic = cluster.topic(PARTITIONS)
    producer = transactional(cluster, f"whole-{topic}")
    expected = []
    for number in range(6):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, f"{number}-{partition}", partition=partition)
        if number % 3 == 1:
            producer.flush(SECONDS)
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
            expected += [f"{number}-{partition}" for partition in range(PARTITIONS)]
    assert read_committed(cluster, topic, len(expected)) == sorted(expected)


def test_a_zombie_is_fenced(three_nodes: DataCluster) -> None:
    topic = three_nodes.topic(PARTITIONS)
    zombie = transactional(three_nodes, f"zombie-{topic}")
    zombie.begin_transaction()
    zombie.produce(topic, "from the dead", partition=0)
    zombie.flush(SECONDS)
    successor = transactional(three_nodes, f"zombie-{topic}")
    successor.begin_transaction()
    successor.produce(topic, "alive", partition=0)
    successor.commit_transaction(SECONDS)
    with pytest.raises(KafkaException, match="fenced"):
        zombie.commit_transaction(SECONDS)
    assert read_committed(three_nodes, topic, 1) == ["alive"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consume_transform_produce(three_nodes: DataCluster, protocol: str) -> None:
    """Offsets are committed with the records, and taken back with them."""
    source, target = three_nodes.topic(PARTITIONS), three_nodes.topic(PARTITIONS)
    fill(three_nodes, source)
    group = f"transform-{source}"
    producer = transactional(three_nodes, group)
    done = 0
    with members(three_nodes, group, protocol, {}) as (member,):
        member.subscribe(source)
        rounds = 0
        while done < RECORDS:
            member.read.clear()
            until(lambda: bool(member.read), member)
            consumer = member.consumer
            producer.begin_transaction()
            for message in member.read:
                producer.produce(target, message.value(), partition=message.partition())
            positions = consumer.position(consumer.assignment())
            moved = [each for each in positions if each.offset >= 0]
            producer.send_offsets_to_transaction(moved, consumer.consumer_group_metadata(), SECONDS)
            rounds += 1
            if rounds == 1:
                producer.flush(SECONDS)
                producer.abort_transaction(SECONDS)
                for each in consumer.committed(consumer.assignment(), timeout=SECONDS):
                    each.offset = max(each.offset, 0)
                    consumer.seek(each)
            else:
                producer.commit_transaction(SECONDS)
                done += len(member.read)
        found = member.consumer.committed(member.consumer.assignment(), timeout=SECONDS)
        assert sum(each.offset for each in found) == RECORDS
    values = read_committed(three_nodes, target, RECORDS)
    assert values == sorted(str(each) for each in range(RECORDS))
