"""The cleaner: tasks that compact the logs of a node, the dirtiest first.

There are `log.cleaner.threads` of them, and each cleans a log of its own. They share their slices
of the loop, the limit of speed, and the memory for offset maps in equal parts. One looks for the
dirtiest log at a time, so that what it has found still holds when it begins.

How far a log was cleaned is kept in `cleaner-offset-checkpoint`, one file for each data directory,
written after every cleaning. Without an entry, or with one that can't be right, a log is dirty from
its start on; that costs another pass over it and nothing else. The reverse would be harm: what lies
below the checkpoint is taken for clean, and a tombstone among it would go without having removed
anything. So an entry is lowered before its log is truncated, and forgotten with its log.

Whoever truncates, deletes or moves a log pauses its cleaning for that time (`paused`). A cleaning
under way is cancelled, and what it has written is removed, before the body begins. A log is not
cleaned while it is copied, since the copy of a deleted record could outlive its tombstone.

Data that can't be read, whoever wrote it, makes a log uncleanable: that is said once, and the log
is left alone until it is truncated or the node starts again. A full disk is no such thing; the
cleaner tries again later.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import trio

from kraftpy.log.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    AtomicFile,
    TopicPartition,
    format_offsets,
    parse_offsets,
    read_text,
)
from kraftpy.log.cleaner_schedule import LogToClean, choose_dirtiest, survey, valid_checkpoint
from kraftpy.log.cleaner_settings import CleanerSettings
from kraftpy.log.cleaning import Cleaning, CleaningAbortedError, CleaningReport
from kraftpy.log.errors import CorruptIndexError, MalformedFileError, StorageError
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.throttle import Throttle
from kraftpy.records.errors import RecordDataError
from kraftpy.world import LATE_SECONDS, Buggify, Clock, Disk, never

__all__ = ["Cleaner"]

_log = logging.getLogger(__name__)


class _Checkpoint:
    """The offsets up to which the logs of one data directory are clean, in memory and on disk."""

    __slots__ = ("_file", "offsets")

    def __init__(self, file: AtomicFile, offsets: dict[TopicPartition, int]) -> None:
        self._file = file
        self.offsets = offsets

    async def save(self) -> None:
        # An offset that is on its way to the disk must not be overtaken by an older one.
        with trio.CancelScope(shield=True):
            await self._file.replace(format_offsets(self.offsets))


class _Current:
    """A cleaning under way."""

    __slots__ = ("ended", "scope")

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.ended = trio.Event()


class Cleaner:
    """`open_directory` for each data directory, then `run`."""

    __slots__ = (
        "_buggify",
        "_checkpoints",
        "_choosing",
        "_clock",
        "_configured",
        "_current",
        "_disk",
        "_logs",
        "_pace",
        "_paused",
        "_settings",
        "_tasks",
        "_throttle",
        "_uncleanable",
        "last_report",
        "max_dirty_ratio",
        "max_overdue_ms",
        "uncleanable",
    )

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        settings: CleanerSettings,
        *,
        logs: Callable[[], Iterable[PartitionLog]],
        buggify: Buggify = never,
    ) -> None:
        """`logs` gives those that can be used, compacted or not."""
        self._disk = disk
        self._clock = clock
        self._settings = settings
        self._logs = logs
        self._buggify = buggify
        # Of all tasks together.
        self._pace = Pace(clock)
        self._throttle = Throttle(clock, settings.max_bytes_per_second)
        self._checkpoints: dict[str, _Checkpoint] = {}
        # How many ask for a pause.
        self._paused: dict[TopicPartition, int] = {}
        self._current: dict[TopicPartition, _Current] = {}
        self._choosing = trio.Lock()
        # The numbers of the tasks that run, and what wakes them and whoever starts them.
        self._tasks: set[int] = set()
        self._configured = trio.Event()
        # Why a log can't be cleaned.
        self._uncleanable: dict[TopicPartition, str] = {}
        self.uncleanable: Mapping[TopicPartition, str] = MappingProxyType(self._uncleanable)
        # Of the last search and the last cleaning, for metrics.
        self.max_dirty_ratio = 0.0
        self.max_overdue_ms = 0
        self.last_report: CleaningReport | None = None

    @property
    def settings(self) -> CleanerSettings:
        return self._settings

    def configure(self, settings: CleanerSettings) -> None:
        """New settings; the speed limit holds at once, the others from the next cleaning on.

        A cleaning under way keeps its memory, and a task that is one too many ends with it. Nobody
        sits out a pause of the settings before.
        """
        self._settings = settings
        self._throttle.bytes_per_second = settings.max_bytes_per_second
        self._configured.set()
        self._configured = trio.Event()

    # Directories and checkpoints.

    async def open_directory(self, path: str, present: Container[TopicPartition]) -> None:
        """Read the checkpoint of a data directory, with the logs that are in there.

        Entries of others are dropped for good: a later log of that name begins with nothing. Raises
        OSError.
        """
        file = f"{path}/{CLEANER_OFFSET_CHECKPOINT}"
        offsets: dict[TopicPartition, int] = {}
        try:
            text = await read_text(self._disk, file)
            if text is not None:
                offsets = parse_offsets(text, file)
        except MalformedFileError as error:
            _log.warning("%s; the logs of this directory are cleaned from their start", error)
        kept = {key: offset for key, offset in offsets.items() if key in present}
        self._checkpoints[path] = checkpoint = _Checkpoint(AtomicFile(self._disk, file), kept)
        if len(kept) < len(offsets):
            await checkpoint.save()

    def close_directory(self, path: str) -> None:
        """It is offline. Its logs are not given any more."""
        self._checkpoints.pop(path, None)

    def clean_until(self, log: PartitionLog) -> int | None:
        """The log's checkpoint; None if it was never cleaned."""
        return self._checkpoint_of(log).offsets.get(log.topic_partition)

    async def lower_checkpoint(self, log: PartitionLog, offset: int) -> None:
        """Before a truncation to `offset`: what follows it will be dirty, on disk too."""
        self._uncleanable.pop(log.topic_partition, None)
        if (self.clean_until(log) or 0) > offset:
            await self._set_checkpoint(log, offset)

    async def forget(self, log: PartitionLog) -> None:
        """The log has left its data directory: another of its name begins with nothing.

        A log that was moved is dirty from its start on in its new place. It may have been copied
        in parts, between which it was cleaned.
        """
        self._uncleanable.pop(log.topic_partition, None)
        if self.clean_until(log) is not None:
            await self._set_checkpoint(log, None)

    async def _set_checkpoint(self, log: PartitionLog, offset: int | None) -> None:
        checkpoint = self._checkpoint_of(log)
        if offset is None:
            checkpoint.offsets.pop(log.topic_partition, None)
        else:
            checkpoint.offsets[log.topic_partition] = offset
        with log.storage_guard("write the cleaner's checkpoint"):
            await checkpoint.save()

    def _checkpoint_of(self, log: PartitionLog) -> _Checkpoint:
        checkpoint = self._checkpoints.get(log.directory.rpartition("/")[0])
        if checkpoint is None:
            raise StorageError(f"{log}: its directory is offline")
        return checkpoint

    # Pausing.

    @asynccontextmanager
    async def paused(self, topic_partition: TopicPartition) -> AsyncIterator[None]:
        """Nobody cleans the partition's log within the body."""
        self._paused[topic_partition] = self._paused.get(topic_partition, 0) + 1
        try:
            current = self._current.get(topic_partition)
            if current is not None:
                current.scope.cancel()
                await current.ended.wait()
            yield
        finally:
            self._paused[topic_partition] -= 1
            if not self._paused[topic_partition]:
                del self._paused[topic_partition]

    # Cleaning.

    async def run(self) -> None:
        """Clean until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                for number in range(self._settings.task_count):
                    if number not in self._tasks:
                        self._tasks.add(number)
                        nursery.start_soon(self._work, number, name=f"log-cleaner[{number}]")
                await self._configured.wait()

    async def _work(self, number: int) -> None:
        try:
            while number < self._settings.task_count:
                if not self._settings.is_enabled or not await self.clean_dirtiest():
                    seconds = self._settings.backoff_ms / 1000
                    if self._buggify("cleaner-looks-again"):
                        seconds = LATE_SECONDS
                    with self._clock.move_on_after(seconds):
                        await self._configured.wait()
        finally:
            self._tasks.remove(number)

    async def clean_dirtiest(self) -> bool:
        """Clean one log, if one is dirty enough; whether that was so, and went well."""
        async with self._choosing:
            target = await self._choose()
            if target is None:
                return False
            log = target.log
            current = self._current[log.topic_partition] = _Current()
        try:
            with current.scope:
                await self._clean(target)
                return True
            _log.info("the cleaning of %s was interrupted", log)
        except CleaningAbortedError as error:
            _log.info("%s", error)
        except (RecordDataError, CorruptIndexError) as error:
            self._uncleanable[log.topic_partition] = str(error)
            _log.error("%s can't be cleaned and is left as it is: %s", log, error)
        except StorageError as error:
            # Its directory is offline by now, or full, and then a later cleaning may succeed.
            _log.warning("%s", error)
        finally:
            del self._current[log.topic_partition]
            current.ended.set()
        return False

    async def _clean(self, target: LogToClean) -> None:
        log = target.log
        cleaning = Cleaning(
            target,
            self._settings,
            clock=self._clock,
            pace=self._pace,
            throttle=self._throttle,
        )
        report = await cleaning.run()
        await self._set_checkpoint(log, report.end_offset)
        self.last_report = report
        _log.info(
            "cleaned %s offsets=%d..%d keys=%d bytes=%d->%d read_bytes=%d map_bytes=%d ms=%d",
            log.directory,
            report.first_dirty_offset,
            report.end_offset,
            report.key_count,
            report.old_bytes,
            report.new_bytes,
            report.read_bytes,
            report.map_bytes,
            report.elapsed_ms,
        )
        if report.keyless_count:
            _log.warning("%s: dropped %d records without key", log, report.keyless_count)

    async def _choose(self) -> LogToClean | None:
        now_ms = self._clock.wall_ms()
        found = []
        for log in list(self._logs()):
            if (
                not log.config.is_compacted
                or log.topic_partition in self._uncleanable
                or log.topic_partition in self._current
            ):
                continue
            try:
                found.append(await self._survey(log, now_ms))
                await self._pace.rest(0)
            except StorageError as error:
                _log.warning("%s", error)
            except RecordDataError as error:
                self._uncleanable[log.topic_partition] = str(error)
                _log.error("%s can't be cleaned and is left as it is: %s", log, error)
        self.max_dirty_ratio = max((target.dirty_ratio for target in found), default=0.0)
        self.max_overdue_ms = max((target.overdue_ms for target in found), default=0)
        # Not before all were looked at, which takes time.
        at_rest = [each for each in found if each.log.topic_partition not in self._paused]
        if self._buggify("cleaner-cleans-anything"):
            return next((each for each in at_rest if each.dirty_bytes), None)
        return choose_dirtiest(at_rest)

    async def _survey(self, log: PartitionLog, now_ms: int) -> LogToClean:
        checkpoint = self.clean_until(log)
        first_dirty_offset = valid_checkpoint(log, checkpoint)
        if checkpoint is not None and checkpoint != first_dirty_offset:
            # At once, before the log grows beyond an offset that is not its own.
            await self._set_checkpoint(log, first_dirty_offset)
        with log.storage_guard("look for dirty segments"):
            return await survey(
                log, first_dirty_offset, disk=self._disk, pace=self._pace, now_ms=now_ms
            )
