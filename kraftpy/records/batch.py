"""The v2 record batch as a view: one unpack of its 61-byte header, nothing of its records.

A batch is opaque to produce and fetch (design, decision 4). RecordBatch reads the header where it
lies in a buffer and patches in place what a broker must set: base offset and leader epoch, which
the CRC leaves out for this very purpose, and timestamp type with maximum, which need a new CRC.
The bytes are never copied; docs/format.md has the layout.

Invariants:
- Constructing a view checks that the whole batch lies inside the buffer, and nothing else. Until
  `is_valid` was asked, every field is what somebody wrote there.
- The fields of the view and the bytes below agree, as long as they are changed through the view.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final

from kraftpy.records.checksum import crc32c
from kraftpy.records.compression import Codec
from kraftpy.records.errors import CorruptRecord, UnsupportedCompression

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = [
    "CODEC_MASK",
    "CONTROL",
    "CRC",
    "CRC_AT",
    "CRC_START",
    "DELETE_HORIZON",
    "HEADER",
    "HEADER_SIZE",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "MAGIC",
    "MAX_INT32",
    "NO_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "TRANSACTIONAL",
    "RecordBatch",
    "TimestampType",
    "crc32c",
]

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base timestamp,
# max timestamp, producer id, producer epoch, base sequence, records count
HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LOG_OVERHEAD = 12
MAGIC = 2
CRC_AT = 17
CRC_START = 21
CRC = Struct(">I")

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_SEQUENCE = -1
MAX_INT32 = 2**31 - 1

_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_ATTRIBUTES = Struct(">h")
_MAX_TIMESTAMP = Struct(">q")
_LEADER_EPOCH_AT = 12
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_PRODUCER = Struct(">qhi")
_PRODUCER_AT = 43


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


# An enum's member is looked up by a call.
_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME


class RecordBatch:
    """A view of the v2 batch at `position` of `buffer`.

    `base_timestamp_ms` is Kafka's base timestamp field as it stands; it holds the delete horizon
    when `delete_horizon_ms` is set, and record timestamps count from it either way.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "buffer",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp_ms",
        "position",
        "producer_epoch",
        "producer_id",
        "records_count",
        "size",
    )

    buffer: memoryview
    position: int
    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = view = memoryview(buffer)
        self.position = position
        room = len(view) - position
        if position < 0 or room < HEADER_SIZE:
            raise CorruptRecord(f"no room for a batch header at position {position}")
        (
            self.base_offset,
            length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.records_count,
        ) = HEADER.unpack_from(view, position)
        self.size = size = length + LOG_OVERHEAD
        if not HEADER_SIZE <= size <= room:
            raise CorruptRecord(f"a batch at position {position} claims {size} bytes")

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        codec_id = self.attributes & CODEC_MASK
        if codec_id > Codec.ZSTD:
            raise UnsupportedCompression(f"{codec_id} names no codec")
        return Codec(codec_id)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & LOG_APPEND_TIME:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones of this batch may go, once the cleaner has set it (KIP-534)."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number; they wrap from the largest int32 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_INT32

    @property
    def data(self) -> memoryview:
        """The whole batch."""
        return self.buffer[self.position : self.position + self.size]

    @property
    def body(self) -> memoryview:
        """What follows the header: the records, as one compressed block if there is a codec."""
        return self.buffer[self.position + HEADER_SIZE : self.position + self.size]

    def compute_crc(self) -> int:
        start = self.position + CRC_START
        return crc32c(self.buffer[start : self.position + self.size])

    @property
    def is_valid(self) -> bool:
        """Is this a v2 batch with a right CRC?"""
        return self.magic == MAGIC and self.compute_crc() == self.crc

    def stamp(self, base_offset: int, leader_epoch: int) -> None:
        """Write both where the batch lies; the CRC doesn't cover them."""
        _BASE_OFFSET.pack_into(self.buffer, self.position, base_offset)
        _LEADER_EPOCH.pack_into(self.buffer, self.position + _LEADER_EPOCH_AT, leader_epoch)
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch

    def set_timestamp(self, timestamp_type: TimestampType, max_timestamp_ms: int) -> None:
        """Write both where the batch lies, with a new CRC if either changes."""
        attributes = self.attributes & ~LOG_APPEND_TIME
        if timestamp_type is _APPEND_TIME:
            attributes |= LOG_APPEND_TIME
        if attributes == self.attributes and max_timestamp_ms == self.max_timestamp_ms:
            return
        position = self.position
        _ATTRIBUTES.pack_into(self.buffer, position + _ATTRIBUTES_AT, attributes)
        _MAX_TIMESTAMP.pack_into(self.buffer, position + _MAX_TIMESTAMP_AT, max_timestamp_ms)
        self.attributes = attributes
        self.max_timestamp_ms = max_timestamp_ms
        self.crc = self.compute_crc()
        CRC.pack_into(self.buffer, position + CRC_AT, self.crc)

    def set_producer(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Write all three where the batch lies, with a new CRC."""
        position = self.position
        _PRODUCER.pack_into(
            self.buffer, position + _PRODUCER_AT, producer_id, producer_epoch, base_sequence
        )
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.crc = self.compute_crc()
        CRC.pack_into(self.buffer, position + CRC_AT, self.crc)

    def __repr__(self) -> str:
        return (
            f"RecordBatch(base_offset={self.base_offset}, last_offset={self.last_offset}, "
            f"count={self.records_count}, size={self.size}, leader_epoch={self.leader_epoch}, "
            f"attributes={self.attributes:#x}, producer_id={self.producer_id}, "
            f"producer_epoch={self.producer_epoch}, base_sequence={self.base_sequence})"
        )
