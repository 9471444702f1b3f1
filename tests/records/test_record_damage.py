"""Damaged bytes (testing.md 8.2): only our exceptions, bounded memory, no damage unnoticed."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_samples import (
    CODECS,
    KAFKA,
    LEGACY_CODECS,
    LEGACY_RECORDS,
    NOW_MS,
    sample_batch,
)

from kraftpy.records.batch import RecordBatch
from kraftpy.records.compression import Codec, decompress
from kraftpy.records.control import read_control_record
from kraftpy.records.errors import RecordDataError
from kraftpy.records.legacy import build_message_set
from kraftpy.records.validation import AppendOrigin, TopicRules, prepare_batch, single_batch
from kraftpy.records.walker import records_of, walk_batches

MAX_BYTES = 64 * 1024
# What the reader may hold at once: inflated data, its compressed copy, and the records made of it.
MAX_PEAK_BYTES = 4 * MAX_BYTES
RULES = TopicRules(
    max_message_bytes=MAX_BYTES,
    max_inflated_bytes=MAX_BYTES,
    codec=Codec.LZ4,
    validates_fully=True,
)

V2 = {f"v2 {codec.name}": bytes(sample_batch(codec).data) for codec in CODECS}
LEGACY = {
    f"v{magic} {codec.name}": bytes(build_message_set(LEGACY_RECORDS, magic=magic, codec=codec))
    for magic in (0, 1)
    for codec in LEGACY_CODECS
}
SAMPLES = V2 | LEGACY


def read_all(data: bytes) -> None:
    """All that reads foreign bytes, on `data`; raises RecordDataError or nothing."""
    for batch in walk_batches(data):
        for record in records_of(batch, max_bytes=MAX_BYTES):
            if isinstance(batch, RecordBatch) and batch.is_control:
                read_control_record(record)


def survives(data: bytes) -> None:
    for read in (read_all, validate):
        with suppress(RecordDataError):
            read(data)


def validate(data: bytes) -> None:
    batch = single_batch(bytearray(data), produce_version=13)
    # Without its CRC nearly no damaged batch would come as far as the records.
    batch.crc = batch.compute_crc()
    prepare_batch(batch, RULES, origin=AppendOrigin.CLIENT, now_ms=NOW_MS)


def flips(data: bytes) -> Iterator[bytes]:
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            yield bytes(damaged)


@pytest.mark.parametrize("name", V2)
def test_every_flipped_bit_below_the_crc_is_noticed(name: str) -> None:
    """LOG-78: nothing that the CRC, the magic or the length covers can change unseen."""
    data = V2[name]
    for position in (*range(8, 12), *range(16, len(data))):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            try:
                batches = list(walk_batches(damaged))
            except RecordDataError:
                continue
            assert not batches or not batches[0].is_valid


@pytest.mark.parametrize("name", SAMPLES)
def test_every_flipped_bit_is_survived(name: str) -> None:
    """With the CRC left unchecked, so that the damage reaches the codec and the records."""
    for damaged in flips(SAMPLES[name]):
        survives(damaged)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_truncation_is_survived(name: str) -> None:
    """Cut as it is, and cut with a length that says so."""
    data = SAMPLES[name]
    for size in range(len(data)):
        survives(data[:size])
        shortened = bytearray(data[:size])
        if size >= 12:
            shortened[8:12] = (size - 12).to_bytes(4, "big")
        survives(bytes(shortened))


@pytest.mark.parametrize("name", SAMPLES)
def test_damage_allocates_no_more_than_the_bound(name: str) -> None:
    """One extreme value at a time in every byte; large numbers reserve nothing."""
    data = SAMPLES[name]
    survives(data)  # Libraries are loaded before counting starts.
    tracemalloc.start()
    try:
        for position in range(len(data)):
            for value in (0x00, 0x7F, 0x80, 0xFF):
                damaged = bytearray(data)
                damaged[position] = value
                survives(bytes(damaged))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_PEAK_BYTES


@pytest.mark.parametrize("name", sorted(KAFKA))
def test_random_damage_to_kafkas_batches(name: str) -> None:
    seed = f"{name} 1"
    print("seed:", seed)
    rng = random.Random(seed)
    for _ in range(100):
        damaged = bytearray(KAFKA[name])
        for _ in range(rng.randrange(1, 6)):
            start = rng.randrange(len(damaged))
            match rng.randrange(3):
                case 0:
                    damaged[start] = rng.randrange(256)
                case 1:
                    del damaged[start : start + rng.randrange(1, 9)]
                case _:
                    damaged[start:start] = rng.randbytes(rng.randrange(1, 9))
            if not damaged:
                break
        survives(bytes(damaged))


@given(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(0, 2))
def test_any_bytes_to_any_codec(codec: Codec, data: bytes, magic: int) -> None:
    prefixes = {Codec.GZIP: "1f8b08", Codec.LZ4: "04224d18", Codec.ZSTD: "28b52ffd"}
    for prefix in ("", prefixes.get(codec, "82534e41505059000000000100000001")):
        try:
            result = decompress(codec, bytes.fromhex(prefix) + data, max_bytes=1000, magic=magic)
        except RecordDataError:
            continue
        assert len(result) <= 1000


@given(st.binary(max_size=400), st.sampled_from([0, 1, 2]))
def test_any_bytes_as_a_batch(data: bytes, magic: int) -> None:
    survives(data)
    if len(data) > 16:
        header = (len(data) - 12).to_bytes(4, "big")
        survives(data[:8] + header + data[12:16] + bytes([magic]) + data[17:])
