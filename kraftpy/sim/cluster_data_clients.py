"""Producers and consumers of the simulated cluster.

Some producers send records that nobody else has ever sent, with acks 1 or all, to whom some node
takes for the leader, and do not wait: what they are told, the broker's replicas tell the checker at
the moment of the answer. Others are idempotent (cluster_producers.py). A consumer reads somewhere
below the high watermark, or the last stable offset, in some seeds from followers too. And somebody
deletes records now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from kraftpy.broker.partition import ALL_IN_SYNC
from kraftpy.log.offsets import UNKNOWN, Isolation
from kraftpy.metadata.records import PartitionRecord
from kraftpy.records.builder import BatchBuilder
from kraftpy.sim.cluster_data_rules import DataRules
from kraftpy.sim.cluster_network import CLIENT, ClusterNetwork
from kraftpy.sim.cluster_node import MetadataNode
from kraftpy.sim.cluster_producers import BATCH_MAX, WALL_MS, SequencedProducers
from kraftpy.sim.cluster_swarm import ClusterSwarm

__all__ = ["DataClients"]

# How far from the end consumers begin at most; most of them read what is new.
_BACK_MAX = 8


class DataClients:
    __slots__ = ("_last_value", "_network", "_nodes", "_random", "_sequenced", "_swarm")

    def __init__(
        self,
        network: ClusterNetwork,
        nodes: Sequence[MetadataNode],
        swarm: ClusterSwarm,
        rules: DataRules | None,
        random: Random,
    ) -> None:
        self._network = network
        self._nodes = nodes
        self._swarm = swarm
        self._random = random
        self._last_value = 0
        self._sequenced = SequencedProducers(network, rules, swarm, random, self._next_value)

    def delay_us(self, mean_us: int) -> int:
        return 1 + int(self._random.expovariate(1 / mean_us))

    def act(self) -> None:
        """Produce, consume or delete, as some node's image says."""
        random = self._random
        loader = random.choice(self._nodes).loader
        topics = [] if loader is None else list(loader.image.topics.values())
        if not topics:
            return
        record = random.choice(random.choice(topics).partitions)
        dice = random.random()
        if dice < 0.6:
            self._produce(record)
        elif dice < 0.6 + self._swarm.deletions:
            self._delete(record)
        else:
            self._consume(record)

    def _broker_for(self, record: PartitionRecord, elsewhere: float) -> int:
        if self._random.random() < elsewhere:
            return self._random.choice(record.replicas)
        return record.leader

    def _produce(self, record: PartitionRecord) -> None:
        random = self._random
        broker_id = self._broker_for(record, 0.05)
        if random.random() < self._swarm.sequenced:
            self._sequenced.act((record.topic_id, record.partition_id), broker_id)
            return
        builder = BatchBuilder()
        for _ in range(random.randint(1, BATCH_MAX)):
            builder.append(None, self._next_value(), timestamp_ms=WALL_MS)
        acks = random.choice((1, ALL_IN_SYNC, ALL_IN_SYNC))
        replicas = self._network.replicas.get(broker_id)
        if replicas is not None:
            key = (record.topic_id, record.partition_id)
            arrive = partial(replicas.produce, key, bytes(builder.build()), acks)
            self._network.carry(CLIENT, broker_id, arrive)

    def _consume(self, record: PartitionRecord) -> None:
        random = self._random
        broker_id = self._broker_for(record, self._swarm.follower_reads)
        replicas = self._network.replicas.get(broker_id)
        if replicas is not None:
            key = (record.topic_id, record.partition_id)
            isolation = random.choice((Isolation.HIGH_WATERMARK, Isolation.COMMITTED))
            epoch = random.choice((UNKNOWN, record.leader_epoch))
            back = random.randrange(_BACK_MAX)
            arrive = partial(replicas.consume, key, back, isolation, epoch)
            self._network.carry(CLIENT, broker_id, arrive)

    def _delete(self, record: PartitionRecord) -> None:
        replicas = self._network.replicas.get(record.leader)
        if replicas is not None:
            key = (record.topic_id, record.partition_id)
            arrive = partial(replicas.delete_records, key, self._random.randrange(_BACK_MAX))
            self._network.carry(CLIENT, record.leader, arrive)

    def _next_value(self) -> bytes:
        self._last_value += 1
        return b"%d" % self._last_value
