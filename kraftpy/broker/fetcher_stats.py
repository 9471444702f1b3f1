"""How much a fetcher asks and gets, under Kafka's names, for as long as it knows its leader.

Lag is told by ReplicaFetcherManager, the largest of all; a gauge for each partition would cost more
than everything else that is kept for an idle replica.
"""

from __future__ import annotations

from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.world import Address, Clock

__all__ = ["FetcherStats"]


class FetcherStats:
    __slots__ = ("_bytes", "_clock", "_names", "_registry", "_requests")

    def __init__(
        self, registry: MetricRegistry, clock: Clock, client_id: str, leader: Address
    ) -> None:
        self._registry = registry
        self._clock = clock
        host, port = leader
        tags = (("clientId", client_id), ("brokerHost", host), ("brokerPort", str(port)))
        self._names = [
            MetricName("kafka.server", "FetcherStats", name, tags)
            for name in ("RequestsPerSec", "BytesPerSec")
        ]
        now = clock.monotonic()
        self._requests, self._bytes = [registry.meter(name, now) for name in self._names]

    @property
    def fetch_rate(self) -> float:
        """Answers a second, over the last minute."""
        return self._requests.rates(self._clock.monotonic())[0]

    def answered(self) -> None:
        self._requests.mark(self._clock.monotonic())

    def received(self, size_bytes: int) -> None:
        self._bytes.mark(self._clock.monotonic(), size_bytes)

    def close(self) -> None:
        for name in self._names:
            self._registry.remove(name)
