"""A member of a consumer group (KIP-848), without I/O, whose coordinator is the test."""

from __future__ import annotations

from random import Random

import pytest
from client.fake_cluster import FakeCluster
from client.group_script import Script, poll

from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer_core import ConsumerCore
from kraftpy.client.errors import KafkaError
from kraftpy.client.group_core import GroupCore
from kraftpy.client.group_member import Rebalance, RebalanceKind
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.settings import ConsumerSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kraftpy.protocol.schema.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
REVOKED, LOST, ASSIGNED = RebalanceKind.REVOKED, RebalanceKind.LOST, RebalanceKind.ASSIGNED
INTERVAL_MS = 5_000


class Kit:
    """One subscriber of `t`, which has two partitions."""

    def __init__(self, **settings: object) -> None:
        self.cluster = FakeCluster()
        given = {"enable_auto_commit": False, **settings}
        self.settings = ConsumerSettings(
            group_id="g",
            group_protocol="consumer",
            auto_offset_reset="earliest",
            **given,  # type: ignore[arg-type]
        )
        addresses = list(self.cluster.addresses.values())
        self.consumer = ConsumerCore(addresses, self.settings, Random(1))
        self.group = GroupCore(self.consumer, self.settings, Random(2))
        self.script = Script(self.group, self.cluster)
        self.group.subscribe(["t"])

    def heartbeat(
        self,
        epoch: int,
        assigned: list[int] | None = None,
        error: ErrorCode = ErrorCode.NONE,
    ) -> ConsumerGroupHeartbeatRequest:
        answer = ConsumerGroupHeartbeatResponse(
            error_code=error, member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS
        )
        if assigned is not None:
            topic = TopicPartitions(topic_id=self.cluster.topic_ids["t"], partitions=assigned)
            answer.assignment = Assignment(topic_partitions=[topic] if assigned else [])
        return self.script.answer(ConsumerGroupHeartbeatRequest, answer)

    def joined(self, *numbers: int) -> None:
        """In, with these partitions, and all said."""
        self.heartbeat(1, list(numbers))
        wheres = tuple(TopicPartition("t", number) for number in numbers)
        assert poll(self.script, self.group) == [Rebalance(ASSIGNED, wheres)]
        assert owned_in(self.heartbeat(1)) == list(numbers)


