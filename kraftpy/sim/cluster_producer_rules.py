"""Invariants 17 and 18, and what 14 says of transactions: a log's producers, seen from outside.

The rules fold a log themselves, batch by batch, and share nothing with the product's own state of
producers. Along a log, the epoch of a producer never falls, and within an epoch its sequences have
no gap and no repetition; what it writes while its transaction is open belongs to that transaction.
The last stable offset is where the first transaction begins that is open, or whose end is not
committed yet, and else the high watermark.

A log whose beginning was deleted may have lost the beginning of a transaction, and what the product
remembers of it lies between what can be seen and what was. And a leader may have begun with a high
watermark below one that it has seen as a follower: then the end of a transaction that it takes for
committed is so, though not by its present high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kraftpy.log.offsets import Isolation, ReadInfo
from kraftpy.records.batch import RecordBatch
from kraftpy.records.walker import walk_batches

__all__ = ["CheckedLog", "check_last_stable", "check_sequences", "producer_batches"]

_ALL_BYTES = 1 << 30
_SEQUENCES = 1 << 31


class CheckedLog(Protocol):
    """What rules look at of a replica's log, whether it is in use or only on a disk."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def recovery_point(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    def read(self, start_offset: int, max_bytes: int, isolation: Isolation) -> ReadInfo: ...

    def check(self) -> None: ...


def producer_batches(log: CheckedLog) -> Iterator[RecordBatch]:
    """Those of producers with an id; a read gives what one segment has."""
    offset = log.log_start_offset
    while True:
        start = offset
        records = log.read(offset, _ALL_BYTES, Isolation.LOG_END).records
        if records is not None:
            for batch in walk_batches(records.file.pread(records.length, records.position)):
                if isinstance(batch, RecordBatch):
                    offset = batch.next_offset
                    if batch.producer_id >= 0:
                        yield batch
        if offset == start:
            return


def check_sequences(log: CheckedLog) -> str | None:
    """What is wrong with the producers of a log."""
    # By producer: its epoch, the sequence that follows, whether a transaction is open.
    known: dict[int, tuple[int, int | None, bool]] = {}
    for batch in producer_batches(log):
        where = (
            f"at {batch.base_offset}: producer {batch.producer_id}, epoch {batch.producer_epoch}"
        )
        epoch, expected, is_open = known.get(batch.producer_id, (-1, None, False))
        if batch.producer_epoch < epoch:
            return f"{where} after {epoch}"
        if batch.producer_epoch > epoch:
            expected = None
        if batch.is_control:
            known[batch.producer_id] = (batch.producer_epoch, expected, False)
            continue
        if expected is not None and batch.base_sequence != expected:
            return f"{where}, sequence {batch.base_sequence}, not {expected}"
        if is_open and not batch.is_transactional:
            return f"{where} outside its transaction"
        following = (batch.base_sequence + batch.records_count) % _SEQUENCES
        is_open = batch.is_transactional
        known[batch.producer_id] = (batch.producer_epoch, following, is_open)
    return None


def check_last_stable(log: CheckedLog, true_high_watermark: int) -> str | None:
    """What is wrong with the last stable offset of a leader."""
    high_watermark, log_start = log.high_watermark, log.log_start_offset
    lowest = highest = high_watermark
    opened: dict[int, int] = {}
    for batch in producer_batches(log):
        if not batch.is_control:
            if batch.is_transactional:
                opened.setdefault(batch.producer_id, batch.base_offset)
            continue
        first_offset = opened.pop(batch.producer_id, None)
        if first_offset is not None:
            if batch.base_offset >= high_watermark:
                lowest = min(lowest, first_offset)
            if batch.base_offset >= true_high_watermark:
                highest = min(highest, first_offset)
    lowest, highest = min([lowest, *opened.values()]), min([highest, *opened.values()])
    stable = log.last_stable_offset
    if stable > max(highest, log_start) or (log_start == 0 and stable < lowest):
        return f"the last stable offset is {stable}, not {lowest} to {highest}"
    return None
