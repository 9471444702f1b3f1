"""The switchboard between simulated nodes: cuts, one-way cuts, delays, refusals, and healing."""

from __future__ import annotations

import errno
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
import trio

from kraftpy.faults.control import FaultyWorld
from kraftpy.faults.exchange import read_exactly, send_all
from kraftpy.faults.language import (
    ClockJump,
    CutClients,
    Delay,
    DiskFull,
    FailNext,
    Hold,
    OneWay,
    Partition,
    PowerLoss,
    Reset,
    api_key_of,
)
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


def request(api: str, correlation_id: int, body: bytes = b"") -> bytes:
    head = struct.pack(">hhi", api_key_of(api), 1, correlation_id)
    return struct.pack(">i", len(head + body)) + head + body


def response(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


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
    assert net.board.delayed_count == 4


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


@simulated
async def test_a_request_is_held_and_arrives_in_the_end(net: Net) -> None:
    """N23, JEP-112, JEP-126: what goes before it passes, what follows it waits."""
    _, stream, accepted = await net.connected()
    net.board.apply(Hold(2, "EndTxn"))
    before, held, after = request("Fetch", 1), request("EndTxn", 2, b"x" * 50), request("Fetch", 3)
    await send_all(stream, before + held + after)
    assert await arrives(accepted, before)
    assert not await arrives(accepted, held, LONG_SECONDS)
    assert net.board.holds.held_count == 1
    await send_all(accepted, response(1))
    assert await arrives(stream, response(1))
    await net.board.heal()
    assert net.board.holds.held_count == 0
    assert await arrives(accepted, held + after)


@simulated
async def test_only_so_many_are_held_and_only_of_that_kind(net: Net) -> None:
    """JEP-126"""
    _, stream, accepted = await net.connected()
    net.board.apply(Hold(2, "Produce", times=1, milliseconds=5_000))
    await send_all(stream, request("Produce", 1))
    assert not await arrives(accepted, request("Produce", 1), SHORT_SECONDS)
    await trio.sleep(5)
    await send_all(stream, request("Produce", 2))
    assert await arrives(accepted, request("Produce", 1) + request("Produce", 2))


@simulated
async def test_a_response_is_known_by_its_request(net: Net) -> None:
    """JEP-126: also when the two cross, and when bytes come one by one."""
    _, stream, accepted = await net.connected()
    net.board.apply(Hold(2, "Fetch", "response"))
    for byte in request("Produce", 7) + request("Fetch", 8):
        await send_all(stream, bytes([byte]))
    await read_exactly(accepted, len(request("Produce", 7) + request("Fetch", 8)))
    await send_all(accepted, response(7, b"well"))
    assert await arrives(stream, response(7, b"well"))
    await send_all(accepted, response(8))
    assert not await arrives(stream, response(8), LONG_SECONDS)


@simulated
async def test_a_held_request_arrives_although_its_sender_has_left(net: Net) -> None:
    """JEP-126: on a connection that was abandoned."""
    _, stream, accepted = await net.connected()
    net.board.apply(Hold(2, "EndTxn"))
    message = request("EndTxn", 1, b"commit")
    await send_all(stream, message)
    await trio.sleep(SHORT_SECONDS)
    stream.close()
    await trio.sleep(LONG_SECONDS)
    await net.board.heal()
    assert await arrives(accepted, message)


@simulated
async def test_connections_are_reset_once_and_only_those(net: Net) -> None:
    """N22, JEP-111"""
    first, stream, accepted = await net.connected()
    other = await net.listening(3)
    spared = await first.world.network.connect("node-3", PORT)
    reached = await other.accept()
    net.board.apply(Reset((2,), (1,)))
    for each in (stream, accepted):
        with pytest.raises(ConnectionError):
            await read_exactly(each, 1)
    assert net.board.reset_count == 1
    await send_all(spared, b"well")
    assert await arrives(reached, b"well")
    await first.world.network.connect("node-2", PORT)


@simulated
async def test_clients_that_come_through_a_door_can_be_cut_off(net: Net) -> None:
    """N1, client-cut: nodes still reach each other, also by the address that clients know."""
    listener = await net.listening(2)
    door = await net.nursery.start(net.board.run_door, "board", 2, lambda: ("node-2", PORT))
    client = await net.sim.world("client").network.connect("board", door[1])
    accepted = await listener.accept()
    await send_all(client, b"hello")
    assert await arrives(accepted, b"hello")
    net.board.apply(CutClients((2,)))
    await send_all(client, b"again")
    assert not await arrives(accepted, b"again", LONG_SECONDS)
    stream = await net.node(1).world.network.connect(*door)
    called = await listener.accept()
    await send_all(stream, b"node")
    assert await arrives(called, b"node")
    await net.board.heal()
    assert await arrives(accepted, b"again")


@simulated
async def test_a_clock_is_still_wrong_after_a_restart(net: Net) -> None:
    """N5: it is the machine's."""
    await net.nursery.start(net.node(1).obey)
    await net.board.tell(1, ClockJump(1, 3_600_000))
    again = net.node(1)
    await net.nursery.start(again.obey)
    ahead_ms = again.world.clock.wall_ms() - net.sim.world("node-1").clock.wall_ms()
    assert ahead_ms == 3_600_000


@simulated
async def test_a_node_that_has_lost_its_power_writes_no_more(net: Net) -> None:
    """N8, JEP-97"""
    node = net.node(1)
    await net.nursery.start(node.obey)
    file = node.world.disk.open("/file", write=True, create=True)
    file.pwrite([b"kept"], 0)
    await file.sync()
    file.pwrite([b"lost"], 4)
    await net.board.tell(1, PowerLoss(1))
    assert net.sim.world("node-1").disk.open("/file").pread(100, 0) == b"kept"
    with pytest.raises(OSError, match="Input/output"):
        file.pwrite([b"more"], 4)
    with pytest.raises(FaultRefusedError, match="a real node loses all"):
        await net.board.tell(1, PowerLoss(1, "prefix"))
