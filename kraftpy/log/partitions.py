"""The partitions of a node's data directories: finding, making and deleting their logs.

Partitions are made and deleted one change at a time for each of them. A change that a crash
interrupts is finished, or undone, by the next start: deleting renames the directory to `-delete`,
and whatever bears that name is removed. Offsets in checkpoints that belong to no log, or to one
that was there before, are written over before a change counts as done: they must not be taken for
the offsets of a later log.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from kraftpy.log.checkpoints import (
    PARTITION_METADATA,
    AtomicFile,
    TopicPartition,
    format_partition_metadata,
)
from kraftpy.log.cleaner import Cleaner
from kraftpy.log.creating import create_log
from kraftpy.log.errors import InconsistentTopicIdError, StorageError, UnknownDirectoryError
from kraftpy.log.handles import HandlePool
from kraftpy.log.loading import load_log
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_directory import DirectoryEvents, LogDirectory, random_id
from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.segment_files import (
    deleting_directory_name,
    directory_name,
    stray_directory_name,
)
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.protocol.ids import Uuid, format_uuid
from kraftpy.world import World

__all__ = ["NoEvents", "Partitions"]

_log = logging.getLogger(__name__)


class NoEvents:
    """DirectoryEvents for those who don't care."""

    def directory_failed(self, path: str, lost: Sequence[TopicPartition]) -> None:
        pass

    def partition_unlinked(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> None:
        pass


class Partitions:
    """Which log is where, and the changes of that."""

    __slots__ = (
        "_cleaner",
        "_config_of",
        "_directories",
        "_events",
        "_pool",
        "_settings",
        "_topic_ids",
        "_turns",
        "_world",
    )

    def __init__(
        self,
        world: World,
        settings: LogManagerSettings,
        *,
        config_of: Callable[[str], LogConfig],
        events: DirectoryEvents | None = None,
        topic_metrics: TopicMetrics | None = None,
    ) -> None:
        """`config_of` gives a topic's configuration, also of one that is not known any more."""
        self._world = world
        self._settings = settings
        self._config_of = config_of
        self._events = events or NoEvents()
        self._pool = HandlePool(world.disk, settings.open_files_max)
        self._directories = [
            LogDirectory(
                world,
                path,
                settings,
                pool=self._pool,
                events=self,
                topic_metrics=topic_metrics,
            )
            for path in settings.directories
        ]
        self._cleaner = Cleaner(
            world.disk,
            world.clock,
            settings.cleaner,
            logs=lambda: self.logs,
            buggify=world.buggify,
        )
        self._topic_ids: dict[TopicPartition, Uuid] = {}
        # One change at a time for each partition.
        self._turns: dict[TopicPartition, trio.Lock] = {}

    # What there is.

    @property
    def directories(self) -> tuple[LogDirectory, ...]:
        return tuple(self._directories)

    @property
    def logs(self) -> list[PartitionLog]:
        """Those that can be used, without future ones."""
        return [log for directory in self._online() for log in directory.logs.values()]

    @property
    def cleaner(self) -> Cleaner:
        """To be given new settings, and for its metrics."""
        return self._cleaner

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition; one in an offline directory refuses everything."""
        directory = self.directory_of(topic_partition)
        return None if directory is None else directory.logs[topic_partition]

    def future(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log that a partition will have when its move is done."""
        directory = self._future_directory(topic_partition)
        return None if directory is None else directory.futures[topic_partition]

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory | None:
        for directory in self._directories:
            if topic_partition in directory.logs:
                return directory
        return None

    def topic_id(self, topic_partition: TopicPartition) -> Uuid | None:
        """What partition.metadata says."""
        return self._topic_ids.get(topic_partition)

    def _future_directory(self, topic_partition: TopicPartition) -> LogDirectory | None:
        for directory in self._directories:
            if topic_partition in directory.futures:
                return directory
        return None

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.is_online]

    def inspect(self) -> dict[str, object]:
        """For tests and invariants."""
        return {
            "directories": [directory.describe() for directory in self._directories],
            "open_files": self._pool.open_count,
        }

    def listen(self, events: DirectoryEvents) -> None:
        """Tell these from now on, who could not be there before the manager."""
        self._events = events

    # DirectoryEvents, from the directories to whoever runs the logs.

    def directory_failed(self, path: str, lost: Sequence[TopicPartition]) -> None:
        self._cleaner.close_directory(path)
        self._events.directory_failed(path, lost)

    def partition_unlinked(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> None:
        """Not told of copies that a move has left behind, as long as there is another."""
        if self.get(topic_partition) is not None and self.topic_id(topic_partition) == topic_id:
            return
        if not any(each.is_removing(topic_partition, topic_id) for each in self._directories):
            self._events.partition_unlinked(topic_partition, topic_id)

    # Changes.

    @asynccontextmanager
    async def _turn(self, topic_partition: TopicPartition) -> AsyncIterator[None]:
        """One change at a time for a partition."""
        lock = self._turns.setdefault(topic_partition, trio.Lock())
        try:
            async with lock:
                yield
        finally:
            if lock.statistics().owner is None and not lock.statistics().tasks_waiting:
                self._turns.pop(topic_partition, None)

    async def get_or_create(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: Uuid | None = None,
        is_new: bool = False,
        directory: str | None = None,
        is_durable: bool = True,
    ) -> PartitionLog:
        """The log of a partition, which is made if there is none.

        `is_new`: the partition was never here before. Without that, and with a directory offline,
        nothing is made: the partition may be in there. `directory` is where to make it; without
        one, the directory with the fewest partitions is taken. With `is_durable` it is there also
        after a loss of power; without, only when something in it has been flushed, or after some
        time: who makes thousands does not want to wait for the disk that often.
        """
        async with self._turn(topic_partition):
            log = self.get(topic_partition)
            if log is not None:
                await self._check_topic_id(topic_partition, log, topic_id)
                return log
            offline = [each.path for each in self._directories if not each.is_online]
            if offline and not is_new:
                raise StorageError(
                    f"{directory_name(*topic_partition)} may be in {', '.join(offline)}, offline"
                )
            target = self._choose() if directory is None else self._directory(directory)
            target.arriving += 1
            try:
                await self._world.dawdle("log-made-late")
                name = directory_name(*topic_partition)
                log = None
                is_quick = not is_durable and not self._world.buggify("log-made-durable")
                if topic_id is not None and is_quick:
                    log = await self._make_quickly(target, name, topic_partition, topic_id)
                if log is None:
                    log = await self._make(target, name, topic_partition, topic_id)
                target.logs[topic_partition] = log
            finally:
                target.arriving -= 1
            if topic_id is not None:
                self._topic_ids[topic_partition] = topic_id
            return log

    async def _check_topic_id(
        self, topic_partition: TopicPartition, log: PartitionLog, topic_id: Uuid | None
    ) -> None:
        if topic_id is None:
            return
        known = self._topic_ids.get(topic_partition)
        if known is None:
            directory = self.directory_of(topic_partition)
            if directory is not None:
                await self._write_topic_id(directory, log.directory, topic_id)
            self._topic_ids[topic_partition] = topic_id
        elif known != topic_id:
            raise InconsistentTopicIdError(
                f"{log.directory} holds the topic {format_uuid(known)}, not {format_uuid(topic_id)}"
            )

    def _choose(self) -> LogDirectory:
        cordoned = self.cordoned_directories
        open_ones = [
            each for each in self._online() if each.path not in cordoned and "*" not in cordoned
        ]
        if not open_ones:
            raise StorageError("no data directory takes new partitions: all are offline or closed")
        return min(open_ones, key=lambda each: each.partition_count)

    def _directory(self, path: str) -> LogDirectory:
        for directory in self._directories:
            if directory.path == path:
                return directory
        raise UnknownDirectoryError(f"{path} is no data directory of this node")

    async def _make_quickly(
        self, directory: LogDirectory, name: str, topic_partition: TopicPartition, topic_id: Uuid
    ) -> PartitionLog | None:
        """A log that is not settled; None if something is in its place."""
        path = f"{directory.path}/{name}"
        with directory.guard(f"make {path}"):
            log = await create_log(
                directory.environment,
                path,
                topic_partition,
                self._config_of(topic_partition[0]),
                format_partition_metadata(topic_id),
            )
        if log is not None and not directory.is_online:
            log.go_offline(str(directory.failure))
        return log

    async def _make(
        self,
        directory: LogDirectory,
        name: str,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
    ) -> PartitionLog:
        path = f"{directory.path}/{name}"
        disk = self._world.disk
        with directory.guard(f"make {path}"):
            await disk.make_directory(path)
            if topic_id is not None:
                await self._write_topic_id(directory, path, topic_id)
            config = self._config_of(topic_partition[0])
            log = await load_log(
                directory.environment, path, topic_partition, config, is_clean=False
            )
            await disk.sync_directory(directory.path)
        if not directory.is_online:
            log.go_offline(str(directory.failure))
        _log.info("made %s", path)
        return log

    async def _write_topic_id(self, directory: LogDirectory, path: str, topic_id: Uuid) -> None:
        file = AtomicFile(self._world.disk, f"{path}/{PARTITION_METADATA}")
        with directory.guard(f"write {file.path}"):
            await file.replace(format_partition_metadata(topic_id))

    async def delete(self, topic_partition: TopicPartition) -> bool:
        """Delete a partition's log; whether there was one.

        When this returns the log is gone for good, and the name is free. Its files are unlinked
        after `file.delete.delay.ms`, and then `partition_unlinked` is called.
        """
        async with self._turn(topic_partition), self._cleaner.paused(topic_partition):
            await self._world.dawdle("log-deleted-late")
            # The future log first: a future log without a current one is a finished move.
            await self._drop_future(topic_partition)
            directory = self.directory_of(topic_partition)
            if directory is None:
                return False
            await self._delete(directory, directory.logs, topic_partition)
            return True

    async def set_aside(self, topic_partition: TopicPartition) -> str | None:
        """Take a log out of use and keep its files; the path under which they are, if there is one.

        Nothing looks at them again, and a later log of that name has another directory.
        """
        async with self._turn(topic_partition), self._cleaner.paused(topic_partition):
            await self._drop_future(topic_partition)
            directory = self.directory_of(topic_partition)
            if directory is None:
                return None
            log = directory.logs[topic_partition]
            await log.rename_directory(self._moving_path(stray_directory_name, directory, log))
            del directory.logs[topic_partition]
            self._topic_ids.pop(topic_partition, None)
            await log.close()
            await directory.write_checkpoints()
            await self._cleaner.forget(log)
            return log.directory

    async def _drop_future(self, topic_partition: TopicPartition) -> None:
        directory = self._future_directory(topic_partition)
        if directory is not None:
            await self._delete(directory, directory.futures, topic_partition)

    async def _delete(
        self,
        directory: LogDirectory,
        logs: dict[TopicPartition, PartitionLog],
        topic_partition: TopicPartition,
    ) -> None:
        log = logs[topic_partition]
        await log.rename_directory(self._moving_path(deleting_directory_name, directory, log))
        del logs[topic_partition]
        topic_id = self._topic_ids.get(topic_partition)
        if logs is directory.logs:
            self._topic_ids.pop(topic_partition, None)
        directory.remove_later(log, topic_id, delay_ms=log.config.file_delete_delay_ms)
        _log.info("deleted %s", log.directory)
        if not log.is_unused:
            await directory.write_checkpoints()
        if logs is directory.logs:
            await self._cleaner.forget(log)

    def _moving_path(
        self, name: Callable[[str, int, str], str], directory: LogDirectory, log: PartitionLog
    ) -> str:
        unique = random_id(self._world).hex()
        return f"{directory.path}/{name(*log.topic_partition, unique)}"

    async def truncate(self, log: PartitionLog, offset: int) -> bool:
        """As `log.truncate_to`, with checkpoints on disk that are not beyond the new end.

        Else a crash later could leave segments unrecovered, or uncleaned, that were written since.
        A copy of the log in another directory is cut first.
        """
        async with self._truncation(log) as (current, future):
            await self._world.dawdle("log-truncated-late")
            if future is not None:
                # If it fails, only the move suffers.
                with suppress(StorageError):
                    await future.truncate_to(offset)
            await self._cleaner.lower_checkpoint(current, offset)
            if not await current.truncate_to(offset):
                return False
            await self._lower_checkpoints(current)
        return True

    async def truncate_fully(self, log: PartitionLog, start_offset: int) -> None:
        """As `log.truncate_fully_and_start_at`, likewise."""
        async with self._truncation(log) as (current, future):
            if future is not None:
                with suppress(StorageError):
                    await future.truncate_fully_and_start_at(start_offset)
            await self._cleaner.lower_checkpoint(current, start_offset)
            await current.truncate_fully_and_start_at(start_offset)
            await self._lower_checkpoints(current)

    @asynccontextmanager
    async def _truncation(
        self, log: PartitionLog
    ) -> AsyncIterator[tuple[PartitionLog, PartitionLog | None]]:
        """The log to cut, and its copy if it is being moved: nothing is copied or swapped within.

        Another log may have taken the place of `log` before it was our turn; but not one of another
        topic of that name.
        """
        topic_partition = log.topic_partition
        topic_id = self.topic_id(topic_partition)
        async with self._turn(topic_partition), self._cleaner.paused(topic_partition):
            current = self.get(topic_partition)
            if current is None or self.topic_id(topic_partition) != topic_id:
                yield log, None
            else:
                yield current, self.future(topic_partition)

    async def _lower_checkpoints(self, log: PartitionLog) -> None:
        directory = self.directory_of(log.topic_partition)
        if directory is not None:
            await directory.write_checkpoints()

    @property
    def cordoned_directories(self) -> tuple[str, ...]:
        """Those that get no new partitions; `*` for all."""
        return self._settings.cordoned_directories

    def configure(self, settings: LogManagerSettings) -> None:
        """New settings of the node. Directories, and the pace of the chores, stay as they were."""
        if settings == self._settings:
            return
        self._settings = settings
        self._cleaner.configure(settings.cleaner)
        for directory in self._online():
            directory.configure(settings)

    def reconfigure(self, *topics: str) -> None:
        """The configurations of topics have changed: their logs take the new ones."""
        configs = {topic: self._config_of(topic) for topic in topics}
        for directory in self._online():
            for log in [*directory.logs.values(), *directory.futures.values()]:
                config = configs.get(log.topic_partition[0])
                if config is not None:
                    log.config = config
