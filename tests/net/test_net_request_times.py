"""The times of requests, from the network into the metrics: once each, whatever became of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from netkit import (
    Client,
    Recorder,
    Surrounding,
    WordService,
    eventually,
    framed,
    memory_surrounding,
    serving,
)

from kraftpy.observe.metrics import Histogram, Meter, MetricName, MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics, RequestTimes
from kraftpy.world import FileSlice
from kraftpy.world.real_disk import RealDisk


async def test_every_request_is_recorded_once(surrounding: Surrounding) -> None:
    """NET-62: sent, no-op, closed, disconnected, refused, and dropped after the peer went."""
    recorder = Recorder()
    service = WordService(recorder)
    async with serving(surrounding, service) as running:

        async def clients_gone(client: Client) -> None:
            await client.rest()
            client.close()
            await eventually(lambda: not running.server.connections)

        client = await running.connect()
        await client.send(b"word", b"nothing", b"word")
        assert [await client.read(), await client.read()] == [b"word", b"word"]
        assert len(recorder.recorded) == 3
        await client.send(b"close")
        await clients_gone(client)
        assert len(recorder.recorded) == 4
        for word in (b"bad", b"boom", b"worse"):
            client = await running.connect()
            await client.send(word)
            await clients_gone(client)
        service.release()
        assert len(recorder.recorded) == 7
        client = await running.connect()
        await client.send(b"ahead", b"ahead")
        await eventually(lambda: len(service.held) == 2)
        service.release(1)
        client.stream.reset()
        await eventually(lambda: not running.server.connections)
        # The second was finished and could not leave; the first is still in work.
        assert len(recorder.recorded) == 8
        service.release()
        assert len(recorder.recorded) == 9 == len(service.served)


async def test_the_times_of_a_request_add_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """NET-57, NET-58: a wait for others is remote; a wait for the peer is sending."""
    recorder = Recorder()
    service = WordService(recorder)
    async with memory_surrounding() as surrounding, serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"hold", b"word")
        await eventually(lambda: service.held)
        await trio.sleep(3)
        _, answer = service.held.pop()
        answer.send(((1_000_000).to_bytes(4, "big"), bytes(1_000_000)))
        await trio.sleep(2)
        assert len(await client.read()) == 1_000_000
        assert await client.read() == b"word"
    held, word = recorder.recorded
    assert held.handled == held.served
    assert held.answered - held.handled == pytest.approx(3, abs=0.1)
    assert held.left - held.taken == pytest.approx(2, abs=0.2)
    assert word.served - word.arrived == pytest.approx(5, abs=0.3)
    assert word.answered == word.handled
    for times in recorder.recorded:
        moments = times[:6]
        assert list(moments) == sorted(moments)
    assert [times.request_bytes for times in recorder.recorded] == [4, 4]


async def test_a_throttle_is_recorded_apart(autojump_clock: trio.testing.MockClock) -> None:
    """NET-59"""
    recorder = Recorder()
    service = WordService(recorder)
    async with memory_surrounding() as surrounding, serving(surrounding, service) as running:
        client = await running.connect()
        await client.send(b"throttle 5000", b"word")
        assert [await client.read(), await client.read()] == [b"throttle 5000", b"word"]
    first, _ = recorder.recorded
    assert first.throttle_ms == 5000
    assert first.left - first.arrived < 0.1


def of_api(registry: MetricRegistry, name: str, *tags: tuple[str, str]) -> Histogram | Meter:
    metric = registry.get(MetricName("kafka.network", "RequestMetrics", name, tags))
    assert isinstance(metric, Histogram | Meter)
    return metric


def test_times_become_kafkas_metrics() -> None:
    """NET-57, NET-61: each span under its name, and together they are the total."""
    registry = MetricRegistry()
    metrics = RequestMetrics(registry)
    times = RequestTimes(10.0, 10.001, 10.003, 10.007, 10.015, 10.031, 123, 40)
    metrics.recorder("Produce", 11).record(times)
    metrics.recorder("Produce", 12).record(times)
    expected = {
        "RequestQueueTimeMs": 1,
        "LocalTimeMs": 2,
        "RemoteTimeMs": 4,
        "ResponseQueueTimeMs": 8,
        "ResponseSendTimeMs": 16,
        "TotalTimeMs": 31,
        "ThrottleTimeMs": 40,
        "RequestBytes": 123,
    }
    for name, value in expected.items():
        histogram = of_api(registry, name, ("request", "Produce"))
        assert isinstance(histogram, Histogram)
        assert histogram.count == 2
        assert histogram.mean == pytest.approx(value)
    for version in ("11", "12"):
        assert (
            of_api(registry, "RequestsPerSec", ("request", "Produce"), ("version", version)).count
            == 1
        )


def test_times_are_never_negative() -> None:
    """NET-57: even if moments came in the wrong order."""
    registry = MetricRegistry()
    RequestMetrics(registry).recorder("Produce", 1).record(RequestTimes(9, 8, 7, 6, 5, 4, 0, 0))
    for _, metric in registry:
        if isinstance(metric, Histogram):
            assert metric.minimum == 0


@pytest.mark.parametrize("also", ["FetchConsumer", "FetchFollower"])
def test_a_fetch_is_recorded_under_two_names(also: str) -> None:
    """NET-60"""
    registry = MetricRegistry()
    RequestMetrics(registry).recorder("Fetch", 17, also).record(
        RequestTimes(0, 0, 0, 0, 0, 0, 1, 0)
    )
    requests = {dict(name.tags)["request"] for name, _ in registry if name.name == "TotalTimeMs"}
    assert requests == {"Fetch", also}


def test_errors_are_counted_by_code() -> None:
    """NET-61"""
    registry = MetricRegistry()
    produce = RequestMetrics(registry).api("Produce")
    produce.mark_error("NONE", 1.0, 5)
    produce.mark_error("NOT_LEADER_OR_FOLLOWER", 1.0)
    produce.mark_error("NONE", 2.0)
    counts = {
        error: of_api(registry, "ErrorsPerSec", ("request", "Produce"), ("error", error)).count
        for error in ("NONE", "NOT_LEADER_OR_FOLLOWER")
    }
    assert counts == {"NONE": 6, "NOT_LEADER_OR_FOLLOWER": 1}


async def test_file_slices_leave_as_they_are(surrounding: Surrounding, tmp_path: Path) -> None:
    """Large ones by the stream's own way, small ones among the bytes; a reader slower than they."""
    path = tmp_path / "segment"
    content = bytes(range(251)) * 12_000
    path.write_bytes(content)
    file = RealDisk().open(str(path))
    service = WordService()
    async with serving(surrounding, service) as running:
        client = await running.connect()
        slices = [FileSlice(file, 7, 2_500_000), FileSlice(file, 99, 100), FileSlice(file, 0, 0)]
        body = b"".join(content[part.position : part.position + part.length] for part in slices)
        for _ in range(3):
            await client.send(b"hold", b"word")
            await eventually(lambda: service.held)
            _, answer = service.held.pop()
            answer.send([(len(body) + 3).to_bytes(4, "big"), *slices, b"end"])
            assert await client.read() == body + b"end"
            assert await client.read() == b"word"
        # A file that was cut under its slice can only cost the connection.
        await client.send(b"hold")
        await eventually(lambda: service.held)
        _, answer = service.held.pop()
        answer.send([framed(b"")[:2], FileSlice(file, len(content) - 10, 11)])
        await client.rest()
        assert running.server.connections == []
    file.close()
