"""JEP-140: the same seed gives the same run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from ping_system import run_cluster

from kraftpy.sim.digest import first_difference
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation

SCRIPT = Path(__file__).with_name("ping_system.py")


def digest_in_new_interpreter(seed: int, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, str(SCRIPT), str(seed)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_same_seed_same_digest_in_process(seed: int) -> None:
    """JEP-140: twice in one process, with other runs between."""
    first = run_cluster(seed)
    run_cluster(seed + 1_000)
    assert run_cluster(seed) == first
    assert first.trace.event_count > 1_000


@contextmanager
def another_loop() -> Iterator[None]:
    """A loop of trio's in another thread, which has always something to do."""
    is_running = threading.Event()
    is_over = threading.Event()

    async def work() -> None:
        while not is_over.is_set():
            is_running.set()
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(work)

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    try:
        assert is_running.wait(60)
        yield
    finally:
        is_over.set()
        thread.join()


def test_same_seed_same_digest_beside_another_loop() -> None:
    """JEP-140: tests run simulations while a cluster for other tests lives in the same process."""
    expected = run_cluster(1)
    with another_loop():
        assert run_cluster(1) == expected


def test_same_seed_same_digest_in_new_interpreters_and_with_other_hash_seeds() -> None:
    """JEP-140."""
    expected = run_cluster(4).trace.digest
    assert [digest_in_new_interpreter(4, hash_seed) for hash_seed in ("0", "4711")] == [
        expected,
        expected,
    ]


def test_other_seeds_give_other_runs() -> None:
    digests = {run_cluster(seed).trace.digest for seed in range(10)}
    assert len(digests) == 10


def test_a_leak_of_nondeterminism_is_found_and_located() -> None:
    """JEP-140: a workload that depends on something outside the seed differs, and the search
    names the event.
    """
    runs = iter(range(100))

    async def main(sim: Simulation) -> None:
        run = next(runs)
        for number in range(2_500):
            await trio.sleep(0.001)
            sim.record("step", "node", b"leak" if number == 1_234 and run % 2 else b"fine")

    def run(window: range = range(0)) -> tuple[range | None, list[str]]:
        left = run_simulation(main, seed=1, window=window).trace
        right = run_simulation(main, seed=1, window=window).trace
        return first_difference(left, right), [*left.window_events, *right.window_events]

    window, _ = run()
    assert window == range(1_000, 2_000)
    found, events = run(window)
    assert found == range(1_234, 1_235)
    assert any("leak" in event for event in events)


def test_disk_effects_and_answers_are_in_the_digest() -> None:
    """The same messages, but another byte on a disk or another answer: another digest."""

    def digest_with(content: bytes, answer: bytes) -> str:
        async def main(sim: Simulation) -> None:
            file = sim.world("node").disk.open("/file", write=True, create=True)
            file.pwrite([content], 0)
            sim.record("answer", "client", answer)

        return run_simulation(main, seed=1).trace.digest

    assert digest_with(b"a", b"x") == digest_with(b"a", b"x")
    assert digest_with(b"a", b"x") != digest_with(b"b", b"x")
    assert digest_with(b"a", b"x") != digest_with(b"a", b"y")
