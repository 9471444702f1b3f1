"""A small system to be simulated: nodes that ping each other and write down what they hear.

Run as a script with a seed it prints the digest of one run, for comparison between interpreters.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import trio

from kraftpy.sim.runner import SimulationResult, run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world import Stream, World
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_network import LinkProfile

NODES = ("node-1", "node-2", "node-3")
PORT = 9092
MESSAGE_BYTES = 64


async def send_all(stream: Stream, data: bytes) -> None:
    view = memoryview(data)
    while view:
        sent = stream.send([view])
        view = view[sent:]
        if not sent:
            await stream.wait_writable()


async def receive_exactly(stream: Stream, length: int) -> bytes:
    buffer = bytearray(length)
    position = 0
    while position < length:
        received = stream.receive_into(memoryview(buffer)[position:])
        if received is None:
            await stream.wait_readable()
        elif received == 0:
            raise EOFError
        else:
            position += received
    return bytes(buffer)


async def node(world: World, peers: list[str], journal_path: str) -> None:
    """Echo to everyone and ping every peer, a journal line for each answer."""
    journal = world.disk.open(journal_path, write=True, create=True)
    random = world.rng.stream("ping")
    listener = await world.network.listen(None, PORT)

    async def echo(stream: Stream) -> None:
        try:
            while True:
                await send_all(stream, await receive_exactly(stream, MESSAGE_BYTES))
        except (ConnectionError, EOFError):
            stream.close()

    async def accept(nursery: trio.Nursery) -> None:
        while True:
            nursery.start_soon(echo, await listener.accept())

    async def ping(peer: str) -> None:
        while True:
            try:
                with world.clock.fail_after(1.0):
                    stream = await world.network.connect(peer, PORT)
                try:
                    while True:
                        message = random.randbytes(MESSAGE_BYTES)
                        with world.clock.fail_after(0.5):
                            await send_all(stream, message)
                            assert await receive_exactly(stream, MESSAGE_BYTES) == message
                        line = f"{world.clock.wall_ms()} {peer}\n".encode()
                        journal.pwrite([line], journal.size())
                        await journal.sync()
                        await world.clock.sleep(random.expovariate(10))
                finally:
                    stream.close()
            except (ConnectionError, EOFError, trio.TooSlowError):
                await world.clock.sleep(0.05 + random.random() / 10)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept, nursery)
        for peer in peers:
            nursery.start_soon(ping, peer)


async def cluster(sim: Simulation) -> dict[str, int]:
    """Ten seconds of three nodes under drift, weather, cuts, a pause and a loss of power."""
    random = sim.rng.stream("faults")
    base = LinkProfile(latency_min_seconds=0.001, latency_mean_seconds=0.005, tail_probability=0.01)
    for source in NODES:
        sim.machine(source, MemoryClock(rate=random.uniform(0.9, 1.1), wall_offset_ms=5_000))
        for target in NODES:
            profile = replace(base, reset_probability=random.choice((0.0, 0.002)))
            sim.fabric.set_profile(source, target, profile)
    scopes: dict[str, trio.CancelScope] = {}

    async def run_node(name: str) -> None:
        world = sim.world(name)
        await world.disk.make_directory("/data")
        with trio.CancelScope() as scopes[name]:
            peers = [peer for peer in NODES if peer != name]
            await node(world, peers, "/data/journal")

    async with trio.open_nursery() as nursery:
        for name in NODES:
            nursery.start_soon(run_node, name)
        for _ in range(10):
            await trio.sleep(random.uniform(0.2, 0.8))
            source, target = random.sample(NODES, 2)
            sim.fabric.cut(source, target)
            await trio.sleep(random.uniform(0.1, 0.6))
            sim.fabric.heal(source, target)
        sim.pause("node-1")
        await trio.sleep(0.5)
        sim.resume("node-1")
        sim.vanish("node-2", CrashPolicy.PREFIX)
        scopes["node-2"].cancel()
        await trio.sleep(0.5)
        nursery.start_soon(run_node, "node-2")
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    sizes = {}
    for name in NODES:
        sizes[name] = sim.machine(name).disk.open("/data/journal").size()
        sim.record("answer", name, str(sizes[name]).encode())
    return sizes


def run_cluster(seed: int, window: range = range(0)) -> SimulationResult[dict[str, int]]:
    return run_simulation(cluster, seed=seed, time_limit_seconds=600, window=window)


if __name__ == "__main__":
    print(run_cluster(int(sys.argv[1])).trace.digest)
