"""The v2 batch: header view, patches, builder, reader, walker."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import CODECS, KAFKA, LIMIT_BYTES, NOW_MS, RECORDS, SIX_RECORDS, sample_batch

from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.batch import HEADER_SIZE, RecordBatch, TimestampType, crc32c
from kraftpy.records.builder import BatchBuilder, build_batch, empty_copy, recompress
from kraftpy.records.compression import Codec
from kraftpy.records.errors import CorruptRecord, InvalidRecord, UnsupportedCompression
from kraftpy.records.reader import Record, read_records
from kraftpy.records.varint import append_varint
from kraftpy.records.walker import batch_at, records_of, walk_batches
from kraftpy.world import InternalInvariant


def read(batch: RecordBatch) -> list[Record]:
    return list(read_records(batch, max_bytes=LIMIT_BYTES))


def batch_of(body: bytes, count: int) -> RecordBatch:
    """A batch with a right header and CRC around any body."""
    buffer = bytearray(sample_batch().data[:HEADER_SIZE]) + body
    struct.pack_into(">i", buffer, 8, len(buffer) - 12)
    struct.pack_into(">i", buffer, 57, count)
    struct.pack_into(">I", buffer, 17, crc32c(memoryview(buffer)[21:]))
    return RecordBatch(buffer)


class TestHeader:
    def test_sample(self) -> None:
        """LOG-15, LOG-16, LOG-19: the six-record sample."""
        batch = RecordBatch(SIX_RECORDS)
        assert batch.size == len(SIX_RECORDS) == 156
        assert batch.crc == 0x073FBB9A
        assert batch.is_valid
        assert (batch.base_offset, batch.last_offset, batch.next_offset) == (0, 5, 6)
        assert (batch.leader_epoch, batch.magic, batch.attributes) == (0, 2, 0)
        assert batch.base_timestamp_ms == 1526384708812
        assert batch.max_timestamp_ms == 1526384709243
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
        assert batch.records_count == 6
        assert not batch.has_producer_id
        assert batch.last_sequence == -1
        records = read(batch)
        assert [record.offset for record in records] == [0, 1, 2, 3, 4, 5]
        deltas = [record.timestamp_ms - batch.base_timestamp_ms for record in records]
        assert deltas == [0, 426, 428, 429, 430, 431]
        assert all(record.key == b"key" and record.value == b"value" for record in records)

    def test_every_field_has_its_place(self) -> None:
        """LOG-15: each field is read from the position that the format gives it."""
        data = struct.pack(">qiibIhiqqqhii", 1, 49, 3, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13)
        assert len(data) == 61
        batch = RecordBatch(b"..." + data, 3)
        assert batch.base_offset == int.from_bytes(data[0:8], "big") == 1
        assert batch.size == int.from_bytes(data[8:12], "big") + 12 == 61
        assert batch.leader_epoch == int.from_bytes(data[12:16], "big") == 3
        assert batch.magic == data[16] == 2
        assert batch.crc == int.from_bytes(data[17:21], "big") == 5
        assert batch.attributes == int.from_bytes(data[21:23], "big") == 6
        assert batch.last_offset_delta == int.from_bytes(data[23:27], "big") == 7
        assert batch.base_timestamp_ms == int.from_bytes(data[27:35], "big") == 8
        assert batch.max_timestamp_ms == int.from_bytes(data[35:43], "big") == 9
        assert batch.producer_id == int.from_bytes(data[43:51], "big") == 10
        assert batch.producer_epoch == int.from_bytes(data[51:53], "big") == 11
        assert batch.base_sequence == int.from_bytes(data[53:57], "big") == 12
        assert batch.records_count == int.from_bytes(data[57:61], "big") == 13
        assert batch.data == data

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("is_transactional", [False, True])
    @pytest.mark.parametrize("is_control", [False, True])
    @pytest.mark.parametrize("log_append_time_ms", [None, 7])
    @pytest.mark.parametrize("delete_horizon_ms", [None, 9])
    def test_attribute_bits(
        self,
        codec: Codec,
        is_transactional: bool,
        is_control: bool,
        log_append_time_ms: int | None,
        delete_horizon_ms: int | None,
    ) -> None:
        """LOG-18."""
        builder = BatchBuilder(
            codec=codec,
            is_transactional=is_transactional,
            is_control=is_control,
            log_append_time_ms=log_append_time_ms,
            delete_horizon_ms=delete_horizon_ms,
        )
        builder.append(b"k", b"v", timestamp_ms=5)
        batch = RecordBatch(builder.build())
        expected = (
            codec
            | (log_append_time_ms is not None) << 3
            | is_transactional << 4
            | is_control << 5
            | (delete_horizon_ms is not None) << 6
        )
        assert batch.attributes == expected
        assert batch.codec is codec
        assert batch.is_compressed == (codec is not Codec.NONE)
        assert batch.is_transactional == is_transactional
        assert batch.is_control == is_control
        assert batch.timestamp_type == (log_append_time_ms is not None)
        assert batch.delete_horizon_ms == delete_horizon_ms
        (record,) = read(batch)
        assert record.timestamp_ms == (5 if log_append_time_ms is None else 7)

    @pytest.mark.parametrize("codec_id", [5, 6, 7])
    def test_unknown_codec(self, codec_id: int) -> None:
        batch = sample_batch()
        batch.attributes |= codec_id
        with pytest.raises(UnsupportedCompression) as caught:
            read(batch)
        assert caught.value.error_code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    def test_last_sequence_wraps(self) -> None:
        builder = BatchBuilder(producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
        batch = RecordBatch(build_batch(RECORDS, builder))
        assert batch.last_sequence == 1

    @pytest.mark.parametrize("size", [0, 11, 60])
    def test_a_short_buffer_is_corrupt(self, size: int) -> None:
        with pytest.raises(CorruptRecord):
            RecordBatch(SIX_RECORDS[:size])

    @pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 145, 2**31 - 1])
    def test_a_length_beyond_header_or_buffer_is_corrupt(self, length: int) -> None:
        data = bytearray(SIX_RECORDS)
        struct.pack_into(">i", data, 8, length)
        with pytest.raises(CorruptRecord) as caught:
            RecordBatch(data)
        assert caught.value.error_code is ErrorCode.CORRUPT_MESSAGE


class TestPatches:
    def test_offset_and_epoch_leave_the_crc_alone(self) -> None:
        """LOG-17, at a position inside of a larger buffer."""
        data = bytearray(b"##" + SIX_RECORDS + b"##")
        batch = RecordBatch(data, 2)
        batch.stamp(123456789012, 42)
        again = RecordBatch(data, 2)
        assert (again.base_offset, again.leader_epoch) == (123456789012, 42)
        assert (batch.base_offset, batch.leader_epoch) == (123456789012, 42)
        assert again.crc == 0x073FBB9A
        assert again.is_valid
        assert again.last_offset == 123456789017
        assert data[:2] == data[-2:] == b"##"
        assert data[2 + 16 : -2] == SIX_RECORDS[16:]

    def test_log_append_time_renews_the_crc(self) -> None:
        """LOG-81: every record shows the broker's time."""
        data = bytearray(b"##" + SIX_RECORDS + b"##")
        batch = RecordBatch(data, 2)
        batch.set_timestamp(TimestampType.LOG_APPEND_TIME, NOW_MS)
        again = RecordBatch(data, 2)
        assert again.is_valid
        assert again.crc == batch.crc != 0x073FBB9A
        assert again.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert {record.timestamp_ms for record in read(again)} == {NOW_MS}
        assert data[:2] == data[-2:] == b"##"
        batch.set_timestamp(TimestampType.CREATE_TIME, 1526384709243)
        assert data[2:-2] == SIX_RECORDS

    def test_same_timestamp_writes_nothing(self) -> None:
        batch = RecordBatch(SIX_RECORDS)  # Read-only: a write would raise.
        batch.set_timestamp(TimestampType.CREATE_TIME, 1526384709243)


