"""A consumer of assigned partitions for trio code.

    async with open_consumer(world, [("127.0.0.1", 9092)]) as consumer:
        consumer.assign(await consumer.partitions_of("events"))
        for topic, partition, records in await consumer.poll():
            ...

Failures that concern a partition are raised by `poll`; see consumer_core.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer_core import ConsumerCore, PartitionRecords
from kraftpy.client.leader_questions import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetAnswer
from kraftpy.client.links import Driver
from kraftpy.client.positions import PartitionProgress
from kraftpy.client.settings import ConsumerSettings
from kraftpy.client.topic_wait import TopicWait
from kraftpy.world import Address, World

__all__ = ["Consumer", "open_consumer"]


@asynccontextmanager
async def open_consumer(
    world: World, bootstrap: Sequence[Address], settings: ConsumerSettings | None = None
) -> AsyncIterator[Consumer]:
    """A consumer that lives as long as the block."""
    settings = settings or ConsumerSettings()
    core = ConsumerCore(bootstrap, settings, world.rng.stream("consumer"))
    async with trio.open_nursery() as nursery:
        driver = Driver(world, nursery, core, settings.client)
        nursery.start_soon(driver.run, name="client-consumer")
        try:
            yield Consumer(core, driver, settings)
        finally:
            driver.close()
            nursery.cancel_scope.cancel()


class Consumer:
    """Made by `open_consumer`."""

    def __init__(self, core: ConsumerCore, driver: Driver, settings: ConsumerSettings) -> None:
        self._core = core
        self._driver = driver
        self._settings = settings

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._core.assignment

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions. Raises KafkaError if there is no such topic."""
        wait = TopicWait(self._core.cluster, topic)
        self._driver.wake()
        await self._driver.until(lambda: wait.is_done, self._settings.default_api_timeout_ms)
        return wait.result()

    def assign(self, wheres: Iterable[TopicPartition]) -> None:
        """Consume these partitions and no others; those that stay keep their positions."""
        self._core.assign(wheres)
        self._driver.wake()

    def seek(self, where: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Go on here; with the epoch of the record before, a cut log is noticed."""
        self._core.seek(where, offset, leader_epoch)
        self._driver.wake()

    def seek_to_timestamp(self, where: TopicPartition, timestamp: int) -> None:
        """Go on with the first record of this time or later; or at the end, if there is none."""
        self._core.seek_to_timestamp(where, timestamp)
        self._driver.wake()

    def seek_to_beginning(self, where: TopicPartition) -> None:
        self.seek_to_timestamp(where, EARLIEST_TIMESTAMP)

    def seek_to_end(self, where: TopicPartition) -> None:
        self.seek_to_timestamp(where, LATEST_TIMESTAMP)

    def pause(self, where: TopicPartition) -> None:
        self._core.pause(where)

    def resume(self, where: TopicPartition) -> None:
        self._core.resume(where)
        self._driver.wake()

    async def position(self, where: TopicPartition) -> int:
        """The offset of the next record, looked up first where that is still to be done."""
        timeout_ms = self._settings.default_api_timeout_ms
        await self._driver.until(lambda: self._core.position(where) is not None, timeout_ms)
        return self._core.require_position(where)

    def progress(self, where: TopicPartition) -> PartitionProgress:
        """What the last fetch said about the log's ends."""
        return self._core.progress(where)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAnswer]:
        """The first offsets of these times or later; -1 where there is none."""
        lookup = self._core.look_up(timestamps, self._driver.now_ms)
        self._driver.wake()
        await self._driver.until(lambda: lookup.is_done)
        return lookup.result()

    async def beginning_offsets(
        self, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        found = await self.offsets_for_times(dict.fromkeys(wheres, EARLIEST_TIMESTAMP))
        return {where: answer.offset for where, answer in found.items()}

    async def end_offsets(self, wheres: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of the logs, as far as this consumer's isolation level lets it read."""
        found = await self.offsets_for_times(dict.fromkeys(wheres, LATEST_TIMESTAMP))
        return {where: answer.offset for where, answer in found.items()}

    async def poll(
        self, timeout_ms: int | None = None, *, max_records: int | None = None
    ) -> list[PartitionRecords]:
        """Records, as soon as there are any; none if the time is over before."""
        count = self._settings.max_poll_records if max_records is None else max_records
        deadline_ms = None if timeout_ms is None else self._driver.now_ms + timeout_ms
        while True:
            records = self._core.take(count)
            self._driver.wake()
            if records:
                await trio.lowlevel.checkpoint()
                return records
            left_ms = None if deadline_ms is None else max(0, deadline_ms - self._driver.now_ms)
            if not await self._driver.until(lambda: self._core.has_output, left_ms):
                return []
