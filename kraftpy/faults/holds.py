"""Messages that stop on their way, one kind of request or response at a time.

A connection is cut into frames as Kafka's protocol has them: a length, and in a request an API key
and a correlation id, by which a response is known. All bytes pass at once, up to the one that
completes the header of such a message: its receiver can do nothing with what it has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import trio

from kraftpy.faults.language import Hold, api_key_of

__all__ = ["Conversation", "Held", "Holds"]

_REQUEST: Final = struct.Struct(">ihhi")
_RESPONSE: Final = struct.Struct(">ii")
# A request without an answer, as a Produce with acks=0, would be remembered for ever.
_MAX_UNANSWERED: Final = 1000


@dataclass(slots=True)
class Held:
    """A message that waits."""

    milliseconds: int
    """0: until it is let go."""
    released: trio.Event = field(default_factory=trio.Event)


class Holds:
    """Which messages are to be held, and those that are."""

    __slots__ = ("_held", "_wanted", "total")

    def __init__(self) -> None:
        # By node, direction and API: how many more, and for how long.
        self._wanted: dict[tuple[int, str, int], tuple[int, int]] = {}
        self._held: list[Held] = []
        self.total = 0
        """How many messages have been held so far."""

    @property
    def held_count(self) -> int:
        """Of messages that wait now."""
        return sum(not each.released.is_set() for each in self._held)

    def add(self, fault: Hold) -> None:
        key = (fault.node, fault.direction, api_key_of(fault.api))
        self._wanted[key] = (fault.times, fault.milliseconds)

    def heal(self) -> None:
        self._wanted.clear()
        for held in self._held:
            held.released.set()
        self._held.clear()

    def take(self, node: int, direction: str, api_key: int) -> Held | None:
        """Whether this message is one of them."""
        key = (node, direction, api_key)
        if key not in self._wanted:
            return None
        times, milliseconds = self._wanted.pop(key)
        if times > 1:
            self._wanted[key] = (times - 1, milliseconds)
        self._held = [each for each in self._held if not each.released.is_set()]
        self._held.append(Held(milliseconds))
        self.total += 1
        return self._held[-1]


class _Frames:
    """Where frames begin in a stream of bytes."""

    __slots__ = ("_head", "_header", "_rest")

    def __init__(self, header: struct.Struct) -> None:
        self._header = header
        self._head = b""
        # Bytes of the current frame that are still to come.
        self._rest = 0

    def cut(self, data: bytes) -> Iterator[tuple[bytes, tuple[int, ...] | None]]:
        """Pieces of the stream; one that completes a header comes with its numbers."""
        while data:
            in_header = not self._rest
            wanted = self._header.size - len(self._head) if in_header else self._rest
            piece, data = data[:wanted], data[wanted:]
            if not in_header:
                self._rest -= len(piece)
                yield piece, None
                continue
            self._head += piece
            if len(self._head) < self._header.size:
                yield piece, None
                continue
            numbers = self._header.unpack(self._head)
            self._rest = max(0, numbers[0] + 4 - len(self._head))
            self._head = b""
            yield piece, numbers


class Conversation:
    """Both directions of one connection, to the node that answers."""

    __slots__ = ("_frames", "_holds", "_node", "_unanswered")

    def __init__(self, holds: Holds, node: int) -> None:
        self._holds = holds
        self._node = node
        self._frames = {"request": _Frames(_REQUEST), "response": _Frames(_RESPONSE)}
        self._unanswered: dict[int, int] = {}

    def cut(self, direction: str, data: bytes) -> Iterator[tuple[bytes, Held | None]]:
        """What to deliver, piece by piece; one with a Held, and what follows it, waits."""
        together = bytearray()
        for piece, numbers in self._frames[direction].cut(data):
            held = None if numbers is None else self._judge(direction, numbers)
            if held is not None:
                if together:
                    yield bytes(together), None
                    together.clear()
                yield piece, held
            else:
                together += piece
        if together:
            yield bytes(together), None

    def _judge(self, direction: str, numbers: tuple[int, ...]) -> Held | None:
        if direction == "request":
            _, api_key, _, correlation_id = numbers
            self._unanswered[correlation_id] = api_key
            if len(self._unanswered) > _MAX_UNANSWERED:
                del self._unanswered[next(iter(self._unanswered))]
            return self._holds.take(self._node, direction, api_key)
        answered = self._unanswered.pop(numbers[1], None)
        return None if answered is None else self._holds.take(self._node, direction, answered)
