"""The cleaner's map from a key to the last offset at which it was seen, in bounded memory.

One bytearray of slots of 24 bytes: the MD5 of the key, and the offset plus one, so that zero means
an empty slot. Keys themselves are not kept: two with the same MD5 would count as one, which is
Kafka's choice too, and with 128 bits nobody will meet it by accident.

Open addressing with double hashing: where a key's search begins, and in which steps it goes on, are
both taken from its MD5. The number of slots is prime, so that every step visits every slot. At
Kafka's load factor of 0.9 a key is found after 2.6 looks and missed after 10 on average, however
many there are; with steps of one slot it would be 5.5 and 50.

The map never grows. Who fills it asks `is_full` first, and stops where it is. Its memory is taken
in steps, since 128 MiB of zeros at once would hold up the loop for longer than anything may.
"""

from __future__ import annotations

import struct
from math import isqrt
from typing import Final

from kraftpy.world import assert_always

__all__ = ["SLOT_BYTES", "OffsetMap"]

_SLOT: Final = struct.Struct(">16sq")
SLOT_BYTES: Final = _SLOT.size
_HASHES: Final = struct.Struct(">QQ")
_STEP_BYTES: Final = 1024 * 1024
_UNKNOWN: Final = -1


class OffsetMap:
    """At most `load_factor` of its slots are used. `reserve` comes before anything else.

    `latest_offset`: everything up to here has been looked at, -1 before anything was. The offset
    that was put last, unless somebody sets it beyond.
    """

    __slots__ = ("_count", "_md5", "_memory", "_slots", "capacity", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        # A node that cleans nothing needs no OpenSSL.
        from hashlib import md5

        self._md5 = md5
        self._slots = _prime_not_above(max(2, memory_bytes // SLOT_BYTES))
        # One slot always stays empty, where the search for a missing key ends.
        self.capacity = min(max(1, int(self._slots * load_factor)), self._slots - 1)
        self._memory = bytearray()
        self._count = 0
        self.latest_offset = _UNKNOWN

    @classmethod
    def for_keys(cls, count: int, memory_limit_bytes: int, load_factor: float = 0.9) -> OffsetMap:
        """One that takes `count` keys, if so many fit into the limit."""
        # A few slots more, since their number is rounded down to a prime.
        slots = int(count / load_factor * 1.01) + 100
        return cls(min(slots * SLOT_BYTES, memory_limit_bytes), load_factor)

    def reserve(self) -> bool:
        """Take a step of memory; whether that was the last. To be called until it was."""
        missing = self.memory_bytes - len(self._memory)
        self._memory += bytes(min(missing, _STEP_BYTES))
        return missing <= _STEP_BYTES

    def __len__(self) -> int:
        return self._count

    @property
    def memory_bytes(self) -> int:
        return self._slots * SLOT_BYTES

    @property
    def is_full(self) -> bool:
        return self._count >= self.capacity

    def put(self, key: bytes, offset: int) -> None:
        """The key was seen at `offset`, which is above all others."""
        digest = self._md5(key, usedforsecurity=False).digest()
        position, used = self._find(digest)
        if not used:
            assert_always(self._count < self.capacity, "offset-map-overfull", count=self._count)
            self._count += 1
        _SLOT.pack_into(self._memory, position, digest, offset + 1)
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """The last offset of the key, -1 if it was not seen."""
        return self._find(self._md5(key, usedforsecurity=False).digest())[1] - 1

    def _find(self, digest: bytes) -> tuple[int, int]:
        """Where the slot of `digest` is or should be, and what is in it: offset + 1 or 0."""
        memory = self._memory
        slots = self._slots
        first, second = _HASHES.unpack(digest)
        slot = first % slots
        step = 0
        while True:
            position = slot * SLOT_BYTES
            found, used = _SLOT.unpack_from(memory, position)
            if not used or found == digest:
                return position, used
            step = step or second % (slots - 1) + 1
            slot = (slot + step) % slots


def _prime_not_above(number: int) -> int:
    """The largest prime; `number` is at least 2."""
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number -= 1
    return number
