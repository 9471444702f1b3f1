"""JEP-139: the virtual clock and the detection of deadlocks."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio

from kraftpy.sim.clock import SimDeadlock
from kraftpy.sim.runner import SimOverrun, run_simulation
from kraftpy.sim.simulation import Simulation


def test_time_jumps_to_the_next_deadline() -> None:
    """JEP-139: a simulated day takes no time, and nobody oversleeps."""

    async def main(sim: Simulation) -> list[tuple[str, float]]:
        woken = []

        async def sleeper(name: str, seconds: float) -> None:
            await trio.sleep(seconds)
            woken.append((name, trio.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper, "day", 86_400.0)
            nursery.start_soon(sleeper, "hour", 3_600.0)
            nursery.start_soon(sleeper, "blink", 0.001)
        return woken

    result = run_simulation(main, seed=1)
    assert result.value == [("blink", 0.001), ("hour", 3_600.0), ("day", 86_400.0)]
    assert result.virtual_seconds == 86_400.0


def test_time_stands_still_while_tasks_run() -> None:
    async def main(sim: Simulation) -> float:
        for _ in range(1_000):
            await trio.lowlevel.checkpoint()
        return trio.current_time()

    assert run_simulation(main, seed=1).value == 0.0


def test_a_deadlock_names_the_waiting_tasks() -> None:
    """JEP-139: a lost wake-up ends the run with a dump that names who waits and where."""
    cleaned_up = []

    async def forgotten_follower(event: trio.Event) -> None:
        try:
            await event.wait()
        finally:
            cleaned_up.append(True)

    async def main(sim: Simulation) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forgotten_follower, trio.Event())

    with pytest.raises(SimDeadlock) as caught:
        run_simulation(main, seed=1)
    assert "forgotten_follower" in str(caught.value)
    assert "await event.wait()" in str(caught.value)
    assert "seed=1" in caught.value.__notes__[0]
    assert cleaned_up == [True]


def test_a_deadlock_that_refuses_cancellation_is_reported_too() -> None:
    """In an interpreter of its own, because trio leaves its tasks lying."""
    script = """
import trio
from kraftpy.sim.clock import VirtualClock

clock = VirtualClock()

async def stubborn() -> None:
    with clock.simulated(), trio.CancelScope(shield=True):
        await trio.sleep_forever()

trio.run(stubborn, clock=clock)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "SimDeadlock: at virtual time" in done.stderr
    assert "stubborn" in done.stderr


def test_a_run_that_does_not_end_is_ended() -> None:
    async def main(sim: Simulation) -> None:
        clock = sim.world("node").clock
        while True:
            await clock.sleep(1)

    with pytest.raises(SimOverrun, match="50"):
        run_simulation(main, seed=1, time_limit_seconds=50)
