"""A consumer for trio code, of partitions that it chooses or that its group assigns to it.

    async with open_consumer(world, [("127.0.0.1", 9092)]) as consumer:
        consumer.assign(await consumer.partitions_of("events"))
        for topic, partition, records in await consumer.poll():
            ...

    async with open_consumer(world, servers, ConsumerSettings(group_id="readers")) as consumer:
        consumer.subscribe(["events"])
        for topic, partition, records in await consumer.poll():
            ...

Failures that concern a partition are raised by `poll`; see consumer_core.py. So are those of the
group; rebalances are carried out, and listeners called, inside of `poll` alone. Heartbeats and
automatic commits go on while the user works. Leaving the block commits (with `enable_auto_commit`)
and leaves the group; with an exception on its way nothing is committed. A task that is cancelled
leaves without a word, and the group notices after `session_timeout_ms`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import trio

from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer_core import ConsumerCore, PartitionRecords
from kraftpy.client.group_core import GroupCore
from kraftpy.client.group_listener import Listeners
from kraftpy.client.group_member import GroupMetadata, Rebalance
from kraftpy.client.group_offsets import Commit, OffsetAndMetadata
from kraftpy.client.leader_questions import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetAnswer
from kraftpy.client.links import Driver
from kraftpy.client.positions import PartitionProgress
from kraftpy.client.settings import ConsumerSettings
from kraftpy.client.topic_wait import TopicWait
from kraftpy.world import Address, World

__all__ = ["Consumer", "Listener", "open_consumer"]

Listener: TypeAlias = Callable[[list[TopicPartition]], Awaitable[None] | None]


@asynccontextmanager
async def open_consumer(
    world: World, bootstrap: Sequence[Address], settings: ConsumerSettings | None = None
) -> AsyncIterator[Consumer]:
    """A consumer that lives as long as the block."""
    settings = settings or ConsumerSettings()
    random = world.rng.stream("consumer")
    core = ConsumerCore(bootstrap, settings, random)
    group = None if settings.group_id is None else GroupCore(core, settings, random)
    async with trio.open_nursery() as nursery:
        driver = Driver(world, nursery, group or core, settings.client)
        nursery.start_soon(driver.run, name="client-consumer")
        consumer = Consumer(core, group, driver, settings)
        try:
            yield consumer
            await consumer.leave()
        except Exception:
            # What the user was working on isn't done.
            await consumer.leave(commits=False)
            raise
        finally:
            driver.close()
            nursery.cancel_scope.cancel()


class Consumer:
    """Made by `open_consumer`."""

    def __init__(
        self,
        core: ConsumerCore,
        group: GroupCore | None,
        driver: Driver,
        settings: ConsumerSettings,
    ) -> None:
        self._core = core
        self._optional_group = group
        self._driver = driver
        self._settings = settings
        self._listeners: Listeners[Awaitable[None] | None] = Listeners()

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
        """Consume these partitions and no others; those that stay keep their positions.

        With a group_id new ones begin where the group has committed.
        """
        if self._optional_group is None:
            self._core.assign(wheres)
        elif self._optional_group.is_member:
            raise ValueError("a subscription assigns the partitions; unsubscribe first")
        else:
            self._optional_group.begin_assigned(wheres, self._driver.now_ms)
        self._driver.wake()

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Consume the partitions of these topics that the group assigns to this member.

        The listeners may be async; without `on_lost`, lost partitions are told to `on_revoked`.
        """
        self._listeners = Listeners(on_assigned, on_revoked, on_lost)
        self._group.subscribe(topics)
        self._driver.wake()

    async def unsubscribe(self) -> None:
        """Give the partitions back and leave the group."""
        await self.leave()

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this member is, for `send_offsets_to_transaction`."""
        return self._group.identity

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> None:
        """Commit these, or all that was polled, and wait until it is done. Raises KafkaError."""
        commit = self.commit_soon(offsets)
        await self._driver.until(lambda: commit.is_done)
        commit.result()

    def commit_soon(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> Commit:
        """The same without waiting."""
        commit = self._group.commit(offsets, self._driver.now_ms)
        self._driver.wake()
        return commit

    async def committed(
        self, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's offsets; None where it has none."""
        lookup = self._group.look_up(wheres, self._driver.now_ms)
        self._driver.wake()
        await self._driver.until(lambda: lookup.is_done)
        return lookup.result()

    async def leave(self, *, commits: bool = True) -> None:
        """Leave the group, if this is a member; `commits` as far as settings say."""
        group = self._optional_group
        if group is None:
            return
        if commits:
            commit = group.commit_all_done(self._driver.now_ms)
            self._driver.wake()
            await self._driver.until(lambda: commit.is_done, self._settings.close_timeout_ms)
        event = group.revoke_all()
        if event is not None:
            await self._tell(event)
        group.leave(self._driver.now_ms)
        self._driver.wake()
        await self._driver.until(lambda: group.is_gone, self._settings.close_timeout_ms)
        group.forget()

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
        group = self._optional_group
        if group is None:
            return await self._poll(count, deadline_ms)
        group.poll_begins(self._driver.now_ms)
        try:
            return await self._poll(count, deadline_ms)
        finally:
            group.poll_ends(self._driver.now_ms)
            self._driver.wake()

    async def _poll(self, count: int, deadline_ms: int | None) -> list[PartitionRecords]:
        while True:
            await self._rebalance()
            # From here on nothing may interrupt: what was taken must reach the user.
            await trio.lowlevel.checkpoint_if_cancelled()
            records = self._core.take(count)
            self._driver.wake()
            if records:
                await trio.lowlevel.cancel_shielded_checkpoint()
                return records
            left_ms = None if deadline_ms is None else max(0, deadline_ms - self._driver.now_ms)
            if not await self._driver.until(self._has_news, left_ms):
                return []

    def _has_news(self) -> bool:
        group = self._optional_group
        if self._core.has_output or group is None:
            return self._core.has_output
        return group.failure is not None or group.next_event(self._driver.now_ms) is not None

    async def _rebalance(self) -> None:
        """Carry out what the group has decided, as far as it is known by now."""
        group = self._optional_group
        if group is None:
            return
        while (event := group.next_event(self._driver.now_ms)) is not None:
            group.begin(event, self._driver.now_ms)
            try:
                await self._tell(event)
            finally:
                # A listener that fails has been told all the same.
                group.acknowledge(event)
                self._driver.wake()
        if group.failure is not None:
            raise group.failure

    async def _tell(self, event: Rebalance) -> None:
        outcome = self._listeners.tell(event)
        if outcome is not None:
            await outcome

    @property
    def _group(self) -> GroupCore:
        if self._optional_group is None:
            raise ValueError("the consumer has no group_id")
        return self._optional_group
