"""The values that producer state is made of, and its snapshot file.

A snapshot, `<offset>.snapshot`, holds the state of all producers up to its offset: int16 version 1,
uint32 CRC-32C of all that follows, int32 count, and 46 bytes for each producer. Of the remembered
batches it keeps the last one only; that is Kafka's format, so right after a restart only the last
batch is recognised when it is repeated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, starmap
from typing import Final, NamedTuple, TypeAlias

from kraftpy.log.errors import CorruptSnapshotError
from kraftpy.records.checksum import crc32c

__all__ = [
    "NO_EPOCH",
    "NO_OFFSET",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "RETAINED_BATCHES",
    "SEQUENCE_MAX",
    "BatchMetadata",
    "CompletedTransaction",
    "OpenTransaction",
    "ProducerEntry",
    "TakenSnapshot",
    "decode_snapshot",
    "decrement_sequence",
    "encode_entries",
    "encode_snapshot",
    "in_slices",
    "increment_sequence",
    "snapshot_parts",
]

NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1
# As many as a client may have in flight.
RETAINED_BATCHES: Final = 5

_SNAPSHOT_VERSION = 1
_HEADER = struct.Struct(">hIi")
_CHECKED_FROM = 6
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first
# offset of the open transaction.
_ENTRY = struct.Struct(">qhiqiqiq")
_SLICE_ENTRIES = 256


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequences run from 0 to Int.MAX and begin again at 0."""
    return (sequence + increment) & SEQUENCE_MAX


def decrement_sequence(sequence: int, decrement: int) -> int:
    return (sequence - decrement) & SEQUENCE_MAX


class BatchMetadata(NamedTuple):
    """One remembered batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """The state of one producer. Replaced on every change, so that a reference is a snapshot."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp_ms: int = NO_TIMESTAMP
    # NO_OFFSET: no transaction is open.
    transaction_first_offset: int = NO_OFFSET
    # Oldest first, at most RETAINED_BATCHES, all of this epoch.
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """Of its last batch; NO_OFFSET when only markers are known."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


# Up to which offset, and all producers as they were there.
TakenSnapshot: TypeAlias = tuple[int, tuple[ProducerEntry, ...]]

_NO_BATCH = BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, NO_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that began at `first_offset`.

    Where in which segment that is, is known unless the state was reloaded (-1); it saves a reader
    the index lookup for the last stable offset.
    """

    producer_id: int
    first_offset: int
    segment_base_offset: int = NO_OFFSET
    position: int = -1


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction with data here, ended by the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The content of a snapshot file."""
    return b"".join(snapshot_parts([encode_entries(entries)]))


def encode_entries(entries: Iterable[ProducerEntry]) -> bytes:
    """Some of the producers in a snapshot file."""
    packed = []
    for producer_id, epoch, coordinator_epoch, timestamp_ms, open_offset, batches in entries:
        last_sequence, last_offset, delta, _ = batches[-1] if batches else _NO_BATCH
        packed.append(
            _ENTRY.pack(
                producer_id,
                epoch,
                last_sequence,
                last_offset,
                delta,
                timestamp_ms,
                coordinator_epoch,
                open_offset,
            )
        )
    return b"".join(packed)


def snapshot_parts(encoded: Sequence[bytes]) -> list[bytes]:
    """The content of a snapshot file, from what `encode_entries` gave, without a copy."""
    count = sum(map(len, encoded)) // _ENTRY.size
    checksum = crc32c(struct.pack(">i", count))
    for part in encoded:
        checksum = crc32c(part, checksum)
    return [_HEADER.pack(_SNAPSHOT_VERSION, checksum, count), *encoded]


def decode_snapshot(data: bytes, path: str) -> Iterator[ProducerEntry]:
    """The producers in a snapshot file, one by one: there may be very many.

    If it is damaged this is told at once; `path` is for the error.
    """
    if len(data) < _HEADER.size:
        raise CorruptSnapshotError(f"{path}: {len(data)} bytes are no snapshot")
    version, checksum, count = _HEADER.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"{path}: version {version} is not {_SNAPSHOT_VERSION}")
    if crc32c(memoryview(data)[_CHECKED_FROM:]) != checksum:
        raise CorruptSnapshotError(f"{path}: wrong checksum")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{path}: {len(data)} bytes do not hold {count} producers")
    return starmap(_entry, _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :]))


def in_slices(entries: Iterable[ProducerEntry]) -> Iterator[list[ProducerEntry]]:
    """A fraction of a millisecond's work each."""
    remaining = iter(entries)
    while some := list(islice(remaining, _SLICE_ENTRIES)):
        yield some


def _entry(  # noqa: PLR0917 (the fields of an entry, in the file's order)
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    open_offset: int,
) -> ProducerEntry:
    batches: tuple[BatchMetadata, ...] = ()
    if last_offset >= 0:
        batches = (BatchMetadata(last_sequence, last_offset, delta, timestamp_ms),)
    return ProducerEntry(
        producer_id, epoch, coordinator_epoch, timestamp_ms, max(open_offset, NO_OFFSET), batches
    )
