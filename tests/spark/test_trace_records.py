"""Traces of single messages, and their ways to the trace topic: without Spark and a cluster.

A transport's other end is a function here, that blocks, fails or takes what it is given.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from kraftpy_spark.clicks import ClickPlan, produce_clicks
from kraftpy_spark.jobs.audit_records import AuditCounter
from kraftpy_spark.jobs.trace_records import Tag, Trace, chains, id_text, is_sampled
from kraftpy_spark.jobs.traces import BatchFacts, TopicTraces
from kraftpy_spark.topics import TopicMissing
from kraftpy_spark.tracing import DirectTraces, SpooledTraces, Tracer, ship
from support.ports import unused_ports

from kraftpy.client.errors import KafkaError
from kraftpy.client.settings import ClientSettings, ProducerSettings

NOW_MS = 1_794_830_400_000


class Kept:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def put(self, trace: Trace) -> None:
        self.traces.append(trace)

    def tell(self, texts: Sequence[bytes]) -> None:
        self.traces += map(Trace.from_json, texts)


def tracer(outlet: Kept | DirectTraces | SpooledTraces, **more: object) -> Tracer:
    return Tracer(outlet, "c:9092", "10.0.0.7", "clicks-1", **more)  # type: ignore[arg-type]


def numbered(count: int) -> Iterator[Trace]:
    kept = Kept()
    for number in range(count):
        one = tracer(kept)
        one.acknowledged(one.begin("t", 0, b"%d" % number, NOW_MS), number, NOW_MS + 1)
    yield from kept.traces


def test_what_a_producer_tells() -> None:
    """PAT-55, PAT-60: every field, also of a message that could not be sent."""
    kept = Kept()
    one = tracer(kept)
    sending = one.begin("t", 2, b"user-1", NOW_MS, [("order", "17")])
    assert sending.headers == (("msgid", sending.message_id), ("order", b"17"))
    one.acknowledged(sending, 41, NOW_MS + 5)
    one.failed(sending, "nobody is there", NOW_MS + 6)
    sent, failed = kept.traces
    assert sent == Trace(
        side="producer",
        message_id=sending.message_id.hex(),
        key="user-1",
        at_ms=NOW_MS,
        duration_ms=5,
        status="ok",
        cluster="c:9092",
        topic="t",
        partition=2,
        offset=41,
        address="10.0.0.7",
        client_id="clicks-1",
        tags=(Tag("order", "17"),),
    )
    wanted = replace(sent, duration_ms=6, status="failed", offset=None, reason="nobody is there")
    assert failed == wanted
    for each in kept.traces:
        assert Trace.from_json(each.to_json()) == each
        assert set(json.loads(each.to_json())) == {field.name for field in fields(Trace)}


def test_ids_are_unique_and_grow_with_time() -> None:
    """PAT-56: UUIDs of version 7, of RFC 9562."""
    one = tracer(Kept())
    ids = [one.begin("t", 0, None, NOW_MS + at).message_id for at in range(1_000)]
    assert len(set(ids)) == 1_000
    assert ids == sorted(ids)
    for each in ids:
        assert (len(each), each[6] >> 4, each[8] >> 6) == (16, 7, 2)
    assert id_text(ids[0], "t", 0, 3) == ids[0].hex()
    # What is no such id is not taken for one.
    assert id_text(b"other", "t", 0, 3) == id_text(None, "t", 0, 3) == "t-0@3"


def test_what_is_not_traced() -> None:
    """PAT-61: the traces themselves, internal topics, and what is not in the sample; counted."""
    kept = Kept()
    one = tracer(kept, trace_topic="traces", sample_rate=0.25)
    for topic in ("traces", "__consumer_offsets"):
        sending = one.begin(topic, 0, None, NOW_MS)
        assert sending.headers == ()
        one.acknowledged(sending, 0, NOW_MS)
    assert (kept.traces, one.left_out) == ([], 0)
    for number in range(2_000):
        one.acknowledged(one.begin("t", 0, None, NOW_MS), number, NOW_MS)
    assert 400 < len(kept.traces) < 600
    assert len(kept.traces) + one.left_out == 2_000
    # Everybody chooses the same messages.
    assert all(is_sampled(each.message_id, 0.25) for each in kept.traces)
    assert is_sampled("any", 1.0)
    assert not is_sampled("any", 0.0)


def test_a_sample_is_the_same_one_for_everybody() -> None:
    """PAT-56: who reads a message that its producer has left out knows by its id that it is left
    out; and it has its other headers all the same.
    """
    kept = Kept()
    one = tracer(kept, sample_rate=0.25)
    read = []
    for number in range(1_000):
        sending = one.begin("t", 0, None, NOW_MS, [("order", f"{number}")])
        headers = dict(sending.headers)
        assert headers["order"] == b"%d" % number
        message_id = id_text(headers["msgid"], "t", 0, number)
        read += [message_id] if is_sampled(message_id, 0.25) else []
        one.acknowledged(sending, number, NOW_MS)
    assert read == [each.message_id for each in kept.traces]


def test_a_chain_has_all_that_is_known_of_a_message() -> None:
    """PAT-56, PAT-59, PAT-60: who has read it twice is there twice; what was told twice is not."""
    [sent, other] = numbered(2)
    read = replace(sent, side="consumer", group="g", retries=0, at_ms=NOW_MS - 1)
    again = replace(read, at_ms=NOW_MS + 9, retries=1, status="failed", reason="no JSON")
    found = chains([again, read, other, sent, again])
    of_it = {chain.message_id: list(chain.traces) for chain in found}
    # Senders come first, whatever the clocks say.
    assert of_it == {sent.message_id: [sent, read, again], other.message_id: [other]}


def test_a_trace_topic_that_is_away_keeps_nobody() -> None:
    """PAT-57, PAT-61: what is too much is dropped, the oldest first, and counted."""
    is_asked, may_go_on = threading.Event(), threading.Event()
    kept = Kept()

    def stuck(texts: Sequence[bytes]) -> None:
        is_asked.set()
        may_go_on.wait()
        kept.tell(texts)

    direct = DirectTraces(stuck, limit=10)
    first, *rest = numbered(31)
    direct.put(first)
    is_asked.wait()
    for trace in rest:
        direct.put(trace)
    assert (direct.told, direct.dropped) == (0, 20)
    may_go_on.set()
    direct.close(60)
    assert kept.traces == [first, *rest[-10:]]
    assert (direct.told, direct.dropped) == (11, 20)


def test_traces_that_can_not_be_sent_are_counted() -> None:
    """PAT-57: and those that come later are sent."""
    kept = Kept()
    failures = iter([OSError("nobody is there")])
    is_over = threading.Event()

    def fails_once(texts: Sequence[bytes]) -> None:
        for failure in failures:
            is_over.set()
            raise failure
        kept.tell(texts)

    direct = DirectTraces(fails_once)
    first, second = numbered(2)
    direct.put(first)
    is_over.wait()
    direct.put(second)
    direct.close(60)
    assert (direct.told, direct.dropped) == (1, 1)
    assert kept.traces == [second]


def test_clicks_that_can_not_be_sent_are_told_of() -> None:
    """PAT-60: to whoever traces, and to whoever counts."""
    kept, counter = Kept(), AuditCounter("p", 60_000)
    nobody = [("127.0.0.1", unused_ports(1))]
    client = ClientSettings(request_timeout_ms=400)
    brief = ProducerSettings(client, delivery_timeout_ms=500, max_block_ms=500)
    plan = ClickPlan(count=1)
    with pytest.raises(KafkaError) as caught:
        produce_clicks(nobody, "t", 1, plan, settings=brief, audit=counter, tracer=tracer(kept))
    [trace] = kept.traces
    assert (trace.status, trace.reason, trace.offset) == ("failed", str(caught.value), None)
    assert [each.failed for each in counter.flush()] == [(0,)]


class Away(TopicTraces):
    """Of a topic that is not there."""

    attempts = 0

    def _send(self, decoded: object, facts: object) -> None:
        type(self).attempts += 1
        raise TopicMissing("there is no topic 'traces'\nnowhere")


def test_an_ingestion_leaves_a_trace_topic_that_is_away_alone() -> None:
    """PAT-57: a batch loses its traces and no more; and for a while the next ones don't try."""
    now = [0.0]
    traces = Away("traces", "kraftpy", {}, "c:9092", clock=lambda: now[0])
    batch = (Mock(), BatchFacts("w", NOW_MS, 100))
    assert traces.tell(*batch) == "there is no topic 'traces'"
    now[0] = 59.9
    assert "a moment ago" in (traces.tell(*batch) or "")
    assert Away.attempts == 1
    now[0] = 60.0
    assert traces.tell(*batch) == "there is no topic 'traces'"
    assert Away.attempts == 2


