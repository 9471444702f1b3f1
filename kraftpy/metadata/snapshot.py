"""Images as records, and back: what a snapshot of the metadata log contains.

A snapshot holds the records that define the image's state and no others, in one order: features
first, with metadata.version at the head, so that a reader knows at once whether it can read on;
then everything that later records refer to before they do. The order within a part is that of the
keys. Equal images therefore give equal bytes, on every node.

Here are the batches with metadata records. The header and footer of a snapshot file, and the
control records about voters, are the Raft storage's. The iterators give a batch at a time, so that
whoever writes or loads a large image can let others run in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kraftpy.metadata.batches import MetadataBatchBuilder, read_batch
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.metadata.record_format import RecordDecoder
from kraftpy.metadata.records import (
    METADATA_VERSION,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    TopicRecord,
)
from kraftpy.records.batch import RecordBatch
from kraftpy.world import InternalInvariant

__all__ = ["load_snapshot", "snapshot_batches", "snapshot_records"]

# A batch closes behind the record that reaches one of these: one or two milliseconds of work.
BATCH_BYTES: Final = 64 << 10
BATCH_RECORDS: Final = 250


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """The records whose fold is `image`."""
    level = image.features.get(METADATA_VERSION)
    if level is not None:
        yield FeatureLevelRecord(METADATA_VERSION, level)
    for name, level in image.features.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name, level)
    yield from image.brokers.values()
    yield from image.controllers.values()
    for topic in image.topics.values():
        yield TopicRecord(topic.name, topic.topic_id)
        yield from topic.partitions
    for resource, settings in image.configs.items():
        for name, value in settings.items():
            yield ConfigRecord(resource.resource_type, resource.name, name, value)
    for quotas in image.client_quotas.values():
        for key, limit in quotas.limits.items():
            yield ClientQuotaRecord(quotas.entity, key, limit)
    if image.producer_ids is not None:
        yield image.producer_ids
    yield from image.access_control_entries.values()
    yield from image.scram_credentials.values()
    yield from image.delegation_tokens.values()
    yield from image.pending_deletions.values()


def snapshot_batches(image: MetadataImage, *, base_offset: int = 0) -> Iterator[bytearray]:
    """The records of `image` in batches, from this offset of the snapshot file on."""
    if not image.provenance.is_batch_aligned:
        raise InternalInvariant(f"metadata.snapshot_within_batch {image.provenance}")
    builder = _builder(image, base_offset)
    for record in snapshot_records(image):
        builder.append(record)
        if builder.count >= BATCH_RECORDS or builder.size >= BATCH_BYTES:
            base_offset += builder.count
            yield builder.build()
            builder = _builder(image, base_offset)
    if builder.count:
        yield builder.build()


def _builder(image: MetadataImage, base_offset: int) -> MetadataBatchBuilder:
    provenance = image.provenance
    return MetadataBatchBuilder(
        base_offset=base_offset, epoch=provenance.epoch, timestamp_ms=provenance.timestamp_ms
    )


def load_snapshot(batches: Iterable[RecordBatch], provenance: Provenance) -> MetadataImage:
    """The image that was written; control batches are passed over.

    Raises MetadataRecordError, ReplayError or RecordDataError for anything else than a snapshot.
    """
    delta = MetadataDelta(EMPTY_IMAGE, is_snapshot=True)
    decoder = RecordDecoder()
    for batch in batches:
        for record in read_batch(batch, decoder):
            delta.replay(record)
    return delta.apply(provenance)
