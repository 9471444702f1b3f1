"""Bytes that are almost right: what fuzzing is made of."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

# Lengths and counts that lie, in the ways in which the protocol writes them.
LIES = (
    *(b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\0\0\x03\xff"),
    *(b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\0", b"\xff\x7f", b"\0", b"\1"),
    *(b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), b"\xff" * 10),
)
MOST_CHANGES = 6


def mutate(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """One to six changes; `others` are of the same kind, and give away parts."""
    changed = bytearray(data)
    for _ in range(random.randint(1, MOST_CHANGES)):
        _change(random, changed, others)
    return bytes(changed)


def _change(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    position = random.randint(0, len(data))
    length = min(len(data) - position, 1 + int(random.expovariate(0.2)))
    match random.randrange(8):
        case 0:
            if position < len(data):
                data[position] ^= 1 << random.randrange(8)
        case 1:
            data[position : position + length] = random.randbytes(length)
        case 2:
            data[position:position] = random.randbytes(random.randint(1, 8))
        case 3:
            del data[position : position + length]
        case 4:
            lie = random.choice(LIES)
            data[position : position + len(lie)] = lie
        case 5:
            del data[position:]
        case 6:
            # Twice, or elsewhere.
            part = data[position : position + length]
            target = random.randint(0, len(data))
            data[target : target + random.choice((0, length))] = part
        case 7:
            other = random.choice(others) if others else bytes(data)
            start = random.randint(0, len(other))
            data[position : position + length] = other[start : start + length]
