"""The clients of a run."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from kraftpy.client.consumer import open_consumer
from kraftpy.client.errors import KafkaError
from kraftpy.client.producer import open_producer
from kraftpy.client.settings import ClientSettings, ProducerSettings
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.simulation import Simulation
from kraftpy.sim.whole.swarm import WholeSwarm
from kraftpy.world import Address, World

__all__ = ["Load"]

_QUICK = ClientSettings(request_timeout_ms=3_000, reconnect_backoff_max_ms=200)


class Load:
    def __init__(
        self, simulation: Simulation, world: World, bootstrap: Sequence[Address], swarm: WholeSwarm
    ) -> None:
        self._simulation = simulation
        self._world = world
        self._bootstrap = bootstrap
        self._swarm = swarm
        self.operations = 0
        self._acked: dict[tuple[str, int], list[bytes]] = {
            (f"t{topic}", partition): []
            for topic in range(swarm.topics)
            for partition in range(swarm.partitions)
        }
        self._found: dict[tuple[str, int], list[bytes]] = {key: [] for key in self._acked}

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for topic, partition in self._acked:
                nursery.start_soon(self._produce, topic, partition)

    async def _produce(self, topic: str, partition: int) -> None:
        random = self._simulation.rng.stream(f"producer of {topic} {partition}")
        settings = ProducerSettings(client=_QUICK)
        async with open_producer(self._world, self._bootstrap, settings) as producer:
            number = 0
            while True:
                number += 1
                self.operations += 1
                value = b"%d-%d" % (partition, number) + bytes(self._swarm.value_bytes)
                try:
                    delivery = await producer.send(topic, value, partition=partition)
                    await producer.wait(delivery)
                except KafkaError:
                    continue
                self._acked[topic, partition].append(value)
                await trio.sleep(random.expovariate(1 / self._swarm.pause_mean_seconds))

    async def final_read(self) -> None:
        async with open_consumer(self._world, self._bootstrap) as consumer:
            places = [
                place
                for number in range(self._swarm.topics)
                for place in await consumer.partitions_of(f"t{number}")
            ]
            ends = await consumer.end_offsets(places)
            consumer.assign(places)
            for place in places:
                consumer.seek_to_beginning(place)
            while any([await consumer.position(place) < ends[place] for place in places]):
                for topic, partition, records in await consumer.poll(1_000):
                    self._found[topic, partition] += [record.value or b"" for record in records]

    def check(self) -> None:
        if not self._swarm.is_safe:
            return
        for key, values in self._acked.items():
            places = {value: place for place, value in enumerate(self._found[key])}
            if len(places) != len(self._found[key]):
                raise InvariantViolated("duplicate", f"{key}")
            lost = [value for value in values if value not in places]
            if lost:
                raise InvariantViolated("lost-write", f"{key}: {lost[:5]}")
            order = [places[value] for value in values]
            if order != sorted(order):
                raise InvariantViolated("reordered", f"{key}")
