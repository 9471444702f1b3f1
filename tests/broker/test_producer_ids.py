"""Producer ids: blocks of the controller, given away one by one and never twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from broker.test_lifecycle import Broker, cluster
from trio.testing import wait_all_tasks_blocked

from kraftpy.broker.controller_channel import ControllerUnreachable
from kraftpy.broker.producer_ids import ProducerIdBlocks, ProducerIds
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

AGAIN = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@dataclass
class Controller:
    """Gives blocks of ten, when it is let; looks like a ControllerChannel."""

    answers: list[AllocateProducerIdsResponse | Exception] = field(default_factory=list)
    asked: list[AllocateProducerIdsRequest] = field(default_factory=list)
    gate: trio.Event = field(default_factory=trio.Event)
    is_asked: bool = False

    async def request(self, message: AllocateProducerIdsRequest, *, timeout_ms: int) -> Any:
        assert not self.is_asked, "one request is under way at a time"
        self.is_asked = True
        self.asked.append(message)
        await self.gate.wait()
        self.is_asked = False
        first = 10 * len(self.asked)
        answer: AllocateProducerIdsResponse | Exception = AllocateProducerIdsResponse(
            producer_id_start=first, producer_id_len=10
        )
        if self.answers:
            answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class Rig:
    controller: Controller
    ids: ProducerIds
    given: list[int] = field(default_factory=list)

    def want(self, count: int = 1) -> None:
        for _ in range(count):
            self.ids.provide(self.given.append)

    async def want_all(self, count: int = 1) -> list[int]:
        """What these get, the controller permitting."""
        self.given.clear()
        self.want(count)
        await wait_all_tasks_blocked()
        return list(self.given)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    controller: Any = Controller()
    async with trio.open_nursery() as nursery:
        yield Rig(controller, ProducerIds(7, lambda: 3, controller, nursery))
        nursery.cancel_scope.cancel()


def test_blocks_are_low_at_a_tenth() -> None:
    blocks = ProducerIdBlocks()
    assert blocks.is_low
    assert blocks.take() is None
    blocks.add(100, 20)
    taken = []
    while not blocks.is_low:
        taken.append(blocks.take())
    assert taken == list(range(100, 118))
    blocks.add(500, 1)
    assert [blocks.take() for _ in range(4)] == [118, 119, 500, None]


async def test_whoever_comes_first_waits_for_the_first_block(rig: Rig) -> None:
    """TXN-1: nobody asks twice for what is under way, and order is kept."""
    rig.want(3)
    await wait_all_tasks_blocked()
    assert rig.given == []
    assert rig.controller.asked == [AllocateProducerIdsRequest(broker_id=7, broker_epoch=3)]
    rig.controller.gate.set()
    await wait_all_tasks_blocked()
    assert rig.given == [10, 11, 12]


async def test_the_next_block_is_asked_for_before_the_last_one_ends(rig: Rig) -> None:
    rig.controller.gate.set()
    assert await rig.want_all(1) == [10]
    rig.controller.gate = trio.Event()
    rig.want(7)
    await wait_all_tasks_blocked()
    assert len(rig.controller.asked) == 1
    rig.want(1)
    await wait_all_tasks_blocked()
    assert len(rig.controller.asked) == 2
    rig.want(1)
    assert rig.given == list(range(10, 20)), "the rest is given while the next one is under way"
    rig.controller.gate.set()
    assert await rig.want_all(1) == [20]


async def test_more_than_a_block_may_wait(rig: Rig) -> None:
    rig.controller.gate.set()
    given = await rig.want_all(25)
    assert given == list(range(10, 35))
    assert len(rig.controller.asked) == 3


@pytest.mark.parametrize(
    "failure",
    [
        AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        AllocateProducerIdsResponse(producer_id_start=5, producer_id_len=0),
        ControllerUnreachable("no answer"),
        UnsupportedVersion("AllocateProducerIds"),
    ],
    ids=["refused", "empty", "unreachable", "unsupported"],
)
async def test_without_a_block_all_are_told_to_ask_again(
    rig: Rig, failure: AllocateProducerIdsResponse | Exception
) -> None:
    rig.controller.answers.append(failure)
    rig.controller.gate.set()
    assert await rig.want_all(3) == [AGAIN] * 3
    assert len(rig.controller.asked) == 1, "it is the next one to come who asks again"
    assert await rig.want_all(2) == [20, 21]


async def test_brokers_never_share_ids() -> None:
    """TXN-1: unique across brokers and processes, with the real controller."""
    given: list[int] = []
    async with cluster() as (controller, nursery):
        brokers = [Broker(controller, broker_id) for broker_id in (1, 2)]
        for broker in brokers:
            await broker.start(nursery)
        # Another source on the same broker stands for its next process.
        sources = ((1, brokers[0]), (2, brokers[1]), (1, brokers[0]))
        for number, (broker_id, broker) in enumerate(sources, 1):
            epoch = broker.lifecycle.broker_epoch
            ids = ProducerIds(broker_id, lambda epoch=epoch: epoch, broker.channel, nursery)
            for _ in range(1_500):
                ids.provide(given.append)
            with trio.fail_after(60):
                while len(given) < 1_500 * number:  # noqa: ASYNC110 (replies set no event)
                    await trio.sleep(0.001)
    assert not any(isinstance(each, ErrorCode) for each in given)
    assert len(set(given)) == len(given) == 4_500
