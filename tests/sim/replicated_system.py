"""Three whole nodes and their clients in one simulated world: kills, power cuts, partitions.

Each run ends with everything healed. Then every record that was acknowledged must be there, once
and in the order of its producer, and all replicas of a partition must have the same bytes.

Run as a script with a seed it prints the digest of one run, for comparison between interpreters.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import trio
from support.nodes import formatted_node

from kraftpy.client.admin import Admin, open_admin
from kraftpy.client.admin_operations import NewTopic, create_topics, describe_topics, require
from kraftpy.client.consumer import open_consumer
from kraftpy.client.errors import KafkaError
from kraftpy.client.producer import Producer, open_producer
from kraftpy.client.settings import AdminSettings, ClientSettings, ProducerSettings
from kraftpy.config import NodeConfig, from_mapping
from kraftpy.node import Node
from kraftpy.sim.runner import SimulationResult, run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_network import LinkProfile

NODES = ("n1", "n2", "n3")
CLIENT = "client"
TOPIC = "t"
PARTITIONS = 2
PORT = 9092
BOOTSTRAP = [(name, PORT) for name in NODES]
SECONDS = 60
WEATHER = LinkProfile(latency_mean_seconds=0.002, tail_probability=0.005)
QUICK = ClientSettings(request_timeout_ms=3_000, reconnect_backoff_max_ms=200)


def config_of(name: str) -> NodeConfig:
    number = name.removeprefix("n")
    voters = ",".join(f"{each.removeprefix('n')}@{each}:9093" for each in NODES)
    settings = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{name}:{PORT},CONTROLLER://{name}:9093",
        "log.dirs": "/data",
        "replica.lag.time.max.ms": "2000",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    return NodeConfig(from_mapping(settings, "the simulation"))


@dataclass
class Processes:
    """The nodes that run now."""

    simulation: Simulation
    nursery: trio.Nursery
    scopes: dict[str, trio.CancelScope] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    ended: dict[str, trio.Event] = field(default_factory=dict)

    def start(self, name: str) -> None:
        self.ended[name] = trio.Event()
        self.scopes[name] = trio.CancelScope()
        self.nursery.start_soon(self._run, name)

    async def _run(self, name: str) -> None:
        with self.scopes[name]:
            node = await formatted_node(config_of(name), self.simulation.world(name))
            self.nodes[name] = node
            await node.run()
        self.simulation.record("ended", name)
        self.ended[name].set()

    async def kill(self, name: str, policy: CrashPolicy | None) -> None:
        """A process that is killed, or, with a policy for its disk, a machine that loses power."""
        if policy is None:
            self.simulation.kill(name)
        else:
            self.simulation.vanish(name, policy)
        self.scopes[name].cancel()
        await self.ended[name].wait()


async def befall(simulation: Simulation, processes: Processes) -> None:
    """One misfortune after the other; one node at a time, so that a majority goes on."""
    random = simulation.rng.stream("misfortune")
    until = trio.current_time() + SECONDS
    while trio.current_time() < until:
        await trio.sleep(random.uniform(1, 4))
        name = random.choice(NODES)
        seconds = random.uniform(0.2, 5)
        others = [each for each in (*NODES, CLIENT) if each != name]
        match random.choice(("kill", "power", "part", "pause", "stop")):
            case "kill":
                await processes.kill(name, None)
                await trio.sleep(seconds)
                processes.start(name)
            case "power":
                await processes.kill(
                    name, random.choice((CrashPolicy.DROP_ALL, CrashPolicy.KEEP_ALL))
                )
                await trio.sleep(seconds)
                processes.start(name)
            case "part":
                for each in others:
                    simulation.fabric.cut(name, each)
                    simulation.fabric.cut(each, name)
                await trio.sleep(seconds)
                for each in others:
                    simulation.fabric.heal(name, each)
                    simulation.fabric.heal(each, name)
            case "pause":
                simulation.pause(name)
                await trio.sleep(seconds)
                simulation.resume(name)
            case _:
                processes.nodes[name].stop()
                await processes.ended[name].wait()
                processes.start(name)


async def produce(
    simulation: Simulation, producer: Producer, partition: int, acked: dict[int, list[bytes]]
) -> None:
    """Numbers, one after the other; those that are acknowledged are noted."""
    random = simulation.rng.stream(f"producer of {partition}")
    number = 0
    while True:
        number += 1
        value = b"%d-%d" % (partition, number)
        delivery = await producer.send(TOPIC, value, partition=partition)
        try:
            await producer.wait(delivery)
        except KafkaError as error:
            simulation.record("not acknowledged", str(partition), str(error).encode())
            continue
        acked[partition].append(value)
        await trio.sleep(random.expovariate(20))


async def create(admin: Admin) -> None:
    topic = NewTopic(
        TOPIC,
        partitions=PARTITIONS,
        replication_factor=3,
        configs={"min.insync.replicas": "2", "flush.messages": "1"},
    )
    while True:
        try:
            require(await admin.run(create_topics([topic])))
            return
        except KafkaError:
            await trio.sleep(0.2)


async def until_healed(admin: Admin) -> None:
    while True:
        try:
            described = await admin.run(describe_topics([TOPIC]))
        except KafkaError:
            described = {}
        if described and all(
            len(partition.isr) == len(NODES) for partition in described[TOPIC].partitions.values()
        ):
            return
        await trio.sleep(0.5)


async def consume(simulation: Simulation) -> dict[int, list[bytes]]:
    values: dict[int, list[bytes]] = {each: [] for each in range(PARTITIONS)}
    async with open_consumer(simulation.world(CLIENT), BOOTSTRAP) as consumer:
        places = await consumer.partitions_of(TOPIC)
        ends = await consumer.end_offsets(places)
        consumer.assign(places)
        for place in places:
            consumer.seek_to_beginning(place)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for _, partition, records in await consumer.poll(1_000):
                values[partition] += [record.value or b"" for record in records]
    return values


async def system(simulation: Simulation) -> dict[int, int]:
    places = (*NODES, CLIENT)
    for source in places:
        for target in places:
            if source != target:
                simulation.fabric.set_profile(source, target, WEATHER)
    acked: dict[int, list[bytes]] = {each: [] for each in range(PARTITIONS)}
    world = simulation.world(CLIENT)
    async with trio.open_nursery() as nursery:
        processes = Processes(simulation, nursery)
        for name in NODES:
            processes.start(name)
        async with open_admin(world, BOOTSTRAP, AdminSettings(client=QUICK)) as admin:
            await create(admin)
            settings = ProducerSettings(client=QUICK)
            async with trio.open_nursery() as producers:
                for partition in range(PARTITIONS):
                    producer = await producers.start(_producer, simulation, settings)
                    producers.start_soon(produce, simulation, producer, partition, acked)
                await befall(simulation, processes)
                producers.cancel_scope.cancel()
            # Longer than any session or timeout: whoever was cut off, and thinks that it still
            # leads, has learnt better by then.
            await trio.sleep(10)
            await until_healed(admin)
        found = await consume(simulation)
        nursery.cancel_scope.cancel()
    check(acked, found)
    return {partition: len(values) for partition, values in acked.items()}


async def _producer(
    simulation: Simulation,
    settings: ProducerSettings,
    *,
    task_status: trio.TaskStatus[Producer],
) -> None:
    async with open_producer(simulation.world(CLIENT), BOOTSTRAP, settings) as producer:
        task_status.started(producer)
        await trio.sleep_forever()


def check(acked: dict[int, list[bytes]], found: dict[int, list[bytes]]) -> None:
    """Everything acknowledged is there, once and in order: the producers are idempotent."""
    for partition, values in acked.items():
        places = {value: place for place, value in enumerate(found[partition])}
        assert len(places) == len(found[partition]), f"partition {partition}: something is twice"
        lost = [value for value in values if value not in places]
        assert lost == [], f"partition {partition}: acknowledged and lost: {lost}"
        order = [places[value] for value in values]
        assert order == sorted(order), f"partition {partition}: out of order"


def run_cluster(seed: int) -> SimulationResult[dict[int, int]]:
    print(f"seed {seed}")
    return run_simulation(system, seed=seed, time_limit_seconds=600)


if __name__ == "__main__":
    print(run_cluster(int(sys.argv[1])).trace.digest)
