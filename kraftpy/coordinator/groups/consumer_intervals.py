"""The times that a consumer group goes by: its own settings, within the bounds of its broker.

A setting is checked when it is made, but the broker's bounds may have changed since. A value that
is beyond them now counts as the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import ConfigResourceType

__all__ = ["ConsumerIntervals", "consumer_intervals"]

_ASSIGNMENT_INTERVAL: Final = "group.consumer.assignment.interval.ms"
_ALL_BROKERS: Final = ""


@dataclass(frozen=True, slots=True)
class ConsumerIntervals:
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def consumer_intervals(
    settings: GroupSettings, image: MetadataImage, group_id: str
) -> ConsumerIntervals:
    own = image.config(ConfigResourceType.GROUP, group_id)
    # The one among the brokers' defaults that changes while they run.
    changed = image.config(ConfigResourceType.BROKER, _ALL_BROKERS).get(_ASSIGNMENT_INTERVAL)
    assignment_interval_ms = settings.consumer_assignment_interval_ms
    if changed is not None:
        assignment_interval_ms = int(changed)
    return ConsumerIntervals(
        _bounded(
            own,
            "consumer.session.timeout.ms",
            settings.consumer_session_timeout_ms,
            settings.consumer_min_session_timeout_ms,
            settings.consumer_max_session_timeout_ms,
        ),
        _bounded(
            own,
            "consumer.heartbeat.interval.ms",
            settings.consumer_heartbeat_interval_ms,
            settings.consumer_min_heartbeat_interval_ms,
            settings.consumer_max_heartbeat_interval_ms,
        ),
        _bounded(
            own,
            "consumer.assignment.interval.ms",
            assignment_interval_ms,
            settings.consumer_min_assignment_interval_ms,
            settings.consumer_max_assignment_interval_ms,
        ),
    )


def _bounded(own: Mapping[str, str], key: str, default: int, lowest: int, highest: int) -> int:
    text = own.get(key)
    return default if text is None else min(max(int(text), lowest), highest)
