"""What the controller's operations take from the configuration, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftpy.metadata.records import FeatureRange

__all__ = ["ControllerSettings"]


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Kafka's names with underscores; durations in milliseconds."""

    node_id: int
    cluster_id: str
    # The features that this node supports, metadata.version among them.
    features: tuple[FeatureRange, ...] = ()
    broker_session_timeout_ms: int = 9000
    broker_heartbeat_interval_ms: int = 2000
    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    # How much of a broker's leaderships may be elsewhere; Kafka 4 has no key for it any more.
    leader_imbalance_per_broker_percentage: int = 0
    unclean_leader_election_interval_ms: int = 300_000
    metadata_max_idle_interval_ms: int = 500
    # How long a broker may stay silent after a failover before it is probed (decision 14).
    probe_after_ms: int = 300
    # How many partitions are looked at in one go: some milliseconds' work (result.py).
    partitions_at_once: int = 100
    # This node's static configuration, by key: the base under dynamic settings.
    static_configs: Mapping[str, str] = field(default_factory=dict)
