"""The host of a coordinator on real partitions: shards follow leaderships, logs are loaded."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
from broker.replica_rig import Rig, batch, topic
from coordinator.number_machine import NumberMachine
from coordinator.shard_kit import Waiting

from kraftpy.broker.coordinator_host import CoordinatorHost
from kraftpy.coordinator.batch import Producer
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.shard import Shard, ShardState
from kraftpy.coordinator.shard_writing import ShardSettings
from kraftpy.protocol.coordinator_records import GROUP_RECORDS
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.control import EndTransactionMarker

TOPIC = "__consumer_offsets"


@asynccontextmanager
async def hosting(
    rig: Rig, max_batch_bytes: Callable[[], int] = lambda: 1000
) -> AsyncIterator[CoordinatorHost[NumberMachine]]:
    async with rig.running() as replicas, trio.open_nursery() as nursery:
        host = CoordinatorHost(
            TOPIC,
            rig.world.clock,
            NumberMachine,
            GROUP_RECORDS,
            ShardSettings(),
            load_buffer_bytes=300,
            max_batch_bytes=max_batch_bytes,
        )
        rig.metadata.publishers.insert(0, host)
        replicas.listen(TOPIC, host.role_changed, host.committed)
        nursery.start_soon(host.run)
        yield host
        nursery.cancel_scope.cancel()


async def active(host: CoordinatorHost[NumberMachine]) -> Shard[NumberMachine]:
    for _ in range(1000):
        [shard] = host.runtime.shards()
        if not shard.is_loading:
            return shard
        await trio.sleep(0.001)
    raise AssertionError("not loaded within a second")


async def answered(waiting: Waiting) -> Waiting:
    for _ in range(10_000):
        if waiting.is_answered:
            return waiting
        await trio.sleep(0.001)
    raise AssertionError("not answered within ten seconds")


async def put(
    host: CoordinatorHost[NumberMachine], name: str, number: int, partition: int = 0
) -> Waiting:
    waiting = Waiting()
    host.runtime.write(partition, lambda machine: machine.put((name, number)), waiting)
    return await answered(waiting)


async def test_a_broker_coordinates_what_it_leads(autojump_clock: object) -> None:
    """CRT-17, CRT-19, GRP-5."""
    rig = Rig()
    async with hosting(rig) as host:
        await rig.apply(*topic(TOPIC, 1, 2, replicas=(1,)))
        await active(host)
        assert (await put(host, "a", 1)).answer == "put"
        assert (await put(host, "a", 1, partition=1)).error == ErrorCode.NOT_COORDINATOR
        rig.metadata.change(TOPIC, 0, leader=2)
        await rig.settle()
        assert (await put(host, "a", 2)).error == ErrorCode.NOT_COORDINATOR


async def test_a_log_is_replayed_in_each_new_epoch_and_life(autojump_clock: object) -> None:
    """CRT-20: in buffers smaller than a batch too, and with what transactions left."""
    rig = Rig()
    producer = Producer(7, 0)
    async with hosting(rig) as host:
        await rig.apply(*topic(TOPIC, 1, replicas=(1,)))
        first = await active(host)
        for number in range(40):
            await put(host, f"name-{number % 7}", number)
        waiting = Waiting()
        host.runtime.write(
            0,
            lambda machine: machine.put(*[(f"{number}" * 30, number) for number in range(5)]),
            waiting,
        )
        assert (await answered(waiting)).answer == "put"
        host.runtime.write_transactional(
            0, lambda machine: machine.put(("t", 5)), written := Waiting(), producer
        )
        assert (await answered(written)).error == ErrorCode.INVALID_TXN_STATE
        marked = Waiting()
        host.runtime.complete_transaction(0, EndTransactionMarker(True, 0), marked, producer, 2)
        assert (await answered(marked)).answer.is_commit
        expected = first.read(NumberMachine.committed)
        rig.metadata.change(TOPIC, 0, leader=1)
        await rig.settle()
        second = await active(host)
        assert first.state is ShardState.CLOSED
        assert second is not first
        assert second.read(NumberMachine.committed) == expected
        assert host.load_times.count == 2
    async with hosting(rig) as host:
        rig.metadata.write()
        await rig.settle()
        third = await active(host)
        assert third.read(NumberMachine.committed) == expected
        assert len(expected) == 12


async def test_a_closed_shard_is_garbage_and_a_loaded_one_is_none(autojump_clock: object) -> None:
    """The collector passes over what is loaded, and never over what is dead."""
    rig = Rig()
    gc.enable()
    try:
        async with hosting(rig) as host:
            await rig.apply(*topic(TOPIC, 1, replicas=(1,)))
            first = weakref.ref(await active(host))
            assert gc.get_freeze_count() > 0
            rig.metadata.change(TOPIC, 0, leader=1)
            await rig.settle()
            second = await active(host)
            assert first() is None
            assert not second.is_loading
            assert gc.get_freeze_count() > 0
            rig.metadata.change(TOPIC, 0, leader=2)
            await rig.settle()
            assert gc.get_freeze_count() == 0
    finally:
        gc.unfreeze()


async def test_the_largest_batch_is_that_of_the_topic_as_it_is_now(autojump_clock: object) -> None:
    """CRT-12: `max.message.bytes` changes while the shard lives."""
    rig = Rig()
    limits = [1000]
    async with hosting(rig, lambda: limits[-1]) as host:
        await rig.apply(*topic(TOPIC, 1, replicas=(1,)))
        shard = await active(host)
        assert (await put(host, "a" * 200, 1)).answer == "put"
        limits.append(300)
        assert (await put(host, "b" * 200, 2)).error == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await put(host, "c", 3)).answer == "put"
        assert len(shard.read(NumberMachine.committed)) == 2


async def test_a_log_that_can_not_be_read_makes_nobody_coordinator(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """What is damaged is not taken for good; the node and other shards go on."""
    rig = Rig()
    async with hosting(rig) as host:
        await rig.apply(*topic(TOPIC, 1, replicas=(1,)))
        await active(host)
        await put(host, "a", 1)
        await put(host, "b", 2)
        file = rig.partition(TOPIC).log.read(0, 10_000).records
        assert file is not None
        file.file.pwrite([b"\xff"], file.position + file.length - 3)
        rig.metadata.change(TOPIC, 0, leader=1)
        await rig.settle()
        shard = await active(host)
        assert shard.state is ShardState.FAILED
        assert (await put(host, "a", 2)).error == ErrorCode.NOT_COORDINATOR
    [line] = [each for each in caplog.records if "can't be loaded" in each.getMessage()]
    assert "wrong CRC" in line.getMessage()


async def test_a_write_to_too_few_replicas_is_refused_and_forgotten(
    autojump_clock: object,
) -> None:
    """CRT-6, CRT-25 with a real partition below its min.insync.replicas."""
    rig = Rig()
    async with hosting(rig) as host:
        await rig.apply(*topic(TOPIC, 1, replicas=(1, 2)))
        shard = await active(host)
        rig.min_isr = 2
        rig.replicas.reconfigure([TOPIC])
        rig.metadata.change(TOPIC, 0, isr=(1,))
        await rig.settle()
        assert (await put(host, "a", 1)).error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not shard.machine.numbers


async def test_the_log_of_an_epoch_that_is_over_takes_nothing(autojump_clock: object) -> None:
    """Also if the same broker leads again: another shard has the partition."""
    rig = Rig()
    async with hosting(rig) as host:
        await rig.apply(*topic(TOPIC, 1, replicas=(1,)))
        old = (await active(host)).log
        rig.metadata.change(TOPIC, 0, leader=1)
        await rig.settle()
        with pytest.raises(CoordinatorError) as caught:
            old.append(batch(b"x"))
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(CoordinatorError):
            await old.read(0, 100)


async def test_who_is_no_leader_any_more_answers_nothing_before_its_shard_hears_of_it(
    autojump_clock: object,
) -> None:
    """F15: roles change first, and coordinators are told when all of an image's have."""
    rig = Rig()
    async with hosting(rig) as host:
        await rig.apply(*topic(TOPIC, 1, replicas=(1,)))
        shard = await active(host)
        assert (await put(host, "a", 1)).answer == "put"
        record = rig.metadata.image.topics[TOPIC].partitions[0]
        later = replace(record, leader=2, leader_epoch=1, partition_epoch=1)
        assert rig.partition(TOPIC).follow(later)
        assert shard.state is ShardState.ACTIVE
        with pytest.raises(CoordinatorError) as caught:
            host.runtime.read(0, NumberMachine.committed)
        assert caught.value.code == ErrorCode.NOT_COORDINATOR
        waiting = Waiting()
        host.runtime.write(0, NumberMachine.look, waiting)
        assert waiting.error == ErrorCode.NOT_COORDINATOR
