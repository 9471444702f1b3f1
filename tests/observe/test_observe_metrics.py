"""The registry and its four kinds of metric."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.observe import metrics
from kraftpy.observe.metrics import (
    Counter,
    Histogram,
    Meter,
    MetricName,
    MetricRegistry,
)
from kraftpy.observe.prometheus import exposition
from kraftpy.observe.request_metrics import RequestMetrics, RequestTimes

TOTAL = MetricName("kafka.network", "RequestMetrics", "TotalTimeMs", (("request", "Produce"),))


def test_both_spellings_of_a_name() -> None:
    assert TOTAL.jmx == "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce"
    assert TOTAL.prometheus == "kafka_network_requestmetrics_totaltimems"
    epoch = MetricName("kafka.server", "raft-metrics", "current-epoch", is_attribute=True)
    assert epoch.jmx == "kafka.server:type=raft-metrics/current-epoch"
    assert epoch.prometheus == "kafka_server_raft_metrics_current_epoch"


def test_asking_twice_gives_the_same_metric() -> None:
    registry = MetricRegistry()
    assert registry.histogram(TOTAL) is registry.histogram(TOTAL)
    assert registry.get(TOTAL) is registry.histogram(TOTAL)
    with pytest.raises(TypeError, match="is a Histogram, not a Counter"):
        registry.counter(TOTAL)
    registry.remove(TOTAL)
    registry.remove(TOTAL)
    assert registry.get(TOTAL) is None


def test_registries_share_nothing() -> None:
    first, second = MetricRegistry(), MetricRegistry()
    first.counter(TOTAL).add(3)
    assert second.get(TOTAL) is None


def test_a_steady_meter_shows_its_rate() -> None:
    meter = Meter(now=0.0)
    for second in range(3600):
        meter.mark(float(second), 10)
    assert meter.count == 36_000
    assert meter.rates(3600.0) == pytest.approx((10, 10, 10))


def test_the_steps_of_a_meter_do_not_drift() -> None:
    """Marks that fall between its steps: a step that began late would count too much."""
    meter = Meter(now=0.0)
    for index in range(5_000):
        meter.mark(index * 0.7, 7)
    assert meter.rates(3_500.0)[2] == pytest.approx(10, rel=0.02)


def test_a_meter_forgets_at_three_speeds() -> None:
    """A minute of silence: a factor of e in the first average, of e ** (1/5) in the second."""
    meter = Meter(now=0.0)
    meter.mark(0.0, 50)
    assert meter.rates(4.9) == (0, 0, 0)
    assert meter.rates(5.0) == pytest.approx((10, 10, 10))
    one, five, fifteen = meter.rates(65.0)
    assert one == pytest.approx(10 / math.e)
    assert five == pytest.approx(10 / math.e ** (1 / 5))
    assert fifteen == pytest.approx(10 / math.e ** (1 / 15))


def test_reading_a_meter_often_or_seldom_is_the_same() -> None:
    moments = sorted(random.Random(7).uniform(0, 600) for _ in range(500))
    often, seldom = Meter(now=0.0), Meter(now=0.0)
    for moment in moments:
        often.mark(moment)
        seldom.mark(moment)
        often.rates(moment)
    assert often.rates(777.7) == pytest.approx(seldom.rates(777.7))


def test_a_histogram_of_few() -> None:
    histogram = Histogram()
    assert histogram.quantiles((0.5, 0.99)) == (0, 0)
    assert histogram.mean == 0
    for value in (5.0, 1.0, 3.0, 2.0, 4.0):
        histogram.update(value)
    assert (histogram.count, histogram.sum, histogram.mean) == (5, 15, 3)
    assert (histogram.minimum, histogram.maximum) == (1, 5)
    assert histogram.quantiles((0.2, 0.5, 0.99, 1.0)) == (1, 3, 5, 5)


def test_a_histogram_is_bounded_and_looks_at_the_latest() -> None:
    histogram = Histogram()
    for value in range(100_000, 0, -1):
        histogram.update(value)
    assert histogram.count == 100_000
    assert histogram.maximum == 100_000
    assert len(histogram._samples) == 1024
    assert histogram.quantiles((0.5, 1.0)) == (512, 1024)


def test_prometheus_text() -> None:
    """Names as dashboards for jmx_exporter expect them."""
    registry = MetricRegistry()
    histogram = registry.histogram(TOTAL)
    for value in (1.0, 2.0):
        histogram.update(value)
    produce = (("request", "Produce"), ("version", "11"))
    registry.meter(
        MetricName("kafka.network", "RequestMetrics", "RequestsPerSec", produce), 0.0
    ).mark(1.0, 7)
    registry.meter(
        MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", (("topic", 'a"\\\n'),)),
        0.0,
    ).mark(1.0)
    registry.gauge(
        MetricName("kafka.server", "DelayedOperationPurgatory", "PurgatorySize"), lambda: 3
    )
    registry.counter(MetricName("kraftpy", "Test", "things")).add(2)
    text = exposition(registry)
    assert text.endswith("\n")
    lines = text.splitlines()
    for line in (
        "# TYPE kafka_network_requestmetrics_totaltimems summary",
        'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.5"} 1.0',
        'kafka_network_requestmetrics_totaltimems_count{request="Produce"} 2',
        'kafka_network_requestmetrics_totaltimems_sum{request="Produce"} 3.0',
        "# TYPE kafka_network_requestmetrics_requests_total counter",
        'kafka_network_requestmetrics_requests_total{request="Produce",version="11"} 7',
        'kafka_server_brokertopicmetrics_bytesin_total{topic="a\\"\\\\\\n"} 1',
        "kafka_server_delayedoperationpurgatory_purgatorysize 3",
        "kraftpy_test_things_total 2",
    ):
        assert line in lines


def test_a_family_is_one_block() -> None:
    """The format wants all samples of a family together, under one TYPE."""
    registry = MetricRegistry()
    for request in ("Fetch", "Produce"):
        for name in ("TotalTimeMs", "LocalTimeMs"):
            registry.histogram(
                MetricName("kafka.network", "RequestMetrics", name, (("request", request),))
            ).update(1.0)
    lines = exposition(registry).splitlines()
    assert sum(line.startswith("# TYPE") for line in lines) == 2
    families = [line.split("{")[0].removesuffix("_count").removesuffix("_sum") for line in lines]
    blocks = [name for name in families if not name.startswith("#")]
    changes = sum(before != after for before, after in itertools.pairwise(blocks))
    assert changes == 1


def test_counters_and_gauges_by_hand() -> None:
    counter = Counter()
    counter.add()
    counter.add(4)
    assert counter.count == 5
    registry = MetricRegistry()
    registry.gauge(TOTAL, lambda: 1)
    assert registry.gauge(TOTAL, lambda: 2).read() == 2
    gauge = registry.get(TOTAL)
    assert gauge is not None
    assert "kafka_network_requestmetrics_totaltimems" in exposition(registry)


@given(st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=40), max_size=6))
def test_many_samples_at_once_are_as_one_by_one(groups: list[list[float]]) -> None:
    """With room for 16, so that some groups fill it, go round in it, or are more than it holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_RESERVOIR_SIZE", 16)
        at_once, one_by_one = Histogram(), Histogram()
        for values in groups:
            at_once.update_all(values)
            for value in values:
                one_by_one.update(value)
            assert at_once._samples == one_by_one._samples
            assert at_once.count == one_by_one.count
            assert at_once.sum == pytest.approx(one_by_one.sum)
            assert (at_once.minimum, at_once.maximum) == (one_by_one.minimum, one_by_one.maximum)


