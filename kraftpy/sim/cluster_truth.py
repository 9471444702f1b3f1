"""What is true of the simulated cluster's metadata: the committed log, folded once, and its past.

Invariant 8: every image that a node publishes is the truth as of its offset, and offsets never go
back within a process. Compared are the parts that have changed, on either side, since the image
before, which was compared as well; at intervals, and in the end, everything is.

Answers. What a controller says has happened is looked up in the committed past at the moment when
it is said: the answer must not be ahead of the log, nor be about something else.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from kraftpy.metadata.batches import read_batch
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
from kraftpy.protocol.ids import Uuid
from kraftpy.records.batch import RecordBatch
from kraftpy.sim.cluster_data_rules import DataRules
from kraftpy.sim.cluster_rules import ClusterRules
from kraftpy.sim.digest import EventDigest
from kraftpy.sim.quorum_invariants import InvariantViolated, QuorumInvariants

__all__ = ["ClusterTruth"]

_PARTS: Final = tuple(field.name for field in fields(MetadataImage))
_FULL_COMPARISON_EVERY = 200


class ClusterTruth:
    __slots__ = (
        "_comparisons",
        "_decoder",
        "_delta",
        "_digest",
        "_end_offset",
        "_images",
        "_offsets",
        "created",
        "data",
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
        self._decoder = RecordDecoder()
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
        self._digest.record(now_us, kind, str(place), b"%d" % number)

    def image_at(self, offset: int) -> MetadataImage:
        return self._images[offset]

    # The fold.

    def advance(self) -> None:
        """Fold what has been committed since, and hold each batch against the rules."""
        while self._end_offset < self.quorum.committed_end:
            batch = RecordBatch(self.quorum.committed_batch(self._end_offset))
            offset = batch.base_offset
            for record in read_batch(batch, self._decoder):
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
        is_full = true_before is None or self._comparisons % _FULL_COMPARISON_EVERY == 0
        for part in _PARTS:
            mine, true = getattr(after, part), getattr(true_after, part)
            if not is_full and mine is getattr(before, part) and true is getattr(true_before, part):
                continue
            if mine != true:
                raise InvariantViolated(
                    "image-differs", f"{node_id} at {offset}: {part} {mine}, truly {true}"
                )

    def check_whole(self, node_id: int, image: MetadataImage) -> None:
        """Compare everything."""
        if image != self._images.get(image.provenance.last_offset):
            raise InvariantViolated("image-differs", f"{node_id}: {image.provenance}")
