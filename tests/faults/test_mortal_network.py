"""A node's own network in a process that it shares: it pauses, and it ends, alone."""

from __future__ import annotations

import pytest
import trio

from kraftpy.faults.exchange import read_exactly, send_all
from kraftpy.faults.mortal import MortalNetwork
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world import Network, Stream

PORT = 9092
LONG_SECONDS = 60.0


async def both_ends(sim: Simulation) -> tuple[MortalNetwork, Network, Stream, Stream]:
    """A mortal server, a client, and both ends of a connection; the server's end first."""
    server = MortalNetwork(sim.world("server").network)
    client = sim.world("client").network
    listener = await server.listen(None, PORT)
    stream = await client.connect("server", PORT)
    return server, client, await listener.accept(), stream


async def pausing(sim: Simulation) -> None:
    server, _, accepted, stream = await both_ends(sim)
    server.pause()
    await send_all(stream, b"ping")
    with trio.move_on_after(LONG_SECONDS) as scope:
        await accepted.wait_readable()
    assert scope.cancelled_caught
    assert accepted.receive_into(memoryview(bytearray(4))) is None
    assert accepted.send([b"pong"]) == 0
    with pytest.raises(trio.TooSlowError), trio.fail_after(LONG_SECONDS):
        await server.connect("client", PORT)
    server.resume()
    assert await read_exactly(accepted, 4) == b"ping"
    await send_all(accepted, b"pong")
    assert await read_exactly(stream, 4) == b"pong"


def test_a_paused_node_neither_receives_nor_sends_until_it_is_resumed() -> None:
    run_simulation(pausing, seed=3, time_limit_seconds=3_600)


async def ending(sim: Simulation) -> None:
    server, client, _, stream = await both_ends(sim)
    server.end()
    await stream.wait_readable()
    with pytest.raises(ConnectionResetError):
        stream.receive_into(memoryview(bytearray(4)))
    with pytest.raises(ConnectionRefusedError):
        await client.connect("server", PORT)
    # And whoever comes next can have the port.
    await server.listen(None, PORT)


def test_a_dead_node_resets_its_connections_and_frees_its_ports() -> None:
    run_simulation(ending, seed=3, time_limit_seconds=3_600)
