"""A FakeCluster behind real sockets, in a thread of its own, for blocking clients too."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import trio
from client.fake_cluster import FakeCluster
from client.peers import ScriptedConnection
from client.sim_shell import REFUSALS, Fault

from kraftpy.protocol.schema.k00_produce import ProduceRequest
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest
from kraftpy.world import Address, Stream
from kraftpy.world.real import real_world


@contextmanager
def fake_nodes(cluster: FakeCluster, faults: Iterable[Fault] = ()) -> Iterator[list[Address]]:
    """The nodes listen on ports of 127.0.0.1 while the block runs; their addresses.

    Produce requests meet the faults one after the other.
    """
    ready: queue.Queue[tuple[trio.lowlevel.TrioToken, trio.CancelScope]] = queue.Queue()
    thread = threading.Thread(
        target=trio.run, args=(partial(_serve, cluster, deque(faults), ready),), daemon=True
    )
    thread.start()
    token, scope = ready.get(timeout=60)
    try:
        yield list(cluster.addresses.values())
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join(60)


async def _serve(
    cluster: FakeCluster,
    faults: deque[Fault],
    ready: queue.Queue[tuple[trio.lowlevel.TrioToken, trio.CancelScope]],
) -> None:
    network = real_world().network

    async def talk(node_id: int, stream: Stream) -> None:
        connection = ScriptedConnection(stream)
        try:
            await connection.negotiate()
            while True:
                await _answer(cluster, faults, node_id, connection)
        except (EOFError, OSError):
            pass
        finally:
            stream.close()

    async with trio.open_nursery() as nursery:

        async def listen(node_id: int) -> None:
            listener = await network.listen("127.0.0.1", 0)
            cluster.addresses[node_id] = listener.address
            try:
                while True:
                    nursery.start_soon(talk, node_id, await listener.accept())
            finally:
                listener.close()

        for node_id in list(cluster.addresses):
            nursery.start_soon(listen, node_id)
        await trio.testing.wait_all_tasks_blocked()
        ready.put((trio.lowlevel.current_trio_token(), nursery.cancel_scope))
        await trio.sleep_forever()


async def _answer(
    cluster: FakeCluster, faults: deque[Fault], node_id: int, connection: ScriptedConnection
) -> None:
    request, version, correlation_id = await connection.read_message()
    assert not isinstance(request, ApiVersionsRequest)
    fault = Fault.NONE
    if isinstance(request, ProduceRequest) and faults:
        fault = faults.popleft()
    if fault is Fault.LEADER_MOVES:
        for where in cluster.partitions:
            cluster.move(where)
    if fault is Fault.REQUEST_LOST:
        raise EOFError
    answer = cluster.handle(node_id, request, REFUSALS.get(fault))
    if fault in (Fault.ANSWER_LOST, Fault.ALL_ANSWERS_LOST):
        raise EOFError
    if isinstance(request, ProduceRequest) and request.acks == 0:
        return
    await connection.answer(answer, version, correlation_id)
