"""The metadata records: everything that can happen to a cluster, as values.

The log of these records is the truth; whatever a node knows about topics, brokers or settings is
the fold of a prefix of it. Names, meanings and defaults are Kafka's. Left out are fields and types
that only served the way from ZooKeeper, and a list is empty where Kafka distinguishes null without
meaning something by it. Two records are ours: topic deletion is tracked until the files are gone
(design, decision 9).

A record that defines something (a broker, a partition, an access control entry) is also what the
image keeps for it: `image.brokers[3]` is a RegisterBrokerRecord. The others change or remove
what a defining record introduced. Records are immutable, so images share them freely.

record_format.py has their type ids, versions and bytes; delta.py says what each one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from kraftpy.protocol.ids import Uuid
from kraftpy.world import quickly_made

__all__ = [
    "DIRECTORY_LOST",
    "DIRECTORY_MIGRATING",
    "DIRECTORY_UNASSIGNED",
    "LEADER_UNCHANGED",
    "METADATA_VERSION",
    "NO_LEADER",
    "QUOTA_CLIENT_ID",
    "QUOTA_IP",
    "QUOTA_USER",
    "RECOVERED",
    "RECOVERING",
    "RECOVERY_UNCHANGED",
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "ConfigResourceType",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "Endpoint",
    "FeatureLevelRecord",
    "FeatureRange",
    "FenceBrokerRecord",
    "MetadataRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "PendingDeletionRecord",
    "PendingReplica",
    "ProducerIdsRecord",
    "QuotaEntity",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "ReplicaDeletedRecord",
    "ScramMechanism",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UserScramCredentialRecord",
]

NO_LEADER: Final = -1
LEADER_UNCHANGED: Final = -2

RECOVERED: Final = 0
RECOVERING: Final = 1
RECOVERY_UNCHANGED: Final = -1

# Reserved directory ids: assigned before directories had ids, not yet assigned, on a lost disk.
DIRECTORY_MIGRATING: Final = Uuid(bytes(16))
DIRECTORY_UNASSIGNED: Final = Uuid(bytes(15) + b"\x01")
DIRECTORY_LOST: Final = Uuid(bytes(15) + b"\x02")

# The feature that says which records a log may hold. Every log and snapshot begins with its level.
METADATA_VERSION: Final = "metadata.version"

# What quotas can be for.
QUOTA_USER: Final = "user"
QUOTA_CLIENT_ID: Final = "client-id"
QUOTA_IP: Final = "ip"


class ConfigResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ScramMechanism(IntEnum):
    SHA_256 = 1
    SHA_512 = 2


class Endpoint(NamedTuple):
    """Where one listener of a node is reached."""

    name: str
    host: str
    port: int
    security_protocol: int


class FeatureRange(NamedTuple):
    """The levels of a feature that a node supports."""

    name: str
    min_supported_version: int
    max_supported_version: int


class QuotaEntity(NamedTuple):
    """One part of what a quota is for; the name is None for the default of its type."""

    entity_type: str
    entity_name: str | None


class PendingReplica(NamedTuple):
    """A replica whose files its broker has not yet reported as gone."""

    partition_id: int
    broker_id: int


@quickly_made
@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    broker_id: int
    incarnation_id: Uuid
    broker_epoch: int
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord:
    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class TopicRecord:
    name: str
    topic_id: Uuid


@quickly_made
@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition: its replicas in the order of preference, and who leads since when.

    `directories` is empty or has one entry for each replica.
    """

    partition_id: int
    topic_id: Uuid
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_recovery_state: int = RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0
    directories: tuple[Uuid, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def directory_of(self, broker_id: int) -> Uuid | None:
        """The directory of this broker's replica; None if it has no replica."""
        if broker_id not in self.replicas:
            return None
        if not self.directories:
            return DIRECTORY_MIGRATING
        return self.directories[self.replicas.index(broker_id)]

    def changed_by(self, change: PartitionChangeRecord) -> PartitionRecord:
        """This partition after `change`.

        Naming a leader, even the same one, begins a new leader epoch; any change at all begins a
        new partition epoch.
        """
        is_new_leadership = change.leader != LEADER_UNCHANGED
        recovery = change.leader_recovery_state
        removing, adding = change.removing_replicas, change.adding_replicas
        elr, last_known = change.eligible_leader_replicas, change.last_known_elr
        return PartitionRecord(
            self.partition_id,
            self.topic_id,
            self.replicas if change.replicas is None else change.replicas,
            self.isr if change.isr is None else change.isr,
            self.removing_replicas if removing is None else removing,
            self.adding_replicas if adding is None else adding,
            change.leader if is_new_leadership else self.leader,
            self.leader_recovery_state if recovery == RECOVERY_UNCHANGED else recovery,
            self.leader_epoch + is_new_leadership,
            self.partition_epoch + 1,
            self.directories if change.directories is None else change.directories,
            self.eligible_leader_replicas if elr is None else elr,
            self.last_known_elr if last_known is None else last_known,
        )


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """Sets one key of a resource; a value of None takes it away.

    The resource name of all brokers together is empty.
    """

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@quickly_made
@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """What is not None, or not "unchanged", replaces what the partition has."""

    partition_id: int
    topic_id: Uuid
    isr: tuple[int, ...] | None = None
    leader: int = LEADER_UNCHANGED
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int = RECOVERY_UNCHANGED
    directories: tuple[Uuid, ...] | None = None
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class FenceBrokerRecord:
    """The older form of a BrokerRegistrationChangeRecord that fences."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class UnfenceBrokerRecord:
    """The older form of a BrokerRegistrationChangeRecord that unfences."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """Removes a topic with its partitions and settings, and leaves its deletion pending."""

    topic_id: Uuid


@dataclass(frozen=True, slots=True)
class DelegationTokenRecord:
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int
    token_id: str


@dataclass(frozen=True, slots=True)
class UserScramCredentialRecord:
    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """The cluster's level of a feature; 0 takes any feature but metadata.version away."""

    name: str
    feature_level: int


@dataclass(frozen=True, slots=True)
class ClientQuotaRecord:
    """Sets one quota of an entity, or removes it; the value is then ignored."""

    entity: tuple[QuotaEntity, ...]
    key: str
    value: float = 0.0
    remove: bool = False


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """Every producer id below `next_producer_id` has been given to some broker."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@quickly_made
@dataclass(frozen=True, slots=True)
class BrokerRegistrationChangeRecord:
    """`fenced` is 1 to fence, -1 to unfence, 0 for no change; an empty `log_dirs` is no change.

    Nothing but a new registration ends a controlled shutdown.
    """

    broker_id: int
    broker_epoch: int
    fenced: int = 0
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord:
    id: Uuid
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord:
    id: Uuid


@dataclass(frozen=True, slots=True)
class NoOpRecord:
    """Says only that the log moves."""


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredentialRecord:
    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class BeginTransactionRecord:
    """What follows is seen by nobody until the transaction ends."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class EndTransactionRecord:
    """Everything since the transaction began is seen from here on, all at once."""


@dataclass(frozen=True, slots=True)
class AbortTransactionRecord:
    """Nothing since the transaction began has happened."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveDelegationTokenRecord:
    token_id: str


@dataclass(frozen=True, slots=True)
class RegisterControllerRecord:
    controller_id: int
    incarnation_id: Uuid
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...] = ()


@dataclass(frozen=True, slots=True)
class ClearElrRecord:
    """Empties the eligible leader replicas of a topic, or of all of them if the name is empty."""

    topic_name: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaDeletedRecord:
    """A broker has reported that the files of this replica of a removed topic are unlinked."""

    topic_id: Uuid
    partition_id: int
    broker_id: int


@dataclass(frozen=True, slots=True)
class PendingDeletionRecord:
    """A removed topic and those of its replicas whose files may still exist.

    RemoveTopicRecord makes one in the image; as a record of its own it stands in snapshots only.
    """

    topic_id: Uuid
    name: str
    replicas: tuple[PendingReplica, ...]


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | RemoveUserScramCredentialRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RemoveDelegationTokenRecord
    | RegisterControllerRecord
    | ClearElrRecord
    | ReplicaDeletedRecord
    | PendingDeletionRecord
)
