"""Two whole nodes in the simulated world, their clients, and everything that may befall them.

Run as a script with a seed it prints the digest of one run, for comparison between interpreters.
"""

from __future__ import annotations

import sys

import trio

from kraftpy.client.connection import Peer
from kraftpy.client.errors import ConnectionLost, NegotiationFailed
from kraftpy.client.settings import ClientSettings
from kraftpy.config import NodeConfig, from_mapping
from kraftpy.node import Node
from kraftpy.protocol.schema.k03_metadata import MetadataRequest
from kraftpy.sim.runner import SimulationResult, run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.sim.whole.machines import formatted_node
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_network import LinkProfile

NODES = ("node-1", "node-2")
CLIENTS = ("client-1", "client-2")
PORT = 9092
MISFORTUNES = 12
WEATHER = LinkProfile(
    latency_mean_seconds=0.01, chunk_max_bytes=60, reset_probability=0.005, tail_probability=0.02
)
SETTINGS = ClientSettings(request_timeout_ms=400, socket_connection_setup_timeout_ms=400)


class Processes:
    """The nodes that run now; each can be stopped, killed, and started again."""

    def __init__(self, simulation: Simulation, nursery: trio.Nursery) -> None:
        self._simulation = simulation
        self._nursery = nursery
        self._scopes: dict[str, trio.CancelScope] = {}
        self._nodes: dict[str, Node] = {}
        self._ended: dict[str, trio.Event] = {}

    def start(self, name: str) -> None:
        self._nursery.start_soon(self._run, name)

    async def stop(self, name: str) -> None:
        """In order; returns when the node is down."""
        self._nodes[name].stop()
        await self._ended[name].wait()

    def end(self, name: str, *, with_machine: bool) -> None:
        if with_machine:
            self._simulation.vanish(name, CrashPolicy.DROP_ALL)
        else:
            self._simulation.kill(name)
        self._scopes[name].cancel()

    async def _run(self, name: str) -> None:
        world = self._simulation.world(name, buggify=True)
        ended = self._ended[name] = trio.Event()
        with trio.CancelScope() as self._scopes[name]:
            node = self._nodes[name] = await formatted_node(config_of(name), world)
            await node.run()
        self._simulation.record("ended", name)
        ended.set()


def config_of(name: str) -> NodeConfig:
    number = name.removeprefix("node-")
    settings = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": f"{number}@{name}:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{name}:{PORT},CONTROLLER://{name}:9093",
        "log.dirs": "/data",
        "connections.max.idle.ms": "3000",
        "max.connections.per.ip": "3",
    }
    return NodeConfig(from_mapping(settings, "the simulation"))


async def ask_all_the_time(simulation: Simulation, client: str, target: str) -> None:
    """What a client is told, and what it loses, is the run's history."""
    world = simulation.world(client)
    random = simulation.rng.stream(f"{client} asks {target}")
    async with trio.open_nursery() as nursery:
        peer = Peer(world, nursery, (target, PORT), SETTINGS)

        async def ask(number: int) -> None:
            try:
                answer = await peer.request(MetadataRequest())
                outcome = f"{number}: node {answer.controller_id}"
            except (ConnectionLost, NegotiationFailed) as failure:
                outcome = f"{number}: {failure}"
            simulation.record("outcome", f"{client} {target}", outcome.encode())

        while True:
            async with trio.open_nursery() as requests:
                for number in range(random.randint(1, 5)):
                    requests.start_soon(ask, number)
            await trio.sleep(random.expovariate(20))


async def send_garbage(simulation: Simulation, target: str) -> None:
    """Half a frame, a frame that is no request, a size that can't be; and never reading."""
    world = simulation.world("vandal")
    random = simulation.rng.stream("garbage")
    while True:
        await trio.sleep(random.expovariate(5))
        try:
            with world.clock.fail_after(0.5):
                stream = await world.network.connect(target, PORT)
        except (OSError, trio.TooSlowError):
            continue
        with trio.move_on_after(random.expovariate(2)):
            try:
                stream.send([random.randbytes(random.randint(1, 40))])
                await stream.wait_readable()
            except OSError:
                pass
        stream.close()


async def befall(simulation: Simulation, processes: Processes) -> None:
    """Faults one after the other, each healed before the next."""
    random = simulation.rng.stream("misfortune")
    for _ in range(MISFORTUNES):
        await trio.sleep(random.uniform(0.1, 0.6))
        node, client = random.choice(NODES), random.choice(CLIENTS)
        seconds = random.uniform(0.1, 1.5)
        match random.choice(("cut out", "cut in", "pause", "kill", "vanish", "stop")):
            case "cut out":
                simulation.fabric.cut(node, client)
                await trio.sleep(seconds)
                simulation.fabric.heal(node, client)
            case "cut in":
                simulation.fabric.cut(client, node)
                await trio.sleep(seconds)
                simulation.fabric.heal(client, node)
            case "pause":
                simulation.pause(node)
                await trio.sleep(seconds)
                simulation.resume(node)
            case "stop":
                await processes.stop(node)
                processes.start(node)
            case fate:
                processes.end(node, with_machine=fate == "vanish")
                await trio.sleep(seconds)
                processes.start(node)


async def system(simulation: Simulation) -> None:
    places = (*NODES, *CLIENTS, "vandal")
    for source in places:
        for target in places:
            if source != target:
                simulation.fabric.set_profile(source, target, WEATHER)
    async with trio.open_nursery() as nursery:
        processes = Processes(simulation, nursery)
        for name in NODES:
            processes.start(name)
        for client in CLIENTS:
            for target in NODES:
                nursery.start_soon(ask_all_the_time, simulation, client, target)
        nursery.start_soon(send_garbage, simulation, NODES[0])
        await befall(simulation, processes)
        await trio.sleep(2)
        nursery.cancel_scope.cancel()


def run_nodes(seed: int) -> SimulationResult[None]:
    print(f"seed {seed}")
    return run_simulation(system, seed=seed, time_limit_seconds=600)


if __name__ == "__main__":
    print(run_simulation(system, seed=int(sys.argv[1])).trace.digest)
