"""JSON schemas as Spark's types, words of the command line, reports: without a session."""

from __future__ import annotations

import io
import json
import re
import shutil
from argparse import ArgumentTypeError
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from kraftpy_spark.jobs import arguments
from kraftpy_spark.jobs.backfill import Range, resolve
from kraftpy_spark.jobs.failure import JobFailed, explained_by_spark
from kraftpy_spark.jobs.ingest import _parser, main
from kraftpy_spark.jobs.lake_files import LocalFiles
from kraftpy_spark.jobs.lake_state import Source, Span
from kraftpy_spark.jobs.reports import BatchReport, Reporter, lag_plot
from kraftpy_spark.jobs.schema import SchemaMistake, load_schema, struct_of_json_schema
from kraftpy_spark.jobs.streaming import Ingestion, Pace, writer_of

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "click",
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "extra": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "user": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
    },
}


def test_a_json_schema_becomes_columns(tmp_path: Path) -> None:
    made = struct_of_json_schema(SCHEMA)
    assert made.simpleString() == (
        "struct<id:bigint,price:double,at:timestamp,day:date,tags:array<string>,"
        "extra:map<string,boolean>,user:struct<name:string>>"
    )
    assert not made["id"].nullable
    assert made["price"].nullable
    path = tmp_path / "clicks.json"
    path.write_text(json.dumps(SCHEMA))
    assert load_schema(f"@{path}") == made


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ([], '"type": "object"'),
        ({"type": "object"}, 'needs "properties"'),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "they become columns"),
        ({"type": "object", "properties": {"a": {"type": "null"}}}, r"\$\.a: .*one type"),
        ({"type": "object", "properties": {"a": {}}}, r"\$\.a: .*one type"),
        ({"type": "object", "properties": {"a": {"type": "blob"}}}, "'blob' is no type"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, r'\$\.a: .*"items"'),
        ({"type": "object", "properties": {}, "required": ["b"]}, "'b' is required and not"),
        (
            {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}},
            r"\$\.a: minimum can't be enforced here",
        ),
    ],
)
def test_a_schema_that_can_not_be_kept_is_refused(schema: object, words: str) -> None:
    """With the place of the mistake; what would not be enforced is not passed over."""
    with pytest.raises(SchemaMistake, match=words):
        struct_of_json_schema(schema)


def test_a_schema_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SchemaMistake, match="can't be read"):
        load_schema(f"@{tmp_path}/none.json")
    with pytest.raises(SchemaMistake, match="not JSON"):
        load_schema("{")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("500ms", 500), ("30s", 30_000), ("10m", 600_000), ("2h", 7_200_000), ("1d", 86_400_000)],
)
def test_durations(text: str, wanted: int) -> None:
    assert arguments.duration_ms(text) == wanted


def test_words_that_are_none() -> None:
    for parse, text in (
        (arguments.duration_ms, "10"),
        (arguments.duration_ms, "-1s"),
        (arguments.time_ms, "yesterday"),
        (arguments.share, "1.01"),
        (arguments.share, "-0.01"),
        (arguments.share, "half"),
    ):
        with pytest.raises(ArgumentTypeError, match="write"):
            parse(text)
    assert arguments.time_ms("2026-11-16T12:00:00Z") == 1_794_830_400_000
    assert arguments.time_ms("2026-11-16T12:00:00") == 1_794_830_400_000
    assert arguments.time_ms("1794830400000") == 1_794_830_400_000
    assert [arguments.share(text) for text in ("0", "0.5", "1")] == [0, 0.5, 1]


def test_a_pattern_leaves_out_what_the_job_writes() -> None:
    """PAT-43, PAT-61: a bad record that was read again and again would be written again and again.

    A name is taken as it is, not as a pattern.
    """
    words = ["--pattern", "clicks.*|a", "--lake", "l"]
    run = ["run", *words, "--schema", "s", "--checkpoint", "c"]
    own = ["--dead-letters", "clicks.dlq", "--trace-topic", "clicks-traces"]
    own += ["--audit-topic", "clicks.audit"]

    def pattern_of(words: list[str]) -> str:
        return arguments.source_options(_parser().parse_args(words))["subscribePattern"]

    assert pattern_of(run) == "clicks.*|a"
    pattern = pattern_of(run + own)
    assert pattern_of(["audit", *words, *own]) == pattern, "the audit looks at what was read"
    names = ["clicks", "clicks.dlq", "clicks.dlq2", "clicksXdlq", "clicks-traces", "a", "b"]
    found = [name for name in (*names, "clicks.audit") if re.fullmatch(pattern, name)]
    assert found == ["clicks", "clicks.dlq2", "clicksXdlq", "a"]
    # Flags stay at the beginning, where alone they may stand, and are not for the job's own.
    pattern = pattern_of(["run", "--pattern", "(?i)CLICKS.*", *run[3:], *own])
    found = [name for name in ("clicks", "clicks.dlq", "Clicks.DLQ") if re.fullmatch(pattern, name)]
    assert found == ["clicks", "Clicks.DLQ"]


def test_without_java_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("java") is None
    assert main(["compact", "--lake", str(tmp_path)]) == 1
    assert "Spark needs Java 17 or newer" in capsys.readouterr().err
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["compact", "--lake", str(tmp_path)]) == 1
    assert f"JAVA_HOME is {tmp_path}" in capsys.readouterr().err


