"""The files of one partition directory: making, renaming, removing and syncing them.

What leaves the log is renamed to `.deleted` first and unlinked after a delay, so that readers under
way are not disturbed and a crash in between leaves nothing that looks like a segment.

The order of effects is what makes a crash harmless. A file system may keep a later one and lose an
earlier, so where the order matters there is a sync of the directory in between:

- Segments that end a log leave from the last backwards, and only then is the one before them cut:
  at every moment the directory holds a prefix of the log that was. The cut is synced before
  anything is appended behind it.
- Segments that replace others are synced as `.cleaned`, renamed to `.swap`, which says that they
  are whole, and get their names when the others have lost theirs. The directory is synced after
  each of these steps.
- A new log need not wait for the medium: its topic id is in `partition.metadata.new`, which says
  that a loss of power may have taken anything else of it, even its first segment from under a later
  one. `settle` makes all of that durable and gives the file its name. It comes before anything that
  counts on the log's being there, as a recovery point does, and before anything but appends and
  rolls changes the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kraftpy.log.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    NEW_PARTITION_METADATA,
    PARTITION_METADATA,
    AtomicFile,
    format_epochs,
)
from kraftpy.log.epochs import LeaderEpochCache
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.segment import Segment
from kraftpy.log.segment_files import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from kraftpy.log.segments import Segments
from kraftpy.log.snapshots import ProducerSnapshots

__all__ = ["LogFiles"]


class LogFiles:
    """`directory` is where they are now: directories are renamed."""

    __slots__ = (
        "_environment",
        "_names_changed",
        "_replaced",
        "directory",
        "is_settled",
        "snapshots",
    )

    def __init__(self, environment: LogEnvironment, directory: str) -> None:
        self._environment = environment
        self.directory = directory
        self.snapshots = ProducerSnapshots(environment.disk, directory)
        self._names_changed = False
        # By base offset, the last segment that the one there now has replaced; made when needed.
        self._replaced: dict[int, Segment] | None = None
        self.is_settled = True

    def begin(self, metadata: str, config: LogConfig) -> Segment:
        """Fill a new directory: whose log it is, and a first segment. Nothing is durable yet."""
        path = f"{self.directory}/{NEW_PARTITION_METADATA}"
        file = self._environment.disk.open(path, write=True, create=True)
        try:
            file.pwrite([metadata.encode()], 0)
        finally:
            file.close()
        return self.begin_segment(config)

    def begin_segment(self, config: LogConfig) -> Segment:
        """The first segment of a log that is not settled, whether its file is there or not.

        It has no indexes before its first append: making files is most of what a new log costs.
        """
        self.is_settled = False
        if config.preallocate:
            return self.create_segment(0, config)
        self._names_changed = True
        segment = Segment(
            self._environment.pool,
            self.directory,
            0,
            config,
            size_bytes=0,
            has_transaction_index=False,
            roll_jitter_ms=self.draw_jitter_ms(config),
            now_ms=self._environment.clock.wall_ms(),
        )
        segment.log_file.truncate(0)
        return segment

    async def settle(self) -> None:
        """Make a new log durable, its directory's name included."""
        if self.is_settled:
            return
        disk, directory = self._environment.disk, self.directory
        await self.sync_names()
        path = f"{directory}/{NEW_PARTITION_METADATA}"
        file = disk.open(path, write=True)
        try:
            await file.sync()
        finally:
            file.close()
        await disk.rename(path, f"{directory}/{PARTITION_METADATA}")
        await self.sync_names()
        await disk.sync_directory(directory.rpartition("/")[0])
        self.is_settled = True

    def create_segment(self, base_offset: int, config: LogConfig, *, suffix: str = "") -> Segment:
        """An empty segment, for the end of the log or with a suffix for the cleaner."""
        self._names_changed = True
        return Segment.create(
            self._environment.pool,
            self.directory,
            base_offset,
            config,
            suffix=suffix,
            roll_jitter_ms=self.draw_jitter_ms(config),
            now_ms=self._environment.clock.wall_ms(),
            preallocate=config.preallocate and not suffix,
        )

    def draw_jitter_ms(self, config: LogConfig) -> int:
        """How much earlier than `segment.ms` a segment is rolled by age, drawn once for each."""
        limit_ms = min(config.segment_jitter_ms, config.segment_ms)
        return self._environment.jitter.randrange(limit_ms) if limit_ms > 0 else 0

    async def write_snapshots(self) -> None:
        """Give the snapshots that were taken their files."""
        if self.snapshots.has_unwritten:
            self._names_changed = True
            await self.snapshots.write(self._environment.pace)

    async def sync_snapshots(self) -> None:
        """Make all snapshots durable, with their names."""
        if self.snapshots.has_unsynced:
            await self.snapshots.sync()
            await self.sync_names()

    async def save_epochs(self, epochs: LeaderEpochCache) -> None:
        """Bring the checkpoint up to date."""
        entries = epochs.take_changes()
        if entries is None:
            return
        try:
            # Nobody else does so meanwhile: it is part of a log's changes, one at a time.
            path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
            await AtomicFile(self._environment.disk, path).replace(format_epochs(entries))
        except OSError:
            epochs.not_saved()
            raise

    async def sync(self, segments: Iterable[Segment]) -> None:
        """Make these segments, the snapshots and all names durable."""
        await self.snapshots.sync()
        for segment in segments:
            await segment.sync()
            self._note_new_name(segment)
        if self._names_changed:
            self._names_changed = False
            await self.sync_names()

    async def sync_aborted(self, segment: Segment) -> None:
        """Make a rebuilt transaction index durable: if it were lost, nobody would miss it.

        That other indexes are damaged or lost is seen at the next start.
        """
        await segment.transaction_index.sync()
        self._note_new_name(segment)
        if self._names_changed:
            await self.sync_names()

    def _note_new_name(self, segment: Segment) -> None:
        if segment.transaction_index.has_new_name:
            segment.transaction_index.has_new_name = False
            self._names_changed = True

    async def sync_names(self) -> None:
        await self._environment.disk.sync_directory(self.directory)

    async def retire(self, segment: Segment, delay_ms: int, *, is_replaced: bool = False) -> None:
        """Take a segment's files out of the log, and the snapshot at its base.

        That stays if the segment is replaced by another with the same base.
        """
        environment = self._environment
        replaced = self._replaced or {}
        earlier = replaced.pop(segment.base_offset, None)
        if earlier is not None:
            # Its name is about to be this one's. Whoever reads from it still, and finds the handle
            # closed meanwhile, must not get the bytes of another.
            earlier.close_untouched()
        if is_replaced:
            self._replaced = replaced
            replaced[segment.base_offset] = segment
        else:
            await self.snapshots.remove(segment.base_offset)
        await segment.rename(environment.disk, self.directory, DELETED_SUFFIX)
        environment.owner.unlink_later([file.path for file in segment.files], delay_ms)

    async def retire_from(self, segments: Segments, base_offset: int, delay_ms: int) -> None:
        """Take the segments from `base_offset` on out of `segments` and out of the log.

        The last one first, and durably, so that none survives one before it.
        """
        while len(segments) and (last := segments.last).base_offset >= base_offset:
            segments.remove(last)
            await self.retire(last, delay_ms)
            await self.sync_names()

    async def announce_swap(self, segments: Sequence[Segment]) -> None:
        """Make finished `.cleaned` segments durable and say so by `.swap`.

        From the last backwards: as long as one is still `.cleaned`, those before it do not count.
        """
        for segment in segments:
            await segment.sync()
        await self.sync_names()
        for segment in reversed(segments):
            await segment.rename(self._environment.disk, self.directory, SWAP_SUFFIX)
            await self.sync_names()

    async def finish_swap(self, segments: Sequence[Segment]) -> None:
        """The segments that these replace are out of the way."""
        await self.sync_names()
        for segment in segments:
            await segment.rename(self._environment.disk, self.directory, "")
        await self.sync_names()

    def create_cleaned(self, base_offset: int, config: LogConfig) -> Segment:
        return self.create_segment(base_offset, config, suffix=CLEANED_SUFFIX)

    def moved(self, directory: str) -> None:
        """The directory was renamed."""
        self.directory = directory
        self.snapshots.moved(directory)
