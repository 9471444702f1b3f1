"""Consumer groups and members that make no sense: wrong, stale, mixed up, in any order.

Whatever comes, the answer is an error of the protocol or an answer, never one of ours; and no
partition is ever held twice.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from coordinator.consumer_kit import ConsumerRig, holders, topic_id
from coordinator.mixed_kit import ClassicClient
from coordinator.shard_kit import Waiting

from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import TopicPartitions

SEEDS = 25
STEPS = 120


class Nonsense:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = GroupSettings(
            consumer_assignment_interval_ms=self.random.choice([0, 1000]),
            consumer_max_size=self.random.choice([3, 100]),
        )
        self.rig = ConsumerRig({"a": 3, "b": 2, "c": 1}, settings=settings, seed=seed)

    def step(self) -> Waiting | None:
        dice = self.random.random()
        if dice < 0.7:
            return self.heartbeat()
        if dice < 0.9:
            return self.classic()
        self.fate()
        return None

    def who(self) -> tuple[str, int, str | None]:
        """A member id, an epoch and an instance id: often somebody's, and nearly right."""
        choice = self.random.choice
        group = self.rig.machine.directory.get("g")
        if isinstance(group, ConsumerGroup) and group.members and self.random.random() < 0.6:
            member = choice(list(group.members.values()))
            epoch = member.current.member_epoch
            instance_id = member.profile.instance_id
            return (
                member.member_id,
                choice([epoch, epoch, member.current.previous_epoch, epoch + 1, 0]),
                choice([instance_id, instance_id, None, "i1"]),
            )
        member_id = choice(["m1", "m2", "m3", "m4", ""])
        return member_id, choice([0, 0, 0, 1, 2, -1, -2, -3]), choice([None, None, "i1", "i2", ""])

    def owned(self) -> list[TopicPartitions] | None:
        choice, number = self.random.choice, self.random.randint
        some = [
            TopicPartitions(
                topic_id=topic_id(choice("abcd")),
                partitions=[number(-1, 4) for _ in range(number(0, 3))],
            )
            for _ in range(number(1, 2))
        ]
        return choice([None, [], some])

    def heartbeat(self) -> Waiting:
        choice = self.random.choice
        member_id, epoch, instance_id = self.who()
        fields: dict[str, Any] = {
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": instance_id,
            "rack_id": choice([None, None, None, "r", ""]),
            "rebalance_timeout_ms": choice([-1, 1000, 60_000, 0, -7]),
            "subscribed_topic_names": choice([None, [], ["a"], ["a", "b", "a"], ["zz", "c"]]),
            "subscribed_topic_regex": choice([None, None, "", "a|b", "(", ".*"]),
            "server_assignor": choice([None, None, None, "range", "uniform", "x"]),
            "topic_partitions": self.owned() if epoch else choice([[], [], self.owned()]),
        }
        return self.rig.heartbeat(choice([0, 1, 1]), **fields)

    def classic(self) -> Waiting | None:
        choice = self.random.choice
        member_id, generation, instance_id = self.who()
        client = ClassicClient(
            self.rig,
            "classic",
            choice([["a"], ["b", "zz"], []]),
            instance=instance_id or None,
            is_cooperative=True,
            version=choice([0, 1, 2, 3]),
            protocol=choice(["range", "range", "sticky"]),
        )
        client.member_id, client.generation = member_id, generation
        client.owned = {choice("abz"): {self.random.randint(0, 4)}}
        match choice(["join", "join", "sync", "heartbeat", "leave"]):
            case "join":
                return client.join(**choice([{}, {}, {"protocol_type": "x"}, {"protocols": []}]))
            case "sync":
                return client.sync()
            case "heartbeat":
                assert client.heartbeat() is not ErrorCode.UNKNOWN_SERVER_ERROR
            case _:
                assert client.leave() is not ErrorCode.UNKNOWN_SERVER_ERROR
        return None

    def fate(self) -> None:
        rig, choice = self.rig, self.random.choice
        match choice(["time", "time", "topics", "move", "fail"]):
            case "time":
                rig.advance(choice([100, 2000, 11_000, 50_000]))
            case "topics":
                rig.change_topics(**{choice("abc"): self.random.randint(0, 4)})
            case "move":
                rig.commit()
                rig.move()
            case _:
                rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_that_comes_is_a_surprise(seed: int) -> None:
    nonsense = Nonsense(seed)
    for _ in range(STEPS):
        waiting = nonsense.step()
        nonsense.rig.commit()
        for reply in waiting.replies if waiting is not None else ():
            code = reply.code if isinstance(reply, CoordinatorError) else reply.error_code
            assert code != ErrorCode.UNKNOWN_SERVER_ERROR, f"seed {seed}"
        group = nonsense.rig.machine.directory.get("g")
        if isinstance(group, ConsumerGroup):
            assert dict(group.holders.items()) == holders(group), f"seed {seed}"
