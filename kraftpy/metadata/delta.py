"""The delta: records replayed on top of an image, and the next image made of the result.

`replay` is the only way in which metadata changes, live and at recovery, on controllers and on
brokers. It is strict: a record that contradicts what came before raises ReplayError, and then has
changed nothing. `apply` gives the image, at a cost that depends on what was touched and hardly on
how much there is; the delta can be used on.

Within a transaction, records are replayed as they come, but images stay as they were when it
began: until its end, when everything is there at once, or its abort, when nothing ever was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from kraftpy.metadata import records
from kraftpy.metadata.image import (
    ConfigResource,
    EntityQuotas,
    MetadataImage,
    Provenance,
    ScramUser,
    quota_key,
)
from kraftpy.metadata.records import (
    METADATA_VERSION,
    ConfigResourceType,
    MetadataRecord,
    RegisterBrokerRecord,
    ScramMechanism,
)
from kraftpy.metadata.replay_error import ReplayError
from kraftpy.metadata.sorted_map import Draft
from kraftpy.metadata.topics_draft import TopicsDraft

__all__ = ["MetadataDelta"]

_FENCE, _UNFENCE = 1, -1


class MetadataDelta:
    """An image, and what has been replayed on top of it."""

    __slots__ = (
        "_acls",
        "_brokers",
        "_configs",
        "_controllers",
        "_drafts",
        "_features",
        "_held",
        "_is_snapshot",
        "_producer_ids",
        "_quotas",
        "_scram",
        "_tokens",
        "_topics",
        "in_transaction",
    )

    def __init__(self, image: MetadataImage, *, is_snapshot: bool = False) -> None:
        """With `is_snapshot`, for the records of a snapshot, transactions are refused."""
        self._is_snapshot = is_snapshot
        # The image as it was when the open transaction began.
        self._held: MetadataImage | None = None
        self.in_transaction = False
        self._start(image)

    def _start(self, image: MetadataImage) -> None:
        self._features = Draft(image.features)
        self._brokers = Draft(image.brokers)
        self._controllers = Draft(image.controllers)
        self._topics = TopicsDraft(image)
        self._configs = Draft(image.configs)
        self._quotas = Draft(image.client_quotas)
        self._producer_ids = image.producer_ids
        self._acls = Draft(image.access_control_entries)
        self._scram = Draft(image.scram_credentials)
        self._tokens = Draft(image.delegation_tokens)
        self._drafts: tuple[Draft[Any, Any], ...] = (
            self._features,
            self._brokers,
            self._controllers,
            self._topics.topics,
            self._topics.names,
            self._topics.deletions,
            self._configs,
            self._quotas,
            self._acls,
            self._scram,
            self._tokens,
        )

    def replay(self, record: MetadataRecord) -> None:
        """Let `record` happen, or raise ReplayError and change nothing."""
        _REPLAY[type(record)](self, record)

    def apply(self, provenance: Provenance) -> MetadataImage:
        """The image of everything so far but an open transaction's."""
        if self._held is not None:
            return replace(self._held, provenance=provenance)
        return self._fold(provenance)

    def _fold(self, provenance: Provenance) -> MetadataImage:
        topics = self._topics
        topics.seal()
        # Most of the time one or two of them have changed.
        for draft in self._drafts:
            if draft.changes:
                draft.sealed()
        return MetadataImage(
            provenance=provenance,
            features=self._features.base,
            brokers=self._brokers.base,
            controllers=self._controllers.base,
            topics=topics.topics.base,
            topic_names=topics.names.base,
            pending_deletions=topics.deletions.base,
            configs=self._configs.base,
            client_quotas=self._quotas.base,
            producer_ids=self._producer_ids,
            access_control_entries=self._acls.base,
            scram_credentials=self._scram.base,
            delegation_tokens=self._tokens.base,
        )

    # Brokers and controllers.

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        broker = self._brokers.get(record.broker_id)
        if broker is not None and record.broker_epoch < broker.broker_epoch:
            raise ReplayError(record, f"epoch {record.broker_epoch} after {broker.broker_epoch}")
        self._brokers.put(record.broker_id, record)

    def _broker(
        self,
        record: records.UnregisterBrokerRecord
        | records.FenceBrokerRecord
        | records.UnfenceBrokerRecord
        | records.BrokerRegistrationChangeRecord,
    ) -> RegisterBrokerRecord:
        broker = self._brokers.get(record.broker_id)
        if broker is None:
            raise ReplayError(record, f"broker {record.broker_id} isn't registered")
        if record.broker_epoch != broker.broker_epoch:
            raise ReplayError(record, f"epoch {record.broker_epoch}, not {broker.broker_epoch}")
        return broker

    def _unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self._broker(record)
        self._brokers.remove(record.broker_id)
        self._topics.forget_broker(record.broker_id)

    def _fence_broker(self, record: records.FenceBrokerRecord) -> None:
        self._brokers.put(record.broker_id, replace(self._broker(record), fenced=True))

    def _unfence_broker(self, record: records.UnfenceBrokerRecord) -> None:
        self._brokers.put(record.broker_id, replace(self._broker(record), fenced=False))

    def _change_broker(self, record: records.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record)
        if record.fenced not in (_FENCE, 0, _UNFENCE):
            raise ReplayError(record, f"fenced is {record.fenced}")
        cordoned = record.cordoned_log_dirs
        changed = replace(
            broker,
            fenced=record.fenced == _FENCE if record.fenced else broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown,
            log_dirs=record.log_dirs or broker.log_dirs,
            cordoned_log_dirs=broker.cordoned_log_dirs if cordoned is None else cordoned,
        )
        self._brokers.put(record.broker_id, changed)

    def _register_controller(self, record: records.RegisterControllerRecord) -> None:
        self._controllers.put(record.controller_id, record)

    # Topics.

    def _create_topic(self, record: records.TopicRecord) -> None:
        self._topics.create(record)

    def _add_partition(self, record: records.PartitionRecord) -> None:
        self._topics.add_partition(record)

    def _change_partition(self, record: records.PartitionChangeRecord) -> None:
        self._topics.change_partition(record)

    def _clear_elr(self, record: records.ClearElrRecord) -> None:
        self._topics.clear_elr(record)

    def _remove_topic(self, record: records.RemoveTopicRecord) -> None:
        name = self._topics.remove(record, lambda broker: self._brokers.get(broker) is not None)
        self._configs.remove(ConfigResource(ConfigResourceType.TOPIC, name))

    def _add_deletion(self, record: records.PendingDeletionRecord) -> None:
        self._topics.add_deletion(record)

    def _finish_replica(self, record: records.ReplicaDeletedRecord) -> None:
        self._topics.finish_replica(record)

    # Settings.

    def _set_feature(self, record: records.FeatureLevelRecord) -> None:
        if record.feature_level < 0 or (
            record.feature_level == 0 and record.name == METADATA_VERSION
        ):
            raise ReplayError(record, f"{record.name} at level {record.feature_level}")
        if record.feature_level:
            self._features.put(record.name, record.feature_level)
        else:
            self._features.remove(record.name)

    def _set_config(self, record: records.ConfigRecord) -> None:
        try:
            resource_type = ConfigResourceType(record.resource_type)
        except ValueError as error:
            raise ReplayError(record, f"resource type {record.resource_type}") from error
        resource = ConfigResource(resource_type, record.resource_name)
        settings = _with_key(self._configs.get(resource), record.name, record.value)
        if settings:
            self._configs.put(resource, settings)
        else:
            self._configs.remove(resource)

    def _set_quota(self, record: records.ClientQuotaRecord) -> None:
        key = quota_key(record.entity)
        if not key or len({kind for kind, _ in key}) != len(key):
            raise ReplayError(record, f"entity {record.entity}")
        quotas = self._quotas.get(key)
        value = None if record.remove else record.value
        limits = _with_key(quotas.limits if quotas else None, record.key, value)
        if limits:
            self._quotas.put(key, EntityQuotas(tuple(sorted(record.entity)), limits))
        else:
            self._quotas.remove(key)

    def _give_producer_ids(self, record: records.ProducerIdsRecord) -> None:
        known = self._producer_ids
        if known is not None and record.next_producer_id <= known.next_producer_id:
            raise ReplayError(record, f"{record.next_producer_id} after {known.next_producer_id}")
        self._producer_ids = record

    # Security.

    def _add_acl(self, record: records.AccessControlEntryRecord) -> None:
        if self._acls.get(record.id) is not None:
            raise ReplayError(record, f"id {record.id.hex()} exists")
        self._acls.put(record.id, record)

    def _remove_acl(self, record: records.RemoveAccessControlEntryRecord) -> None:
        if self._acls.get(record.id) is None:
            raise ReplayError(record, f"no entry has the id {record.id.hex()}")
        self._acls.remove(record.id)

    def _scram_user(
        self, record: records.UserScramCredentialRecord | records.RemoveUserScramCredentialRecord
    ) -> ScramUser:
        try:
            return ScramUser(record.name, ScramMechanism(record.mechanism))
        except ValueError as error:
            raise ReplayError(record, f"mechanism {record.mechanism}") from error

    def _add_scram(self, record: records.UserScramCredentialRecord) -> None:
        self._scram.put(self._scram_user(record), record)

    def _remove_scram(self, record: records.RemoveUserScramCredentialRecord) -> None:
        user = self._scram_user(record)
        if self._scram.get(user) is None:
            raise ReplayError(record, f"{record.name} has no such credential")
        self._scram.remove(user)

    def _add_token(self, record: records.DelegationTokenRecord) -> None:
        self._tokens.put(record.token_id, record)

    def _remove_token(self, record: records.RemoveDelegationTokenRecord) -> None:
        if self._tokens.get(record.token_id) is None:
            raise ReplayError(record, f"no token {record.token_id}")
        self._tokens.remove(record.token_id)

    # Transactions.

    def _begin(self, record: records.BeginTransactionRecord) -> None:
        if self._held is not None:
            raise ReplayError(record, "a transaction is open")
        if self._is_snapshot:
            raise ReplayError(record, "a snapshot has no transactions")
        self._held = self._fold(Provenance(-1, -1, -1))
        self.in_transaction = True

    def _end(self, record: records.EndTransactionRecord) -> None:
        if self._held is None:
            raise ReplayError(record, "no transaction is open")
        self._held = None
        self.in_transaction = False

    def _abort(self, record: records.AbortTransactionRecord) -> None:
        if self._held is None:
            raise ReplayError(record, "no transaction is open")
        self._start(self._held)
        self._held = None
        self.in_transaction = False

    def _nothing(self, record: records.NoOpRecord) -> None:
        """The record says only that the log moves."""


