"""The loader: committed batches in, images to publishers out."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_sequences import NaiveMetadata, RecordSource, contents

from kraftpy.metadata import records as r
from kraftpy.metadata.batches import build_batch
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.metadata.publisher import LoaderFault, Manifest, MetadataLoader, Source
from kraftpy.metadata.replay_error import ReplayError
from kraftpy.metadata.snapshot import snapshot_batches
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.control_records import LeaderChangeMessage
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import build_control_batch
from kraftpy.records.errors import RecordDataError
from kraftpy.world import InternalInvariant

EPOCH = 4
NOW_MS = 1_700_000_000_000
Published = tuple[ImageChanges, MetadataImage, Manifest]


class Recorder:
    """A publisher that keeps what it is given, and fails when told to."""

    def __init__(self, name: str, journal: list[str] | None = None) -> None:
        self.name = name
        self.given: list[Published] = []
        self.journal = [] if journal is None else journal
        self.failure: Exception | None = None

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        self.journal.append(self.name)
        self.given.append((changes, image, manifest))
        if self.failure is not None:
            raise self.failure


class Rig:
    """A loader with one publisher, and a log that grows behind it."""

    def __init__(self, *, is_strict: bool = True, high_watermark: int | None = 0) -> None:
        self.faults: list[LoaderFault] = []
        self.loader = MetadataLoader(self.faults.append, is_strict=is_strict)
        self.publisher = Recorder("recorder")
        self.loader.install(self.publisher)
        if high_watermark is not None:
            self.loader.note_high_watermark(high_watermark)

    def replay(self, *records: r.MetadataRecord) -> None:
        data = build_batch(
            records, base_offset=self.loader.end_offset, epoch=EPOCH, timestamp_ms=NOW_MS
        )
        self.loader.replay(RecordBatch(data))

    def commit(self, *records: r.MetadataRecord) -> None:
        self.replay(*records)
        self.loader.publish()

    @property
    def names(self) -> list[str]:
        return list(self.loader.image.topics)


def topic(name: str) -> r.TopicRecord:
    return r.TopicRecord(name, Uuid(name.encode().ljust(16, b".")))


def test_one_image_for_all_batches_of_a_run() -> None:
    """CTL-41: nobody sees half of it. The manifest says what the run was."""
    rig = Rig()
    rig.replay(topic("a"))
    rig.replay(topic("b"), topic("c"))
    assert rig.loader.image is EMPTY_IMAGE
    rig.loader.publish()
    ((changes, image, manifest),) = rig.publisher.given
    assert [change.after and change.after.name for change in changes.topics] == ["a", "b", "c"]
    assert image is rig.loader.image
    assert image.provenance == manifest.provenance == Provenance(2, EPOCH, NOW_MS)
    assert (manifest.source, manifest.batch_count, manifest.record_count) == (Source.LOG, 2, 3)
    assert manifest.size_bytes > 100
    rig.commit(topic("d"))
    changes, _, manifest = rig.publisher.given[1]
    assert [change.after and change.after.name for change in changes.topics] == ["d"]
    assert (manifest.batch_count, manifest.record_count) == (1, 1)
    rig.loader.publish()
    assert len(rig.publisher.given) == 2


def test_of_half_a_batch_nothing_is_published() -> None:
    """Others may run between the steps of a large one, and want an image."""
    rig = Rig()
    rig.commit(topic("before"))
    records = [topic(f"t-{number}") for number in range(250)]
    data = build_batch(records, base_offset=1, epoch=EPOCH, timestamp_ms=NOW_MS)
    steps = rig.loader.replay_in_steps(RecordBatch(data))
    for _ in range(2):
        next(steps)
        rig.loader.publish()
        assert rig.names == ["before"]
        assert len(rig.publisher.given) == 1
    assert list(steps) == []
    rig.loader.publish()
    assert len(rig.names) == 251
    (_, image, manifest) = rig.publisher.given[-1]
    assert (image.provenance.last_offset, manifest.record_count) == (250, 250)


def test_nothing_is_published_before_the_first_high_watermark_is_reached() -> None:
    """KRF-126, the wait."""
    rig = Rig(high_watermark=None)
    rig.commit(topic("a"))
    assert not rig.publisher.given
    rig.loader.note_high_watermark(3)
    rig.loader.note_high_watermark(100)  # A later one is no reason to wait longer.
    rig.commit(topic("b"))
    assert not rig.publisher.given
    rig.commit(topic("c"))
    assert rig.names == ["a", "b", "c"]
    assert len(rig.publisher.given) == 1


def test_nothing_is_published_before_a_record_was_seen() -> None:
    """KRF-126: an empty log, or one with only Raft's own records, is no metadata."""
    rig = Rig()
    rig.loader.publish()
    control = build_control_batch(
        [LeaderChangeMessage(version=0, leader_id=1)],
        base_offset=0,
        leader_epoch=EPOCH,
        timestamp_ms=NOW_MS,
    )
    rig.loader.replay(RecordBatch(control))
    rig.loader.publish()
    assert not rig.publisher.given
    rig.commit(r.NoOpRecord())
    assert rig.loader.image.provenance.last_offset == 1


