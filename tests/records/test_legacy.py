"""Messages of magic 0 and 1."""

from __future__ import annotations

import struct
import zlib

import pytest
from record_samples import KAFKA, LEGACY_CODECS, LEGACY_RECORDS, LIMIT_BYTES, NOW_MS

from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.batch import TimestampType
from kraftpy.records.compression import Codec, compress
from kraftpy.records.errors import (
    CorruptRecord,
    InvalidRecord,
    RecordTooLarge,
    UnsupportedCompression,
)
from kraftpy.records.legacy import LegacyBatch, build_message, build_message_set
from kraftpy.records.reader import Record
from kraftpy.records.walker import records_of, walk_batches


def read(data: bytes | bytearray) -> list[Record]:
    return [
        record
        for batch in walk_batches(data)
        for record in records_of(batch, max_bytes=LIMIT_BYTES)
    ]


def wrap(inner: bytes, *, magic: int = 1, codec: Codec = Codec.GZIP) -> bytearray:
    value = compress(codec, inner, magic=magic)
    return build_message(Record(1030, NOW_MS, None, value), magic=magic, codec=codec)


def test_message_of_magic_0() -> None:
    """LOG-9: size and CRC of the known message."""
    message = build_message(Record(5, NOW_MS, b"key", b"value"), magic=0)
    assert len(message) == 34
    batch = LegacyBatch(message)
    assert batch.crc == 592888119
    assert batch.is_valid
    assert (batch.last_offset, batch.next_offset, batch.size, batch.magic) == (5, 6, 34, 0)
    assert batch.max_timestamp_ms == -1
    assert read(message) == [Record(5, -1, b"key", b"value")]
    assert len(build_message(Record(5, NOW_MS, None, b"value"), magic=0)) == 31


