"""The data path's handlers, put together: a broker's listeners serve them beside the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraftpy.api.handler import Handler
from kraftpy.api.k00_produce import ProduceHandler
from kraftpy.api.k01_fetch import FetchHandler
from kraftpy.api.k02_list_offsets import ListOffsetsHandler
from kraftpy.api.k21_delete_records import DeleteRecordsHandler
from kraftpy.api.k23_offset_for_leader_epoch import OffsetForLeaderEpochHandler
from kraftpy.api.k34_alter_replica_log_dirs import AlterReplicaLogDirsHandler
from kraftpy.api.k35_describe_log_dirs import DescribeLogDirsHandler
from kraftpy.api.k61_describe_producers import DescribeProducersHandler
from kraftpy.api.leader_hints import LeaderHints
from kraftpy.api.transactional_produce import ProduceVerification
from kraftpy.broker.fetch_reader import FetchReader
from kraftpy.broker.fetch_sessions import FetchSessions
from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.replica_selector import RACK_AWARE_SELECTOR, RackAwareSelector
from kraftpy.broker.transaction_verifier import TransactionVerifier
from kraftpy.log.manager import LogManager
from kraftpy.net.line import Spawn
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.protocol.ids import Uuid
from kraftpy.security.replication_quota import ReplicationQuota
from kraftpy.world import World

__all__ = ["DataSettings", "data_handlers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    fetch_max_bytes: int = 57_671_680
    """`fetch.max.bytes`"""
    session_slots: int = 1000
    """`max.incremental.fetch.session.cache.slots`"""
    selector_class: str | None = None
    """`replica.selector.class`; only Kafka's rack-aware one does anything"""


def data_handlers(
    settings: DataSettings,
    world: World,
    *,
    replicas: HostedReplicas,
    logs: LogManager,
    cluster: BrokerMetadata,
    spawn: Spawn,
    metrics: TopicMetrics,
    registry: MetricRegistry,
    moved: Callable[[Uuid, int, Uuid], None],
    verifier: TransactionVerifier | None = None,
    quota: ReplicationQuota | None = None,
) -> list[Handler]:
    """`spawn` starts tasks that live as long as the broker; `moved` is told where a replica is
    that has been moved to another directory (DirectoryAssignments.assign). Without `verifier`,
    transactional batches are left to what the logs say of them. `quota` is the leaders'.
    """
    clock = world.clock
    hints = LeaderHints(replicas, cluster)
    sessions = FetchSessions(
        replicas.fetch_purgatory,
        registry,
        clock=clock,
        random=world.rng.stream("fetch-sessions"),
        slots=settings.session_slots,
        buggify=world.buggify,
    )
    is_rack_aware = settings.selector_class == RACK_AWARE_SELECTOR
    reader = FetchReader(
        replicas,
        sessions,
        cluster,
        clock=clock,
        metrics=metrics,
        selector=RackAwareSelector() if is_rack_aware else None,
        quota=quota,
    )
    return [
        ProduceHandler(
            replicas,
            hints,
            clock=clock,
            metrics=metrics,
            registry=registry,
            verification=None if verifier is None else ProduceVerification(verifier),
        ),
        FetchHandler(
            replicas,
            sessions,
            reader,
            hints,
            clock=clock,
            spawn=spawn,
            metrics=metrics,
            registry=registry,
            max_bytes=settings.fetch_max_bytes,
        ),
        ListOffsetsHandler(replicas, clock=clock, spawn=spawn),
        DeleteRecordsHandler(replicas),
        OffsetForLeaderEpochHandler(replicas),
        AlterReplicaLogDirsHandler(replicas, logs, spawn=spawn, moved=moved),
        DescribeLogDirsHandler(logs, world.disk, spawn=spawn),
        DescribeProducersHandler(replicas),
    ]
