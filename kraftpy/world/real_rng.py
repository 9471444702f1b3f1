"""Randomness of the machine behind the Rng port: each stream is seeded from the kernel's entropy.

The streams are Mersenne Twisters: quick and well spread, but no secrets. Whatever must be
unguessable has to come from elsewhere.
"""

from __future__ import annotations

import os
from random import Random

__all__ = ["RealRng"]

_SEED_BYTES = 32


class RealRng:
    __slots__ = ("_streams",)

    def __init__(self) -> None:
        self._streams: dict[str, Random] = {}

    def stream(self, purpose: str) -> Random:
        stream = self._streams.get(purpose)
        if stream is None:
            stream = Random(int.from_bytes(os.urandom(_SEED_BYTES), "big"))
            self._streams[purpose] = stream
        return stream
