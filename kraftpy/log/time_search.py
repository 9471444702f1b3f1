"""Looking for a record by its time: in slices, and without waiting for the medium on the loop.

A log may have thousands of segments, and the files of most of them are cold. So a search is a
generator. Between two of its steps others may run. It says how many bytes it has worked on, or
names a range of a file that it is about to read and that is not in memory.

The log may change between two steps. Segments that are added later are not looked at, as if the
question had come before them. When the log was truncated, or the segment that is looked at has left
it, the search begins anew.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from kraftpy.log.batch_headers import BatchHeader
from kraftpy.log.offsets import FoundOffset
from kraftpy.log.pacing import Pace
from kraftpy.log.segment import Segment
from kraftpy.records.walker import records_of
from kraftpy.world import File, FileSlice

if TYPE_CHECKING:
    from kraftpy.log.partition_log import PartitionLog

__all__ = ["TimeSearch"]

_PAGE_BYTES: Final = 8192
_WINDOW_BYTES: Final = 1024 * 1024
_SLICE_RECORDS: Final = 256

# Bytes that were worked on, or a range of a file that should be brought into memory.
_Steps: TypeAlias = Generator[int | FileSlice, None, FoundOffset | None]
_Pause: TypeAlias = Generator[int | FileSlice, None, None]


class _ChangedError(Exception):
    """What was looked at is not there any more."""


class TimeSearch:
    """`run_warm` as far as that goes, then `run`. `found` is what came of it."""

    __slots__ = ("_cold", "_log", "_segment", "_steps", "_truncation_count", "found", "is_done")

    def __init__(self, log: PartitionLog, timestamp_ms: int | None) -> None:
        """For the first record whose time is not before `timestamp_ms`; for None, the record with
        the largest time, the first if there are several.
        """
        self._log = log
        # The one that is looked at.
        self._segment = log.segments.first
        self._truncation_count = log.truncation_count
        self._steps = self._search(timestamp_ms)
        # What has to be brought into memory before the next step.
        self._cold: FileSlice | None = None
        self.is_done = False
        self.found: FoundOffset | None = None

    # Driving.

    @property
    def is_cold(self) -> bool:
        """Whether the next step would wait for the medium."""
        return self._cold is not None

    def run_warm(self, pace: Pace) -> None:
        """Until the slice is over or something is cold. Raises LogError or RecordDataError."""
        while not self.is_done and self._cold is None:
            pace.count(self._step())
            if pace.is_over:
                return

    async def run(self, pace: Pace) -> FoundOffset | None:
        """To the end. Raises LogError or RecordDataError."""
        while not self.is_done:
            if self._cold is not None:
                cold, self._cold = self._cold, None
                # It may have been closed meanwhile. If it fails, whoever reads it will see.
                with suppress(OSError):
                    await cold.file.warm(cold.position, cold.length)
            await pace.rest(self._step())
        return self.found

    def _step(self) -> int:
        """How many bytes it took."""
        try:
            with self._log.storage_guard("look up a time"):
                step = next(self._steps)
        except StopIteration as end:
            self.is_done = True
            self.found = end.value
            return 0
        finally:
            self._log.notice_damage(self._segment)
        if isinstance(step, FileSlice):
            self._cold = step
            return 0
        return step

    # Searching.

    def _search(self, timestamp_ms: int | None) -> _Steps:
        while True:
            self._truncation_count = self._log.truncation_count
            self._log.check_usable()
            try:
                if timestamp_ms is None:
                    return (yield from self._find_largest())
                return (yield from self._find_first(timestamp_ms))
            except _ChangedError:
                yield 0

    def _find_first(self, timestamp_ms: int) -> _Steps:
        for segment in self._log.segments:
            if not segment.knows_largest:
                yield from self._warm_ends(segment)
            if segment.largest.timestamp_ms >= timestamp_ms:
                found = yield from self._find_in(segment, timestamp_ms)
                if found is not None:
                    return found
        return None

    def _find_largest(self) -> _Steps:
        newest: Segment | None = None
        for segment in self._log.segments:
            if not segment.knows_largest:
                yield from self._warm_ends(segment)
            if newest is None or segment.largest.timestamp_ms > newest.largest.timestamp_ms:
                newest = segment
        if newest is None or newest.largest.timestamp_ms < 0:
            return None
        return (yield from self._find_in(newest, newest.largest.timestamp_ms))

    def _warm_ends(self, segment: Segment) -> _Pause:
        """The largest time stands at the ends of the indexes, and in what lies behind those."""
        yield _PAGE_BYTES
        self._look_at(segment)
        for index in (segment.time_index, segment.offset_index):
            yield from self._read_soon(index.file, index.length_bytes - _PAGE_BYTES, _PAGE_BYTES)
        last = segment.offset_index.last_entry
        yield from self._read_soon(segment.log_file, last.position, _PAGE_BYTES)

    def _find_in(self, segment: Segment, timestamp_ms: int) -> _Steps:
        self._look_at(segment)
        for index in (segment.time_index, segment.offset_index):
            yield from self._read_soon(index.file, 0, index.size_bytes)
        warm_until = 0
        log = self._log
        for header in segment.headers_by_time(timestamp_ms, log.log_start_offset):
            if (
                header.max_timestamp_ms >= timestamp_ms
                and header.last_offset >= log.log_start_offset
            ):
                found = yield from self._find_in_batch(segment, header, timestamp_ms)
                if found is not None:
                    return found
            if header.end_position >= warm_until:
                # The next header lies here.
                warm_until = header.end_position + _WINDOW_BYTES
                yield from self._read_soon(segment.log_file, header.end_position, _WINDOW_BYTES)
            yield header.size
            self._check()
        return None

    def _find_in_batch(self, segment: Segment, header: BatchHeader, timestamp_ms: int) -> _Steps:
        yield from self._read_soon(segment.log_file, header.position, header.size)
        batch = segment.batch(header)
        records = records_of(batch, max_bytes=self._log.config.max_inflated_bytes)
        while some := list(islice(records, _SLICE_RECORDS)):
            start_offset = self._log.log_start_offset
            for record in some:
                if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                    return FoundOffset(record.offset, record.timestamp_ms, header.leader_epoch)
            yield 0
            self._check()
        return None

    def _read_soon(self, file: File, position: int, length: int) -> _Pause:
        position = max(0, position)
        if not file.resident(position, length):
            yield FileSlice(file, position, length)
            self._check()

    def _look_at(self, segment: Segment) -> None:
        self._segment = segment
        self._check()

    def _check(self) -> None:
        """After every pause."""
        log = self._log
        log.check_usable()
        if log.truncation_count != self._truncation_count or self._segment not in log.segments:
            raise _ChangedError
