"""Producer state from the files: the latest snapshot, and a replay of what follows it.

The state is derived from the log, so this gives what the appends gave, but that of the batches
remembered for each producer a snapshot has the last one only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import aclosing

from kraftpy.log.appending import add_to_producers, commit_to_producers
from kraftpy.log.batch_headers import BatchHeader
from kraftpy.log.errors import IndexUnderRepairError, LogError
from kraftpy.log.index_rebuilding import paced_headers
from kraftpy.log.pacing import Pace
from kraftpy.log.producer_entries import ProducerEntry, in_slices
from kraftpy.log.producers import ProducerState
from kraftpy.log.segment import Segment
from kraftpy.log.segments import Segments
from kraftpy.log.snapshots import ProducerSnapshots
from kraftpy.log.transactions import AbortedTransaction
from kraftpy.records.batch import RecordBatch
from kraftpy.records.errors import RecordDataError
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import Clock

__all__ = ["rebuild_producers", "replay"]

_log = logging.getLogger(__name__)


async def rebuild_producers(
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    segments: Segments,
    *,
    clock: Clock,
    pace: Pace,
    log_start_offset: int,
    end_offset: int,
) -> None:
    """Bring `producers` to `end_offset`, whatever they were, in slices.

    They change at one stroke: a reader in between must not take for decided what is not known yet.
    """
    rebuilt = producers.blank()
    found = await snapshots.load(end_offset)
    if found is None:
        rebuilt.reload(log_start_offset)
    else:
        offset, entries = found
        rebuilt.reload(log_start_offset, snapshot_offset=offset)
        await _restore(rebuilt, entries, clock.wall_ms(), pace)
    # From the snapshot on, although that may be below the log start: a transaction that it has for
    # open may have been ended there.
    start_offset = rebuilt.map_end_offset
    for segment in segments.overlapping(start_offset, end_offset):
        await _replay(segment, rebuilt, start_offset, end_offset, pace)
    rebuilt.advance(end_offset)
    producers.take_over(rebuilt)


async def _restore(
    producers: ProducerState, entries: Iterator[ProducerEntry], now_ms: int, pace: Pace
) -> None:
    opened: list[ProducerEntry] = []
    for some in in_slices(entries):
        opened += producers.restore(some, now_ms)
        await pace.rest(0)
    producers.reopen(opened)


async def _replay(
    segment: Segment, producers: ProducerState, start_offset: int, end_offset: int, pace: Pace
) -> None:
    try:
        first = segment.find(start_offset)
    except IndexUnderRepairError:
        position = 0
    else:
        if first is None:
            return
        position = first.position
    async with aclosing(paced_headers(segment, position, pace)) as headers:
        async for header in headers:
            if header.base_offset >= end_offset:
                return
            if header.producer_id < 0 or header.last_offset < start_offset:
                continue
            if header.is_control:
                data = segment.log_file.pread(header.size, header.position)
                replay(producers, RecordBatch(data))
            else:
                replay(producers, header)


def replay(producers: ProducerState, batch: RecordBatch | BatchHeader) -> list[AbortedTransaction]:
    """Note a batch that is in the log; the transactions that it aborts are returned.

    What a leader once accepted is not judged again. What can't be understood is passed over: the
    log must be usable with a batch that lies.
    """
    update = producers.prepare(AppendOrigin.REPLICATION)
    try:
        add_to_producers(batch, update)
    except (RecordDataError, LogError) as error:
        _log.warning("passed over a batch at offset %d: %s", batch.base_offset, error)
        return []
    return commit_to_producers(update, producers)
