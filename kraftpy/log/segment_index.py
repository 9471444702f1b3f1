"""What the sparse indexes of a segment share: the file, its room, and the search.

They are files of entries of one size, in growing order, found by binary search. The active
segment's index is preallocated to its largest size, so the count of entries lives in memory; a
closed one is cut to what it holds, and its length tells the count.

No mmap: a page that is not in memory would stop the whole loop unseen. Instead

- Nothing is opened or read before it is needed: making an index object costs nothing, and a clean
  start reads no index.
- The active index keeps its warm tail in memory: the last 8192 bytes' worth of entries and the one
  before, which is where followers and consumers that keep up look. Such a lookup reads no file. The
  index is known to be active by the room behind its last entry.
- Appended entries are written some dozens at a time, which saves every append of a batch a system
  call. Syncing the file or changing its length writes them first; in a crash they are lost with
  the index, which is rebuilt.
- Anything colder is a binary search over pages: each read brings a page, and both of its ends
  narrow the search. A closed index keeps nothing in memory between lookups.

The search is Kafka's warm and cold one (first the tail, then the rest). Its result is that of a
plain binary search.

A crash leaves the active index with its preallocated length, and zeros count as entries then. That
is why the segments above the recovery point have their indexes rebuilt, whatever they look like.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

from kraftpy.log.errors import (
    CorruptIndexError,
    IndexOffsetOverflowError,
)
from kraftpy.world import Buffer, File, assert_always

__all__ = ["WARM_BYTES", "IndexField", "SegmentIndex"]

WARM_BYTES: Final = 8192

_PAGE_BYTES = 4096
_UNWRITTEN_BYTES = 512
_RELATIVE_OFFSET_MAX = 2**31 - 1

_Entry = TypeVar("_Entry", bound=tuple[int, int])


class IndexField(NamedTuple):
    """One of the two numbers in an entry; an offset is written relative to the base offset."""

    layout: struct.Struct
    shift: int
    is_offset: bool


class SegmentIndex(ABC, Generic[_Entry]):
    """What both indexes share: the file, its room, and the search.

    An entry's two fields both grow along the file, so it can be searched by either.
    """

    _ENTRY: ClassVar[struct.Struct]
    _KEY: ClassVar[IndexField]
    _OFFSET: ClassVar[IndexField]
    # What stands before the first entry, as the file would have it.
    _BELOW_FIRST: ClassVar[tuple[int, int]]
    # Slots that an ordinary append leaves free.
    _RESERVED_SLOTS: ClassVar[int] = 0

    __slots__ = (
        "_base_offset",
        "_capacity",
        "_change_count",
        "_entries",
        "_file",
        "_last",
        "_length",
        "_max_bytes",
        "_synced_count",
        "_tail",
        "_tail_first",
        "_unwritten",
    )

    def __init__(self, file: File, base_offset: int, max_bytes: int) -> None:
        """An index in an existing file; nothing is opened yet. A new file wants `create`."""
        self._file = file
        self._base_offset = base_offset
        self._max_bytes = max_bytes
        # Below zero until the file was asked.
        self._length = -1
        # Entries that the file has room for, but for reserved slots.
        self._capacity = -1
        self._entries = -1
        # As the file has it; None if it has to be asked.
        self._last: tuple[int, int] | None = None
        # The warm entries, from slot `_tail_first` on, while the index is active.
        self._tail: bytearray | None = None
        self._tail_first = 0
        # The last entries, as far as the file lacks them.
        self._unwritten = bytearray()
        # How often the file was changed, and at how many changes it was last synced: most flushes
        # of a log add nothing to its indexes. Nobody knows what was done to it before.
        self._change_count = 1
        self._synced_count = 0

    def create(self) -> None:
        """Make the file empty and preallocated, whatever it was."""
        entry_bytes = self._ENTRY.size
        if self._max_bytes < entry_bytes:
            raise ValueError(f"an index of {self._max_bytes} bytes can't hold an entry")
        self._file.truncate(0)
        self._set_entries(0)
        self._set_length(self._max_bytes - self._max_bytes % entry_bytes)

    @property
    def file(self) -> File:
        return self._file

    @property
    def base_offset(self) -> int:
        return self._base_offset

    @property
    def length_bytes(self) -> int:
        """Of the file, with the room that is preallocated."""
        self.learn_length()
        return self._length

    def learn_length(self) -> None:
        """Ask the file, which may have to be opened for it, unless it was asked before."""
        if self._length < 0:
            self._note_length(self._file.size())
            if self._entries < 0:
                self._entries = self._length // self._ENTRY.size

    def _note_length(self, length: int) -> None:
        self._length = length
        self._capacity = length // self._ENTRY.size - self._RESERVED_SLOTS

    @property
    def entry_count(self) -> int:
        if self._entries < 0:
            self.learn_length()
        return self._entries

    @property
    def max_entries(self) -> int:
        return self.length_bytes // self._ENTRY.size

    @property
    def size_bytes(self) -> int:
        """Of the entries."""
        return self.entry_count * self._ENTRY.size

    @property
    def is_full(self) -> bool:
        if self._length < 0:
            self.learn_length()
        return self._entries >= self._capacity

    @property
    def last_entry(self) -> _Entry:
        """Without entries, what stands before the first."""
        return self._named(*self._last_fields())

    def _last_fields(self) -> tuple[int, int]:
        """The same, as the file has it. The length is known then."""
        if self._last is None:
            count = self.entry_count
            self._last = self._fields(count - 1) if count else self._BELOW_FIRST
        return self._last

    def entry(self, slot: int) -> _Entry:
        """The entry in a slot from 0 to `entry_count` - 1."""
        if not 0 <= slot < self.entry_count:
            raise ValueError(f"{self._file.path} has no slot {slot} among {self._entries}")
        return self._named(*self._fields(slot))

    def _fields(self, slot: int) -> tuple[int, int]:
        """An entry as the file has it."""
        if self._tail is not None and slot >= self._tail_first:
            start = (slot - self._tail_first) * self._ENTRY.size
            first, second = self._ENTRY.unpack_from(self._tail, start)
        else:
            first, second = self._ENTRY.unpack(self._read(slot, 1))
        return first, second

    def lookup(self, target: int) -> _Entry:
        """The last entry whose key is not above `target`, or what stands before the first."""
        slot = self.floor_slot(target)
        return self.entry(slot) if slot >= 0 else self._named(*self._BELOW_FIRST)

    def floor_slot(self, target: int) -> int:
        """The slot of the last entry whose key is not above `target`, or -1."""
        return self._floor_slot(target, self._KEY)

    def slot_range(self, target: int) -> tuple[int, int]:
        """The slots of the nearest keys not above and not below `target`; -1 for none."""
        lower = self._floor_slot(target, self._KEY)
        if lower >= 0 and self.entry(lower)[0] == target:
            return lower, lower
        return lower, lower + 1 if lower + 1 < self.entry_count else -1

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or above `offset`."""
        self.truncate_to_entries(self._floor_slot(offset - 1, self._OFFSET) + 1)

    def truncate_to_entries(self, count: int) -> None:
        """Keep the first `count` entries. The file keeps its length."""
        if not 0 <= count <= self.entry_count:
            raise ValueError(f"{self._file.path} has {self._entries} entries, not {count}")
        if count < self._entries:
            self._set_entries(count)

    def reset(self) -> None:
        """Forget everything and preallocate, before the index is built anew."""
        self._set_entries(0)
        self.resize(self._max_bytes)

    def pack(self, entry: _Entry) -> bytes:
        """An entry as the file has it."""
        first, second = entry
        if self._KEY.is_offset:
            return self._ENTRY.pack(self._relative(first), second)
        return self._ENTRY.pack(first, self._relative(second))

    def has_room_for(self, packed_bytes: int) -> bool:
        """Whether one more entry, behind so many bytes of others, fits a new file."""
        entry_bytes = self._ENTRY.size
        return packed_bytes // entry_bytes < self._max_bytes // entry_bytes - self._RESERVED_SLOTS

    def replace_entries(self, packed: Buffer) -> None:
        """Other entries in the place of all, and room for more."""
        self.reset()
        self._change_count += 1
        self._file.pwrite([packed], 0)
        self._set_entries(len(packed) // self._ENTRY.size)

    def resize(self, size_bytes: int | None = None) -> bool:
        """Set the file's length, to the configured one by default; whether that changed it.

        With room behind its entries the index is active: it can be appended to.
        """
        wanted = self._max_bytes if size_bytes is None else size_bytes
        wanted -= wanted % self._ENTRY.size
        # Asked before the change: the length tells the count of an index that was not used yet.
        used = self.size_bytes
        if wanted == self.length_bytes:
            return False
        assert_always(wanted >= used, "index-resized-below-entries", path=self._file.path)
        self._set_length(wanted)
        return True

    def trim_to_valid_size(self) -> None:
        """Cut the file to its entries: the segment is not active any more."""
        self.resize(self.size_bytes)

    async def sync(self) -> None:
        """Make the file durable, unless it is."""
        self.write_out()
        count = self._change_count
        if count > self._synced_count:
            await self._file.sync()
            self._synced_count = count

    def close(self) -> None:
        """Trim and close. One that was never used is not touched."""
        if self._length >= 0:
            self.trim_to_valid_size()
        self._file.close()

    def close_untouched(self) -> None:
        """Close without a change to the file: it is read-only, or its directory is offline."""
        self._file.close()

    @abstractmethod
    def sanity_check(self) -> None:
        """CorruptIndexError for what can't be right."""

    @abstractmethod
    def _named(self, first: int, second: int) -> _Entry:
        """The entry that the file has as these two numbers."""

    def _check_last_offset_and_length(self, last_offset: int) -> None:
        if self.entry_count and last_offset < self._base_offset:
            raise CorruptIndexError(
                f"{self._file.path}: its last offset {last_offset} lies before its base "
                f"{self._base_offset}"
            )
        if self.length_bytes % self._ENTRY.size:
            raise CorruptIndexError(f"{self._file.path}: {self._length} bytes are no whole entries")

    # Writing.

    def _append(self, first: int, second: int) -> None:
        packed = self._ENTRY.pack(first, second)
        unwritten = self._unwritten
        unwritten += packed
        self._entries += 1
        if len(unwritten) >= _UNWRITTEN_BYTES:
            try:
                self.write_out()
            except OSError:
                # As if it had not been appended; those before it are tried again.
                del unwritten[-len(packed) :]
                self._entries -= 1
                raise
        self._last = first, second
        tail = self._tail
        if tail is not None:
            tail += packed
            # A lookup wants the warm entries and the one before them.
            surplus_entries = len(tail) // len(packed) - WARM_BYTES // len(packed) - 1
            if surplus_entries > 0:
                del tail[: surplus_entries * len(packed)]
                self._tail_first += surplus_entries

    def write_out(self) -> None:
        """Give the file the entries that it lacks."""
        unwritten = self._unwritten
        if unwritten:
            end = self.size_bytes
            self._change_count += 1
            self._file.pwrite([unwritten], end - len(unwritten))
            self._note_length(max(self._length, end))
            unwritten.clear()

    def _relative(self, offset: int) -> int:
        relative = offset - self._base_offset
        if not 0 <= relative <= _RELATIVE_OFFSET_MAX:
            raise IndexOffsetOverflowError(
                f"{self._file.path}: offset {offset} is too far from base {self._base_offset}"
            )
        return relative

    def _set_length(self, length: int) -> None:
        self.write_out()
        self._change_count += 1
        self._file.truncate(length)
        self._note_length(length)
        if length == self._entries * self._ENTRY.size:
            self._tail = None

    def _set_entries(self, count: int) -> None:
        surplus_bytes = (self._entries - count) * self._ENTRY.size
        del self._unwritten[max(0, len(self._unwritten) - surplus_bytes) :]
        self._entries = count
        self._last = None
        self._tail = None

    # Searching.

    def _floor_slot(self, target: int, field: IndexField) -> int:
        """The last slot whose `field` is not above `target`, or -1."""
        count = self.entry_count
        if count == 0:
            return -1
        entry_bytes = self._ENTRY.size
        if field.is_offset:
            target -= self._base_offset
        first_hot = max(0, count - 1 - WARM_BYTES // entry_bytes)
        warm, warm_first = self._warm(first_hot)
        if field.layout.unpack_from(warm, field.shift)[0] <= target:
            return warm_first + _floor_in(warm, field, entry_bytes, target, count - warm_first)
        return self._cold_floor_slot(target, field, warm_first)

    def _cold_floor_slot(self, target: int, field: IndexField, end: int) -> int:
        """As `_floor_slot`, among the slots before `end`, page by page."""
        entry_bytes = self._ENTRY.size
        page_entries = _PAGE_BYTES // entry_bytes
        unpack_from = field.layout.unpack_from
        # Fields before `low` are not above the target, those from `high` on are.
        low, high = 0, end
        while low < high:
            first = max(low, (low + high - page_entries) // 2)
            count = min(page_entries, high - first)
            page = self._read(first, count)
            if unpack_from(page, field.shift)[0] > target:
                high = first
            elif unpack_from(page, (count - 1) * entry_bytes + field.shift)[0] <= target:
                low = first + count
            else:
                return first + _floor_in(page, field, entry_bytes, target, count)
        return low - 1

    def _warm(self, first_hot: int) -> tuple[bytes | bytearray, int]:
        """The warm entries and the one before them, and the slot with which they begin."""
        if self._tail is not None:
            return self._tail, self._tail_first
        data = self._read(first_hot, self._entries - first_hot)
        if self._entries < self.max_entries:
            self._tail = bytearray(data)
            self._tail_first = first_hot
        return data, first_hot

    def _read(self, slot: int, count: int) -> bytes:
        """From the file, and from memory what it lacks."""
        start, length = slot * self._ENTRY.size, count * self._ENTRY.size
        written = self.size_bytes - len(self._unwritten)
        in_file = max(0, min(length, written - start))
        data = self._file.pread(in_file, start) if in_file else b""
        if len(data) != in_file:
            raise CorruptIndexError(f"{self._file.path}: it ends before slot {slot + count} does")
        if in_file < length:
            first = start + in_file - written
            data += self._unwritten[first : first + length - in_file]
        return data


def _floor_in(
    buffer: bytes | bytearray, field: IndexField, entry_bytes: int, target: int, count: int
) -> int:
    """The last of `count` slots whose field is not above `target`; the first one's is not."""
    unpack_from, shift = field.layout.unpack_from, field.shift
    low, high = 0, count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if unpack_from(buffer, middle * entry_bytes + shift)[0] <= target:
            low = middle
        else:
            high = middle - 1
    return low