def request_at(second: float) -> RequestTimes:
    return RequestTimes(
        arrived=second,
        served=second + 0.001,
        handled=second + 0.003,
        answered=second + 0.006,
        taken=second + 0.010,
        left=second + 0.015,
        request_bytes=77,
        throttle_ms=8,
    )


@pytest.mark.parametrize("count", [1, 99, 100, 101, 250])
def test_the_times_of_requests_are_there_when_somebody_reads(count: int) -> None:
    """NET-60, NET-61: however many were noted since, under both names of a fetch."""
    registry = MetricRegistry()
    recorder = RequestMetrics(registry).recorder("Fetch", 12, also="FetchFollower")
    for number in range(count):
        recorder.record(request_at(float(number)))
    for request in ("Fetch", "FetchFollower"):
        for name, mean in {
            "RequestQueueTimeMs": 1,
            "LocalTimeMs": 2,
            "RemoteTimeMs": 3,
            "ResponseQueueTimeMs": 4,
            "ResponseSendTimeMs": 5,
            "TotalTimeMs": 15,
            "RequestBytes": 77,
            "ThrottleTimeMs": 8,
        }.items():
            full_name = MetricName("kafka.network", "RequestMetrics", name, (("request", request),))
            histogram = registry.get(full_name)
            assert isinstance(histogram, Histogram)
            assert histogram.count == count
            assert histogram.mean == pytest.approx(mean)
    text = exposition(registry)
    recorder.record(request_at(1_000.0))
    assert f'totaltimems_count{{request="Fetch"}} {count}' in text
    assert f'totaltimems_count{{request="Fetch"}} {count + 1}' in exposition(registry)
