"""Snapshots: an image written and read again is the same, wherever the log is cut."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_sequences import RecordSource, contents

from kraftpy.metadata import records as r
from kraftpy.metadata.batches import build_batch, read_batch
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.metadata.record_format import MetadataRecordError, RecordDecoder
from kraftpy.metadata.replay_error import ReplayError
from kraftpy.metadata.snapshot import (
    BATCH_BYTES,
    BATCH_RECORDS,
    load_snapshot,
    snapshot_batches,
    snapshot_records,
)
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.control_records import SnapshotHeaderRecord
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import build_control_batch
from kraftpy.world import InternalInvariant


def at(last_offset: int) -> Provenance:
    return Provenance(last_offset, 3, 1_700_000_000_000)


def fold(
    records: Iterable[r.MetadataRecord], last_offset: int, base: MetadataImage = EMPTY_IMAGE
) -> MetadataImage:
    delta = MetadataDelta(base)
    for record in records:
        delta.replay(record)
    return delta.apply(at(last_offset))


def written(image: MetadataImage) -> list[RecordBatch]:
    return [RecordBatch(data) for data in snapshot_batches(image)]


@given(seed=st.integers(0, 2**32), count=st.integers(0, 300))
def test_an_image_equals_the_fold_of_its_snapshot(seed: int, count: int) -> None:
    """KRF-125, KRF-65, CTL-102."""
    source = RecordSource(Random(seed))
    image = fold([*source.take(count), *source.close_transaction()], count)
    assert fold(snapshot_records(image), count) == image
    loaded = load_snapshot(written(image), image.provenance)
    assert loaded == image
    assert contents(loaded) == contents(image)


@given(seed=st.integers(0, 2**32), cut=st.integers(0, 150), tail=st.integers(0, 150))
def test_a_snapshot_and_the_tail_are_as_good_as_the_whole_log(
    seed: int, cut: int, tail: int
) -> None:
    """Twice: the tail is replayed over the snapshot of a snapshot as well."""
    source = RecordSource(Random(seed))
    head = [*source.take(cut), *source.close_transaction()]
    rest = source.take(tail)
    whole = fold([*head, *rest], 999)
    once = load_snapshot(written(fold(head, cut)), at(cut))
    assert fold(rest, 999, once) == whole
    twice = load_snapshot(written(once), at(cut))
    assert fold(rest, 999, twice) == whole


@given(seed=st.integers(0, 2**32))
def test_equal_images_give_equal_bytes(seed: int) -> None:
    """However they came about: record by record, or all at once out of a snapshot."""
    source = RecordSource(Random(seed), transactions=False)
    stepwise = EMPTY_IMAGE
    for record in source.take(80):
        stepwise = fold([record], 200, stepwise)
    loaded = load_snapshot(written(stepwise), at(200))
    assert list(snapshot_batches(loaded)) == list(snapshot_batches(stepwise))


def test_the_order_in_which_keys_were_set_is_forgotten() -> None:
    settings = [r.ConfigRecord(4, "", key, "1") for key in ("b", "a", "c")]
    entity = (r.QuotaEntity("user", "x"), r.QuotaEntity("client-id", None))
    quotas = [r.ClientQuotaRecord(entity, key, 1.0) for key in ("b", "a")]
    turned = [r.ClientQuotaRecord(entity[::-1], key, 1.0) for key in ("a", "b")]
    one, other = fold([*settings, *quotas], 5), fold([*settings[::-1], *turned], 5)
    assert one == other
    assert list(snapshot_batches(one)) == list(snapshot_batches(other))


def test_features_come_first_and_metadata_version_is_the_very_first() -> None:
    image = fold(
        [
            r.TopicRecord("a", Uuid(bytes(16))),
            r.FeatureLevelRecord("group.version", 1),
            r.FeatureLevelRecord(r.METADATA_VERSION, 30),
            r.FeatureLevelRecord("transaction.version", 2),
        ],
        4,
    )
    names = [
        record.name
        for record in list(snapshot_records(image))[:3]
        if isinstance(record, r.FeatureLevelRecord)
    ]
    assert names == [r.METADATA_VERSION, "group.version", "transaction.version"]
    assert image.metadata_version == 30
    assert EMPTY_IMAGE.metadata_version == 0


def test_a_large_image_is_written_in_small_batches() -> None:
    """Offsets go on from batch to batch; a batch closes by records or by bytes."""
    entries = [
        r.AccessControlEntryRecord(Uuid(n.to_bytes(16, "big")), 2, "t", 3, "User:a", "*", 3, 3)
        for n in range(BATCH_RECORDS * 2 + 1)
    ]
    image = fold(entries, 5)
    batches = [RecordBatch(data) for data in snapshot_batches(image, base_offset=7)]
    assert [batch.records_count for batch in batches] == [BATCH_RECORDS, BATCH_RECORDS, 1]
    starts = [7, 7 + BATCH_RECORDS, 7 + 2 * BATCH_RECORDS]
    assert [batch.base_offset for batch in batches] == starts
    assert {(batch.leader_epoch, batch.max_timestamp_ms) for batch in batches} == {
        (3, 1_700_000_000_000)
    }
    long_values = [r.ConfigRecord(4, "", f"key-{n}", "v" * (BATCH_BYTES // 2)) for n in range(4)]
    assert [batch.records_count for batch in written(fold(long_values, 5))] == [2, 2]
    assert written(EMPTY_IMAGE) == []


def test_control_batches_are_passed_over() -> None:
    header = build_control_batch(
        [SnapshotHeaderRecord(version=0, last_contained_log_timestamp=5)],
        base_offset=0,
        leader_epoch=3,
        timestamp_ms=5,
    )
    image = fold([r.TopicRecord("a", Uuid(bytes(16)))], 1)
    assert load_snapshot([RecordBatch(header), *written(image)], at(1)) == image


@pytest.mark.parametrize(
    "record", [r.BeginTransactionRecord(), r.EndTransactionRecord(), r.AbortTransactionRecord()]
)
def test_a_snapshot_has_no_transactions(record: r.MetadataRecord) -> None:
    batch = RecordBatch(build_batch([record], base_offset=0, epoch=3, timestamp_ms=5))
    with pytest.raises(ReplayError):
        load_snapshot([batch], at(1))


def test_an_image_from_within_a_batch_is_not_written() -> None:
    """KRF-73, the transaction."""
    image = MetadataDelta(EMPTY_IMAGE).apply(Provenance(5, 3, 1, is_batch_aligned=False))
    with pytest.raises(InternalInvariant, match="within_batch"):
        next(snapshot_batches(image))


@pytest.mark.parametrize(("key", "value"), [(b"k", b"\x94\x01\x14\x00\x90"), (None, None)])
def test_a_metadata_record_has_a_value_and_no_key(key: bytes | None, value: bytes | None) -> None:
    builder = BatchBuilder()
    builder.append(key, value, timestamp_ms=0)
    with pytest.raises(MetadataRecordError):
        list(read_batch(RecordBatch(builder.build()), RecordDecoder()))
