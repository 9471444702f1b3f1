"""A member of a classic group, without I/O, whose coordinator is the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from client.fake_cluster import FakeCluster
from client.group_script import Script, poll

from kraftpy.client.assignors import (
    Assignor,
    AssignorChoice,
    GroupTopics,
    MemberAssignment,
    MemberSubscription,
)
from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer_core import ConsumerCore
from kraftpy.client.errors import ConnectionLost, Evidence, KafkaError
from kraftpy.client.group_core import GroupCore
from kraftpy.client.group_member import Rebalance, RebalanceKind
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.group_subscription import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kraftpy.client.settings import ConsumerSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kraftpy.protocol.schema.k10_find_coordinator import FindCoordinatorRequest
from kraftpy.protocol.schema.k11_join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftpy.protocol.schema.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from kraftpy.protocol.schema.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kraftpy.records.builder import BatchBuilder

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
REVOKED, LOST, ASSIGNED = RebalanceKind.REVOKED, RebalanceKind.LOST, RebalanceKind.ASSIGNED


class Kit:
    """One subscriber of `t`, which has two partitions."""

    def __init__(self, assignor: AssignorChoice = "range", **settings: object) -> None:
        self.cluster = FakeCluster()
        self.settings = ConsumerSettings(
            group_id="g",
            partition_assignment_strategy=(assignor,),
            auto_offset_reset="earliest",
            **settings,  # type: ignore[arg-type]
        )
        self.assignor = assignor if isinstance(assignor, str) else assignor().name
        self.consumer = ConsumerCore(
            list(self.cluster.addresses.values()), self.settings, Random(1)
        )
        self.group = GroupCore(self.consumer, self.settings, Random(2))
        self.script = Script(self.group, self.cluster)
        self.group.subscribe(["t"])

    def join(self, generation: int, *, leader: str = "other") -> JoinGroupRequest:
        return self.script.answer(
            JoinGroupRequest,
            JoinGroupResponse(
                generation_id=generation,
                protocol_name=self.assignor,
                leader=leader,
                member_id="me",
            ),
        )

    def sync(self, *wheres: TopicPartition) -> SyncGroupRequest:
        return self.script.answer(
            SyncGroupRequest, SyncGroupResponse(assignment=write_assignment(wheres))
        )

    def joined(self, *wheres: TopicPartition, generation: int = 1) -> None:
        self.join(generation)
        self.sync(*wheres)
        assert poll(self.script, self.group) == [Rebalance(ASSIGNED, wheres)]

    def heartbeat(self, error: ErrorCode) -> None:
        self.script.wait(self.settings.heartbeat_interval_ms)
        self.script.answer(HeartbeatRequest, HeartbeatResponse(error_code=error))

    def fill(self, where: TopicPartition, count: int) -> None:
        builder = BatchBuilder()
        for number in range(count):
            builder.append(None, b"%d" % number, timestamp_ms=1)
        self.cluster.partitions[where].append(builder.build())


def partitions_in(given: SyncGroupRequestAssignment) -> list[TopicPartition]:
    return list(read_assignment(given.assignment).partitions)


def committed(error: ErrorCode = ErrorCode.NONE) -> OffsetCommitResponse:
    each = OffsetCommitResponsePartition(partition_index=0, error_code=error)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(partitions=[each])])


def offsets_in(request: OffsetCommitRequest) -> dict[int, int]:
    return {
        each.partition_index: each.committed_offset
        for topic in request.topics
        for each in topic.partitions
    }


def test_a_member_joins_in_two_steps_and_begins_where_the_group_is() -> None:
    kit = Kit()
    kit.fill(T0, 9)
    kit.script.committed = {T0: 7}
    refusal = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="me")
    assert kit.script.answer(JoinGroupRequest, refusal).member_id == ""
    again = kit.join(5)
    assert again.member_id == "me"
    sync = kit.sync(T0, T1)
    assert (sync.generation_id, sync.assignments) == (5, [])
    assert kit.consumer.assignment == []
    assert poll(kit.script, kit.group) == [Rebalance(ASSIGNED, (T0, T1))]
    assert kit.group.identity == ("g", 5, "me", None)
    assert (kit.consumer.position(T0), kit.consumer.position(T1)) == (7, 0)
    [(_, _, records)] = kit.consumer.take(10)
    assert [record.offset for record in records] == [7, 8]


def subscriber(member_id: str, topics: Sequence[str]) -> JoinGroupResponseMember:
    metadata = write_subscription(topics, None, (), -1, "")
    return JoinGroupResponseMember(member_id=member_id, metadata=metadata)


def test_the_leader_assigns_for_all_also_topics_that_it_did_not_know() -> None:
    kit = Kit(enable_auto_commit=False)
    kit.cluster.create("u", 1)
    answer = JoinGroupResponse(
        generation_id=1,
        protocol_name="range",
        leader="me",
        member_id="me",
        members=[subscriber("me", ["t"]), subscriber("you", ["t", "u"])],
    )
    kit.script.answer(JoinGroupRequest, answer)
    kit.script.wait(1_000)
    sync = kit.sync(T0)
    assert {each.member_id: partitions_in(each) for each in sync.assignments} == {
        "me": [T0],
        "you": [T1, TopicPartition("u", 0)],
    }
    assert poll(kit.script, kit.group) == [Rebalance(ASSIGNED, (T0,))]
    # A topic of the group grows: the leader makes everybody join again.
    kit.cluster.create("u", 3)
    kit.consumer.cluster.refresh()
    kit.script.wait(1_000)
    assert poll(kit.script, kit.group) == [Rebalance(REVOKED, (T0,))]
    assert kit.script.asks(JoinGroupRequest)


def test_the_leader_looks_at_the_topics_before_it_assigns() -> None:
    """What it knew when it subscribed may be old."""
    kit = Kit()
    kit.script.turn()
    kit.cluster.create("t", 3)
    answer = JoinGroupResponse(
        generation_id=1,
        protocol_name="range",
        leader="me",
        member_id="me",
        members=[subscriber("me", ["t"])],
    )
    kit.script.answer(JoinGroupRequest, answer)
    kit.script.wait(1_000)
    [mine] = kit.sync().assignments
    assert len(partitions_in(mine)) == 3


def test_heartbeats_go_on_without_polls_and_partitions_move_only_with_one() -> None:
    kit = Kit(enable_auto_commit=False)
    kit.joined(T0)
    for _ in range(5):
        kit.heartbeat(ErrorCode.NONE)
    kit.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    kit.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert not kit.script.asks(JoinGroupRequest)
    assert kit.consumer.assignment == [T0]
    assert poll(kit.script, kit.group) == [Rebalance(REVOKED, (T0,))]
    assert kit.consumer.assignment == []
    again = kit.join(2)
    assert again.member_id == "me"


def test_what_was_polled_again_is_committed_before_it_is_given_up() -> None:
    """GRP-82: records that the user still has in hand are not."""
    kit = Kit(auto_commit_interval_ms=1_000_000)
    kit.fill(T0, 10)
    kit.joined(T0)
    assert sum(len(records) for _, _, records in kit.consumer.take(4)) == 4
    poll(kit.script, kit.group)
    assert sum(len(records) for _, _, records in kit.consumer.take(3)) == 3
    kit.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert not kit.script.asks(OffsetCommitRequest)
    kit.group.poll_begins(kit.script.now_ms)
    assert kit.group.next_event(kit.script.now_ms) is None
    request = kit.script.answer(OffsetCommitRequest, committed())
    assert (request.member_id, request.generation_id_or_member_epoch) == ("me", 1)
    assert offsets_in(request) == {0: 7}
    assert kit.group.next_event(kit.script.now_ms) == Rebalance(REVOKED, (T0,))
    assert not kit.script.asks(JoinGroupRequest)


def test_automatic_commits_say_what_was_done_at_the_last_poll() -> None:
    kit = Kit(auto_commit_interval_ms=1_000)
    kit.fill(T0, 10)
    kit.joined(T0)
    kit.consumer.take(4)
    poll(kit.script, kit.group)
    kit.consumer.take(3)
    kit.script.wait(1_000)
    assert offsets_in(kit.script.answer(OffsetCommitRequest, committed())) == {0: 4}
    kit.script.wait(1_000)
    assert not kit.script.asks(OffsetCommitRequest)


def test_a_cooperative_member_keeps_what_it_has_and_joins_twice() -> None:
    kit = Kit("cooperative-sticky", enable_auto_commit=False)
    kit.joined(T0, T1)
    kit.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert kit.consumer.assignment == [T0, T1]
    request = kit.join(2)
    [protocol] = request.protocols
    told = read_subscription(JoinGroupResponseMember(metadata=protocol.metadata))
    assert (told.owned, told.generation) == ((T0, T1), 1)
    kit.sync(T1)
    assert not kit.script.asks(JoinGroupRequest)
    assert poll(kit.script, kit.group) == [Rebalance(REVOKED, (T0,)), Rebalance(ASSIGNED, ())]
    assert kit.consumer.assignment == [T1]
    [protocol] = kit.join(3).protocols
    told = read_subscription(JoinGroupResponseMember(metadata=protocol.metadata))
    assert (told.owned, told.generation) == ((T1,), 2)


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_member_that_was_thrown_out_has_lost_everything(error: ErrorCode) -> None:
    kit = Kit()
    kit.joined(T0)
    kit.heartbeat(error)
    assert kit.group.identity.generation == -1
    assert not kit.script.asks(JoinGroupRequest)
    assert poll(kit.script, kit.group) == [Rebalance(LOST, (T0,))]
    assert not kit.script.asks(OffsetCommitRequest)
    assert kit.join(9).member_id == ""


def test_a_fenced_instance_stops_for_good() -> None:
    kit = Kit(group_instance_id="static")
    kit.joined(T0)
    kit.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    assert poll(kit.script, kit.group) == [Rebalance(LOST, (T0,))]
    assert isinstance(kit.group.failure, KafkaError)
    assert kit.group.failure.code == ErrorCode.FENCED_INSTANCE_ID
    kit.script.wait(100_000)
    assert kit.script.waiting == []


@pytest.mark.parametrize("is_told", [True, False])
def test_a_coordinator_that_moves_is_found_again(is_told: bool) -> None:
    kit = Kit()
    kit.joined(T0)
    kit.script.wait(kit.settings.heartbeat_interval_ms)
    kit.script.seen.clear()
    call, _ = kit.script.expect(HeartbeatRequest)
    kit.script.coordinator = 2
    if is_told:
        answer = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
        call.answered(answer, kit.script.now_ms)
    else:
        call.failed(ConnectionLost(Evidence.BROKEN, "by the test"), kit.script.now_ms)
    kit.script.wait(1_000)
    assert any(isinstance(each, FindCoordinatorRequest) for each in kit.script.seen)
    kit.script.answer(HeartbeatRequest, HeartbeatResponse())
    assert kit.consumer.assignment == [T0]
    assert kit.group.identity.generation == 1


def test_who_does_not_poll_leaves_and_comes_back() -> None:
    """GRP-83."""
    kit = Kit(max_poll_interval_ms=2_000)
    kit.joined(T0)
    kit.script.wait(1_999)
    assert not kit.script.asks(LeaveGroupRequest)
    kit.script.wait(1)
    leave = kit.script.answer(LeaveGroupRequest, LeaveGroupResponse())
    assert [each.member_id for each in leave.members] == ["me"]
    kit.script.wait(100_000)
    assert kit.script.waiting == []
    assert poll(kit.script, kit.group) == [Rebalance(LOST, (T0,))]
    assert kit.join(2).member_id == ""


def test_a_long_poll_is_no_absence() -> None:
    kit = Kit(max_poll_interval_ms=2_000)
    kit.joined(T0)
    kit.group.poll_begins(kit.script.now_ms)
    kit.script.wait(2_900)
    assert not kit.script.asks(LeaveGroupRequest)


def test_a_commit_of_an_older_generation_is_not_repeated() -> None:
    """Somebody else may have the partition by then, and may have come further."""
    kit = Kit(enable_auto_commit=False)
    kit.joined(T0)
    commit = kit.group.commit({T0: OffsetAndMetadata(5)}, kit.script.now_ms)
    call, _ = kit.script.expect(OffsetCommitRequest)
    kit.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    poll(kit.script, kit.group)
    kit.joined(T0, generation=2)
    call.answered(committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), kit.script.now_ms)
    kit.script.wait(1_000)
    assert not kit.script.asks(OffsetCommitRequest)
    with pytest.raises(KafkaError, match="ILLEGAL_GENERATION"):
        commit.result()


def test_a_commit_is_repeated_while_that_can_help() -> None:
    kit = Kit(enable_auto_commit=False)
    kit.joined(T0)
    commit = kit.group.commit({T0: OffsetAndMetadata(5)}, kit.script.now_ms)
    for error in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
        kit.script.answer(OffsetCommitRequest, committed(error))
        assert not commit.is_done
        kit.script.wait(1_000)
    kit.script.lose(OffsetCommitRequest)
    kit.script.wait(1_000)
    assert offsets_in(kit.script.answer(OffsetCommitRequest, committed())) == {0: 5}
    commit.result()


def test_leaving_tells_the_coordinator_but_a_static_member_keeps_its_place() -> None:
    kit = Kit()
    kit.joined(T0)
    kit.group.leave(kit.script.now_ms)
    kit.script.answer(LeaveGroupRequest, LeaveGroupResponse())
    assert kit.group.is_gone
    static = Kit(group_instance_id="static")
    static.joined(T0)
    static.group.leave(static.script.now_ms)
    static.script.turn()
    assert static.script.waiting == []
    assert static.group.is_gone


def test_who_has_left_does_not_come_back_by_a_late_answer() -> None:
    kit = Kit(enable_auto_commit=False)
    kit.joined(T0)
    kit.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    poll(kit.script, kit.group)
    late, _ = kit.script.expect(JoinGroupRequest)
    kit.group.leave(kit.script.now_ms)
    kit.script.answer(LeaveGroupRequest, LeaveGroupResponse())
    answer = JoinGroupResponse(generation_id=2, protocol_name="range", leader="x", member_id="me")
    late.answered(answer, kit.script.now_ms)
    kit.script.turn()
    assert kit.script.waiting == []
    assert kit.group.is_gone


def test_settings_that_contradict_are_refused() -> None:
    """GRP-84."""
    with pytest.raises(ValueError, match="heartbeat_interval_ms"):
        ConsumerSettings(group_id="g", heartbeat_interval_ms=45_000)
    ConsumerSettings(group_id="g", heartbeat_interval_ms=44_999)


# Assignors of one's own.


class Echo(Assignor):
    """Gives everything to the member that asks the loudest, and tells each what it asked for."""

    name = "echo"
    heard: bytes | None = None

    def user_data(self) -> bytes | None:
        return b"me!"

    def assigned(
        self,
        partitions: Sequence[TopicPartition],
        generation: int,
        user_data: bytes | None = None,
    ) -> None:
        Echo.heard = user_data

    def assign_group(
        self, topics: GroupTopics, members: Sequence[MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        loudest = max(members, key=lambda each: (each.user_data or b"").count(b"!"))
        every = [
            TopicPartition(topic, number)
            for topic, count in topics.partition_counts.items()
            for number in range(count)
        ]
        return {
            each.member_id: MemberAssignment(every if each is loudest else [], each.user_data)
            for each in members
        }


def led_by_us(kit: Kit) -> SyncGroupRequest:
    """Two members, of which this one leads; what it assigns."""
    metadata = write_subscription(["t"], b"me!!", (), -1, "")
    answer = JoinGroupResponse(
        generation_id=1,
        protocol_name=kit.assignor,
        leader="me",
        member_id="me",
        members=[
            JoinGroupResponseMember(
                member_id="me", metadata=write_subscription(["t"], b"me!", (), -1, "")
            ),
            JoinGroupResponseMember(member_id="you", metadata=metadata),
        ],
    )
    kit.script.answer(JoinGroupRequest, answer)
    kit.script.wait(1_000)
    return kit.script.expect(SyncGroupRequest)[1]


def test_an_assignor_of_ones_own_hears_and_says_more_than_partitions() -> None:
    """GRP-79."""
    kit = Kit(Echo)
    call, join = kit.script.expect(JoinGroupRequest)
    [protocol] = join.protocols
    member = JoinGroupResponseMember(member_id="me", metadata=protocol.metadata)
    assert (protocol.name, read_subscription(member).user_data) == ("echo", b"me!")
    kit.script.waiting.append(call)
    sync = led_by_us(kit)
    assert {each.member_id: read_assignment(each.assignment) for each in sync.assignments} == {
        "me": ([], b"me!"),
        "you": ([T0, T1], b"me!!"),
    }
    kit = Kit(Echo)
    kit.join(1)
    assignment = write_assignment([T1], b"well")
    kit.script.answer(SyncGroupRequest, SyncGroupResponse(assignment=assignment))
    assert poll(kit.script, kit.group) == [Rebalance(ASSIGNED, (T1,))]
    assert Echo.heard == b"well"


class Mute(Assignor):
    """Can't assign."""

    name = "mute"

    def assign_group(
        self, topics: GroupTopics, members: Sequence[MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        raise ArithmeticError("too many members")


class Broken(Mute):
    name = "broken"

    def user_data(self) -> bytes | None:
        raise LookupError("nothing to say")


def test_an_assignor_that_fails_is_told_to_the_user_and_harms_nothing_else() -> None:
    """GRP-79: by the leader, and before anything was said."""
    kit = Kit(Mute)
    metadata = write_subscription(["t"], None, (), -1, "")
    member = JoinGroupResponseMember(member_id="me", metadata=metadata)
    answer = JoinGroupResponse(
        generation_id=1, protocol_name="mute", leader="me", member_id="me", members=[member]
    )
    kit.script.answer(JoinGroupRequest, answer)
    kit.script.wait(1_000)
    assert isinstance(kit.group.failure, ArithmeticError)
    kit.script.wait(100_000)
    assert kit.script.waiting == []
    kit = Kit(Broken)
    kit.script.turn()
    assert isinstance(kit.group.failure, LookupError)
    assert kit.script.waiting == []


@pytest.mark.parametrize("words", [b"\0", b"\xff\xff", b"\0\1\0\0\0\x7f", b"{}: nothing"])
def test_an_assignment_that_cannot_be_read_is_told_to_the_user(words: bytes) -> None:
    """Another library leads, and writes something else."""
    kit = Kit()
    kit.join(1)
    kit.script.answer(SyncGroupRequest, SyncGroupResponse(assignment=words))
    assert isinstance(kit.group.failure, ValueError)
    kit.script.wait(100_000)
    assert kit.script.waiting == []
