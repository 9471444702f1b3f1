"""What a leader refuses, in which order, and what it changes."""

from __future__ import annotations

import dataclasses
import struct

import pytest
from record_samples import (
    CODECS,
    KAFKA,
    LIMIT_BYTES,
    NOW_MS,
    RECORDS,
    SIX_RECORDS,
    sample_batch,
)

from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.batch import RecordBatch, TimestampType, crc32c
from kraftpy.records.builder import BatchBuilder, build_batch
from kraftpy.records.compression import Codec
from kraftpy.records.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RecordDataError,
    RecordTooLarge,
    UnsupportedCompression,
)
from kraftpy.records.reader import Record, read_records
from kraftpy.records.validation import (
    AppendOrigin,
    TopicRules,
    check_batch,
    prepare_batch,
    single_batch,
)

CLIENT = AppendOrigin.CLIENT
RULES = TopicRules(max_message_bytes=LIMIT_BYTES, max_inflated_bytes=LIMIT_BYTES)
FULL = dataclasses.replace(RULES, validates_fully=True)


def altered(batch: RecordBatch, position: int, form: str, value: int) -> RecordBatch:
    """`batch` with one header field changed, and its CRC made right."""
    data = bytearray(batch.data)
    struct.pack_into(form, data, position, value)
    if position != 17:
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return RecordBatch(data)


def check(batch: RecordBatch, origin: AppendOrigin = CLIENT, limit: int = LIMIT_BYTES) -> None:
    check_batch(batch, origin=origin, max_message_bytes=limit)


def prepare(batch: RecordBatch, rules: TopicRules, origin: AppendOrigin = CLIENT) -> RecordBatch:
    return prepare_batch(batch, rules, origin=origin, now_ms=NOW_MS)


def records_of(batch: RecordBatch) -> list[Record]:
    return list(read_records(batch, max_bytes=LIMIT_BYTES))


class TestSingleBatch:
    """NET 17.5: exactly one batch of magic 2 for each partition."""

    def test_good(self) -> None:
        batch = single_batch(SIX_RECORDS, produce_version=3)
        assert batch.size == len(SIX_RECORDS)

    @pytest.mark.parametrize(
        "data",
        [
            None,
            b"",
            SIX_RECORDS[:-1],
            SIX_RECORDS + SIX_RECORDS,
            SIX_RECORDS + KAFKA["v0_none"],
            KAFKA["v0_gzip"],
            KAFKA["v1_gzip"],
        ],
    )
    def test_none_or_more_or_older(self, data: bytes | None) -> None:
        with pytest.raises(InvalidRecord) as caught:
            single_batch(data, produce_version=13)
        assert caught.value.error_code is ErrorCode.INVALID_RECORD

    def test_an_incomplete_second_batch_is_passed_over(self) -> None:
        data = SIX_RECORDS + SIX_RECORDS[:-1]
        assert single_batch(data, produce_version=13).size == len(SIX_RECORDS)

    def test_damage(self) -> None:
        data = bytearray(SIX_RECORDS)
        data[16] = 3
        with pytest.raises(CorruptRecord):
            single_batch(data, produce_version=13)

    def test_zstd_since_version_7(self) -> None:
        data = sample_batch(Codec.ZSTD).data
        assert single_batch(data, produce_version=7).codec is Codec.ZSTD
        with pytest.raises(UnsupportedCompression) as caught:
            single_batch(data, produce_version=6)
        assert caught.value.error_code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert single_batch(sample_batch(Codec.LZ4).data, produce_version=6).codec is Codec.LZ4


