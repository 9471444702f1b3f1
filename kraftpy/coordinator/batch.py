"""The batch that a shard's writes are collected in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kraftpy.coordinator.outcome import CoordinatorRecord
from kraftpy.coordinator.writes import Write
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.protocol.coordinator_records import encode_key, encode_value
from kraftpy.purgatory.timer import TimerTask
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec

__all__ = ["EncodedRecord", "EndOfLinger", "OpenBatch", "Producer", "encode_record", "space_for"]

# Lengths, deltas, attributes and the count of headers, at their longest.
_OVERHEAD_BYTES = 32


# The bytes of a key, and those of its value unless it deletes the key.
EncodedRecord: TypeAlias = tuple[bytes, bytes | None]


class Producer(NamedTuple):
    """In whose transaction something is written, and the guard of its verification."""

    id: int
    epoch: int
    guard: VerificationGuard = NO_GUARD


def encode_record(record: CoordinatorRecord) -> EncodedRecord:
    value = record.value
    if value is None:
        return encode_key(record.key), None
    return encode_key(record.key), encode_value(value, record.value_version)


def space_for(record: EncodedRecord) -> int:
    """Bytes that a record takes in a batch, at most, before compression."""
    key, value = record
    return len(key) + (0 if value is None else len(value)) + _OVERHEAD_BYTES


class OpenBatch:
    __slots__ = ("_builder", "_timestamp_ms", "guard", "writes")

    def __init__(self, codec: Codec, timestamp_ms: int, producer: Producer | None) -> None:
        if producer is None:
            self._builder = BatchBuilder(codec=codec)
        else:
            self._builder = BatchBuilder(
                codec=codec,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                is_transactional=True,
            )
        self._timestamp_ms = timestamp_ms
        self.guard = NO_GUARD if producer is None else producer.guard
        self.writes: list[Write] = []

    @property
    def count(self) -> int:
        return self._builder.count

    def has_space(self, needed_bytes: int, limit_bytes: int) -> bool:
        return self._builder.size + needed_bytes <= limit_bytes

    def append(self, record: EncodedRecord) -> None:
        key, value = record
        self._builder.append(key, value, timestamp_ms=self._timestamp_ms)

    def build(self) -> bytearray:
        return self._builder.build()


class EndOfLinger(TimerTask):
    """Rings when a batch has waited long enough for more writes."""

    __slots__ = ("_batch", "_over")

    def __init__(self, batch: OpenBatch, over: Callable[[OpenBatch], None]) -> None:
        super().__init__()
        self._batch = batch
        self._over = over

    def run(self) -> None:
        self._over(self._batch)
