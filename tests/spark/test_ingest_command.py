"""`kraftpy-ingest` from its words to the lake, on three nodes of kraftpy and by both readers."""

from __future__ import annotations

import json
import os
import signal
import struct
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest
from kraftpy_spark.clicks import SCHEMA, Click, ClickPlan, clicks, produce_clicks
from kraftpy_spark.jobs.ingest import asked_to_stop, main
from kraftpy_spark.jobs.trace_records import Trace
from kraftpy_spark.tracing import TopicTeller, Tracer
from spark.spark_brokers import Route, SparkBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kraftpy.records.reader import Record

PARTITIONS = 2
PLAN = ClickPlan(count=400, spoiled_share=0.02)


def ids(lake: Path) -> list[int]:
    """As a reader finds them who knows nothing of the lake's log."""
    paths = lake.glob("event_date=*/event_hour=*/*.parquet")
    return sorted(
        number for path in paths for number in pq.ParquetFile(path).read(["id"])["id"].to_pylist()
    )


def good(sent: list[Click]) -> list[int]:
    return sorted(click.number for click in sent if not click.is_spoiled)


def origin(letter: Record) -> tuple[str, int, int]:
    headers = dict(letter.headers)
    topic, partition, offset = (
        headers[f"retry.origin-{name}"] or b"" for name in ("topic", "partition", "offset")
    )
    return topic.decode(), struct.unpack(">i", partition)[0], struct.unpack(">q", offset)[0]


