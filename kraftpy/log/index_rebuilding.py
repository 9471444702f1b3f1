"""The offset and time index of a segment, made anew beside the old ones.

An index that was caught lying is left in its place while the segment is walked in slices: most of
its entries are sound, and appends go on adding to it. What is found takes its place at one stroke.
When it is the data that is damaged, and not the index, the old one stays.

A walk in slices serves whoever has a segment to go through and time to spare.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from kraftpy.log.batch_headers import BatchHeader
from kraftpy.log.index import NO_TIMESTAMP, OffsetPosition, TimestampOffset
from kraftpy.log.pacing import Pace
from kraftpy.log.segment import Segment
from kraftpy.records.errors import CorruptRecord

__all__ = ["IndexPlan", "paced_headers", "rebuild_indexes"]

_log = logging.getLogger(__name__)

_WINDOW_BYTES: Final = 1024 * 1024


async def paced_headers(
    segment: Segment, position: int, pace: Pace
) -> AsyncGenerator[BatchHeader, None]:
    """The batches from `position` on, and those that are appended meanwhile.

    What has to come from the medium does so without holding up the loop. Who walks takes care that
    the segment isn't truncated. Raises CorruptRecord.
    """
    file = segment.log_file
    warm_until = position
    while position < segment.size_bytes:
        start = position
        for header in segment.headers(position):
            position = header.end_position
            if position > warm_until:
                # The next header lies here.
                warm_until = position + _WINDOW_BYTES
                if not file.resident(position, _WINDOW_BYTES):
                    await file.warm(position, _WINDOW_BYTES)
            yield header
            await pace.rest(header.size)
        if position == start:
            return


class IndexPlan:
    """The entries that the appends of a segment made."""

    __slots__ = (
        "_last_offset",
        "_last_timestamp_ms",
        "_segment",
        "largest",
        "offset_entries",
        "time_entries",
        "unindexed_bytes",
    )

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.offset_entries = bytearray()
        self.time_entries = bytearray()
        self.largest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
        self.unindexed_bytes = 0
        self._last_offset = segment.base_offset - 1
        self._last_timestamp_ms = NO_TIMESTAMP

    def add(self, header: BatchHeader) -> None:
        """The next batch. CorruptRecord if it can't be."""
        segment = self._segment
        if header.base_offset <= self._last_offset:
            raise CorruptRecord(
                f"offset {header.base_offset} behind {self._last_offset} at {header.position}"
            )
        self._last_offset = header.last_offset
        if header.max_timestamp_ms > self.largest.timestamp_ms:
            self.largest = TimestampOffset(header.max_timestamp_ms, header.last_offset)
        if self.unindexed_bytes > segment.index_interval_bytes and self._has_room():
            entry = OffsetPosition(header.last_offset, header.position)
            self.offset_entries += segment.offset_index.pack(entry)
            if self.largest.timestamp_ms > self._last_timestamp_ms:
                self.time_entries += segment.time_index.pack(self.largest)
                self._last_timestamp_ms = self.largest.timestamp_ms
            self.unindexed_bytes = 0
        self.unindexed_bytes += header.size

    def _has_room(self) -> bool:
        """More entries than fit can only come from a larger interval in the past."""
        segment = self._segment
        return segment.offset_index.has_room_for(
            len(self.offset_entries)
        ) and segment.time_index.has_room_for(len(self.time_entries))


async def rebuild_indexes(segment: Segment, pace: Pace) -> None:
    """Nobody may truncate, replace or close the segment meanwhile; appends go on. OSError."""
    plan = IndexPlan(segment)
    try:
        async with aclosing(paced_headers(segment, 0, pace)) as headers:
            async for header in headers:
                plan.add(header)
    except CorruptRecord as error:
        # Its entries for what lies behind that are the only way there.
        _log.error("%r is damaged itself, and keeps its index: %s", segment, error)
        segment.has_damaged_index = False
        segment.has_damaged_data = True
        return
    # Nothing has waited since the last batch was seen.
    segment.install_indexes(plan)
    await segment.offset_index.sync()
    await segment.time_index.sync()
