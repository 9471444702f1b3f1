"""What a broker shows of the shards of a coordinator, under Kafka's names.

Times of loading are those since the node has started; Kafka forgets them after a minute, in which
nobody may have looked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kraftpy.coordinator.shard import Shard, ShardState
from kraftpy.observe.metrics import MetricName, MetricRegistry

__all__ = ["LoadTimes", "show_load_times", "show_shards"]

_DOMAIN: Final = "kafka.server"
_SHOWN: Final = (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)


class LoadTimes:
    """How long it took to load shards."""

    __slots__ = ("_total_ms", "count", "longest_ms")

    def __init__(self) -> None:
        self.count = 0
        self._total_ms = 0.0
        self.longest_ms = 0.0

    @property
    def average_ms(self) -> float:
        return self._total_ms / self.count if self.count else 0.0

    def add(self, milliseconds: float) -> None:
        self.count += 1
        self._total_ms += milliseconds
        self.longest_ms = max(self.longest_ms, milliseconds)


def show_load_times(registry: MetricRegistry, kind: str, times: LoadTimes) -> None:
    """`kind` is Kafka's name for the metrics of one coordinator."""
    maximum, average = (f"partition-load-time-{suffix}" for suffix in ("max", "avg"))
    registry.gauge(MetricName(_DOMAIN, kind, maximum), lambda: times.longest_ms)
    registry.gauge(MetricName(_DOMAIN, kind, average), lambda: times.average_ms)


def show_shards(
    registry: MetricRegistry, kind: str, shards: Callable[[], Iterable[Shard[Any]]]
) -> None:
    """How many there are in each state."""

    def show(state: ShardState) -> None:
        name = MetricName(_DOMAIN, kind, "num-partitions", (("state", state.name.lower()),))
        registry.gauge(name, lambda: sum(shard.state is state for shard in shards()))

    for state in _SHOWN:
        show(state)