def test_a_topic_into_a_lake(
    route: Route, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run, a second one from its checkpoint, a back-fill without a checkpoint, an audit.

    By each reader, and against Apache Kafka, with the same rows in the lake record by record.
    PAT-56: the dead letters still have the ids that their producer gave them, and told of.
    """
    reader, nodes = route.format, route.broker
    topic = nodes.topic(PARTITIONS)
    letters = nodes.topic(PARTITIONS, name=f"{topic}.dlq")
    lake, metrics = tmp_path / "lake", tmp_path / "metrics.jsonl"
    source = ["-b", nodes.bootstrap, "--topics", topic, "--source-format", reader]
    source += ["--lake", str(lake), "--dead-letters", letters]
    rows = ["--schema", SCHEMA, "--event-time", "at", "--metrics", str(metrics)]
    run = ["run", *source, *rows, "--checkpoint", str(tmp_path / "checkpoint"), "--once"]
    sent: list[Click] = []
    told: dict[str, Trace] = {}
    tracer = Tracer(Mock(put=lambda each: told.update({each.message_id: each})), "c", "a", "p")
    for turn in range(2):
        plan = ClickPlan(count=PLAN.count, first_id=turn * PLAN.count, spoiled_share=0.02)
        produce_clicks(nodes.addresses, topic, PARTITIONS, plan, tracer=tracer)
        sent += clicks(plan)
        assert main([*run, "--max-offsets-per-trigger", "250"]) == 0
        assert ids(lake) == good(sent)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line["batch"] for line in lines] == list(range(len(lines)))
    assert sum(line["records"] for line in lines) == len(sent)
    assert sum(line["rows"] for line in lines) == len(good(sent))
    assert lines[-1]["lag"] == 0
    assert lines[0]["lag"] > 0
    printed = capsys.readouterr().out
    assert "lag after each batch" in printed
    assert f"batch {lines[-1]['batch']}: " in printed

    found = [each for part in nodes.records(letters, PARTITIONS).values() for each in part]
    spoiled = [click.value for click in sent if click.is_spoiled]
    assert sorted(each.value or b"" for each in found) == sorted(spoiled)
    in_topic = nodes.records(topic, PARTITIONS)
    for each in found:
        name, partition, offset = origin(each)
        assert name == topic
        [original] = [record for record in in_topic[partition] if record.offset == offset]
        assert (original.key, original.value) == (each.key, each.value)
        trace = told[(dict(each.headers)["msgid"] or b"").hex()]
        assert (trace.topic, trace.partition, trace.offset) == (name, partition, offset)
    assert len(told) == len(sent)

    again = ["backfill", *source, *rows, "--from-offsets", json.dumps({topic: {"0": 5}})]
    assert main(again) == 0
    assert ids(lake) == good(sent)
    assert main(["audit", *source, "--grace", "0s", "--interval", "1s"]) == 0


def test_what_is_wrong_is_said_before_anything_runs(
    spark: SparkSession,
    kraftpy_nodes: SparkBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert spark is not None
    nodes = kraftpy_nodes
    topic = nodes.topic(1)
    rest = ["--lake", str(tmp_path / "lake"), "--checkpoint", str(tmp_path / "c"), "--once"]
    good_words = {
        "-b": nodes.bootstrap,
        "--topics": topic,
        "--schema": "id BIGINT NOT NULL, at BIGINT",
    }
    for changed, said in (
        ({"-b": "127.0.0.1:1"}, "can be reached"),
        ({"--topics": "nowhere"}, "`kraftpy topics create nowhere` makes it"),
        ({"--dead-letters": "nowhere.dlq"}, "`kraftpy topics create nowhere.dlq` makes it"),
        ({"--dead-letters": topic}, f"what it writes itself: take {topic} out of --topics"),
        ({"--schema": "id BIGINT,,"}, "the schema is no struct of Spark's"),
        ({"--event-time": "when"}, "there is no column 'when'; there are id, at"),
        ({"--dedup-keys": "when"}, "--dedup-keys when: there is no such column"),
        ({"--late": "dead-letter"}, "--late dead-letter needs --dead-letters"),
        ({"--transform": "nothing:here"}, "--transform nothing:here: No module"),
        ({"--option": "startingOfsets=1"}, "startingofsets"),
    ):
        words = [word for pair in {**good_words, **changed}.items() for word in pair]
        assert main(["run", *words, *rest]) == 1, changed
        assert said in capsys.readouterr().err, changed
    assert not (tmp_path / "lake" / "_kraftpy" / "log").exists()


def test_records_that_were_deleted_before_they_were_read(
    spark: SparkSession,
    kraftpy_nodes: SparkBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The job says what to do, and does it when it is told to; so it does with a bad record."""
    assert spark is not None
    nodes = kraftpy_nodes
    topic = nodes.topic(1)
    words = ["run", "-b", nodes.bootstrap, "--topics", topic, "--lake", str(tmp_path / "lake")]
    words += ["--schema", "id BIGINT NOT NULL", "--checkpoint", str(tmp_path / "c"), "--once"]
    nodes.produce(topic, [b'{"id": 0}'])
    assert main(words) == 0
    nodes.produce(topic, [b'{"id": 1}', b'{"id": 2}', b'{"id": 3}', b"{"])
    nodes.delete_records(topic, {0: 3})
    capsys.readouterr()
    assert main(words) == 1
    assert "failOnDataLoss" in capsys.readouterr().err
    again = [*words, "--option", "failOnDataLoss=false"]
    assert main(again) == 1
    assert f"{topic}-0 at offset 4: the value is not JSON" in capsys.readouterr().err
    letters = nodes.topic(1, name=f"{topic}.dlq")
    assert main([*again, "--dead-letters", letters]) == 0
    assert ids(tmp_path / "lake") == [0, 3]
    assert nodes.values(letters) == [b"{"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_and_a_second_one_interrupts(number: signal.Signals) -> None:
    """An exception in the middle of a question to Spark would leave the connection beyond use."""
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    with asked_to_stop() as is_stopped:
        assert not is_stopped()
        signal.raise_signal(number)
        assert is_stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_stream_goes_on_until_it_is_stopped(
    spark: SparkSession,
    kraftpy_nodes: SparkBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By SIGTERM, after it has read what came while it ran.

    PAT-59: and then it tells the trace topic what it has read, which is found there.
    """
    assert spark is not None
    nodes = kraftpy_nodes
    topic, metrics = nodes.topic(1), tmp_path / "metrics.jsonl"
    metrics.touch()
    has_ended = threading.Event()

    def rows_told() -> int:
        """By the lines that are whole: it may be about to write one."""
        whole = metrics.read_text().rpartition("\n")[0].splitlines()
        return sum(json.loads(line)["rows"] for line in whole)

    def send_and_wait(numbers: range) -> None:
        nodes.produce(topic, [b'{"id": %d}' % number for number in numbers])
        while rows_told() <= numbers[-1]:
            if has_ended.wait(0.1):
                return

    def meanwhile() -> None:
        try:
            send_and_wait(range(10))
            send_and_wait(range(10, 15))
        finally:
            if not has_ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    words = ["run", "-b", nodes.bootstrap, "--topics", topic, "--lake", str(tmp_path / "lake")]
    words += ["--schema", "id BIGINT NOT NULL", "--checkpoint", str(tmp_path / "c")]
    handler = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=meanwhile)
    thread.start()
    try:
        assert main([*words, "--trigger", "100ms", "--metrics", str(metrics)]) == 0
    finally:
        has_ended.set()
        thread.join()
    assert signal.getsignal(signal.SIGTERM) == handler
    assert ids(tmp_path / "lake") == list(range(15))
    assert "stopped; the same command goes on from the checkpoint" in capsys.readouterr().out
    # It does.
    nodes.produce(topic, [b'{"id": 15}'], key=b"last")
    traces = nodes.topic(1, name=f"{topic}.traces")
    assert main([*words, "--once", "--trace-topic", traces]) == 0
    assert ids(tmp_path / "lake") == list(range(16))
    while not (found := nodes.values(traces)):
        # They are not waited for.
        pass
    [trace] = [Trace.from_json(value or b"") for value in found]
    assert (trace.message_id, trace.cluster) == (f"{topic}-0@15", nodes.bootstrap)
    sent = replace(trace, side="producer").to_json().encode()
    TopicTeller(nodes.addresses, traces, acks=-1)([sent])
    capsys.readouterr()
    search = ["trace", "-b", nodes.bootstrap, "--trace-topic", traces, "--key", "las"]
    assert main(search) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"message {topic}-0@15, key last"
    assert "sent to" in second
    assert "read from" in third
    assert main([*search, "--topic", "other"]) == 1
    assert capsys.readouterr().err == "no such message in the trace topic\n"
