"""`kafka.server:type=BrokerTopicMetrics`: meters for single topics and for all of them together."""

from __future__ import annotations

from typing import Final

from kraftpy.observe.metrics import MetricName, MetricRegistry

__all__ = ["BYTES_REJECTED", "INVALID_CRC", "TopicMetrics"]

BYTES_REJECTED: Final = "BytesRejectedPerSec"
INVALID_CRC: Final = "InvalidMessageCrcRecordsPerSec"


class TopicMetrics:
    """One for each node. A topic's meter is made when it is first marked."""

    __slots__ = ("_registry",)

    def __init__(self, registry: MetricRegistry) -> None:
        self._registry = registry

    def mark(self, name: str, topic: str, now: float, count: float = 1) -> None:
        """Count an event of `topic`, for it and for all topics."""
        for tags in ((), (("topic", topic),)):
            self._registry.meter(metric_name(name, tags), now).mark(now, count)

    def mark_all(self, name: str, now: float, count: float = 1) -> None:
        """Count an event that Kafka does not break down by topics."""
        self._registry.meter(metric_name(name), now).mark(now, count)


def metric_name(name: str, tags: tuple[tuple[str, str], ...] = ()) -> MetricName:
    return MetricName("kafka.server", "BrokerTopicMetrics", name, tags)
