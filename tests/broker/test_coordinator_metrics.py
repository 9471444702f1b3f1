"""The metrics of shards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraftpy.broker.coordinator_metrics import LoadTimes, show_load_times, show_shards
from kraftpy.coordinator.shard import ShardState
from kraftpy.observe.metrics import Gauge, MetricName, MetricRegistry

KIND = "group-coordinator-metrics"


def value(registry: MetricRegistry, name: str, **tags: str) -> float:
    metric = registry.get(MetricName("kafka.server", KIND, name, tuple(tags.items())))
    assert isinstance(metric, Gauge)
    return metric.read()


def test_times_of_loading() -> None:
    registry, times = MetricRegistry(), LoadTimes()
    show_load_times(registry, KIND, times)
    assert value(registry, "partition-load-time-max") == 0
    assert value(registry, "partition-load-time-avg") == 0
    for milliseconds in (10, 40, 25):
        times.add(milliseconds)
    assert value(registry, "partition-load-time-max") == 40
    assert value(registry, "partition-load-time-avg") == 25


def test_shards_by_state() -> None:
    registry = MetricRegistry()
    shards: list[Any] = [
        SimpleNamespace(state=state)
        for state in (ShardState.ACTIVE, ShardState.LOADING, ShardState.ACTIVE, ShardState.CLOSED)
    ]
    show_shards(registry, KIND, lambda: shards)
    assert value(registry, "num-partitions", state="active") == 2
    assert value(registry, "num-partitions", state="loading") == 1
    assert value(registry, "num-partitions", state="failed") == 0