class TestBuilder:
    @pytest.mark.parametrize(
        ("key", "value", "size"), [(b"key", b"value", 76), (None, b"value", 73)]
    )
    def test_sizes_of_one_record(self, key: bytes | None, value: bytes, size: int) -> None:
        """LOG-19."""
        builder = BatchBuilder()
        builder.append(key, value, timestamp_ms=NOW_MS)
        assert len(builder.build()) == builder.size == size

    def test_size_of_ten_records(self) -> None:
        """LOG-19."""
        builder = BatchBuilder()
        for index in range(10):
            builder.append(None, b"%06d" % index, timestamp_ms=NOW_MS)
        assert builder.count == 10
        assert len(builder.build()) == 191

    def test_six_record_sample(self) -> None:
        """LOG-19: the sample's bytes, written by us."""
        builder = BatchBuilder(leader_epoch=0)
        for delta in (0, 426, 428, 429, 430, 431):
            builder.append(b"key", b"value", timestamp_ms=1526384708812 + delta)
        assert builder.build() == SIX_RECORDS

    @pytest.mark.parametrize("codec", CODECS)
    def test_compressed_body_is_one_block(self, codec: Codec) -> None:
        """LOG-20: the header is never compressed, and all records are, together."""
        plain = sample_batch()
        batch = sample_batch(codec)
        assert batch.is_valid
        assert batch.attributes == codec
        assert batch.data[23:61] == plain.data[23:61]
        assert (batch.size < plain.size) == (codec is not Codec.NONE)
        assert read(batch) == list(RECORDS)

    @pytest.mark.parametrize("source", CODECS)
    @pytest.mark.parametrize("target", CODECS)
    def test_recompression_keeps_all_but_the_codec(self, source: Codec, target: Codec) -> None:
        """LOG-22."""
        builder = BatchBuilder(
            codec=source, producer_id=5, producer_epoch=6, base_sequence=7, is_transactional=True
        )
        batch = RecordBatch(build_batch(RECORDS, builder))
        batch.stamp(1000, 3)
        result = recompress(batch, target, max_bytes=LIMIT_BYTES)
        assert result.is_valid
        assert result.codec is target
        assert result.is_transactional
        assert result.data[23:61] == batch.data[23:61]
        assert (result.base_offset, result.leader_epoch) == (1000, 3)
        assert read(result) == read(batch)

    def test_offsets_must_grow(self) -> None:
        builder = BatchBuilder(base_offset=5)
        with pytest.raises(InternalInvariant):
            builder.append(None, None, timestamp_ms=0, offset=4)
        builder.append(None, None, timestamp_ms=0, offset=5 + 2**31 - 1)
        with pytest.raises(InternalInvariant):
            builder.append(None, None, timestamp_ms=0)

    def test_an_empty_batch_is_not_built(self) -> None:
        with pytest.raises(InternalInvariant):
            BatchBuilder().build()


