"""How long requests take, and where: Kafka's `kafka.network:type=RequestMetrics`.

The life of a request has six moments, and the times between them add up to TotalTimeMs:

    arrived --RequestQueueTimeMs--> served --LocalTimeMs--> handled --RemoteTimeMs--> answered
            --ResponseQueueTimeMs--> taken --ResponseSendTimeMs--> left

`handled` is when the handler returned, or when the answer was there if that was earlier; so
RemoteTimeMs is the wait for others (followers, new data) in Produce and Fetch. There is no request
queue here; RequestQueueTimeMs is the time a frame lay in its connection's buffer. ThrottleTimeMs
stands apart: a throttle delays the next request, not this one.

The network knows the moments and records each request once, whatever became of it; the layer above
knows which API it was and says so by handing over a RequestRecorder.

Requests are counted at once. Their times are noted, and entered into the eight histograms of a name
a hundred requests at a time or when somebody reads them: one by one that was 6 % of the processor
time of a record that three brokers have to get.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from kraftpy.observe.metrics import Histogram, Meter, MetricName, MetricRegistry, Tags

__all__ = ["ApiMetrics", "RequestMetrics", "RequestRecorder", "RequestTimes"]


class RequestTimes(NamedTuple):
    """The moments, in seconds of one monotonic clock, and what else is recorded of a request."""

    arrived: float
    served: float
    handled: float
    answered: float
    taken: float
    left: float
    request_bytes: int
    throttle_ms: int


_NOTED_REQUESTS: Final = 100


class RequestRecorder(Protocol):
    def record(self, times: RequestTimes) -> None: ...


class ApiMetrics:
    """The metrics of one `request=` name."""

    __slots__ = ("_errors", "_histograms", "_name", "_registry", "_requests")

    def __init__(self, registry: MetricRegistry, name: str) -> None:
        self._registry = registry
        self._name = name
        self._requests: dict[int, Meter] = {}
        self._errors: dict[str, Meter] = {}
        # In the order of `_columns`.
        self._histograms = [self._histogram(each) for each in _HISTOGRAMS]

    def mark(self, version: int, now: float) -> None:
        """Count a request."""
        meter = self._requests.get(version)
        if meter is None:
            meter = self._meter("RequestsPerSec", (("version", str(version)),), now)
            self._requests[version] = meter
        meter.mark(now)

    def enter(self, columns: Sequence[Sequence[float]]) -> None:
        for histogram, values in zip(self._histograms, columns, strict=True):
            histogram.update_all(values)

    def mark_error(self, error: str, now: float, count: int = 1) -> None:
        """Count an error code of an answer by its name; NONE counts too, as in Kafka."""
        meter = self._errors.get(error)
        if meter is None:
            meter = self._meter("ErrorsPerSec", (("error", error),), now)
            self._errors[error] = meter
        meter.mark(now, count)

    def _histogram(self, name: str) -> Histogram:
        return self._registry.histogram(self._metric_name(name, ()))

    def _meter(self, name: str, tags: Tags, now: float) -> Meter:
        return self._registry.meter(self._metric_name(name, tags), now)

    def _metric_name(self, name: str, tags: Tags) -> MetricName:
        return MetricName("kafka.network", "RequestMetrics", name, (("request", self._name), *tags))


_HISTOGRAMS: Final = (
    *("RequestQueueTimeMs", "LocalTimeMs", "RemoteTimeMs", "ResponseQueueTimeMs"),
    *("ResponseSendTimeMs", "TotalTimeMs", "RequestBytes", "ThrottleTimeMs"),
)


def _columns(noted: Sequence[RequestTimes]) -> Sequence[Sequence[float]]:
    """What each of the histograms gets of some requests."""
    arrived, served, handled, answered, taken, left, request_bytes, throttle_ms = zip(
        *noted, strict=True
    )
    spans = (
        *((arrived, served), (served, handled), (handled, answered)),
        *((answered, taken), (taken, left), (arrived, left)),
    )
    return (
        *(
            [max(0.0, (end - start) * 1000) for start, end in zip(*span, strict=True)]
            for span in spans
        ),
        request_bytes,
        throttle_ms,
    )


class _Recorder:
    """Records one version of an API, under one or two names."""

    __slots__ = ("_metrics", "_noted", "_version")

    def __init__(self, metrics: tuple[ApiMetrics, ...], version: int) -> None:
        self._metrics = metrics
        self._version = version
        self._noted: list[RequestTimes] = []

    def record(self, times: RequestTimes) -> None:
        for metrics in self._metrics:
            metrics.mark(self._version, times.left)
        self._noted.append(times)
        if len(self._noted) >= _NOTED_REQUESTS:
            self.enter()

    def enter(self) -> None:
        """What was noted into the histograms."""
        if self._noted:
            columns = _columns(self._noted)
            self._noted.clear()
            for metrics in self._metrics:
                metrics.enter(columns)


class RequestMetrics:
    """The request metrics of one node, made as APIs are used."""

    __slots__ = ("_apis", "_recorders", "_registry")

    def __init__(self, registry: MetricRegistry) -> None:
        self._registry = registry
        self._apis: dict[str, ApiMetrics] = {}
        self._recorders: dict[tuple[str, int, str | None], _Recorder] = {}
        registry.before_reading(self._enter)

    def _enter(self) -> None:
        for recorder in self._recorders.values():
            recorder.enter()

    def api(self, name: str) -> ApiMetrics:
        metrics = self._apis.get(name)
        if metrics is None:
            metrics = self._apis[name] = ApiMetrics(self._registry, name)
        return metrics

    def recorder(self, name: str, version: int, also: str | None = None) -> RequestRecorder:
        """For `Answer.measure`. `also` is the second name that Fetch has: `FetchConsumer` or
        `FetchFollower`.
        """
        key = (name, version, also)
        recorder = self._recorders.get(key)
        if recorder is None:
            names = (name,) if also is None else (name, also)
            recorder = _Recorder(tuple(self.api(each) for each in names), version)
            self._recorders[key] = recorder
        return recorder
