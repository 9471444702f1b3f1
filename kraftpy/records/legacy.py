"""Messages of magic 0 and 1: Kafka's formats before 0.11, for reading old logs and for the dump.

A message is its own batch, with a CRC-32 of its own. A compressed message (a wrapper) holds in its
value a whole run of messages, compressed together; its offset is the offset of the last of them.
Inside a wrapper of magic 1 offsets count from 0 and the reader slides them so that the last one
gets the wrapper's; inside one of magic 0 they are absolute. A wrapper of magic 1 with LogAppendTime
gives its timestamp to everything in it. docs/format.md has the layout.

Nothing new is written in these formats, except by tests and by who wants to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from kraftpy.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TimestampType,
)
from kraftpy.records.compression import Codec, compress, decompress
from kraftpy.records.errors import CorruptRecord, InvalidRecord, UnsupportedCompression
from kraftpy.records.reader import Record

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = ["RECORD_OVERHEAD", "LegacyBatch", "build_message", "build_message_set"]

RECORD_OVERHEAD = (14, 22)
"""The least size of a message behind its offset and size, by magic."""

_HEADER_V0 = Struct(">qiIbb")
_HEADER_V1 = Struct(">qiIbbq")
_INT32 = Struct(">i")
_CRC = Struct(">I")
_CRC_AT = 12
_CRC_START = 16


class LegacyBatch:
    """A view of the message at `position` of `buffer`: one record, or a wrapper with many."""

    __slots__ = (
        "attributes",
        "buffer",
        "crc",
        "last_offset",
        "magic",
        "position",
        "size",
        "timestamp_ms",
    )

    buffer: memoryview
    position: int
    last_offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp_ms: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = memoryview(buffer)
        self.position = position
        room = len(self.buffer) - position
        if position < 0 or room < LOG_OVERHEAD + RECORD_OVERHEAD[0]:
            raise CorruptRecord(f"no room for a message at position {position}")
        self.last_offset, length, self.crc, self.magic, self.attributes = _HEADER_V0.unpack_from(
            self.buffer, position
        )
        if self.magic not in (0, 1):
            raise CorruptRecord(f"magic {self.magic} is not that of a message")
        self.size = length + LOG_OVERHEAD
        if not RECORD_OVERHEAD[self.magic] <= length <= room - LOG_OVERHEAD:
            raise CorruptRecord(f"a message at position {position} claims {length} bytes")
        self.timestamp_ms = NO_TIMESTAMP
        if self.magic == 1:
            self.timestamp_ms = _HEADER_V1.unpack_from(self.buffer, position)[-1]

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def codec(self) -> Codec:
        codec_id = self.attributes & CODEC_MASK
        if codec_id > Codec.LZ4:
            raise UnsupportedCompression(f"{codec_id} names no codec of magic {self.magic}")
        return Codec(codec_id)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 1 and self.attributes & LOG_APPEND_TIME:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def max_timestamp_ms(self) -> int:
        return self.timestamp_ms

    @property
    def data(self) -> memoryview:
        """The whole message."""
        return self.buffer[self.position : self.position + self.size]

    def compute_crc(self) -> int:
        return crc32(self.buffer[self.position + _CRC_START : self.position + self.size])

    @property
    def is_valid(self) -> bool:
        return self.compute_crc() == self.crc

    def records(self, *, max_bytes: int) -> Iterator[Record]:
        """The message's record, or those in the wrapper, inflated to `max_bytes` at most.

        The CRC of the message itself isn't checked here; those inside of a wrapper are.
        """
        codec = self.codec
        key, value = self._key_and_value()
        if not codec:
            yield Record(self.last_offset, self.timestamp_ms, key, value)
            return
        if value is None:
            raise InvalidRecord("a wrapper holds nothing")
        data = decompress(codec, value, max_bytes=max_bytes, magic=self.magic)
        inner = list(self._inner_messages(data))
        if not inner:
            raise InvalidRecord("a wrapper holds no message")
        shift = self.last_offset - inner[-1].last_offset if self.magic == 1 else 0
        if self.last_offset < 0 or inner[0].last_offset + shift < 0:
            raise InvalidRecord(f"a wrapper at {self.last_offset} begins below 0")
        takes_wrapper_time = self.timestamp_type is TimestampType.LOG_APPEND_TIME
        for message in inner:
            key, value = message._key_and_value()
            timestamp_ms = self.timestamp_ms if takes_wrapper_time else message.timestamp_ms
            yield Record(message.last_offset + shift, timestamp_ms, key, value)

    def _inner_messages(self, data: bytes) -> Iterator[LegacyBatch]:
        position = 0
        while position < len(data):
            message = LegacyBatch(data, position)
            if message.magic != self.magic or message.is_compressed:
                raise InvalidRecord("a wrapper holds a message of another magic or a wrapper")
            if not message.is_valid:
                raise CorruptRecord("a message in a wrapper has a wrong CRC")
            position += message.size
            yield message

    def _key_and_value(self) -> tuple[bytes | None, bytes | None]:
        header = _HEADER_V1 if self.magic == 1 else _HEADER_V0
        end = self.position + self.size
        key, position = self._nullable(self.position + header.size, end)
        value, position = self._nullable(position, end)
        if position != end:
            raise InvalidRecord("a message is longer than its key and value")
        return key, value

    def _nullable(self, position: int, end: int) -> tuple[bytes | None, int]:
        start = position + _INT32.size
        if start > end:
            raise InvalidRecord("a message ends within a length")
        (length,) = _INT32.unpack_from(self.buffer, position)
        if length == -1:
            return None, start
        if not 0 <= length <= end - start:
            raise InvalidRecord(f"a key or value claims {length} bytes")
        return bytes(self.buffer[start : start + length]), start + length


def build_message(
    record: Record,
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytearray:
    """One message; with a `codec` the record's value is taken to be compressed by it already."""
    attributes = int(codec)
    body = bytearray()
    for part in (record.key, record.value):
        body += _INT32.pack(-1 if part is None else len(part))
        body += part or b""
    length = RECORD_OVERHEAD[magic] + len(record.key or b"") + len(record.value or b"")
    if magic == 0:
        header = _HEADER_V0.pack(record.offset, length, 0, magic, attributes)
    else:
        if timestamp_type is TimestampType.LOG_APPEND_TIME:
            attributes |= LOG_APPEND_TIME
        header = _HEADER_V1.pack(record.offset, length, 0, magic, attributes, record.timestamp_ms)
    message = bytearray(header) + body
    _CRC.pack_into(message, _CRC_AT, crc32(memoryview(message)[_CRC_START:]))
    return message


def build_message_set(
    records: Sequence[Record],
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """A run of messages, or the wrapper that holds them, as a broker would have stored it."""
    timestamp_type = (
        TimestampType.CREATE_TIME if log_append_time_ms is None else TimestampType.LOG_APPEND_TIME
    )
    inner = bytearray()
    for index, record in enumerate(records):
        if codec and magic == 1:
            record = record._replace(offset=index)
        elif not codec and log_append_time_ms is not None:
            record = record._replace(timestamp_ms=log_append_time_ms)
        inner_type = TimestampType.CREATE_TIME if codec else timestamp_type
        inner += build_message(record, magic=magic, timestamp_type=inner_type)
    if not codec:
        return inner
    if log_append_time_ms is None:
        timestamp_ms = max(record.timestamp_ms for record in records)
    else:
        timestamp_ms = log_append_time_ms
    wrapper = Record(records[-1].offset, timestamp_ms, None, compress(codec, inner, magic=magic))
    return build_message(wrapper, magic=magic, codec=codec, timestamp_type=timestamp_type)
