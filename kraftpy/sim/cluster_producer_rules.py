"""Invariants 17 and 18, and what 14 says of transactions: a log's producers, seen from outside.

The rules fold a log themselves, batch by batch, and share nothing with the product's own state of
producers. Along a log, the epoch of a producer never falls, and within an epoch its sequences have
no gap and no repetition; what it writes while its transaction is open belongs to that transaction.
The last stable offset is where the first transaction begins that is open, or whose end is not
committed yet, and else the high watermark.

A log is folded as it grows. What was folded already is read again only when it is no longer there:
when the log begins elsewhere, when another file has its place, or when the file had bytes changed
or cut off, which a memory disk knows of every file. So the fold is that of the whole log, always.

A log whose beginning was deleted may have lost the beginning of a transaction, and what the product
remembers of it lies between what can be seen and what was. And a leader may have begun with a high
watermark below one that it has seen as a follower: then the end of a transaction that it takes for
committed is so, though not by its present high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from kraftpy.log.handles import PooledFile
from kraftpy.log.offsets import Isolation, ReadInfo
from kraftpy.records.batch import RecordBatch
from kraftpy.records.walker import walk_batches
from kraftpy.world import FileSlice
from kraftpy.world.memory_disk import MemoryFile
from kraftpy.world.memory_disk_image import Content

__all__ = ["CheckedLog", "ProducerFold", "producer_batches"]

_ALL_BYTES = 1 << 30
_SEQUENCES = 1 << 31


class CheckedLog(Protocol):
    """What rules look at of a replica's log, whether it is in use or only on a disk."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def recovery_point(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    def read(self, start_offset: int, max_bytes: int, isolation: Isolation) -> ReadInfo: ...

    def check(self) -> None: ...


class _Piece(NamedTuple):
    """What one file has of a log, from an offset on."""

    offset: int
    content: Content
    changes: int
    position: int
    length: int

    @classmethod
    def of(cls, offset: int, records: FileSlice) -> _Piece:
        file = records.file.opened if isinstance(records.file, PooledFile) else records.file
        assert isinstance(file, MemoryFile)
        content = file.content
        return cls(offset, content, content.changes, records.position, records.length)

    def is_begun_by(self, other: _Piece) -> bool:
        """Whether all that the other has is here, as it was."""
        return (
            self.content is other.content
            and self.changes == other.changes
            and self.position == other.position
            and self.length >= other.length
        )


class _Producer(NamedTuple):
    """What is known of one at the end of a log."""

    epoch: int = -1
    next_sequence: int | None = None
    is_open: bool = False


class ProducerFold:
    """The producers of one log."""

    __slots__ = (
        "_ended",
        "_next_offset",
        "_opened",
        "_pieces",
        "_producers",
        "_start_offset",
        "log",
    )

    def __init__(self, log: CheckedLog) -> None:
        self.log = log
        self._begin()

    def _begin(self) -> None:
        self._start_offset = self._next_offset = self.log.log_start_offset
        self._pieces: list[_Piece] = []
        self._producers: dict[int, _Producer] = {}
        # Transactions: by producer where the open one begins; and of those that have ended, where
        # the marker stands and where they began, in the order of markers.
        self._opened: dict[int, int] = {}
        self._ended: list[tuple[int, int]] = []

    def wrong_sequence(self) -> str | None:
        """What is wrong with the producers of the log."""
        if not self._is_still_there():
            self._begin()
        for batch in self._news():
            if batch.producer_id >= 0:
                wrong = self._take(batch)
                if wrong is not None:
                    return wrong
        return None

    def wrong_last_stable(self, true_high_watermark: int) -> str | None:
        """What is wrong with the last stable offset of a leader, as of the last fold."""
        high_watermark, log_start = self.log.high_watermark, self.log.log_start_offset
        lowest = highest = min([high_watermark, *self._opened.values()])
        for marker, first_offset in reversed(self._ended):
            if marker < high_watermark and marker < true_high_watermark:
                break
            if marker >= high_watermark:
                lowest = min(lowest, first_offset)
            if marker >= true_high_watermark:
                highest = min(highest, first_offset)
        stable = self.log.last_stable_offset
        if stable > max(highest, log_start) or (log_start == 0 and stable < lowest):
            return f"the last stable offset is {stable}, not {lowest} to {highest}"
        return None

    def _is_still_there(self) -> bool:
        if self.log.log_start_offset != self._start_offset:
            return False
        for piece in self._pieces:
            if not self.log.log_start_offset <= piece.offset <= self.log.log_end_offset:
                return False
            records = self.log.read(piece.offset, _ALL_BYTES, Isolation.LOG_END).records
            if records is None or not _Piece.of(piece.offset, records).is_begun_by(piece):
                return False
        return True

    def _news(self) -> Iterator[RecordBatch]:
        """A read gives what one segment has."""
        while True:
            start = self._next_offset
            records = self.log.read(start, _ALL_BYTES, Isolation.LOG_END).records
            if records is not None:
                self._note(_Piece.of(start, records))
                for batch in walk_batches(records.file.pread(records.length, records.position)):
                    if isinstance(batch, RecordBatch):
                        self._next_offset = batch.next_offset
                        yield batch
            if self._next_offset == start:
                return

    def _note(self, piece: _Piece) -> None:
        last = self._pieces[-1] if self._pieces else None
        if (
            last is not None
            and last.content is piece.content
            and last.position + last.length == piece.position
        ):
            self._pieces[-1] = last._replace(length=last.length + piece.length)
        else:
            self._pieces.append(piece)

    def _take(self, batch: RecordBatch) -> str | None:
        """Invariants 17 and 18."""
        producer_id = batch.producer_id
        epoch, expected, is_open = self._producers.get(producer_id, _Producer())
        if batch.producer_epoch < epoch:
            return f"{_place(batch)} after {epoch}"
        if batch.producer_epoch > epoch:
            expected = None
        if batch.is_control:
            self._producers[producer_id] = _Producer(batch.producer_epoch, expected)
            first_offset = self._opened.pop(producer_id, None)
            if first_offset is not None:
                self._ended.append((batch.base_offset, first_offset))
            return None
        if expected is not None and batch.base_sequence != expected:
            return f"{_place(batch)}, sequence {batch.base_sequence}, not {expected}"
        if is_open and not batch.is_transactional:
            return f"{_place(batch)} outside its transaction"
        following = (batch.base_sequence + batch.records_count) % _SEQUENCES
        is_open = batch.is_transactional
        self._producers[producer_id] = _Producer(batch.producer_epoch, following, is_open)
        if is_open:
            self._opened.setdefault(producer_id, batch.base_offset)
        return None


def _place(batch: RecordBatch) -> str:
    return f"at {batch.base_offset}: producer {batch.producer_id}, epoch {batch.producer_epoch}"


def producer_batches(log: CheckedLog) -> Iterator[RecordBatch]:
    """Those of producers with an id; a read gives what one segment has."""
    offset = log.log_start_offset
    while True:
        start = offset
        records = log.read(offset, _ALL_BYTES, Isolation.LOG_END).records
        if records is not None:
            for batch in walk_batches(records.file.pread(records.length, records.position)):
                if isinstance(batch, RecordBatch):
                    offset = batch.next_offset
                    if batch.producer_id >= 0:
                        yield batch
        if offset == start:
            return
