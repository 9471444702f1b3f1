"""How soon a cluster is well again: the bounds of the specification's section 5.6 (JEP-129).

On whole nodes in virtual time, where no machine is too slow; what real processes need is printed by
tests/cluster and by the process suite. One bound is left out: a follower whose disk takes a second
for each sync is no laggard as long as it has everything once in `replica.lag.time.max.ms`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from directed_stage import TOPIC, Stage, tell

from kraftpy.faults.language import Fault, Kill, Partition, Pause

SEEDS = (1,)
SESSION_SECONDS = 3.0
QUORUM_SECONDS = 2.0
MEMBER_SESSION_SECONDS = 2.0
TRANSACTION_SECONDS = 5.0
PATIENT = {"delivery_timeout_ms": 60_000}


async def seconds_until(stage: Stage, holds: Callable[[], bool]) -> float:
    begun = trio.current_time()
    await stage.until(holds)
    return trio.current_time() - begun


async def seconds_to_send(stage: Stage, value: bytes) -> float:
    begun = trio.current_time()
    assert await stage.send(value, **PATIENT)
    return trio.current_time() - begun


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", [Kill, Pause])
def test_a_leader_is_replaced(seed: int, fault: Callable[[int], Fault]) -> None:
    """Within its session and 2 s; nobody waits longer than 5 s more to have a record taken."""

    async def story(stage: Stage) -> None:
        assert await stage.send(b"before")
        old = stage.leader
        await stage.machines.apply(fault(old))
        begun = trio.current_time()
        assert await seconds_until(stage, lambda: stage.leader not in (old, -1)) < (
            SESSION_SECONDS + 2
        )
        await seconds_to_send(stage, b"after")
        assert trio.current_time() - begun < SESSION_SECONDS + 5

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", [Kill, Pause])
def test_a_controller_is_replaced(seed: int, fault: Callable[[int], Fault]) -> None:
    """Within the time after which it is missed, and 2 s, with three elections at most."""

    async def story(stage: Stage) -> None:
        old, epoch = stage.controller, stage.controller_epoch
        await stage.machines.apply(fault(old))
        took = await seconds_until(stage, lambda: stage.controller not in (old, -1))
        assert took < QUORUM_SECONDS + 2
        assert stage.controller_epoch - epoch <= 3

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_goes_on_after_a_heal(seed: int) -> None:
    """Records are taken and given within 10 s, and all replicas are in sync within 30 s."""

    async def story(stage: Stage) -> None:
        assert await stage.send(b"before")
        ends = [
            await stage.machines.apply(Partition((a,), (b,))) for a, b in [(1, 2), (2, 3), (1, 3)]
        ]
        await trio.sleep(20)
        assert not await stage.send(b"nobody is there")
        for end in ends:
            assert end is not None
            end()
        healed = trio.current_time()
        assert await stage.send(b"after", **PATIENT)
        assert b"after" in await stage.read()
        assert trio.current_time() - healed < 10
        await stage.until(lambda: stage.record is not None and len(stage.record.isr) == 3)
        assert trio.current_time() - healed < 30

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_without_a_member(seed: int, protocol: str) -> None:
    """It is stable within the time for a rebalance and two sessions."""
    rebalance_seconds = 5.0

    async def story(stage: Stage) -> None:
        assert await stage.send(b"one")
        sleeper = stage.simulation.world("sleeper")
        settings = {
            "group_id": "g",
            "group_protocol": protocol,
            "max_poll_interval_ms": int(rebalance_seconds * 1000),
        }
        if protocol == "classic":
            settings |= {
                "session_timeout_ms": int(MEMBER_SESSION_SECONDS * 1000),
                "heartbeat_interval_ms": 500,
            }
        async with stage.consumer(sleeper, **settings) as first:
            first.subscribe([TOPIC])
            while not await first.poll(1_000):
                pass
            stage.simulation.pause("sleeper")
            gone = trio.current_time()
            async with stage.consumer(**settings) as second:
                second.subscribe([TOPIC])
                while not await second.poll(500):
                    pass
                session = MEMBER_SESSION_SECONDS if protocol == "classic" else SESSION_SECONDS
                assert trio.current_time() - gone < rebalance_seconds + 2 * session
            stage.simulation.resume("sleeper")

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_transaction_whose_client_has_gone_is_aborted(seed: int) -> None:
    """Within its time and 10 s: what lies behind it can be read."""

    async def story(stage: Stage) -> None:
        async with trio.open_nursery() as nursery:
            producer = await nursery.start(stage.keep_producer, "x", TRANSACTION_SECONDS)
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.wait(await producer.send(TOPIC, b"never", partition=0))
            nursery.cancel_scope.cancel()
        gone = trio.current_time()
        assert await stage.send(b"behind it")
        assert await stage.read() == [b"behind it"]
        assert trio.current_time() - gone < TRANSACTION_SECONDS + 10

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_that_stays_cut_off_does_not_disturb_the_others(seed: int) -> None:
    """After 10 s, the slowest of many sends takes at most three times as long as before."""

    async def story(stage: Stage) -> None:
        before = [await seconds_to_send(stage, b"before") for _ in range(20)]
        lost = stage.followers[0]
        others = tuple(each for each in stage.machines.node_ids if each != lost)
        await stage.machines.apply(Partition((lost,), others))
        await trio.sleep(10)
        after = [await seconds_to_send(stage, b"after") for _ in range(20)]
        assert max(after) <= 3 * max(before)

    tell(story, seed)
