"""The task of a fetcher: what it does to logs is never interrupted, and nobody ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from client.peers import Places, ScriptedConnection, memory_places, scripted_server
from replica_rig import LISTENER, Rig, batch, topic, topic_id

from kraftpy.broker.fetcher import Fetcher
from kraftpy.broker.fetcher_core import FetcherCore
from kraftpy.broker.fetcher_manager import FetcherManager, fetcher_number
from kraftpy.broker.fetcher_steps import FetcherSettings, FindOffsets, UnlimitedTraffic
from kraftpy.broker.partition import Partition
from kraftpy.broker.suspects import SuspectedBrokers
from kraftpy.log.offsets import AppendInfo
from kraftpy.metadata.records import PartitionChangeRecord
from kraftpy.observe.metrics import Gauge, MetricName
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k01_fetch as k01
from kraftpy.protocol.schema import k02_list_offsets as k02


@asynccontextmanager
async def following(*scripts: Any) -> AsyncIterator[tuple[Rig, Places]]:
    """A broker that follows, and a leader that does what the scripts say."""
    rig = Rig()
    rig.metadata.begin(1, 2, 3)
    async with memory_places() as places:
        world = places.world("b1")

        def make_fetchers(rig: Rig) -> FetcherManager:
            return FetcherManager(
                FetcherSettings(broker_id=1),
                1,
                replace(rig.world, network=world.network),
                rig.registry,
                hosted=rig.hosted,
                logs=rig.logs,
                traffic=UnlimitedTraffic(),
                broker_epoch=lambda: 101,
                listener_name=LISTENER,
                suspects=SuspectedBrokers(world.clock),
            )

        leader = scripted_server(places.world("b2"), "b2", *scripts, port=9092)
        async with leader, rig.running(make_fetchers=make_fetchers):
            yield rig, places


def answer(error_code: int = 0, **data: Any) -> k01.FetchResponse:
    partition = k01.PartitionData(
        partition_index=0, error_code=error_code, log_start_offset=0, **data
    )
    return k01.FetchResponse(
        responses=[k01.FetchableTopicResponse(topic_id=topic_id("t"), partitions=[partition])]
    )


def metric(rig: Rig, name: str) -> float:
    tags = (("clientId", "Replica"),)
    gauge = rig.registry.get(MetricName("kafka.server", "ReplicaFetcherManager", name, tags))
    assert isinstance(gauge, Gauge)
    return gauge.read()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_partition_has_one_number(count: int) -> None:
    """REP-52: stable, within range, and spread."""
    numbers = [fetcher_number(("topic", partition), count) for partition in range(100)]
    assert sorted(set(numbers)) == list(range(count))
    assert fetcher_number(("topic", 5), count) == numbers[5]


async def test_whatever_a_leader_answers_the_fetcher_goes_on(autojump_clock: object) -> None:
    """REP-63, REP-68: an error nobody knows, a lost connection, then data's absence."""
    asked: list[float] = []

    async def confused(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        _, version, correlation_id = await connection.read_request()
        await connection.answer(answer(error_code=31_000), version, correlation_id)
        await connection.read_request()

    async def sane(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        while True:
            _, version, correlation_id = await connection.read_request()
            asked.append(trio.current_time())
            await trio.sleep(0.5)
            await connection.answer(answer(high_watermark=0), version, correlation_id)

    async with following(confused, sane) as (rig, _):
        await rig.apply(*topic("t", 2, replicas=(1, 2)))
        await trio.sleep(10)
        assert len(asked) > 10
        assert metric(rig, "FailedPartitionsCount") == 0


async def test_an_answer_that_can_not_be_used_is_one_that_failed(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REP-68: whatever goes wrong with it, the fetcher asks again."""
    taken: list[k01.FetchResponse] = []
    take = FetcherCore.answered_in_pieces

    def fail_first(self: FetcherCore, response: k01.FetchResponse, now_ms: int) -> Iterator[int]:
        taken.append(response)
        if len(taken) == 1:
            raise ZeroDivisionError
        return take(self, response, now_ms)

    async def sane(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        while True:
            _, version, correlation_id = await connection.read_request()
            await trio.sleep(0.5)
            await connection.answer(answer(high_watermark=0), version, correlation_id)

    monkeypatch.setattr(FetcherCore, "answered_in_pieces", fail_first)
    async with following(sane) as (rig, _):
        await rig.apply(*topic("t", 2, replicas=(1, 2)))
        await trio.sleep(5)
        assert len(taken) > 5


async def test_a_fenced_partition_is_counted_until_it_is_added_again(
    autojump_clock: object,
) -> None:
    """REP-55, REP-61, REP-66: then at once, and forgotten when it is taken away."""
    asked: list[float] = []

    async def fences(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        while True:
            _, version, correlation_id = await connection.read_request()
            asked.append(trio.current_time())
            fenced = answer(error_code=ErrorCode.FENCED_LEADER_EPOCH)
            await connection.answer(fenced, version, correlation_id)

    async with following(fences) as (rig, _):
        await rig.apply(*topic("t", 2, replicas=(1, 2)))
        await trio.sleep(5)
        assert metric(rig, "FailedPartitionsCount") == 1
        count = len(asked)
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), leader=2))
        began = trio.current_time()
        await trio.sleep(5)
        assert asked[count] - began < 0.1
        assert metric(rig, "FailedPartitionsCount") == 1
        # The fetcher has another one to live for.
        await rig.apply(*topic("u", 2, replicas=(1, 2)))
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), leader=1))
        assert metric(rig, "FailedPartitionsCount") == 0


async def test_a_leader_that_is_not_known_is_waited_for(autojump_clock: object) -> None:
    """REP-101: it may register later, and elsewhere."""
    asked: list[int] = []

    async def sane(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        while True:
            key, version, correlation_id = await connection.read_request()
            asked.append(key)
            await trio.sleep(0.5)
            await connection.answer(answer(high_watermark=0), version, correlation_id)

    async with following(sane) as (rig, _):
        two = rig.metadata.image.brokers[2]
        rig.metadata.write(replace(two, end_points=()))
        await rig.apply(*topic("t", 2, replicas=(1, 2)))
        await trio.sleep(5)
        assert asked == []
        await rig.apply(two)
        await trio.sleep(3)
        assert asked


async def test_a_leadership_waits_for_the_truncation_under_way(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REP-98: nobody may append while a log is being truncated, cancelled or not."""
    began, may_end = trio.Event(), trio.Event()
    is_done = False

    async def diverges(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        _, version, correlation_id = await connection.read_request()
        diverging = k01.EpochEndOffset(epoch=0, end_offset=1)
        await connection.answer(
            answer(diverging_epoch=diverging, high_watermark=1), version, correlation_id
        )
        await connection.read_request()

    async with following(diverges) as (rig, _):
        await rig.apply(*topic("t", 1, replicas=(1, 2)))
        rig.partition("t").append(batch(b"a", b"b", b"c"), required_acks=1, now_ms=0)
        truncate = rig.logs.truncate

        async def truncate_slowly(log: Any, offset: int) -> bool:
            nonlocal is_done
            began.set()
            await may_end.wait()
            result = await truncate(log, offset)
            is_done = True
            return result

        monkeypatch.setattr(type(rig.logs), "truncate", lambda _, *a: truncate_slowly(*a))
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), leader=2))
        await began.wait()
        rig.metadata.change("t", 0, leader=1)
        await trio.sleep(5)
        assert not rig.partition("t").is_leader
        may_end.set()
        await rig.settle()
        assert is_done
        assert rig.partition("t").is_leader
        assert rig.partition("t").log.log_end_offset == 1


async def test_a_removed_partition_stays_away_when_settings_change(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handing out anew must not bring back what a change of roles has taken meanwhile."""

    async def silent(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        await connection.read_request()
        await trio.sleep_forever()

    async with following(silent) as (rig, _):
        await rig.apply(*topic("t", 2, 2, replicas=(1, 2)))
        manager: FetcherManager = rig.fetchers
        [fetcher] = manager.fetchers
        settled = fetcher.settled

        async def settled_slowly(names: Any) -> None:
            await trio.sleep(1)
            await settled(names)

        monkeypatch.setattr(fetcher, "settled", settled_slowly)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.change_settings, FetcherSettings(broker_id=1), 2)
            await trio.sleep(0.5)
            manager.discard([("t", 0)])
        names = [name for each in manager.fetchers for name in each.partitions]
        assert names == [("t", 1)]


async def test_an_answer_is_taken_in_slices(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 1; and what a change of roles takes away meanwhile gets nothing more (REP-62)."""
    records = bytes(batch(b"x" * 900_000))
    first_append = trio.Event()
    append = Partition.append_replicated

    def append_and_tell(self: Partition, *args: Any, **more: Any) -> AppendInfo:
        first_append.set()
        return append(self, *args, **more)

    monkeypatch.setattr(Partition, "append_replicated", append_and_tell)

    async def full(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        _, version, correlation_id = await connection.read_request()
        response = answer()
        response.responses[0].partitions = [
            k01.PartitionData(partition_index=number, high_watermark=0, records=records)
            for number in range(20)
        ]
        await connection.answer(response, version, correlation_id)
        await connection.read_request()
        await trio.sleep_forever()

    async with following(full) as (rig, _):
        await rig.apply(*topic("t", *[2] * 20, replicas=(1, 2)))

        def ends() -> list[int]:
            return [rig.partition("t", number).log.log_end_offset for number in range(20)]

        await first_append.wait()
        begun = ends()
        assert 0 < sum(begun) < 20
        late = begun.index(0)
        rig.fetchers.discard([("t", late)])
        await trio.sleep(1)
        assert ends() == [int(number != late) for number in range(20)]


async def test_a_partition_that_is_added_does_not_wait_with_the_others(
    autojump_clock: object,
) -> None:
    """REP-61: nor is the leader stormed when partitions are added one after the other."""
    asked: list[tuple[float, int]] = []

    async def patient(connection: ScriptedConnection) -> None:
        """A leader that has no news, as long as it is asked to wait for some."""
        await connection.negotiate()
        while True:
            request, version, correlation_id = await connection.read_message()
            assert isinstance(request, k01.FetchRequest)
            count = sum(len(each.partitions) for each in request.topics)
            asked.append((trio.current_time(), count))
            await trio.sleep(request.max_wait_ms / 1000)
            empty = k01.FetchResponse(session_id=7)
            await connection.answer(empty, version, correlation_id)

    async with following(patient) as (rig, _):
        await rig.apply(*topic("t", 2, replicas=(1, 2)))
        await trio.sleep(5.2)
        began = trio.current_time()
        for number in range(4):
            asked.clear()
            await rig.apply(*topic(f"u{number}", 2, replicas=(1, 2)))
            await trio.sleep(0.05)
            # The first one at once, with everything; the others with the next fetch.
            assert len(asked) == (1 if number == 0 else 0)
            if number == 0:
                [(at, count)] = asked
                assert count == 2
                assert at - began < 0.05
        await trio.sleep(0.5)
        assert [count for _, count in asked] == [3]


async def test_a_fetch_is_not_given_up_before_one_was_answered(autojump_clock: object) -> None:
    """REP-61: new topics, one after the other, don't stop the replication from a slow leader."""
    sessions: list[int] = []

    async def slow(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        while True:
            request, version, correlation_id = await connection.read_message()
            assert isinstance(request, k01.FetchRequest)
            sessions.append(request.session_id)
            await trio.sleep(3 * request.max_wait_ms / 1000)
            await connection.answer(k01.FetchResponse(session_id=7), version, correlation_id)

    async with following(slow) as (rig, _):
        await rig.apply(*topic("t", 2, replicas=(1, 2)))
        for number in range(12):
            await rig.apply(*topic(f"u{number}", 2, replicas=(1, 2)))
            await trio.sleep(0.6)
    # Who goes on with a session has got the answer before.
    assert sessions.count(7) >= 2


@pytest.mark.parametrize(
    ("partition_count", "value_bytes", "is_short"),
    [(1, 100, True), (8, 8_000, True), (9, 10, False), (1, 70_000, False), (8, 9_000, False)],
)
async def test_short_answers_are_taken_by_who_reads_them(
    partition_count: int,
    value_bytes: int,
    is_short: bool,
    autojump_clock: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to eight partitions and 64 KiB; larger ones are taken by the fetcher's task, in slices."""
    tasks: list[str] = []
    append = Partition.append_replicated

    def append_and_note(self: Partition, *args: Any, **more: Any) -> AppendInfo:
        tasks.append(trio.lowlevel.current_task().name)
        return append(self, *args, **more)

    monkeypatch.setattr(Partition, "append_replicated", append_and_note)
    records = bytes(batch(b"x" * value_bytes))

    async def once(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        _, version, correlation_id = await connection.read_request()
        response = answer()
        response.responses[0].partitions = [
            k01.PartitionData(partition_index=number, high_watermark=0, records=records)
            for number in range(partition_count)
        ]
        await connection.answer(response, version, correlation_id)
        await connection.read_request()
        await trio.sleep_forever()

    async with following(once) as (rig, _):
        await rig.apply(*topic("t", *[2] * partition_count, replicas=(1, 2)))
        await trio.sleep(1)
        ends = [rig.partition("t", each).log.log_end_offset for each in range(partition_count)]
    assert ends == [1] * partition_count
    assert len(tasks) == partition_count
    assert all(name.startswith("client-read") == is_short for name in tasks)


async def test_a_question_that_was_planned_is_asked_anew_if_the_wait_is_given_up(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REP-61: a short answer has led to it while the wait was being given up."""
    take = Fetcher._take_if_short
    given_up: list[Any] = []
    asked: list[int] = []

    def take_and_give_up(self: Fetcher, response: k01.FetchResponse) -> k01.FetchRequest | None:
        following_request = take(self, response)
        if isinstance(self._planned, FindOffsets) and not given_up:
            assert self._waiting is not None
            given_up.append(self._planned)
            self._waiting.cancel()
        return following_request

    async def out_of_range(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        while True:
            api_key, version, correlation_id = await connection.read_request()
            asked.append(api_key)
            if api_key == k01.FetchRequest.KEY:
                response: Any = answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
            else:
                found = k02.ListOffsetsPartitionResponse(partition_index=0, offset=0)
                topics = [k02.ListOffsetsTopicResponse(name="t", partitions=[found])]
                response = k02.ListOffsetsResponse(topics=topics)
            await connection.answer(response, version, correlation_id)

    monkeypatch.setattr(Fetcher, "_take_if_short", take_and_give_up)
    async with following(out_of_range, out_of_range) as (rig, _):
        await rig.apply(*topic("t", 2, replicas=(1, 2)))
        await trio.sleep(0.02)
    assert len(given_up) == 1
    # The end of the leader's log, and its start.
    assert asked == [1, 2, 2]