class TestHeader:
    @pytest.mark.parametrize("codec", CODECS)
    def test_good(self, codec: Codec) -> None:
        for origin in AppendOrigin:
            check(sample_batch(codec), origin)

    def test_client_base_offset(self) -> None:
        """LOG-76: clients count from 0; everyone else has offsets."""
        batch = altered(sample_batch(), 0, ">q", 1)
        with pytest.raises(InvalidRecord):
            check(batch)
        for origin in (AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION):
            check(batch, origin)

    def test_size(self) -> None:
        """LOG-77: the limit itself passes, one byte less doesn't."""
        batch = sample_batch()
        check(batch, limit=batch.size)
        with pytest.raises(RecordTooLarge) as caught:
            check(batch, limit=batch.size - 1)
        assert caught.value.error_code is ErrorCode.MESSAGE_TOO_LARGE

    def test_crc(self) -> None:
        """LOG-78: for every origin."""
        batch = altered(sample_batch(), 17, ">I", sample_batch().crc ^ 1)
        for origin in AppendOrigin:
            with pytest.raises(CorruptRecord) as caught:
                check(batch, origin)
            assert caught.value.error_code is ErrorCode.CORRUPT_MESSAGE

    def test_magic(self) -> None:
        """LOG-78: although the CRC doesn't cover it."""
        with pytest.raises(CorruptRecord):
            check(altered(sample_batch(), 16, ">b", 1))

    @pytest.mark.parametrize("codec_id", [5, 6, 7])
    def test_unknown_codec(self, codec_id: int) -> None:
        with pytest.raises(UnsupportedCompression):
            check(altered(sample_batch(), 21, ">h", codec_id))

    @pytest.mark.parametrize("delta", [-(2**31), -1, 2, 4, 2**31 - 1])
    def test_last_offset_delta(self, delta: int) -> None:
        batch = altered(sample_batch(), 23, ">i", delta)
        with pytest.raises(InvalidRecord):
            check(batch)
        check(batch, AppendOrigin.REPLICATION)  # The cleaner leaves such batches behind.

    @pytest.mark.parametrize("count", [-1, 0, 3, 5])
    def test_count(self, count: int) -> None:
        with pytest.raises(InvalidRecord):
            check(altered(sample_batch(), 57, ">i", count))

    def test_no_records(self) -> None:
        with pytest.raises(InvalidRecord):
            check(altered(altered(sample_batch(), 57, ">i", 0), 23, ">i", -1))

    def test_control(self) -> None:
        batch = altered(RecordBatch(KAFKA["commit"]), 0, ">q", 0)
        with pytest.raises(InvalidRecord, match="control"):
            check(batch)
        check(batch, AppendOrigin.COORDINATOR)

    def test_sequence(self) -> None:
        builder = BatchBuilder(producer_id=4, producer_epoch=0, base_sequence=-1)
        with pytest.raises(InvalidRecord, match="sequence"):
            check(RecordBatch(build_batch(RECORDS, builder)))
        builder = BatchBuilder(producer_id=4, producer_epoch=0, base_sequence=0)
        check(RecordBatch(build_batch(RECORDS, builder)))

    def test_order(self) -> None:
        """Section 9.3: base offset before size before CRC before everything else."""
        batch = altered(sample_batch(), 23, ">i", 9)
        batch = altered(batch, 0, ">q", 1)
        batch = altered(batch, 17, ">I", 0)
        with pytest.raises(InvalidRecord, match="base offset"):
            check(batch, limit=1)
        batch.stamp(0, 0)
        with pytest.raises(RecordTooLarge):
            check(batch, limit=1)
        with pytest.raises(CorruptRecord):
            check(batch)
        with pytest.raises(InvalidRecord, match="last offset delta"):
            check(altered(sample_batch(), 23, ">i", 9))


class TestPreparing:
    def test_a_batch_that_fits_stays_as_it_is(self) -> None:
        batch = RecordBatch(bytes(sample_batch().data))  # Read-only: a write would raise.
        assert prepare(batch, RULES) is batch

    def test_records_are_not_looked_at(self) -> None:
        """Decision 4: by default the header is all that is judged."""
        data = bytearray(sample_batch().data)
        data[61:] = bytes(len(data) - 61)
        liar = altered(RecordBatch(data), 12, ">i", 0)
        assert prepare(liar, RULES) is liar
        with pytest.raises(InvalidRecord):
            prepare(liar, FULL)

    @pytest.mark.parametrize("rules", [RULES, FULL])
    def test_log_append_time(self, rules: TopicRules) -> None:
        """LOG-81."""
        rules = dataclasses.replace(rules, timestamp_type=TimestampType.LOG_APPEND_TIME)
        batch = prepare(sample_batch(), rules)
        assert batch.is_valid
        assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert batch.max_timestamp_ms == NOW_MS
        assert {record.timestamp_ms for record in records_of(batch)} == {NOW_MS}

    def test_a_producer_that_claims_log_append_time(self) -> None:
        """As Kafka: refused where the broker's time counts, corrected where the producer's does."""
        builder = BatchBuilder(log_append_time_ms=NOW_MS)
        builder.append(b"k", b"v", timestamp_ms=NOW_MS)
        rules = dataclasses.replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
        with pytest.raises(InvalidTimestamp) as caught:
            prepare(RecordBatch(builder.build()), rules)
        assert caught.value.error_code is ErrorCode.INVALID_TIMESTAMP
        batch = prepare(RecordBatch(builder.build()), RULES)
        assert batch.timestamp_type is TimestampType.CREATE_TIME
        assert batch.is_valid

    @pytest.mark.parametrize("is_full", [False, True])
    @pytest.mark.parametrize(
        ("timestamp_ms", "is_good"),
        [
            (NOW_MS - 1000, True),
            (NOW_MS - 1001, False),
            (NOW_MS + 500, True),
            (NOW_MS + 501, False),
            (-1, True),
        ],
    )
    def test_timestamps_out_of_range(self, is_full: bool, timestamp_ms: int, is_good: bool) -> None:
        rules = dataclasses.replace(
            RULES,
            timestamp_before_max_ms=1000,
            timestamp_after_max_ms=500,
            validates_fully=is_full,
        )
        builder = BatchBuilder()
        builder.append(b"k", b"v", timestamp_ms=timestamp_ms)
        batch = RecordBatch(builder.build())
        if is_good:
            assert prepare(batch, rules) is batch
            return
        with pytest.raises(InvalidTimestamp) as caught:
            prepare(batch, rules)
        assert [fault.batch_index for fault in caught.value.record_faults] == [0] * is_full
        log_append = dataclasses.replace(rules, timestamp_type=TimestampType.LOG_APPEND_TIME)
        prepare(batch, log_append)

    @pytest.mark.parametrize("source", CODECS)
    @pytest.mark.parametrize("target", [None, *CODECS])
    def test_compression_type(self, source: Codec, target: Codec | None) -> None:
        """LOG-22."""
        batch = sample_batch(source)
        result = prepare(batch, dataclasses.replace(RULES, codec=target))
        assert result.codec is (source if target is None else target)
        assert (result is batch) == (target in (None, source))
        assert result.is_valid
        assert records_of(result) == list(RECORDS)

    def test_size_after_recompression(self) -> None:
        """LOG-77: judged again, once the codec has changed."""
        batch = sample_batch(Codec.GZIP)
        plain_size = sample_batch().size
        rules = dataclasses.replace(RULES, codec=Codec.NONE, max_message_bytes=plain_size)
        assert prepare(batch, rules).size == plain_size
        with pytest.raises(RecordTooLarge, match="recompression"):
            prepare(batch, dataclasses.replace(rules, max_message_bytes=plain_size - 1))

    def test_inflation_is_bounded(self) -> None:
        batch = sample_batch(Codec.GZIP)
        size = sample_batch().size - 61
        for rules in (FULL, dataclasses.replace(RULES, codec=Codec.NONE)):
            prepare(batch, dataclasses.replace(rules, max_inflated_bytes=size))
            with pytest.raises(RecordTooLarge):
                prepare(batch, dataclasses.replace(rules, max_inflated_bytes=size - 1))


