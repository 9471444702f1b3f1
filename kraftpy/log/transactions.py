"""The transaction index of a segment: which transactions were aborted in it.

A plain file of 34-byte entries in the order of their markers: int16 version 0, int64 producer id,
int64 first offset, int64 last offset (the abort marker's), int64 last stable offset at that moment.
The file exists only where a transaction was aborted; until then no call here touches the disk.

A reader of committed data is given the aborted transactions that overlap what it fetched. Last
offsets grow along the file, so the first entry that can matter is found by halving. An entry whose
last stable offset is at or above the fetch's end says that every transaction which could still
matter is in the list already: whatever aborts later began at or after that offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kraftpy.log.errors import CorruptIndexError, InvalidIndexOffsetError
from kraftpy.world import File

__all__ = ["ENTRY_BYTES", "AbortedSearch", "AbortedTransaction", "TransactionIndex"]

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
# About a page at a time.
_ENTRIES_IN_ONE_READ = 4096 // ENTRY_BYTES


class AbortedTransaction(NamedTuple):
    """The offsets are inclusive; `last_offset` is the abort marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedSearch(NamedTuple):
    """`is_complete`: later segments can't have any more for the range."""

    transactions: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex:
    """Over a file that need not exist: `exists` tells whether it does, and `file` makes it."""

    __slots__ = ("_base_offset", "_entries", "_exists", "_file", "_last_offset", "has_new_name")

    def __init__(self, file: File, base_offset: int, *, exists: bool) -> None:
        self._file = file
        self._base_offset = base_offset
        self._exists = exists
        # Whether the file was made here, and its directory has not been synced since.
        self.has_new_name = False
        # None until they are needed, so that loading a log reads nothing.
        self._entries: int | None = None if exists else 0
        self._last_offset: int | None = None

    @property
    def file(self) -> File:
        return self._file

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self._exists

    @property
    def entry_count(self) -> int:
        """Whole entries. What a crash has left behind them is written over."""
        if self._entries is None:
            self._entries = self._file.size() // ENTRY_BYTES
        return self._entries

    def append(self, transaction: AbortedTransaction) -> None:
        count = self.entry_count
        if self._last_offset is None and count:
            self._last_offset = self._entry(count - 1).last_offset
        if self._last_offset is not None and transaction.last_offset <= self._last_offset:
            raise InvalidIndexOffsetError(
                f"{self._file.path}: a marker at {transaction.last_offset} can't follow "
                f"the one at {self._last_offset}"
            )
        # Opening creates the file, whether or not the writing goes well.
        self.has_new_name = self.has_new_name or not self._exists
        self._exists = True
        self._file.pwrite([_ENTRY.pack(_VERSION, *transaction)], count * ENTRY_BYTES)
        self._entries = count + 1
        self._last_offset = transaction.last_offset

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> AbortedSearch:
        """The aborted transactions with a record in [fetch_offset, upper_bound_offset)."""
        found = []
        for transaction in self._read(self._first_ending_from(fetch_offset)):
            if transaction.first_offset < upper_bound_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound_offset:
                return AbortedSearch(found, is_complete=True)
        return AbortedSearch(found, is_complete=False)

    def all(self) -> list[AbortedTransaction]:
        return list(self.entries())

    def entries(self) -> Iterator[AbortedTransaction]:
        """One after the other; CorruptIndexError where it goes wrong."""
        return self._read(0)

    def truncate_to(self, offset: int) -> None:
        """Forget markers at or above `offset`."""
        remaining = self._first_ending_from(offset)
        if remaining < self.entry_count:
            self._cut(remaining)

    def reset(self) -> None:
        """Forget everything, before the index is rebuilt from the segment."""
        if self._exists:
            self._cut(0)

    def sanity_check(self) -> None:
        """CorruptIndexError for what can't be right."""
        if not self._exists:
            return
        size = self._file.size()
        if size % ENTRY_BYTES:
            raise CorruptIndexError(f"{self._file.path}: {size} bytes are no whole entries")
        for transaction in self._read(0):
            if transaction.last_offset < self._base_offset:
                raise CorruptIndexError(
                    f"{self._file.path}: a marker at {transaction.last_offset} lies before "
                    f"the segment's base {self._base_offset}"
                )

    async def sync(self) -> None:
        if self._exists:
            await self._file.sync()

    def close(self) -> None:
        self._file.close()

    def _cut(self, count: int) -> None:
        self._file.truncate(count * ENTRY_BYTES)
        self._entries = count
        self._last_offset = None

    def _first_ending_from(self, offset: int) -> int:
        """The slot of the first entry whose last offset is at or above `offset`."""
        low, high = 0, self.entry_count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _entry(self, slot: int) -> AbortedTransaction:
        return next(self._decode(self._file.pread(ENTRY_BYTES, slot * ENTRY_BYTES), slot))

    def _read(self, first_slot: int) -> Iterator[AbortedTransaction]:
        count = self.entry_count
        for slot in range(first_slot, count, _ENTRIES_IN_ONE_READ):
            entries = min(_ENTRIES_IN_ONE_READ, count - slot)
            data = self._file.pread(entries * ENTRY_BYTES, slot * ENTRY_BYTES)
            yield from self._decode(data, slot)

    def _decode(self, data: bytes, slot: int) -> Iterator[AbortedTransaction]:
        if not data or len(data) % ENTRY_BYTES:
            raise CorruptIndexError(f"{self._file.path}: it ends before entry {slot} does")
        for version, *fields in _ENTRY.iter_unpack(data):
            if version != _VERSION:
                raise CorruptIndexError(
                    f"{self._file.path}: version {version} at or after entry {slot}"
                )
            yield AbortedTransaction(*fields)
