"""Consumer groups in random runs: never two holders of a partition, and an end (CGP-23, CGP-24).

Clients lose answers, fall silent, leave, come back, change what they want; the coordinator moves
and its writes fail. A client here is as careless as the protocol allows: it gives up partitions
late, and goes on reading what it owns until it hears that it must not.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from coordinator.consumer_kit import Client, ConsumerRig, Owned, holders, settle
from coordinator.shard_kit import Waiting

from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_member import ConsumerMember
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

TOPICS = {"a1": 3, "a2": 5, "b1": 4, "b2": 1}
_LOST = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)


class SlowClient(Client):
    """Takes a while to give up what it is told to."""

    def __init__(self, rig: ConsumerRig, name: str, random: Random, *, is_static: bool) -> None:
        super().__init__(
            rig,
            f"{name}-0",
            random.choice([["a1"], ["a1", "a2"], list(TOPICS), []]),
            regex=random.choice([None, None, "a.*", ".*1"]),
            instance=name if is_static else None,
        )
        self.name = name
        self.random = random
        self.incarnation = 0
        self.assigned: Owned = {}
        self.is_gone = True
        self.waiting: Waiting | None = None

    def start(self) -> None:
        """A new process: a member id of its own, and nothing owned."""
        self.incarnation += 1
        self.member_id = f"{self.name}-{self.incarnation}"
        self.is_gone = False
        self.begin_anew()

    def begin_anew(self) -> None:
        self.epoch, self.owned, self.assigned = 0, {}, {}
        self.waiting = None

    def take(self, answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = {
                self.rig.name(each.topic_id): set(each.partitions)
                for each in answer.assignment.topic_partitions
            }
            # What is new may be read at once; what is lost is given up when there is time.
            for topic, partitions in self.assigned.items():
                self.owned.setdefault(topic, set()).update(partitions)
        return answer

    def give_up(self) -> None:
        self.owned = {
            topic: partitions & self.assigned.get(topic, set())
            for topic, partitions in self.owned.items()
        }

    def send(self) -> None:
        """Some heartbeat; the answer may come, or not."""
        if self.random.random() < 0.5:
            self.give_up()
        if self.epoch == 0 or self.random.random() < 0.3:
            request = self.full_request()
        else:
            request = {**self.short_request(), "topic_partitions": self.listed()}
        self.waiting = self.rig.heartbeat(**request)

    def receive(self) -> None:
        waiting, self.waiting = self.waiting, None
        if waiting is None or not waiting.is_answered or self.random.random() < 0.1:
            return
        reply = waiting.replies[0]
        if not isinstance(reply, CoordinatorError):
            self.take(reply)
        elif reply.code in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            self.begin_anew()
        elif reply.code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
            self.is_gone = True
            self.begin_anew()

    def stop(self, epoch: int) -> None:
        """Say goodbye, and whatever becomes of that, own nothing any more."""
        if self.epoch > 0:
            self.rig.heartbeat(**{**self.short_request(), "member_epoch": epoch})
        self.is_gone = True
        self.begin_anew()

    def die(self) -> None:
        self.is_gone = True
        self.begin_anew()


def check(rig: ConsumerRig, clients: list[SlowClient]) -> None:
    """CGP-23, in the coordinator's state and among the clients."""
    group = rig.machine.directory.get("g")
    if not isinstance(group, ConsumerGroup):
        return
    assert dict(group.holders.items()) == holders(group)
    assert group.assignment_epoch.value <= group.epoch.value
    counted = {
        name: sum(name in member.profile.topic_names for member in group.members.values())
        for name in TOPICS
    }
    assert dict(group.topic_readers.items()) == {n: c for n, c in counted.items() if c}
    readers: dict[tuple[str, int], str] = {}
    for client in clients:
        member = group.members.get(client.member_id)
        if client.is_gone or member is None or member.current.member_epoch < client.epoch:
            # Expelled, and about to hear of it: its session was over before anybody got anything.
            continue
        for topic, partitions in client.owned.items():
            for partition in sorted(partitions):
                key = topic, partition
                assert key not in readers, f"{readers[key]} and {client.member_id} both read {key}"
                readers[key] = client.member_id


def step(rig: ConsumerRig, clients: list[SlowClient], random: Random, topics: list[str]) -> None:
    client = random.choice(clients)
    dice = random.random()
    if dice < 0.75:
        if client.is_gone:
            if random.random() < 0.5:
                client.start()
            return
        client.send()
        if random.random() < 0.9:
            rig.commit()
        client.receive()
    elif dice < 0.79:
        client.stop(-1 if client.instance is None or random.random() < 0.3 else -2)
    elif dice < 0.81:
        client.die()
    elif dice < 0.85:
        client.topics = random.choice([["a1"], ["b1", "a2"], topics])
    elif dice < 0.88:
        rig.change_topics(**{random.choice(list(TOPICS)): random.randint(0, 6)})
    elif dice < 0.92:
        rig.fail_next(random.choice(_LOST))
    elif dice < 0.94:
        rig.commit()
        rig.move()
    else:
        rig.advance(random.choice([500, 2000, 12_000, 50_000]))


