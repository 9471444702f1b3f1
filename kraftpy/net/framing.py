"""Frames out of a stream of bytes: a signed 32-bit size, big-endian, and as many bytes of payload.

No I/O happens here. The owner of a FrameReader asks it for room (`receive_view`), receives into
that, says how much came (`received`), and takes the frames that are complete (`peek`, `pop`).

Two buffers, because small and large frames want opposite things:

- Frames that fit into READ_AHEAD_BYTES are received ahead into one buffer of that size: one system
  call brings many of them.
- A larger frame gets a buffer of its own, into which the rest of it is received directly; it is
  never assembled from chunks. The owner must agree first (`large_frame_bytes`, `begin_large`),
  because that is where memory is accounted for. It is asked when 16 kB of the frame are here, and
  the buffer grows with the bytes that arrive: who announces 100 MB and sends nothing costs us
  nothing.

Read-ahead buffers come from a BufferPool shared by all readers of a server. A reader holds one only
between receiving and having nothing left in it; before its owner waits it calls `rest`, which gives
the buffer back and keeps a small remainder (part of a frame) in a copy of its own size. That is why
thousands of idle connections, and thousands that each stopped amid a frame, cost next to nothing.

Invariant: while a large frame is incomplete, nothing is in the read-ahead buffer. A frame's
memoryview is valid until the next `receive_view`, `received` or `rest`.
"""

from __future__ import annotations

from struct import Struct

from kraftpy.world import InternalInvariant, assert_always

__all__ = ["READ_AHEAD_BYTES", "BufferPool", "FrameReader", "InvalidFrame"]

READ_AHEAD_BYTES = 64 * 1024

# A remainder of up to this is copied when its reader rests. Above, the copy would cost more than
# it saves, and the peer has paid for the memory with bytes.
_REMAINDER_BYTES = 4 * 1024
# How much of a large frame comes into the read-ahead buffer before it gets one of its own.
_LARGE_BEGUN_BYTES = 16 * 1024
# A large frame's buffer grows by this much at a time; most of those that real clients send are
# whole with the first. More at once would keep the loop: the new bytes are zeros to be written.
_LARGE_STEP_BYTES = 1024 * 1024
# Less room than this at the end of the buffer is not worth a system call: move to the front.
_ROOM_BYTES = 16 * 1024

_SIZE = Struct(">i")
_NO_ROOM = memoryview(b"")
# What a reader without bytes has; nothing is received into it, so all can share it.
_NO_BUFFER = bytearray()


class InvalidFrame(Exception):  # noqa: N818 (it names what came)
    """The peer announced a frame of a size that can't be; nothing after it can be understood."""


class BufferPool:
    """Read-ahead buffers that nobody uses now, for those who will; at most `keep` of them."""

    __slots__ = ("_free", "_keep")

    def __init__(self, keep: int = 32) -> None:
        self._free: list[bytearray] = []
        self._keep = keep

    def borrow(self) -> bytearray:
        return self._free.pop() if self._free else bytearray(READ_AHEAD_BYTES)

    def give_back(self, buffer: bytearray) -> None:
        if len(self._free) < self._keep:
            self._free.append(buffer)

    def __len__(self) -> int:
        return len(self._free)


