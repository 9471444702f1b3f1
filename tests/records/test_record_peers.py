"""Batches of kafka-python, aiokafka and kio read by us, and ours by them."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch as kio_read_batch
from kio.records.writers import write_prepared_batch as kio_write_batch
from record_peers import (
    MemoryRecords,
    aiokafka_default,
    aiokafka_legacy,
    kafka_codec,
    kafka_default,
    kafka_legacy,
)
from record_samples import (
    CODECS,
    KAFKA,
    LEGACY_CODECS,
    LEGACY_RECORDS,
    LIMIT_BYTES,
    NOW_MS,
    RECORDS,
    sample_batch,
)

from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder, build_batch
from kraftpy.records.compression import Codec, compress
from kraftpy.records.legacy import LegacyBatch, build_message_set
from kraftpy.records.reader import Record, read_records
from kraftpy.records.walker import records_of, walk_batches

# kafka-python has no snappy without another library; aiokafka does it with cramjam, as we do.
KAFKA_PYTHON_CODECS = [codec for codec in CODECS if codec is not Codec.SNAPPY]
DEFAULT_PEERS = [
    pytest.param(kafka_default, codec, id=f"kafka-python-{codec.name}")
    for codec in KAFKA_PYTHON_CODECS
] + [pytest.param(aiokafka_default, codec, id=f"aiokafka-{codec.name}") for codec in CODECS]


def as_records(peer_records: Any) -> list[Record]:
    return [
        Record(
            record.offset,
            -1 if record.timestamp is None else record.timestamp,
            record.key,
            record.value,
            tuple((key, value) for key, value in record.headers),
        )
        for record in peer_records
    ]


def peer_batch(peer: Any, codec: Codec, records: Sequence[Record]) -> bytes:
    builder = peer.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=123,
        producer_epoch=4,
        base_sequence=5,
        batch_size=LIMIT_BYTES,
    )
    for record in records:
        assert builder.append(
            offset=record.offset,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    return bytes(builder.build())


@pytest.mark.parametrize(("peer", "codec"), DEFAULT_PEERS)
class TestDefault:
    def test_theirs_read_by_us(self, peer: Any, codec: Codec) -> None:
        (batch,) = walk_batches(peer_batch(peer, codec, RECORDS))
        assert isinstance(batch, RecordBatch)
        assert batch.is_valid
        assert batch.codec is codec
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (123, 4, 5)
        assert batch.is_transactional
        assert list(read_records(batch, max_bytes=LIMIT_BYTES)) == list(RECORDS)

    def test_ours_read_by_them(self, peer: Any, codec: Codec) -> None:
        ours = sample_batch(codec)
        ours.stamp(5000, 7)
        theirs = peer.DefaultRecordBatch(bytes(ours.data))
        assert theirs.validate_crc()
        assert as_records(theirs) == [
            record._replace(offset=5000 + record.offset) for record in RECORDS
        ]


@pytest.mark.parametrize("peer", [kafka_default, aiokafka_default])
def test_same_bytes(peer: Any) -> None:
    """Without a codec, the batch of the same records is the same but for the leader epoch."""
    builder = BatchBuilder(
        producer_id=123, producer_epoch=4, base_sequence=5, is_transactional=True, leader_epoch=0
    )
    ours = RecordBatch(build_batch(RECORDS, builder))
    theirs = RecordBatch(bytearray(peer_batch(peer, Codec.NONE, RECORDS)))
    theirs.stamp(0, 0)
    assert ours.data == theirs.data


LEGACY_PEERS = [
    pytest.param(module, batch, magic, codec, id=f"{name}-{magic}-{codec.name}")
    for name, module, batch in (
        ("kafka-python", kafka_legacy, "LegacyRecordBatch"),
        ("aiokafka", aiokafka_legacy, "_LegacyRecordBatchPy"),
        ("aiokafka-c", aiokafka_legacy, "LegacyRecordBatch"),
    )
    for magic in (0, 1)
    for codec in LEGACY_CODECS
    if not (module is kafka_legacy and codec is Codec.SNAPPY)
    # Without xxhash kafka-python can't do the lz4 of magic 0; aiokafka takes the right one only.
    and not (magic == 0 and codec is Codec.LZ4)
]


@pytest.mark.parametrize(("peer", "batch_name", "magic", "codec"), LEGACY_PEERS)
class TestLegacy:
    def test_theirs_read_by_us(self, peer: Any, batch_name: str, magic: int, codec: Codec) -> None:
        builder_class = getattr(peer, batch_name.replace("Batch", "BatchBuilder"))
        builder = builder_class(magic=magic, compression_type=int(codec), batch_size=LIMIT_BYTES)
        for record in LEGACY_RECORDS:
            assert builder.append(
                record.offset, timestamp=record.timestamp_ms, key=record.key, value=record.value
            )
        data = bytearray(builder.build())
        if codec:  # Producers leave it at 0; the broker, which is us here, sets it.
            struct.pack_into(">q", data, 0, LEGACY_RECORDS[-1].offset)
        records = []
        for batch in walk_batches(data):
            assert isinstance(batch, LegacyBatch)
            assert batch.is_valid
            records += batch.records(max_bytes=LIMIT_BYTES)
        assert records == [
            record if magic else record._replace(timestamp_ms=-1) for record in LEGACY_RECORDS
        ]

    def test_ours_read_by_them(self, peer: Any, batch_name: str, magic: int, codec: Codec) -> None:
        ours = build_message_set(
            [record._replace(offset=record.offset + 50) for record in LEGACY_RECORDS],
            magic=magic,
            codec=codec,
        )
        records = []
        for batch in walk_batches(bytes(ours)):
            theirs = getattr(peer, batch_name)(bytes(batch.data), magic)
            assert theirs.validate_crc()
            records += as_records(theirs)
        assert records == [
            record._replace(
                offset=record.offset + 50, timestamp_ms=record.timestamp_ms if magic else -1
            )
            for record in LEGACY_RECORDS
        ]


def test_a_run_of_batches_beside_kafka_python() -> None:
    """The same walk over Kafka's own bytes, kafka-python's and ours."""
    run = KAFKA["v1_none"] + KAFKA["v2_lz4"] + KAFKA["v0_gzip"] + KAFKA["v2_zstd"]
    theirs = []
    memory_records = MemoryRecords(run)
    while memory_records.has_next():
        theirs += as_records(memory_records.next_batch())
    ours = [
        record for batch in walk_batches(run) for record in records_of(batch, max_bytes=LIMIT_BYTES)
    ]
    assert ours == theirs


def test_kio_reads_ours_and_writes_the_same() -> None:
    """kio knows no codec; timestamps are whole seconds there."""
    records = [record._replace(timestamp_ms=NOW_MS + 1000 * record.offset) for record in RECORDS]
    ours = build_batch(records, BatchBuilder(leader_epoch=3))
    batch, size = kio_read_batch(bytes(ours), 0)
    assert size == len(ours)
    assert batch.crc == RecordBatch(ours).crc
    for theirs, record in zip(batch.records, records, strict=True):
        assert (theirs.offset, theirs.key, theirs.value) == (
            record.offset,
            record.key,
            record.value,
        )
        assert int(theirs.timestamp.timestamp() * 1000) == record.timestamp_ms
        headers = [(header.key, header.value) for header in theirs.headers]
        assert headers == [(key.encode(), value) for key, value in record.headers]
    with io.BytesIO() as written:
        kio_write_batch(written, batch)
        assert written.getvalue() == ours


def test_kafka_python_inflates_what_we_compress() -> None:
    data = b"words, " * 20_000
    inflaters: dict[Codec, Callable[[bytes], bytes]] = {
        Codec.GZIP: kafka_codec.gzip_decode,
        Codec.LZ4: kafka_codec.lz4_decode,
        Codec.ZSTD: kafka_codec.zstd_decode,
    }
    for codec, inflate in inflaters.items():
        assert inflate(compress(codec, data)) == data


nullable = st.none() | st.binary(max_size=80)


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**33), 2**33),
            nullable,
            nullable,
            st.lists(st.tuples(st.text(max_size=8), nullable), max_size=2),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([kafka_default, aiokafka_default]),
)
def test_any_records_both_ways(parts: list[Any], peer: Any) -> None:
    records = [
        Record(offset, NOW_MS + delta, key, value, tuple(headers))
        for offset, (delta, key, value, headers) in enumerate(parts)
    ]
    theirs = RecordBatch(peer_batch(peer, Codec.NONE, records))
    assert list(read_records(theirs, max_bytes=LIMIT_BYTES)) == records
    ours = build_batch(records, BatchBuilder())
    assert as_records(peer.DefaultRecordBatch(bytes(ours))) == records
