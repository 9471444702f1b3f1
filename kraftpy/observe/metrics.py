"""Metrics under Kafka's names, one registry for each node.

| kind | what it is |
| --- | --- |
| Counter | a number that only grows |
| Gauge | a callable that is asked when somebody reads |
| Meter | a count with its rates over the last 1, 5 and 15 minutes |
| Histogram | count, sum, extremes, and quantiles over the latest samples |

Time is an argument: whoever marks a meter says when. Nothing here ticks; a meter brings its rates
up to date when it is marked or read. Who has much to record may note it first, and enter it when it
is much, or somebody reads (`MetricRegistry.before_reading`).

A metric has one name with two spellings. Kafka's tools know the JMX one,
`kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce`; Prometheus gets what the
usual jmx_exporter rules make of it, `kafka_network_requestmetrics_totaltimems{request="Produce"}`,
so that existing dashboards work. Where Kafka keeps many values as attributes of one bean
(`kafka.server:type=raft-metrics`), the name is an attribute.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

__all__ = [
    "Counter",
    "Gauge",
    "Histogram",
    "Meter",
    "Metric",
    "MetricName",
    "MetricRegistry",
    "Tags",
]

Tags: TypeAlias = tuple[tuple[str, str], ...]

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

_RESERVOIR_SIZE = 1024
_TICK_SECONDS = 5.0
# How much of a tick's rate enters the average over 1, 5 and 15 minutes.
_WEIGHTS = tuple(1 - math.exp(-_TICK_SECONDS / (60 * minutes)) for minutes in (1, 5, 15))


@dataclass(frozen=True, slots=True)
class MetricName:
    domain: str
    type: str
    name: str
    tags: Tags = ()
    is_attribute: bool = False

    @property
    def jmx(self) -> str:
        """Kafka's spelling; an attribute follows its bean behind a slash."""
        tags = "".join(f",{key}={value}" for key, value in self.tags)
        if self.is_attribute:
            return f"{self.domain}:type={self.type}{tags}/{self.name}"
        return f"{self.domain}:type={self.type},name={self.name}{tags}"

    @property
    def prometheus(self) -> str:
        """The family's name, without labels and without a kind's suffix."""
        plain = f"{self.domain}_{self.type}_{self.name}".lower()
        return "".join(letter if letter.isalnum() else "_" for letter in plain)


class Counter:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self, count: int = 1) -> None:
        self.count += count


