"""What a broker's rooms take from the configuration, as plain values."""

from __future__ import annotations

from collections.abc import Mapping

from kraftpy.api.data_handlers import DataSettings
from kraftpy.broker.fetcher_steps import FetcherSettings
from kraftpy.broker.lifecycle_core import BrokerIdentity, LifecycleSettings
from kraftpy.broker.purgatories import PurgatorySettings
from kraftpy.broker.replicas import ReplicaSettings
from kraftpy.broker.replication_throttles import ReplicationLimits, ReplicationWindows
from kraftpy.config import NodeConfig
from kraftpy.metadata.features import supported_features
from kraftpy.metadata.records import Endpoint
from kraftpy.protocol.ids import Uuid, random_uuid
from kraftpy.security.windows import QuotaWindow
from kraftpy.world import World

__all__ = [
    "broker_identity",
    "client_window",
    "cordoned_ids",
    "data_settings",
    "fetcher_settings",
    "lifecycle_settings",
    "mutation_window",
    "replica_settings",
    "replication_limits",
    "replication_windows",
]


def broker_identity(
    config: NodeConfig,
    cluster_id: str,
    endpoints: tuple[Endpoint, ...],
    directory_ids: Mapping[str, Uuid],
    world: World,
) -> BrokerIdentity:
    """What this process registers as, with the data directories that it can use, by their paths;
    every process is another incarnation.
    """
    return BrokerIdentity(
        broker_id=config.node_id,
        cluster_id=cluster_id,
        incarnation_id=random_uuid(world.rng.stream("incarnation")),
        endpoints=endpoints,
        features=supported_features(),
        rack=_optional(config, "broker.rack"),
        directory_ids=tuple(directory_ids.values()),
        cordoned_directory_ids=cordoned_ids(config, directory_ids),
    )


def cordoned_ids(config: NodeConfig, directory_ids: Mapping[str, Uuid]) -> tuple[Uuid, ...]:
    """Of the directories that get no new partitions."""
    cordoned = config.get_list("cordoned.log.dirs")
    return tuple(
        directory_id
        for path, directory_id in directory_ids.items()
        if path in cordoned or "*" in cordoned
    )


def lifecycle_settings(config: NodeConfig) -> LifecycleSettings:
    return LifecycleSettings(
        heartbeat_interval_ms=config.get_int("broker.heartbeat.interval.ms"),
        session_timeout_ms=config.get_int("broker.session.timeout.ms"),
        registration_timeout_ms=config.get_int("initial.broker.registration.timeout.ms"),
        directory_failure_timeout_ms=config.get_int("log.dir.failure.timeout.ms"),
        asks_before_stopping=config.get_bool("controlled.shutdown.enable"),
    )


def replica_settings(config: NodeConfig) -> ReplicaSettings:
    return ReplicaSettings(
        broker_id=config.node_id,
        lag_time_max_ms=config.get_int("replica.lag.time.max.ms"),
        purgatories=PurgatorySettings(
            produce_purge_interval=config.get_int("producer.purgatory.purge.interval.requests"),
            fetch_purge_interval=config.get_int("fetch.purgatory.purge.interval.requests"),
            delete_records_purge_interval=config.get_int(
                "delete.records.purgatory.purge.interval.requests"
            ),
        ),
    )


def fetcher_settings(config: NodeConfig) -> FetcherSettings:
    return FetcherSettings(
        broker_id=config.node_id,
        max_wait_ms=config.get_int("replica.fetch.wait.max.ms"),
        min_bytes=config.get_int("replica.fetch.min.bytes"),
        max_bytes=config.get_int("replica.fetch.response.max.bytes"),
        partition_max_bytes=config.get_int("replica.fetch.max.bytes"),
        backoff_ms=config.get_int("replica.fetch.backoff.ms"),
    )


def client_window(config: NodeConfig) -> QuotaWindow:
    return _window(config, "quota.window.num", "quota.window.size.seconds")


def mutation_window(config: NodeConfig) -> QuotaWindow:
    return _window(config, "controller.quota.window.num", "controller.quota.window.size.seconds")


def replication_windows(config: NodeConfig) -> ReplicationWindows:
    return ReplicationWindows(
        replication=_window(
            config, "replication.quota.window.num", "replication.quota.window.size.seconds"
        ),
        moves=_window(
            config,
            "alter.log.dirs.replication.quota.window.num",
            "alter.log.dirs.replication.quota.window.size.seconds",
        ),
    )


def _window(config: NodeConfig, count_key: str, seconds_key: str) -> QuotaWindow:
    return QuotaWindow(config.get_int(count_key), config.get_int(seconds_key) * 1000)


def replication_limits(config: NodeConfig) -> ReplicationLimits:
    return ReplicationLimits(
        leader=config.get_int("leader.replication.throttled.rate"),
        follower=config.get_int("follower.replication.throttled.rate"),
        moves=config.get_int("replica.alter.log.dirs.io.max.bytes.per.second"),
    )


def data_settings(config: NodeConfig) -> DataSettings:
    return DataSettings(
        fetch_max_bytes=config.get_int("fetch.max.bytes"),
        session_slots=config.get_int("max.incremental.fetch.session.cache.slots"),
        selector_class=_optional(config, "replica.selector.class"),
    )


def _optional(config: NodeConfig, key: str) -> str | None:
    value = config[key]
    return value if isinstance(value, str) else None
