"""Where requests wait for replicas, and which event lets whom be looked at again.

All keys are topic-partitions.

| event | produce | fetch | delete records | elect leader |
| --- | --- | --- | --- | --- |
| records appended to a leader's log | | x | | |
| high watermark moved | x | x | x | |
| a flush has made records count | x | | | |
| somebody's log start moved | | s | x | |
| a follower is gone, or back | | | x | |
| a leader has new metadata, so perhaps another ISR, or epoch | | x | | |
| role changed, deleted, or its directory failed | x | x | x | |
| metadata shows another leader | | | | x |

A transaction that ends moves the last stable offset in the same moment as the append of its marker,
or later with the high watermark, so it needs no event of its own. What is marked `s` ends no fetch,
but fetch sessions have to look at the partition (fetch_sessions.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import trio

from kraftpy.broker.fetch_purgatory import FetchPurgatory
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.purgatory.operation import DelayedOperation
from kraftpy.purgatory.purgatory import DEFAULT_PURGE_INTERVAL, Purgatory, reaper_name
from kraftpy.purgatory.timer import Timer
from kraftpy.world import Clock

__all__ = ["PurgatorySettings", "ReplicaPurgatories"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgatorySettings:
    """How many ended operations may wait to be taken out of the lists."""

    produce_purge_interval: int = DEFAULT_PURGE_INTERVAL
    """`producer.purgatory.purge.interval.requests`"""
    fetch_purge_interval: int = DEFAULT_PURGE_INTERVAL
    """`fetch.purgatory.purge.interval.requests`"""
    delete_records_purge_interval: int = 1
    """`delete.records.purgatory.purge.interval.requests`"""


class ReplicaPurgatories:
    def __init__(
        self, broker_id: int, settings: PurgatorySettings, clock: Clock, registry: MetricRegistry
    ) -> None:
        def make(name: str, purge_interval: int) -> Purgatory[DelayedOperation]:
            timer = Timer(reaper_name(broker_id, name), clock)
            return Purgatory(name, timer, registry, purge_interval=purge_interval)

        self.produce = make("Produce", settings.produce_purge_interval)
        self.fetch = FetchPurgatory(
            "Fetch",
            Timer(reaper_name(broker_id, "Fetch"), clock),
            registry,
            purge_interval=settings.fetch_purge_interval,
        )
        self.delete_records = make("DeleteRecords", settings.delete_records_purge_interval)
        self.elect_leader = make("ElectLeader", DEFAULT_PURGE_INTERVAL)

    def start(self, nursery: trio.Nursery) -> None:
        for purgatory in self._all():
            nursery.start_soon(purgatory.timer.run, name=purgatory.timer.name)

    def shutdown(self) -> None:
        """Whatever waits is answered now, as if its time were over."""
        for purgatory in self._all():
            for operation in purgatory.shutdown():
                operation.run()

    def _all(self) -> tuple[Purgatory[DelayedOperation], ...]:
        return self.produce, self.fetch, self.delete_records, self.elect_leader

    def appended(self, key: TopicPartition) -> None:
        self.fetch.check_and_complete(key)

    def high_watermark_moved(self, key: TopicPartition) -> None:
        self.produce.check_and_complete(key)
        self.fetch.check_and_complete(key)
        self.delete_records.check_and_complete(key)

    def flushed(self, key: TopicPartition) -> None:
        self.produce.check_and_complete(key)

    def log_start_moved(self, key: TopicPartition) -> None:
        self.fetch.stir(key)
        self.delete_records.check_and_complete(key)

    def follower_gone(self, key: TopicPartition) -> None:
        self.delete_records.check_and_complete(key)

    def leads(self, key: TopicPartition) -> None:
        self.fetch.check_and_complete(key)

    def role_changed(self, key: TopicPartition) -> None:
        """Also for replicas that are gone, or offline."""
        self.high_watermark_moved(key)

    def leader_shown(self, key: TopicPartition) -> None:
        self.elect_leader.check_and_complete(key)
