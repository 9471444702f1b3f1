"""All logs of a node, in all of its data directories.

`running` is a manager's life: it takes possession of the directories, loads what is in them, does
the chores of all logs while its body runs, and stops in order, so that the next start need not
recover anything. A body that is left by an exception, or by cancellation, lets go of every handle
and leaves the recovery to the next start; that is what a crash would have done too.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.clean_shutdown import NO_BROKER_EPOCH
from kraftpy.log.directory_loading import DirectoryLoader
from kraftpy.log.errors import StorageError
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_directory import DirectoryEvents, LogDirectory
from kraftpy.log.manager_settings import NEVER_MS, LogManagerSettings
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.partition_moves import MovablePartitions
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.protocol.ids import Uuid
from kraftpy.records.errors import RecordDataError
from kraftpy.security.replication_quota import ReplicationQuota
from kraftpy.world import World

__all__ = ["LogManager"]

_log = logging.getLogger(__name__)

# Logs that are closed at a time; each needs some file handles for that.
_CONCURRENT_LOGS: Final = 8


class LogManager(MovablePartitions):
    """Made for one life: `async with manager.running(): ...`."""

    __slots__ = ("broker_epoch",)

    def __init__(
        self,
        world: World,
        settings: LogManagerSettings,
        *,
        config_of: Callable[[str], LogConfig],
        events: DirectoryEvents | None = None,
        topic_metrics: TopicMetrics | None = None,
        move_quota: ReplicationQuota | None = None,
    ) -> None:
        """`move_quota` is for copies into other directories."""
        super().__init__(
            world, settings, config_of=config_of, events=events, topic_metrics=topic_metrics
        )
        self._moving = {}
        self._move_quota = move_quota
        # What an orderly stop leaves for the next process to register with.
        self.broker_epoch = NO_BROKER_EPOCH

    # Life.

    @asynccontextmanager
    async def running(self) -> AsyncIterator[LogManager]:
        """Load everything; work while the body runs; stop in order.

        Raises a StorageError if no directory can be used, if one is in use by another process or
        belongs to another node, or if a partition has two.
        """
        try:
            await self._load()
            async with trio.open_nursery() as nursery:
                for directory in self._directories:
                    name = f"log-chores[{directory.path}]"
                    nursery.start_soon(directory.chores.run, name=name)
                nursery.start_soon(self._cleaner.run, name="log-cleaner")
                self._start_rounds(nursery)
                yield self
                nursery.cancel_scope.cancel()
            await self._stop()
        finally:
            for directory in self._directories:
                directory.release()
            # Those of a log whose loading was interrupted too.
            self._pool.close()

    def _start_rounds(self, nursery: trio.Nursery) -> None:
        settings = self._settings
        delay_ms = settings.initial_delay_ms
        rounds: tuple[tuple[str, int, int, Callable[[], Awaitable[None]]], ...] = (
            ("log-retention", delay_ms, settings.retention_check_interval_ms, self._delete_old),
            ("log-flusher", delay_ms, settings.flush_check_interval_ms, self._flush_due),
            (
                "recovery-point-checkpoint",
                delay_ms,
                settings.recovery_point_checkpoint_interval_ms,
                self._each_directory(LogDirectory.settle_logs),
            ),
            (
                "log-start-checkpoint",
                delay_ms,
                settings.log_start_checkpoint_interval_ms,
                self._each_directory(LogDirectory.write_log_starts),
            ),
            (
                "high-watermark-checkpoint",
                settings.high_watermark_checkpoint_interval_ms,
                settings.high_watermark_checkpoint_interval_ms,
                self._each_directory(self._write_high_watermarks),
            ),
            (
                "producer-expiration",
                settings.producer_expiration_check_interval_ms,
                settings.producer_expiration_check_interval_ms,
                self._expire_producers,
            ),
        )
        for name, first_ms, interval_ms, action in rounds:
            if interval_ms < NEVER_MS:
                nursery.start_soon(self._repeat, first_ms, interval_ms, action, name=name)

    async def _repeat(
        self, first_ms: int, interval_ms: int, action: Callable[[], Awaitable[None]]
    ) -> None:
        await self._world.clock.sleep(first_ms / 1000)
        while True:
            await action()
            if self._world.buggify("log-round-again"):
                continue
            await self._world.clock.sleep(interval_ms / 1000)

    def _each_directory(
        self, act: Callable[[LogDirectory], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        async def round_trip() -> None:
            for directory in self._online():
                try:
                    await act(directory)
                except StorageError as error:
                    # Offline by now, or full, and then the next round may succeed.
                    _log.warning("%s", error)

        return round_trip

    async def _write_high_watermarks(self, directory: LogDirectory) -> None:
        await directory.write_high_watermarks()
        for log in list(directory.logs.values()):
            if self._world.buggify("log-flushed-now"):
                await log.flush()
            if self._world.buggify("log-rolled-now"):
                await log.roll_early()

    async def _delete_old(self) -> None:
        for log in self.logs:
            try:
                await log.delete_old_segments()
            except (StorageError, RecordDataError) as error:
                # Nobody knows how old a segment is that can't be read; others can be.
                _log.warning("the retention of %s: %s", log, error)

    async def _flush_due(self) -> None:
        pace = Pace(self._world.clock)
        for log in self.logs:
            await pace.rest(0)
            if self._world.clock.wall_ms() - log.last_flush_ms >= log.config.flush_ms:
                with suppress(StorageError):
                    await log.flush()

    async def _expire_producers(self) -> None:
        pace = Pace(self._world.clock)
        for log in self.logs:
            for _ in log.producers.remove_expired(self._world.clock.wall_ms()):
                await pace.rest(0)
            await pace.rest(0)

    async def _stop(self) -> None:
        """Close every log and say so in its directory."""
        async with trio.open_nursery() as nursery:
            for directory in self._online():
                nursery.start_soon(self._stop_directory, directory)

    async def _stop_directory(self, directory: LogDirectory) -> None:
        started = self._world.clock.monotonic()
        try:
            await self._close_logs([*directory.logs.values(), *directory.futures.values()])
            await directory.write_checkpoints()
            with directory.guard("mark the clean shutdown"):
                await directory.mark_clean(self.broker_epoch)
        except (StorageError, RecordDataError) as error:
            _log.error("%s was not closed cleanly: %s", directory.path, error)
            return
        _log.info(
            "closed %d logs directory=%s ms=%d",
            len(directory.logs),
            directory.path,
            (self._world.clock.monotonic() - started) * 1000,
        )

    async def _close_logs(self, logs: Sequence[PartitionLog]) -> None:
        """Several at a time: each of them waits for the disk most of its time.

        Raises the first StorageError or RecordDataError; the logs behind it stay as they are.
        """
        rest = iter(logs)
        failures: list[Exception] = []

        async def close_some() -> None:
            for log in rest:
                if failures:
                    return
                try:
                    await self._world.dawdle("log-closed-late")
                    await log.close()
                except (StorageError, RecordDataError) as error:
                    failures.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(min(len(logs), _CONCURRENT_LOGS)):
                nursery.start_soon(close_some)
        if failures:
            raise failures[0]

    # Loading.

    async def _load(self) -> None:
        await self._open_directories()
        loaders = [
            DirectoryLoader(self._world, directory, self._config_of) for directory in self._online()
        ]
        async with trio.open_nursery() as nursery:
            is_single = self._world.buggify("logs-loaded-singly")
            for loader in loaders:
                count = 1 if is_single else self._settings.loaders_per_directory
                nursery.start_soon(loader.load, count)
        for loader in loaders:
            self._topic_ids |= loader.topic_ids
        self._check_any_online()
        self._check_no_doubles()
        await self._each_directory(self._open_for_cleaner)()
        await self._finish_moves()
        await self._each_directory(LogDirectory.write_checkpoints)()

    async def _open_directories(self) -> None:
        settings = self._settings
        owners: dict[Uuid, str] = {}
        for directory in self._directories:
            try:
                await directory.open(settings.cluster_id, settings.node_id)
            except OSError as error:
                directory.fail(str(error))
                continue
            other = owners.setdefault(directory.directory_id, directory.path)
            if other != directory.path:
                raise StorageError(
                    f"{other} and {directory.path} have the same directory.id; one is a copy of "
                    "the other: take it out of log.dirs"
                )
        self._check_any_online()

    async def _open_for_cleaner(self, directory: LogDirectory) -> None:
        with directory.guard("read the cleaner's checkpoint"):
            await self._cleaner.open_directory(directory.path, directory.logs)

    def _check_any_online(self) -> None:
        if not self._online():
            reasons = "; ".join(f"{each.path}: {each.failure}" for each in self._directories)
            raise StorageError(f"no data directory can be used: {reasons}")

    def _check_no_doubles(self) -> None:
        found: dict[TopicPartition, str] = {}
        for directory in self._online():
            for topic_partition, log in directory.logs.items():
                other = found.setdefault(topic_partition, log.directory)
                if other != log.directory:
                    raise StorageError(
                        f"{other} and {log.directory} are the same partition; move one of them "
                        "out of the data directories"
                    )
