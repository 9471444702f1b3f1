"""Seeded bugs of the log and its files, each one replacing one method of the product (10.5).

The simulation of logs on a disk that loses power must find every one of them; see seeded_bugs.py
for how.
"""

from __future__ import annotations

from typing import Any

from seeded_bugs import Suite, named

from kraftpy.log.checkpoints import AtomicFile
from kraftpy.log.compaction import Compaction, TransactionTracker
from kraftpy.log.index import SegmentIndex
from kraftpy.log.log_files import LogFiles
from kraftpy.log.partitions import Partitions
from kraftpy.log.recovery import Recovery
from kraftpy.log.segment import Segment
from kraftpy.log.segment_reading import ReadableSegment
from kraftpy.log.segment_store import SegmentStore
from kraftpy.log.transactions import TransactionIndex
from kraftpy.records.batch import RecordBatch
from kraftpy.sim.storage_simulation import StorageSimulation

STEPS = 300


# Files.


async def sync_skipped_before_rename(self: AtomicFile, content: str | bytes) -> None:
    async with self._turn:
        file = self._disk.open(self.path + ".tmp", write=True, create=True)
        file.truncate(0)
        file.pwrite([content.encode() if isinstance(content, str) else content], 0)
        file.close()
        await self._disk.rename(self.path + ".tmp", self.path)
        await self._disk.sync_directory(self._directory)


async def directory_not_synced(self: LogFiles) -> None:
    return None


async def data_not_synced(self: SegmentStore) -> None:
    await self.offset_index.sync()
    await self.time_index.sync()


def crc_not_checked_on_recovery(self: RecordBatch) -> bool:
    return True


def index_not_truncated_with_the_log(self: SegmentIndex[Any], offset: int) -> None:
    return None


# Transactions.

_append_aborted = TransactionIndex.append


def aborted_index_skips_the_first_batch(self: TransactionIndex, transaction: Any) -> None:
    later = min(transaction.first_offset + 1, transaction.last_offset)
    _append_aborted(self, transaction._replace(first_offset=later))


def recovery_rebuilds_no_aborted_index(
    self: Recovery, segment: Any, batch: Any, position: int
) -> None:
    _take(self, segment, batch, position)
    segment.transaction_index.reset()


_take = Recovery._take


# Compaction and retention.


def compaction_drops_the_last_value(self: Compaction, batch: Any, spans: Any, kept: Any) -> None:
    _sift(self, batch, [each for each in spans if self._map.get(each[4] or b"") != each[2]], kept)


_sift = Compaction.sift


def aborted_values_win(self: TransactionTracker, batch: Any) -> bool:
    return False


async def retention_by_the_wall_clock_of_creation(self: Segment, disk: Any) -> int:
    return self.created_ms


# Topics.


async def another_topics_log_is_taken(
    self: Partitions, topic_partition: Any, log: Any, topic_id: Any
) -> None:
    return None


async def deleted_log_stays_where_it_was(
    self: Partitions, directory: Any, logs: Any, topic_partition: Any
) -> None:
    log = logs.pop(topic_partition)
    self._topic_ids.pop(topic_partition, None)
    await log.close()


BUGS = [
    named(AtomicFile, "replace", sync_skipped_before_rename),
    named(LogFiles, "sync_names", directory_not_synced),
    named(SegmentStore, "sync", data_not_synced),
    named(RecordBatch, "is_valid", property(crc_not_checked_on_recovery)),
    named(SegmentIndex, "truncate_to", index_not_truncated_with_the_log),
    named(TransactionIndex, "append", aborted_index_skips_the_first_batch),
    named(Recovery, "_take", recovery_rebuilds_no_aborted_index),
    named(Compaction, "sift", compaction_drops_the_last_value),
    named(TransactionTracker, "is_aborted", aborted_values_win),
    named(ReadableSegment, "largest_timestamp_ms", retention_by_the_wall_clock_of_creation),
    named(Partitions, "_check_topic_id", another_topics_log_is_taken),
    named(Partitions, "_delete", deleted_log_stays_where_it_was),
]


def run(seed: int) -> None:
    StorageSimulation(seed).run(STEPS)


SUITE = Suite("log", "L2, logs on a disk", BUGS, run)
