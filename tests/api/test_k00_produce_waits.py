"""A Produce that comes before the log of its partition: how long it waits, and what it counts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from api.data_rig import Broker, broker_on
from api.test_k00_produce import batch, code_of
from broker.replica_rig import Rig, topic

from kraftpy.protocol.errors import ErrorCode
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_faults import DiskStall

STALL_SECONDS = 5


@pytest.fixture
async def broker(autojump_clock: object) -> AsyncIterator[Broker]:
    """Topic t is led here. `new` is about to be, but its log takes a while to make."""
    rig = Rig(MemoryDisk(clock=MemoryClock()))
    async with broker_on(rig) as broker:
        await rig.apply(*topic("t", 1, 1, replicas=(1, 2)))
        rig.disk.inject(DiskStall(paths="*/new-*", count=1, seconds=STALL_SECONDS))
        rig.metadata.write(*topic("new", 1, replicas=(1, 2)))
        yield broker


async def test_a_wait_for_a_log_ends_when_its_time_is_over(
    broker: Broker, autojump_clock: object
) -> None:
    """The others of the request are appended then, and nothing is appended later."""
    parts = {("new", 0): batch(), ("t", 0): batch()}
    asked = broker.begin_produce(parts, acks=1, timeout_ms=700)
    await trio.sleep(0.69)
    assert not asked.answer.outcome
    assert broker.rig.partition("t").log.log_end_offset == 0
    await trio.sleep(0.05)
    codes = [code_of(each.partition_responses[0]) for each in asked.response.responses]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]
    await trio.sleep(2 * STALL_SECONDS)
    assert broker.rig.partition("new").log.log_end_offset == 0
    assert broker.rig.partition("t").log.log_end_offset == 1


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_who_has_no_time_does_not_wait_for_a_log(
    broker: Broker, autojump_clock: object, timeout_ms: int
) -> None:
    asked = broker.begin_produce({("new", 0): batch()}, acks=1, timeout_ms=timeout_ms)
    [answer] = asked.response.responses
    assert code_of(answer.partition_responses[0]) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_followers_have_the_rest_of_the_time(broker: Broker, autojump_clock: object) -> None:
    """Here nobody fetches: the time is over when it is, not so long after the log was there."""
    milliseconds = STALL_SECONDS * 1000 + 700
    asked = broker.begin_produce({("new", 0): batch()}, acks=-1, timeout_ms=milliseconds)
    await trio.sleep(STALL_SECONDS + 0.69)
    assert broker.rig.partition("new").log.log_end_offset == 1
    assert not asked.answer.outcome
    await trio.sleep(0.05)
    [answer] = asked.response.responses
    assert code_of(answer.partition_responses[0]) is ErrorCode.REQUEST_TIMED_OUT


async def test_what_fails_meanwhile_counts_once(broker: Broker, autojump_clock: object) -> None:
    """Two batches for one partition is one too many."""
    parts = {("new", 0): batch(), ("t", 0): batch() + batch()}
    asked = broker.begin_produce(parts, acks=1, timeout_ms=30_000)
    assert not asked.answer.outcome
    await trio.sleep(2 * STALL_SECONDS)
    codes = [code_of(each.partition_responses[0]) for each in asked.response.responses]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_RECORD]
    assert broker.count("FailedProduceRequestsPerSec", "t") == 1


async def test_what_came_too_late_for_replicas_is_not_written(
    broker: Broker, autojump_clock: object
) -> None:
    """With acks=-1: a record that is there, and said to have failed, would be sent again."""
    parts = {("new", 0): batch(), ("t", 0): batch()}
    asked = broker.begin_produce(parts, acks=-1, timeout_ms=700)
    await trio.sleep(0.75)
    codes = [code_of(each.partition_responses[0]) for each in asked.response.responses]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]
    assert broker.rig.partition("t").log.log_end_offset == 0


async def test_a_broker_that_stops_lets_go_of_who_waits_for_a_log(autojump_clock: object) -> None:
    """Once: nobody waits anew in a purgatory that is shut down."""
    rig = Rig(MemoryDisk(clock=MemoryClock()))
    async with broker_on(rig) as broker:
        await rig.apply(*topic("t", 1, 1, replicas=(1, 2)))
        rig.disk.inject(DiskStall(paths="*/new-*", count=1, seconds=STALL_SECONDS))
        rig.metadata.write(*topic("new", 1, replicas=(1, 2)))
        asked = broker.begin_produce({("new", 0): batch()}, acks=1, timeout_ms=30_000)
        assert not asked.answer.outcome
    [answer] = asked.response.responses
    assert code_of(answer.partition_responses[0]) is ErrorCode.NOT_LEADER_OR_FOLLOWER
