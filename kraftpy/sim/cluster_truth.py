"""What is true of the simulated cluster's metadata: the committed log, folded once, and its past.

Invariant 8: every image that a node publishes is the truth as of its offset, and offsets never go
back within a process. Compared are the parts that have changed, on either side, since the image
before, which was compared as well; at intervals, and in the end, everything is.

Answers. What a controller says has happened is looked up in the committed past at the moment when
it is said: the answer must not be ahead of the log, nor be about something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from itertools import compress
from operator import attrgetter, is_not, or_
from typing import Any, Final

from kraftpy.metadata.batches import log_records, metadata_record
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.metadata.record_format import RecordDecoder
from kraftpy.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftpy.metadata.sorted_map import SortedMap
from kraftpy.protocol.ids import Uuid
from kraftpy.records.batch import RecordBatch
from kraftpy.records.reader import Record
from kraftpy.sim.cluster_data_rules import DataRules
from kraftpy.sim.cluster_rules import ClusterRules
from kraftpy.sim.digest import EventDigest
from kraftpy.sim.quorum_invariants import InvariantViolated, QuorumInvariants
from kraftpy.world import Buffer

__all__ = ["ClusterTruth", "SharedBatch", "shared_records"]

_PARTS: Final = tuple(field.name for field in fields(MetadataImage))
_parts_of: Final = attrgetter(*_PARTS)
_FULL_COMPARISON_EVERY = 200


class SharedDecoder(RecordDecoder):
    """Decodes equal bytes once: a record is read by all nodes, and again by each that restarts.

    What it gives is immutable, and a function of the bytes alone.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[bytes, MetadataRecord] = {}

    def decode(self, data: Buffer) -> MetadataRecord:
        key = bytes(data)
        record = self._known.get(key)
        if record is None:
            record = self._known[key] = super().decode(data)
        return record


class SharedBatch(RecordBatch):
    """A batch that is taken apart once, however many nodes have it."""

    __slots__ = ("_records",)

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._records: tuple[Record, ...] | None = None

    def records(self) -> tuple[Record, ...]:
        if self._records is None:
            self._records = tuple(log_records(self))
        return self._records


def shared_records(batch: RecordBatch) -> Iterable[Record]:
    """The log records of a batch; those of snapshots are nobody else's."""
    return batch.records() if isinstance(batch, SharedBatch) else log_records(batch)