class TestKafkasBytes:
    """Batches of Kafka 4.3.1, written anew by us: the same bytes, where no codec has its say."""

    def test_plain(self) -> None:
        builder = BatchBuilder(base_offset=7, leader_epoch=5)
        records = read(RecordBatch(KAFKA["v2_none"]))
        assert len(records) == 3
        assert build_batch(records, builder) == KAFKA["v2_none"]

    def test_transactional(self) -> None:
        builder = BatchBuilder(
            base_offset=40,
            leader_epoch=9,
            producer_id=77,
            producer_epoch=3,
            base_sequence=12,
            is_transactional=True,
        )
        builder.append(b"k", b"v", timestamp_ms=NOW_MS)
        assert builder.build() == KAFKA["transactional"]

    def test_log_append_time(self) -> None:
        builder = BatchBuilder(base_offset=5, leader_epoch=2, log_append_time_ms=1700000009999)
        builder.append(b"k", b"v", timestamp_ms=1)
        builder.append(b"k", b"v", timestamp_ms=2)
        assert builder.build() == KAFKA["log_append_time"]

    def test_delete_horizon_and_gaps(self) -> None:
        builder = BatchBuilder(base_offset=5, leader_epoch=2, delete_horizon_ms=NOW_MS + 5000)
        builder.append(b"k", None, timestamp_ms=NOW_MS, offset=6)
        builder.append(b"k2", b"v", timestamp_ms=NOW_MS + 7, offset=9)
        assert builder.build(last_offset=12) == KAFKA["delete_horizon"]
        assert RecordBatch(KAFKA["delete_horizon"]).delete_horizon_ms == NOW_MS + 5000

    def test_empty(self) -> None:
        builder = BatchBuilder(
            base_offset=20,
            codec=Codec.GZIP,
            leader_epoch=4,
            producer_id=77,
            producer_epoch=3,
            base_sequence=15,
            is_transactional=True,
            delete_horizon_ms=4,
        )
        builder.append(b"k", b"v", timestamp_ms=NOW_MS)
        full = RecordBatch(builder.build(last_offset=24))
        assert empty_copy(full) == KAFKA["empty"]
        assert read(RecordBatch(KAFKA["empty"])) == []

    @pytest.mark.parametrize("codec", CODECS[1:])
    def test_compressed(self, codec: Codec) -> None:
        """LOG-20: Kafka's compressed batch holds, inflated, what ours does."""
        batch = RecordBatch(KAFKA[f"v2_{codec.name.lower()}"])
        assert batch.is_valid
        records = read(batch)
        assert [record.key for record in records] == [b"key", None, b"tombstone", b"long"]
        assert records[1].headers == (("trace", b"1"), ("ü", None))
        assert records[3].value == b"x" * 70000
        ours = RecordBatch(build_batch(records, BatchBuilder(base_offset=100)))
        assert recompress(batch, Codec.NONE, max_bytes=LIMIT_BYTES).data == ours.data


