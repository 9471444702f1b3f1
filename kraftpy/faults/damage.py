"""Where a damaged disk is wrong inside of a log, so that the node can notice.

A batch's checksum covers its attributes and all that follows. Flipped bits and strays are drawn
there, and in the checksum itself: what nothing covers (a batch's base offset and leader epoch) is
no better protected in Kafka. A node looks at whole batches when it starts after a crash, in the
segment that was written to last; so that is where damage is put, while it does not run.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftpy.records.errors import RecordDataError
from kraftpy.records.walker import walk_batches
from kraftpy.world import Random

__all__ = ["Change", "draw_flip", "draw_stray"]

_CHECKSUM_POSITION = 17
_COVERED_POSITION = 21
_STRAY_BYTES = 64


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes that stand at a position from now on."""

    position: int
    data: bytes


def draw_flip(data: bytes, random: Random) -> Change | None:
    """One bit of a segment, somewhere under a checksum; None if there is no batch."""
    batches = _batches(data)
    if not batches:
        return None
    start, size = random.choice(batches)
    position = random.randrange(start + _CHECKSUM_POSITION, start + size)
    return Change(position, bytes([data[position] ^ 1 << random.randrange(8)]))


def draw_stray(data: bytes, random: Random) -> Change | None:
    """A write that landed elsewhere: a part of one batch in the middle of another, which has other
    bytes there; None if there is no such place.
    """
    batches = _batches(data)
    for _ in range(len(batches)):
        start, size = random.choice(batches)
        other, other_size = random.choice(batches)
        source = random.randrange(other, other + other_size)
        length = min(_STRAY_BYTES, other + other_size - source, size - _COVERED_POSITION)
        target = start + _COVERED_POSITION
        target += random.randrange(size - _COVERED_POSITION - length + 1)
        stray = data[source : source + length]
        if stray != data[target : target + length]:
            return Change(target, stray)
    return None


def _batches(data: bytes) -> list[tuple[int, int]]:
    """Position and size of each whole one."""
    found = []
    position = 0
    try:
        for batch in walk_batches(data):
            found.append((position, batch.size))
            position += batch.size
    except RecordDataError:
        # What was torn by an earlier fault is damaged enough.
        pass
    return found
