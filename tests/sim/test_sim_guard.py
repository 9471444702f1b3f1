"""JEP-131: inside a simulation the machine is out of reach, and outside it nothing has changed."""

from __future__ import annotations

import importlib
import linecache
import logging
import os
import random
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from kraftpy.sim.guard import SimulationRuleBroken
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world.real import real_world

# Written as source: a function object taken here would be taken before the guard is armed, which is
# for the linter to see.
TOOLS = """
rule 1: time.time()
rule 1: time.monotonic_ns()
rule 1: time.sleep(0)
rule 1: real_world().clock.monotonic()
rule 2: random.random()
rule 2: random.shuffle([1, 2])
rule 2: random.Random()
rule 2: random.SystemRandom().random()
rule 2: os.urandom(1)
rule 2: secrets.token_bytes(1)
rule 2: uuid.uuid4()
rule 2: real_world().rng.stream("x")
rule 3: socket.socket()
rule 3: socket.getaddrinfo("localhost", 80)
rule 4: open(__file__)
rule 4: io.open(__file__)
rule 4: io.FileIO(__file__)
rule 4: os.open(__file__, os.O_RDONLY)
rule 4: pathlib.Path(__file__).read_bytes()
rule 4: os.listdir("/")
rule 4: os.mkdir("/tmp/kraftpy-never-made")
rule 4: os.unlink("/tmp/kraftpy-never-made")
rule 4: mmap.mmap(-1, 10)
rule 4: real_world().disk.open(__file__)
rule 6: threading.Thread(target=print).start()
rule 6: _thread.start_new_thread(print, ())
rule 6: subprocess.run(["true"], check=True)
rule 6: os.system("true")
rule 6: os.fork()
"""
CASES = [line.split(": ") for line in TOOLS.strip().splitlines()]
MODULES = (
    *("_thread", "io", "mmap", "os", "pathlib", "random", "secrets"),
    *("socket", "subprocess", "threading", "time", "uuid"),
)
NAMES = {module: importlib.import_module(module) for module in MODULES}


@pytest.mark.parametrize(("rule", "tool"), CASES, ids=[tool for _, tool in CASES])
def test_the_machine_is_refused(rule: str, tool: str) -> None:
    """JEP-131: the error names the rule and who broke it."""
    names = {**NAMES, "real_world": real_world, "__file__": __file__, "__name__": "the_culprit"}

    async def main(sim: Simulation) -> None:
        eval(tool, names)

    with pytest.raises(SimulationRuleBroken, match=rule) as caught:
        run_simulation(main, seed=1)
    culprit = "kraftpy.world.real_" if "real_world" in tool else "the_culprit"
    assert str(caught.value).startswith(culprit)


def test_a_handler_that_survives_everything_does_not_survive_this() -> None:
    async def main(sim: Simulation) -> None:
        async def stubborn() -> None:
            with suppress(Exception):
                time.monotonic()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stubborn)

    with pytest.raises(SimulationRuleBroken):
        run_simulation(main, seed=1)


def test_threads_of_trio_are_refused() -> None:
    async def main(sim: Simulation) -> None:
        await trio.to_thread.run_sync(len, "")

    with pytest.raises(SimulationRuleBroken, match="rule 6"):
        run_simulation(main, seed=1)


def test_everything_works_again_afterwards() -> None:
    originals = (time.monotonic, random.random, os.urandom, random.Random.seed)

    async def main(sim: Simulation) -> None:
        assert time.monotonic is not originals[0]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_simulation(main, seed=1)
    assert (time.monotonic, random.random, os.urandom, random.Random.seed) == originals
    assert Path(__file__).stat().st_size == len(Path(__file__).read_bytes())
    assert random.Random().random() < 1


def test_what_python_itself_needs_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Importing, tracebacks with source lines, and logging."""
    (tmp_path / "imported_in_simulation.py").write_text("def fail():\n    raise KeyError('gone')\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def main(sim: Simulation) -> str:
        module = importlib.import_module("imported_in_simulation")
        linecache.clearcache()
        try:
            module.fail()
        except KeyError:
            logging.getLogger("kraftpy.sim.test").warning("seen")
            return traceback.format_exc()
        return ""

    try:
        shown = run_simulation(main, seed=1).value
    finally:
        sys.modules.pop("imported_in_simulation", None)
    assert "raise KeyError('gone')" in shown
    assert "seen" in caplog.text


def test_a_module_that_reaches_out_while_imported_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing is privileged, the code of the imported module is not."""
    (tmp_path / "reaching_out.py").write_text("open(__file__)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def main(sim: Simulation) -> None:
        importlib.import_module("reaching_out")

    with pytest.raises(SimulationRuleBroken, match="reaching_out used open"):
        run_simulation(main, seed=1)


def test_other_threads_are_left_alone() -> None:
    go, done = threading.Event(), threading.Event()
    read: list[object] = []

    def other() -> None:
        go.wait()
        read.append((time.monotonic(), random.Random().random(), os.listdir("/")))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    async def main(sim: Simulation) -> bool:
        go.set()
        return done.wait(60)

    assert run_simulation(main, seed=1).value
    thread.join()
    assert read
