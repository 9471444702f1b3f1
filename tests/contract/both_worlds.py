"""One contract, several worlds: the machine itself, and its memory twins inside a simulation.

A test decorated with `in_both_worlds` is an async function of a Place. It runs in plain trio on the
real ports, once more with the network of nodes that share a process (`faults.mortal`), and under
the deterministic runner on the memory ones: once in good weather, once on slow links that hand out
a few bytes at a time, with clocks that drift.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trio

from kraftpy.faults.mortal import MortalNetwork
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world import Network, Stream, World
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_network import LinkProfile
from kraftpy.world.real import real_world

KINDS = ("real", "mortal", "memory", "memory in bad weather")
BAD_WEATHER = LinkProfile(
    latency_min_seconds=0.01,
    latency_mean_seconds=0.05,
    tail_probability=0.1,
    chunk_max_bytes=3_000,
    send_buffer_bytes=20_000,
    receive_buffer_bytes=10_000,
)


@dataclass(frozen=True, slots=True)
class Place:
    """A world to listen in, another to connect from, and how the first is called there."""

    world: World
    client: Network
    host: str
    directory: str

    async def connect(self) -> tuple[Stream, Stream]:
        """Both ends of a new connection, the connecting one first."""
        listener = await self.world.network.listen(self.host, 0)
        stream = await self.client.connect(*listener.address)
        accepted = await listener.accept()
        listener.close()
        return stream, accepted


def in_both_worlds(test: Callable[[Place], Awaitable[None]]) -> Callable[[str, Path], None]:
    @pytest.mark.parametrize("kind", KINDS)
    def run(kind: str, tmp_path: Path) -> None:
        if kind in ("real", "mortal"):
            trio.run(_in_real_world, test, str(tmp_path), kind == "mortal")
        else:
            run_simulation(
                lambda sim: _in_memory(test, sim, bad_weather=kind != "memory"),
                seed=11,
                time_limit_seconds=3_600,
            )

    run.__name__ = run.__qualname__ = test.__name__
    run.__doc__ = test.__doc__
    run.__module__ = test.__module__
    return run


async def _in_real_world(
    test: Callable[[Place], Awaitable[None]], directory: str, is_mortal: bool
) -> None:
    world = real_world()
    if is_mortal:
        world = replace(world, network=MortalNetwork(world.network))
    with trio.fail_after(60):
        await test(Place(world, world.network, "127.0.0.1", directory))


async def _in_memory(
    test: Callable[[Place], Awaitable[None]], sim: Simulation, *, bad_weather: bool
) -> None:
    if bad_weather:
        sim.machine("server", MemoryClock(rate=0.9, offset_seconds=300))
        sim.fabric.set_profile("client", "server", BAD_WEATHER)
        sim.fabric.set_profile("server", "client", BAD_WEATHER)
    server, client = sim.world("server"), sim.world("client")
    await server.disk.make_directory("/data")
    await test(Place(server, client.network, "server", "/data"))


async def send_all(stream: Stream, data: bytes) -> None:
    view = memoryview(data)
    while view:
        sent = stream.send([view])
        view = view[sent:]
        if not sent:
            await stream.wait_writable()


async def receive(stream: Stream, size: int = 65_536) -> bytes:
    """What comes next, waiting for it; empty when the peer has finished."""
    buffer = bytearray(size)
    while True:
        received = stream.receive_into(memoryview(buffer))
        if received is not None:
            return bytes(buffer[:received])
        await stream.wait_readable()


async def receive_all(stream: Stream) -> bytes:
    """Everything up to the end."""
    parts = []
    while part := await receive(stream):
        parts.append(part)
    return b"".join(parts)


async def fill(stream: Stream) -> int:
    """Send until nothing more is taken and nothing more arrives; how much was it?"""
    total = 0
    while True:
        sent = stream.send([bytes(65_536)])
        total += sent
        if sent == 0:
            with trio.move_on_after(0.3) as scope:
                await stream.wait_writable()
            if scope.cancelled_caught:
                return total
