"""The leader epoch cache: which leader epoch began at which offset of a log.

A list of (epoch, start offset), both growing strictly. An epoch reaches from its start offset to
the start of the next entry, the last one to the log end. From it a follower learns where its log
and the leader's part ways (KIP-101), and a consumer whether what it read was truncated.

Sans-I/O: the owner takes `take_changes` and writes `leader-epoch-checkpoint` when it suits. An
entry may be lost in a crash only if the data that made it is read again in recovery, so the file
must be written before the recovery point passes an entry's start offset. Entries that a truncation
removed may come back from an old file; loading truncates them again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter, lt
from typing import NamedTuple

__all__ = ["UNDEFINED_EPOCH", "UNDEFINED_OFFSET", "EpochEntry", "LeaderEpochCache"]

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_epoch_of = itemgetter(0)
_start_of = itemgetter(1)


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


def _grow(numbers: list[int]) -> bool:
    """Whether none is below zero and each is larger than the one before it."""
    return not numbers or (numbers[0] >= 0 and all(map(lt, numbers, numbers[1:])))


class LeaderEpochCache:
    """Invariant: epochs and start offsets grow strictly along the list."""

    __slots__ = ("_changed", "_entries")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """Entries as a checkpoint has them; what is not in order is dropped as `assign` does."""
        given = list(entries)
        self._entries: list[EpochEntry] = given
        self._changed = False
        if not (_grow(list(map(_epoch_of, given))) and _grow(list(map(_start_of, given)))):
            self._entries = []
            for epoch, start_offset in given:
                self.assign(epoch, start_offset)
            self._changed = self._entries != given

    def copy(self) -> LeaderEpochCache:
        twin = LeaderEpochCache()
        twin._entries = list(self._entries)
        twin._changed = self._changed
        return twin

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def earliest(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    @property
    def latest(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    @property
    def latest_epoch(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    @property
    def changed(self) -> bool:
        """Whether there is something that the checkpoint does not have."""
        return self._changed

    def take_changes(self) -> tuple[EpochEntry, ...] | None:
        """The entries to write to the checkpoint; None when it has them already."""
        if not self._changed:
            return None
        self._changed = False
        return tuple(self._entries)

    def not_saved(self) -> None:
        """What `take_changes` gave did not get into the checkpoint."""
        self._changed = True

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that a batch of `epoch` begins at `start_offset`; whether that was new.

        The log is the truth: later entries that contradict it, by an epoch as large or an offset
        as high, are removed. An epoch without data is thereby forgotten when the next begins.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} can't begin at offset {start_offset}")
        entries = self._entries
        if entries:
            latest = entries[-1]
            if epoch == latest.epoch and start_offset >= latest.start_offset:
                return False
            while entries and (
                entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset
            ):
                entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self._changed = True
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch known that is not above `epoch`, and the offset where it ends.

        An epoch before the earliest ends where that begins: its own data is gone, and a follower
        can start at what is left. Of an epoch after the latest nothing is known, nor of -1.
        """
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        following = bisect_right(entries, epoch, key=_epoch_of)
        known = entries[following - 1].epoch if following else epoch
        return known, entries[following].start_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that the record at `offset` was written in; None before the earliest."""
        following = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[following - 1].epoch if following else None

    def previous_epoch(self, epoch: int) -> int | None:
        """The largest epoch known below `epoch`."""
        position = bisect_left(self._entries, epoch, key=_epoch_of)
        return self._entries[position - 1].epoch if position else None

    def next_epoch(self, epoch: int) -> int | None:
        """The smallest epoch known above `epoch`."""
        position = bisect_right(self._entries, epoch, key=_epoch_of)
        return self._entries[position].epoch if position < len(self._entries) else None

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: epochs that begin there or later have no data.

        An undefined offset, below zero, truncates nothing.
        """
        if end_offset < 0:
            return
        remaining = bisect_left(self._entries, end_offset, key=_start_of)
        if remaining < len(self._entries):
            del self._entries[remaining:]
            self._changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins at `start_offset` now: the epoch that covers it begins there too."""
        following = bisect_right(self._entries, start_offset, key=_start_of)
        if following == 0:
            return
        covering = EpochEntry(self._entries[following - 1].epoch, start_offset)
        if following > 1 or covering != self._entries[0]:
            self._entries[:following] = [covering]
            self._changed = True

    def clear(self) -> None:
        """Forget everything: records without epochs were appended, or the log begins anew."""
        if self._entries:
            self._entries.clear()
            self._changed = True