def owned_in(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    if request.topic_partitions is None:
        return None
    return [number for topic in request.topic_partitions for number in topic.partitions]


def test_a_member_joins_and_says_at_once_what_it_took() -> None:
    kit = Kit(client_rack="r", group_remote_assignor="range")
    joining = kit.heartbeat(3, [0, 1])
    assert len(joining.member_id) == 22
    assert (joining.member_epoch, owned_in(joining)) == (0, [])
    assert (joining.rack_id, joining.server_assignor) == ("r", "range")
    assert joining.subscribed_topic_names == ["t"]
    assert joining.rebalance_timeout_ms == kit.settings.max_poll_interval_ms
    assert not kit.script.asks(ConsumerGroupHeartbeatRequest)
    assert poll(kit.script, kit.group) == [Rebalance(ASSIGNED, (T0, T1))]
    told = kit.heartbeat(3)
    assert (told.member_id, told.member_epoch) == (joining.member_id, 3)
    assert owned_in(told) == [0, 1]
    assert (told.subscribed_topic_names, told.server_assignor, told.rebalance_timeout_ms) == (
        None,
        None,
        -1,
    )
    kit.script.wait(INTERVAL_MS - 1)
    assert not kit.script.asks(ConsumerGroupHeartbeatRequest)
    kit.script.wait(1)
    quiet = kit.heartbeat(3)
    assert (quiet.topic_partitions, quiet.subscribed_topic_names) == (None, None)


def test_what_is_taken_away_is_given_back_only_by_the_user() -> None:
    kit = Kit()
    kit.joined(0, 1)
    kit.script.wait(INTERVAL_MS)
    kit.heartbeat(1, [1])
    kit.script.wait(INTERVAL_MS)
    assert kit.heartbeat(1).topic_partitions is None
    assert kit.consumer.assignment == [T0, T1]
    assert poll(kit.script, kit.group) == [Rebalance(REVOKED, (T0,))]
    assert kit.consumer.assignment == [T1]
    assert owned_in(kit.heartbeat(2)) == [1]


def test_after_a_lost_answer_everything_is_said_again() -> None:
    kit = Kit()
    kit.joined(0)
    kit.script.wait(INTERVAL_MS)
    kit.script.lose(ConsumerGroupHeartbeatRequest)
    kit.script.wait(1_000)
    again = kit.heartbeat(1)
    assert (owned_in(again), again.subscribed_topic_names) == ([0], ["t"])
    assert again.rebalance_timeout_ms == kit.settings.max_poll_interval_ms


def test_nothing_is_listed_while_the_user_has_yet_to_take_something() -> None:
    """What it does not list may be another's at once, and the user may take it at any moment."""
    kit = Kit()
    kit.joined(0)
    kit.script.wait(INTERVAL_MS)
    kit.heartbeat(1, [0, 1])
    kit.script.wait(INTERVAL_MS)
    kit.script.lose(ConsumerGroupHeartbeatRequest)
    kit.script.wait(1_000)
    again = kit.heartbeat(1)
    assert (again.topic_partitions, again.subscribed_topic_names) == (None, ["t"])
    kit.script.wait(INTERVAL_MS - 1)
    assert not kit.script.asks(ConsumerGroupHeartbeatRequest)
    assert poll(kit.script, kit.group) == [Rebalance(ASSIGNED, (T1,))]
    assert owned_in(kit.heartbeat(1)) == [0, 1]


def test_what_was_not_taken_before_a_list_was_sent_is_not_taken_after_it() -> None:
    """The coordinator may have given it to somebody else; its next answer tells."""
    kit = Kit()
    kit.joined(0)
    kit.script.wait(INTERVAL_MS)
    unknown = TopicPartitions(topic_id=Uuid((2).to_bytes(16, "big")), partitions=[0])
    known = TopicPartitions(topic_id=kit.cluster.topic_ids["t"], partitions=[0])
    assigned = ConsumerGroupHeartbeatResponse(
        member_epoch=1,
        heartbeat_interval_ms=INTERVAL_MS,
        assignment=Assignment(topic_partitions=[known, unknown]),
    )
    kit.script.answer(ConsumerGroupHeartbeatRequest, assigned)
    kit.script.wait(INTERVAL_MS)
    kit.script.lose(ConsumerGroupHeartbeatRequest)
    kit.script.wait(1_000)
    _, listing = kit.script.expect(ConsumerGroupHeartbeatRequest)
    assert (owned_in(listing), listing.subscribed_topic_names) == ([0], ["t"])
    kit.cluster.create("u", 1)
    kit.consumer.cluster.want("u")
    kit.script.wait(1_000)
    assert kit.consumer.cluster.name_of(unknown.topic_id) == "u"
    assert poll(kit.script, kit.group) == []


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_begins_anew_with_nothing(error: ErrorCode) -> None:
    kit = Kit()
    kit.joined(0)
    member_id = kit.group.identity.member_id
    kit.script.wait(INTERVAL_MS)
    kit.heartbeat(0, error=error)
    kit.script.wait(1_000)
    assert not kit.script.asks(ConsumerGroupHeartbeatRequest)
    assert poll(kit.script, kit.group) == [Rebalance(LOST, (T0,))]
    again = kit.heartbeat(7, [0])
    assert (again.member_id, again.member_epoch, owned_in(again)) == (member_id, 0, [])


@pytest.mark.parametrize(
    "error", [ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.UNSUPPORTED_ASSIGNOR]
)
def test_what_cannot_be_mended_is_told(error: ErrorCode) -> None:
    kit = Kit()
    kit.heartbeat(0, error=error)
    assert isinstance(kit.group.failure, KafkaError)
    assert kit.group.failure.code == error
    kit.script.wait(100_000)
    assert kit.script.waiting == []


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("static", -2)])
def test_how_a_member_leaves(instance: str | None, epoch: int) -> None:
    kit = Kit(group_instance_id=instance)
    kit.joined(0)
    kit.group.leave(kit.script.now_ms)
    assert not kit.group.is_gone
    farewell = kit.heartbeat(epoch)
    assert (farewell.member_epoch, farewell.instance_id) == (epoch, instance)
    assert kit.group.is_gone
    kit.script.wait(100_000)
    assert kit.script.waiting == []


