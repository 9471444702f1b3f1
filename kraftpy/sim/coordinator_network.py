"""Messages between brokers and clients: late, lost, doubled, and seconds late."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.sim.coordinator_broker import CoordinatorBroker
from kraftpy.sim.coordinator_partition import SimulatedPartition
from kraftpy.sim.coordinator_swarm import CoordinatorSwarm
from kraftpy.sim.kernel import EventHeap

__all__ = ["CoordinatorNetwork"]

# How late a message may be that came from a connection which was stuck.
_LATE_MEAN_US: Final = 2_000_000


class CoordinatorNetwork:
    def __init__(
        self,
        heap: EventHeap,
        swarm: CoordinatorSwarm,
        random: Random,
        *,
        brokers: Mapping[int, CoordinatorBroker],
        partitions: Mapping[TopicPartition, SimulatedPartition],
    ) -> None:
        self.is_faulty = True
        self.brokers = brokers
        self.partitions = partitions
        self._heap = heap
        self._swarm = swarm
        self._random = random

    def request(
        self, broker_id: int, kind: str, action: Callable[[], None], *, repeats: bool = True
    ) -> None:
        """Have something happen at a broker. Never twice without `repeats`."""
        broker = self.brokers.get(broker_id)
        if broker is None or self._is(self._swarm.loss):
            return
        broker.post(self._delay_us(), kind, action)
        if repeats and self._is(self._swarm.duplication):
            broker.post(self._delay_us(), f"{kind} again", action)

    def answer(self, action: Callable[[], None]) -> None:
        """Have something happen at a client."""
        if not self._is(self._swarm.loss):
            self._heap.plan(self._delay_us(), action)

    def answer_broker(
        self, broker: CoordinatorBroker, kind: str, action: Callable[[], None]
    ) -> None:
        if not self._is(self._swarm.loss):
            broker.post(self._delay_us(), kind, action)

    def _is(self, probability: float) -> bool:
        return self.is_faulty and self._random.random() < probability

    def _delay_us(self) -> int:
        mean = _LATE_MEAN_US if self._is(self._swarm.late) else self._swarm.delay_mean_us
        return int(self._random.expovariate(1 / mean)) + 1