def test_a_checkpoint_belongs_to_one_lake(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    name = writer_of(files, "file:///lake")
    assert name.startswith("stream-")
    assert writer_of(files, "file:///lake") == name
    with pytest.raises(JobFailed, match="belongs to the lake file:///lake, not to file:///other"):
        writer_of(files, "file:///other")


def test_failures_of_spark_get_words() -> None:
    lost = "[STREAM_FAILED] Query terminated\n...\nSome data may have been lost because\n"
    assert "--option failOnDataLoss=false" in str(explained_by_spark(ValueError(lost)))
    absent = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka. Make sure"
    assert "make spark-jars" in str(explained_by_spark(ValueError(absent)))
    ours = "[X] pages\n  File ...\nkraftpy_spark.topics.TopicMissing: there is no topic 'a'\n\tat y"
    assert str(explained_by_spark(ValueError(ours))) == "there is no topic 'a'"
    assert str(explained_by_spark(ValueError("\nfirst\nsecond"))) == "first"
    slow = "[STREAM_FAILED] Query terminated: Python worker failed to connect back."
    assert "the machine is too busy" in str(explained_by_spark(ValueError(slow)))


def report(batch: int, lag: int | None) -> BatchReport:
    return BatchReport(batch, 10, 8, 1, 2, 1, 3, 4_000_000, 2.0, None, lag)


class Query:
    """One that fails, or is over."""

    def __init__(self, failure: str | None) -> None:
        self._failure = failure
        self.recentProgress: list[object] = []

    def awaitTermination(self, _seconds: float) -> bool:
        if self._failure is not None:
            raise ValueError(self._failure)
        return True

    def stop(self) -> None:
        pass


SLOW = "Python worker failed to connect back."


@pytest.mark.parametrize(
    ("failures", "is_stopped", "starts", "said"),
    [
        ([SLOW, SLOW, None], False, 3, None),
        ([SLOW, SLOW, SLOW, None], False, 3, "the machine is too busy"),
        ([SLOW, None], True, 1, "the machine is too busy"),
        (["else", None], False, 1, "else"),
    ],
)
def test_a_query_that_had_no_time_to_start_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
    failures: list[str | None],
    is_stopped: bool,
    starts: int,
    said: str | None,
) -> None:
    """Spark gives its processes of Python ten seconds, which a busy machine may not have."""
    job = Ingestion(
        spark=Mock(),
        lake=Mock(),
        batches=Mock(),
        name="w",
        view=None,
        reporter=Mock(),
        is_stopped=lambda: is_stopped,
    )
    start = Mock(side_effect=[Query(failure) for failure in failures])
    monkeypatch.setattr(job, "_start", start)
    with nullcontext() if said is None else pytest.raises(JobFailed, match=said):
        job.run("kraftpy", {}, "checkpoint", Pace(None))
    assert start.call_count == starts


def test_batches_are_told_to_people_and_machines(tmp_path: Path) -> None:
    out, metrics = io.StringIO(), tmp_path / "metrics.jsonl"
    for lag in (7, None):
        Reporter(out, metrics).tell(report(5, lag))
    first, second = out.getvalue().splitlines()
    assert first == (
        "batch 5: 10 records, 8 rows, 1 bad, 2 late, 1 duplicates, 3 files, 4.0 MB,"
        " 2.0 s (5 records/s), lag 7"
    )
    assert second.endswith("lag unknown")
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [line["lag"] for line in lines] == [7, None]
    assert lines[0]["rows"] == 8


def test_a_plot_has_a_bar_for_each_batch_and_a_limit() -> None:
    lines = lag_plot([report(0, 100), report(1, 1), report(2, 0), report(3, None)]).splitlines()
    assert [line.count("█") for line in lines] == [0, 50, 1, 0]
    many = lag_plot([report(number, 1_000 - number) for number in range(1_000)]).splitlines()
    assert len(many) <= 21
    assert many[-1].split()[0] == "999"
    assert lag_plot([]).splitlines() == ["lag after each batch, in records"]
    assert Reporter(io.StringIO(), None).summary() == "there was nothing new to read"


class Ends:
    """A cluster with one partition that has offsets 10 to 100, a record every second."""

    source = Source("t", "id", 0)

    def beginnings(self, _topics: object) -> dict[Source, int]:
        return {self.source: 10}

    def ends(self, _topics: object) -> dict[Source, int]:
        return {self.source: 100}

    def at_time(self, _topics: object, time_ms: int) -> dict[Source, int]:
        return {self.source: min(max(time_ms // 1000, 10), 100)}


def test_a_back_fill_has_offsets_or_times() -> None:
    def span(chosen: Range) -> Span:
        return resolve(Ends(), {}, chosen)[Ends.source]  # type: ignore[arg-type]

    assert span(Range()) == Span(10, 99)
    assert span(Range(20_000, 30_000)) == Span(20, 29)
    assert span(Range(20_000, 30_000, {"t": {"0": 25}}, {"t": {"0": 26}})) == Span(25, 25)
    assert span(Range(20_000, 20_000)) == Span(20, 19)
    for chosen in (Range(from_offsets={"t": {"0": 9}}), Range(to_offsets={"t": {"0": 101}})):
        with pytest.raises(JobFailed, match="t-0 has offsets 10 to 100"):
            span(chosen)
    with pytest.raises(JobFailed, match="ends at 20 before it begins at 30"):
        span(Range(30_000, 20_000))
