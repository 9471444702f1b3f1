"""The log of a shard in memory: for simulations of coordinators, and for the tests of machines.

It does what a leader's partition does, as far as a shard can tell: offsets follow one another, and
the high watermark is moved by hand, unless the log commits at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.records.batch import RecordBatch
from kraftpy.world import Buffer

__all__ = ["MemoryShardLog"]

_DEFAULT_BATCH_BYTES = 1_048_588


class MemoryShardLog:
    """Fits ShardLog. `failures` are raised by the next appends, one each."""

    def __init__(self, *, max_batch_bytes: int = _DEFAULT_BATCH_BYTES) -> None:
        self.max_batch_bytes = max_batch_bytes
        self.is_led = True
        self.log_start_offset = 0
        self.high_watermark = 0
        self.failures: deque[CoordinatorError] = deque()
        self.batches: list[bytes] = []
        self._base_offsets: list[int] = []
        self._end_offset = 0

    @property
    def log_end_offset(self) -> int:
        return self._end_offset

    def append(
        self,
        batch: Buffer,
        *,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = 0,
    ) -> int:
        if self.failures:
            raise self.failures.popleft()
        data = bytearray(batch)
        header = RecordBatch(data)
        header.stamp(self._end_offset, 0)
        self._base_offsets.append(self._end_offset)
        self.batches.append(bytes(data))
        self._end_offset += header.next_offset - header.base_offset
        return self._base_offsets[-1]

    def read_now(self, offset: int) -> bytes:
        """Everything from the batch that holds `offset` on."""
        first = max(0, bisect_right(self._base_offsets, offset) - 1)
        return b"".join(self.batches[first:])

    async def read(self, offset: int, max_bytes: int) -> Buffer:
        return self.read_now(offset)
