"""Puts together what replicas need: the manager, its fetchers, and its ways to the controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraftpy.broker.controller_channel import ControllerChannel
from kraftpy.broker.directory_assignments import DirectoryAssignments
from kraftpy.broker.fetcher_manager import FetcherManager
from kraftpy.broker.fetcher_steps import FetcherSettings
from kraftpy.broker.hosted import HostedPartitions
from kraftpy.broker.isr_sender import IsrSender
from kraftpy.broker.lifecycle import BrokerLifecycle
from kraftpy.broker.replica_metrics import ReplicaMetrics
from kraftpy.broker.replicas import ReplicaManager, ReplicaSettings
from kraftpy.broker.replication_traffic import CountedTraffic
from kraftpy.broker.suspects import SuspectedBrokers
from kraftpy.log.manager import LogManager
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.security.replication_quota import ReplicationQuota
from kraftpy.world import World

__all__ = ["ReplicaParts", "assemble_replicas"]


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """`replicas` runs the others; these are for those who change settings or tell of moves."""

    replicas: ReplicaManager
    fetchers: FetcherManager
    assignments: DirectoryAssignments


def assemble_replicas(
    settings: ReplicaSettings,
    fetching: FetcherSettings,
    world: World,
    registry: MetricRegistry,
    *,
    fetcher_count: int,
    listener_name: str,
    socket_timeout_ms: int,
    logs: LogManager,
    lifecycle: BrokerLifecycle,
    alterations: ControllerChannel,
    assigning: ControllerChannel,
    suspects: SuspectedBrokers,
    topic_metrics: TopicMetrics,
    min_insync_replicas: Callable[[str], int],
    quota: ReplicationQuota | None = None,
) -> ReplicaParts:
    """`fetcher_count` is `num.replica.fetchers`, `listener_name` that of the listener between
    brokers, `socket_timeout_ms` is `replica.socket.timeout.ms`. AlterPartition goes through
    `alterations`, AssignReplicasToDirs through `assigning`. `quota` is the followers'.
    """
    clock, broker_id = world.clock, settings.broker_id
    hosted = HostedPartitions()
    metrics = ReplicaMetrics(registry, hosted, clock, topic_metrics)

    def broker_epoch() -> int:
        return lifecycle.broker_epoch

    fetchers = FetcherManager(
        fetching,
        fetcher_count,
        world,
        registry,
        hosted=hosted,
        logs=logs,
        traffic=CountedTraffic(hosted, topic_metrics, clock, quota),
        broker_epoch=broker_epoch,
        listener_name=listener_name,
        suspects=suspects,
        socket_timeout_ms=socket_timeout_ms,
    )
    assignments = DirectoryAssignments(broker_id, broker_epoch, assigning, clock)
    replicas = ReplicaManager(
        settings,
        clock,
        registry,
        hosted=hosted,
        logs=logs,
        fetchers=fetchers,
        isr_sender=IsrSender(
            broker_id, broker_epoch, alterations, clock, metrics, buggify=world.buggify
        ),
        assignments=assignments,
        metrics=metrics,
        min_insync_replicas=min_insync_replicas,
        directory_lost=lifecycle.directory_failed,
        is_stopping=lambda: lifecycle.is_stopping,
        buggify=world.buggify,
    )
    return ReplicaParts(replicas, fetchers, assignments)
