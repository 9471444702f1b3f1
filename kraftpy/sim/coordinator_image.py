"""The metadata that simulated coordinators know: one topic that grows, and the newest features."""

from __future__ import annotations

from kraftpy.metadata import records as r
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.features import GROUP_VERSION, TRANSACTION_VERSION
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.sim.coordinator_clients import TOPIC
from kraftpy.sim.coordinator_members import TOPIC_ID

__all__ = ["SimulatedMetadata", "image_with"]

_PARTITIONS_MAX = 8


class SimulatedMetadata:
    """What is true now; each broker hears of it at another time."""

    __slots__ = ("image", "partitions")

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.image = image_with(partitions)

    def grow(self) -> MetadataImage:
        """One partition more, unless there are enough."""
        self.partitions = min(self.partitions + 1, _PARTITIONS_MAX)
        self.image = image_with(self.partitions)
        return self.image


def image_with(partitions: int) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(r.FeatureLevelRecord(GROUP_VERSION, 1))
    delta.replay(r.FeatureLevelRecord(TRANSACTION_VERSION, 2))
    delta.replay(r.TopicRecord(TOPIC, TOPIC_ID))
    for index in range(partitions):
        delta.replay(r.PartitionRecord(index, TOPIC_ID, (1,), (1,), leader=1))
    return delta.apply(Provenance(partitions, 1, 0))
