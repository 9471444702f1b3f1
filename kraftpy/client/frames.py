"""Answers out of a stream of bytes: the network's FrameReader, with frames that last.

A server is done with a frame when its handler returns. An answer may refer to its frame (record
data) for as long as the caller likes, so small frames are copied out of the read-ahead buffer here.
Large ones have a buffer of their own from the start, and a whole one: a server's answer is as large
as it was asked to be, and memory that grows with it costs a follower more than all of the copying.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.net.framing import READ_AHEAD_BYTES, BufferPool, FrameReader

__all__ = ["AnswerReader"]

# The system gives memory that nobody has touched at once, but not without end.
_LARGE_STEP_BYTES = 16 * 1024 * 1024


class AnswerReader:
    """The frames of one connection, each valid for good."""

    __slots__ = ("_reader",)

    def __init__(self, max_frame_bytes: int) -> None:
        self._reader = FrameReader(
            max_frame_bytes, BufferPool(keep=1), large_step_bytes=_LARGE_STEP_BYTES
        )

    @property
    def is_empty(self) -> bool:
        """Whether no byte of the next answer is here."""
        return self._reader.is_empty

    def receive_view(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._reader.receive_view()

    def received(self, count: int) -> Iterator[memoryview]:
        """`count` bytes were put there: the frames that are complete now, without their sizes.

        Raises InvalidFrame for a size that no answer may have, before allocating for it.
        """
        reader = self._reader
        reader.received(count)
        while True:
            if reader.large_frame_bytes:
                reader.begin_large()
            frame = reader.peek()
            if frame is None:
                return
            reader.pop()
            yield frame if len(frame) > READ_AHEAD_BYTES else memoryview(bytes(frame))

    def rest(self) -> None:
        """Hold as little memory as possible while waiting."""
        self._reader.rest()