class FrameReader:
    """The frames of one connection, in the order of arrival."""

    __slots__ = (
        "_buffer",
        "_buffers",
        "_end",
        "_frame_max_bytes",
        "_given_view",
        "_head",
        "_is_borrowed",
        "_large",
        "_large_filled",
        "_large_size",
        "_large_step_bytes",
        "_start",
        "_view",
    )

    def __init__(
        self,
        frame_max_bytes: int,
        buffers: BufferPool,
        *,
        large_step_bytes: int = _LARGE_STEP_BYTES,
    ) -> None:
        """`large_step_bytes` is how much memory a large frame gets before bytes come for it."""
        self._large_step_bytes = large_step_bytes
        self._frame_max_bytes = frame_max_bytes
        self._buffers = buffers
        # Bytes [_start, _end) of _buffer are received and not yet taken. The buffer is a borrowed
        # one, or the remainder that was kept by `rest`.
        self._buffer = _NO_BUFFER
        self._view = _NO_ROOM
        self._is_borrowed = False
        self._start = 0
        self._end = 0
        self._large: bytearray | None = None
        self._large_size = 0
        self._large_filled = 0
        self._given_view = _NO_ROOM
        self._head: memoryview | None = None

    def peek(self) -> memoryview | None:
        """The next frame, without its size, if all of it is here."""
        if self._head is not None or (self._start == self._end and self._large is None):
            return self._head
        if self._large is not None:
            if self._large_filled == self._large_size:
                self._head = memoryview(self._large)
            return self._head
        size = self._announced_size()
        first = self._start + 4
        if size is None or self._end - first < size:
            return None
        self._head = self._view[first : first + size]
        return self._head

    def pop(self) -> None:
        """Take away the frame that `peek` gave. The frame stays valid as said above."""
        head = self._head
        if head is None:
            raise InternalInvariant("framing.pop-without-peek")
        self._head = None
        if self._large is not None:
            self._large = None
        else:
            self._start += 4 + len(head)

    @property
    def is_empty(self) -> bool:
        """Whether no byte is here, of whatever frame."""
        return self._start == self._end and self._large is None

    @property
    def large_frame_bytes(self) -> int:
        """The size of the next frame if it needs `begin_large` now, else 0.

        Not before some of it is here: what was only announced costs nothing.
        """
        if self._start == self._end or self._large is not None:
            return 0
        size = self._announced_size()
        if size is None or size <= READ_AHEAD_BYTES - 4:
            return 0
        return size if self._end - self._start >= _LARGE_BEGUN_BYTES else 0

    def begin_large(self) -> None:
        """Make a buffer for the large frame that comes, and move there what is here of it."""
        size = self.large_frame_bytes
        assert_always(size > 0, "framing.no-large-frame")
        filled = self._end - self._start - 4
        self._large = bytearray(min(size, self._large_step_bytes))
        self._large[:filled] = self._view[self._start + 4 : self._end]
        self._large_size = size
        self._large_filled = filled
        self._start = self._end = 0

    @property
    def room_bytes(self) -> int:
        """How much could be received now; 0 means that frames must be taken first."""
        if self._large is not None and self._large_filled < self._large_size:
            return self._large_size - self._large_filled
        return READ_AHEAD_BYTES - (self._end - self._start)

    def receive_view(self) -> memoryview:
        """Where to receive next. Not empty if there is room, but it may be a part of the room."""
        if self._large is not None and self._large_filled < self._large_size:
            if self._large_filled == len(self._large):
                self._grow_large(self._large)
            self._given_view = memoryview(self._large)[self._large_filled :]
            return self._given_view
        if not self._is_borrowed:
            self._move_to(self._buffers.borrow())
            self._is_borrowed = True
        elif self._start > 0 and READ_AHEAD_BYTES - self._end < _ROOM_BYTES:
            self._move_to(self._buffer)
        self._given_view = self._view[self._end :]
        return self._given_view

    def received(self, count: int) -> None:
        """`count` bytes were put into the view that `receive_view` gave last."""
        if count > len(self._given_view):
            raise InternalInvariant(f"framing.more-than-room count={count}")
        # A view that is still alive would keep the large buffer from growing.
        self._given_view.release()
        self._given_view = _NO_ROOM
        if self._large is not None and self._large_filled < self._large_size:
            self._large_filled += count
        else:
            self._end += count

    def rest(self) -> None:
        """Hold as little as possible: the owner is about to wait."""
        if not self._is_borrowed:
            return
        count = self._end - self._start
        if count > _REMAINDER_BYTES:
            return
        borrowed = self._buffer
        self._move_to(bytearray(count) if count else _NO_BUFFER)
        self._is_borrowed = False
        self._buffers.give_back(borrowed)

    def release(self) -> None:
        """Let go of everything; the reader is not used any more."""
        if self._is_borrowed:
            self._buffers.give_back(self._buffer)
            self._is_borrowed = False
        self._buffer = _NO_BUFFER
        self._view = _NO_ROOM
        self._head = None
        self._large = None
        self._start = self._end = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes received that belong to frames not taken yet, sizes included."""
        large = self._large_filled if self._large is not None else 0
        return large + self._end - self._start

    @property
    def held_bytes(self) -> int:
        """Memory held for this connection at this moment."""
        return len(self._buffer) + (len(self._large) if self._large is not None else 0)

    def _announced_size(self) -> int | None:
        if self._end - self._start < 4:
            return None
        size: int = _SIZE.unpack_from(self._buffer, self._start)[0]
        if not 0 <= size <= self._frame_max_bytes:
            raise InvalidFrame(f"frame size {size} is not within 0 and {self._frame_max_bytes}")
        return size

    def _move_to(self, buffer: bytearray) -> None:
        """Go on in `buffer`, which may be the present one, with the remainder at its front."""
        count = self._end - self._start
        if count:
            buffer[:count] = self._view[self._start : self._end]
        if self._large is None:
            # A complete large frame lies in its own buffer, and stays valid.
            self._head = None
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start = 0
        self._end = count

    def _grow_large(self, large: bytearray) -> None:
        """Make room for the next step. What is there is seldom copied: a bytearray that grows
        reserves more than it shows, and the system moves large blocks by remapping pages.
        """
        large.extend(bytes(min(self._large_step_bytes, self._large_size - len(large))))