class Gauge:
    __slots__ = ("read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read


class Meter:
    """Rates are exponentially weighted averages in steps of five seconds, as in Kafka.

    A value may be any quantity that adds up: requests, bytes, seconds spent waiting (whose rate a
    second is a share of time).
    """

    __slots__ = ("_next_tick", "_rates", "_uncounted", "count")

    def __init__(self, now: float) -> None:
        self.count: float = 0
        self._uncounted: float = 0
        self._next_tick = now + _TICK_SECONDS
        self._rates: tuple[float, ...] | None = None

    def mark(self, now: float, count: float = 1) -> None:
        if now >= self._next_tick:
            self._tick(now)
        self.count += count
        self._uncounted += count

    def rates(self, now: float) -> tuple[float, float, float]:
        """Per second, over the last 1, 5 and 15 minutes."""
        if now >= self._next_tick:
            self._tick(now)
        one, five, fifteen = self._rates or (0.0, 0.0, 0.0)
        return one, five, fifteen

    def _tick(self, now: float) -> None:
        """Close the steps that are over. Marks all fell into the first; the others were silent."""
        silent_steps = int((now - self._next_tick) // _TICK_SECONDS)
        self._next_tick += (silent_steps + 1) * _TICK_SECONDS
        rate = self._uncounted / _TICK_SECONDS
        self._uncounted = 0
        if self._rates is None:
            self._rates = (rate,) * 3
        else:
            self._rates = tuple(
                old + weight * (rate - old)
                for old, weight in zip(self._rates, _WEIGHTS, strict=True)
            )
        self._rates = tuple(
            old * (1 - weight) ** silent_steps
            for old, weight in zip(self._rates, _WEIGHTS, strict=True)
        )


class Histogram:
    """Quantiles are those of the latest 1,024 samples; count, sum and extremes are of all.

    The latest samples and not a random choice of all: they answer "how is it now", and an update
    is one store into an array.
    """

    __slots__ = ("_samples", "count", "maximum", "minimum", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.minimum = math.inf
        self.maximum = -math.inf
        self._samples = array("d")

    def update(self, value: float) -> None:
        samples = self._samples
        count = self.count
        if count < _RESERVOIR_SIZE:
            samples.append(value)
        else:
            samples[count % _RESERVOIR_SIZE] = value
        self.count = count + 1
        self.sum += value
        # Comparing is several times as quick as calling min and max, eight times a request.
        if value < self.minimum:  # noqa: PLR1730
            self.minimum = value
        if value > self.maximum:  # noqa: PLR1730
            self.maximum = value

    def update_all(self, values: Sequence[float]) -> None:
        """As `update` with one after the other, at a small part of the cost; at least one."""
        samples = self._samples
        place = self.count % _RESERVOIR_SIZE
        latest = array("d", values[-_RESERVOIR_SIZE:])
        if self.count + len(values) <= _RESERVOIR_SIZE:
            samples.extend(latest)
        else:
            # The oldest are replaced, up to the end and then from the beginning on.
            samples.extend(latest[: _RESERVOIR_SIZE - len(samples)])
            place = (place + len(values) - len(latest)) % _RESERVOIR_SIZE
            first = latest[: _RESERVOIR_SIZE - place]
            samples[place : place + len(first)] = first
            rest = latest[len(first) :]
            samples[: len(rest)] = rest
        self.count += len(values)
        self.sum += sum(values)
        self.minimum = min(self.minimum, *values)
        self.maximum = max(self.maximum, *values)

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def quantiles(self, wanted: tuple[float, ...] = QUANTILES) -> tuple[float, ...]:
        """The smallest sample that is not below that share of them; 0 without samples."""
        ordered = sorted(self._samples)
        if not ordered:
            return (0.0,) * len(wanted)
        return tuple(ordered[max(0, math.ceil(quantile * len(ordered)) - 1)] for quantile in wanted)


Metric: TypeAlias = Counter | Gauge | Meter | Histogram
_Kind = TypeVar("_Kind", Counter, Gauge, Meter, Histogram)


class MetricRegistry:
    """All metrics of one node, by name. Asking twice for a name gives the same object."""

    __slots__ = ("_before_reading", "_metrics")

    def __init__(self) -> None:
        self._metrics: dict[MetricName, Metric] = {}
        self._before_reading: list[Callable[[], None]] = []

    def before_reading(self, enter: Callable[[], None]) -> None:
        """Call `enter` whenever metrics are about to be read: what was noted belongs to them."""
        self._before_reading.append(enter)

    def counter(self, name: MetricName) -> Counter:
        return self._get_or_add(name, Counter, Counter)

    def meter(self, name: MetricName, now: float) -> Meter:
        return self._get_or_add(name, Meter, lambda: Meter(now))

    def histogram(self, name: MetricName) -> Histogram:
        return self._get_or_add(name, Histogram, Histogram)

    def gauge(self, name: MetricName, read: Callable[[], float]) -> Gauge:
        """A second gauge under one name replaces the first: its owner was made anew."""
        gauge = Gauge(read)
        self._metrics[name] = gauge
        return gauge

    def remove(self, name: MetricName) -> None:
        """Forget a metric whose subject is gone; an unknown name is fine."""
        self._metrics.pop(name, None)

    def get(self, name: MetricName) -> Metric | None:
        self._enter_all()
        return self._metrics.get(name)

    def unsorted(self) -> list[tuple[MetricName, Metric]]:
        """All of this moment, in the order in which they were made."""
        self._enter_all()
        return list(self._metrics.items())

    def __iter__(self) -> Iterator[tuple[MetricName, Metric]]:
        return iter(sorted(self.unsorted(), key=lambda item: item[0].jmx))

    def _enter_all(self) -> None:
        for enter in self._before_reading:
            enter()

    def _get_or_add(self, name: MetricName, kind: type[_Kind], make: Callable[[], _Kind]) -> _Kind:
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics[name] = make()
        if not isinstance(metric, kind):
            raise TypeError(f"{name.jmx} is a {type(metric).__name__}, not a {kind.__name__}")
        return metric
