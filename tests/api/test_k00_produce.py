"""Produce against real replicas: acks, failures of single partitions, bad batches, waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import trio
from api.data_rig import UNKNOWN_ID, Broker, broker_on, followed, only_result, values
from broker.replica_rig import Rig, topic

from kraftpy.log.offsets import Isolation
from kraftpy.metadata.records import BrokerRegistrationChangeRecord
from kraftpy.observe.metrics import MetricName
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k00_produce import PartitionProduceResponse, ProduceRequest
from kraftpy.protocol.schema.k01_fetch import PartitionData
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest
from kraftpy.records.batch import TimestampType
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.world.memory_disk_faults import WriteError

NOW_MS = 1_767_225_600_000


def batch(*record_values: bytes, key: bytes | None = None, **fields: Any) -> bytes:
    builder = BatchBuilder(**fields)
    for value in record_values or (b"v",):
        builder.append(key, value, timestamp_ms=NOW_MS)
    return bytes(builder.build())


@pytest.fixture
async def broker(autojump_clock: object) -> AsyncIterator[Broker]:
    """Topic t: broker 1 leads partition 0 with 2 and 3, follows 2 in partition 1; `alone` is on
    broker 1 only, `elsewhere` not at all.
    """
    rig = Rig()
    async with broker_on(rig) as broker:
        await rig.apply(
            *topic("t", 1, 2),
            *topic("alone", 1, 1, replicas=(1,)),
            *topic("elsewhere", 2, replicas=(2, 3)),
        )
        yield broker


def code_of(result: PartitionProduceResponse) -> ErrorCode:
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("version", range(3, 14))
async def test_every_version_appends(broker: Broker, version: int) -> None:
    """NET-90, REP-15, REP-24: fields appear from their version on."""
    broker.produce("alone", batch(b"a"))
    result = broker.produce("alone", batch(b"b", b"c"), version=version)
    assert code_of(result) is ErrorCode.NONE
    assert result.base_offset == 1
    assert result.log_append_time_ms == -1
    assert result.log_start_offset == (0 if version >= 5 else -1)
    assert broker.rig.partition("alone").log.log_end_offset == 3


async def test_log_append_time(broker: Broker, autojump_clock: object) -> None:
    """REP-24."""
    log = broker.rig.partition("alone").log
    log.config = replace(log.config, timestamp_type=TimestampType.LOG_APPEND_TIME)  # type: ignore[misc]
    result = broker.produce("alone", batch(b"a"))
    assert result.log_append_time_ms == broker.rig.world.clock.wall_ms()


@pytest.mark.parametrize("acks", [-2, 2, 32767, -32768])
async def test_acks_that_mean_nothing(broker: Broker, acks: int) -> None:
    """REP-14, NET-92."""
    result = broker.produce("alone", batch(), acks=acks)
    assert code_of(result) is ErrorCode.INVALID_REQUIRED_ACKS
    assert (result.base_offset, result.log_append_time_ms, result.log_start_offset) == (-1, -1, -1)
    assert broker.rig.partition("alone").log.log_end_offset == 0


async def test_alone_in_the_isr_all_is_one(broker: Broker) -> None:
    """REP-25."""
    assert code_of(broker.produce("alone", batch(), acks=-1)) is ErrorCode.NONE


async def test_acks_0_is_not_answered(broker: Broker) -> None:
    """REP-17, NET-92."""
    asked = broker.begin_produce({("alone", 0): batch()}, acks=0)
    assert asked.answer.outcome == "nothing"
    assert broker.rig.partition("alone").log.log_end_offset == 1


@pytest.mark.parametrize(
    "parts",
    [
        {("alone", 0): batch(), ("nobody", 0): batch()},
        {("alone", 0): batch(), ("t", 1): batch()},
        {("alone", 0): batch(), ("alone", 1): b"damaged"},
    ],
)
async def test_acks_0_that_fails_costs_the_connection(broker: Broker, parts: Any) -> None:
    """NET-92: and what could be appended is."""
    asked = broker.begin_produce(parts, acks=0)
    assert asked.answer.outcome == "disconnected"
    assert broker.rig.partition("alone").log.log_end_offset == 1


async def test_partitions_fail_one_by_one(broker: Broker) -> None:
    """NET-91, REP-19: one answer for each, in the order and grouping of the request."""
    asked = broker.begin_produce(
        {
            ("t", 1): batch(),
            ("alone", 1): batch(b"a"),
            ("nobody", 0): batch(),
            ("alone", 2): batch(),
            ("alone", -1): batch(),
            ("elsewhere", 0): batch(),
            ("alone", 0): batch(b"b"),
        }
    )
    assert [
        (each.name, [(one.index, code_of(one).name) for one in each.partition_responses])
        for each in asked.response.responses
    ] == [
        ("t", [(1, "NOT_LEADER_OR_FOLLOWER")]),
        (
            "alone",
            [
                (1, "NONE"),
                (2, "UNKNOWN_TOPIC_OR_PARTITION"),
                (-1, "UNKNOWN_TOPIC_OR_PARTITION"),
                (0, "NONE"),
            ],
        ),
        ("nobody", [(0, "UNKNOWN_TOPIC_OR_PARTITION")]),
        ("elsewhere", [(0, "NOT_LEADER_OR_FOLLOWER")]),
    ]
    assert broker.rig.partition("alone", 0).log.log_end_offset == 1
    assert broker.rig.partition("alone", 1).log.log_end_offset == 1


async def test_by_topic_id(broker: Broker) -> None:
    """NET-90: version 13 knows topics by id."""
    ids = {**broker.ids(), "nobody": UNKNOWN_ID}
    asked = broker.begin_produce(
        {("nobody", 0): batch(), ("alone", 0): batch(), ("alone", 7): batch()}, version=13, ids=ids
    )
    unknown, known = asked.response.responses
    assert (unknown.topic_id, unknown.name) == (UNKNOWN_ID, "")
    assert [code_of(each) for each in unknown.partition_responses] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert known.topic_id == ids["alone"]
    assert [code_of(each) for each in known.partition_responses] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


@pytest.mark.parametrize("version", [9, 13])
async def test_a_leader_to_be_takes_what_comes_before_its_log(broker: Broker, version: int) -> None:
    """Another broker's metadata, or its own, may have told clients of it already."""
    rig = broker.rig
    rig.metadata.write(*topic("new", 1, 2, replicas=(1, 2)))
    assert rig.error("new") is ErrorCode.NOT_LEADER_OR_FOLLOWER
    lost = broker.begin_produce({("new", 0): batch(b"a")}, acks=0, version=version)
    first = broker.begin_produce({("new", 0): batch(b"b")}, acks=1, version=version)
    other = broker.begin_produce({("new", 1): batch(b"c")}, acks=1, version=version)
    assert (lost.answer.outcome, first.answer.outcome) == ("", "")
    assert lost.answer.keeps_order
    assert first.answer.keeps_order
    # The other broker leads this one, and nothing changes that.
    assert code_of(only_result(other)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await rig.settle()
    # The role is there; what waited for it goes on in turns of its own.
    for _ in range(1_000):
        if first.is_answered:
            break
        await trio.sleep(0.001)
    assert lost.answer.outcome == "nothing"
    assert only_result(first).base_offset == 1
    part = rig.partition("new").log.read(0, 1 << 20, Isolation.LOG_END).records
    assert part is not None
    data = part.file.pread(part.length, part.position)
    assert values(PartitionData(records=data)) == [b"a", b"b"]


async def test_a_leader_whose_log_can_not_be_made_says_so(broker: Broker) -> None:
    rig = broker.rig
    rig.metadata.write(*topic("new", 1, replicas=(1,)))
    asked = broker.begin_produce({("new", 0): batch(b"a")}, acks=1)
    rig.disk.inject(WriteError(paths="*/new-0/*"))
    await rig.settle()
    assert code_of(only_result(asked)) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("version", [9, 10, 13])
@pytest.mark.parametrize("name", ["elsewhere", "t"])
async def test_who_leads_instead(broker: Broker, version: int, name: str) -> None:
    """KIP-951: of a partition that is elsewhere, and of one that is followed here."""
    index = 1 if name == "t" else 0
    asked = broker.begin_produce({(name, index): batch()}, version=version)
    result = only_result(asked)
    assert code_of(result) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = result.current_leader
    endpoints = [(each.node_id, each.host, each.port) for each in asked.response.node_endpoints]
    if version < 10:
        assert (leader.leader_id, leader.leader_epoch, endpoints) == (-1, -1, [])
    else:
        assert (leader.leader_id, leader.leader_epoch) == (2, 0)
        assert endpoints == [(2, "b2", 9092)]


def with_bytes(data: bytes, position: int, new: bytes) -> bytes:
    return data[:position] + new + data[position + len(new) :]


GOOD = batch(b"some value")
BAD_BATCHES = {
    "null": (None, ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "a header cut short": (GOOD[:40], ErrorCode.INVALID_RECORD),
    "a batch cut short": (GOOD[:-1], ErrorCode.INVALID_RECORD),
    "two batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "a flipped bit": (with_bytes(GOOD, 70, b"\xff"), ErrorCode.CORRUPT_MESSAGE),
    "magic 3": (with_bytes(GOOD, 16, b"\x03"), ErrorCode.CORRUPT_MESSAGE),
    "magic 1": (with_bytes(GOOD, 16, b"\x01"), ErrorCode.INVALID_RECORD),
    "a length below a header's": (
        with_bytes(GOOD, 8, (10).to_bytes(4)),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "a base offset": (with_bytes(GOOD, 0, (5).to_bytes(8)), ErrorCode.INVALID_RECORD),
    "a control batch": (batch(is_control=True), ErrorCode.INVALID_RECORD),
    "a producer without sequence": (
        batch(producer_id=7, producer_epoch=0),
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("what", BAD_BATCHES)
@pytest.mark.parametrize("version", [3, 13])
async def test_bad_batches(broker: Broker, what: str, version: int) -> None:
    """Issue 6, bad input: for that partition alone, with a message from version 8 on."""
    records, code = BAD_BATCHES[what]
    parts: dict[tuple[str, int], bytes | None] = {("alone", 0): records, ("alone", 1): GOOD}
    asked = broker.begin_produce(parts, version=version)
    [answered] = asked.response.responses
    bad, good = answered.partition_responses
    assert code_of(bad) is code
    assert bad.base_offset == -1
    assert bool(bad.error_message) == (version >= 8)
    assert broker.rig.partition("alone", 0).log.log_end_offset == 0
    assert code_of(good) is ErrorCode.NONE


async def test_the_largest_batch_and_one_byte_more(broker: Broker) -> None:
    partition_log = broker.rig.partition("alone").log
    limit = len(batch(b"x" * 100))
    partition_log.config = replace(partition_log.config, max_message_bytes=limit)  # type: ignore[misc]
    assert code_of(broker.produce("alone", batch(b"x" * 100))) is ErrorCode.NONE
    assert code_of(broker.produce("alone", batch(b"x" * 101))) is ErrorCode.MESSAGE_TOO_LARGE


async def test_zstd_before_version_7(broker: Broker) -> None:
    records = batch(b"x" * 100, codec=Codec.ZSTD)
    result = broker.produce("alone", records, version=6)
    assert code_of(result) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert code_of(broker.produce("alone", records, version=7)) is ErrorCode.NONE


async def test_records_without_keys_in_a_compacted_topic(broker: Broker) -> None:
    """Which records are wrong is told from version 8 on."""
    log = broker.rig.partition("alone").log
    log.config = replace(log.config, is_compacted=True)  # type: ignore[misc]
    result = broker.produce("alone", batch(b"a", b"b"))
    assert code_of(result) is ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in result.record_errors] == [0, 1]
    assert all(each.batch_index_error_message for each in result.record_errors)
    assert broker.produce("alone", batch(b"a", b"b"), version=7).record_errors == []
    assert code_of(broker.produce("alone", batch(b"a", key=b"k"))) is ErrorCode.NONE


async def test_a_repeated_batch_is_answered_as_the_first(broker: Broker) -> None:
    first = batch(b"a", producer_id=9, producer_epoch=0, base_sequence=0)
    second = batch(b"b", producer_id=9, producer_epoch=0, base_sequence=1)
    assert [broker.produce("alone", each).base_offset for each in (first, second, first)] == [
        0,
        1,
        0,
    ]
    gap = batch(b"c", producer_id=9, producer_epoch=0, base_sequence=5)
    assert code_of(broker.produce("alone", gap)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = batch(b"c", producer_id=9, producer_epoch=-1, base_sequence=2)
    assert code_of(broker.produce("alone", old)) is not ErrorCode.NONE
    assert broker.count("MessagesInPerSec", "alone") == 2


async def test_internal_topics_are_not_for_clients(broker: Broker) -> None:
    """REP-18, GRP-74: but for the admin client of Kafka's tools."""
    await broker.rig.apply(*topic("__consumer_offsets", 1, replicas=(1,)))
    result = broker.produce("__consumer_offsets", batch())
    assert code_of(result) is ErrorCode.INVALID_TOPIC_EXCEPTION
    result = broker.produce("__consumer_offsets", batch(), client_id="__admin_client")
    assert code_of(result) is ErrorCode.NONE


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_a_transactional_batch_without_the_id(broker: Broker, acks: int) -> None:
    """NET 17.5: the whole request is refused, and nothing is appended."""
    records = batch(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    asked = broker.begin_produce({("alone", 1): batch(), ("alone", 0): records}, acks=acks)
    if acks == 0:
        assert asked.answer.outcome == "disconnected"
    else:
        [answered] = asked.response.responses
        assert [code_of(each) for each in answered.partition_responses] == [
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        ] * 2
    assert broker.rig.partition("alone", 1).log.log_end_offset == 0


async def test_under_min_isr_nothing_is_written(broker: Broker) -> None:
    """REP-21, REP-23."""
    partition = broker.rig.partition("t")
    partition.min_insync_replicas = 3
    broker.rig.metadata.change("t", 0, isr=(1, 2))
    await broker.rig.settle()
    assert code_of(broker.produce("t", batch(), acks=-1)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0
    assert broker.count("FailedProduceRequestsPerSec", "t") == 1
    assert code_of(broker.produce("t", batch(), acks=1)) is ErrorCode.NONE
    assert broker.begin_produce({("t", 0): batch()}, acks=0).answer.outcome == "nothing"
    assert partition.log.log_end_offset == 2


def follow(broker: Broker, offset: int, *follower_ids: int) -> None:
    for follower_id in follower_ids:
        broker.begin_fetch({("t", 0): followed(offset)}, replica_id=follower_id)


async def test_all_waits_for_everybody_in_sync(broker: Broker) -> None:
    """REP-16, PUR-49: until the high watermark is behind the last record."""
    asked = broker.begin_produce({("t", 0): batch(b"a", b"b")}, acks=-1)
    assert not asked.answer.outcome
    follow(broker, 2, 2)
    follow(broker, 1, 3)
    assert not asked.answer.outcome
    follow(broker, 2, 3)
    assert code_of(only_result(asked)) is ErrorCode.NONE
    assert only_result(asked).base_offset == 0


async def test_a_stalled_follower_lets_it_time_out(broker: Broker, autojump_clock: object) -> None:
    """REP-26, PUR-50: only what is still pending is timed out; the other outcomes stay."""
    follow(broker, 0, 2, 3)
    parts = {("t", 0): batch(), ("alone", 0): batch(), ("t", 1): batch()}
    asked = broker.begin_produce(parts, acks=-1, timeout_ms=700)
    await trio.sleep(0.69)
    assert not asked.answer.outcome
    await trio.sleep(0.05)
    first, second = asked.response.responses
    codes = [code_of(each) for each in (*first.partition_responses, *second.partition_responses)]
    assert codes == [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
    ]
    tags = (("topic", "t"), ("partition", "0"))
    name = MetricName("kafka.server", "DelayedProducerMetrics", "ExpiresPerSec", tags)
    assert broker.meter(name) == 1


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
async def test_who_waits_for_nothing_is_timed_out(
    broker: Broker, autojump_clock: object, timeout_ms: int
) -> None:
    asked = broker.begin_produce({("t", 0): batch()}, acks=-1, timeout_ms=timeout_ms)
    await trio.sleep(0.01)
    assert code_of(only_result(asked)) is ErrorCode.REQUEST_TIMED_OUT


async def test_partial_failure_waits_and_total_failure_does_not(broker: Broker) -> None:
    """REP-20."""
    waits = broker.begin_produce({("t", 0): batch(), ("nobody", 0): batch()}, acks=-1)
    assert not waits.answer.outcome
    fails = broker.begin_produce({("t", 1): batch(), ("nobody", 0): batch()}, acks=-1)
    assert fails.is_answered


async def test_the_isr_shrinks_below_the_minimum(broker: Broker) -> None:
    """REP-22, PUR-51."""
    partition = broker.rig.partition("t")
    partition.min_insync_replicas = 2
    asked = broker.begin_produce({("t", 0): batch()}, acks=-1)
    follow(broker, 1, 2)
    # What is committed stays so, with fewer replicas than were asked for.
    partition.log.increment_high_watermark(partition.log.log_end)
    broker.rig.metadata.change("t", 0, isr=(1,))
    await broker.rig.settle()
    broker.rig.replicas.produce_purgatory.check_and_complete(("t", 0))
    assert code_of(only_result(asked)) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


async def test_a_leader_that_follows_answers_at_once(broker: Broker) -> None:
    """PUR-52: with who leads now."""
    asked = broker.begin_produce({("t", 0): batch()}, acks=-1)
    broker.rig.metadata.change("t", 0, leader=3)
    await broker.rig.settle()
    result = only_result(asked)
    assert code_of(result) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (3, 1)


async def test_what_is_decided_stays_so(broker: Broker, autojump_clock: object) -> None:
    """PUR-50: a partition that was committed is not lost with its leadership."""
    await broker.rig.apply(*topic("u", 1))
    asked = broker.begin_produce({("t", 0): batch(), ("u", 0): batch()}, acks=-1, timeout_ms=500)
    follow(broker, 1, 2, 3)
    broker.rig.metadata.change("t", 0, leader=3)
    await broker.rig.settle()
    await trio.sleep(0.6)
    codes = [code_of(each.partition_responses[0]) for each in asked.response.responses]
    assert codes == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    name = MetricName("kafka.server", "DelayedProducerMetrics", "ExpiresPerSec", ())
    assert broker.meter(name) == 1


async def test_a_fenced_leader_is_not_recommended(broker: Broker) -> None:
    """KIP-951: nobody can reach it."""
    await broker.rig.apply(BrokerRegistrationChangeRecord(2, 102, fenced=1))
    asked = broker.begin_produce({("elsewhere", 0): batch()})
    assert only_result(asked).current_leader.leader_id == 2
    assert asked.response.node_endpoints == []


async def test_a_deleted_topic_answers_at_once(broker: Broker) -> None:
    """Also if another has its name by then."""
    asked = broker.begin_produce({("t", 0): batch()}, acks=-1)
    broker.rig.metadata.remove("t")
    await broker.rig.apply(*topic("t", 1, generation=1))
    assert code_of(only_result(asked)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("acks", [1, -1])
async def test_what_must_be_flushed_is_answered_then(
    broker: Broker, autojump_clock: object, acks: int
) -> None:
    """Decision 8: with flush.messages=1 nobody hears of a record that is not on the disk."""
    log = broker.rig.partition("alone").log
    log.config = replace(log.config, flush_messages=1)  # type: ignore[misc]
    asked = broker.begin_produce({("alone", 0): batch()}, acks=acks)
    again = broker.begin_produce({("alone", 0): batch()}, acks=acks)
    assert not asked.answer.outcome
    assert log.recovery_point == 0
    await trio.sleep(0.01)
    assert log.recovery_point == 2
    assert [code_of(only_result(each)) for each in (asked, again)] == [ErrorCode.NONE] * 2


async def test_what_is_counted(broker: Broker) -> None:
    """Of topics that there are; what clients make up leaves no meters behind."""
    broker.produce("alone", GOOD)
    broker.produce("alone", batch(b"a", b"b"), index=1)
    broker.produce("nobody", GOOD)
    for each in ("alone", None):
        assert broker.count("MessagesInPerSec", each) == 3
        assert broker.count("BytesInPerSec", each) == len(GOOD) + len(batch(b"a", b"b"))
        assert broker.count("TotalProduceRequestsPerSec", each) == 2
    assert not any("nobody" in name.jmx for name, _ in broker.rig.registry)


async def test_a_request_without_partitions(broker: Broker) -> None:
    assert broker.ask(ProduceRequest(acks=-1), 9).responses == []


async def test_version_0_is_listed(broker: Broker) -> None:
    """librdkafka tells by it whether a broker is of this century; Kafka lists 0 to 13."""
    answer = broker.ask(ApiVersionsRequest(), 0)
    [produce] = [each for each in answer.api_keys if each.api_key == 0]
    assert (produce.min_version, produce.max_version) == (0, 13)
