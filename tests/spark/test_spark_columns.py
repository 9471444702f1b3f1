"""Batches as columns: what the reader of records finds, and no more tolerance than it has."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kraftpy_spark.columns import decode

from kraftpy.records.batch import HEADER_SIZE, RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.errors import InvalidRecord, RecordDataError
from kraftpy.records.reader import Record, read_records

MAX_BYTES = 1 << 20
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3)
# One byte, two, and more in a varint.
TIMES = st.integers(0, 3) | st.integers(0, 2**14) | st.integers(0, 2**40)


@dataclass(frozen=True)
class Wanted:
    records: list[Record]
    codec: Codec
    log_append_time_ms: int | None
    gap: int


@st.composite
def wanted_batches(draw: st.DrawFn) -> Wanted:
    offset = 0
    records = []
    for _ in range(draw(st.integers(1, 20))):
        offset += draw(st.integers(1, 3))
        time_ms = draw(TIMES)
        headers = tuple(draw(HEADERS))
        records.append(Record(offset, time_ms, draw(BYTES), draw(BYTES), headers))
    codec = draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP]))
    return Wanted(records, codec, draw(st.none() | st.just(777)), draw(st.integers(0, 2**40)))


def built(wanted: Wanted, base_offset: int) -> RecordBatch:
    builder = BatchBuilder(codec=wanted.codec, log_append_time_ms=wanted.log_append_time_ms)
    for record in wanted.records:
        builder.append(
            record.key,
            record.value,
            timestamp_ms=record.timestamp_ms,
            headers=record.headers,
            offset=record.offset,
        )
    batch = RecordBatch(builder.build())
    batch.stamp(base_offset, 0)
    return batch


def as_records(batches: list[RecordBatch]) -> list[Record]:
    """By way of columns."""
    found = decode(batches, max_batch_bytes=MAX_BYTES, with_headers=True)
    assert found.headers is not None
    headers = [
        tuple((each["key"], each["value"]) for each in of_record or ())
        for of_record in found.headers.to_pylist()
    ]
    columns = (
        found.offsets.tolist(),
        [micros // 1_000 for micros in found.timestamps.view("int64").to_pylist()],
        found.keys.to_pylist(),
        found.values.to_pylist(),
        headers,
    )
    return [Record(*row) for row in zip(*columns, strict=True)]


@given(st.lists(wanted_batches(), min_size=1, max_size=4))
def test_columns_have_what_the_reader_finds(wanted: list[Wanted]) -> None:
    """Of all kinds of batches in one fetch: null and empty, compressed, with times of the log."""
    batches: list[RecordBatch] = []
    base_offset = 0
    for each in wanted:
        base_offset += each.gap
        batches.append(built(each, base_offset))
        base_offset = batches[-1].next_offset
    expected = [record for batch in batches for record in read_records(batch, max_bytes=MAX_BYTES)]
    assert as_records(batches) == expected
    types = decode(batches, max_batch_bytes=MAX_BYTES, with_headers=False).timestamp_types
    assert types.to_pylist() == [
        int(batch.timestamp_type) for batch in batches for _ in range(batch.records_count)
    ]


@given(wanted_batches(), st.data())
def test_a_batch_that_lies_is_refused_as_by_the_reader(wanted: Wanted, data: st.DataObject) -> None:
    """Nothing but a RecordDataError comes out, and never other records than the reader's."""
    batch = built(Wanted(wanted.records, Codec.NONE, None, 0), 5)
    place = data.draw(st.integers(HEADER_SIZE, batch.size - 1))
    batch.buffer[place] = data.draw(st.integers(0, 255))
    batch.records_count += data.draw(st.sampled_from([0, 0, 0, -1, 1]))
    try:
        expected = list(read_records(batch, max_bytes=MAX_BYTES))
    except RecordDataError:
        with pytest.raises(RecordDataError):
            as_records([batch])
        return
    offsets = [record.offset for record in expected]
    last = batch.last_offset
    if offsets != sorted(set(offsets)) or any(not 5 <= each <= last for each in offsets):
        with pytest.raises(InvalidRecord):
            as_records([batch])
    elif all(name.isprintable() for each in expected for name, _ in each.headers):
        assert as_records([batch]) == expected


def record(delta: bytes, headers: bytes = b"\x00") -> bytes:
    """Of time 0, without a key, with an empty value."""
    body = b"\x00\x00" + delta + b"\x01\x00" + headers
    return bytes([len(body) * 2]) + body


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (b"", "ends before"),
        (b"\x01", "negative length"),
        (record(b"\x00", b"\x00\x00"), "longer or shorter"),
        (b"\x0e\x00\x00\x00\x03\x02a\x00", "a length that it can't have"),
        # A number without an end, and one that is too long.
        (b"\x0e\x00\x00\x00\x01\xff\xff\xff", "ends before"),
        (b"\x1e\x00" + b"\xff" * 11 + b"\x00\x00\x00", "longer than any can be"),
        (record(b"\x02"), "leave their batch"),
        (record(b"\x01"), "leave their batch"),
        ((record(b"\x00"), record(b"\x00")), "don't grow"),
        # One header, and a byte behind it; one whose key is null; one that is cut.
        (record(b"\x00", b"\x02\x02k\x00\x00"), "longer than its headers"),
        (record(b"\x00", b"\x02\x01\x00"), "has no key"),
        ((record(b"\x00", b"\x02\x02k\x04"), record(b"\x02")), "leaves its record"),
    ],
)
def test_each_lie_has_its_words(records: bytes | tuple[bytes, ...], said: str) -> None:
    builder = BatchBuilder()
    parts = records if isinstance(records, tuple) else (records,)
    for _ in parts:
        builder.append(None, b"a", timestamp_ms=0)
    data = bytearray(builder.build()[:HEADER_SIZE]) + b"".join(parts)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    with pytest.raises(InvalidRecord, match=said):
        decode([RecordBatch(data)], max_batch_bytes=MAX_BYTES, with_headers=True)