_Value = TypeVar("_Value", str, float)


def _with_key(
    present: Mapping[str, _Value] | None, name: str, value: _Value | None
) -> Mapping[str, _Value]:
    """A copy, in the order of the keys, with this one set, or taken away if None."""
    result = dict(present or {})
    if value is None:
        result.pop(name, None)
    else:
        result[name] = value
    return dict(sorted(result.items()))


_REPLAY: Final[Mapping[type[MetadataRecord], Callable[..., None]]] = {
    records.RegisterBrokerRecord: MetadataDelta._register_broker,
    records.UnregisterBrokerRecord: MetadataDelta._unregister_broker,
    records.TopicRecord: MetadataDelta._create_topic,
    records.PartitionRecord: MetadataDelta._add_partition,
    records.ConfigRecord: MetadataDelta._set_config,
    records.PartitionChangeRecord: MetadataDelta._change_partition,
    records.FenceBrokerRecord: MetadataDelta._fence_broker,
    records.UnfenceBrokerRecord: MetadataDelta._unfence_broker,
    records.RemoveTopicRecord: MetadataDelta._remove_topic,
    records.DelegationTokenRecord: MetadataDelta._add_token,
    records.UserScramCredentialRecord: MetadataDelta._add_scram,
    records.FeatureLevelRecord: MetadataDelta._set_feature,
    records.ClientQuotaRecord: MetadataDelta._set_quota,
    records.ProducerIdsRecord: MetadataDelta._give_producer_ids,
    records.BrokerRegistrationChangeRecord: MetadataDelta._change_broker,
    records.AccessControlEntryRecord: MetadataDelta._add_acl,
    records.RemoveAccessControlEntryRecord: MetadataDelta._remove_acl,
    records.NoOpRecord: MetadataDelta._nothing,
    records.RemoveUserScramCredentialRecord: MetadataDelta._remove_scram,
    records.BeginTransactionRecord: MetadataDelta._begin,
    records.EndTransactionRecord: MetadataDelta._end,
    records.AbortTransactionRecord: MetadataDelta._abort,
    records.RemoveDelegationTokenRecord: MetadataDelta._remove_token,
    records.RegisterControllerRecord: MetadataDelta._register_controller,
    records.ClearElrRecord: MetadataDelta._clear_elr,
    records.ReplicaDeletedRecord: MetadataDelta._finish_replica,
    records.PendingDeletionRecord: MetadataDelta._add_deletion,
}
