"""Which partition a record goes to: by its key as every Java client does, otherwise sticky.

A key's partition is murmur2 of its bytes, without the sign bit, modulo the number of partitions.
Records without a key stay with one partition for about `batch_size` bytes and then go on to another
one at random (KIP-794), so that batches fill and load spreads all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftpy.world import Random

__all__ = ["StickyChoice", "murmur2", "partition_of_key"]

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's variant of MurmurHash2, as an unsigned 32-bit number."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        hashed = hashed * _FACTOR & _MASK ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyChoice:
    """The partition of one topic's records without a key."""

    __slots__ = ("_bytes", "_partition", "_random")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._partition: int | None = None
        self._bytes = 0

    def choose(self, available: Sequence[int], size: int, batch_size: int) -> int:
        """The partition for a record of `size` bytes, among those that can take one."""
        if self._partition not in available or self._bytes >= batch_size:
            others = [each for each in available if each != self._partition] or available
            self._partition = self._random.choice(others)
            self._bytes = 0
        self._bytes += size
        return self._partition  # type: ignore[return-value]  # Chosen above if it was None.
