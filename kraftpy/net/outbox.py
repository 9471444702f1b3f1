"""Bytes on their way out: parts of answers in order, and what is to happen when each has left.

No waiting happens here. `flush` hands the stream as much as it takes now, and the owner comes back
when the stream is writable. Buffers that follow each other leave in one call, whichever answers
they belong to; file slices go the stream's own way (sendfile). A small slice is read and sent as
bytes, because a call of its own costs more than the copy (spec/baselines.md).
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from itertools import islice

from kraftpy.net.service import Part
from kraftpy.world import Buffer, Clock, FileSlice, Stream

__all__ = ["Departure", "Outbox"]

_SMALL_SLICE_BYTES = 16 * 1024
_BUFFERS_IN_ONE_CALL = 256


class Departure:
    """Something that wants to know when the parts it was added with have left."""

    __slots__ = ()

    def on_left(self) -> None:
        """Called once, when the last byte was handed to the stream."""


class Outbox:
    """The unsent parts of one connection, each group followed by its Departure."""

    __slots__ = ("_entries", "_skip")

    def __init__(self) -> None:
        self._entries: deque[Buffer | FileSlice | Departure] = deque()
        # Bytes of the first entry that have left already.
        self._skip = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, parts: Sequence[Part], departure: Departure) -> None:
        """Append `parts`; raises OSError if a small slice can't be read."""
        entries = self._entries
        for part in parts:
            if type(part) is FileSlice and part.length < _SMALL_SLICE_BYTES:
                entries.append(_read(part))
            else:
                entries.append(part)
        entries.append(departure)

    def send_only(self, stream: Stream, part: Buffer, departure: Departure) -> None:
        """A shorter way for a single buffer while nothing else is here, which most answers are.

        What the stream does not take is left to `flush`. Raises what the stream raises.
        """
        entries = self._entries
        # In here before it is sent, for `clear` to find if the stream raises.
        entries.append(part)
        entries.append(departure)
        self._skip = stream.send((part,))
        if self._skip == len(part):
            self._skip = 0
            entries.clear()
            departure.on_left()

    def flush(self, stream: Stream, clock: Clock, turn_ends: float) -> bool:
        """Send until nothing is left (True) or the stream takes no more, or time is up (False).

        Raises what the stream raises.
        """
        entries = self._entries
        # Those who had nothing to send leave at once; from here on the first entry has bytes.
        self._advance(0)
        while entries:
            if self._send_some(stream) == 0:
                return False
            if entries and clock.monotonic() >= turn_ends:
                return False
        return True

    def clear(self) -> list[Departure]:
        """Forget everything, and say who will never leave."""
        stranded = [entry for entry in self._entries if isinstance(entry, Departure)]
        self._entries.clear()
        self._skip = 0
        return stranded

    def _send_some(self, stream: Stream) -> int:
        first = self._entries[0]
        if type(first) is FileSlice:
            followers = islice(self._entries, 1, None)
            is_followed = any(not isinstance(entry, Departure) for entry in followers)
            sent = stream.send_slice(first, self._skip, more=is_followed)
        else:
            buffers, is_followed = self._buffers()
            sent = stream.send(buffers, more=is_followed)
        self._advance(sent)
        return sent

    def _buffers(self) -> tuple[list[Buffer], bool]:
        """The first buffers, up to a slice, and whether anything follows them."""
        buffers: list[Buffer] = []
        for entry in self._entries:
            if isinstance(entry, Departure):
                continue
            if isinstance(entry, FileSlice) or len(buffers) == _BUFFERS_IN_ONE_CALL:
                return buffers, True
            buffers.append(entry if buffers or not self._skip else memoryview(entry)[self._skip :])
        return buffers, False

    def _advance(self, count: int) -> None:
        """`count` more bytes have left."""
        entries = self._entries
        left = self._skip + count
        self._skip = 0
        while entries:
            first = entries[0]
            if isinstance(first, Departure):
                entries.popleft()
                # It may clear this outbox, by closing the connection.
                first.on_left()
                continue
            if left < len(first):
                self._skip = left
                return
            left -= len(first)
            entries.popleft()


def _read(part: FileSlice) -> bytes:
    data = part.file.pread(part.length, part.position)
    if len(data) < part.length:
        raise OSError(errno.EIO, f"{part.file.path} ended before a slice of it was sent")
    return data