def test_message_of_magic_1() -> None:
    """LOG-11: size, timestamp and the bit of its type."""
    message = build_message(Record(5, NOW_MS, b"key", b"value"), magic=1)
    assert len(message) == 42
    batch = LegacyBatch(message)
    assert batch.is_valid
    assert batch.attributes == 0
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert read(message) == [Record(5, NOW_MS, b"key", b"value")]
    stamped = build_message(
        Record(5, NOW_MS, None, None), magic=1, timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    assert LegacyBatch(stamped).attributes == 8
    assert LegacyBatch(stamped).timestamp_type is TimestampType.LOG_APPEND_TIME


def test_ten_messages() -> None:
    """spec/log.md 3.8: what ten small records take in the old formats."""
    records = [Record(index, NOW_MS, None, b"%06d" % index) for index in range(10)]
    assert len(build_message_set(records, magic=0)) == 320
    assert len(build_message_set(records, magic=1)) == 400


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_below_the_least_size(magic: int) -> None:
    """LOG-10: 14 bytes with magic 0, 22 with magic 1, are the least."""
    message = build_message(Record(0, NOW_MS, None, None), magic=magic)
    least = len(message) - 12
    assert least == (14, 22)[magic]
    assert read(message) == [Record(0, NOW_MS if magic else -1, None, None)]
    struct.pack_into(">i", message, 8, least - 1)
    for reader in (LegacyBatch, read):
        with pytest.raises(CorruptRecord) as caught:
            reader(message)
        assert caught.value.error_code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_round_trip(magic: int, codec: Codec) -> None:
    records = [
        record._replace(offset=100 + 3 * index if magic == 0 else 100 + index)
        for index, record in enumerate(LEGACY_RECORDS)
    ]
    data = build_message_set(records, magic=magic, codec=codec)
    assert all(batch.is_valid for batch in walk_batches(data))
    if magic == 0:
        records = [record._replace(timestamp_ms=-1) for record in records]
    assert read(data) == records


@pytest.mark.parametrize("magic", [0, 1])
def test_kafkas_plain_bytes(magic: int) -> None:
    """LOG-9, LOG-11: what Kafka writes, written by us."""
    records = [
        Record(7, NOW_MS, b"key", b"value"),
        Record(8, NOW_MS + 1, None, b"v2"),
        Record(9, NOW_MS - 1, b"k3", None),
    ]
    assert build_message_set(records, magic=magic) == KAFKA[f"v{magic}_none"]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", LEGACY_CODECS[1:])
def test_kafkas_wrappers(magic: int, codec: Codec) -> None:
    """LOG-12: Kafka's wrappers of every codec, with magic 0 its lz4 mistake included."""
    (batch,) = walk_batches(KAFKA[f"v{magic}_{codec.name.lower()}"])
    assert isinstance(batch, LegacyBatch)
    assert batch.is_valid
    assert batch.codec is codec
    assert batch.last_offset == 103
    records = list(batch.records(max_bytes=LIMIT_BYTES))
    assert [record.offset for record in records] == [100, 101, 102, 103]
    assert [record.key for record in records] == [b"key", None, b"tombstone", b"long"]
    assert records[3].value == b"x" * 70000
    times = [NOW_MS, NOW_MS + 500, NOW_MS - 1, NOW_MS + 100] if magic else [-1] * 4
    assert [record.timestamp_ms for record in records] == times
    assert batch.max_timestamp_ms == (NOW_MS + 500 if magic else -1)


class TestWrapper:
    def test_relative_offsets(self) -> None:
        """LOG-12: six inner messages 0 to 5 in a wrapper at 1030 are 1025 to 1030."""
        inner = build_message_set([Record(index, NOW_MS, None, b"") for index in range(6)], magic=1)
        records = read(wrap(inner))
        assert [record.offset for record in records] == [1025, 1026, 1027, 1028, 1029, 1030]

    def test_relative_offsets_with_gaps(self) -> None:
        """LOG-12: the last one counts, also after compaction."""
        inner = build_message_set(
            [Record(offset, NOW_MS, None, b"") for offset in (0, 3, 5)], magic=1
        )
        assert [record.offset for record in read(wrap(inner))] == [1025, 1028, 1030]

    def test_absolute_offsets_of_magic_0(self) -> None:
        inner = build_message_set(
            [Record(offset, NOW_MS, None, b"") for offset in (1020, 1025)], magic=0
        )
        assert [record.offset for record in read(wrap(inner, magic=0))] == [1020, 1025]

    def test_null_key_and_largest_timestamp(self) -> None:
        """LOG-12."""
        data = build_message_set(LEGACY_RECORDS, magic=1, codec=Codec.GZIP)
        batch = LegacyBatch(data)
        assert data[26:30] == b"\xff\xff\xff\xff"
        assert batch.timestamp_ms == NOW_MS + 500
        assert batch.last_offset == LEGACY_RECORDS[-1].offset

    def test_log_append_time_covers_inner_timestamps(self) -> None:
        """LOG-12: the type is set on the wrapper alone."""
        data = build_message_set(LEGACY_RECORDS, magic=1, codec=Codec.LZ4, log_append_time_ms=9)
        assert LegacyBatch(data).timestamp_type is TimestampType.LOG_APPEND_TIME
        assert {record.timestamp_ms for record in read(data)} == {9}
        plain = build_message_set(LEGACY_RECORDS, magic=1, log_append_time_ms=9)
        assert {record.timestamp_ms for record in read(plain)} == {9}

    def test_limit(self) -> None:
        data = build_message_set(LEGACY_RECORDS, magic=1, codec=Codec.GZIP)
        inner_size = len(build_message_set(LEGACY_RECORDS, magic=1))
        assert list(LegacyBatch(data).records(max_bytes=inner_size))
        with pytest.raises(RecordTooLarge):
            list(LegacyBatch(data).records(max_bytes=inner_size - 1))

    def test_empty(self) -> None:
        with pytest.raises(InvalidRecord, match="no message"):
            read(wrap(b""))

    def test_that_begins_below_0(self) -> None:
        inner = build_message_set([Record(0, 0, None, b""), Record(1031, 0, None, b"")], magic=1)
        with pytest.raises(InvalidRecord, match="below 0"):
            read(wrap(inner))

    def test_without_value(self) -> None:
        with pytest.raises(InvalidRecord, match="nothing"):
            read(build_message(Record(0, 0, None, None), magic=1, codec=Codec.GZIP))

    def test_within_a_wrapper(self) -> None:
        with pytest.raises(InvalidRecord, match="wrapper"):
            read(wrap(wrap(build_message(LEGACY_RECORDS[0], magic=1))))

    def test_with_another_magic_inside(self) -> None:
        with pytest.raises(InvalidRecord, match="another magic"):
            read(wrap(build_message(LEGACY_RECORDS[0], magic=0)))

    def test_with_a_v2_batch_inside(self) -> None:
        with pytest.raises(CorruptRecord):
            read(wrap(KAFKA["v2_none"]))

    def test_with_a_damaged_message_inside(self) -> None:
        inner = build_message(LEGACY_RECORDS[0], magic=1)
        inner[-1] ^= 1
        with pytest.raises(CorruptRecord, match="CRC"):
            read(wrap(inner))

    def test_cut_inside(self) -> None:
        inner = build_message_set(LEGACY_RECORDS, magic=1)
        for cut in range(1, 40):
            with pytest.raises((CorruptRecord, InvalidRecord)):
                read(wrap(inner[:-cut]))


@pytest.mark.parametrize("codec_id", [4, 5, 6, 7])
def test_codecs_that_came_later(codec_id: int) -> None:
    message = build_message(LEGACY_RECORDS[0], magic=1)
    message[17] = codec_id
    with pytest.raises(UnsupportedCompression):
        read(message)


@pytest.mark.parametrize("magic", [-1, 2, 3])
def test_other_magic(magic: int) -> None:
    message = build_message(LEGACY_RECORDS[0], magic=0)
    struct.pack_into(">b", message, 16, magic)
    with pytest.raises(CorruptRecord):
        LegacyBatch(message)


@pytest.mark.parametrize(("position", "length"), [(26, -2), (26, 4), (26, 2**31 - 1), (33, 4)])
def test_lengths_that_lie(position: int, length: int) -> None:
    message = build_message(Record(0, 0, b"key", b"value"), magic=1)
    struct.pack_into(">i", message, position, length)
    struct.pack_into(">I", message, 12, zlib.crc32(message[16:]))
    assert LegacyBatch(message).is_valid
    with pytest.raises(InvalidRecord):
        read(message)