class ClusterTruth:
    __slots__ = (
        "_comparisons",
        "_delta",
        "_digest",
        "_end_offset",
        "_images",
        "_offsets",
        "_views",
        "created",
        "data",
        "decoder",
        "image",
        "quorum",
        "registered",
        "removed",
        "rules",
        "settings",
        "unfenced",
        "versions",
    )

    def __init__(self, quorum: QuorumInvariants, rules: ClusterRules, digest: EventDigest) -> None:
        self.quorum = quorum
        self.rules = rules
        # In runs with data.
        self.data: DataRules | None = None
        self._digest = digest
        self._delta = MetadataDelta(EMPTY_IMAGE)
        # Everybody's: whoever reads a record gets what the first reader of the same bytes got.
        self.decoder = SharedDecoder()
        # Of every batch that was ever read, whoever has it: nobody writes into one.
        self._views: dict[bytes, SharedBatch] = {}
        self._end_offset = 0
        self.image = EMPTY_IMAGE
        # By last offset, for every batch that ends outside of transactions.
        self._images: dict[int, MetadataImage] = {-1: EMPTY_IMAGE}
        # How far the present process of each node has got.
        self._offsets: dict[int, int] = {}
        self._comparisons = 0
        # The committed past.
        self.created: dict[Uuid, str] = {}
        self.removed: dict[Uuid, None] = {}
        self.registered: dict[tuple[int, int], Uuid] = {}
        self.unfenced: dict[tuple[int, int], None] = {}
        self.settings: dict[tuple[int, str, str, str | None], None] = {}
        # By topic, partition and partition epoch: what it was, and since which offset.
        self.versions: dict[tuple[Uuid, int, int], tuple[PartitionRecord, int]] = {}

    def note_event(self, now_us: int, kind: str, place: int, number: int) -> None:
        """Something has happened, and everything that follows from it was checked."""
        self.quorum.checked_steps += 1
        self._digest.record(now_us, kind, place, b"%d" % number)

    def image_at(self, offset: int) -> MetadataImage:
        return self._images[offset]

    def view_of(self, data: bytes) -> SharedBatch:
        """A batch of somebody's log."""
        view = self._views.get(data)
        if view is None:
            view = self._views[data] = SharedBatch(data)
        return view

    # The fold.

    def advance(self) -> None:
        """Fold what has been committed since, and hold each batch against the rules."""
        while self._end_offset < self.quorum.committed_end:
            batch = self.view_of(self.quorum.committed_batch(self._end_offset))
            offset = batch.base_offset
            for each in batch.records():
                record = metadata_record(each, self.decoder)
                self._delta.replay(record)
                self._remember(record, offset)
                offset += 1
            self._end_offset = batch.next_offset
            if self._delta.in_transaction:
                continue
            provenance = Provenance(batch.last_offset, batch.leader_epoch, batch.max_timestamp_ms)
            before, self.image = self.image, self._delta.apply(provenance)
            self._images[batch.last_offset] = self.image
            changes = ImageChanges(before, self.image)
            for change in changes.partitions():
                if change.after is not None:
                    after = change.after
                    key = (after.topic_id, after.partition_id, after.partition_epoch)
                    self.versions[key] = (after, batch.last_offset)
            for broker in changes.brokers:
                if broker.after is not None and not broker.after.fenced:
                    self.unfenced[broker.key, broker.after.broker_epoch] = None
            self.rules.check(changes)
            if self.data is not None:
                self.data.committed(changes)
        if self.data is not None:
            self.data.check_due(self.image)

    def _remember(self, record: MetadataRecord, offset: int) -> None:
        match record:
            case TopicRecord():
                self.created[record.topic_id] = record.name
            case RemoveTopicRecord():
                self.removed[record.topic_id] = None
            case RegisterBrokerRecord():
                key = (record.broker_id, record.broker_epoch)
                self.registered[key] = record.incarnation_id
                self.rules.registration_offsets[record.broker_id] = offset
            case ConfigRecord():
                setting = (record.resource_type, record.resource_name, record.name, record.value)
                self.settings[setting] = None

    # Invariant 8.

    def started(self, node_id: int) -> None:
        self._offsets[node_id] = -1

    def check_image(self, node_id: int, before: MetadataImage, after: MetadataImage) -> None:
        """A node has published an image after another one that was checked."""
        self.advance()
        offset = after.provenance.last_offset
        if offset < self._offsets[node_id]:
            raise InvariantViolated(
                "image-goes-back", f"{node_id}: {offset} after {self._offsets[node_id]}"
            )
        self._offsets[node_id] = offset
        if not after.provenance.is_batch_aligned:
            return
        true_after = self._images.get(offset)
        true_before = self._images.get(before.provenance.last_offset)
        if true_after is None:
            raise InvariantViolated("image-invented", f"{node_id}: {after.provenance}")
        self._comparisons += 1
        if true_before is None or self._comparisons % _FULL_COMPARISON_EVERY == 0:
            if after != true_after:
                raise _difference(node_id, after, true_after)
            return
        pasts, mines = _parts_of(before), _parts_of(after)
        true_pasts, trues = _parts_of(true_before), _parts_of(true_after)
        # What is the same object as before, on both sides, is equal still: nearly all, as a rule.
        have_changed = map(or_, map(is_not, pasts, mines), map(is_not, true_pasts, trues))
        for each in compress(zip(pasts, mines, true_pasts, trues, strict=True), have_changed):
            if _differs(*each):
                raise _difference(node_id, after, true_after)

    def check_whole(self, node_id: int, image: MetadataImage) -> None:
        """Compare everything."""
        if image != self._images.get(image.provenance.last_offset):
            raise InvariantViolated("image-differs", f"{node_id}: {image.provenance}")


def _difference(node_id: int, image: MetadataImage, true_image: MetadataImage) -> InvariantViolated:
    """The first part in which they differ, in words."""
    parts = zip(_PARTS, _parts_of(image), _parts_of(true_image), strict=True)
    part, mine, true = next(each for each in parts if each[1] != each[2])
    offset = image.provenance.last_offset
    return InvariantViolated("image-differs", f"{node_id} at {offset}: {part} {mine}, truly {true}")


def _differs(mine_before: Any, mine: Any, true_before: Any, true: Any) -> bool:
    """Whether two parts of images differ that were equal before, each of its own past."""
    if not isinstance(mine, SortedMap) or not isinstance(true, SortedMap):
        return bool(mine != true)
    changed = {change.key for change in mine_before.differences(mine)}
    changed.update(change.key for change in true_before.differences(true))
    return any(mine.get(key) != true.get(key) for key in changed)
