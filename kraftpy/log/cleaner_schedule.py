"""What the cleaner does next: which log, which part of it, and which segments become one (15).

A log has a clean part, which was compacted before, a dirty part behind it, and a part that may not
be compacted yet. All three consist of whole segments, but that the dirty part begins in the middle
of one where the offset map was full the last time. Never compacted are the active segment, segments
that reach to or above the last stable offset, and, with `min.compaction.lag.ms`, everything from
the first segment on that has a record so young.

The dirtiest log comes first, as long as its dirty share exceeds `min.cleanable.dirty.ratio` or its
dirty part is older than `max.compaction.lag.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kraftpy.log.log_config import LogConfig
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.segment import RELATIVE_OFFSET_MAX, Segment
from kraftpy.world import Disk

__all__ = ["LogToClean", "choose_dirtiest", "group_segments", "survey", "valid_checkpoint"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log with its dirty part, which ends before `end_offset`."""

    log: PartitionLog
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    truncation_count: int
    """The log's; when it has grown, none of this holds any more."""
    overdue_ms: int
    """For how long the oldest dirty record has been due by `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if not self.dirty_bytes:
            return False
        return self.overdue_ms > 0 or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def valid_checkpoint(log: PartitionLog, checkpoint: int | None) -> int:
    """Where the dirty part begins; a checkpoint that can't be this log's makes all of it dirty."""
    start_offset = log.log_start_offset
    if checkpoint is None:
        return start_offset
    if start_offset <= checkpoint <= log.log_end_offset:
        return checkpoint
    # Retention passes by what was cleaned in the ordinary course of things.
    if checkpoint > start_offset or not log.config.is_deleted:
        _log.warning("%s was cleaned up to %d, it is said; all of it is dirty", log, checkpoint)
    return start_offset


async def survey(
    log: PartitionLog, first_dirty_offset: int, *, disk: Disk, pace: Pace, now_ms: int
) -> LogToClean:
    """How dirty a log is, and how far it may be cleaned."""
    truncation_count = log.truncation_count
    segments = list(log.segments)
    end_offset = await _first_uncleanable_offset(
        log, segments, first_dirty_offset, disk=disk, pace=pace, now_ms=now_ms
    )
    clean_bytes = dirty_bytes = 0
    # Records from before this moment are overdue.
    due_ms = now_ms - log.config.max_compaction_lag_ms
    overdue_ms = 0
    for segment, following in pairwise(segments):
        if following.base_offset <= first_dirty_offset:
            clean_bytes += segment.size_bytes
        elif following.base_offset <= end_offset:
            # As a whole: one that may not be cleaned yet may have a beginning that is clean or
            # deleted, and then the dirty part begins, and ends, in the middle of it.
            dirty_bytes += segment.size_bytes
            # Without a limit, no segment is asked.
            if due_ms > 0 and segment.first_timestamp_ms > 0:
                overdue_ms = max(overdue_ms, due_ms - segment.first_timestamp_ms)
            await pace.rest(0)
    return LogToClean(
        log,
        first_dirty_offset,
        end_offset,
        clean_bytes,
        dirty_bytes,
        truncation_count,
        overdue_ms,
    )


async def _first_uncleanable_offset(
    log: PartitionLog,
    segments: Sequence[Segment],
    first_dirty_offset: int,
    *,
    disk: Disk,
    pace: Pace,
    now_ms: int,
) -> int:
    """The base of the first segment that may not be cleaned yet, or `first_dirty_offset`."""
    lag_ms = log.config.min_compaction_lag_ms
    stable_offset = log.last_stable_offset
    for segment, following in pairwise(segments):
        if following.base_offset <= first_dirty_offset:
            continue
        if following.base_offset > stable_offset or (
            lag_ms > 0 and await segment.largest_timestamp_ms(disk) > now_ms - lag_ms
        ):
            return max(first_dirty_offset, segment.base_offset)
        await pace.rest(0)
    return max(first_dirty_offset, segments[-1].base_offset)


def choose_dirtiest(logs: Iterable[LogToClean]) -> LogToClean | None:
    """The one to clean now, if any is due."""
    return max(
        (found for found in logs if found.is_due),
        key=lambda found: found.dirty_ratio,
        default=None,
    )


def group_segments(
    segments: Sequence[Segment], end_offset: int, config: LogConfig
) -> list[list[Segment]]:
    """The segments, in order, as groups of which each becomes one segment.

    `end_offset` is where the last segment ends.
    """
    groups: list[list[Segment]] = []
    log_bytes = index_bytes = time_index_bytes = 0
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, segment_end in zip(segments, ends, strict=True):
        log_bytes += segment.size_bytes
        index_bytes += segment.offset_index.size_bytes
        time_index_bytes += segment.time_index.size_bytes
        if (
            groups
            and log_bytes <= config.segment_bytes
            and max(index_bytes, time_index_bytes) <= config.segment_index_bytes
            # Without this exception an empty segment would be left for every 2^31 offsets.
            and (
                segment.size_bytes == 0
                or segment_end - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            )
        ):
            groups[-1].append(segment)
            continue
        groups.append([segment])
        log_bytes = segment.size_bytes
        index_bytes = segment.offset_index.size_bytes
        time_index_bytes = segment.time_index.size_bytes
    return groups
