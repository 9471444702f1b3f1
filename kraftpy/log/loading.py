"""Loading the log of a partition from its directory, or making a new one (7).

`load_log` is the way to a PartitionLog. After a clean shutdown it reads neither data nor indexes:
the recovery point is the log's end then, and the first append checks that. Otherwise the segments
from the recovery point on are recovered, in slices that leave the loop free.

What a crash can have left behind is tidied first. Every step can be repeated, so that a crash in
the middle of loading only means loading again:

- `.deleted` and `.cleaned` files go.
- A `.log.swap` says that its segment is whole and that the ones it replaces may already be gone. It
  takes their place, unless there is a `.cleaned` at or below its offset: then the renaming to
  `.swap` was not complete, the originals are all there, and it goes.
- Indexes without data go. Data without indexes gets new ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing

from kraftpy.log.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    TopicPartition,
    parse_epochs,
    read_text,
)
from kraftpy.log.epochs import LeaderEpochCache
from kraftpy.log.errors import (
    CorruptIndexError,
    IndexUnderRepairError,
    SegmentOffsetOverflowError,
    StorageError,
)
from kraftpy.log.index_rebuilding import paced_headers, rebuild_indexes
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_files import LogFiles
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.producers import ProducerState
from kraftpy.log.rebuilding import rebuild_producers
from kraftpy.log.recovery import Recovery
from kraftpy.log.segment import Segment
from kraftpy.log.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_KINDS,
    SWAP_SUFFIX,
    FileKind,
    file_name,
    parse_file_name,
)
from kraftpy.log.segments import Segments
from kraftpy.log.splitting import split_segment
from kraftpy.records.errors import CorruptRecord

__all__ = ["load_log"]

_log = logging.getLogger(__name__)

_INDEX_KINDS = SEGMENT_KINDS[1:]
_TEMPORARY = (f"{LEADER_EPOCH_CHECKPOINT}.tmp", f"{PARTITION_METADATA}.tmp")


def _no_progress(_: int) -> None:
    """Nobody wants to know."""


async def load_log(
    environment: LogEnvironment,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    is_clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    durable_end: int = 0,
    progress: Callable[[int], None] = _no_progress,
) -> PartitionLog:
    """The log in `directory`, which is made if there is none.

    `is_clean`: the clean-shutdown marker was there, so that no recovery is needed. `progress` is
    told the size of every batch that recovery has checked. Raises OSError, MalformedFileError for
    a leader epoch checkpoint that can't be understood, and StorageError, with the data untouched,
    for damage below `durable_end`.
    """
    loader = _Loader(
        environment,
        LogFiles(environment, directory),
        config,
        is_clean=is_clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        durable_end=durable_end,
        progress=progress,
    )
    return await loader.load(topic_partition)


class _Loader:
    """One loading."""

    def __init__(
        self,
        environment: LogEnvironment,
        files: LogFiles,
        config: LogConfig,
        *,
        is_clean: bool,
        recovery_point: int,
        log_start_offset: int,
        durable_end: int,
        progress: Callable[[int], None],
    ) -> None:
        self._environment = environment
        self._disk = environment.disk
        self._files = files
        self._config = config
        self._is_clean = is_clean
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._durable_end = durable_end
        self._progress = progress
        self._pace = environment.pace
        self._epochs = LeaderEpochCache()
        self._segments = Segments()
        self._unproven_from: int | None = None
        # Base offsets of segments that must be recovered for want of indexes.
        self._without_index: list[int] = []

    async def load(self, topic_partition: TopicPartition) -> PartitionLog:
        """The order of 7.1."""
        await self._make_directory()
        text = await read_text(self._disk, self._path(LEADER_EPOCH_CHECKPOINT))
        if text is not None:
            path = self._path(LEADER_EPOCH_CHECKPOINT)
            self._epochs = LeaderEpochCache(parse_epochs(text, path))
        await self._load_segments()
        end_offset = await self._end_offset()
        self._epochs.truncate_from_end(end_offset)
        start_offset = max(self._log_start_offset, self._segments.first.base_offset)
        self._epochs.truncate_from_start(start_offset)
        if self._unproven_from is not None and self._unproven_from < start_offset:
            # Nobody can cut the log there.
            self._unproven_from = None
        producers = self._new_producers()
        await rebuild_producers(
            producers,
            self._files.snapshots,
            self._segments,
            clock=self._environment.clock,
            pace=self._pace,
            log_start_offset=start_offset,
            end_offset=end_offset,
        )
        await self._files.snapshots.remove_strays({s.base_offset for s in self._segments})
        if not self._is_clean:
            self._segments.last.make_active()
        return PartitionLog(
            self._environment,
            self._files,
            topic_partition,
            self._config,
            segments=self._segments,
            epochs=self._epochs,
            producers=producers,
            log_start_offset=start_offset,
            log_end_offset=end_offset,
            recovery_point=end_offset if self._is_clean else self._recovery_point,
            unproven_from=self._unproven_from,
        )

    async def _make_directory(self) -> None:
        directory = self._files.directory
        try:
            await self._disk.stat(directory)
        except FileNotFoundError:
            await self._disk.make_directory(directory)
            await self._disk.sync_directory(directory.rpartition("/")[0])

    def _path(self, name: str) -> str:
        return f"{self._files.directory}/{name}"

    def _new_producers(self) -> ProducerState:
        return ProducerState(
            expiration_ms=self._environment.producer_expiration_ms,
            verify_transactions=self._environment.verify_transactions,
        )

    async def _load_segments(self) -> None:
        while True:
            await self._tidy()
            await self._open_segments()
            try:
                await self._recover()
            except SegmentOffsetOverflowError:
                # Begin anew with more segments.
                for segment in self._segments:
                    segment.close()
                continue
            return

    # Tidying.

    async def _tidy(self) -> None:
        names = await self._disk.list_directory(self._files.directory)
        files = [(name, file) for name in names if (file := parse_file_name(name)) is not None]
        cleaned = [file.base_offset for _, file in files if file.suffix == CLEANED_SUFFIX]
        swaps = []
        for name, file in files:
            if file.suffix != SWAP_SUFFIX:
                continue
            is_whole = not cleaned or file.base_offset < min(cleaned)
            if file.kind is FileKind.LOG and is_whole:
                swaps.append(file.base_offset)
            else:
                # Indexes are rebuilt with the segment.
                await self._disk.unlink(self._path(name))
        if cleaned:
            # Durably: a swap that is not whole must not outlive what tells so.
            await self._files.sync_names()
        for name, file in files:
            if file.suffix in (DELETED_SUFFIX, CLEANED_SUFFIX):
                await self._disk.unlink(self._path(name))
        for name in _TEMPORARY:
            if name in names:
                await self._disk.unlink(self._path(name))
        for base_offset in swaps:
            await self._take_in(base_offset)

    async def _take_in(self, base_offset: int) -> None:
        """Put a `.log.swap` into the place of the segments that it replaces."""
        swap_path = self._path(file_name(base_offset, FileKind.LOG, SWAP_SUFFIX))
        swap = self._segment(base_offset, has_transaction_index=False, suffix=SWAP_SUFFIX)
        end_offset = base_offset + 1
        try:
            async with aclosing(paced_headers(swap, 0, self._pace)) as headers:
                async for header in headers:
                    end_offset = max(end_offset, header.last_offset + 1)
        except CorruptRecord as error:
            _log.warning("%r: %s", swap, error)
        swap.close_untouched()
        for name in await self._disk.list_directory(self._files.directory):
            file = parse_file_name(name)
            if (
                file is not None
                and not file.suffix
                and file.kind in SEGMENT_KINDS
                and base_offset <= file.base_offset < end_offset
            ):
                await self._disk.rename(self._path(name), self._path(name + DELETED_SUFFIX))
        await self._files.sync_names()
        await self._disk.rename(swap_path, self._path(file_name(base_offset, FileKind.LOG)))
        await self._files.sync_names()

    # Opening.

    async def _open_segments(self) -> None:
        self._segments = Segments()
        self._without_index = []
        kinds_by_base: dict[int, list[FileKind]] = {}
        for name in await self._disk.list_directory(self._files.directory):
            file = parse_file_name(name)
            if file is None:
                continue
            if file.suffix == DELETED_SUFFIX:
                await self._disk.unlink(self._path(name))
            else:
                kinds_by_base.setdefault(file.base_offset, []).append(file.kind)
        snapshot_offsets = []
        for base_offset, kinds in kinds_by_base.items():
            if FileKind.SNAPSHOT in kinds:
                snapshot_offsets.append(base_offset)
            if FileKind.LOG in kinds:
                self._open_segment(base_offset, kinds)
                continue
            for kind in _INDEX_KINDS:
                if kind in kinds:
                    path = self._path(file_name(base_offset, kind))
                    _log.warning("%s is removed: it has no data", path)
                    await self._disk.unlink(path)
        self._files.snapshots.found(snapshot_offsets)

    def _open_segment(self, base_offset: int, kinds: list[FileKind]) -> None:
        segment = self._segment(
            base_offset, has_transaction_index=FileKind.TRANSACTION_INDEX in kinds
        )
        self._segments.add(segment)
        if FileKind.OFFSET_INDEX not in kinds or FileKind.TIME_INDEX not in kinds:
            if segment.size_bytes:
                _log.error("%r has lost an index; it is rebuilt", segment)
            self._without_index.append(base_offset)

    def _has_sound_indexes(self, segment: Segment) -> bool:
        if segment.base_offset in self._without_index:
            return False
        # A clean start reads no index: what is wrong in one shows when it is used.
        if not self._is_clean:
            try:
                segment.offset_index.sanity_check()
                segment.time_index.sanity_check()
                segment.transaction_index.sanity_check()
            except CorruptIndexError as error:
                _log.warning("%r has a damaged index, it is rebuilt: %s", segment, error.message)
                return False
        return True

    def _segment(
        self, base_offset: int, *, has_transaction_index: bool, suffix: str = ""
    ) -> Segment:
        # Not through the pool: nobody needs it open yet.
        file = self._disk.open(self._path(file_name(base_offset, FileKind.LOG, suffix)))
        size_bytes = file.size()
        file.close()
        return Segment(
            self._environment.pool,
            self._files.directory,
            base_offset,
            self._config,
            size_bytes=size_bytes,
            has_transaction_index=has_transaction_index,
            suffix=suffix,
            roll_jitter_ms=self._files.draw_jitter_ms(self._config),
            now_ms=self._environment.clock.wall_ms(),
        )

    # Recovering.

    async def _recover(self) -> None:
        """7.6, and the segments that lack an index."""
        recovery = Recovery(
            self._segments,
            self._epochs,
            self._new_producers(),
            self._files,
            self._config,
            recovery_point=self._recovery_point,
            log_start_offset=self._log_start_offset,
            durable_end=self._durable_end,
            clock=self._environment.clock,
            pace=self._pace,
            progress=self._progress,
        )
        for segment in self._segments:
            if segment not in self._segments:
                # The log ends before it.
                break
            following = self._segments.higher(segment.base_offset)
            is_unflushed = not self._is_clean and (
                following is None or following.base_offset > self._recovery_point
            )
            # A preallocated file's room is cut off when the segment is rolled, and that is durable
            # with the next flush only.
            has_room = (
                self._config.preallocate
                and not self._is_clean
                and following is not None
                and following.base_offset == self._recovery_point
            )
            if not is_unflushed and not has_room and self._has_sound_indexes(segment):
                continue
            try:
                await recovery.recover(segment, is_unflushed=is_unflushed)
            except SegmentOffsetOverflowError as error:
                if segment.base_offset < self._durable_end:
                    raise StorageError(f"{segment.log_file.path} is damaged: {error}") from error
                await split_segment(segment, self._files, self._config, self._pace)
                raise
        self._unproven_from = recovery.unproven_from
        if len(self._segments) and await self._end_offset() < self._log_start_offset:
            _log.warning(
                "%s ends before its start %d; it begins anew",
                self._files.directory,
                self._log_start_offset,
            )
            await self._files.retire_from(self._segments, 0, self._config.file_delete_delay_ms)
            self._epochs.clear()
        if not len(self._segments):
            self._segments.add(self._files.create_segment(self._log_start_offset, self._config))
            # Or a later one might survive without it, and the log would seem to begin there.
            await self._files.sync_names()
        await self._files.snapshots.remove_above(await self._end_offset())

    async def _end_offset(self) -> int:
        """Where the log ends, which a clean shutdown has left in the checkpoint.

        Without an entry there, and where the last segment had to be recovered, the files tell.
        """
        last = self._segments.last
        if (
            self._is_clean
            and last.size_bytes
            and last.base_offset not in self._without_index
            and last.base_offset < self._recovery_point
        ):
            return self._recovery_point
        try:
            return last.next_offset()
        except IndexUnderRepairError:
            await rebuild_indexes(last, self._pace)
            return last.next_offset()