def restart_all(rig: ConsumerRig, clients: list[SlowClient]) -> None:
    """The end of all trouble: everybody is there, and answers come."""
    rig.log.failures.clear()
    rig.commit()
    rig.advance(120_000)
    for client in clients:
        client.start()
        client.give_up()
        client.waiting = None
        Client.join(client)
        rig.clock.now_ms += 1000


@pytest.mark.parametrize("seed", range(60))
def test_random_runs(seed: int) -> None:
    """CGP-23, CGP-24."""
    random = Random(seed)
    settings = GroupSettings(
        consumer_assignment_interval_ms=random.choice([0, 1000]),
        consumer_assignors=random.choice([("uniform", "range"), ("range",)]),
    )
    rig = ConsumerRig(TOPICS, settings=settings, commits_at_once=False, seed=seed)
    clients = [
        SlowClient(rig, f"c{number}", random, is_static=number % 3 == 0) for number in range(6)
    ]
    for _ in range(150):
        step(rig, clients, random, list(TOPICS))
        check(rig, clients)

    restart_all(rig, clients)
    for _ in range(12):
        for client in clients:
            rig.clock.now_ms += 2500
            client.give_up()
            client.beat()
            check(rig, clients)
    group = rig.group()
    assert group.state_name == "Stable", f"seed {seed}"
    for client in clients:
        current = group.members[client.member_id].current
        assert current.is_stable_at(group.assignment_epoch.value)
        assert {t: p for t, p in client.owned.items() if p} == rig.held(client.member_id)
    wanted = {
        (topic, partition)
        for client in clients
        for topic in rig.topics
        if topic in client.topics or (client.regex and matches(client.regex, topic))
        for partition in range(rig.topics[topic])
    }
    held = {(rig.name(topic), partition) for (topic, partition) in holders(group)}
    assert held == wanted


def matches(regex: str, topic: str) -> bool:
    return topic.startswith("a") if regex == "a.*" else topic.endswith("1")


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Partitions that went from one living member to another."""
    return sum(
        len(before[name]["t"] - after[name].get("t", set())) for name in before if name in after
    )


class TestRollingRestart:
    """100 members, 1,000 partitions: a rolling restart moves nothing that need not move."""

    MEMBERS = 100
    PARTITIONS = 1000

    def settled(self, *, is_static: bool) -> tuple[ConsumerRig, list[Client]]:
        settings = GroupSettings(consumer_assignment_interval_ms=0)
        rig = ConsumerRig({"t": self.PARTITIONS}, settings=settings)
        clients = [
            Client(rig, f"m{n:03}", ["t"], instance=f"i{n:03}" if is_static else None)
            for n in range(self.MEMBERS)
        ]
        for client in clients:
            client.join()
        settle(clients, 4)
        assert rig.group().state_name == "Stable"
        assert {len(client.owned["t"]) for client in clients} == {10}
        return rig, clients

    def test_static_members(self) -> None:
        """Not one partition moves, and the group stays in its epoch."""
        rig, clients = self.settled(is_static=True)
        epoch = rig.group().epoch.value
        before = {client.instance: client.owned for client in clients}
        for client in clients:
            client.leave(-2)
            client.member_id += "-again"
            client.join()
        assert {client.instance: client.owned for client in clients} == before
        assert rig.group().epoch.value == epoch
        assert rig.group().state_name == "Stable"

    def test_dynamic_members(self) -> None:
        """Each leave moves what the member had, each join what makes loads equal: ten each."""
        rig, clients = self.settled(is_static=False)
        for client in clients[:10]:
            others = [each for each in clients if each is not client]
            before = {each.member_id: each.owned for each in others}
            client.leave()
            settle(others, 2)
            away = {each.member_id: each.owned for each in others}
            assert moved(before, away) == 0
            assert sum(len(owned["t"]) for owned in away.values()) == self.PARTITIONS
            client.member_id += "-again"
            client.join()
            settle([*others, client], 3)
            back = {each.member_id: each.owned for each in others}
            assert moved(away, back) == 10
            assert len(client.owned["t"]) == 10
            assert rig.group().state_name == "Stable"


def test_a_member_is_expelled_before_its_partitions_are_given_away() -> None:
    """What the client keeps reading until it hears of it is nobody else's fault."""
    rig = ConsumerRig({"t": 2})
    silent, other = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
    silent.join()
    rig.clock.now_ms += 1000
    other.join()
    settle([silent, other], 4)
    before: ConsumerMember = rig.member("a")
    for _ in range(10):
        rig.advance(5000)
        other.beat()
    assert before.member_id not in rig.group().members
    assert rig.refused(**silent.short_request()) is ErrorCode.UNKNOWN_MEMBER_ID
    settle([other], 2)
    assert other.owned == {"t": {0, 1}}
