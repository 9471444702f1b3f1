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
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

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


# What lies between the moments, in their order, and the total.
_SpansMs: TypeAlias = tuple[float, float, float, float, float, float]


class RequestRecorder(Protocol):
    def record(self, times: RequestTimes) -> None: ...


class ApiMetrics:
    """The metrics of one `request=` name."""

    __slots__ = (
        "_errors",
        "_local",
        "_name",
        "_queue",
        "_registry",
        "_remote",
        "_request_bytes",
        "_requests",
        "_response_queue",
        "_send",
        "_throttle",
        "_total",
    )

    def __init__(self, registry: MetricRegistry, name: str) -> None:
        self._registry = registry
        self._name = name
        self._requests: dict[int, Meter] = {}
        self._errors: dict[str, Meter] = {}
        self._queue = self._histogram("RequestQueueTimeMs")
        self._local = self._histogram("LocalTimeMs")
        self._remote = self._histogram("RemoteTimeMs")
        self._throttle = self._histogram("ThrottleTimeMs")
        self._response_queue = self._histogram("ResponseQueueTimeMs")
        self._send = self._histogram("ResponseSendTimeMs")
        self._total = self._histogram("TotalTimeMs")
        self._request_bytes = self._histogram("RequestBytes")

    def record(self, version: int, times: RequestTimes, spans: _SpansMs) -> None:
        left = times.left
        meter = self._requests.get(version)
        if meter is None:
            meter = self._meter("RequestsPerSec", (("version", str(version)),), left)
            self._requests[version] = meter
        meter.mark(left)
        queue, local, remote, response_queue, send, total = spans
        self._queue.update(queue)
        self._local.update(local)
        self._remote.update(remote)
        self._response_queue.update(response_queue)
        self._send.update(send)
        self._total.update(total)
        self._throttle.update(times.throttle_ms)
        self._request_bytes.update(times.request_bytes)

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


class _Recorder:
    """Records one version of an API, under one or two names."""

    __slots__ = ("_metrics", "_version")

    def __init__(self, metrics: tuple[ApiMetrics, ...], version: int) -> None:
        self._metrics = metrics
        self._version = version

    def record(self, times: RequestTimes) -> None:
        arrived, served, handled, answered, taken, left, _, _ = times
        spans = (
            max(0.0, (served - arrived) * 1000),
            max(0.0, (handled - served) * 1000),
            max(0.0, (answered - handled) * 1000),
            max(0.0, (taken - answered) * 1000),
            max(0.0, (left - taken) * 1000),
            max(0.0, (left - arrived) * 1000),
        )
        for metrics in self._metrics:
            metrics.record(self._version, times, spans)


class RequestMetrics:
    """The request metrics of one node, made as APIs are used."""

    __slots__ = ("_apis", "_recorders", "_registry")

    def __init__(self, registry: MetricRegistry) -> None:
        self._registry = registry
        self._apis: dict[str, ApiMetrics] = {}
        self._recorders: dict[tuple[str, int, str | None], _Recorder] = {}

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
