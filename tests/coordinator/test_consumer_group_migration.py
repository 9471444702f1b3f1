"""Groups that change their protocol, and members of both in one group (CGP-52 to CGP-56)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from coordinator.classic_kit import Watched
from coordinator.consumer_kit import (
    INTERVAL_MS,
    Client,
    ConsumerRig,
    Owned,
    assigned,
    image_with,
    topic_id,
    types,
)
from coordinator.mixed_kit import CLASSIC_SESSION_MS, REBALANCE_MS, ClassicClient

from kraftpy.coordinator.groups.classic_group import ClassicGroup
from kraftpy.coordinator.groups.consumer_embedded import decode_assignment, partitions_by_id
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_member import MemberState
from kraftpy.coordinator.groups.consumer_records import current_record
from kraftpy.coordinator.groups.settings import GroupSettings, MigrationPolicy
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.consumer_protocol import TopicPartition
from kraftpy.protocol.schema.k11_join_group import JoinGroupRequestProtocol

DELAY_MS = 3000
LOST = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


def settings(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL, **more: int) -> GroupSettings:
    return GroupSettings(
        consumer_migration_policy=policy,
        consumer_assignment_interval_ms=0,
        initial_rebalance_delay_ms=DELAY_MS,
        **more,
    )


def classic_group(rig: ConsumerRig, *clients: ClassicClient) -> None:
    """Have them form a classic group that is stable."""
    for client in clients:
        client.join()
        client.tick()
    rig.advance(3 * DELAY_MS)
    run(rig, clients, 6)
    group = rig.machine.directory.get("g")
    assert isinstance(group, ClassicGroup)
    assert group.state_name == "Stable"
    assert all(client.is_member for client in clients)


def run(rig: ConsumerRig, clients: Iterable[ClassicClient | Client], rounds: int) -> None:
    """Everybody does what is next, again and again; nobody ever reads what another one reads."""
    everybody = list(clients)
    for _ in range(rounds):
        for client in everybody:
            if isinstance(client, ClassicClient):
                client.tick()
            else:
                attempt(rig, client)
            check_owners(everybody)
        rig.advance(INTERVAL_MS)


def attempt(rig: ConsumerRig, client: Client) -> None:
    """A heartbeat, or a join; what is lost is tried again another time."""
    request = {**client.short_request(), "topic_partitions": client.listed()}
    waiting = rig.heartbeat(**(request if client.epoch > 0 else client.full_request()))
    rig.commit()
    reply = waiting.replies[0]
    if not isinstance(reply, CoordinatorError):
        client.take(reply)
    elif reply.code not in LOST:
        client.epoch, client.owned = 0, {}


def leave(client: ClassicClient | Client) -> None:
    """Say goodbye, whether anybody hears it or not."""
    if isinstance(client, ClassicClient):
        client.leave()
    else:
        client.rig.heartbeat(**{**client.short_request(), "member_epoch": -1})
        client.rig.commit()


def check_owners(clients: Iterable[ClassicClient | Client]) -> None:
    owners: dict[tuple[str, int], object] = {}
    for client in clients:
        for topic, partitions in client.owned.items():
            for partition in sorted(partitions):
                assert (topic, partition) not in owners, f"{topic}-{partition} is read twice"
                owners[topic, partition] = client


def owned_by(clients: Iterable[ClassicClient | Client], topic: str = "t") -> list[int]:
    return sorted(p for client in clients for p in client.owned.get(topic, set()))


class TestUpgrade:
    def test_members_keep_what_they_have(self) -> None:
        """CGP-52."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        old = [ClassicClient(rig, name, ["t"], is_cooperative=True) for name in "ab"]
        classic_group(rig, *old)
        before: dict[str, Owned] = {client.member_id: client.owned for client in old}
        generation = old[0].generation
        new = Client(rig, "new", ["t"])
        written = rig.written(new.join)
        assert types(written)[:9] == ["-2", "5", "5", "3", "7", "7", "6", "8", "8"]
        group = rig.group()
        assert group.epoch.value == generation + 1
        for member_id, owned in before.items():
            member = rig.member(member_id)
            assert member.is_classic
            assert member.current.member_epoch == generation
            assert rig.held(member_id) == owned
        run(rig, [*old, new], 8)
        assert group.state_name == "Stable"
        assert owned_by([*old, new]) == list(range(6))
        assert all(len(client.owned["t"]) == 2 for client in (*old, new))

    def test_what_a_member_may_still_have_is_given_to_nobody(self) -> None:
        """A cooperative rebalance has two rounds; the group is converted between them.

        The first member was told to give partitions up, but has not heard it yet.
        """
        rig = ConsumerRig({"t": 6}, settings=settings())
        first = ClassicClient(rig, "a", ["t"], is_cooperative=True)
        classic_group(rig, first)
        second = ClassicClient(rig, "b", ["t"], is_cooperative=True)
        while not second.member_id or second.syncing is None:
            second.tick()
            if first.syncing is None:
                first.tick()
        assert first.owned == {"t": set(range(6))}
        new = Client(rig, "new", ["t"])
        new.join()
        check_owners([first, second, new])
        member = rig.member(first.member_id)
        assert member.current.state is MemberState.UNREVOKED_PARTITIONS
        assert rig.held(first.member_id) == first.owned
        run(rig, [first, second, new], 10)
        assert owned_by([first, second, new]) == list(range(6))
        assert rig.group().state_name == "Stable"

    def test_an_empty_classic_group_is_replaced(self) -> None:
        """Whatever the policy is."""
        rig = ConsumerRig({"t": 6}, settings=settings(MigrationPolicy.DISABLED))
        old = ClassicClient(rig, "a", ["t"])
        classic_group(rig, old)
        old.leave()
        rig.advance(REBALANCE_MS)
        new = Client(rig, "new", ["t"])
        written = rig.written(new.join)
        assert types(written) == ["-2", "5", "3", "7", "6", "8"]
        assert new.owned == {"t": set(range(6))}

    @pytest.mark.parametrize(
        ("policy", "more"),
        [
            (MigrationPolicy.DISABLED, {}),
            (MigrationPolicy.DOWNGRADE, {}),
            (MigrationPolicy.UPGRADE, {"consumer_max_size": 1}),
        ],
    )
    def test_where_it_is_not_allowed(self, policy: MigrationPolicy, more: dict[str, int]) -> None:
        """CGP-52."""
        rig = ConsumerRig({"t": 6}, settings=settings(policy, **more))
        old = [ClassicClient(rig, name, ["t"]) for name in "ab"]
        classic_group(rig, *old)
        new = Client(rig, "new", ["t"])
        assert rig.refused(**new.full_request()) is ErrorCode.GROUP_ID_NOT_FOUND
        run(rig, old, 2)
        assert all(client.is_member for client in old)

    def test_a_group_that_is_not_of_consumers(self) -> None:
        """CGP-52: Connect's workers, say."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        worker = ClassicClient(rig, "a", ["t"])
        worker.member_id = worker.join(protocol_type="connect").answer.member_id
        worker.join(protocol_type="connect")
        new = Client(rig, "new", ["t"])
        assert rig.refused(**new.full_request()) is ErrorCode.GROUP_ID_NOT_FOUND

    def test_members_that_share_partitions_by_rules_of_their_own(self) -> None:
        """CGP-52: two members with one partition can't be led by ours."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        old = [ClassicClient(rig, name, ["t"]) for name in "ab"]
        classic_group(rig, *old)
        group = rig.machine.directory.get("g")
        assert isinstance(group, ClassicGroup)
        first, second = group.members.values()
        second.assignment = first.assignment
        new = Client(rig, "new", ["t"])
        assert rig.refused(**new.full_request()) is ErrorCode.GROUP_ID_NOT_FOUND

    def test_who_waits_is_told_to_join_again(self) -> None:
        """In the middle of a rebalance."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        old = [ClassicClient(rig, name, ["t"]) for name in "ab"]
        classic_group(rig, *old)
        late = ClassicClient(rig, "c", ["t"])
        late.join()
        late.tick()
        assert late.joining is not None
        assert not late.joining.is_answered
        new = Client(rig, "new", ["t"])
        new.join()
        assert late.joining.error is ErrorCode.REBALANCE_IN_PROGRESS
        everybody = [*old, late, new]
        run(rig, everybody, 12)
        assert owned_by(everybody) == list(range(6))
        assert len(rig.group().members) == 4

    def test_a_conversion_that_is_lost(self) -> None:
        """CGP-54: the classic group is what it was, with its sessions."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        old = [ClassicClient(rig, name, ["t"]) for name in "ab"]
        classic_group(rig, *old)
        before = rig.machine.directory.get("g")
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        new = Client(rig, "new", ["t"])
        waiting = rig.heartbeat(**new.full_request())
        rig.commit()
        assert waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.machine.directory.get("g") is before
        assert isinstance(before, ClassicGroup)
        rig.advance(CLASSIC_SESSION_MS // 2)
        assert old[0].heartbeat() is ErrorCode.NONE
        rig.advance(CLASSIC_SESSION_MS // 2 + 1000)
        assert before.members.keys() == {old[0].member_id}

    @pytest.mark.parametrize("begun", ["first", "later", "assigning"])
    def test_a_conversion_that_is_lost_in_a_rebalance(self, begun: str) -> None:
        """CGP-54: which goes on, and ends when its time is over, whoever does not come again."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        old = leader, silent = [ClassicClient(rig, name, ["t"]) for name in "ab"]
        if begun == "first":
            for client in (*old, *old):  # The first time they are told their ids.
                client.tick()
        else:
            classic_group(rig, *old)
            leader.join()
            if begun == "assigning":
                assert silent.join().is_answered
        group = rig.machine.directory.get("g")
        assert isinstance(group, ClassicGroup)
        expected = "CompletingRebalance" if begun == "assigning" else "PreparingRebalance"
        assert group.state_name == expected
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        waiting = rig.heartbeat(**Client(rig, "new", ["t"]).full_request())
        rig.commit()
        assert waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.machine.directory.get("g") is group
        for _ in range(2 * REBALANCE_MS // INTERVAL_MS):
            run(rig, [leader], 1)
            silent.heartbeat()  # Its session goes on.
        assert group.state_name == "Stable"
        assert leader.owned == {"t": set(range(6))}

    def test_members_of_both_kinds_have_sessions_afterwards(self) -> None:
        rig = ConsumerRig({"t": 6}, settings=settings())
        old = [ClassicClient(rig, name, ["t"]) for name in "ab"]
        classic_group(rig, *old)
        new = Client(rig, "new", ["t"])
        new.join()
        rig.advance(CLASSIC_SESSION_MS + 1000)
        assert rig.group().members.keys() == {"new"}

    def test_another_coordinator_finds_a_consumer_group(self) -> None:
        rig = ConsumerRig({"t": 6}, settings=settings())
        old = [ClassicClient(rig, name, ["t"], is_cooperative=True) for name in "ab"]
        classic_group(rig, *old)
        new = Client(rig, "new", ["t"])
        new.join()
        rig.move()
        run(rig, [*old, new], 8)
        assert rig.group().classic_count.value == 2
        assert owned_by([*old, new]) == list(range(6))

    def test_static_members_are_replaced_one_by_one(self) -> None:
        """A process of a new release takes its old one's place, and its partitions."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        old = [ClassicClient(rig, name, ["t"], instance=f"i-{name}") for name in "ab"]
        classic_group(rig, *old)
        owned = old[0].owned
        new = Client(rig, "new", ["t"], instance="i-a")
        new.join()
        assert new.owned == owned
        assert old[0].heartbeat() is ErrorCode.FENCED_INSTANCE_ID
        assert rig.group().members.keys() == {"new", old[1].member_id}


class TestDowngrade:
    def mixed(
        self, rig: ConsumerRig, *, is_cooperative: bool = True
    ) -> tuple[ClassicClient, Client]:
        old = ClassicClient(rig, "a", ["t"], is_cooperative=is_cooperative)
        classic_group(rig, old)
        new = Client(rig, "new", ["t"])
        new.join()
        run(rig, [old, new], 8)
        assert rig.group().state_name == "Stable"
        return old, new

    def test_the_last_new_member_leaves(self) -> None:
        """CGP-53."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        old, new = self.mixed(rig)
        epoch = rig.group().epoch.value
        written = rig.written(new.leave)
        assert types(written) == ["-8", "-8", "-7", "-7", "-6", "-5", "-5", "-3", "2"]
        group = rig.machine.directory.get("g")
        assert isinstance(group, ClassicGroup)
        assert (group.generation, group.state_name) == (epoch, "PreparingRebalance")
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        run(rig, [old], 6)
        assert old.owned == {"t": set(range(6))}
        assert old.generation == epoch + 1

    def test_the_last_new_member_falls_silent(self) -> None:
        """CGP-53."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        old, _ = self.mixed(rig)
        run(rig, [old], 60)
        assert isinstance(rig.machine.directory.get("g"), ClassicGroup)
        assert old.owned == {"t": set(range(6))}

    def test_a_classic_member_takes_its_place(self) -> None:
        """CGP-53: it waits for the others, as one does in a classic group."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        old = ClassicClient(rig, "a", ["t"], is_cooperative=True)
        classic_group(rig, old)
        new = Client(rig, "new", ["t"], instance="i")
        new.join()
        run(rig, [old, new], 8)
        back = ClassicClient(rig, "b", ["t"], instance="i", is_cooperative=True)
        waiting = back.join()
        assert isinstance(rig.machine.directory.get("g"), ClassicGroup)
        assert not waiting.is_answered
        new.epoch, new.owned = 0, {}
        run(rig, [old, back], 10)
        assert owned_by([old, back]) == list(range(6))
        assert len(back.owned["t"]) == 3

    def test_sessions_go_on(self) -> None:
        rig = ConsumerRig({"t": 6}, settings=settings())
        _, new = self.mixed(rig)
        new.leave()
        rig.advance(CLASSIC_SESSION_MS + 1000)
        group = rig.machine.directory.get("g")
        assert group is not None
        assert group.is_empty

    @pytest.mark.parametrize(
        ("policy", "max_size"),
        [(MigrationPolicy.UPGRADE, 1000), (MigrationPolicy.BIDIRECTIONAL, 1)],
    )
    def test_where_it_is_not_allowed(self, policy: MigrationPolicy, max_size: int) -> None:
        """CGP-53: it stays a consumer group, which serves its classic members."""
        rig = ConsumerRig({"t": 6}, settings=settings(policy, max_size=max_size))
        old, new = self.mixed(rig)
        second = ClassicClient(rig, "b", ["t"], is_cooperative=True)
        run(rig, [old, second, new], 10)
        new.leave()
        assert isinstance(rig.machine.directory.get("g"), ConsumerGroup)
        run(rig, [old, second], 6)
        assert owned_by([old, second]) == list(range(6))
        assert rig.group().state_name == "Stable"

    def test_a_conversion_that_is_lost(self) -> None:
        """CGP-54: nobody has left, and everybody has a session."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        old, new = self.mixed(rig)
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        waiting = rig.heartbeat(member_id="new", member_epoch=-1)
        rig.commit()
        assert waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.group().members.keys() == {old.member_id, "new"}
        assert owned_by([old, new]) == list(range(6))
        rig.advance(CLASSIC_SESSION_MS + 1000)
        assert rig.group().members.keys() == {"new"}
        rig.advance(CLASSIC_SESSION_MS)
        assert rig.group().is_empty

    def test_two_conversions_that_are_lost_together(self) -> None:
        """CGP-54: down and up again in one batch; it is a consumer group, with its sessions."""
        rig = ConsumerRig({"t": 6}, settings=settings())
        old, new = self.mixed(rig)
        rig.commits_at_once = False
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        leaving = rig.heartbeat(member_id="new", member_epoch=-1)
        assert isinstance(rig.machine.directory.get("g"), ClassicGroup)
        joining = rig.heartbeat(**Client(rig, "other", ["t"]).full_request())
        assert isinstance(rig.machine.directory.get("g"), ConsumerGroup)
        rig.commit()
        assert leaving.error is joining.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.commits_at_once = True
        assert rig.group().members.keys() == {old.member_id, new.member_id}
        rig.advance(CLASSIC_SESSION_MS + 1000)
        assert rig.group().members.keys() == {"new"}
        rig.advance(CLASSIC_SESSION_MS)
        assert rig.group().is_empty

    def test_another_coordinator_finds_a_classic_group(self) -> None:
        rig = ConsumerRig({"t": 6}, settings=settings())
        old, new = self.mixed(rig)
        new.leave()
        rig.move()
        run(rig, [old], 8)
        assert isinstance(rig.machine.directory.get("g"), ClassicGroup)
        assert old.owned == {"t": set(range(6))}

    def test_an_empty_consumer_group_is_replaced(self) -> None:
        """By whoever joins, whatever the policy is."""
        rig = ConsumerRig({"t": 6}, settings=settings(MigrationPolicy.DISABLED))
        new = Client(rig, "new", ["t"])
        new.join()
        new.leave()
        old = ClassicClient(rig, "a", ["t"])
        classic_group(rig, old)
        assert old.owned == {"t": set(range(6))}


class TestClassicMembers:
    """CGP-55: what each of their requests gets in a consumer group."""

    def mixed(self, rig: ConsumerRig) -> tuple[Client, ClassicClient]:
        new = Client(rig, "new", ["t"])
        new.join()
        old = ClassicClient(rig, "a", ["t"], is_cooperative=True)
        run(rig, [old, new], 8)
        return new, old

    def test_joining(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        Client(rig, "new", ["t"]).join()
        old = ClassicClient(rig, "a", ["t"])
        required = old.join().answer
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert required.member_id.startswith("a-")
        assert rig.group().members.keys() == {"new"}
        old.member_id = required.member_id
        answer = old.join().answer
        assert (answer.error_code, answer.member_id) == (0, old.member_id)
        assert answer.generation_id == rig.member(old.member_id).current.member_epoch == 2
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
        assert (answer.leader, answer.members, answer.skip_assignment) == ("", [], False)

    def test_an_instance_id_needs_no_second_request(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        Client(rig, "new", ["t"]).join()
        old = ClassicClient(rig, "a", ["t"], instance="i")
        answer = old.join().answer
        assert answer.error_code == 0
        assert rig.group().static_members["i"] == answer.member_id

    @pytest.mark.parametrize(
        "fields",
        [{"protocol_type": "connect"}, {"protocols": []}],
    )
    def test_what_does_not_fit(self, fields: dict[str, object]) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        Client(rig, "new", ["t"]).join()
        old = ClassicClient(rig, "a", ["t"])
        assert old.join(**fields).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_protocols_must_have_one_in_common(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        _, old = self.mixed(rig)
        other = ClassicClient(rig, "b", ["t"], protocol="sticky")
        assert other.join().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        old.protocol = "sticky"
        assert old.join().answer.error_code == 0

    def test_a_thousand_protocols_are_not_compared_with_each_other(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        Client(rig, "new", ["t"]).join()

        def protocols(name: str) -> list[JoinGroupRequestProtocol]:
            return [
                JoinGroupRequestProtocol(name=Watched(f"{name}-{number}"), metadata=metadata)
                for number in range(1000)
            ]

        first = ClassicClient(rig, "a", ["t"], instance="a")
        metadata = first.subscription()
        assert first.join(protocols=protocols("a")).answer.error_code == 0
        Watched.comparisons = 0
        second = ClassicClient(rig, "b", ["t"], instance="b")
        refused = second.join(protocols=protocols("b"))
        assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert Watched.comparisons < 10_000

    def test_bytes_that_are_no_subscription(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        Client(rig, "new", ["t"]).join()
        old = ClassicClient(rig, "a", ["t"])
        for metadata in (b"", b"\x00", b"\xff\xff", b"\x00\x01\x00\x00\x00\x09"):
            old.subscription = lambda metadata=metadata: metadata  # type: ignore[method-assign,misc]
            assert old.join().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert rig.group().members.keys() == {"new"}

    def test_a_group_that_is_full(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings(consumer_max_size=1))
        Client(rig, "new", ["t"]).join()
        old = ClassicClient(rig, "a", ["t"])
        assert old.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED

    @pytest.mark.parametrize("version", [0, 1, 3, 9])
    def test_syncing_gives_what_is_assigned(self, version: int) -> None:
        """In the version that the member writes, as far as we know it."""
        rig = ConsumerRig({"t": 4}, settings=settings())
        Client(rig, "new", ["t"]).join()
        old = ClassicClient(rig, "a", ["t"], version=min(version, 3))
        if version > 3:
            written = old.subscription
            old.subscription = lambda: b"\x00\x09" + written()[2:]  # type: ignore[method-assign]
        old.join()
        old.tick()
        old.tick()
        assert old.syncing is not None
        answer = old.syncing.answer
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
        assert answer.assignment[:2] == min(version, 3).to_bytes(2, "big")
        assert decode_assignment(answer.assignment).assigned_partitions == []

    def test_syncing_in_the_wrong_generation(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        new, old = self.mixed(rig)
        old.generation += 1
        assert old.sync().error is ErrorCode.ILLEGAL_GENERATION
        old.generation -= 1
        old.protocol = "sticky"
        assert old.sync().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        old.member_id = new.member_id
        assert old.sync().error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_syncing_when_there_is_news(self) -> None:
        rig = ConsumerRig({"t": 4, "u": 1}, settings=settings())
        new, old = self.mixed(rig)
        new.beat(subscribed_topic_names=["t", "u"])
        assert old.sync().error is ErrorCode.REBALANCE_IN_PROGRESS

    def test_heartbeats(self) -> None:
        rig = ConsumerRig({"t": 4, "u": 1}, settings=settings())
        new, old = self.mixed(rig)
        assert old.heartbeat() is ErrorCode.NONE
        new.beat(subscribed_topic_names=["t", "u"])
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        run(rig, [old, new], 6)
        assert old.heartbeat() is ErrorCode.NONE
        old.generation -= 1
        assert old.heartbeat() is ErrorCode.ILLEGAL_GENERATION
        old.member_id = "nobody"
        assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_member_that_waits_is_called_when_it_is_of_use(self) -> None:
        """UNRELEASED: not before the others have given up."""
        rig = ConsumerRig({"t": 4}, settings=settings())
        new = Client(rig, "new", ["t"])
        new.join()
        old = ClassicClient(rig, "a", ["t"], is_cooperative=True)
        for _ in range(4):
            old.tick()
        assert old.is_member
        assert rig.member(old.member_id).current.state is MemberState.UNRELEASED_PARTITIONS
        assert old.heartbeat() is ErrorCode.NONE
        new.beat()
        assert old.heartbeat() is ErrorCode.NONE
        new.beat()
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_member_that_must_give_up_is_told(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        old = ClassicClient(rig, "a", ["t"], is_cooperative=True)
        classic_group(rig, old)
        Client(rig, "new", ["t"]).join()
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        old.join()
        old.tick()
        assert rig.member(old.member_id).current.state is MemberState.UNREVOKED_PARTITIONS
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_member_that_must_give_up_in_the_groups_epoch_is_told(self) -> None:
        """As another coordinator may have written it."""
        rig = ConsumerRig({"t": 4}, settings=settings())
        _, old = self.mixed(rig)
        assert old.heartbeat() is ErrorCode.NONE
        current = replace(rig.member(old.member_id).current, state=MemberState.UNREVOKED_PARTITIONS)
        rig.write(lambda machine: Outcome([current_record("g", old.member_id, current)]))
        rig.commit()
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS

    def test_its_own_session(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        new, _ = self.mixed(rig)
        for _ in range(CLASSIC_SESSION_MS // 5000):
            assert len(rig.group().members) == 2
            new.beat()
            rig.advance(5000)
        assert rig.group().members.keys() == {"new"}

    def test_who_does_not_sync_in_time(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        new = Client(rig, "new", ["t"])
        new.join()
        old = ClassicClient(rig, "a", ["t"])
        old.join()
        old.tick()
        assert old.joining is not None
        old.member_id = old.joining.answer.member_id
        old.generation = old.joining.answer.generation_id
        for _ in range(REBALANCE_MS // 5000):
            old.heartbeat()
            new.beat()
            assert len(rig.group().members) == 2
            rig.advance(5000)
        rig.advance(100)
        assert rig.group().members.keys() == {"new"}

    def test_who_does_not_join_again_in_time(self) -> None:
        rig = ConsumerRig({"t": 4, "u": 1}, settings=settings())
        new, old = self.mixed(rig)
        new.beat(subscribed_topic_names=["t", "u"])
        for _ in range(REBALANCE_MS // 5000):
            assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
            new.beat()
            rig.advance(5000)
        rig.advance(100)
        assert rig.group().members.keys() == {"new"}

    def test_leaving(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        new, old = self.mixed(rig)
        assert types(rig.written(old.leave)) == ["-8", "-7", "-5", "3"]
        run(rig, [new], 3)
        assert new.owned == {"t": set(range(4))}

    def test_leaving_as_somebody_else(self) -> None:
        rig = ConsumerRig({"t": 4}, settings=settings())
        _, old = self.mixed(rig)
        old.member_id = "new"
        assert old.leave() is ErrorCode.UNKNOWN_MEMBER_ID
        old.member_id = "nobody"
        assert old.leave() is ErrorCode.UNKNOWN_MEMBER_ID
        assert len(rig.group().members) == 2

    def test_an_administrator_removes_an_instance(self) -> None:
        """Whatever it speaks."""
        rig = ConsumerRig({"t": 4}, settings=settings())
        _, old = self.mixed(rig)
        Client(rig, "static", ["t"], instance="i").join()
        old.member_id, old.instance = "", "i"
        assert old.leave() is ErrorCode.NONE
        assert "static" not in rig.group().members

    def test_commits_of_a_classic_member(self) -> None:
        """CGP-46: in its own words."""
        rig = ConsumerRig({"t": 4}, settings=settings())
        _, old = self.mixed(rig)
        validate = rig.group().validate_offset_commit
        options = {"is_transactional": False, "api_version": 2}
        assert validate(old.member_id, None, old.generation, **options) is None
        with pytest.raises(Exception, match="ILLEGAL_GENERATION"):
            validate(old.member_id, None, old.generation + 1, **options)
        with pytest.raises(Exception, match="ILLEGAL_GENERATION"):
            rig.group().validate_committed_offset_fetch(old.member_id, 0)

    def test_described_as_what_it_is(self) -> None:
        """CGP-57."""
        rig = ConsumerRig({"t": 4}, settings=settings())
        _, old = self.mixed(rig)
        [group] = rig.consumers.describe(["g"])
        assert {each.member_id: each.member_type for each in group.members} == {
            "new": 1,
            old.member_id: 0,
        }


class TestRollingChange:
    """CGP-56: three members change their protocol one by one."""

    @pytest.mark.parametrize("is_cooperative", [True, False])
    def test_up(self, is_cooperative: bool) -> None:
        rig = ConsumerRig({"t": 6, "u": 3}, settings=settings())
        old = [
            ClassicClient(rig, name, ["t", "u"], is_cooperative=is_cooperative) for name in "abc"
        ]
        classic_group(rig, *old)
        everybody: list[ClassicClient | Client] = list(old)
        for number, leaving in enumerate(old):
            everybody.remove(leaving)
            leaving.leave()
            new = Client(rig, f"new-{number}", ["t", "u"])
            everybody.append(new)
            new.join()
            run(rig, everybody, 12)
            assert isinstance(rig.machine.directory.get("g"), ConsumerGroup)
        assert rig.group().classic_count.value == 0
        assert rig.group().state_name == "Stable"
        assert owned_by(everybody) == list(range(6))
        assert owned_by(everybody, "u") == list(range(3))

    @pytest.mark.parametrize("is_cooperative", [True, False])
    def test_down(self, is_cooperative: bool) -> None:
        rig = ConsumerRig({"t": 6, "u": 3}, settings=settings())
        new = [Client(rig, name, ["t", "u"]) for name in "abc"]
        for client in new:
            client.join()
        run(rig, new, 6)
        everybody: list[ClassicClient | Client] = list(new)
        for number, leaving in enumerate(new):
            everybody.remove(leaving)
            leaving.leave()
            old = ClassicClient(rig, f"old-{number}", ["t", "u"], is_cooperative=is_cooperative)
            everybody.append(old)
            old.tick()
            run(rig, everybody, 20)
        assert isinstance(rig.machine.directory.get("g"), ClassicGroup)
        assert owned_by(everybody) == list(range(6))
        assert owned_by(everybody, "u") == list(range(3))

    @pytest.mark.parametrize("seed", range(40))
    def test_in_any_order(self, seed: int) -> None:
        """Members of both kinds come and go, the coordinator moves, and writes are lost.

        Nobody ever reads what another one reads, and in the end everything is read.
        """
        random = Random(seed)
        rig = ConsumerRig({"t": 6, "u": 3}, settings=settings(), seed=seed)
        everybody: list[ClassicClient | Client] = []
        for number in range(14):
            if len(everybody) > 3 or (everybody and random.random() < 0.4):
                leave(everybody.pop(random.randrange(len(everybody))))
            elif random.random() < 0.5:
                everybody.append(Client(rig, f"new-{number}", ["t", "u"]))
            else:
                is_cooperative = random.random() < 0.5
                old = ClassicClient(rig, f"old-{number}", ["t", "u"], is_cooperative=is_cooperative)
                everybody.append(old)
            if random.random() < 0.2:
                rig.commit()
                rig.move()
            if random.random() < 0.4:
                rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
            run(rig, everybody, random.randint(0, 4))
        if not everybody:
            return
        run(rig, everybody, 60)  # Long enough for sessions to end of which nobody knows.
        assert owned_by(everybody) == list(range(6)), f"seed {seed}"
        group = rig.machine.directory.get("g")
        assert group is not None
        assert group.state_name == "Stable"


def test_a_topic_that_is_listed_twice_is_owned_in_both_places() -> None:
    image = image_with({"t": 4, "u": 1})
    places = [
        TopicPartition(topic=topic, partitions=partitions)
        for topic, partitions in (("t", [2, 3]), ("gone", [1]), ("u", []), ("t", [0, 3]))
    ]
    assert partitions_by_id(places, image) == {topic_id("t"): {0, 2, 3}}


def test_an_answer_has_what_is_kept_after_an_upgrade() -> None:
    """The new member gets nothing before the old ones have given up."""
    rig = ConsumerRig({"t": 2}, settings=settings())
    old = ClassicClient(rig, "a", ["t"], is_cooperative=True)
    classic_group(rig, old)
    new = Client(rig, "new", ["t"])
    assert assigned(new.join()) == {}
