"""Random valid sequences of metadata records, and a naive fold of them to compare images with.

`RecordSource(random)` gives one record after the other, each valid after those before it: what a
controller could have written. It knows what is valid from a `NaiveMetadata`, which replays records
into plain dicts by the shortest code that does it, copies everything for each transaction, and has
nothing in common with kraftpy's delta. `contents(image)` is the same state read out of an image.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any

from kraftpy.metadata import records as r
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.ids import Uuid

State = dict[str, dict[Any, Any]]

PARTS = (
    *("features", "brokers", "controllers", "topics", "deletions", "configs", "quotas"),
    *("producer_ids", "acls", "scram", "tokens"),
)


def contents(image: MetadataImage) -> State:
    """The state of an image in NaiveMetadata's form, read through the image's public face."""
    return {
        "features": dict(image.features.items()),
        "brokers": dict(image.brokers.items()),
        "controllers": dict(image.controllers.items()),
        "topics": {
            topic_id: (name, dict(enumerate(image.topics[name].partitions)))
            for topic_id, name in image.topic_names.items()
        },
        "deletions": {
            topic_id: (pending.name, set(pending.replicas))
            for topic_id, pending in image.pending_deletions.items()
        },
        "configs": {tuple(key): dict(values) for key, values in image.configs.items()},
        "quotas": {
            frozenset(quotas.entity): dict(quotas.limits) for quotas in image.client_quotas.values()
        },
        "producer_ids": {} if image.producer_ids is None else {"next": image.producer_ids},
        "acls": dict(image.access_control_entries.items()),
        "scram": {tuple(key): value for key, value in image.scram_credentials.items()},
        "tokens": dict(image.delegation_tokens.items()),
    }


class NaiveMetadata:
    """`state` has everything replayed; `visible()` leaves out an open transaction."""

    def __init__(self) -> None:
        self.state: State = {part: {} for part in PARTS}
        self.held: State | None = None

    def visible(self) -> State:
        return self.state if self.held is None else self.held

    def replay(self, record: r.MetadataRecord) -> None:
        s = self.state
        match record:
            case r.RegisterBrokerRecord():
                s["brokers"][record.broker_id] = record
            case r.UnregisterBrokerRecord():
                del s["brokers"][record.broker_id]
                for topic_id, (name, replicas) in list(s["deletions"].items()):
                    rest = {entry for entry in replicas if entry.broker_id != record.broker_id}
                    s["deletions"][topic_id] = (name, rest)
                    if not rest:
                        del s["deletions"][topic_id]
            case r.FenceBrokerRecord() | r.UnfenceBrokerRecord():
                fenced = isinstance(record, r.FenceBrokerRecord)
                self._patch_broker(record.broker_id, fenced=fenced)
            case r.BrokerRegistrationChangeRecord():
                if record.fenced:
                    self._patch_broker(record.broker_id, fenced=record.fenced == 1)
                if record.in_controlled_shutdown:
                    self._patch_broker(record.broker_id, in_controlled_shutdown=True)
                if record.log_dirs:
                    self._patch_broker(record.broker_id, log_dirs=record.log_dirs)
                if record.cordoned_log_dirs is not None:
                    self._patch_broker(record.broker_id, cordoned_log_dirs=record.cordoned_log_dirs)
            case r.RegisterControllerRecord():
                s["controllers"][record.controller_id] = record
            case r.BeginTransactionRecord():
                self.held = deepcopy(s)
            case r.EndTransactionRecord():
                self.held = None
            case r.AbortTransactionRecord():
                assert self.held is not None
                self.state, self.held = self.held, None
            case _:
                self._replay_topic(record)
                self._replay_setting(record)

    def _patch_broker(self, broker_id: int, **values: Any) -> None:
        brokers = self.state["brokers"]
        brokers[broker_id] = replace(brokers[broker_id], **values)

    def _replay_topic(self, record: r.MetadataRecord) -> None:
        s = self.state
        match record:
            case r.TopicRecord():
                s["topics"][record.topic_id] = (record.name, {})
            case r.PartitionRecord():
                s["topics"][record.topic_id][1][record.partition_id] = record
            case r.PartitionChangeRecord():
                self._change_partition(record)
            case r.ClearElrRecord():
                for name, partitions in s["topics"].values():
                    for key, partition in partitions.items():
                        has_elr = partition.eligible_leader_replicas or partition.last_known_elr
                        if has_elr and record.topic_name in ("", name):
                            partitions[key] = replace(
                                partition,
                                eligible_leader_replicas=(),
                                last_known_elr=(),
                                partition_epoch=partition.partition_epoch + 1,
                            )
            case r.RemoveTopicRecord():
                name, partitions = s["topics"].pop(record.topic_id)
                s["configs"].pop((2, name), None)
                replicas = {
                    r.PendingReplica(partition_id, broker_id)
                    for partition_id, partition in partitions.items()
                    for broker_id in partition.replicas
                    if broker_id in s["brokers"]
                }
                if replicas:
                    s["deletions"][record.topic_id] = (name, replicas)
            case r.ReplicaDeletedRecord():
                name, replicas = s["deletions"][record.topic_id]
                replicas.remove(r.PendingReplica(record.partition_id, record.broker_id))
                if not replicas:
                    del s["deletions"][record.topic_id]

    def _change_partition(self, record: r.PartitionChangeRecord) -> None:
        partitions = self.state["topics"][record.topic_id][1]
        old = partitions[record.partition_id]
        values: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
        for name in (
            *("isr", "replicas", "removing_replicas", "adding_replicas", "directories"),
            *("eligible_leader_replicas", "last_known_elr"),
        ):
            if getattr(record, name) is not None:
                values[name] = getattr(record, name)
        if record.leader != -2:
            values |= {"leader": record.leader, "leader_epoch": old.leader_epoch + 1}
        if record.leader_recovery_state != -1:
            values["leader_recovery_state"] = record.leader_recovery_state
        partitions[record.partition_id] = replace(old, **values)

    def _replay_setting(self, record: r.MetadataRecord) -> None:
        s = self.state
        match record:
            case r.FeatureLevelRecord():
                set_or_remove(s["features"], record.name, record.feature_level or None)
            case r.ConfigRecord():
                resource = (record.resource_type, record.resource_name)
                values = s["configs"].setdefault(resource, {})
                set_or_remove(values, record.name, record.value)
                if not values:
                    del s["configs"][resource]
            case r.ClientQuotaRecord():
                entity = frozenset(record.entity)
                limits = s["quotas"].setdefault(entity, {})
                set_or_remove(limits, record.key, None if record.remove else record.value)
                if not limits:
                    del s["quotas"][entity]
            case r.ProducerIdsRecord():
                s["producer_ids"]["next"] = record
            case r.AccessControlEntryRecord():
                s["acls"][record.id] = record
            case r.RemoveAccessControlEntryRecord():
                del s["acls"][record.id]
            case r.UserScramCredentialRecord():
                s["scram"][record.name, record.mechanism] = record
            case r.RemoveUserScramCredentialRecord():
                del s["scram"][record.name, record.mechanism]
            case r.DelegationTokenRecord():
                s["tokens"][record.token_id] = record
            case r.RemoveDelegationTokenRecord():
                del s["tokens"][record.token_id]


def set_or_remove(values: dict[Any, Any], key: Any, value: Any) -> None:
    values.pop(key, None)
    if value is not None:
        values[key] = value


class RecordSource:
    """An endless iterator of records that are valid one after the other."""

    def __init__(self, random: Random, *, transactions: bool = True) -> None:
        self.random = random
        self.model = NaiveMetadata()
        self._transactions = transactions
        self._first = True
        self._epoch = 0
        self._names = 0

    def __iter__(self) -> Iterator[r.MetadataRecord]:
        return self

    def take(self, count: int) -> list[r.MetadataRecord]:
        return [next(self) for _ in range(count)]

    def __next__(self) -> r.MetadataRecord:
        if self._first:
            self._first = False
            record: r.MetadataRecord | None = r.FeatureLevelRecord(r.METADATA_VERSION, 30)
        else:
            record = None
        while record is None:
            makers = (self._broker, self._topic, self._topic, self._topic, self._setting)
            if self._transactions and self.random.random() < 0.03:
                makers = (self._transaction,)
            record = self.random.choice(makers)()
        self.model.replay(record)
        return record

    def close_transaction(self) -> list[r.MetadataRecord]:
        """What ends an open transaction, if there is one."""
        if self.model.held is None:
            return []
        self.model.replay(r.EndTransactionRecord())
        return [r.EndTransactionRecord()]

    def uuid(self) -> Uuid:
        return Uuid(self.random.randbytes(16))

    def _pick(self, part: str) -> Any:
        keys = sorted(self.model.state[part], key=repr)
        return self.random.choice(keys) if keys else None

    def _some(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(value for value in values if self.random.random() < 0.6)

    def _endpoints(self) -> tuple[r.Endpoint, ...]:
        port = self.random.randrange(65536)
        return (r.Endpoint("PLAINTEXT", f"host-{port % 7}", port, 0),)

    def _transaction(self) -> r.MetadataRecord:
        if self.model.held is None:
            return r.BeginTransactionRecord(self.random.choice((None, "start")))
        if self.random.random() < 0.5:
            return r.EndTransactionRecord()
        return r.AbortTransactionRecord(self.random.choice((None, "enough")))

    def _broker(self) -> r.MetadataRecord | None:
        random = self.random
        kind = random.randrange(8)
        if kind == 7:
            features = (r.FeatureRange(r.METADATA_VERSION, 7, 30),)
            node_id = random.randrange(3)
            return r.RegisterControllerRecord(node_id, self.uuid(), self._endpoints(), features)
        broker_id = self._pick("brokers")
        if kind < 2 or broker_id is None:
            self._epoch += random.randrange(1, 100)
            return r.RegisterBrokerRecord(
                broker_id=random.randrange(6),
                incarnation_id=self.uuid(),
                broker_epoch=self._epoch,
                end_points=self._endpoints(),
                rack=random.choice((None, "a", "b")),
                fenced=random.random() < 0.8,
                in_controlled_shutdown=random.random() < 0.1,
                log_dirs=(self.uuid(),) * random.randrange(3),
                cordoned_log_dirs=random.choice((None, (), (self.uuid(),))),
            )
        epoch = self.model.state["brokers"][broker_id].broker_epoch
        if kind == 2:
            return r.UnregisterBrokerRecord(broker_id, epoch)
        if kind == 3:
            return r.FenceBrokerRecord(broker_id, epoch)
        if kind == 4:
            return r.UnfenceBrokerRecord(broker_id, epoch)
        return r.BrokerRegistrationChangeRecord(
            broker_id,
            epoch,
            fenced=random.choice((-1, 0, 1)),
            in_controlled_shutdown=random.random() < 0.3,
            log_dirs=(self.uuid(),) * random.randrange(2),
            cordoned_log_dirs=random.choice((None, (), (self.uuid(),))),
        )

    def _topic(self) -> r.MetadataRecord | None:
        random, state = self.random, self.model.state
        kind = random.randrange(16)
        topic_id = self._pick("topics")
        if kind == 0:
            return self._replica_deleted()
        if kind == 1 or topic_id is None:
            # A name is free again as soon as its topic is removed; few names make that happen.
            taken = [name for name, _ in state["topics"].values()]
            free = [name for name in map("topic-{}".format, range(40)) if name not in taken]
            return r.TopicRecord(random.choice(free), self.uuid()) if free else None
        name, partitions = state["topics"][topic_id]
        if kind == 2:
            return r.RemoveTopicRecord(topic_id)
        if kind == 3:
            return r.ClearElrRecord(random.choice(("", name)))
        if kind < 8 or not partitions:
            replicas = tuple(random.sample(range(6), random.randrange(1, 4)))
            return r.PartitionRecord(
                partition_id=len(partitions),
                topic_id=topic_id,
                replicas=replicas,
                isr=self._some(replicas),
                leader=random.choice((*replicas, r.NO_LEADER)),
                leader_recovery_state=random.randrange(2),
                directories=random.choice(((), tuple(self.uuid() for _ in replicas))),
                eligible_leader_replicas=self._some(replicas),
                last_known_elr=self._some(replicas[:1]),
            )
        return self._partition_change(topic_id, random.choice(sorted(partitions)), partitions)

    def _partition_change(
        self, topic_id: Uuid, partition_id: int, partitions: dict[int, r.PartitionRecord]
    ) -> r.PartitionChangeRecord:
        random = self.random
        present = partitions[partition_id].replicas
        replicas = random.choice((None, tuple(random.sample(range(6), random.randrange(1, 4)))))
        target = replicas or present
        return r.PartitionChangeRecord(
            partition_id,
            topic_id,
            isr=random.choice((None, self._some(target))),
            leader=random.choice((r.LEADER_UNCHANGED, r.NO_LEADER, *target)),
            replicas=replicas,
            removing_replicas=random.choice((None, self._some(target))),
            adding_replicas=random.choice((None, self._some(target))),
            leader_recovery_state=random.choice((r.RECOVERY_UNCHANGED, r.RECOVERED, r.RECOVERING)),
            directories=tuple(self.uuid() for _ in target) if replicas else None,
            eligible_leader_replicas=random.choice((None, self._some(target))),
            last_known_elr=random.choice((None, self._some(target))),
        )

    def _replica_deleted(self) -> r.MetadataRecord | None:
        topic_id = self._pick("deletions")
        if topic_id is None:
            return None
        _, replicas = self.model.state["deletions"][topic_id]
        return r.ReplicaDeletedRecord(topic_id, *self.random.choice(sorted(replicas)))

    def _setting(self) -> r.MetadataRecord | None:
        random, state = self.random, self.model.state
        name = f"name-{random.randrange(8)}"
        match random.randrange(10):
            case 0:
                feature = random.choice(("group.version", "transaction.version"))
                return r.FeatureLevelRecord(feature, random.randrange(3))
            case 1 | 2:
                topics = [topic for topic, _ in state["topics"].values()]
                kind, resource = random.choice(
                    ((2, random.choice(topics or ["x"])), (4, ""), (4, "1"), (16, name), (32, name))
                )
                return r.ConfigRecord(kind, resource, name, random.choice((None, "1", "2", "2")))
            case 3:
                parts = [r.QuotaEntity(kind, None) for kind in ("client-id", "user")]
                parts += [r.QuotaEntity(kind, name) for kind in ("client-id", "user")]
                first = random.choice(parts)
                others = [part for part in parts if part.entity_type != first.entity_type]
                entity = (first, random.choice(others))[: random.randrange(1, 3)]
                is_removal = random.random() < 0.3
                return r.ClientQuotaRecord(entity, "rate", random.random() * 100, remove=is_removal)
            case 4:
                known = state["producer_ids"].get("next")
                start = known.next_producer_id if known else 0
                return r.ProducerIdsRecord(1, 5, start + 1000)
            case 5:
                entry_id = self._pick("acls")
                if entry_id is not None and random.random() < 0.4:
                    return r.RemoveAccessControlEntryRecord(entry_id)
                return r.AccessControlEntryRecord(
                    self.uuid(), 2, name, 3, f"User:{name}", "*", random.randrange(2, 13), 3
                )
            case 6 | 7:
                return self._credential(name)
            case _:
                return r.NoOpRecord()

    def _credential(self, name: str) -> r.MetadataRecord:
        random = self.random
        user, token_id = self._pick("scram"), self._pick("tokens")
        match random.randrange(5):
            case 0 if user is not None:
                return r.RemoveUserScramCredentialRecord(*user)
            case 1 if token_id is not None:
                return r.RemoveDelegationTokenRecord(token_id)
            case 2 | 3:
                keys = (random.randbytes(8), random.randbytes(8), random.randbytes(8))
                return r.UserScramCredentialRecord(name, random.randrange(1, 3), *keys, 4096)
            case _:
                return r.DelegationTokenRecord("User:a", "User:b", ("User:c",), 1, 9, 5, name)
