"""Where records lie: the same records as the reader's, and a batch made of some of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import CODECS, sample_batch

from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder, with_records
from kraftpy.records.compression import Codec
from kraftpy.records.errors import InvalidRecord
from kraftpy.records.reader import read_records, record_data
from kraftpy.records.spans import record_spans

MAX_BYTES = 1 << 20

NULLABLE = st.none() | st.binary(max_size=100) | st.binary(min_size=8_200, max_size=8_200)
TIMES = st.integers(-(2**62), 2**62)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
RECORDS = st.lists(
    st.tuples(st.integers(1, 200), TIMES, NULLABLE, NULLABLE, HEADERS), min_size=1, max_size=80
)


def batch_of(
    records: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec = Codec.NONE,
    log_append_time_ms: int | None = None,
) -> RecordBatch:
    builder = BatchBuilder(base_offset=50, codec=codec, log_append_time_ms=log_append_time_ms)
    offset = 50
    for step, timestamp_ms, key, value, headers in records:
        offset += step
        builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers, offset=offset)
    return RecordBatch(builder.build(last_offset=offset + 3))


@given(RECORDS, st.sampled_from(CODECS), st.none() | st.integers(0, 2**62))
def test_spans_are_the_records(
    records: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    log_append_time_ms: int | None,
) -> None:
    batch = batch_of(records, codec, log_append_time_ms)
    data = record_data(batch, max_bytes=MAX_BYTES)
    spans = list(record_spans(batch, data))
    read = list(read_records(batch, max_bytes=MAX_BYTES))
    assert [span[2:] for span in spans] == [
        (record.offset, record.timestamp_ms, record.key, record.value is not None)
        for record in read
    ]
    assert [span[0] for span in spans] == [0, *(span[1] for span in spans[:-1])]
    assert spans[-1][1] == len(data)


@given(RECORDS, st.sampled_from(CODECS), st.data())
def test_a_batch_of_some_spans_has_those_records(
    records: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    codec: Codec,
    draw: st.DataObject,
) -> None:
    """LOG-107: what stays keeps offset, time, key, value and headers."""
    batch = batch_of(records, codec)
    data = record_data(batch, max_bytes=MAX_BYTES)
    spans = list(record_spans(batch, data))
    chosen = draw.draw(st.sets(st.integers(0, len(spans) - 1), min_size=1))
    some = RecordBatch(
        with_records(
            batch,
            b"".join(data[spans[index][0] : spans[index][1]] for index in sorted(chosen)),
            records_count=len(chosen),
            max_timestamp_ms=7,
        )
    )
    assert some.is_valid
    assert some.max_timestamp_ms == 7
    assert (some.base_offset, some.last_offset) == (batch.base_offset, batch.last_offset)
    assert some.codec is batch.codec
    read = list(read_records(batch, max_bytes=MAX_BYTES))
    assert list(read_records(some, max_bytes=MAX_BYTES)) == [read[i] for i in sorted(chosen)]


def test_damage_is_an_invalid_record_or_unseen() -> None:
    """Every bit of the records flipped: InvalidRecord, or spans that lie within the data."""
    batch = sample_batch(Codec.NONE)
    body = bytes(batch.body)
    noticed = 0
    for position in range(len(body)):
        for bit in range(8):
            damaged = bytearray(body)
            damaged[position] ^= 1 << bit
            try:
                spans = list(record_spans(batch, bytes(damaged)))
            except InvalidRecord:
                noticed += 1
                continue
            assert spans[-1][1] == len(body)
            offsets = [span[2] for span in spans]
            assert offsets == sorted(set(offsets))
    assert noticed > 100


@pytest.mark.parametrize("size", range(40))
def test_cut_data_is_an_invalid_record(size: int) -> None:
    batch = sample_batch(Codec.NONE)
    with pytest.raises(InvalidRecord):
        list(record_spans(batch, bytes(batch.body)[:size]))


def test_the_header_may_lie() -> None:
    batch = sample_batch(Codec.NONE)
    data = bytes(batch.body)
    count = batch.records_count
    for field, lie in (
        ("records_count", count + 1),
        ("records_count", count - 1),
        ("records_count", -1),
        ("last_offset_delta", batch.last_offset_delta - 1),
        ("base_offset", -1),
        ("base_offset", 2**63 - 1),
    ):
        liar = sample_batch(Codec.NONE)
        setattr(liar, field, lie)
        with pytest.raises(InvalidRecord):
            list(record_spans(liar, data))
    with pytest.raises(InvalidRecord):
        list(record_spans(batch, data + b"\0"))


def test_offsets_that_do_not_grow_are_an_invalid_record() -> None:
    builder = BatchBuilder()
    builder.append(b"a", b"1", timestamp_ms=0)
    builder.append(b"b", b"2", timestamp_ms=0)
    batch = RecordBatch(builder.build())
    body = bytearray(batch.body)
    # A record of two one-letter strings: length, attributes, time delta, offset delta, ...
    second = body[0] // 2 + 1
    assert body[second + 3] == 1 << 1
    body[second + 3] = 0
    with pytest.raises(InvalidRecord, match="follows"):
        list(record_spans(batch, bytes(body)))
