"""The coordinators of a node: those of groups and of transactions, on the broker's partitions.

Both keep their state in internal topics, which come into being when the first client looks for a
coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import trio

from kraftpy.api.group_handlers import group_handlers
from kraftpy.api.handler import Handler
from kraftpy.api.k10_find_coordinator import GROUP_KEY, TRANSACTION_KEY, FindCoordinatorHandler
from kraftpy.api.transaction_handlers import transaction_handlers
from kraftpy.broker.coordinator_host import CoordinatorHost
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.coordinator_metrics import show_load_times, show_shards
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.producer_ids import ProducerIds
from kraftpy.broker.replicas import ReplicaManager
from kraftpy.broker.topic_configs import TopicConfigs
from kraftpy.broker.topic_creation import AutoTopicCreation, TopicTemplate
from kraftpy.broker.transaction_parts import (
    TRANSACTION_TOPIC,
    TransactionBrokerSettings,
    TransactionParts,
    assemble_transactions,
)
from kraftpy.broker.transaction_verifier import VerifierSettings
from kraftpy.config import DynamicConfig, NodeConfig
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.groups.metrics import GroupGauges, GroupMetrics
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.ports import ShardContext
from kraftpy.coordinator.shard import ShardState
from kraftpy.coordinator.shard_writing import ShardSettings
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.metadata.publisher import Publisher
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.protocol.coordinator_records import GROUP_RECORDS
from kraftpy.records.compression import Codec
from kraftpy.world import World

__all__ = [
    "OFFSETS_TOPIC",
    "Coordinators",
    "assemble_coordinators",
    "internal_topics",
    "transaction_settings",
]

OFFSETS_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class Coordinators:
    groups: CoordinatorHost[GroupMachine]
    transactions: TransactionParts
    handlers: list[Handler]

    def publishers(self) -> Iterator[Publisher]:
        """To be installed before the replicas, which tell of elections in what these know."""
        yield self.groups
        yield self.transactions.host
        yield self.transactions.sender

    def start(self, nursery: trio.Nursery) -> None:
        for host in (self.groups, self.transactions.host):
            nursery.start_soon(host.run, name=host.name)


def internal_topics(config: NodeConfig) -> dict[str, TopicTemplate]:
    """What the topics of the coordinators are created like, by their names."""
    return {
        OFFSETS_TOPIC: TopicTemplate(
            config.get_int("offsets.topic.num.partitions"),
            config.get_int("offsets.topic.replication.factor"),
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
                # The coordinator compresses, if anybody does (offsets.topic.compression.codec).
                "compression.type": "producer",
            },
        ),
        TRANSACTION_TOPIC: TopicTemplate(
            config.get_int("transaction.state.log.num.partitions"),
            config.get_int("transaction.state.log.replication.factor"),
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
                "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
                "compression.type": "uncompressed",
                # A transaction that was decided must not become undecided.
                "unclean.leader.election.enable": "false",
            },
        ),
    }


def assemble_coordinators(
    config: DynamicConfig,
    world: World,
    nursery: trio.Nursery,
    registry: MetricRegistry,
    *,
    cluster: BrokerMetadata,
    replicas: ReplicaManager,
    configs: TopicConfigs,
    producer_ids: ProducerIds,
    creation: AutoTopicCreation,
) -> Coordinators:
    """Their tasks, but for those of `start`, live in `nursery`."""
    static = config.current
    topics = internal_topics(static)
    lookups = {
        GROUP_KEY: CoordinatorLookup(OFFSETS_TOPIC, cluster, topics[OFFSETS_TOPIC].num_partitions),
        TRANSACTION_KEY: CoordinatorLookup(
            TRANSACTION_TOPIC, cluster, topics[TRANSACTION_TOPIC].num_partitions
        ),
    }
    groups = _group_host(static, world, configs, registry)
    transactions = assemble_transactions(
        transaction_settings(static),
        world,
        nursery,
        registry,
        cluster=cluster,
        lookup=lookups[TRANSACTION_KEY],
        replicas=replicas,
        complete_in_groups=groups.runtime.complete_transaction,
        provide_producer_id=producer_ids.provide,
        max_batch_bytes=lambda: configs.config_of(TRANSACTION_TOPIC).max_message_bytes,
        is_verification_enabled=lambda: config.current.get_bool(
            "transaction.partition.verification.enable"
        ),
    )
    for host in (groups, transactions.host):
        replicas.listen(host.topic, host.role_changed, host.committed)
    show_shards(registry, "group-coordinator-metrics", groups.runtime.shards)
    show_load_times(registry, "group-coordinator-metrics", groups.load_times)
    show_load_times(registry, "transaction-coordinator-metrics", transactions.host.load_times)
    return Coordinators(
        groups,
        transactions,
        [
            FindCoordinatorHandler(lookups, creation),
            *group_handlers(groups.runtime, lookups[GROUP_KEY], cluster),
            *transaction_handlers(
                transactions,
                producer_ids=producer_ids,
                cluster=cluster,
                replicas=replicas,
                groups=groups.runtime,
                group_lookup=lookups[GROUP_KEY],
            ),
        ],
    )


def _group_host(
    config: NodeConfig, world: World, configs: TopicConfigs, registry: MetricRegistry
) -> CoordinatorHost[GroupMachine]:
    settings = GroupSettings.from_config(config)
    random = world.rng.stream("group-members")
    metrics = GroupMetrics(registry)

    def machine(context: ShardContext) -> GroupMachine:
        return GroupMachine(context, settings, random, metrics)

    def active() -> list[GroupMachine]:
        return [each.machine for each in host.runtime.shards() if each.state is ShardState.ACTIVE]

    GroupGauges(
        registry,
        world.clock,
        groups=lambda: (group for each in active() for group in each.directory.committed_all()),
        offset_count=lambda: sum(each.offsets.state.count for each in active()),
    )
    host = CoordinatorHost(
        OFFSETS_TOPIC,
        world.clock,
        machine,
        GROUP_RECORDS,
        ShardSettings(
            append_linger_ms=config.get_int("group.coordinator.append.linger.ms"),
            write_timeout_ms=config.get_int("offsets.commit.timeout.ms"),
            codec=Codec(config.get_int("offsets.topic.compression.codec")),
        ),
        load_buffer_bytes=config.get_int("offsets.load.buffer.size"),
        max_batch_bytes=lambda: configs.config_of(OFFSETS_TOPIC).max_message_bytes,
        buggify=world.buggify,
    )
    return host


def transaction_settings(config: NodeConfig) -> TransactionBrokerSettings:
    return TransactionBrokerSettings(
        broker_id=config.node_id,
        listener_name=config.topology.inter_broker_listener_name,
        transactions=TransactionSettings.from_config(config),
        verifier=VerifierSettings(
            retry_backoff_ms=config.get_int("add.partitions.to.txn.retry.backoff.ms"),
            retry_backoff_max_ms=config.get_int("add.partitions.to.txn.retry.backoff.max.ms"),
        ),
        request_timeout_ms=config.get_int("request.timeout.ms"),
        load_buffer_bytes=config.get_int("transaction.state.log.load.buffer.size"),
    )
