"""Producers and consumers of the simulated cluster.

A producer sends records that nobody else has ever sent, with acks 1 or all, to whom some node takes
for the leader, and does not wait: what it is told, the broker's replicas tell the checker at the
moment of the answer. A consumer reads somewhere below the high watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from kraftpy.broker.partition import ALL_IN_SYNC
from kraftpy.sim.cluster_network import CLIENT, ClusterNetwork
from kraftpy.sim.cluster_node import MetadataNode

__all__ = ["DataClients"]

_BATCH_MAX = 3
# How far from the end consumers begin at most; most of them read what is new.
_BACK_MAX = 8


class DataClients:
    __slots__ = ("_last_value", "_network", "_nodes", "_random")

    def __init__(
        self, network: ClusterNetwork, nodes: Sequence[MetadataNode], random: Random
    ) -> None:
        self._network = network
        self._nodes = nodes
        self._random = random
        self._last_value = 0

    def delay_us(self, mean_us: int) -> int:
        return 1 + int(self._random.expovariate(1 / mean_us))

    def act(self) -> None:
        """Produce or consume, as some node's image says."""
        random = self._random
        loader = random.choice(self._nodes).loader
        topics = [] if loader is None else list(loader.image.topics.values())
        if not topics:
            return
        record = random.choice(random.choice(topics).partitions)
        leader_id = record.leader
        if random.random() < 0.05:
            leader_id = random.choice(record.replicas)
        replicas = self._network.replicas.get(leader_id)
        if replicas is None:
            return
        key = (record.topic_id, record.partition_id)
        if random.random() < 0.6:
            values = [self._next_value() for _ in range(random.randint(1, _BATCH_MAX))]
            acks = random.choice((1, ALL_IN_SYNC, ALL_IN_SYNC))
            arrive = partial(replicas.produce, key, values, acks)
        else:
            arrive = partial(replicas.consume, key, random.randrange(_BACK_MAX))
        self._network.carry(CLIENT, leader_id, arrive)

    def _next_value(self) -> bytes:
        self._last_value += 1
        return b"%d" % self._last_value