def test_spooled_traces_survive_their_process_and_an_outage(tmp_path: Path) -> None:
    """PAT-58: also the line that a process had not finished when it died is no obstacle."""
    traces = list(numbered(6))
    dead = SpooledTraces(tmp_path)
    for trace in traces[:3]:
        dead.put(trace)
    [path] = tmp_path.iterdir()
    with path.open("ab") as stream:
        stream.write(b'{"side": "prod')

    def nobody(_: Sequence[bytes]) -> None:
        raise OSError("nobody is there")

    kept = Kept()
    assert ship(tmp_path, kept.tell) == 0
    again = SpooledTraces(tmp_path)
    for trace in traces[3:]:
        again.put(trace)
    again.close()
    with pytest.raises(OSError, match="nobody is there"):
        ship(tmp_path, nobody)
    assert ship(tmp_path, kept.tell) == 6
    assert kept.traces == traces
    assert list(tmp_path.iterdir()) == []


def test_a_spool_has_a_limit(tmp_path: Path) -> None:
    """PAT-61: the oldest files go, and are counted; a disk that takes nothing is no failure."""
    spool = SpooledTraces(tmp_path / "spool", file_bytes=1, limit_files=5)
    traces = list(numbered(7))
    for trace in traces[:5]:
        spool.put(trace)
    assert spool.dropped_files == 0
    for trace in traces[5:]:
        spool.put(trace)
    assert spool.dropped_files == 2
    kept = Kept()
    assert ship(tmp_path / "spool", kept.tell) == 5
    assert kept.traces == traces[2:]
    (tmp_path / "spool").rmdir()
    spool.put(traces[0])
    assert spool.failures == 1
