"""What groups are governed by; each field names the broker's key that it is read from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kraftpy.config import NodeConfig

__all__ = ["GroupSettings", "MigrationPolicy"]

_INT_MAX: Final = 2**31 - 1
_MS_A_MINUTE: Final = 60_000


class MigrationPolicy(StrEnum):
    """Which groups may change their protocol while they have members."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Defaults are Kafka's."""

    # Classic groups.
    initial_rebalance_delay_ms: int = 3000
    """group.initial.rebalance.delay.ms"""
    min_session_timeout_ms: int = 6000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    max_size: int = _INT_MAX
    """group.max.size"""

    # Consumer groups.
    protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    """group.coordinator.rebalance.protocols"""
    consumer_session_timeout_ms: int = 45_000
    """group.consumer.session.timeout.ms"""
    consumer_min_session_timeout_ms: int = 45_000
    """group.consumer.min.session.timeout.ms"""
    consumer_max_session_timeout_ms: int = 60_000
    """group.consumer.max.session.timeout.ms"""
    consumer_heartbeat_interval_ms: int = 5000
    """group.consumer.heartbeat.interval.ms"""
    consumer_min_heartbeat_interval_ms: int = 5000
    """group.consumer.min.heartbeat.interval.ms"""
    consumer_max_heartbeat_interval_ms: int = 15_000
    """group.consumer.max.heartbeat.interval.ms"""
    consumer_assignment_interval_ms: int = 1000
    """group.consumer.assignment.interval.ms"""
    consumer_min_assignment_interval_ms: int = 0
    """group.consumer.min.assignment.interval.ms"""
    consumer_max_assignment_interval_ms: int = 15_000
    """group.consumer.max.assignment.interval.ms"""
    consumer_max_size: int = _INT_MAX
    """group.consumer.max.size"""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors"""
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    """group.consumer.migration.policy"""
    consumer_regex_refresh_interval_ms: int = 600_000
    """group.consumer.regex.refresh.interval.ms"""

    # Offsets.
    offset_metadata_max_length: int = 4096
    """offset.metadata.max.bytes; Kafka counts characters, whatever the name says."""
    offsets_retention_ms: int = 10_080 * _MS_A_MINUTE
    """offsets.retention.minutes"""
    offsets_retention_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms"""

    @classmethod
    def from_config(cls, config: NodeConfig) -> GroupSettings:
        policy = config.get_str("group.consumer.migration.policy").lower()
        return cls(
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            max_size=config.get_int("group.max.size"),
            protocols=config.get_list("group.coordinator.rebalance.protocols"),
            consumer_session_timeout_ms=config.get_int("group.consumer.session.timeout.ms"),
            consumer_min_session_timeout_ms=config.get_int("group.consumer.min.session.timeout.ms"),
            consumer_max_session_timeout_ms=config.get_int("group.consumer.max.session.timeout.ms"),
            consumer_heartbeat_interval_ms=config.get_int("group.consumer.heartbeat.interval.ms"),
            consumer_min_heartbeat_interval_ms=config.get_int(
                "group.consumer.min.heartbeat.interval.ms"
            ),
            consumer_max_heartbeat_interval_ms=config.get_int(
                "group.consumer.max.heartbeat.interval.ms"
            ),
            consumer_assignment_interval_ms=config.get_int("group.consumer.assignment.interval.ms"),
            consumer_min_assignment_interval_ms=config.get_int(
                "group.consumer.min.assignment.interval.ms"
            ),
            consumer_max_assignment_interval_ms=config.get_int(
                "group.consumer.max.assignment.interval.ms"
            ),
            consumer_max_size=config.get_int("group.consumer.max.size"),
            consumer_assignors=config.get_list("group.consumer.assignors"),
            consumer_migration_policy=MigrationPolicy(policy),
            consumer_regex_refresh_interval_ms=config.get_int(
                "group.consumer.regex.refresh.interval.ms"
            ),
            offset_metadata_max_length=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * _MS_A_MINUTE,
            offsets_retention_check_interval_ms=config.get_int(
                "offsets.retention.check.interval.ms"
            ),
        )
