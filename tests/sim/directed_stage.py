"""Stories told on whole nodes: what happens is said exactly, and everything is checked as ever.

A story takes the place of the drawn faults. Before it the cluster is well and has a topic `t` with
one partition on three brokers, or as many as the story wants; after it everything is healed, the
cluster must get well again, and replicas must be alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from kraftpy.client.admin import open_admin
from kraftpy.client.admin_cluster import alter_reassignments
from kraftpy.client.admin_operations import NewTopic, create_topics, require
from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer import Consumer, open_consumer
from kraftpy.client.errors import KafkaError
from kraftpy.client.producer import Producer, open_producer
from kraftpy.client.settings import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    IsolationLevel,
    ProducerSettings,
)
from kraftpy.metadata.records import PartitionRecord
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.whole.load import Load
from kraftpy.sim.whole.machines import PORT, machine_name
from kraftpy.sim.whole.swarm import WholeSwarm
from kraftpy.sim.whole.system import CLIENT, WholeSystem
from kraftpy.world import World
from kraftpy.world.memory_link import Hold

QUICK = ClientSettings(request_timeout_ms=2_000, reconnect_backoff_max_ms=200)
TOPIC = "t"
PATIENCE_SECONDS = 60.0


class Stage(WholeSystem):
    def __init__(
        self,
        story: Callable[[Stage], Awaitable[None]],
        swarm: WholeSwarm,
        configs: Mapping[str, str],
        replicas: int,
    ) -> None:
        super().__init__(swarm, (), seconds=0.0)
        self._story = story
        self._replicas = replicas
        self._configs = {"min.insync.replicas": "2", "flush.messages": "1", **configs}

    async def _safety(self, load: Load) -> None:
        self.world = self.simulation.world(CLIENT)
        self.bootstrap = [(machine_name(each), PORT) for each in self.swarm.brokers]
        count = self._replicas
        await self.create(TOPIC, replicas=count)
        await self.until(lambda: self.record is not None and len(self.record.isr) == count)
        await self._story(self)

    # Clients.

    async def create(self, name: str, *, replicas: int) -> None:
        """As soon as there is somebody who does it."""
        topic = NewTopic(name, 1, replicas, self._configs)
        settings = AdminSettings(client=QUICK)
        with trio.fail_after(PATIENCE_SECONDS):
            async with open_admin(self.world, self.bootstrap, settings) as admin:
                while True:
                    try:
                        require(await admin.run(create_topics([topic])))
                        return
                    except KafkaError:
                        await trio.sleep(0.5)

    async def keep_producer(
        self,
        transactional_id: str,
        timeout_seconds: float = 60.0,
        *,
        task_status: trio.TaskStatus[Producer],
    ) -> None:
        """A producer that is there until somebody cancels it, and then vanishes."""
        terms = {"transaction_timeout_ms": int(timeout_seconds * 1000)}
        async with self.producer(transactional_id=transactional_id, **terms) as producer:
            task_status.started(producer)
            await trio.sleep_forever()

    def producer(
        self, world: World | None = None, **settings: Any
    ) -> AbstractAsyncContextManager[Producer]:
        base = {"client": QUICK, "delivery_timeout_ms": 5_000, "linger_ms": 0}
        return open_producer(
            world or self.world, self.bootstrap, ProducerSettings(**{**base, **settings})
        )

    def consumer(
        self, world: World | None = None, **settings: Any
    ) -> AbstractAsyncContextManager[Consumer]:
        base = {
            "client": QUICK,
            "auto_offset_reset": "earliest",
            "isolation_level": IsolationLevel.READ_COMMITTED,
            "enable_auto_commit": False,
        }
        return open_consumer(
            world or self.world, self.bootstrap, ConsumerSettings(**{**base, **settings})
        )

    async def send(self, value: bytes, world: World | None = None, **settings: Any) -> bool:
        """Whether it was acknowledged."""
        async with self.producer(world, **settings) as producer:
            try:
                await producer.wait(await producer.send(TOPIC, value, partition=0))
            except KafkaError:
                return False
        return True

    async def move(self, replicas: list[int]) -> None:
        """Have the partition on these brokers; returns when the controller has agreed."""
        place = TopicPartition(TOPIC, 0)
        async with open_admin(self.world, self.bootstrap, AdminSettings(client=QUICK)) as admin:
            answer = await admin.run(alter_reassignments({place: replicas}))
        assert answer == {place: None}

    async def read(self) -> list[bytes]:
        """All that is committed, when nothing is open any more: an answer to a commit says that it
        is decided, and its markers arrive a little later.
        """
        values: list[bytes] = []
        async with self.consumer() as consumer:
            [place] = await consumer.partitions_of(TOPIC)
            with trio.fail_after(PATIENCE_SECONDS):
                while True:
                    end = (await consumer.end_offsets([place]))[place]
                    if end == self.end_offset:
                        break
                    await trio.sleep(0.1)
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            while await consumer.position(place) < end:
                for _, _, records in await consumer.poll(1_000):
                    values += [record.value or b"" for record in records]
        return values

    @property
    def end_offset(self) -> int:
        """Of the leader's log."""
        assert self.record is not None
        host = self.watch.hosts.get(self.leader)
        key = (self.record.topic_id, 0)
        return -1 if host is None else host.logs[key].log_end_offset

    # What is true now.

    @property
    def record(self) -> PartitionRecord | None:
        topic = self.watch.truth.image.topics.get(TOPIC)
        return None if topic is None else topic.partitions[0]

    @property
    def leader(self) -> int:
        assert self.record is not None
        return self.record.leader

    @property
    def followers(self) -> list[int]:
        assert self.record is not None
        return [each for each in self.record.replicas if each != self.leader]

    @property
    def controller(self) -> int:
        """The active one, as the newest epoch that anybody knows has it."""
        return self._newest_term[1]

    @property
    def controller_epoch(self) -> int:
        return self._newest_term[0]

    @property
    def _newest_term(self) -> tuple[int, int]:
        elections = [
            node.quorum.driver.election
            for _, node in self.machines.nodes()
            if node.quorum is not None
        ]
        return max((each.epoch, each.leader_id) for each in elections)

    def leader_of(self, topic: str, partition: int) -> int:
        return self.watch.truth.image.topics[topic].partitions[partition].leader

    async def until(self, holds: Callable[[], bool]) -> None:
        with trio.move_on_after(PATIENCE_SECONDS):
            while not holds():  # noqa: ASYNC110 (in virtual time)
                await trio.sleep(0.05)
            return
        raise AssertionError("it did not come to pass")

    def hold(self, api_key: int, *, source: str, targets: list[int]) -> Hold:
        """Keep the next request of this kind on its way to any of these nodes."""
        hold = Hold()
        struck: list[None] = []

        def hold_back(data: bytes) -> Hold | None:
            if struck or len(data) < 8 or int.from_bytes(data[4:6]) != api_key:
                return None
            struck.append(None)
            return hold

        for each in targets:
            self.simulation.fabric.link(source, machine_name(each)).hold_back = hold_back
        self.held = struck
        return hold


def tell(
    story: Callable[[Stage], Awaitable[None]],
    seed: int,
    *,
    configs: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    replicas: int = 3,
    **features: Any,
) -> Stage:
    """`features` are those of the world, as WholeSwarm has them."""
    print(f"seed {seed}")
    swarm = WholeSwarm(workloads=(), faults=(), node_extremes=dict(settings or {}), **features)
    stage = Stage(story, swarm, configs or {}, replicas)
    run_simulation(stage.run, seed=seed, time_limit_seconds=2_000)
    return stage