class TestFull:
    @pytest.mark.parametrize("codec", CODECS)
    def test_good(self, codec: Codec) -> None:
        batch = sample_batch(codec)
        assert prepare(batch, FULL) is batch

    @pytest.mark.parametrize("codec", CODECS)
    def test_compacted_topics_want_keys(self, codec: Codec) -> None:
        rules = dataclasses.replace(RULES, is_compacted=True)
        with pytest.raises(InvalidRecord) as caught:
            prepare(sample_batch(codec), rules)
        (fault,) = caught.value.record_faults
        assert fault.batch_index == 1
        keyed = [record._replace(key=record.key or b"k") for record in RECORDS]
        prepare(RecordBatch(build_batch(keyed, BatchBuilder(codec=codec))), rules)

    def test_offset_deltas(self) -> None:
        builder = BatchBuilder()
        builder.append(b"k", b"v", timestamp_ms=NOW_MS)
        builder.append(b"k", b"v", timestamp_ms=NOW_MS, offset=2)
        batch = RecordBatch(builder.build())
        with pytest.raises(InvalidRecord, match="last offset delta"):
            prepare(batch, FULL)
        lying = altered(batch, 23, ">i", 1)
        prepare(lying, RULES)
        with pytest.raises(InvalidRecord, match="offset delta 2, expected 1"):
            prepare(lying, FULL)

    def test_count(self) -> None:
        lying = altered(altered(sample_batch(), 23, ">i", 4), 57, ">i", 5)
        prepare(lying, RULES)
        with pytest.raises(InvalidRecord):
            prepare(lying, FULL)

    def test_the_maximum_timestamp_is_made_true(self) -> None:
        lying = altered(sample_batch(), 35, ">q", NOW_MS + 5_000)
        assert prepare(lying, RULES).max_timestamp_ms == NOW_MS + 5_000
        batch = prepare(lying, FULL)
        assert batch.max_timestamp_ms == NOW_MS + 500
        assert batch.is_valid

    def test_faults_are_counted_up_to_a_limit(self) -> None:
        builder = BatchBuilder()
        for _ in range(101):
            builder.append(None, b"v", timestamp_ms=NOW_MS)
        with pytest.raises(InvalidRecord) as caught:
            prepare(RecordBatch(builder.build()), dataclasses.replace(RULES, is_compacted=True))
        assert [fault.batch_index for fault in caught.value.record_faults] == list(range(100))

    def test_ourselves_are_trusted(self) -> None:
        rules = dataclasses.replace(FULL, is_compacted=True)
        prepare(sample_batch(), rules, AppendOrigin.COORDINATOR)

    def test_all_errors_have_a_code(self) -> None:
        for error in RecordDataError.__subclasses__():
            assert error.error_code > 0


def test_a_largest_timestamp_that_is_missing_is_found() -> None:
    """sarama leaves it out; Kafka finds it among the records, and so do we, by these batches."""
    batch = sample_batch()
    known = batch.max_timestamp_ms
    assert known >= batch.base_timestamp_ms
    without = altered(batch, 35, ">q", -1)
    stored = prepare(without, RULES)
    assert stored.max_timestamp_ms == known
    assert stored.is_valid
