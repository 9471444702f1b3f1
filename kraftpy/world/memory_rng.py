"""Seeded randomness behind the Rng port.

A stream's seed is a hash of the run's seed, the owner and the purpose. Streams are therefore
independent of each other and of the order in which they are first asked for, and of Python's own
hash seed.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random

__all__ = ["MemoryRng"]


class MemoryRng:
    __slots__ = ("_path", "_streams")

    def __init__(self, seed: int, owner: str = "") -> None:
        self._path = f"{seed}/{owner}"
        self._streams: dict[str, Random] = {}

    def stream(self, purpose: str) -> Random:
        stream = self._streams.get(purpose)
        if stream is None:
            digest = blake2b(f"{self._path}/{purpose}".encode(), digest_size=16).digest()
            stream = Random(int.from_bytes(digest, "big"))
            self._streams[purpose] = stream
        return stream
