"""ListOffsets, OffsetForLeaderEpoch, DescribeProducers: what a partition's log can be asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from api.data_rig import Asked, Broker, broker_on, followed
from broker.replica_rig import Rig, topic

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kraftpy.protocol.schema.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraftpy.protocol.schema.k61_describe_producers import DescribeProducersRequest, TopicRequest
from kraftpy.records.builder import BatchBuilder

NOW_MS = 1_767_225_600_000


def batch(*times_ms: int, **fields: Any) -> bytes:
    builder = BatchBuilder(**fields)
    for time_ms in times_ms:
        builder.append(None, b"v", timestamp_ms=time_ms)
    return bytes(builder.build())


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """`alone` is on broker 1 only; `t` is led by it, for 2 and 3, but for partition 1."""
    rig = Rig()
    async with broker_on(rig) as broker:
        await rig.apply(*topic("t", 1, 2), *topic("alone", 1, replicas=(1,)))
        yield broker


def list_offset(
    broker: Broker,
    name: str,
    timestamp: int,
    index: int = 0,
    *,
    version: int = 11,
    epoch: int = -1,
    **fields: Any,
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
    )
    fields = {"replica_id": -1, **fields}
    request = ListOffsetsRequest(
        topics=[ListOffsetsTopic(name=name, partitions=[wanted])], **fields
    )
    [answered] = broker.ask(request, version).topics
    [answer] = answered.partitions
    assert isinstance(answer, ListOffsetsPartitionResponse)
    return answer


def found(answer: ListOffsetsPartitionResponse) -> tuple[str, int, int, int]:
    code = ErrorCode(answer.error_code).name
    return code, answer.offset, answer.timestamp, answer.leader_epoch


async def test_times_and_places(broker: Broker) -> None:
    broker.produce("alone", batch(NOW_MS, NOW_MS + 30))
    broker.rig.metadata.change("alone", 0, leader=1)
    await broker.rig.settle()
    broker.produce("alone", batch(NOW_MS + 20, NOW_MS + 10))
    broker.rig.partition("alone").raise_log_start(1)
    assert {
        timestamp: found(list_offset(broker, "alone", timestamp)) for timestamp in range(-6, 0)
    } == {
        -1: ("NONE", 4, -1, 1),
        -2: ("NONE", 1, -1, 0),
        -3: ("NONE", 1, NOW_MS + 30, 0),
        -4: ("NONE", 1, -1, 0),
        -5: ("NONE", -1, -1, -1),
        -6: ("NONE", -1, -1, -1),
    }
    by_time = [NOW_MS - 1, NOW_MS + 25, NOW_MS + 31, 0]
    assert [found(list_offset(broker, "alone", each)) for each in by_time] == [
        ("NONE", 1, NOW_MS + 30, 0),
        ("NONE", 1, NOW_MS + 30, 0),
        ("NONE", -1, -1, -1),
        ("NONE", 1, NOW_MS + 30, 0),
    ]


@pytest.mark.parametrize("version", range(1, 12))
async def test_which_version_knows_which_place(broker: Broker, version: int) -> None:
    first = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11, -7: 12, -(2**63): 12}
    for timestamp, known_from in first.items():
        code = list_offset(broker, "alone", timestamp, version=version).error_code
        expected = ErrorCode.NONE if version >= known_from else ErrorCode.UNSUPPORTED_VERSION
        assert code == expected, timestamp


async def test_who_sees_how_far(broker: Broker) -> None:
    """REP-4, REP-5: the end is where the asker's sight ends."""
    partition = broker.rig.partition("t")
    partition.log.producers._verify_transactions = False  # type: ignore[attr-defined]
    broker.produce("t", batch(NOW_MS))
    records = batch(NOW_MS, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    broker.produce("t", records, transactional_id="x")
    broker.produce("t", batch(NOW_MS + 5))
    for each in (2, 3):
        broker.fetch("t", followed(2), replica_id=each)
    assert list_offset(broker, "t", -1).offset == 2
    assert list_offset(broker, "t", -1, isolation_level=1).offset == 1
    assert list_offset(broker, "t", -1, replica_id=2).offset == 3
    assert list_offset(broker, "t", NOW_MS + 5).offset == -1
    assert list_offset(broker, "t", NOW_MS + 5, replica_id=2).offset == 2


@pytest.mark.parametrize("version", [4, 5])
async def test_a_new_leader_does_not_guess(broker: Broker, version: int) -> None:
    """KIP-207: until its high watermark is in its own epoch."""
    broker.produce("t", batch(NOW_MS))
    broker.rig.metadata.change("t", 0, leader=1)
    await broker.rig.settle()
    expected = ErrorCode.LEADER_NOT_AVAILABLE if version < 5 else ErrorCode.OFFSET_NOT_AVAILABLE
    assert list_offset(broker, "t", -1, version=version).error_code == expected
    assert list_offset(broker, "t", NOW_MS, version=version).error_code == expected
    assert list_offset(broker, "t", -2, version=version).error_code == ErrorCode.NONE
    assert list_offset(broker, "t", -1, replica_id=2, version=version).offset == 1
    for each in (2, 3):
        broker.fetch("t", followed(1), replica_id=each)
    assert list_offset(broker, "t", -1, version=version).offset == 1
    assert list_offset(broker, "t", NOW_MS, version=version).offset == 0


def begin_search(broker: Broker, *names: str, timestamp: int = NOW_MS, epoch: int = -1) -> Asked:
    wanted = ListOffsetsPartition(
        partition_index=0, timestamp=timestamp, current_leader_epoch=epoch
    )
    topics = [ListOffsetsTopic(name=name, partitions=[wanted]) for name in names]
    return broker.begin(ListOffsetsRequest(replica_id=-1, topics=topics), 11)


def answers(asked: Asked) -> dict[str, tuple[str, int, int, int]]:
    return {each.name: found(each.partitions[0]) for each in asked.response.topics}


def make_cold(
    broker: Broker,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception | None = None,
) -> None:
    """The data of a partition is not in memory, and takes its time."""
    log: Any = broker.rig.partition(name).log
    file = log.active_segment.log_file

    class Cold(type(file)):  # type: ignore[misc]
        __slots__ = ()

        def resident(self, position: int, length: int) -> bool:
            return False

        async def warm(self, position: int, length: int) -> None:
            await trio.sleep(0.5)
            if failure is not None:
                raise failure

    monkeypatch.setattr(file, "__class__", Cold)


async def test_a_time_in_cold_files_is_answered_later(
    broker: Broker, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 1: the loop does not wait for the medium. All of a request is answered at once."""
    broker.produce("alone", batch(NOW_MS))
    make_cold(broker, "alone", monkeypatch)
    # Places need no file.
    assert list_offset(broker, "alone", -1).offset == 1
    asked = begin_search(broker, "alone", "nobody")
    latest = begin_search(broker, "alone", timestamp=-3)
    assert not asked.is_answered
    assert not latest.is_answered
    await trio.sleep(5)
    assert answers(asked) == {
        "alone": ("NONE", 0, NOW_MS, 0),
        "nobody": ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1, -1),
    }
    assert answers(latest) == {"alone": ("NONE", 0, NOW_MS, 0)}


async def test_a_search_that_fails_as_nobody_has_foreseen(
    broker: Broker, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 11: no request ends the node, whichever task carries it out."""
    broker.produce("alone", batch(NOW_MS))
    make_cold(broker, "alone", monkeypatch, RuntimeError("out of order"))
    asked = begin_search(broker, "alone")
    await trio.sleep(5)
    assert answers(asked) == {"alone": ("UNKNOWN_SERVER_ERROR", -1, -1, -1)}
    assert list_offset(broker, "alone", -1).offset == 1


async def test_leadership_that_ends_while_a_time_is_looked_for(
    broker: Broker, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce("t", batch(NOW_MS))
    for each in (2, 3):
        broker.fetch("t", followed(1), replica_id=each)
    make_cold(broker, "t", monkeypatch)
    by_any, by_epoch = begin_search(broker, "t"), begin_search(broker, "t", epoch=0)
    assert not by_any.is_answered
    broker.rig.metadata.change("t", 0, leader=2)
    await broker.rig.settle()
    await trio.sleep(5)
    assert answers(by_any) == {"t": ("NOT_LEADER_OR_FOLLOWER", -1, -1, -1)}
    assert answers(by_epoch) == {"t": ("FENCED_LEADER_EPOCH", -1, -1, -1)}


async def test_a_topic_that_goes_while_a_time_is_looked_for(
    broker: Broker, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce("alone", batch(NOW_MS))
    make_cold(broker, "alone", monkeypatch)
    asked = begin_search(broker, "alone")
    broker.rig.metadata.remove("alone")
    await broker.rig.settle()
    await trio.sleep(5)
    assert answers(asked) == {"alone": ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1, -1)}


async def test_records_that_are_deleted_while_their_time_is_looked_for(
    broker: Broker, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce("alone", batch(NOW_MS))
    broker.produce("alone", batch(NOW_MS + 5))
    make_cold(broker, "alone", monkeypatch)
    asked = begin_search(broker, "alone")
    broker.rig.partition("alone").raise_log_start(1)
    await trio.sleep(5)
    assert answers(asked) == {"alone": ("NONE", 1, NOW_MS + 5, 0)}


async def test_offsets_that_are_refused(broker: Broker) -> None:
    """One by one: unknown, elsewhere, another epoch, asked for twice."""
    assert found(list_offset(broker, "nobody", -1))[0] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert found(list_offset(broker, "alone", -1, 5))[0] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert found(list_offset(broker, "t", -1, 1))[0] == "NOT_LEADER_OR_FOLLOWER"
    assert found(list_offset(broker, "t", -1, 1, replica_id=-2))[0] == "NONE"
    assert found(list_offset(broker, "t", -1, epoch=1))[0] == "UNKNOWN_LEADER_EPOCH"
    broker.rig.metadata.change("t", 0, leader=1)
    await broker.rig.settle()
    assert found(list_offset(broker, "t", -1, epoch=0))[0] == "FENCED_LEADER_EPOCH"
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
    once = [ListOffsetsPartition(partition_index=0, timestamp=-2)]
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name="t", partitions=twice),
            ListOffsetsTopic(name="alone", partitions=once),
        ],
    )
    codes = [
        [ErrorCode(each.error_code).name for each in answered.partitions]
        for answered in broker.ask(request, 7).topics
    ]
    assert codes == [["INVALID_REQUEST"] * 2, ["NONE"]]


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_where_epochs_end(broker: Broker, version: int) -> None:
    broker.produce("alone", batch(NOW_MS, NOW_MS))
    for _ in range(2):
        broker.rig.metadata.change("alone", 0, leader=1)
        await broker.rig.settle()
    broker.produce("alone", batch(NOW_MS))

    def end(name: str, epoch: int, index: int = 0, current: int = -1) -> tuple[str, int, int]:
        wanted = OffsetForLeaderPartition(
            partition=index, leader_epoch=epoch, current_leader_epoch=current
        )
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=name, partitions=[wanted])]
        )
        [answered] = broker.ask(request, version).topics
        [answer] = answered.partitions
        return ErrorCode(answer.error_code).name, answer.leader_epoch, answer.end_offset

    assert end("alone", 0) == ("NONE", 0, 2)
    assert end("alone", 1) == ("NONE", 0, 2)
    assert end("alone", 2) == ("NONE", 2, 3)
    assert end("alone", 3) == ("NONE", -1, -1)
    assert end("alone", 0, current=2) == ("NONE", 0, 2)
    assert end("alone", 0, current=1) == ("FENCED_LEADER_EPOCH", -1, -1)
    assert end("alone", 0, current=3) == ("UNKNOWN_LEADER_EPOCH", -1, -1)
    assert end("alone", 0, 1) == ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)
    assert end("nobody", 0) == ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)
    assert end("t", 0, 1) == ("NOT_LEADER_OR_FOLLOWER", -1, -1)


async def test_producers_of_partitions(broker: Broker) -> None:
    broker.produce("alone", batch(NOW_MS, NOW_MS, producer_id=7, producer_epoch=3, base_sequence=0))
    request = DescribeProducersRequest(
        topics=[
            TopicRequest(name="alone", partition_indexes=[0, 1]),
            TopicRequest(name="t", partition_indexes=[1]),
            TopicRequest(name="no/name", partition_indexes=[0]),
        ]
    )
    alone, followed_here, wrong = broker.ask(request, 0).topics
    known, unknown = alone.partitions
    [producer] = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 1)
    assert (producer.last_timestamp, producer.coordinator_epoch) == (NOW_MS, -1)
    assert producer.current_txn_start_offset == -1
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.error_message
    assert followed_here.partitions[0].error_code == ErrorCode.NONE
    assert wrong.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
