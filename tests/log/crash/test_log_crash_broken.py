"""The test of the crash tests: a log with one thing missing must be found out.

Each case replaces one method by one that leaves something out, as somebody in a hurry might, and
names the workload that has to notice.
"""

from __future__ import annotations

from typing import Any

import pytest
from log_crash_explorer import Explorer
from log_crash_home_workloads import played_at_home
from log_crash_workloads import played

from kraftpy.log import log_directory
from kraftpy.log.checkpoints import NEW_PARTITION_METADATA, PARTITION_METADATA, AtomicFile
from kraftpy.log.errors import LogError
from kraftpy.log.index import OffsetIndex, SegmentIndex
from kraftpy.log.loading import _Loader
from kraftpy.log.log_directory import LogDirectory
from kraftpy.log.log_files import LogFiles
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.partition_moves import MovablePartitions
from kraftpy.log.partitions import Partitions
from kraftpy.log.segment import Segment
from kraftpy.log.segment_files import SWAP_SUFFIX
from kraftpy.log.snapshots import ProducerSnapshots
from kraftpy.records.batch import RecordBatch
from kraftpy.records.errors import RecordDataError
from kraftpy.world import Disk, InternalInvariant

SAMPLE = 300
# Where one state alone shows what is broken, all plain ones are tried, whatever the seed.
WHOLE_SAMPLE = 2000
RARE = "new logs are settled in any order"
# What a crash test may end with; anything else is a mistake in a case.
FOUND = (AssertionError, InternalInvariant, LogError, RecordDataError, OSError)


async def nothing(*_: Any, **__: Any) -> None:
    """Leave it out."""


def nothing_at_once(*_: Any, **__: Any) -> None:
    """Leave it out."""


async def replace_unsynced(self: AtomicFile, text: str) -> None:
    file = self._disk.open(self.path + ".tmp", write=True, create=True)
    file.truncate(0)
    file.pwrite([text.encode()], 0)
    await self._disk.rename(self.path + ".tmp", self.path)
    await self._disk.sync_directory(self._directory)


async def replace_in_place(self: AtomicFile, text: str) -> None:
    file = self._disk.open(self.path, write=True, create=True)
    file.truncate(0)
    file.pwrite([text.encode()], 0)
    await file.sync()
    await self._disk.sync_directory(self._directory)


async def sync_indexes_only(self: Segment) -> None:
    await self.offset_index.sync()
    await self.time_index.sync()


async def retire_unsynced(self: PartitionLog) -> None:
    last = self._segments.last
    await self._files.retire(last, self.config.file_delete_delay_ms)
    self._segments.remove(last)
    self._truncated(last.base_offset)


async def announce_unsynced(self: LogFiles, segments: list[Segment]) -> None:
    for segment in reversed(segments):
        await segment.rename(self._environment.disk, self.directory, SWAP_SUFFIX)
    await self.sync_names()


async def announce_forwards(self: LogFiles, segments: list[Segment]) -> None:
    for segment in segments:
        await segment.sync()
    await self.sync_names()
    for segment in segments:
        await segment.rename(self._environment.disk, self.directory, SWAP_SUFFIX)
        await self.sync_names()


async def make_unsynced(disk: Disk, path: str) -> None:
    await disk.make_directory(path)


async def settle_at_once(self: LogFiles) -> None:
    """One sync of the names too few."""
    if not self.is_settled:
        disk, path = self._environment.disk, f"{self.directory}/{NEW_PARTITION_METADATA}"
        file = disk.open(path, write=True)
        await file.sync()
        file.close()
        await disk.rename(path, f"{self.directory}/{PARTITION_METADATA}")
        await self.sync_names()
        await disk.sync_directory(self.directory.rpartition("/")[0])
        self.is_settled = True


async def settle_inside(self: LogFiles) -> None:
    """The directory's own name may be lost."""
    if not self.is_settled:
        path = f"{self.directory}/{NEW_PARTITION_METADATA}"
        await self.sync_names()
        await self._environment.disk.rename(path, f"{self.directory}/{PARTITION_METADATA}")
        await self.sync_names()
        self.is_settled = True


LOG_BREAKS: dict[str, tuple[Any, str, Any, str]] = {
    "checkpoints are renamed unsynced": (AtomicFile, "replace", replace_unsynced, "epochs"),
    "checkpoints are written in place": (AtomicFile, "replace", replace_in_place, "epochs"),
    "directories are not synced": (LogFiles, "sync_names", nothing, "roll_and_flush_each"),
    "data is not synced": (Segment, "sync", sync_indexes_only, "append"),
    "epochs are not saved": (LogFiles, "save_epochs", nothing, "epochs"),
    "recovery checks no CRC": (RecordBatch, "is_valid", True, "preallocated"),
    "recovery keeps old indexes": (Segment, "reset_indexes", nothing_at_once, "roll"),
    "recovery cuts nothing": (Segment, "cut", nothing_at_once, "append"),
    "later segments stay": (LogFiles, "retire_from", nothing, "roll"),
    "indexes are taken as they are": (OffsetIndex, "sanity_check", nothing_at_once, "swap"),
    "indexes are not truncated": (SegmentIndex, "truncate_to", nothing_at_once, "truncate"),
    "segments leave in any order": (
        PartitionLog,
        "_retire_last",
        retire_unsynced,
        "truncate_fully",
    ),
    "snapshots outlive a truncation": (
        ProducerSnapshots,
        "remove",
        nothing,
        "truncate_producers",
    ),
    "swaps are not synced": (LogFiles, "announce_swap", announce_unsynced, "swap"),
    "swaps are announced forwards": (LogFiles, "announce_swap", announce_forwards, "swap_into_two"),
    "swaps are not announced": (LogFiles, "announce_swap", nothing, "swap"),
    "swaps are not completed": (_Loader, "_take_in", nothing, "swap"),
    "replaced segments stay": (LogFiles, "retire", nothing, "swap"),
}
HOME_BREAKS: dict[str, tuple[Any, str, Any, str]] = {
    "directories are made unsynced": (log_directory, "make_path", make_unsynced, "create"),
    "topic ids are not written": (Partitions, "_write_topic_id", nothing, "create"),
    "recovery points outlive a truncation": (
        Partitions,
        "_lower_checkpoints",
        nothing,
        "truncate",
    ),
    "new logs are not settled": (LogFiles, "settle", nothing, "create_quickly"),
    RARE: (LogFiles, "settle", settle_at_once, "flush_quickly"),
    "new logs are settled without their names": (LogFiles, "settle", settle_inside, "settle"),
    "moves are not finished": (MovablePartitions, "_finish_moves", nothing, "move"),
    "log starts are not written": (LogDirectory, "write_log_starts", nothing, "delete_records"),
    "closing syncs nothing": (LogFiles, "sync", nothing, "stop"),
}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("what", list(LOG_BREAKS))
async def test_a_broken_log_is_found_out(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """JEP-152."""
    owner, name, broken, workload = LOG_BREAKS[what]
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(FOUND):
        await Explorer(await played(workload), SAMPLE).explore()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("what", list(HOME_BREAKS))
async def test_a_broken_manager_is_found_out(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """JEP-152."""
    owner, name, broken, workload = HOME_BREAKS[what]
    monkeypatch.setattr(owner, name, broken)
    budget = WHOLE_SAMPLE if what == RARE else SAMPLE
    with pytest.raises(FOUND):
        await Explorer(await played_at_home(workload), budget).explore()