def test_the_first_image_waits_for_an_open_transaction() -> None:
    """A broker would delete its logs as strays of an image that is not complete."""
    rig = Rig(high_watermark=1)
    rig.commit(topic("a"), r.BeginTransactionRecord(), topic("b"))
    assert not rig.publisher.given
    rig.commit(r.EndTransactionRecord())
    assert rig.names == ["a", "b"]


def test_a_new_publisher_begins_with_everything() -> None:
    """KRF-126, the full delta; it comes at the next publish, with or without news."""
    rig = Rig()
    rig.commit(topic("a"))
    late = Recorder("late")
    rig.loader.install(late)
    rig.loader.publish()
    ((changes, image, _),) = late.given
    assert changes.before is EMPTY_IMAGE
    assert image is rig.loader.image
    assert len(rig.publisher.given) == 1
    rig.commit(topic("b"))
    assert [change.after and change.after.name for change in late.given[1][0].topics] == ["b"]
    assert late.given[1][0] is rig.publisher.given[1][0]
    rig.loader.remove(late)
    rig.commit(topic("c"))
    assert len(late.given) == 2


def test_publishers_hear_in_the_order_of_installation_and_have_one_name_each() -> None:
    rig = Rig()
    journal: list[str] = []
    for name in ("z", "a", "m"):
        rig.loader.install(Recorder(name, journal))
    rig.commit(topic("a"))
    assert journal == ["z", "a", "m"]
    with pytest.raises(InternalInvariant, match="publisher_twice"):
        rig.loader.install(Recorder("m"))


def test_a_failing_publisher_is_reported_by_name_and_stops_nobody() -> None:
    rig = Rig()
    behind = Recorder("behind")
    rig.loader.install(behind)
    rig.publisher.failure = ValueError("no")
    rig.commit(topic("a"))
    assert rig.faults == [LoaderFault("recorder", 0, rig.publisher.failure)]
    assert len(behind.given) == 1
    rig.publisher.failure = None
    rig.commit(topic("b"))
    # What it failed over is not repeated: it may have been half done.
    changes = rig.publisher.given[1][0]
    assert [change.after and change.after.name for change in changes.topics] == ["b"]
    rig.publisher.failure = InternalInvariant("ours")
    with pytest.raises(InternalInvariant):
        rig.commit(topic("c"))


def test_a_transaction_is_published_at_its_end() -> None:
    """KRF-127: what came before its beginning is, and the rest is not, until then."""
    rig = Rig()
    rig.commit(topic("a"))
    rig.commit(topic("b"), r.BeginTransactionRecord(), topic("c"))
    assert rig.names == ["a", "b"]
    assert rig.loader.image.provenance == Provenance(1, EPOCH, NOW_MS, is_batch_aligned=False)
    assert not rig.loader.may_snapshot
    rig.commit(topic("d"))
    assert rig.names == ["a", "b"]
    assert len(rig.publisher.given) == 2
    rig.commit(r.EndTransactionRecord(), topic("e"))
    assert rig.names == ["a", "b", "c", "d", "e"]
    assert rig.loader.image.provenance == Provenance(6, EPOCH, NOW_MS)
    assert rig.loader.may_snapshot


def test_an_aborted_transaction_is_published_as_nothing() -> None:
    """KRF-127, the abort."""
    rig = Rig()
    rig.commit(topic("a"))
    rig.commit(r.BeginTransactionRecord(), topic("b"))
    assert len(rig.publisher.given) == 1
    assert rig.loader.may_snapshot
    rig.commit(r.AbortTransactionRecord())
    changes, image, _ = rig.publisher.given[1]
    assert changes.topics == ()
    assert image.provenance.last_offset == 3
    assert rig.names == ["a"]


