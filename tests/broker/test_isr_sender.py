"""Proposals on their way to the controller: together, one request at a time, until answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from replica_rig import Rig, batch, topic, topic_id
from test_replicas import granted

from kraftpy.broker.partition import Partition
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.log.offsets import OffsetMetadata
from kraftpy.metadata.records import PartitionChangeRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k56_alter_partition as k56


@dataclass
class Controller:
    """Answers one request after the other as it is told to, and notes when they came."""

    answers: list[Callable[[Any], Awaitable[Any]]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    running: int = 0

    async def answer(self, request: Any) -> Any:
        assert self.running == 0, "one request is under way at a time"
        self.times.append(trio.current_time())
        self.running += 1
        try:
            return await (self.answers.pop(0) if self.answers else granted)(request)
        finally:
            self.running -= 1


async def refused(_: Any) -> Any:
    return k56.AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)


async def not_known(_: Any) -> Any:
    raise UnsupportedVersion("AlterPartition")


async def forgotten(_: Any) -> Any:
    return k56.AlterPartitionResponse(topics=[])


def with_error(code: int) -> Callable[[Any], Awaitable[Any]]:
    async def answer(request: Any) -> Any:
        response = await granted(request)
        for each in response.topics:
            for partition in each.partitions:
                partition.error_code = code
        return response

    return answer


@asynccontextmanager
async def leaders(
    controller: Controller, count: int = 3
) -> AsyncIterator[tuple[Rig, list[Partition]]]:
    """Partitions led here, whose ISR is this broker alone."""
    rig = Rig()
    rig.alteration_answer = controller.answer
    rig.metadata.begin(1, 2, 3)
    async with rig.running():
        await rig.apply(
            *topic("t", *[1] * count),
            *[PartitionChangeRecord(n, topic_id("t"), isr=(1,)) for n in range(count)],
        )
        yield rig, [rig.partition("t", number) for number in range(count)]


def join(partition: Partition, broker_id: int = 2) -> None:
    """A follower has everything."""
    end = partition.log.log_end_offset
    partition.follower_fetched(
        broker_id,
        OffsetMetadata(end),
        log_start_offset=0,
        leader_end_offset=end,
        broker_epoch=100 + broker_id,
        now_ms=0,
    )


async def test_all_that_waits_goes_together(autojump_clock: object) -> None:
    """REP-116, KRF 18.1: with the broker's, the leaders' and the partitions' epochs."""
    controller = Controller()
    async with leaders(controller) as (rig, partitions):
        for partition in partitions:
            join(partition)
        await trio.sleep(1)
        [request] = rig.alterations.asked
        assert (request.broker_id, request.broker_epoch) == (1, 101)
        [asked] = request.topics
        assert asked.topic_id == topic_id("t")
        assert [each.partition_index for each in asked.partitions] == [0, 1, 2]
        for each in asked.partitions:
            assert (each.leader_epoch, each.partition_epoch) == (0, 1)
            assert [(one.broker_id, one.broker_epoch) for one in each.new_isr_with_epochs] == [
                (1, 101),
                (2, 102),
            ]
        assert all(partition.isr == (1, 2) for partition in partitions)
        assert rig.metric("IsrExpandsPerSec") == 3


async def test_what_comes_meanwhile_goes_with_the_next(autojump_clock: object) -> None:
    async def slowly(request: Any) -> Any:
        await trio.sleep(5)
        return await granted(request)

    controller = Controller([slowly])
    async with leaders(controller) as (rig, partitions):
        join(partitions[0])
        await trio.sleep(1)
        for partition in partitions[1:]:
            join(partition)
        await trio.sleep(10)
        sizes = [len(each.topics[0].partitions) for each in rig.alterations.asked]
        assert sizes == [1, 2]


@pytest.mark.parametrize(
    "answer",
    [refused, not_known, forgotten, with_error(ErrorCode.NOT_CONTROLLER), with_error(9999)],
)
async def test_what_fails_is_sent_again_after_a_moment(
    autojump_clock: object, answer: Callable[[Any], Awaitable[Any]]
) -> None:
    """REP-117: 50 ms later, again and again, until it is decided."""
    controller = Controller([answer] * 3)
    async with leaders(controller, 1) as (_, [partition]):
        join(partition)
        await trio.sleep(1)
        assert len(controller.times) == 4
        pauses = [
            round(later - earlier, 3)
            for earlier, later in zip(controller.times, controller.times[1:], strict=False)
        ]
        assert pauses == [0.05] * 3
        assert partition.isr == (1, 2)


async def test_what_is_in_doubt_is_not_sent_again(autojump_clock: object) -> None:
    """REP-117: it stays pending until the metadata tells."""
    controller = Controller([with_error(ErrorCode.INVALID_UPDATE_VERSION)])
    async with leaders(controller, 1) as (rig, [partition]):
        join(partition)
        await trio.sleep(1)
        assert len(controller.times) == 1
        assert partition.maximal_isr == (1, 2)
        assert rig.metric("FailedIsrUpdatesPerSec") == 1


async def test_what_metadata_has_decided_is_not_sent(autojump_clock: object) -> None:
    controller = Controller([refused])
    async with leaders(controller, 1) as (rig, [partition]):
        join(partition)
        await trio.sleep(0.01)
        assert len(controller.times) == 1
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), isr=(1, 2)))
        await trio.sleep(1)
        assert len(controller.times) == 1
        assert partition.isr == (1, 2)


async def test_a_committed_member_counts(autojump_clock: object) -> None:
    """REP-47: while it is asked for, the newcomer already holds the high watermark back."""
    controller = Controller()
    async with leaders(controller, 1) as (_, [partition]):
        join(partition)
        partition.append(batch(b"x"), required_acks=1, now_ms=0)
        assert partition.log.high_watermark == 0
        await trio.sleep(1)
        assert partition.log.high_watermark == 0
        join(partition)
        assert partition.log.high_watermark == 1
