"""Walking a run of batches: what a Produce or Fetch carries, or a piece of a segment file.

A run may end within a batch: Fetch cuts at a byte limit, and a crash cuts a file. The walker stops
there without a word; whoever cares adds up the sizes of what came. A length
or magic that can't be is damage, and an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, TypeAlias

from kraftpy.records.batch import LOG_OVERHEAD, MAGIC, RecordBatch
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.legacy import LegacyBatch
from kraftpy.records.reader import Record, read_records

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = ["AnyBatch", "batch_at", "first_offset_of", "records_of", "walk_batches"]

AnyBatch: TypeAlias = RecordBatch | LegacyBatch

# All formats agree on the first 17 bytes: offset, length, four bytes of their own, magic.
_SIZE_AND_MAGIC = Struct(">8xi4xb")


def batch_at(buffer: Buffer, position: int = 0) -> AnyBatch | None:
    """The batch at `position`; None if the buffer ends before it does.

    Raises CorruptRecord if no batch can begin with these bytes.
    """
    room = len(buffer) - position
    if room < _SIZE_AND_MAGIC.size:
        return None
    length, magic = _SIZE_AND_MAGIC.unpack_from(buffer, position)
    if not 0 <= magic <= MAGIC:
        raise CorruptRecord(f"magic {magic} at position {position}")
    if length > room - LOG_OVERHEAD:
        return None
    return RecordBatch(buffer, position) if magic == MAGIC else LegacyBatch(buffer, position)


def walk_batches(buffer: Buffer, position: int = 0) -> Iterator[AnyBatch]:
    """The whole batches from `position` on."""
    view = memoryview(buffer)
    while (batch := batch_at(view, position)) is not None:
        yield batch
        position += batch.size


def first_offset_of(batch: AnyBatch) -> int:
    """Of a legacy message, which may be a wrapper, only the last offset is known."""
    return batch.base_offset if isinstance(batch, RecordBatch) else batch.last_offset


def records_of(batch: AnyBatch, *, max_bytes: int) -> Iterator[Record]:
    """The records of a batch of any format."""
    if isinstance(batch, RecordBatch):
        return read_records(batch, max_bytes=max_bytes)
    return batch.records(max_bytes=max_bytes)
