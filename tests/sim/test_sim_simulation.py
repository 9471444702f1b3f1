"""Machines and processes of a simulation, and its rare choices."""

from __future__ import annotations

import pytest
import trio
from ping_system import receive_exactly, send_all

from kraftpy.sim.buggify import Buggify
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_rng import MemoryRng


def test_a_killed_process_leaves_its_disk_and_closes_its_connections() -> None:
    async def main(sim: Simulation) -> None:
        server, client = sim.world("server"), sim.world("client")
        listener = await server.network.listen(None, 9092)
        stream = await client.network.connect("server", 9092)
        accepted = await listener.accept()
        file = server.disk.open("/file", write=True, create=True)
        file.pwrite([b"unsynced"], 0)
        sim.kill("server")
        await stream.wait_readable()
        assert stream.receive_into(memoryview(bytearray(1))) == 0
        with pytest.raises(ConnectionRefusedError):
            await client.network.connect("server", 9092)
        again = sim.world("server")
        assert again.disk.open("/file").pread(100, 0) == b"unsynced"
        assert accepted.send([b"from the grave"]) == 14
        await again.network.listen(None, 9092)

    run_simulation(main, seed=1)


def test_a_vanished_machine_tells_nobody_and_loses_what_was_not_synced() -> None:
    async def main(sim: Simulation) -> None:
        server, client = sim.world("server"), sim.world("client")
        await server.network.listen(None, 9092)
        stream = await client.network.connect("server", 9092)
        file = server.disk.open("/file", write=True, create=True)
        file.pwrite([b"unsynced"], 0)
        sim.vanish("server", CrashPolicy.DROP_ALL)
        with trio.move_on_after(60) as silence:
            await stream.wait_readable()
        assert silence.cancelled_caught
        with pytest.raises(FileNotFoundError):
            sim.world("server").disk.open("/file")
        await send_all(stream, b"are you there?")
        await stream.wait_readable()
        with pytest.raises(ConnectionResetError):
            stream.receive_into(memoryview(bytearray(1)))

    run_simulation(main, seed=1)


def test_a_paused_process_hears_nothing_and_then_everything() -> None:
    async def main(sim: Simulation) -> list[float]:
        server, client = sim.world("server"), sim.world("client")
        listener = await server.network.listen(None, 9092)
        stream = await client.network.connect("server", 9092)
        accepted = await listener.accept()
        woken: list[float] = []

        async def sleep() -> None:
            await server.clock.sleep(1)
            woken.append(trio.current_time())

        async def wait_with_deadline() -> None:
            with server.clock.move_on_after(1):
                await trio.sleep_forever()
            woken.append(trio.current_time())

        async def receive() -> None:
            await receive_exactly(accepted, 5)
            woken.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            for waiter in (sleep, wait_with_deadline, receive):
                nursery.start_soon(waiter)
            await trio.sleep(0.1)
            sim.pause("server")
            await send_all(stream, b"hello")
            await trio.sleep_until(10)
            assert woken == []
            sim.resume("server")
        return woken

    assert run_simulation(main, seed=1).value == [10, 10, 10]


def test_processes_on_one_machine_draw_different_numbers() -> None:
    async def main(sim: Simulation) -> list[int]:
        drawn = []
        for _ in range(3):
            drawn.append(sim.world("node").rng.stream("election").getrandbits(64))
            sim.kill("node")
        return drawn

    drawn = run_simulation(main, seed=1).value
    assert len(set(drawn)) == 3
    assert drawn == run_simulation(main, seed=1).value


def test_buggify_enables_a_quarter_of_the_sites_in_each_run() -> None:
    """Rule 12: enabled with p = 0.25, then firing with 0.05 to 0.25."""
    enabled = 0
    for seed in range(20):
        buggify = Buggify(MemoryRng(seed))
        for site in range(20):
            fired = sum(buggify(f"site {site}") for _ in range(500))
            assert fired == 0 or 5 < fired < 175
            enabled += fired > 0
    assert 60 < enabled < 140


def test_buggify_is_off_unless_asked_for() -> None:
    async def main(sim: Simulation) -> tuple[bool, bool]:
        sites = [str(number) for number in range(200)]
        plain, rare = sim.world("a").buggify, sim.world("b", buggify=True).buggify
        return any(map(plain, sites)), any(map(rare, sites))

    assert run_simulation(main, seed=1).value == (False, True)
