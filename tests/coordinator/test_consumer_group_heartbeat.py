"""ConsumerGroupHeartbeat through a real shard: joining, staying, epochs, subscriptions, leaving."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from coordinator.consumer_kit import (
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    ConsumerRig,
    assigned,
    image_with,
    settle,
    topic_id,
    types,
)

from kraftpy.coordinator.groups.consumer_member import MemberState
from kraftpy.coordinator.groups.metrics import GroupMetrics
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorRecord, Outcome
from kraftpy.metadata import records as r
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.observe.metrics import Counter, MetricName, MetricRegistry
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
)
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import TopicPartitions

JOIN: dict[str, Any] = {
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": REBALANCE_MS,
    "subscribed_topic_names": ["t"],
    "topic_partitions": [],
}


def settled_pair(rig: ConsumerRig) -> tuple[Client, Client]:
    """Members a and b of the group, who share topic t."""
    pair = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
    for client in pair:
        client.join()
    settle(list(pair))
    return pair


class TestBadRequests:
    @pytest.mark.parametrize(
        "fields",
        [
            {"member_id": ""},
            {"member_id": "", "member_epoch": 1},
            {"member_id": "", "member_epoch": -1},
            {"group_id": ""},
            {"instance_id": ""},
            {"rack_id": ""},
            {"rebalance_timeout_ms": -1},
            {"topic_partitions": None},
            {"topic_partitions": [TopicPartitions(topic_id=topic_id("t"), partitions=[0])]},
            {"subscribed_topic_names": None},
            {"member_epoch": -2},
            {"member_epoch": -3, "instance_id": "i"},
        ],
    )
    def test_each_by_itself(self, fields: dict[str, Any]) -> None:
        """CGP-1."""
        rig = ConsumerRig({"t": 1})
        assert rig.refused(**{**JOIN, **fields}) is ErrorCode.INVALID_REQUEST
        assert rig.machine.directory.get("g") is None

    def test_a_pattern_alone_is_a_subscription(self) -> None:
        rig = ConsumerRig({"t": 1})
        names = {"subscribed_topic_names": None, "subscribed_topic_regex": ""}
        assert rig.beat(**{**JOIN, **names}).member_epoch == 1

    def test_member_ids_of_the_first_version_are_made_here(self) -> None:
        """CGP-2."""
        rig = ConsumerRig({"t": 1})
        first = rig.beat(version=0, **{**JOIN, "member_id": ""})
        second = rig.beat(version=0, **{**JOIN, "member_id": ""})
        assert first.member_id
        assert second.member_id not in {"", first.member_id}
        assert rig.group().members.keys() == {first.member_id, second.member_id}

    def test_a_protocol_that_is_not_offered(self) -> None:
        rig = ConsumerRig({"t": 1}, settings=GroupSettings(protocols=("classic",)))
        assert rig.refused(**JOIN) is ErrorCode.UNSUPPORTED_VERSION
        rig = ConsumerRig({"t": 1})
        rig.image = image_with({"t": 1}, group_version=0)
        rig.move()
        assert rig.refused(**JOIN) is ErrorCode.UNSUPPORTED_VERSION

    def test_unknown_assignor(self) -> None:
        """CGP-3."""
        rig = ConsumerRig({"t": 1})
        join = {**JOIN, "server_assignor": "sticky"}
        assert rig.refused(**join) is ErrorCode.UNSUPPORTED_ASSIGNOR


class TestJoining:
    def test_the_first_member_makes_the_group(self) -> None:
        """CGP-4, CGP-17: what is written, and in which order."""
        rig = ConsumerRig({"t": 3})
        written = rig.written(lambda: rig.beat(**JOIN))
        assert types(written) == ["5", "3", "7", "6", "8"]
        assert rig.group().epoch.value == 1
        assert rig.group().assignment_epoch.value == 1
        assert rig.member("m").current.member_epoch == 1
        assert rig.group().state_name == "Stable"

    def test_the_answer(self) -> None:
        rig = ConsumerRig({"t": 3})
        answer = rig.beat(**JOIN)
        assert (answer.member_id, answer.member_epoch) == ("m", 1)
        assert answer.heartbeat_interval_ms == 5000
        assert assigned(answer) == {"t": {0, 1, 2}}

    def test_nothing_is_answered_before_it_is_committed(self) -> None:
        rig = ConsumerRig({"t": 3}, commits_at_once=False)
        waiting = rig.heartbeat(**JOIN)
        assert not waiting.is_answered
        rig.commit()
        assert waiting.answer.member_epoch == 1

    def test_groups_and_members_that_are_not_there(self) -> None:
        """CGP-5."""
        rig = ConsumerRig({"t": 3})
        stay = {"member_id": "m", "member_epoch": 1}
        assert rig.refused(**stay) is ErrorCode.GROUP_ID_NOT_FOUND
        assert rig.refused(**{**stay, "member_epoch": -1}) is ErrorCode.GROUP_ID_NOT_FOUND
        rig.beat(**JOIN)
        other = {"member_id": "other", "member_epoch": 1}
        assert rig.refused(**other) is ErrorCode.UNKNOWN_MEMBER_ID
        assert rig.refused(**{**other, "member_epoch": -1}) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_group_is_full_for_new_members_only(self) -> None:
        """CGP-8."""
        rig = ConsumerRig({"t": 3}, settings=GroupSettings(consumer_max_size=2))
        first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"], instance="i")
        first.join()
        second.join()
        third = {**JOIN, "member_id": "c"}
        assert rig.refused(**third) is ErrorCode.GROUP_MAX_SIZE_REACHED
        first.beat()
        first.join()
        second.leave(-2)
        Client(rig, "b2", ["t"], instance="i").join()
        assert rig.group().members.keys() == {"a", "b2"}

    def test_a_member_that_begins_anew_keeps_its_place(self) -> None:
        """Epoch 0 of a known member: nothing changes, and it is told all it has."""
        rig = ConsumerRig({"t": 3})
        client = Client(rig, "m", ["t"])
        client.join()
        assert rig.written(client.join) == []
        assert (client.epoch, client.owned) == (1, {"t": {0, 1, 2}})


class TestEpochs:
    def test_a_higher_epoch_is_fenced(self) -> None:
        """CGP-6."""
        rig = ConsumerRig({"t": 3})
        rig.beat(**JOIN)
        stay = {"member_id": "m", "member_epoch": 2, "topic_partitions": []}
        assert rig.refused(**stay) is ErrorCode.FENCED_MEMBER_EPOCH

    def test_a_lost_answer(self) -> None:
        """CGP-7: one epoch behind, with a part of what is assigned."""
        rig = ConsumerRig({"t": 3, "u": 1})
        client = Client(rig, "m", ["t"])
        client.join()
        lost = {**client.short_request(), "subscribed_topic_names": ["t", "u"]}
        rig.clock.now_ms += INTERVAL_MS
        rig.beat(**lost)
        assert rig.member("m").current.member_epoch == 2
        answer = rig.beat(**{**lost, "topic_partitions": client.listed()})
        assert answer.member_epoch == 2

    @pytest.mark.parametrize("owned", [None, {"u": {1}}, {"t": {7}}])
    def test_a_lost_answer_that_does_not_fit(self, owned: dict[str, set[int]] | None) -> None:
        """CGP-7: not a part of what is assigned, or nothing said about it."""
        rig = ConsumerRig({"t": 3, "u": 1})
        client = Client(rig, "m", ["t"])
        client.join()
        rig.clock.now_ms += INTERVAL_MS
        rig.beat(**{**client.short_request(), "subscribed_topic_names": ["t", "u"]})
        again: dict[str, Any] = client.short_request()
        if owned is not None:
            client.owned = owned
            again["topic_partitions"] = client.listed()
        assert rig.refused(**again) is ErrorCode.FENCED_MEMBER_EPOCH

    def test_two_epochs_behind(self) -> None:
        """CGP-7."""
        rig = ConsumerRig({"t": 3, "u": 1, "v": 1})
        client = Client(rig, "m", ["t"])
        client.join()
        old = client.short_request()
        for topics in (["t", "u"], ["t", "u", "v"]):
            rig.clock.now_ms += INTERVAL_MS
            client.beat(subscribed_topic_names=topics)
        assert client.epoch == 3
        assert rig.refused(**old, topic_partitions=[]) is ErrorCode.FENCED_MEMBER_EPOCH


class TestStaying:
    def test_an_assignment_only_when_there_is_news(self) -> None:
        """CGP-9."""
        rig = ConsumerRig({"t": 3, "u": 1})
        client = Client(rig, "m", ["t"])
        assert assigned(client.join()) == {"t": {0, 1, 2}}
        assert client.short_beat().assignment is None
        assert client.beat().assignment is None
        assert assigned(client.take(rig.beat(**client.full_request()))) == {"t": {0, 1, 2}}
        rig.clock.now_ms += INTERVAL_MS
        changed = client.beat(subscribed_topic_names=["t", "u"])
        assert assigned(changed) == {"t": {0, 1, 2}, "u": {0}}

    @pytest.mark.parametrize("left_out", ["rebalance_timeout_ms", "topic_partitions"])
    def test_a_request_that_is_not_full(self, left_out: str) -> None:
        """CGP-9."""
        rig = ConsumerRig({"t": 3})
        client = Client(rig, "m", ["t"])
        client.join()
        request = client.full_request()
        del request[left_out]
        assert rig.beat(**request).assignment is None

    def test_what_is_left_out_is_as_it_was(self) -> None:
        """CGP-10."""
        rig = ConsumerRig({"t": 3})
        client = Client(rig, "m", ["t"], rack_id="r", server_assignor="range")
        client.join()
        profile = rig.member("m").profile
        client.short_beat()
        assert rig.member("m").profile == profile
        assert (profile.rack_id, profile.server_assignor) == ("r", "range")
        assert profile.rebalance_timeout_ms == REBALANCE_MS

    def test_an_empty_list_is_no_subscription(self) -> None:
        """CGP-10."""
        rig = ConsumerRig({"t": 3})
        client = Client(rig, "m", ["t"])
        client.join()
        rig.clock.now_ms += INTERVAL_MS
        client.beat(subscribed_topic_names=[])
        assert rig.member("m").profile.topic_names == ()
        settle([client], 2)
        assert rig.held("m") == {}

    def test_a_heartbeat_without_news_writes_nothing(self) -> None:
        """CGP-11."""
        rig = ConsumerRig({"t": 3})
        client = Client(rig, "m", ["t"])
        client.join()
        assert rig.written(client.beat) == []
        assert rig.written(client.short_beat) == []
        assert rig.written(lambda: rig.beat(**client.full_request())) == []

    def test_names_make_a_new_epoch(self) -> None:
        """CGP-12."""
        rig = ConsumerRig({"t": 3, "u": 1})
        client = Client(rig, "m", ["t"])
        client.join()
        rig.clock.now_ms += INTERVAL_MS
        written = rig.written(lambda: client.beat(subscribed_topic_names=["u", "t", "u"]))
        assert types(written) == ["5", "3", "7", "6", "8"]
        assert client.epoch == 2
        assert rig.written(lambda: client.beat(subscribed_topic_names=["t", "u"])) == []

    @pytest.mark.parametrize(
        "fields", [{"rack_id": "r2"}, {"rebalance_timeout_ms": 1}, {"server_assignor": "range"}]
    )
    def test_other_changes_are_only_noted(self, fields: dict[str, Any]) -> None:
        """CGP-12."""
        rig = ConsumerRig({"t": 3})
        client = Client(rig, "m", ["t"])
        client.join()
        assert types(rig.written(lambda: client.beat(**fields))) == ["5"]
        assert client.epoch == 1


class TestTopics:
    def test_a_topic_grows(self) -> None:
        """CGP-13: one new epoch, at the next heartbeat."""
        rig = ConsumerRig({"t": 3})
        client, other = settled_pair(rig)
        epoch = rig.group().epoch.value
        rig.change_topics(t=4)
        rig.clock.now_ms += INTERVAL_MS
        assert rig.group().epoch.value == epoch
        settle([client, other])
        assert rig.group().epoch.value == epoch + 1
        assert sorted([*client.owned["t"], *other.owned["t"]]) == [0, 1, 2, 3]

    def test_a_topic_that_somebody_waits_for_is_created(self) -> None:
        """CGP-14."""
        rig = ConsumerRig({"t": 3})
        client = Client(rig, "m", ["t", "later"])
        client.join()
        rig.change_topics(unrelated=1)
        settle([client], 2)
        assert client.epoch == 1
        rig.change_topics(later=1)
        settle([client], 2)
        assert client.epoch == 2
        assert client.owned == {"t": {0, 1, 2}, "later": {0}}

    def test_a_topic_is_deleted(self) -> None:
        """CGP-15."""
        rig = ConsumerRig({"t": 3, "u": 1})
        client = Client(rig, "m", ["t", "u"])
        client.join()
        rig.change_topics(u=0)
        settle([client], 3)
        assert client.epoch == 2
        assert client.owned == {"t": {0, 1, 2}}
        assert rig.held("m") == {"t": {0, 1, 2}}

    def test_a_new_coordinator_looks_for_itself(self) -> None:
        """Topics may have changed while the group had no coordinator."""
        rig = ConsumerRig({"t": 3})
        client = Client(rig, "m", ["t"])
        client.join()
        rig.image = image_with({"t": 5})
        rig.topics = {"t": 5}
        rig.move()
        rig.clock.now_ms += INTERVAL_MS
        client.beat()
        assert (client.epoch, client.owned) == (2, {"t": {0, 1, 2, 3, 4}})
        assert rig.written(client.beat) == []

    def test_metadata_of_old_releases_is_deleted(self) -> None:
        """CGP-16."""
        rig = ConsumerRig({"t": 3, "u": 1})
        client = Client(rig, "m", ["t"])
        client.join()
        key = ConsumerGroupPartitionMetadataKey(group_id="g")
        old = CoordinatorRecord(key, ConsumerGroupPartitionMetadataValue())
        rig.write(lambda machine: Outcome([old]))
        rig.move()
        assert rig.group().has_legacy_metadata.value
        rig.clock.now_ms += INTERVAL_MS
        written = rig.written(lambda: client.beat(subscribed_topic_names=["t", "u"]))
        assert types(written) == ["5", "3", "-4", "7", "6", "8"]
        assert not rig.group().has_legacy_metadata.value


class TestTarget:
    def test_only_changed_members_are_written(self) -> None:
        """CGP-17: a third member takes one partition of one of the others."""
        rig = ConsumerRig({"t": 5})
        clients = [Client(rig, name, ["t"]) for name in "ab"]
        for client in clients:
            client.join()
        settle(clients)
        rig.clock.now_ms += INTERVAL_MS
        written = rig.written(Client(rig, "c", ["t"]).join)
        targets = [
            each.key.member_id
            for each in written
            if isinstance(each.key, ConsumerGroupTargetAssignmentMemberKey)
        ]
        assert len(targets) == 2
        assert "c" in targets
        assert types(written)[-2:] == ["6", "8"]

    def test_the_interval_holds_a_second_target_back(self) -> None:
        """CGP-18."""
        rig = ConsumerRig({"t": 4})
        first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
        first.join()
        rig.clock.now_ms += INTERVAL_MS - 1
        second.join()
        assert (rig.group().epoch.value, rig.group().assignment_epoch.value) == (2, 1)
        assert rig.group().state_name == "Assigning"
        assert (second.epoch, second.owned) == (1, {})
        first.beat()
        assert rig.group().assignment_epoch.value == 1
        rig.clock.now_ms += 1
        first.beat()
        assert rig.group().assignment_epoch.value == 2

    def test_a_clock_that_is_set_back_holds_nothing_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """CGP-18."""
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        earlier_ms = rig.clock.wall_ms() - 3_600_000
        monkeypatch.setattr(rig.clock, "wall_ms", lambda: earlier_ms)
        Client(rig, "b", ["t"]).join()
        assert rig.group().assignment_epoch.value == 2

    def test_without_an_interval(self) -> None:
        """CGP-18."""
        settings = GroupSettings(consumer_assignment_interval_ms=0)
        rig = ConsumerRig({"t": 4}, settings=settings)
        Client(rig, "a", ["t"]).join()
        Client(rig, "b", ["t"]).join()
        assert rig.group().assignment_epoch.value == 2

    def test_the_assignor_that_most_ask_for(self) -> None:
        """CGP-32: else the first one configured."""
        rig = ConsumerRig({"t": 4, "u": 4})
        clients = [
            Client(rig, "a", ["t", "u"]),
            Client(rig, "b", ["t", "u"], server_assignor="range"),
        ]
        for client in clients:
            client.join()
        settle(clients)
        assert clients[0].owned == {"t": {0, 1}, "u": {0, 1}}
        [described] = rig.consumers.describe(["g"])
        assert described.assignor_name == "range"
        uniform = Client(rig, "c", ["t", "u"], server_assignor="uniform")
        uniform.join()
        [described] = rig.consumers.describe(["g"])
        assert described.assignor_name == "uniform"


class TestSessions:
    def test_silence_ends_a_membership(self) -> None:
        """CGP-33."""
        rig = ConsumerRig({"t": 4})
        first, _ = settled_pair(rig)
        epoch = rig.group().epoch.value
        rig.advance(SESSION_MS - 2000)
        first.beat()
        rig.advance(3000)
        assert rig.group().members.keys() == {"a"}
        assert rig.group().epoch.value == epoch + 1
        settle([first], 2)
        assert first.owned == {"t": {0, 1, 2, 3}}

    def test_what_is_written_of_it(self) -> None:
        """CGP-33, CGP-35: the same as if the member had left."""
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        assert types(rig.written(lambda: rig.advance(SESSION_MS + 100))) == ["-8", "-7", "-5", "3"]
        assert rig.group().state_name == "Empty"

    def test_a_new_coordinator_waits_a_whole_session(self) -> None:
        """CRT-21."""
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        rig.advance(SESSION_MS - 1000)
        rig.move()
        rig.advance(SESSION_MS - 1000)
        assert rig.group().members.keys() == {"a"}
        rig.advance(2000)
        assert rig.group().is_empty

    def test_who_does_not_give_up_partitions_in_time(self) -> None:
        """CGP-34: heartbeats don't help."""
        rig = ConsumerRig({"t": 4})
        slow, other = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
        slow.join()
        rig.clock.now_ms += INTERVAL_MS
        other.join()
        request = {**slow.short_request(), "topic_partitions": slow.listed()}
        for _ in range(REBALANCE_MS // 5000):
            rig.beat(**request)
            other.beat()
            assert rig.member("a").current.state is MemberState.UNREVOKED_PARTITIONS
            rig.advance(5000)
        rig.advance(100)
        assert rig.group().members.keys() == {"b"}

    def test_changing_ones_mind_gives_no_more_time(self) -> None:
        """CGP-34: a member can't keep what others wait for by changing its subscription."""
        rig = ConsumerRig({"t": 4, "u": 1, "v": 1})
        slow, other = Client(rig, "a", ["t", "u", "v"]), Client(rig, "b", ["t"])
        slow.join()
        rig.clock.now_ms += INTERVAL_MS
        other.join()
        owned = slow.listed()
        topics = [["t", "u", "v"], ["t", "u"], ["t"]]
        for number in range(REBALANCE_MS // 5000):
            rig.beat(
                **slow.short_request(),
                topic_partitions=owned,
                subscribed_topic_names=topics[min(number // 4, 2)],
            )
            other.beat()
            assert rig.member("a").current.state is MemberState.UNREVOKED_PARTITIONS
            rig.advance(5000)
        rig.advance(100)
        assert rig.group().members.keys() == {"b"}

    def test_who_was_never_told_to_give_up_is_not_harmed(self) -> None:
        """CGP-34: the record was lost that told it; the timer was started already."""
        rig = ConsumerRig({"t": 4})
        first, second = Client(rig, "a", ["t"], rebalance_timeout_ms=2000), Client(rig, "b", ["t"])
        first.join()
        rig.clock.now_ms += INTERVAL_MS
        second.join()
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        rig.heartbeat(**first.short_request())
        rig.commit()
        assert rig.member("a").current.state is MemberState.STABLE
        rig.advance(3000)
        assert rig.group().members.keys() == {"a", "b"}

    def test_who_gives_them_up_is_not_harmed(self) -> None:
        """CGP-34: nor is somebody who is at it again, in another epoch."""
        rig = ConsumerRig({"t": 4})
        first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
        first.join()
        rig.clock.now_ms += INTERVAL_MS
        second.join()
        first.beat()
        assert rig.member("a").current.state is MemberState.UNREVOKED_PARTITIONS
        rig.advance(REBALANCE_MS - SESSION_MS)
        second.beat()
        first.beat()
        assert rig.member("a").current.state is MemberState.STABLE
        for _ in range(4):
            rig.advance(SESSION_MS // 2)
            first.beat()
            second.beat()
        assert rig.group().members.keys() == {"a", "b"}

    def test_a_new_coordinator_knows_who_has_to_give_up(self) -> None:
        """CRT-21."""
        rig = ConsumerRig({"t": 4})
        slow, other = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
        slow.join()
        rig.clock.now_ms += INTERVAL_MS
        other.join()
        request = {**slow.short_request(), "topic_partitions": slow.listed()}
        rig.beat(**request)
        rig.move()
        for _ in range(REBALANCE_MS // 5000):
            rig.beat(**request)
            other.beat()
            rig.advance(5000)
        rig.advance(100)
        assert rig.group().members.keys() == {"b"}


class TestLeaving:
    def test_what_is_written(self) -> None:
        """CGP-35."""
        rig = ConsumerRig({"t": 4})
        first, second = settled_pair(rig)
        assert types(rig.written(first.leave)) == ["-8", "-7", "-5", "3"]
        assert rig.group().members.keys() == {"b"}
        settle([second], 2)
        assert second.owned == {"t": {0, 1, 2, 3}}

    def test_the_answer(self) -> None:
        rig = ConsumerRig({"t": 4})
        rig.beat(**JOIN)
        answer = rig.beat(member_id="m", member_epoch=-1)
        assert (answer.member_id, answer.member_epoch) == ("m", -1)
        assert answer.assignment is None

    def test_no_timer_is_left(self) -> None:
        rig = ConsumerRig({"t": 4})
        rig.beat(**JOIN)
        rig.beat(member_id="m", member_epoch=-1)
        assert rig.written(lambda: rig.advance(2 * SESSION_MS)) == []


class TestFailedWrites:
    def test_a_member_whose_join_is_lost_is_not_there(self) -> None:
        rig = ConsumerRig({"t": 4})
        rig.fail_next(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        waiting = rig.heartbeat(**JOIN)
        rig.commit()
        assert waiting.error is ErrorCode.NOT_COORDINATOR
        assert rig.machine.directory.get("g") is None
        assert rig.beat(**JOIN).member_epoch == 1

    def test_a_member_whose_leave_is_lost_still_has_a_session(self) -> None:
        rig = ConsumerRig({"t": 4})
        rig.beat(**JOIN)
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        waiting = rig.heartbeat(member_id="m", member_epoch=-1)
        rig.commit()
        assert waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.group().members.keys() == {"m"}
        rig.advance(SESSION_MS + 100)
        assert rig.group().is_empty

    def test_a_comparison_that_is_lost_is_made_again(self) -> None:
        """The topic has grown: that must not be forgotten with the records."""
        rig = ConsumerRig({"t": 3})
        client = Client(rig, "m", ["t"])
        client.join()
        rig.change_topics(t=4)
        rig.clock.now_ms += INTERVAL_MS
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        waiting = rig.heartbeat(**client.short_request())
        rig.commit()
        assert waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.group().epoch.value == 1
        client.beat()
        assert (client.epoch, client.owned) == (2, {"t": {0, 1, 2, 3}})

    def test_a_comparison_by_somebody_who_is_refused_does_not_count(self) -> None:
        """A member in an unknown state (CGP-26) comes first after the topic has grown."""
        rig = ConsumerRig({"t": 3})
        first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
        first.join()
        second.join()
        settle([first, second], 4)
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
        value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=first.epoch, state=9)
        rig.write(lambda machine: Outcome([CoordinatorRecord(key, value)]))
        rig.change_topics(t=4)
        rig.clock.now_ms += INTERVAL_MS
        assert rig.refused(**first.short_request()) is ErrorCode.FENCED_MEMBER_EPOCH
        epoch = rig.group().epoch.value
        second.beat()
        assert rig.group().epoch.value == epoch + 1

    def test_a_revocation_that_is_lost_can_still_time_out(self) -> None:
        rig = ConsumerRig({"t": 4})
        slow, other = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
        slow.join()
        rig.clock.now_ms += INTERVAL_MS
        other.join()
        stuck = {**slow.short_request(), "topic_partitions": slow.listed()}
        slow.beat()
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        given_up = rig.heartbeat(**{**slow.short_request(), "topic_partitions": slow.listed()})
        rig.commit()
        assert given_up.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        for _ in range(REBALANCE_MS // 5000):
            rig.beat(**stuck)
            other.beat()
            rig.advance(5000)
        rig.advance(100)
        assert rig.group().members.keys() == {"b"}


def test_a_topic_that_is_listed_twice_is_owned_in_both_places() -> None:
    """CGP-20: what the member has not given up is not given to another."""
    rig = ConsumerRig({"t": 4}, settings=GroupSettings(consumer_assignment_interval_ms=0))
    old, new = Client(rig, "old", ["t"]), Client(rig, "new", ["t"])
    old.join()
    new.join()
    old.short_beat()
    assert rig.member("old").current.state is MemberState.UNREVOKED_PARTITIONS
    places = [
        TopicPartitions(topic_id=topic_id("t"), partitions=partitions)
        for partitions in ([2, 3], [0, 1])
    ]
    old.beat(topic_partitions=places)
    new.beat()
    assert rig.held("new") == {}
    assert rig.member("old").current.state is MemberState.UNREVOKED_PARTITIONS


def test_group_states() -> None:
    """CGP-27."""
    rig = ConsumerRig({"t": 4})
    first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
    first.join()
    assert rig.group().state_name == "Stable"
    second.join()
    assert rig.group().state_name == "Assigning"
    rig.clock.now_ms += INTERVAL_MS
    second.beat()
    assert rig.group().state_name == "Reconciling"
    settle([first, second])
    assert rig.group().state_name == "Stable"
    first.leave()
    second.leave()
    assert rig.group().state_name == "Empty"
    assert rig.group().committed_state_name == "Empty"


class TestGroupConfigs:
    def test_the_groups_own_values(self) -> None:
        """CGP-63."""
        configs = {
            "g": {"consumer.heartbeat.interval.ms": "7000", "consumer.session.timeout.ms": "50000"}
        }
        rig = ConsumerRig({"t": 1}, group_configs=configs)
        assert rig.beat(**JOIN).heartbeat_interval_ms == 7000
        rig.advance(SESSION_MS + 100)
        assert not rig.group().is_empty
        rig.advance(50_000 - SESSION_MS)
        assert rig.group().is_empty
        assert rig.beat(**{**JOIN, "group_id": "h"}).heartbeat_interval_ms == 5000

    def test_values_beyond_the_bounds_of_the_broker_count_as_the_bound(self) -> None:
        """CGP-63: the broker's bounds may have changed after the value was set."""
        configs = {
            "g": {"consumer.heartbeat.interval.ms": "99000"},
            "h": {"consumer.heartbeat.interval.ms": "1"},
        }
        rig = ConsumerRig({"t": 1}, group_configs=configs)
        assert rig.beat(**JOIN).heartbeat_interval_ms == 15_000
        assert rig.beat(**{**JOIN, "group_id": "h"}).heartbeat_interval_ms == 5000

    def test_the_brokers_assignment_interval_changes_while_they_run(self) -> None:
        rig = ConsumerRig({"t": 4})
        key = "group.consumer.assignment.interval.ms"
        delta = MetadataDelta(rig.image)
        delta.replay(r.ConfigRecord(r.ConfigResourceType.BROKER, "", key, "0"))
        rig.image = delta.apply(rig.image.provenance)
        rig.move()
        Client(rig, "a", ["t"]).join()
        Client(rig, "b", ["t"]).join()
        assert rig.group().assignment_epoch.value == 2


def test_rebalances_are_counted() -> None:
    registry = MetricRegistry()
    rig = ConsumerRig({"t": 4}, metrics=GroupMetrics(registry))
    name = MetricName("kafka.server", "group-coordinator-metrics", "consumer-group-rebalance-count")
    counter = registry.get(name)
    assert isinstance(counter, Counter)
    client = Client(rig, "a", ["t"])
    client.join()
    client.beat()
    assert counter.count == 1
    client.leave()
    assert counter.count == 2


def test_settings_with_an_assignor_that_there_is_not() -> None:
    settings = replace(GroupSettings(), consumer_assignors=("uniform", "sticky"))
    with pytest.raises(ValueError, match="sticky"):
        ConsumerRig(settings=settings)
