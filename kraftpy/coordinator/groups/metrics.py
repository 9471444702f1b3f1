"""What a broker shows of its groups, under Kafka's names.

Counters are shared by all shards. Gauges look at all groups, of which there may be many, so that a
look holds for a while: whoever reads them all at once causes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kraftpy.coordinator.groups.group import Group, GroupType
from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.world import Clock

__all__ = ["GroupGauges", "GroupMetrics"]

_GROUPS: Final = ("kafka.coordinator.group", "GroupMetadataManager")
_COORDINATOR: Final = ("kafka.server", "group-coordinator-metrics")
_CLASSIC_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
_CONSUMER_STATES: Final = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
_LOOK_HOLDS_MS: Final = 1000


class GroupMetrics:
    """Counters of what groups do."""

    __slots__ = (
        "completed_rebalances",
        "consumer_rebalances",
        "offset_commits",
        "offset_deletions",
        "offset_expirations",
    )

    def __init__(self, registry: MetricRegistry) -> None:
        def counter(name: str) -> Callable[[int], None]:
            return registry.counter(MetricName(*_COORDINATOR, name)).add

        self.offset_commits = counter("offset-commit-count")
        self.offset_expirations = counter("offset-expiration-count")
        self.offset_deletions = counter("offset-deletion-count")
        self.completed_rebalances = counter("group-completed-rebalance-count")
        self.consumer_rebalances = counter("consumer-group-rebalance-count")


class GroupGauges:
    """How many groups and offsets there are, in which states."""

    __slots__ = ("_clock", "_counts", "_groups", "_looked_at_ms")

    def __init__(
        self,
        registry: MetricRegistry,
        clock: Clock,
        groups: Callable[[], Iterable[Group]],
        offset_count: Callable[[], int],
    ) -> None:
        """`groups` and `offset_count` are of all shards that are active."""
        self._clock = clock
        self._groups = groups
        self._counts: dict[tuple[GroupType, str], int] = {}
        self._looked_at_ms: int | None = None

        def gauge(
            place: tuple[str, str],
            name: str,
            kind: GroupType,
            states: tuple[str, ...],
            *tags: tuple[str, str],
        ) -> None:
            registry.gauge(MetricName(*place, name, tags), lambda: self._count(kind, states))

        registry.gauge(MetricName(*_GROUPS, "NumOffsets"), offset_count)
        gauge(_GROUPS, "NumGroups", GroupType.CLASSIC, _CLASSIC_STATES)
        for state in _CLASSIC_STATES:
            gauge(_GROUPS, f"NumGroups{state}", GroupType.CLASSIC, (state,))
        protocols = (GroupType.CLASSIC, _CLASSIC_STATES), (GroupType.CONSUMER, _CONSUMER_STATES)
        for kind, states in protocols:
            gauge(_COORDINATOR, "group-count", kind, states, ("protocol", kind.value))
        for state in _CONSUMER_STATES:
            tag = ("state", state.lower())
            gauge(_COORDINATOR, "consumer-group-count", GroupType.CONSUMER, (state,), tag)

    def _count(self, kind: GroupType, states: tuple[str, ...]) -> int:
        now_ms = self._clock.monotonic_ms()
        if self._looked_at_ms is None or now_ms - self._looked_at_ms >= _LOOK_HOLDS_MS:
            self._looked_at_ms = now_ms
            self._counts.clear()
            for group in self._groups():
                key = (group.group_type, group.committed_state_name)
                self._counts[key] = self._counts.get(key, 0) + 1
        return sum(self._counts.get((kind, state), 0) for state in states)