def test_who_does_not_poll_leaves_and_comes_back() -> None:
    kit = Kit(max_poll_interval_ms=2_000)
    kit.joined(0)
    kit.script.wait(2_000)
    assert kit.heartbeat(-1).member_epoch == -1
    kit.script.wait(100_000)
    assert kit.script.waiting == []
    assert poll(kit.script, kit.group) == [Rebalance(LOST, (T0,))]
    assert kit.heartbeat(4).member_epoch == 0


def committed(error: ErrorCode = ErrorCode.NONE) -> OffsetCommitResponse:
    each = OffsetCommitResponsePartition(partition_index=0, error_code=error)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(partitions=[each])])


def test_a_commit_follows_the_epoch_as_long_as_the_partition_stays() -> None:
    kit = Kit()
    kit.joined(0, 1)
    stays = kit.group.commit({T1: OffsetAndMetadata(5)}, kit.script.now_ms)
    first = kit.script.answer(OffsetCommitRequest, committed(ErrorCode.STALE_MEMBER_EPOCH))
    goes = kit.group.commit({T0: OffsetAndMetadata(5)}, kit.script.now_ms)
    call, _ = kit.script.expect(OffsetCommitRequest)
    kit.script.wait(INTERVAL_MS)
    second = kit.script.answer(OffsetCommitRequest, committed(ErrorCode.STALE_MEMBER_EPOCH))
    kit.heartbeat(2, [1])
    poll(kit.script, kit.group)
    kit.heartbeat(2)
    kit.script.wait(1_000)
    third = kit.script.answer(OffsetCommitRequest, committed())
    epochs = [each.generation_id_or_member_epoch for each in (first, second, third)]
    assert epochs == [1, 1, 2]
    stays.result()
    call.answered(committed(ErrorCode.STALE_MEMBER_EPOCH), kit.script.now_ms)
    kit.script.wait(1_000)
    assert not kit.script.asks(OffsetCommitRequest)
    with pytest.raises(KafkaError, match="ILLEGAL_GENERATION"):
        goes.result()


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
@pytest.mark.parametrize("is_told_before", [True, False])
def test_who_is_thrown_out_while_it_asks_where_to_begin_asks_again(
    code: ErrorCode, is_told_before: bool
) -> None:
    """Its user hears of the loss, and of nothing else."""
    kit = Kit()
    kit.script.answers_fetches = False
    kit.heartbeat(1, [0])
    assert poll(kit.script, kit.group) == [Rebalance(ASSIGNED, (T0,))]
    refusal = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(error_code=code)])
    if is_told_before:
        kit.heartbeat(0, error=ErrorCode.FENCED_MEMBER_EPOCH)
        kit.script.answer(OffsetFetchRequest, refusal)
    else:
        kit.script.answer(OffsetFetchRequest, refusal)
        kit.heartbeat(0, error=ErrorCode.FENCED_MEMBER_EPOCH)
    kit.script.answers_fetches = True
    assert kit.consumer.take(1) == []
    assert poll(kit.script, kit.group) == [Rebalance(LOST, (T0,))]
    kit.script.committed[T0] = 7
    kit.script.wait(2_000)
    kit.heartbeat(2, [0])
    assert poll(kit.script, kit.group) == [Rebalance(ASSIGNED, (T0,))]
    kit.script.wait(2_000)
    assert kit.consumer.take(1) == []
    assert kit.consumer.position(T0) == 7
