"""Meters of topics: for each, for all, and none for a topic that is gone."""

from __future__ import annotations

from kraftpy.observe.metrics import Meter, MetricRegistry
from kraftpy.observe.topic_metrics import (
    BYTES_IN,
    BYTES_OUT,
    MESSAGES_IN,
    TopicMetrics,
    metric_name,
)


def count(registry: MetricRegistry, name: str, topic: str | None = None) -> float | None:
    tags = () if topic is None else (("topic", topic),)
    found = registry.get(metric_name(name, tags))
    return found.count if isinstance(found, Meter) else None


def test_a_topic_counts_for_itself_and_for_all() -> None:
    registry = MetricRegistry()
    metrics = TopicMetrics(registry)
    metrics.mark(BYTES_IN, "a", 0.0, 10)
    metrics.mark(BYTES_IN, "b", 0.0, 5)
    metrics.mark_all(BYTES_IN, 0.0)
    assert [count(registry, BYTES_IN, topic) for topic in ("a", "b", None)] == [10, 5, 16]


def test_a_topic_that_is_gone_leaves_nothing_behind() -> None:
    """And begins at zero when it comes back."""
    registry = MetricRegistry()
    metrics = TopicMetrics(registry)
    metrics.mark(BYTES_IN, "a", 0.0, 10)
    metrics.mark(MESSAGES_IN, "a", 0.0)
    metrics.forget("a", [BYTES_IN, BYTES_OUT])
    assert count(registry, MESSAGES_IN, "a") == 1
    metrics.forget("a", [MESSAGES_IN])
    metrics.forget("never there", [MESSAGES_IN])
    assert count(registry, BYTES_IN, "a") is None
    assert count(registry, MESSAGES_IN, "a") is None
    metrics.mark(BYTES_IN, "a", 1.0, 1)
    assert (count(registry, BYTES_IN, "a"), count(registry, BYTES_IN)) == (1, 11)
