"""Loading all logs of a data directory, several at a time, with progress in the log.

A log that can't be loaded takes its directory offline: its files can't be trusted, and a broker
that went on without it would seem to have lost the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from kraftpy.log.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    NEW_PARTITION_METADATA,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    AtomicFile,
    TopicPartition,
    format_partition_metadata,
    parse_partition_metadata,
    read_text,
)
from kraftpy.log.creating import load_new_log
from kraftpy.log.errors import MalformedFileError, StorageError
from kraftpy.log.loading import load_log
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_directory import LogDirectory
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.segment_files import PartitionDirectory
from kraftpy.protocol.ids import Uuid
from kraftpy.records.errors import RecordDataError
from kraftpy.world import World

__all__ = ["DirectoryLoader"]

_PROGRESS_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class DirectoryLoader:
    """Loads one directory. `topic_ids` is what was found in the partition.metadata files."""

    __slots__ = (
        "_config_of",
        "_directory",
        "_high_watermarks",
        "_log_starts",
        "_names",
        "_recovered_bytes",
        "_recovery_points",
        "_reported",
        "_started",
        "_total",
        "_world",
        "topic_ids",
    )

    def __init__(
        self, world: World, directory: LogDirectory, config_of: Callable[[str], LogConfig]
    ) -> None:
        self._world = world
        self._directory = directory
        self._config_of = config_of
        self._names: list[tuple[str, PartitionDirectory]] = []
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._total = 0
        self._recovered_bytes = 0
        self._started = self._reported = world.clock.monotonic()
        self.topic_ids: dict[TopicPartition, Uuid] = {}

    async def load(self, concurrency: int) -> None:
        """Load everything, or take the directory offline."""
        directory = self._directory
        try:
            self._recovery_points = await directory.read_offsets(RECOVERY_POINT_CHECKPOINT)
            self._log_starts = await directory.read_offsets(LOG_START_OFFSET_CHECKPOINT)
            self._high_watermarks = await directory.read_offsets(REPLICATION_OFFSET_CHECKPOINT)
            self._names = await directory.partition_directories()
        except OSError as error:
            directory.fail(str(error))
            return
        self._total = len(self._names)
        # Taken from the end.
        self._names.reverse()
        if not directory.was_clean and self._total:
            _log.info("no clean shutdown: recovering directory=%s", directory.path)
        async with trio.open_nursery() as nursery:
            for _ in range(min(concurrency, self._total)):
                nursery.start_soon(self._load_some)
        if directory.is_online:
            _log.info(
                "loaded %d logs directory=%s ms=%d",
                self._total,
                directory.path,
                (self._world.clock.monotonic() - self._started) * 1000,
            )

    async def _load_some(self) -> None:
        directory = self._directory
        while self._names and directory.is_online:
            name, parsed = self._names.pop()
            self._report()
            await self._world.dawdle("log-loaded-late")
            try:
                await self._load_one(f"{directory.path}/{name}", parsed)
            except (OSError, StorageError, RecordDataError) as error:
                directory.fail(f"{name} can't be loaded: {error}")

    def _report(self) -> None:
        now = self._world.clock.monotonic()
        if now - self._reported >= _PROGRESS_SECONDS:
            self._reported = now
            _log.info(
                "loading: %d of %d logs begun, %d MB recovered directory=%s",
                self._total - len(self._names),
                self._total,
                self._recovered_bytes // 1_000_000,
                self._directory.path,
            )

    def _recovered(self, size_bytes: int) -> None:
        self._recovered_bytes += size_bytes
        self._report()

    async def _load_one(self, path: str, parsed: PartitionDirectory) -> None:
        directory = self._directory
        topic_partition = (parsed.topic, parsed.partition)
        topic_id = await self._read_topic_id(path)
        new_id = await self._read_new_topic_id(path) if topic_id is None else None
        topic_id = topic_id or new_id
        if parsed.is_deleting:
            # Nobody reads it, so there is nothing to wait for.
            directory.remove_unused(path, topic_partition, topic_id)
            return
        log = None
        config = self._config_of(parsed.topic)
        if new_id is not None:
            log = await load_new_log(directory.environment, path, topic_partition, config)
        if log is None:
            log = await self._load_used(path, parsed, config)
            if new_id is not None:
                await self._settle(log, path, new_id)
        if not directory.is_online:
            log.go_offline(str(directory.failure))
            return
        if topic_id is not None:
            # Of a future log too: it may be all that a move has left.
            self.topic_ids[topic_partition] = topic_id
        if parsed.is_future:
            directory.futures[topic_partition] = log
            return
        log.update_high_watermark(self._high_watermarks.get(topic_partition, 0))
        directory.logs[topic_partition] = log

    async def _load_used(
        self, path: str, parsed: PartitionDirectory, config: LogConfig
    ) -> PartitionLog:
        topic_partition = (parsed.topic, parsed.partition)
        return await load_log(
            self._directory.environment,
            path,
            topic_partition,
            config,
            is_clean=self._directory.was_clean,
            # Checkpoints speak of current logs only.
            recovery_point=0 if parsed.is_future else self._recovery_points.get(topic_partition, 0),
            log_start_offset=0 if parsed.is_future else self._log_starts.get(topic_partition, 0),
            progress=self._recovered,
        )

    async def _read_topic_id(self, path: str) -> Uuid | None:
        metadata = f"{path}/{PARTITION_METADATA}"
        text = await read_text(self._world.disk, metadata)
        return None if text is None else parse_partition_metadata(text, metadata)

    async def _read_new_topic_id(self, path: str) -> Uuid | None:
        """Of a log that was made a moment before the crash; None if that has taken it."""
        metadata = f"{path}/{NEW_PARTITION_METADATA}"
        try:
            text = await read_text(self._world.disk, metadata)
            return None if text is None else parse_partition_metadata(text, metadata)
        except MalformedFileError as error:
            _log.warning("%s; it was not durable yet", error)
            return None

    async def _settle(self, log: PartitionLog, path: str, topic_id: Uuid) -> None:
        """Do what the crash has kept the new log from (log_files.py)."""
        disk = self._world.disk
        if log.segments.first.base_offset:
            _log.warning("%s has lost its first segment before it was durable", path)
            await log.truncate_fully_and_start_at(0)
        await disk.sync_directory(path)
        metadata = AtomicFile(disk, f"{path}/{PARTITION_METADATA}")
        await metadata.replace(format_partition_metadata(topic_id))
        await disk.sync_directory(self._directory.path)
        await disk.unlink(f"{path}/{NEW_PARTITION_METADATA}")
