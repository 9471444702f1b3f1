"""`kafka.server:type=BrokerTopicMetrics`: meters for single topics and for all of them together.

Several of them are marked for each request, so a topic's meters are found by one look in a
dictionary; the registry, which is asked by a name of five parts, is for the first time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftpy.observe.metrics import Meter, MetricName, MetricRegistry

__all__ = [
    "BYTES_IN",
    "BYTES_OUT",
    "BYTES_REJECTED",
    "FAILED_FETCH_REQUESTS",
    "FAILED_PRODUCE_REQUESTS",
    "INVALID_CRC",
    "MESSAGES_IN",
    "REPLICATION_BYTES_OUT",
    "TOTAL_FETCH_REQUESTS",
    "TOTAL_PRODUCE_REQUESTS",
    "TopicMetrics",
]

BYTES_IN: Final = "BytesInPerSec"
BYTES_OUT: Final = "BytesOutPerSec"
BYTES_REJECTED: Final = "BytesRejectedPerSec"
FAILED_FETCH_REQUESTS: Final = "FailedFetchRequestsPerSec"
FAILED_PRODUCE_REQUESTS: Final = "FailedProduceRequestsPerSec"
INVALID_CRC: Final = "InvalidMessageCrcRecordsPerSec"
MESSAGES_IN: Final = "MessagesInPerSec"
REPLICATION_BYTES_OUT: Final = "ReplicationBytesOutPerSec"
TOTAL_FETCH_REQUESTS: Final = "TotalFetchRequestsPerSec"
TOTAL_PRODUCE_REQUESTS: Final = "TotalProduceRequestsPerSec"

# What a broker shows before anything has happened.
_SHOWN_AT_ONCE: Final = (
    BYTES_IN,
    BYTES_OUT,
    BYTES_REJECTED,
    FAILED_FETCH_REQUESTS,
    FAILED_PRODUCE_REQUESTS,
    INVALID_CRC,
    MESSAGES_IN,
    "ReplicationBytesInPerSec",
    REPLICATION_BYTES_OUT,
    TOTAL_FETCH_REQUESTS,
    TOTAL_PRODUCE_REQUESTS,
)


class TopicMetrics:
    """One for each node. A topic's meter is made when it is first marked.

    Topics that a client has made up must not be marked: each would leave a meter behind.
    """

    __slots__ = ("_all", "_registry", "_topics")

    def __init__(self, registry: MetricRegistry) -> None:
        self._registry = registry
        self._all: dict[str, Meter] = {}
        self._topics: dict[str, dict[str, Meter]] = {}

    def show(self, now: float) -> None:
        """Make the meters of all topics now: a rate of nothing is news, too, to who watches it."""
        for name in _SHOWN_AT_ONCE:
            self.mark_all(name, now, 0)

    def mark(self, name: str, topic: str, now: float, count: float = 1) -> None:
        """Count an event of `topic`, for it and for all topics."""
        self.mark_all(name, now, count)
        meters = self._topics.get(topic)
        if meters is None:
            meters = self._topics[topic] = {}
        meter = meters.get(name)
        if meter is None:
            tags = (("topic", topic),)
            meter = meters[name] = self._registry.meter(metric_name(name, tags), now)
        meter.mark(now, count)

    def mark_all(self, name: str, now: float, count: float = 1) -> None:
        """Count an event that Kafka does not break down by topics."""
        meter = self._all.get(name)
        if meter is None:
            meter = self._all[name] = self._registry.meter(metric_name(name), now)
        meter.mark(now, count)

    def forget(self, topic: str, names: Iterable[str]) -> None:
        """What these meters of a topic speak of is gone, and they with it."""
        meters = self._topics.get(topic, {})
        for name in names:
            if meters.pop(name, None) is not None:
                self._registry.remove(metric_name(name, (("topic", topic),)))
        if not meters:
            self._topics.pop(topic, None)


def metric_name(name: str, tags: tuple[tuple[str, str], ...] = ()) -> MetricName:
    return MetricName("kafka.server", "BrokerTopicMetrics", name, tags)
