"""The switchboard between simulated nodes: cuts, one-way cuts, delays, refusals, and healing."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
import trio

from kraftpy.faults.control import FaultyWorld
from kraftpy.faults.exchange import read_exactly, send_all
from kraftpy.faults.language import Delay, DiskFull, FailNext, OneWay, Partition
from kraftpy.faults.switchboard import FaultRefusedError, Switchboard
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world import Address, Listener, Stream, World

PORT = 9092
NODES = {"node-1": 1, "node-2": 2, "node-3": 3}
# Of virtual time; a message between simulated machines takes a small fraction of it.
LONG_SECONDS = 60.0
SHORT_SECONDS = 1.0


@dataclass
class Net:
    sim: Simulation
    nursery: trio.Nursery
    board: Switchboard
    address: Address

    def node(self, node_id: int) -> FaultyWorld:
        world: World = self.sim.world(f"node-{node_id}")
        return FaultyWorld(world, node_id, self.address, die=lambda: None)

    async def connected(self) -> tuple[FaultyWorld, Stream, Stream]:
        """Node 1's and node 2's end of a connection that node 1 has made."""
        first = self.node(1)
        listener = await self.listening(2)
        stream = await first.world.network.connect("node-2", PORT)
        return first, stream, await listener.accept()

    async def listening(self, node_id: int) -> Listener:
        return await self.node(node_id).world.network.listen(None, PORT)


def simulated(test: Callable[[Net], Awaitable[None]]) -> Callable[[], None]:
    async def main(sim: Simulation) -> None:
        world = sim.world("board")
        switchboard = Switchboard(world.clock, world.network, lambda where: NODES.get(where[0]))
        async with trio.open_nursery() as nursery:
            address = await nursery.start(switchboard.run, "board")
            await test(Net(sim, nursery, switchboard, ("board", address[1])))
            nursery.cancel_scope.cancel()

    def run() -> None:
        run_simulation(main, seed=5, time_limit_seconds=3_600)

    run.__name__ = run.__qualname__ = test.__name__
    run.__doc__ = test.__doc__
    return run


async def arrives(stream: Stream, data: bytes, seconds: float = SHORT_SECONDS) -> bool:
    with trio.move_on_after(seconds):
        assert await read_exactly(stream, len(data)) == data
        return True
    return False


@simulated
async def test_bytes_pass_both_ways_and_so_does_the_end(net: Net) -> None:
    _, stream, accepted = await net.connected()
    data = bytes(range(256)) * 2_000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_all, stream, data)
        assert await read_exactly(accepted, len(data)) == data
    await send_all(accepted, b"answer")
    accepted.finish()
    assert await read_exactly(stream, 6) == b"answer"
    await stream.wait_readable()
    assert stream.receive_into(memoryview(bytearray(1))) == 0
    # Half of the connection is still there.
    await send_all(stream, b"late")
    assert await arrives(accepted, b"late")


@simulated
async def test_a_refusal_is_seen_as_one(net: Net) -> None:
    """Decision 14: it is evidence, and must not become a reset of something that stood."""
    net.node(2)
    with pytest.raises(ConnectionRefusedError) as caught:
        await net.node(1).world.network.connect("node-2", PORT)
    assert caught.value.errno == errno.ECONNREFUSED


@simulated
async def test_a_partition_holds_everything_back_until_it_heals(net: Net) -> None:
    """N1: nothing passes, nothing breaks, and all of it arrives in the end."""
    first, stream, accepted = await net.connected()
    net.board.apply(Partition((1,), (2,)))
    await send_all(stream, b"there")
    await send_all(accepted, b"back")
    assert not await arrives(accepted, b"there", LONG_SECONDS)
    assert not await arrives(stream, b"back", LONG_SECONDS)
    with pytest.raises(trio.TooSlowError), trio.fail_after(LONG_SECONDS):
        await first.world.network.connect("node-2", PORT)
    await net.board.heal()
    assert await arrives(accepted, b"there")
    assert await arrives(stream, b"back")


@simulated
async def test_others_are_not_cut(net: Net) -> None:
    await net.listening(3)
    net.board.apply(Partition((1,), (2,)))
    for node_id in (1, 2):
        with trio.fail_after(SHORT_SECONDS):
            await net.node(node_id).world.network.connect("node-3", PORT)


@simulated
async def test_one_way_cuts_one_way(net: Net) -> None:
    """N1, one-way, also for connections that stood before."""
    _, stream, accepted = await net.connected()
    net.board.apply(OneWay((2,), (1,)))
    await send_all(stream, b"there")
    await send_all(accepted, b"back")
    assert await arrives(accepted, b"there")
    assert not await arrives(stream, b"back", LONG_SECONDS)
    await net.board.heal()
    assert await arrives(stream, b"back")


@simulated
async def test_the_end_of_a_connection_does_not_pass_a_cut(net: Net) -> None:
    """Or a node would have evidence that it can't have."""
    _, stream, accepted = await net.connected()
    net.board.apply(Partition((1,), (2,)))
    accepted.reset()
    with trio.move_on_after(LONG_SECONDS) as scope:
        await stream.wait_readable()
    assert scope.cancelled_caught
    await net.board.heal()
    await stream.wait_readable()
    with pytest.raises(ConnectionError):
        stream.receive_into(memoryview(bytearray(1)))


@simulated
async def test_a_delay_delays_each_direction_and_keeps_order(net: Net) -> None:
    """N21: not the sum of what is in flight; a pipe is long, not narrow."""
    _, stream, accepted = await net.connected()
    net.board.apply(Delay((1,), (2,), 2_000))
    sent_at = trio.current_time()
    for part in (b"one ", b"two ", b"three"):
        await send_all(stream, part)
        await trio.sleep(0.1)
    assert await arrives(accepted, b"one two three", LONG_SECONDS)
    assert 2.0 < trio.current_time() - sent_at < 3.0
    await send_all(accepted, b"back")
    assert not await arrives(stream, b"back", 1.5)
    assert await arrives(stream, b"back")


@simulated
async def test_a_node_is_told_of_faults_and_of_healing(net: Net) -> None:
    node = net.node(1)
    await net.nursery.start(node.obey)
    await net.board.tell(1, DiskFull(1))
    with pytest.raises(OSError, match="No space left"):
        await node.world.disk.make_directory("/data")
    await net.board.heal()
    await node.world.disk.make_directory("/data")


@simulated
async def test_a_disk_is_still_full_after_a_restart(net: Net) -> None:
    """What a node begins with is in force before it runs."""
    await net.nursery.start(net.node(1).obey)
    await net.board.tell(1, DiskFull(1))
    again = net.node(1)
    await net.nursery.start(again.obey)
    with pytest.raises(OSError, match="No space left"):
        await again.world.disk.make_directory("/data")


@simulated
async def test_a_node_that_does_not_run_can_not_be_told(net: Net) -> None:
    with pytest.raises(FaultRefusedError, match="node 1 does not run"):
        await net.board.tell(1, FailNext("Produce", "UNKNOWN_SERVER_ERROR"))