def test_a_snapshot_takes_the_place_of_everything() -> None:
    """CTL-147, the loading. Publishers are told the difference, and batches go on behind it."""
    other = Rig()
    other.commit(topic("b"), topic("c"))
    rig = Rig()
    rig.commit(topic("a"), topic("b"))
    rig.commit(r.BeginTransactionRecord())
    rig.replay(r.AbortTransactionRecord())
    seen = len(rig.publisher.given)
    end = Provenance(41, 7, NOW_MS + 5)
    rig.loader.begin_snapshot(end)
    for data in snapshot_batches(other.loader.image, base_offset=1):
        rig.loader.replay(RecordBatch(data))
        rig.loader.publish()
    assert len(rig.publisher.given) == seen
    rig.loader.end_snapshot()
    assert rig.loader.end_offset == 42
    rig.loader.publish()
    changes, image, manifest = rig.publisher.given[-1]
    assert image.provenance == end
    assert manifest.source is Source.SNAPSHOT
    assert manifest.record_count == 2
    names = [
        (change.before and change.before.name, change.after and change.after.name)
        for change in changes.topics
    ]
    assert names == [("a", None), (None, "c")]
    rig.commit(topic("d"))
    assert rig.names == ["b", "c", "d"]
    assert rig.publisher.given[-1][2].source is Source.LOG
    with pytest.raises(InternalInvariant, match="no_snapshot_begun"):
        rig.loader.end_snapshot()


def test_batches_come_in_order_and_once() -> None:
    rig = Rig()
    rig.commit(topic("a"))
    for base_offset in (0, 2):
        data = build_batch([topic("b")], base_offset=base_offset, epoch=EPOCH, timestamp_ms=NOW_MS)
        with pytest.raises(InternalInvariant, match="batch_order"):
            rig.loader.replay(RecordBatch(data))


def test_a_record_that_contradicts_is_fatal_on_a_controller() -> None:
    """KRF-104, the replay."""
    rig = Rig(is_strict=True)
    rig.commit(topic("a"))
    with pytest.raises(ReplayError):
        rig.replay(topic("a"))


def test_a_broker_goes_on_without_a_bad_record_but_makes_no_snapshot() -> None:
    rig = Rig(is_strict=False)
    rig.commit(topic("a"), r.RemoveTopicRecord(Uuid(bytes(16))), topic("b"))
    assert rig.names == ["a", "b"]
    (fault,) = rig.faults
    assert (fault.where, fault.offset) == ("replay", 1)
    assert not rig.loader.may_snapshot
    builder = BatchBuilder(base_offset=3, leader_epoch=EPOCH)
    builder.append(None, b"no msgpack", timestamp_ms=NOW_MS)
    rig.loader.replay(RecordBatch(builder.build()))
    rig.commit(topic("c"))
    assert rig.names == ["a", "b", "c"]
    assert [fault.offset for fault in rig.faults] == [1, 3]
    rig.loader.begin_snapshot(Provenance(9, EPOCH, NOW_MS))
    rig.loader.end_snapshot()
    rig.loader.publish()
    assert rig.loader.may_snapshot


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_batch_that_lies_is_a_fault_like_a_bad_record(*, is_strict: bool) -> None:
    rig = Rig(is_strict=is_strict)
    data = build_batch([topic("a"), topic("b")], base_offset=0, epoch=EPOCH, timestamp_ms=NOW_MS)
    data[61:] = b"\xff" * (len(data) - 61)
    if is_strict:
        with pytest.raises(RecordDataError):
            rig.loader.replay(RecordBatch(data))
    else:
        rig.loader.replay(RecordBatch(data))
        assert [(fault.where, fault.offset) for fault in rig.faults] == [("replay", 0)]
        assert rig.loader.end_offset == 2


@given(seed=st.integers(0, 2**32))
def test_every_published_image_is_the_fold_of_the_log_up_to_its_offset(seed: int) -> None:
    """The invariant, with random batches, runs and transactions."""
    random = Random(seed)
    source = RecordSource(random)
    rig = Rig()
    log: list[r.MetadataRecord] = []
    while len(log) < 250:
        for _ in range(random.randrange(1, 4)):
            records = source.take(random.randrange(1, 12))
            log += records
            rig.replay(*records)
        rig.loader.publish()
    model = NaiveMetadata()
    position = 0
    for _, image, _ in rig.publisher.given:
        assert image.provenance.end_offset > position
        for record in log[position : image.provenance.end_offset]:
            model.replay(record)
        position = image.provenance.end_offset
        assert model.held is None
        assert contents(image) == model.state
    assert source.model.held is not None or position == len(log)
