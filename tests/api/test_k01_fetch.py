"""Fetch against real replicas: what is read, for whom, and when it is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from api.data_rig import (
    Broker,
    broker_on,
    followed,
    only_data,
    told,
    values,
    wanted,
)
from broker.replica_rig import Rig, topic

from kraftpy.api.data_handlers import DataSettings
from kraftpy.broker.replica_selector import RACK_AWARE_SELECTOR
from kraftpy.metadata.records import BrokerRegistrationChangeRecord, Endpoint, RegisterBrokerRecord
from kraftpy.observe.metrics import Histogram, MetricName
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k01_fetch import FetchPartition, FetchRequest, PartitionData
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import EndTransactionMarker, build_end_transaction
from kraftpy.records.validation import AppendOrigin

NOW_MS = 1_767_225_600_000


def batch(*record_values: bytes, **fields: Any) -> bytes:
    builder = BatchBuilder(**fields)
    for value in record_values or (b"v",):
        builder.append(None, value, timestamp_ms=NOW_MS)
    return bytes(builder.build())


@pytest.fixture
async def broker(autojump_clock: object) -> AsyncIterator[Broker]:
    """Topic t: broker 1 leads partition 0 with 2 and 3, and follows 2 in partition 1; `alone` has
    three partitions on broker 1 only; `elsewhere` is on 2 and 3.
    """
    rig = Rig()
    async with broker_on(rig) as broker:
        await rig.apply(
            *topic("t", 1, 2),
            *topic("alone", 1, 1, 1, replicas=(1,)),
            *topic("elsewhere", 2, replicas=(2, 3)),
        )
        yield broker


def code_of(data: PartitionData) -> ErrorCode:
    return ErrorCode(data.error_code)


def append(broker: Broker, name: str, *record_values: bytes, index: int = 0) -> int:
    """Append one batch as a producer does; its size."""
    records = batch(*record_values)
    assert broker.produce(name, records, index).error_code == ErrorCode.NONE
    return len(records)


# What is read.


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_reads(broker: Broker, version: int) -> None:
    """NET-93, REP-36: as slices of files."""
    append(broker, "alone", b"a", b"b")
    asked = broker.begin_fetch({("alone", 0): 1}, version=version)
    assert asked.answer.slice_count == 1
    data = only_data(asked)
    assert code_of(data) is ErrorCode.NONE
    assert values(data) == [b"a", b"b"]
    assert (data.high_watermark, data.last_stable_offset) == (2, 2)
    assert data.log_start_offset == (0 if version >= 5 else -1)
    assert data.aborted_transactions is None
    [answered] = asked.response.responses
    assert answered.topic == ("alone" if version < 13 else "")
    assert asked.response.session_id == 0


@pytest.mark.parametrize("version", [12, 13])
async def test_errors_of_single_partitions(broker: Broker, version: int) -> None:
    """NET-94: beside the good ones, with nothing known of their offsets."""
    append(broker, "alone", b"a")
    parts: dict[tuple[str, int], int | FetchPartition] = {
        ("nobody", 0): 0,
        ("alone", 0): 0,
        ("alone", 3): 0,
        ("alone", -1): 0,
        ("elsewhere", 0): 0,
        ("alone", 1): 1,
    }
    asked = broker.begin_fetch(parts, version=version, max_wait_ms=10_000)
    codes = [
        (data.partition_index, code_of(data).name)
        for each in asked.response.responses
        for data in each.partitions
    ]
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert codes == [
        (0, unknown if version < 13 else "UNKNOWN_TOPIC_ID"),
        (0, "NONE"),
        (3, unknown),
        (-1, unknown),
        (1, "OFFSET_OUT_OF_RANGE"),
        (0, "NOT_LEADER_OR_FOLLOWER"),
    ]
    failed = asked.response.responses[0].partitions[0]
    assert (failed.high_watermark, failed.last_stable_offset, failed.log_start_offset) == (-1,) * 3
    assert (failed.records, failed.aborted_transactions) == (b"", None)


async def test_offsets_in_and_out_of_range(broker: Broker) -> None:
    """REP-34."""
    append(broker, "alone", b"a", b"b", b"c")
    broker.rig.partition("alone").raise_log_start(2)
    out = ErrorCode.OFFSET_OUT_OF_RANGE
    found = [broker.fetch("alone", offset) for offset in (-1, 1, 2, 3, 4, 2**63 - 1)]
    assert [code_of(each) for each in found] == [out, out, ErrorCode.NONE, ErrorCode.NONE, out, out]
    assert values(found[2]) == [b"a", b"b", b"c"]
    assert found[3].records == b""


@pytest.mark.parametrize("version", [8, 9])
async def test_leader_epochs(broker: Broker, version: int) -> None:
    """REP-37."""
    broker.rig.metadata.change("alone", 0, leader=1)
    await broker.rig.settle()
    found = [
        broker.fetch("alone", wanted(0, current_leader_epoch=epoch), version=version)
        for epoch in (-1, 0, 1, 2)
    ]
    fenced, unknown = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
    expected = [ErrorCode.NONE, fenced, ErrorCode.NONE, unknown]
    assert [code_of(each) for each in found] == (expected if version >= 9 else [ErrorCode.NONE] * 4)


async def test_consumers_see_what_is_committed(broker: Broker) -> None:
    """REP-4, REP-6: followers see everything."""
    append(broker, "t", b"a")
    append(broker, "t", b"b")
    assert broker.fetch("t", 0).records == b""
    assert values(broker.fetch("t", 0, replica_id=2)) == [b"a", b"b"]
    broker.fetch("t", followed(1), replica_id=2)
    broker.fetch("t", followed(2), replica_id=3)
    found = broker.fetch("t", 0)
    assert (values(found), found.high_watermark) == ([b"a"], 1)


async def test_read_committed(broker: Broker) -> None:
    """REP-5, PUR-54: up to the last stable offset, with what was aborted; woken by its growth.

    TXN-29, TXN-30, TXN-32, TXN-33.
    """
    partition = broker.rig.partition("alone")
    partition.log.producers._verify_transactions = False  # type: ignore[attr-defined]
    records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert broker.produce("alone", records, transactional_id="x").error_code == ErrorCode.NONE
    found = broker.fetch("alone", 0, isolation_level=1)
    assert (found.records, found.last_stable_offset, found.high_watermark) == (b"", 0, 1)
    assert found.aborted_transactions == []
    waiting = broker.begin_fetch({("alone", 0): 0}, isolation_level=1)
    append(broker, "alone", b"plain")
    assert not waiting.is_answered
    marker = build_end_transaction(
        EndTransactionMarker(is_commit=False, coordinator_epoch=0),
        producer_id=7,
        producer_epoch=0,
        timestamp_ms=NOW_MS,
    )
    partition.append(
        marker,
        required_acks=-1,
        now_ms=0,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=1,
    )
    data = only_data(waiting)
    assert data.last_stable_offset == 3
    assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()] == [
        (7, 0)
    ]
    assert broker.fetch("alone", 0, isolation_level=0).aborted_transactions is None


# Limits.


async def test_the_budget_is_shared_in_order(broker: Broker) -> None:
    """NET-95, REP-32: the first may exceed it by one batch, the others get what is left, if a batch
    fits into that.
    """
    sizes = [append(broker, "alone", b"x" * 500, index=index) for index in range(3)]
    parts: dict[tuple[str, int], int | FetchPartition] = {
        ("alone", index): 0 for index in (2, 0, 1)
    }
    for max_bytes, lengths in (
        (sizes[2] + sizes[0] + 10, [sizes[2], sizes[0], 0]),
        (sizes[2] + sizes[0] - 1, [sizes[2], 0, 0]),
        (1, [sizes[2], 0, 0]),
    ):
        asked = broker.begin_fetch(parts, max_bytes=max_bytes)
        got = [len(data.records or b"") for data in told(asked.response).values()]
        assert got == lengths


@pytest.mark.parametrize("limit", [0, -1, -(2**31), 1])
async def test_limits_that_leave_nothing(broker: Broker, limit: int) -> None:
    """NET-95: one batch is given all the same."""
    size = append(broker, "alone", b"x" * 500)
    append(broker, "alone", b"y")
    for terms in ({"max_bytes": limit}, {}):
        asked = broker.begin_fetch(
            {("alone", 0): wanted(0, partition_max_bytes=limit)}, max_wait_ms=0, **terms
        )
        assert len(only_data(asked).records or b"") == size


async def test_the_brokers_own_limit(autojump_clock: object) -> None:
    """fetch.max.bytes."""
    rig = Rig()
    async with broker_on(rig, settings=DataSettings(fetch_max_bytes=1024)) as broker:
        await rig.apply(*topic("alone", 1, replicas=(1,)))
        sizes = [append(broker, "alone", b"x" * 400) for _ in range(5)]
        data = broker.fetch("alone", 0, max_bytes=1 << 30)
        assert len(data.records or b"") == 1024 < sum(sizes)


# When it is answered.


async def test_what_is_answered_at_once(broker: Broker) -> None:
    """REP-29: no time to wait, nothing wanted, enough found, an error."""
    append(broker, "alone", b"a")
    parts: dict[tuple[str, int], int | FetchPartition] = {("alone", 0): 1}
    assert broker.begin_fetch(parts, max_wait_ms=0).is_answered
    assert broker.begin_fetch(parts, max_wait_ms=-5).is_answered
    assert broker.begin_fetch({}).is_answered
    assert broker.begin_fetch({("alone", 0): 0}).is_answered
    assert broker.begin_fetch(parts, min_bytes=0).is_answered
    assert broker.begin_fetch({**parts, ("nobody", 0): 0}).is_answered
    assert not broker.begin_fetch(parts).is_answered


async def test_nothing_to_read_waits_until_time_is_over(
    broker: Broker, autojump_clock: object
) -> None:
    """REP-30, REP-31, PUR-55, NET-94."""
    asked = broker.begin_fetch({("alone", 0): 0}, max_wait_ms=300)
    await trio.sleep(0.29)
    assert not asked.is_answered
    await trio.sleep(0.02)
    assert only_data(asked).records == b""
    tags = (("fetcherType", "consumer"),)
    name = MetricName("kafka.server", "DelayedFetchMetrics", "ExpiresPerSec", tags)
    assert broker.meter(name) == 1


async def test_min_bytes_are_waited_for_in_all_partitions(
    broker: Broker, autojump_clock: object
) -> None:
    """PUR-53: and when the time is over, there is what there is."""
    size = len(batch(b"x" * 100))
    parts: dict[tuple[str, int], int | FetchPartition] = {("alone", 0): 0, ("alone", 1): 0}
    asked = broker.begin_fetch(parts, min_bytes=2 * size)
    late = broker.begin_fetch(parts, min_bytes=2 * size + 1)
    append(broker, "alone", b"x" * 100)
    assert not asked.is_answered
    append(broker, "alone", b"y" * 100, index=1)
    assert [values(data) for data in told(asked.response).values()] == [[b"x" * 100], [b"y" * 100]]
    assert not late.is_answered
    await trio.sleep(0.6)
    assert [values(data) for data in told(late.response).values()] == [[b"x" * 100], [b"y" * 100]]


async def test_limits_and_minimums(broker: Broker) -> None:
    """No more is waited for than may be given, and what may not be given does not count."""
    large = broker.begin_fetch({("alone", 0): 0}, min_bytes=1 << 20, max_bytes=10)
    small = broker.begin_fetch({("alone", 0): wanted(0, partition_max_bytes=10)}, min_bytes=50)
    append(broker, "alone", b"x" * 100)
    assert large.is_answered
    assert not small.is_answered


async def test_a_second_read_tells_nothing_of_a_follower(
    broker: Broker, autojump_clock: object
) -> None:
    """REP-35: it has fetched when it asked, not when it was answered."""
    begin_ms = broker.rig.world.clock.monotonic_ms()
    waiting = broker.begin_fetch({("t", 0): followed(0)}, replica_id=2)
    await trio.sleep(0.3)
    append(broker, "t", b"a")
    assert waiting.is_answered
    append(broker, "t", b"b")
    await trio.sleep(0.1)
    broker.fetch("t", followed(1), replica_id=2)
    follower = broker.rig.partition("t").follower(2)
    assert follower is not None
    assert follower.last_caught_up_ms == begin_ms


async def test_divergence_ends_a_wait(broker: Broker) -> None:
    """PUR 10.2: a consumer of a follower whose log becomes another."""
    partition = broker.rig.partition("t", 1)
    log: Any = partition.log
    partition.append_replicated(
        bytearray(batch(b"a", leader_epoch=0)),
        leader_epoch=0,
        fetch_offset=0,
        leader_high_watermark=0,
        leader_log_start=0,
    )
    partition.append_replicated(
        bytearray(batch(b"b", base_offset=1, leader_epoch=0)),
        leader_epoch=0,
        fetch_offset=1,
        leader_high_watermark=2,
        leader_log_start=0,
    )
    asked = broker.begin_fetch({("t", 1): wanted(2, last_fetched_epoch=0)})
    assert not asked.is_answered
    await log.truncate_to(1)
    log.append_as_follower(bytearray(batch(b"x", b"y", base_offset=1, leader_epoch=1)), 1)
    broker.rig.replicas.fetch_purgatory.check_and_complete(("t", 1))
    data = only_data(asked)
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)


async def test_a_consumer_waits_for_commits_a_follower_for_appends(broker: Broker) -> None:
    """PUR-53, PUR-54, REP-46."""
    broker.fetch("t", 0, replica_id=3)
    consumer = broker.begin_fetch({("t", 0): 0})
    follower = broker.begin_fetch({("t", 0): followed(0)}, replica_id=2)
    append(broker, "t", b"a")
    assert values(only_data(follower)) == [b"a"]
    assert not consumer.is_answered
    for follower_id in (2, 3):
        broker.begin_fetch({("t", 0): followed(1)}, replica_id=follower_id)
    assert values(only_data(consumer)) == [b"a"]


@pytest.mark.parametrize("is_session", [False, True])
async def test_what_ends_a_wait(broker: Broker, *, is_session: bool) -> None:
    """PUR-56: another leader, another epoch, a deleted topic."""
    epoch = 0 if is_session else -1
    moved = broker.begin_fetch({("t", 0): 0}, session_epoch=epoch, version=10)
    broker.rig.metadata.change("t", 0, leader=3)
    await broker.rig.settle()
    assert code_of(only_data(moved)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    deleted = broker.begin_fetch({("alone", 0): 0}, session_epoch=epoch)
    broker.rig.metadata.remove("alone")
    await broker.rig.settle()
    assert code_of(only_data(deleted)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_truncation_and_rolling_end_a_wait(broker: Broker) -> None:
    """PUR-56."""
    append(broker, "alone", b"a")
    partition = broker.rig.partition("alone")
    log: Any = partition.log
    rolled = broker.begin_fetch({("alone", 0): 1}, min_bytes=1 << 19)
    log.roll()
    append(broker, "alone", b"b")
    assert values(only_data(rolled)) == [b"b"]
    truncated = broker.begin_fetch({("alone", 0): 2})
    await log.truncate_to(1)
    broker.rig.replicas.fetch_purgatory.check_and_complete(("alone", 0))
    assert code_of(only_data(truncated)) is ErrorCode.OFFSET_OUT_OF_RANGE


# Followers.


async def test_a_fetch_tells_where_the_follower_is(broker: Broker) -> None:
    """REP-28, REP-35, REP-7: after the read, and the answer has the high watermark from it."""
    append(broker, "t", b"a", b"b")
    broker.fetch("t", followed(1), replica_id=2)
    found = broker.fetch("t", followed(2, log_start_offset=1), replica_id=3)
    assert found.high_watermark == 1
    partition = broker.rig.partition("t")
    two, three = partition.follower(2), partition.follower(3)
    assert two is not None
    assert three is not None
    assert (two.end.offset, three.end.offset) == (1, 2)
    assert (two.log_start_offset, three.log_start_offset) == (0, 1)


@pytest.mark.parametrize(
    ("epoch", "name"), [(-1, "NOT_LEADER_OR_FOLLOWER"), (0, "UNKNOWN_LEADER_EPOCH")]
)
async def test_who_is_no_replica_is_no_follower(broker: Broker, epoch: int, name: str) -> None:
    """REP-38."""
    append(broker, "t", b"a")
    found = broker.fetch("t", followed(1, epoch), replica_id=4)
    assert code_of(found).name == name
    assert broker.rig.partition("t").log.high_watermark == 0


@pytest.mark.parametrize("version", [14, 15])
async def test_a_process_that_was_replaced_does_not_count(broker: Broker, version: int) -> None:
    """From version 15 on a follower says which incarnation it is; brokers have the epochs 102.."""
    append(broker, "t", b"a")
    found = broker.fetch("t", followed(1), replica_id=2, replica_epoch=101, version=version)
    if version < 15:
        assert code_of(found) is ErrorCode.NONE
        return
    assert code_of(found) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    follower = broker.rig.partition("t").follower(2)
    assert follower is not None
    assert follower.end.offset == -1
    found = broker.fetch("t", followed(1), replica_id=2, replica_epoch=102, version=version)
    assert code_of(found) is ErrorCode.NONE
    assert (follower.end.offset, follower.broker_epoch) == (1, 102)


async def test_followers_are_served_by_leaders_only(broker: Broker) -> None:
    for version in (10, 12):
        found = broker.fetch("t", followed(0), 1, replica_id=3, version=version)
        assert code_of(found) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [11, 12])
async def test_divergence(broker: Broker, version: int) -> None:
    """From version 12 on; such a fetch tells nothing about the follower, and does not wait."""
    append(broker, "t", b"a", b"b")
    broker.rig.metadata.change("t", 0, leader=1)
    await broker.rig.settle()
    append(broker, "t", b"c")
    wrong = followed(3, last_fetched_epoch=0)
    if version < 12:
        wrong = followed(3)
    asked = broker.begin_fetch({("t", 0): wrong}, replica_id=2, version=version)
    if version < 12:
        assert not asked.is_answered
        return
    data = only_data(asked)
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    assert (code_of(data), data.records) == (ErrorCode.NONE, b"")
    follower = broker.rig.partition("t").follower(2)
    assert follower is not None
    assert follower.end.offset == -1
    unknown = broker.fetch("t", followed(3, last_fetched_epoch=9), replica_id=2)
    assert code_of(unknown) is ErrorCode.OFFSET_OUT_OF_RANGE
    right = broker.fetch("t", followed(3, last_fetched_epoch=1), replica_id=2)
    assert (code_of(right), right.diverging_epoch.epoch) == (ErrorCode.NONE, -1)


# Near and far.


@pytest.mark.parametrize("version", [10, 11, 16])
async def test_consumers_may_read_from_followers(broker: Broker, version: int) -> None:
    """REP-39: from version 11 on, up to the follower's high watermark."""
    partition = broker.rig.partition("t", 1)
    stored = bytearray(batch(b"a"))
    partition.append_replicated(
        stored, leader_epoch=0, fetch_offset=0, leader_high_watermark=0, leader_log_start=0
    )
    asked = broker.begin_fetch({("t", 1): 0}, version=version)
    if version < 11:
        assert code_of(only_data(asked)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return
    assert not asked.is_answered
    partition.follow_watermarks(0, 1, 0)
    assert values(only_data(asked)) == [b"a"]


@pytest.mark.parametrize("version", [15, 16, 18])
async def test_who_leads_instead(broker: Broker, version: int) -> None:
    """KIP-951: from version 16 on, for the wrong broker and the wrong epoch."""
    broker.rig.metadata.change("alone", 0, leader=1)
    await broker.rig.settle()
    parts: dict[tuple[str, int], int | FetchPartition] = {
        ("elsewhere", 0): 0,
        ("alone", 0): wanted(0, current_leader_epoch=0),
    }
    response = broker.begin_fetch(parts, version=version).response
    leaders = [
        (data.current_leader.leader_id, data.current_leader.leader_epoch)
        for each in response.responses
        for data in each.partitions
    ]
    endpoints = [(each.node_id, each.host, each.port) for each in response.node_endpoints]
    if version < 16:
        assert (leaders, endpoints) == ([(-1, -1)] * 2, [])
    else:
        assert leaders == [(2, 0), (1, 1)]
        assert endpoints == [(2, "b2", 9092), (1, "b1", 9092)]


def in_racks(*racks: str) -> list[RegisterBrokerRecord]:
    return [
        RegisterBrokerRecord(
            number,
            Uuid(bytes(15) + bytes([number])),
            100 + number,
            (Endpoint("PLAINTEXT", f"b{number}", 9092, 0),),
            rack=rack,
            fenced=False,
        )
        for number, rack in enumerate(racks, 1)
    ]


async def test_the_replica_in_the_consumers_rack(autojump_clock: object) -> None:
    """KIP-392: one that is in sync, alive, and has the offset; told once, and without a wait."""
    rig = Rig()
    settings = DataSettings(selector_class=RACK_AWARE_SELECTOR)
    async with broker_on(rig, settings=settings) as broker:
        await rig.apply(*in_racks("x", "y", "y"), *topic("t", 1))
        append(broker, "t", b"a", b"b")
        broker.fetch("t", followed(1), replica_id=2)
        broker.fetch("t", followed(2), replica_id=3)

        def preferred(offset: int, rack_id: str) -> int:
            found = broker.fetch("t", offset, rack_id=rack_id, max_wait_ms=10_000, min_bytes=0)
            return found.preferred_read_replica

        assert preferred(0, "y") == 3
        assert preferred(0, "x") == -1
        assert preferred(0, "z") == -1
        assert preferred(0, "") == -1
        rig.metadata.change("t", 0, isr=(1, 2))
        await rig.settle()
        assert preferred(1, "y") == 2
        assert preferred(2, "y") == -1
        waits_not = broker.begin_fetch({("t", 0): 1}, rack_id="y", max_wait_ms=10_000)
        assert only_data(waits_not).records == b""
        await rig.apply(BrokerRegistrationChangeRecord(2, 102, fenced=1))
        assert preferred(1, "y") == -1


async def test_without_a_selector_everybody_reads_here(broker: Broker) -> None:
    broker.rig.metadata.write(*in_racks("x", "y", "y"))
    append(broker, "alone", b"a")
    assert broker.fetch("alone", 0, rack_id="y").preferred_read_replica == -1


# Files.


async def test_cold_data_is_warmed_first(
    broker: Broker, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 1: the loop does not wait for the medium."""
    append(broker, "alone", b"a")
    log: Any = broker.rig.partition("alone").log
    file = log.active_segment.log_file
    warmed = []

    class Cold(type(file)):  # type: ignore[misc]
        __slots__ = ()

        def resident(self, position: int, length: int) -> bool:
            return bool(warmed)

        async def warm(self, position: int, length: int) -> None:
            await trio.sleep(0.1)
            warmed.append((position, length))

    monkeypatch.setattr(file, "__class__", Cold)
    asked = broker.begin_fetch({("alone", 0): 0})
    assert not asked.is_answered
    await trio.sleep(0.2)
    assert warmed == [(0, len(batch(b"a")))]
    assert values(only_data(asked)) == [b"a"]
    assert broker.begin_fetch({("alone", 0): 0}).is_answered


async def test_what_is_counted(broker: Broker) -> None:
    """Of topics that there are."""
    size = append(broker, "t", b"a")
    broker.fetch("t", 0, replica_id=2)
    assert broker.count("ReplicationBytesOutPerSec") == size
    assert broker.count("BytesOutPerSec") == 0
    size = append(broker, "alone", b"abc")
    broker.fetch("alone", 0)
    broker.fetch("nobody", 0)
    assert broker.count("BytesOutPerSec") == broker.count("BytesOutPerSec", "alone") == size
    assert broker.count("TotalFetchRequestsPerSec", "alone") == 1
    assert broker.count("FailedFetchRequestsPerSec") == 0
    assert not any("nobody" in name.jmx for name, _ in broker.rig.registry)


async def test_followers_and_consumers_are_measured_apart(broker: Broker) -> None:
    """NET 15: and together."""
    broker.fetch("t", 0)
    broker.fetch("t", 0, replica_id=2)
    broker.fetch("t", 0, replica_id=2, version=15)

    def times(name: str) -> int:
        metric = MetricName("kafka.network", "RequestMetrics", "TotalTimeMs", (("request", name),))
        found = broker.rig.registry.get(metric)
        return found.count if isinstance(found, Histogram) else 0

    names = ("Fetch", "FetchConsumer", "FetchFollower")
    assert [times(name) for name in names] == [3, 1, 2]


async def test_a_log_that_can_not_be_read(broker: Broker) -> None:
    """REP-10, REP-11: the others are."""
    append(broker, "alone", b"a", index=1)
    log: Any = broker.rig.partition("alone").log
    log.go_offline("a test")
    asked = broker.begin_fetch({("alone", 0): 0, ("alone", 1): 0})
    assert [code_of(data).name for data in told(asked.response).values()] == [
        "KAFKA_STORAGE_ERROR",
        "NONE",
    ]


async def test_a_failure_after_the_wait_is_answered(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who appends is not concerned."""
    asked = broker.begin_fetch({("alone", 0): 0}, version=6)
    log: Any = broker.rig.partition("alone").log

    class Broken(type(log)):  # type: ignore[misc]
        __slots__ = ()

        def read(self, *_: Any, **__: Any) -> Any:
            raise ZeroDivisionError

    monkeypatch.setattr(log, "__class__", Broken)
    append(broker, "alone", b"a")
    assert code_of(only_data(asked)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "a fetch failed after its wait" in caplog.text


async def test_a_request_for_nothing(broker: Broker) -> None:
    assert broker.ask(FetchRequest(max_wait_ms=100), 4).responses == []