def record_bytes(
    *,
    length: int | None = None,
    offset_delta: int = 0,
    key_length: int = 1,
    value_length: int = 1,
    headers: bytes = b"\x00",
) -> bytes:
    body = bytearray(b"\x00\x00")
    append_varint(body, offset_delta)
    append_varint(body, key_length)
    body += b"k"
    append_varint(body, value_length)
    body += b"v" + headers
    prefix = bytearray()
    append_varint(prefix, len(body) if length is None else length)
    return bytes(prefix + body)


class TestLies:
    """A batch whose CRC is right and whose content is not."""

    def test_the_honest_one(self) -> None:
        assert read(batch_of(record_bytes(), 1)) == [Record(0, NOW_MS, b"k", b"v")]

    @pytest.mark.parametrize(
        ("body", "count"),
        [
            (record_bytes(), 2),
            (record_bytes(), 2**31 - 1),
            (record_bytes(), 0),
            (record_bytes(), -1),
            (record_bytes() + b"\x00", 1),
            (b"", 1),
            (b"", -1),
            (b"\x0c\x00\x00\x00\x03\x01\x00", 1),  # a key of length -2
            (b"\x0c\x00\x00\x00\x01\x03\x00", 1),  # a value of length -2
            (record_bytes(length=7), 1),
            (record_bytes(length=9), 1),
            (record_bytes(length=0), 1),
            (record_bytes(length=-1), 1),
            (record_bytes(length=-(2**31)), 1),
            (record_bytes(length=2**31 - 1), 1),
            (record_bytes(key_length=-2), 1),
            (record_bytes(key_length=-(2**31)), 1),
            (record_bytes(key_length=2), 1),
            (record_bytes(key_length=2**31 - 1), 1),
            (record_bytes(value_length=-2), 1),
            (record_bytes(value_length=2**31 - 1), 1),
            (record_bytes(headers=b"\x01"), 1),  # -1 headers
            (record_bytes(headers=b"\x02"), 1),  # one header, no room for it
            (record_bytes(headers=b"\xfe\xff\xff\xff\x0f"), 1),
            (record_bytes(headers=b"\x02\x01\x01"), 1),  # a header without a key
            (record_bytes(headers=b"\x02\x7e\x01"), 1),  # a header's key beyond the record
            (record_bytes(headers=b"\x80\x80\x80\x80\x80\x00"), 1),
        ],
    )
    def test_lie(self, body: bytes, count: int) -> None:
        with pytest.raises(InvalidRecord) as caught:
            read(batch_of(body, count))
        assert caught.value.error_code is ErrorCode.INVALID_RECORD

    def test_what_came_before_the_lie_was_read(self) -> None:
        records = read_records(batch_of(record_bytes() + b"\x55", 2), max_bytes=LIMIT_BYTES)
        assert next(records) == Record(0, NOW_MS, b"k", b"v")
        with pytest.raises(InvalidRecord):
            next(records)

    def test_a_header_key_that_is_not_utf8_survives(self) -> None:
        batch = batch_of(record_bytes(headers=b"\x02\x02\xff\x01"), 1)
        records = read(batch)
        assert records[0].headers == (("\udcff", None),)
        assert RecordBatch(build_batch(records, BatchBuilder())).body == batch.body


