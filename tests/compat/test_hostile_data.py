"""Bad items in Produce, Fetch and ListOffsets, through sockets: Kafka's error for the item alone.

Real clients can't be made to send these. Beside each bad item stands a good one, in the same
request, and it is served.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from compat.data_cluster import MEBIBYTE, SECONDS, DataCluster

from kraftpy.client.blocking import BlockingConnection
from kraftpy.client.errors import ConnectionLost
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k00_produce as k00
from kraftpy.protocol.schema import k01_fetch as k01
from kraftpy.protocol.schema import k02_list_offsets as k02
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataRequestTopic
from kraftpy.records.builder import BatchBuilder

pytestmark = pytest.mark.compat

PARTITIONS = 24
NOWHERE = Uuid(b"\x77" * 16)
UNKNOWN_PARTITION = 999


def batch(value: bytes = b"v", **fields: Any) -> bytes:
    builder = BatchBuilder(**fields)
    builder.append(None, value, timestamp_ms=1)
    return bytes(builder.build())


GOOD = batch()
FLIPPED = GOOD[:-1] + bytes([GOOD[-1] ^ 1])
BAD_RECORDS: dict[str, tuple[bytes | None, ErrorCode]] = {
    "null": (None, ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "cut short": (GOOD[:-1], ErrorCode.INVALID_RECORD),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "flipped bit": (FLIPPED, ErrorCode.CORRUPT_MESSAGE),
    "too large": (batch(bytes(2 * MEBIBYTE)), ErrorCode.MESSAGE_TOO_LARGE),
    "control batch": (batch(is_control=True), ErrorCode.INVALID_RECORD),
}


@dataclass
class Leader:
    """A connection to a broker, and what it leads of a topic."""

    connection: BlockingConnection
    topic: str
    topic_id: Uuid
    led: list[int]
    followed: list[int]

    def ask(self, request: Any, **options: Any) -> Any:
        return self.connection.request(request, **options)


@pytest.fixture
def leader(cluster: DataCluster) -> Iterator[Leader]:
    topic = cluster.topic(PARTITIONS, retention_ms="-1")
    node_id, address = next(iter(cluster.addresses.items()))
    with BlockingConnection(address) as connection:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        [known] = connection.request(request).topics
        led = sorted(each.partition_index for each in known.partitions if each.leader_id == node_id)
        others = sorted({each.partition_index for each in known.partitions} - set(led))
        yield Leader(connection, topic, known.topic_id, led, others)


def produce(leader: Leader, items: dict[int, bytes | None], acks: int = -1) -> dict[int, ErrorCode]:
    request = k00.ProduceRequest(
        acks=acks,
        timeout_ms=20_000,
        topic_data=[
            k00.TopicProduceData(
                topic_id=leader.topic_id,
                partition_data=[
                    k00.PartitionProduceData(index=index, records=records)
                    for index, records in items.items()
                ],
            )
        ],
    )
    [answer] = leader.ask(request).responses
    return {each.index: ErrorCode(each.error_code) for each in answer.partition_responses}


def test_bad_batches(leader: Leader) -> None:
    """REP, "Must hold": each gets its error, and its neighbours are stored."""
    good, *others = leader.led
    kinds = dict(zip(others, BAD_RECORDS.values(), strict=False))
    assert len(kinds) == len(BAD_RECORDS)
    items = {index: records for index, (records, _) in kinds.items()}
    items |= {good: GOOD, UNKNOWN_PARTITION: GOOD}
    items |= dict.fromkeys(leader.followed[:1], GOOD)
    told = produce(leader, items)
    expected = {index: code for index, (_, code) in kinds.items()}
    expected |= {good: ErrorCode.NONE, UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    expected |= dict.fromkeys(leader.followed[:1], ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told == expected
    # Nothing of what was refused is there.
    assert {index: end for index, end in ends(leader).items() if end} == {good: 1}


def ends(leader: Leader) -> dict[int, int]:
    wanted = [k02.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in leader.led]
    topics = [k02.ListOffsetsTopic(name=leader.topic, partitions=wanted)]
    [answer] = leader.ask(k02.ListOffsetsRequest(replica_id=-1, topics=topics)).topics
    return {each.partition_index: each.offset for each in answer.partitions}


def test_topics_that_are_not_there(leader: Leader) -> None:
    def data(**names: Any) -> k00.TopicProduceData:
        partition = k00.PartitionProduceData(index=leader.led[0], records=GOOD)
        return k00.TopicProduceData(partition_data=[partition], **names)

    for version, names, code in (
        (13, [{"topic_id": NOWHERE}, {"topic_id": leader.topic_id}], ErrorCode.UNKNOWN_TOPIC_ID),
        (
            12,
            [{"name": "nowhere"}, {"name": leader.topic}],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
    ):
        topics = [data(**each) for each in names]
        request = k00.ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
        answers = leader.ask(request, max_version=version).responses
        codes = [each.partition_responses[0].error_code for each in answers]
        assert sorted(codes) == [ErrorCode.NONE, code]


@pytest.mark.parametrize("acks", [2, -2, 127])
def test_invalid_acks(leader: Leader, acks: int) -> None:
    first, second = leader.led[:2]
    told = produce(leader, {first: GOOD, second: GOOD}, acks)
    assert set(told.values()) == {ErrorCode.INVALID_REQUIRED_ACKS}
    assert set(ends(leader).values()) == {0}


def test_a_failure_without_acks_closes_the_connection(leader: Leader) -> None:
    """There is no other way to tell the producer, who will ask for metadata then."""
    request = k00.ProduceRequest(
        acks=0,
        timeout_ms=1000,
        topic_data=[
            k00.TopicProduceData(
                topic_id=leader.topic_id,
                partition_data=[
                    k00.PartitionProduceData(index=index, records=GOOD)
                    for index in (leader.led[0], UNKNOWN_PARTITION)
                ],
            )
        ],
    )
    leader.connection.send_unanswered(request)
    with pytest.raises(ConnectionLost):
        leader.ask(MetadataRequest())
    with BlockingConnection(leader.connection.address) as again:
        leader.connection = again
        deadline = time.monotonic() + SECONDS
        # Nobody has waited for it to be on the followers.
        while ends(leader)[leader.led[0]] != 1:
            assert time.monotonic() < deadline


def test_bad_fetches(leader: Leader) -> None:
    good, behind, early, ahead = leader.led[:4]
    assert produce(leader, {good: GOOD}) == {good: ErrorCode.NONE}

    def wanted(index: int, offset: int = 0, epoch: int = -1) -> k01.FetchPartition:
        return k01.FetchPartition(
            partition=index,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            partition_max_bytes=MEBIBYTE,
        )

    items = [
        wanted(behind, 1),
        wanted(early, -5),
        wanted(ahead, 0, 7),
        wanted(UNKNOWN_PARTITION),
        wanted(good),
    ]
    request = k01.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=MEBIBYTE,
        topics=[
            k01.FetchTopic(topic_id=NOWHERE, partitions=[wanted(0)]),
            k01.FetchTopic(topic_id=leader.topic_id, partitions=items),
        ],
    )
    answer = leader.ask(request)
    assert answer.error_code == ErrorCode.NONE
    told = {
        (topic.topic_id == leader.topic_id, each.partition_index): each
        for topic in answer.responses
        for each in topic.partitions
    }
    codes = {key: ErrorCode(each.error_code) for key, each in told.items()}
    assert codes == {
        (False, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        (True, behind): ErrorCode.OFFSET_OUT_OF_RANGE,
        (True, early): ErrorCode.OFFSET_OUT_OF_RANGE,
        (True, ahead): ErrorCode.UNKNOWN_LEADER_EPOCH,
        (True, UNKNOWN_PARTITION): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (True, good): ErrorCode.NONE,
    }
    # The last bytes are the record's own; the broker has written into the head alone.
    assert bytes(told[True, good].records).endswith(GOOD[61:])


def test_bad_questions_for_offsets(leader: Leader) -> None:
    good, ahead, odd = leader.led[:3]
    asked = {
        good: (-1, -1, ErrorCode.NONE),
        ahead: (-1, 7, ErrorCode.UNKNOWN_LEADER_EPOCH),
        odd: (-99, -1, ErrorCode.UNSUPPORTED_VERSION),
        UNKNOWN_PARTITION: (-1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
    partitions = [
        k02.ListOffsetsPartition(
            partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
        )
        for index, (timestamp, epoch, _) in asked.items()
    ]
    nowhere = k02.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = k02.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            k02.ListOffsetsTopic(name="nowhere", partitions=[nowhere]),
            k02.ListOffsetsTopic(name=leader.topic, partitions=partitions),
        ],
    )
    answers = {topic.name: topic.partitions for topic in leader.ask(request).topics}
    assert [each.error_code for each in answers["nowhere"]] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    told = {each.partition_index: ErrorCode(each.error_code) for each in answers[leader.topic]}
    assert told == {index: code for index, (_, _, code) in asked.items()}
