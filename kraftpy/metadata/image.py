"""The image: everything that the cluster is, as of one offset of the metadata log. Immutable.

A reader takes a reference once and sees one consistent state for as long as it likes; the next
image is another object. Images are folded from records by delta.py, share with their predecessors
whatever has not changed, and compare equal exactly if they hold the same state of the same offset.

Each part is a sorted map from the key of a thing to the record that defines it. Two parts need
more than a record: a topic gathers its partitions, and a resource or quota entity its keys.

Invariants: `topics` and `topic_names` list the same topics; the partitions of a topic are numbered
from 0 without gaps, each at its own index; no topic is both alive and pending deletion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from kraftpy.metadata.records import (
    METADATA_VERSION,
    AccessControlEntryRecord,
    ConfigResourceType,
    DelegationTokenRecord,
    PartitionRecord,
    PendingDeletionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    ScramMechanism,
    UserScramCredentialRecord,
)
from kraftpy.metadata.sorted_map import SortedMap
from kraftpy.protocol.ids import Uuid
from kraftpy.world import quickly_made

__all__ = [
    "EMPTY_IMAGE",
    "ConfigResource",
    "EntityQuotas",
    "MetadataImage",
    "Provenance",
    "QuotaKey",
    "ScramUser",
    "TopicImage",
    "quota_key",
]


class Provenance(NamedTuple):
    """The last record that an image contains: its offset, epoch and time.

    An image isn't batch aligned if more records of the same batch follow, as before a transaction
    that begins within one. No snapshot may be made of it.
    """

    last_offset: int
    epoch: int
    timestamp_ms: int
    is_batch_aligned: bool = True

    @property
    def end_offset(self) -> int:
        """The first offset that isn't contained; with the epoch, the id of a snapshot."""
        return self.last_offset + 1


class ConfigResource(NamedTuple):
    """What settings belong to. The name of all brokers together is empty."""

    resource_type: ConfigResourceType
    name: str


class ScramUser(NamedTuple):
    name: str
    mechanism: ScramMechanism


# Quota entities in order; a name is a tuple of one, the default an empty one, so that keys compare.
QuotaKey: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]


def quota_key(entity: tuple[QuotaEntity, ...]) -> QuotaKey:
    """One key for an entity, however its parts are ordered."""
    return tuple(sorted((kind, () if name is None else (name,)) for kind, name in entity))


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """The quotas of one entity, by their configuration keys."""

    entity: tuple[QuotaEntity, ...]
    limits: Mapping[str, float]


@quickly_made
@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic; the partition with id n is at index n."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionRecord, ...] = ()


@quickly_made
@dataclass(frozen=True, slots=True)
class MetadataImage:
    provenance: Provenance
    features: SortedMap[str, int]
    brokers: SortedMap[int, RegisterBrokerRecord]
    controllers: SortedMap[int, RegisterControllerRecord]
    topics: SortedMap[str, TopicImage]
    topic_names: SortedMap[Uuid, str]
    pending_deletions: SortedMap[Uuid, PendingDeletionRecord]
    configs: SortedMap[ConfigResource, Mapping[str, str]]
    client_quotas: SortedMap[QuotaKey, EntityQuotas]
    producer_ids: ProducerIdsRecord | None
    access_control_entries: SortedMap[Uuid, AccessControlEntryRecord]
    scram_credentials: SortedMap[ScramUser, UserScramCredentialRecord]
    delegation_tokens: SortedMap[str, DelegationTokenRecord]

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version; 0 before the log has set one."""
        return self.features.get(METADATA_VERSION) or 0

    def topic_by_id(self, topic_id: Uuid) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic_id: Uuid, partition_id: int) -> PartitionRecord | None:
        topic = self.topic_by_id(topic_id)
        if topic is None or not 0 <= partition_id < len(topic.partitions):
            return None
        return topic.partitions[partition_id]

    def config(self, resource_type: ConfigResourceType, name: str) -> Mapping[str, str]:
        """What has been set for a resource itself; empty if nothing was."""
        return self.configs.get(ConfigResource(resource_type, name)) or {}


EMPTY_IMAGE: Final = MetadataImage(
    provenance=Provenance(-1, -1, -1),
    features=SortedMap(),
    brokers=SortedMap(),
    controllers=SortedMap(),
    topics=SortedMap(),
    topic_names=SortedMap(),
    pending_deletions=SortedMap(),
    configs=SortedMap(),
    client_quotas=SortedMap(),
    producer_ids=None,
    access_control_entries=SortedMap(),
    scram_credentials=SortedMap(),
    delegation_tokens=SortedMap(),
)