class TestOverflow:
    """Numbers that leave 64 bits wrap as they do in Java, where nobody notices."""

    @pytest.mark.parametrize(
        ("first_ms", "second_ms"),
        [(2**63 - 1, -(2**63)), (-(2**63), 2**63 - 1), (-1, 2**63 - 1), (2**63 - 1, -2)],
    )
    def test_timestamps(self, first_ms: int, second_ms: int) -> None:
        records = [Record(0, first_ms, None, None), Record(1, second_ms, None, None)]
        batch = RecordBatch(build_batch(records, BatchBuilder()))
        assert read(batch) == records

    def test_a_timestamp_beyond_the_last(self) -> None:
        batch = sample_batch()
        batch.base_timestamp_ms = 2**63 - 1
        timestamps = [record.timestamp_ms for record in read(batch)]
        assert timestamps == [2**63 - 1, -(2**63) + 499, 2**63 - 2, -(2**63) + 99]

    @pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 2**31, 2**63 - 1])
    def test_offsets(self, base_offset: int) -> None:
        batch = sample_batch()
        batch.stamp(base_offset, 0)
        with pytest.raises(InvalidRecord):
            read(batch)
        batch.stamp(2**63 - 2**31 - 1, 0)
        assert read(batch)[-1].offset == 2**63 - 2**31 + 2


class TestWalker:
    RUN = SIX_RECORDS + KAFKA["v1_none"] + KAFKA["v0_gzip"] + KAFKA["v2_zstd"]

    def test_a_run_of_all_formats(self) -> None:
        batches = list(walk_batches(self.RUN))
        assert [batch.magic for batch in batches] == [2, 1, 1, 1, 0, 2]
        assert sum(batch.size for batch in batches) == len(self.RUN)
        assert all(batch.is_valid for batch in batches)
        counts = [len(list(records_of(batch, max_bytes=LIMIT_BYTES))) for batch in batches]
        assert counts == [6, 1, 1, 1, 4, 4]

    def test_a_cut_run_ends_before_the_cut_batch(self) -> None:
        ends = []
        position = 0
        for batch in walk_batches(self.RUN):
            position += batch.size
            ends.append(position)
        for cut in range(len(self.RUN)):
            whole = sum(1 for end in ends if end <= cut)
            assert sum(1 for _ in walk_batches(self.RUN[:cut])) == whole

    def test_empty(self) -> None:
        assert batch_at(b"") is None

    @pytest.mark.parametrize(
        ("magic", "length"),
        [(2, 48), (1, 21), (0, 13), (0, -1), (2, -(2**31)), (3, 100), (-1, 100), (127, 1000)],
    )
    def test_damage_is_an_error(self, magic: int, length: int) -> None:
        data = bytearray(200)
        struct.pack_into(">qiib", data, 0, 0, length, 0, magic)
        with pytest.raises(CorruptRecord):
            batch_at(data)


nullable = st.none() | st.binary(max_size=100)
record_parts = st.tuples(
    st.integers(0, 1000),
    st.integers(-(2**40), 2**40),
    nullable,
    nullable,
    st.lists(st.tuples(st.text(max_size=20), nullable), max_size=3).map(tuple),
)


@given(st.lists(record_parts, min_size=1, max_size=20), st.sampled_from(CODECS))
def test_round_trip(parts: list[tuple[int, int, bytes, bytes, tuple]], codec: Codec) -> None:  # type: ignore[type-arg]
    """LOG-19: any records, any gaps between offsets, any codec."""
    offset = 99
    records = []
    for gap, timestamp_ms, key, value, headers in parts:
        offset += gap + 1
        records.append(Record(offset, timestamp_ms, key, value, headers))
    batch = RecordBatch(build_batch(records, BatchBuilder(base_offset=100, codec=codec)))
    assert batch.is_valid
    assert batch.records_count == len(records)
    assert batch.last_offset == offset
    assert batch.max_timestamp_ms == max(-1, *(record.timestamp_ms for record in records))
    assert read(batch) == records
