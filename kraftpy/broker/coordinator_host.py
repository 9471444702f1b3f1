"""The coordinator of one internal topic, on a broker: its shards follow the broker's leaderships.

The replicas say which partitions of the topic this broker leads, and how far they are committed; a
new shard's log is read and replayed here. One log at a time, in slices: loading is work for the
processor, so that several at once would only keep the loop busy for longer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

import trio

from kraftpy.broker.collector import collector_at_rest, look_at_everything
from kraftpy.broker.coordinator_log import PartitionShardLog
from kraftpy.broker.coordinator_metrics import LoadTimes
from kraftpy.broker.partition import Partition
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.ports import Machine, ShardContext
from kraftpy.coordinator.runtime import CoordinatorRuntime
from kraftpy.coordinator.shard import Shard, ShardState
from kraftpy.coordinator.shard_writing import ShardSettings, ShardWorld
from kraftpy.log.pacing import Pace
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.protocol.codec import DecodeError
from kraftpy.protocol.coordinator_records import RecordTypes
from kraftpy.purgatory.timer import Timer
from kraftpy.records.errors import RecordDataError
from kraftpy.world import LATE_SECONDS, Buggify, Clock, InternalInvariant, never

__all__ = ["CoordinatorHost"]

log = logging.getLogger(__name__)

_Machine = TypeVar("_Machine", bound=Machine)


class CoordinatorHost(Generic[_Machine]):
    """`run` it as a task while the broker lives. A Publisher, to be installed before replicas."""

    def __init__(
        self,
        topic: str,
        clock: Clock,
        make_machine: Callable[[ShardContext], _Machine],
        records: RecordTypes,
        settings: ShardSettings,
        *,
        load_buffer_bytes: int,
        max_batch_bytes: Callable[[], int],
        buggify: Buggify = never,
    ) -> None:
        """`max_batch_bytes` is the topic's `max.message.bytes`."""
        self.topic = topic
        self.load_times = LoadTimes()
        # Whether a shard was closed since the last one was loaded.
        self._has_garbage = False
        self._clock = clock
        self._load_buffer_bytes = load_buffer_bytes
        self._max_batch_bytes = max_batch_bytes
        self._buggify = buggify
        self.timer = Timer(f"coordinator-{topic}", clock)
        self._slow = Timer(f"coordinator-background-{topic}", clock)
        world = ShardWorld(clock, self.timer, self._slow, settings, records, buggify)
        self.runtime = CoordinatorRuntime(topic, world, make_machine, load=self._load_soon)
        self._to_load: trio.MemorySendChannel[Shard[_Machine]]
        self._to_load, self._loading = trio.open_memory_channel[Shard[_Machine]](_UNBOUNDED)

    # Publisher.

    @property
    def name(self) -> str:
        return f"Coordinator {self.topic}"

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        self.runtime.publish(changes, image)

    # What the replicas tell.

    def role_changed(self, partition_id: int, partition: Partition | None) -> None:
        before = list(self.runtime.shards())
        if partition is None:
            self.runtime.resigned(partition_id, None)
        elif partition.is_leader:
            shard_log = PartitionShardLog(
                partition, self._clock, max_batch_bytes=self._max_batch_bytes
            )
            self.runtime.elected(partition_id, partition.leader_epoch, shard_log)
        else:
            self.runtime.resigned(partition_id, partition.leader_epoch)
        if any(shard.state is ShardState.CLOSED for shard in before):
            self._has_garbage = True
            look_at_everything()

    def committed(self, partition_id: int, high_watermark: int) -> None:
        self.runtime.high_watermark_moved(partition_id, high_watermark)

    # Work.

    def defer(self, chore: Iterator[None]) -> None:
        """Have something long done in the background, a piece at a time."""
        self._slow.defer(chore)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.timer.run, name=self.timer.name)
                nursery.start_soon(self._slow.run, name=self._slow.name)
                async for shard in self._loading:
                    await self._load(shard)
        finally:
            self.runtime.close()
            look_at_everything()

    def _load_soon(self, shard: Shard[_Machine]) -> None:
        self._to_load.send_nowait(shard)

    async def _load(self, shard: Shard[_Machine]) -> None:
        started = self._clock.monotonic()
        try:
            has_garbage, self._has_garbage = self._has_garbage, False
            with collector_at_rest(collects_first=has_garbage, is_dirty=lambda: self._has_garbage):
                await self._replay(shard)
        except InternalInvariant:
            raise
        except CoordinatorError as error:
            # Leadership is over, or the disk is: whoever comes next loads it.
            log.info("topic=%s partition=%d not loaded: %s", self.topic, shard.partition, error)
            shard.fail()
        except (RecordDataError, DecodeError, ValueError) as error:
            log.error(
                "topic=%s partition=%d can't be loaded, and its groups or transactions can't be"
                " served here: %s; another replica may have it whole, so move the leader there",
                self.topic,
                shard.partition,
                error,
            )
            shard.fail()
        except Exception:
            log.exception("topic=%s partition=%d can't be loaded", self.topic, shard.partition)
            shard.fail()
        else:
            milliseconds = (self._clock.monotonic() - started) * 1000
            self.load_times.add(milliseconds)
            log.info(
                "coordinator ready topic=%s partition=%d epoch=%d offset=%d ms=%d",
                self.topic,
                shard.partition,
                shard.leader_epoch,
                shard.timeline.last_written,
                milliseconds,
            )

    async def _replay(self, shard: Shard[_Machine]) -> None:
        pace = Pace(self._clock)
        shard.begin_loading(shard.log.log_start_offset)
        while shard.is_loading:
            offset = shard.timeline.last_written
            if offset >= shard.log.log_end_offset:
                shard.activate()
                return
            if self._buggify("coordinator-loads-late"):
                await self._clock.sleep(LATE_SECONDS)
            is_small = self._buggify("coordinator-loads-little")
            data = await shard.log.read(offset, 1 if is_small else self._load_buffer_bytes)
            for _ in shard.load(data):
                await pace.rest(0)
            await pace.rest(len(data))


# Elections come with metadata; there are never more than partitions of the topic.
_UNBOUNDED: Final = 1_000_000
