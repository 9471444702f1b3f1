"""What becomes of requests to other members, and what counts as evidence of a death."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import trio
from driver_rig import bound_server
from raft_cluster import CLUSTER_ID, config_of
from support.lone_node import LoneNode

from kraftpy.api.dispatch import Dispatcher
from kraftpy.api.handler import Handler
from kraftpy.api.raft_handlers import raft_handlers
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import encode_response
from kraftpy.protocol.schema import k52_vote as vote
from kraftpy.protocol.schema.k18_api_versions import ApiVersion, ApiVersionsResponse
from kraftpy.raft.effects import Send
from kraftpy.raft.inputs import (
    Input,
    PeerUnreachable,
    RaftRequest,
    RaftResponse,
    RequestFailed,
    ResponseReceived,
)
from kraftpy.raft.peers import Peers, peer_settings
from kraftpy.raft.voters import Endpoint
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world import Stream

SEED = 5
PORT = 9093
PRE_VOTE = vote.VoteRequest(
    topics=[vote.RequestTopicData(partitions=[vote.RequestPartitionData(pre_vote=True)])]
)


class Responder:
    """A member that answers each vote at once, or never."""

    def __init__(self, *, is_silent: bool = False) -> None:
        self.is_silent = is_silent

    def submit(self, request: RaftRequest, reply: Callable[[RaftResponse], None]) -> bool:
        if not self.is_silent:
            reply(vote.VoteResponse())
        return True


class Rig:
    """Peers of a core on the machine `here`, and what they report."""

    def __init__(self, simulation: Simulation, nursery: trio.Nursery) -> None:
        self.simulation = simulation
        self.reported: list[Input] = []
        self._arrived = trio.Event()
        self._scopes: dict[str, trio.CancelScope] = {}
        self._nursery = nursery
        self._count = 0
        self.peers = Peers(
            simulation.world("here"), nursery, peer_settings(config_of(1)), self._report
        )
        nursery.start_soon(self._expire)

    async def _expire(self) -> None:
        """As the driver does whenever the core's time has come."""
        while True:
            await trio.sleep(0.1)
            self.peers.expire()

    def _report(self, event: Input) -> None:
        self.reported.append(event)
        self._arrived.set()

    async def serve(self, name: str, handlers: Iterable[Handler]) -> None:
        """Start a process there that serves these."""
        world = self.simulation.world(name)
        server = await bound_server(world, name, PORT)
        features = LoneNode(
            cluster_id=CLUSTER_ID,
            node_id=2,
            rack=None,
            broker_endpoints={},
            controller_endpoints={},
        )
        service = Dispatcher(
            handlers,
            features=features,
            metrics=RequestMetrics(MetricRegistry()),
            clock=world.clock,
        )
        scope = self._scopes[name] = trio.CancelScope()

        async def run(task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await server.run(task_status=task_status)

        await self._nursery.start(run)
        await server.enable({"CONTROLLER": service})

    def kill(self, name: str) -> None:
        self.simulation.kill(name)
        self._scopes[name].cancel()

    def ask(self, name: str, request: RaftRequest = PRE_VOTE) -> None:
        self._count += 1
        address = Endpoint("CONTROLLER", name, PORT)
        self.peers.send(Send(2, address, self._count, request, 0))

    async def reports(self, count: int) -> list[Input]:
        """The next reports, this many, in order."""
        with trio.fail_after(60):
            while len(self.reported) < count:
                self._arrived = trio.Event()
                await self._arrived.wait()
        reports, self.reported = self.reported[:count], self.reported[count:]
        return reports


def simulate(scenario: Callable[[Rig], Awaitable[None]]) -> None:
    async def main(simulation: Simulation) -> None:
        async with trio.open_nursery() as nursery:
            await scenario(Rig(simulation, nursery))
            nursery.cancel_scope.cancel()

    run_simulation(main, seed=SEED, time_limit_seconds=60)


def lost(correlation_id: int) -> RequestFailed:
    return RequestFailed(2, correlation_id, ErrorCode.BROKER_NOT_AVAILABLE)


def test_a_process_that_dies_with_a_request_is_dead_at_once() -> None:
    """Decision 14: nobody needs to ask again."""

    async def scenario(rig: Rig) -> None:
        await rig.serve("there", raft_handlers(Responder(is_silent=True)))
        rig.ask("there")
        await trio.sleep(1)
        rig.kill("there")
        died = trio.current_time()
        assert await rig.reports(2) == [lost(1), PeerUnreachable(2)]
        assert trio.current_time() - died < 0.05

    simulate(scenario)


def test_a_process_that_dies_between_requests_is_dead_when_asked() -> None:
    """Decision 14: the break was seen while nobody waited; each refusal is evidence."""

    async def scenario(rig: Rig) -> None:
        await rig.serve("there", raft_handlers(Responder()))
        rig.ask("there")
        (answer,) = await rig.reports(1)
        assert isinstance(answer, ResponseReceived)
        rig.kill("there")
        await trio.sleep(1)
        rig.ask("there")
        assert await rig.reports(2) == [PeerUnreachable(2), lost(2)]
        rig.ask("there")
        assert await rig.reports(2) == [PeerUnreachable(2), lost(3)]
        await rig.serve("there", raft_handlers(Responder()))
        rig.ask("there")
        (answer,) = await rig.reports(1)
        assert isinstance(answer, ResponseReceived)

    simulate(scenario)


def test_a_port_that_was_never_open_proves_nothing() -> None:
    """Decision 14: no connection broke. Perhaps the process is about to start."""

    async def scenario(rig: Rig) -> None:
        rig.simulation.world("there")
        for number in (1, 2, 3):
            rig.ask("there")
            assert await rig.reports(1) == [lost(number)]
        await trio.sleep(5)
        assert not rig.reported

    simulate(scenario)


def test_silence_proves_nothing_even_if_the_port_refuses_later() -> None:
    """Decision 14: the connection was given up by us, for lack of an answer."""

    async def scenario(rig: Rig) -> None:
        await rig.serve("there", raft_handlers(Responder(is_silent=True)))
        rig.ask("there")
        asked = trio.current_time()
        assert await rig.reports(1) == [lost(1)]
        assert trio.current_time() - asked >= 2
        rig.kill("there")
        await trio.sleep(1)
        rig.ask("there")
        assert await rig.reports(1) == [lost(2)]
        await trio.sleep(5)
        assert not rig.reported

    simulate(scenario)


def test_an_answer_ends_the_evidence() -> None:
    """Decision 14: a break of long ago proves nothing about a node that has answered since."""

    async def scenario(rig: Rig) -> None:
        await rig.serve("there", raft_handlers(Responder()))
        rig.ask("there")
        await rig.reports(1)
        rig.kill("there")
        await trio.sleep(1)
        again = Responder()
        await rig.serve("there", raft_handlers(again))
        rig.ask("there")
        (answer,) = await rig.reports(1)
        assert isinstance(answer, ResponseReceived)
        again.is_silent = True
        rig.ask("there")
        assert await rig.reports(1) == [lost(3)]
        rig.kill("there")
        rig.ask("there")
        assert await rig.reports(1) == [lost(4)]
        await trio.sleep(1)
        assert not rig.reported

    simulate(scenario)


def test_an_api_that_is_not_served_is_a_matter_of_versions() -> None:
    """KRF-10: the core must know that from a lost connection."""

    async def scenario(rig: Rig) -> None:
        await rig.serve("there", [])
        rig.ask("there")
        assert await rig.reports(1) == [RequestFailed(2, 1, ErrorCode.UNSUPPORTED_VERSION)]

    simulate(scenario)


def test_a_pre_vote_that_no_common_version_can_carry_is_one_too() -> None:
    """KRF-10: Vote 1 knows no pre-votes, and a real vote in its place would be another question."""

    async def scenario(rig: Rig) -> None:
        listener = await rig.simulation.world("there").network.listen("there", PORT)
        rig.ask("there")
        stream = await listener.accept()
        await stream.wait_readable()
        known = [ApiVersion(api_key=52, min_version=0, max_version=1)]
        parts = encode_response(ApiVersionsResponse(api_keys=known), 4, 0)
        stream.send([bytes(part) for part in parts])  # type: ignore[arg-type]
        assert await rig.reports(1) == [RequestFailed(2, 1, ErrorCode.UNSUPPORTED_VERSION)]

    simulate(scenario)


def test_a_node_that_will_not_talk_is_not_a_lost_connection() -> None:
    async def scenario(rig: Rig) -> None:
        listener = await rig.simulation.world("there").network.listen("there", PORT)
        rig.ask("there")
        stream = await listener.accept()
        await stream.wait_readable()
        refusal = ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        stream.send([bytes(part) for part in encode_response(refusal, 4, 0)])  # type: ignore[arg-type]
        assert await rig.reports(1) == [RequestFailed(2, 1, ErrorCode.NETWORK_EXCEPTION)]

    simulate(scenario)


def test_a_node_that_moved_is_asked_where_it_is_now() -> None:
    """KRF-80: and what was known of the old place is not held against the new one."""

    async def scenario(rig: Rig) -> None:
        await rig.serve("there", raft_handlers(Responder()))
        await rig.serve("elsewhere", raft_handlers(Responder()))
        rig.ask("there")
        await rig.reports(1)
        rig.kill("there")
        await trio.sleep(1)
        rig.ask("elsewhere")
        (answer,) = await rig.reports(1)
        assert isinstance(answer, ResponseReceived)
        rig.kill("elsewhere")
        rig.simulation.world("nowhere")
        rig.ask("nowhere")
        assert await rig.reports(1) == [lost(3)]

    simulate(scenario)


async def tell_versions(stream: Stream, *api_keys: int) -> None:
    """Let the other side know that these APIs are served, whatever it asks."""
    await stream.wait_readable()
    known = [ApiVersion(api_key=key, min_version=0, max_version=4) for key in api_keys]
    parts = encode_response(ApiVersionsResponse(api_keys=known), 4, 0)
    stream.send([bytes(part) for part in parts])  # type: ignore[arg-type]


def test_who_breaks_a_connection_and_forgets_its_versions_ends_nothing() -> None:
    """The question that looks for evidence has to be one that the node knows, too."""

    async def scenario(rig: Rig) -> None:
        listener = await rig.simulation.world("there").network.listen("there", PORT)
        rig.ask("there")
        stream = await listener.accept()
        await tell_versions(stream, 52)
        await trio.sleep(0.1)
        stream.close()
        assert await rig.reports(1) == [lost(1)]
        await tell_versions(await listener.accept(), 52)
        await trio.sleep(1)
        rig.ask("there")
        assert not rig.reported

    simulate(scenario)


def test_the_end_of_the_old_place_proves_nothing_of_the_new_one() -> None:
    """Decision 14, KRF-80: the node moved while the old place was being looked at."""

    async def scenario(rig: Rig) -> None:
        listener = await rig.simulation.world("there").network.listen("there", PORT)
        await rig.serve("elsewhere", raft_handlers(Responder()))
        rig.ask("there")
        stream = await listener.accept()
        await tell_versions(stream, 18, 52)
        await trio.sleep(0.1)
        listener.close()
        stream.close()
        assert await rig.reports(1) == [lost(1)]
        rig.ask("elsewhere")
        (answer,) = await rig.reports(1)
        assert isinstance(answer, ResponseReceived)
        await trio.sleep(1)
        assert not rig.reported

    simulate(scenario)
