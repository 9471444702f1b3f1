"""The metadata that simulated coordinators know: one topic, and the newest features."""

from __future__ import annotations

from kraftpy.metadata import records as r
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.features import GROUP_VERSION, TRANSACTION_VERSION
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.sim.coordinator_clients import TOPIC
from kraftpy.sim.coordinator_members import TOPIC_ID

__all__ = ["image_with"]


def image_with(partitions: int) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(r.FeatureLevelRecord(GROUP_VERSION, 1))
    delta.replay(r.FeatureLevelRecord(TRANSACTION_VERSION, 2))
    delta.replay(r.TopicRecord(TOPIC, TOPIC_ID))
    for index in range(partitions):
        delta.replay(r.PartitionRecord(index, TOPIC_ID, (1,), (1,), leader=1))
    return delta.apply(Provenance(0, 1, 0))
