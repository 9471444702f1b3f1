"""The words of `kraftpy-ingest` that several of its commands share, and what they mean."""

from __future__ import annotations

import importlib
import json
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _ArgumentGroup
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kraftpy_spark.jobs.failure import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kraftpy_spark.jobs.backfill import Offsets
    from kraftpy_spark.jobs.lake import Lake
    from kraftpy_spark.jobs.writing import BatchWriter, DeadLetters, Rules, Traces, Transform

__all__ = [
    "add_audit",
    "add_backfill",
    "add_compact",
    "add_demo",
    "add_run",
    "add_session",
    "add_trace",
    "batch_writer",
    "duration_ms",
    "is_secured",
    "own_topics",
    "session_of",
    "share",
    "source_options",
    "topic_pattern",
]

_FLAGS = re.compile(r"(?:\(\?[a-zA-Z]+\))+")
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SECURE = ("kafka.security.protocol", "kafka.sasl.mechanism")


def duration_ms(text: str) -> int:
    """`500ms`, `30s`, `10m`, `2h`, `1d`."""
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is no duration; write 500ms, 30s, 10m, 2h or 1d")
    return int(found[1]) * _UNITS[found[2]]


def time_ms(text: str) -> int:
    """ISO 8601, UTC unless it says otherwise, or milliseconds since 1970."""
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no time; write 2026-11-16T13:00:00Z") from None
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def _offsets(text: str) -> Offsets:
    try:
        found = json.loads(text)
        return {
            topic: {str(int(partition)): int(offset) for partition, offset in offsets.items()}
            for topic, offsets in found.items()
        }
    except (ValueError, AttributeError):
        raise ArgumentTypeError(f'{text!r} is not of the form {{"topic": {{"0": 5}}}}') from None


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def share(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found <= 1:
        raise ArgumentTypeError(f"{text!r} is no share; write a number from 0 to 1")
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def add_session(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        help="local[2], spark://HOST:7077, yarn, k8s://... (default:"
        " what spark-submit says, otherwise local[*])",
    )
    group.add_argument(
        "--jars",
        type=_names,
        default=(),
        metavar="JAR[,...]",
        help="for the driver and all executors; `make spark-jars` prints the Kafka connector's",
    )
    group.add_argument(
        "--conf",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark's; can be repeated",
    )


def add_run(parser: ArgumentParser) -> None:
    _add_source(parser)
    _add_rules(parser)
    group = parser.add_argument_group("where to, and how fast")
    _add_lake(group)
    _add_lake_format(group)
    group.add_argument(
        "--checkpoint",
        required=True,
        metavar="PATH",
        help="how far the job is; as durable as the lake",
    )
    group.add_argument(
        "--starting-offsets",
        default="earliest",
        metavar="earliest|latest|JSON",
        help="of a new checkpoint (default: %(default)s)",
    )
    group.add_argument(
        "--trigger",
        type=duration_ms,
        default="10s",
        metavar="DURATION",
        help="a batch every so often (default: %(default)s)",
    )
    group.add_argument(
        "--once",
        dest="trigger",
        action="store_const",
        const=None,
        help="read to the topics' ends of now, and end",
    )
    group.add_argument(
        "--max-offsets-per-trigger", type=int, metavar="N", help="the most that one batch reads"
    )
    group.add_argument(
        "--compact-every",
        type=int,
        default=0,
        metavar="BATCHES",
        help="compact the lake after so many batches (default: never)",
    )
    add_session(parser)


def add_backfill(parser: ArgumentParser) -> None:
    _add_source(parser)
    _add_rules(parser)
    group = parser.add_argument_group("what, and where to")
    _add_lake(group)
    _add_lake_format(group)
    group.add_argument(
        "--from-time",
        type=time_ms,
        metavar="TIME",
        help="of records: 2026-11-16T00:00:00Z, or milliseconds since 1970",
    )
    group.add_argument("--to-time", type=time_ms, metavar="TIME", help="up to and without it")
    group.add_argument(
        "--from-offsets",
        type=_offsets,
        metavar="JSON",
        help='as {"clicks": {"0": 1000}}; goes before --from-time',
    )
    group.add_argument("--to-offsets", type=_offsets, metavar="JSON", help="up to and without them")
    add_session(parser)


def add_compact(parser: ArgumentParser) -> None:
    _add_lake(parser)
    parser.add_argument(
        "--target-mb",
        type=float,
        default=128,
        metavar="MB",
        help="files smaller than half of it are joined (default: %(default)s)",
    )
    parser.add_argument(
        "--quiet",
        type=duration_ms,
        metavar="DURATION",
        help="leave out hours or days that ended later than this before the newest"
        " event of the slowest stream (default: take all)",
    )
    add_session(parser)


def add_audit(parser: ArgumentParser) -> None:
    _add_source(parser)
    group = parser.add_argument_group("what, and how closely")
    _add_lake(group)
    group.add_argument("--dead-letters", metavar="TOPIC", help="what is there has arrived, too")
    _add_audit_topic(group, "where producers tell what they have sent")
    group.add_argument(
        "--trace-topic", metavar="TOPIC", help="the one of `run`: it is left out of --pattern"
    )
    group.add_argument(
        "--interval",
        type=duration_ms,
        default="1m",
        metavar="DURATION",
        help="of the buckets that are compared (default: %(default)s)",
    )
    group.add_argument(
        "--grace",
        type=duration_ms,
        metavar="DURATION",
        help="how long after its end a bucket is not judged (default: two intervals)",
    )
    group.add_argument(
        "--format", choices=("text", "json"), default="text", help="default: %(default)s"
    )
    add_session(parser)


def add_trace(parser: ArgumentParser) -> None:
    _add_cluster(parser.add_argument_group("where from"))
    group = parser.add_argument_group("what: all that is given must hold")
    group.add_argument("--trace-topic", required=True, metavar="TOPIC")
    group.add_argument("--id", metavar="ID", help="the message's: 32 digits, or topic-0@17")
    group.add_argument("--key", metavar="TEXT", help="a part of the message's key")
    group.add_argument("--topic", metavar="NAME", help="where the message is")
    group.add_argument(
        "--from-time",
        type=time_ms,
        metavar="TIME",
        help="when it was sent or read: 2026-11-16T00:00:00Z, or milliseconds since 1970",
    )
    group.add_argument("--to-time", type=time_ms, metavar="TIME", help="up to and without it")
    group.add_argument(
        "--tag",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a header of the message; can be repeated",
    )
    group.add_argument("--status", choices=("ok", "failed"))
    group.add_argument(
        "--limit",
        type=int,
        default=20,
        metavar="N",
        help="the most messages that are shown, the earliest first (default: %(default)s)",
    )
    group.add_argument(
        "--format", choices=("text", "json"), default="text", help="default: %(default)s"
    )
    add_session(parser)


def add_demo(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--clicks", type=int, default=100_000, metavar="N", help="default: %(default)s"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        metavar="DIR",
        help="where lake and cluster are left (default: a temporary one, removed at the end)",
    )
    parser.add_argument("--source-format", choices=("kraftpy", "kafka"), default="kraftpy")
    add_session(parser)


def _add_source(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("where from")
    topics = group.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topics", type=_names, default=(), metavar="NAME[,...]")
    topics.add_argument(
        "--pattern", metavar="REGEX", help="all topics whose names match, but for the job's own"
    )
    _add_cluster(group)


def _add_cluster(group: _ArgumentGroup) -> None:
    group.add_argument(
        "-b",
        "--bootstrap-server",
        dest="bootstrap",
        default="127.0.0.1:9092",
        metavar="HOST:PORT[,...]",
        help="default: %(default)s",
    )
    group.add_argument(
        "--source-format",
        choices=("kraftpy", "kafka"),
        default="kraftpy",
        help="kraftpy: no jars are needed; kafka: Spark's own connector (default: %(default)s)",
    )
    group.add_argument(
        "--option",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the source, such as minPartitions=8,"
        " kafka.isolation.level=read_committed; can be repeated",
    )


def _add_audit_topic(group: _ArgumentGroup, help_text: str) -> None:
    group.add_argument("--audit-topic", metavar="TOPIC", help=help_text)


def _add_lake(parser: ArgumentParser | _ArgumentGroup) -> None:
    parser.add_argument(
        "--lake",
        required=True,
        metavar="PATH",
        help="a directory, or hdfs://..., s3a://... that all executors reach",
    )


def _add_lake_format(parser: _ArgumentGroup) -> None:
    parser.add_argument(
        "--lake-format",
        choices=("parquet", "delta"),
        help="of a new lake: Parquet alone, or a Delta table (default: parquet)",
    )


def _add_rules(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("records and rows")
    group.add_argument(
        "--schema",
        required=True,
        metavar="SCHEMA|@FILE",
        help="a JSON schema, or columns as 'id BIGINT NOT NULL, url STRING'",
    )
    group.add_argument(
        "--event-time", metavar="COLUMN", help="when it happened (default: the record's timestamp)"
    )
    group.add_argument(
        "--event-time-unit",
        choices=("s", "ms", "us"),
        default="ms",
        help="of an event time that is a number (default: %(default)s)",
    )
    group.add_argument(
        "--partition-by",
        choices=("hour", "day"),
        default="hour",
        help="the lake's folders, by event time in UTC (default: %(default)s)",
    )
    group.add_argument(
        "--watermark",
        type=duration_ms,
        default="10m",
        metavar="DURATION",
        help="how much older than the newest event one may be before it is late"
        " (default: %(default)s)",
    )
    group.add_argument(
        "--late",
        choices=("keep", "dead-letter"),
        default="keep",
        help="what to do with late records (default: %(default)s)",
    )
    group.add_argument(
        "--future-limit",
        type=duration_ms,
        default="1d",
        metavar="DURATION",
        help="how far an event may be ahead of its record (default: %(default)s)",
    )
    _add_exceptions(group)


def _add_exceptions(group: _ArgumentGroup) -> None:
    """What becomes of records that are not like the others."""
    group.add_argument(
        "--dedup-keys",
        type=_names,
        default=(),
        metavar="COLUMN[,...]",
        help="leave out rows whose keys the same hour or day of the lake has;"
        " _key is the record's own",
    )
    group.add_argument(
        "--dead-letters",
        metavar="TOPIC",
        help="for records that can't become rows (default: they stop the job)",
    )
    group.add_argument(
        "--audit",
        action="store_true",
        help="keep the headers audit.pid, audit.seq and audit.ts for the audit",
    )
    _add_audit_topic(group, "where producers tell what they have sent: it is left out of --pattern")
    group.add_argument(
        "--trace-topic",
        metavar="TOPIC",
        help="tell it what became of each record (default: nobody is told)",
    )
    group.add_argument(
        "--trace-sample",
        type=share,
        default=1.0,
        metavar="SHARE",
        help="of the records, by their ids (default: %(default)s, all)",
    )
    group.add_argument(
        "--metrics", type=Path, metavar="FILE", help="a line of JSON for each batch is added to it"
    )
    group.add_argument(
        "--transform",
        metavar="MODULE:FUNCTION",
        help="a function from DataFrame to DataFrame that rows pass through",
    )


def session_of(options: Namespace, name: str) -> SparkSession:
    from kraftpy_spark.jobs.session import open_session

    return open_session(name, master=options.master, jars=options.jars, settings=dict(options.conf))


def batch_writer(options: Namespace, spark: SparkSession, lake: Lake) -> BatchWriter:
    """Raises SchemaMistake, JobFailed."""
    from kraftpy_spark.jobs.writing import BatchWriter

    return BatchWriter(
        spark, lake, _rules_of(options), _letters_of(options), traces=_traces_of(options)
    )


def _traces_of(options: Namespace) -> Traces | None:
    from kraftpy_spark.jobs.traces import TopicTraces

    if options.trace_topic is None:
        return None
    return TopicTraces(
        topic=options.trace_topic,
        sink_format="kafka" if is_secured(options.option) else "kraftpy",
        # They may get lost, and are not waited for.
        sink_options={**_sink_options(options), "kafka.acks": "0"},
        cluster=options.bootstrap,
        sample_rate=options.trace_sample,
    )


def _sink_options(options: Namespace) -> dict[str, str]:
    """What the source was told of the cluster, such as its keys."""
    shared = {key: value for key, value in options.option if key.startswith("kafka.")}
    shared["kafka.bootstrap.servers"] = options.bootstrap
    if not is_secured(options.option):
        shared.pop("kafka.isolation.level", None)
    return shared


def _letters_of(options: Namespace) -> DeadLetters | None:
    from kraftpy_spark.jobs.dead_letters import OnceLetters, SparkLetters
    from kraftpy_spark.options import SinkOptions

    if options.dead_letters is None:
        return None
    shared = _sink_options(options)
    if is_secured(options.option):
        return SparkLetters(options.dead_letters, shared)
    return OnceLetters(options.dead_letters, SinkOptions.parse(shared, is_stream=True))


def _rules_of(options: Namespace) -> Rules:
    """Needs a session. Raises SchemaMistake, JobFailed."""
    from kraftpy_spark.jobs.decode import Shape
    from kraftpy_spark.jobs.schema import load_schema
    from kraftpy_spark.jobs.writing import Rules

    shape = Shape(
        schema=load_schema(options.schema),
        event_time=options.event_time,
        event_time_unit=options.event_time_unit,
        partition_by=options.partition_by,
        future_limit_ms=options.future_limit,
        keeps_audit=options.audit,
    )
    unknown = [key for key in options.dedup_keys if key not in shape.columns]
    if unknown and options.transform is None:
        raise JobFailed(
            f"--dedup-keys {unknown[0]}: there is no such column; there are"
            f" {', '.join(shape.columns)}"
        )
    if options.late == "dead-letter" and options.dead_letters is None:
        raise JobFailed("--late dead-letter needs --dead-letters TOPIC")
    return Rules(
        shape=shape,
        watermark_delay_ms=options.watermark,
        late=options.late,
        dedup_keys=options.dedup_keys,
        transform=_load_transform(options.transform),
    )


def source_options(options: Namespace) -> dict[str, str]:
    """What the source is told, besides where to start."""
    chosen = (
        {"subscribePattern": topic_pattern(options)}
        if options.pattern is not None
        else {"subscribe": ",".join(options.topics)}
    )
    return {
        "kafka.bootstrap.servers": options.bootstrap,
        **chosen,
        # They cost time, so they are read where something is done with them.
        "includeHeaders": str(
            options.dead_letters is not None
            or getattr(options, "trace_topic", None) is not None
            or getattr(options, "audit", True)
        ).lower(),
        **dict(options.option),
    }


def own_topics(options: Namespace) -> list[str]:
    """Those of what is told about records, by the jobs and for them: no records to be read."""
    names = ("dead_letters", "trace_topic", "audit_topic")
    return [topic for name in names if (topic := getattr(options, name, None)) is not None]


def topic_pattern(options: Namespace) -> str:
    """Of all topics that match, but for the job's own: it would read for ever what it writes.

    The same to Python's and to Java's idea of a pattern.
    """
    pattern = str(options.pattern)
    own = "|".join(re.escape(topic) for topic in own_topics(options))
    if not own:
        return pattern
    # Flags for all of it, such as (?i), may only stand at its beginning.
    flags = _FLAGS.match(pattern)
    start = "" if flags is None else flags[0]
    return f"{start}(?!(?-i:{own})$)(?:{pattern[len(start) :]})"


def _load_transform(text: str | None) -> Transform | None:
    if text is None:
        return None
    module, colon, function = text.partition(":")
    if not colon:
        raise JobFailed(f"--transform {text}: write MODULE:FUNCTION")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Transform = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise JobFailed(f"--transform {text}: {error}") from error
    return found


def is_secured(options: Sequence[tuple[str, str]]) -> bool:
    """Whether the cluster asks for more than plain text."""
    return any(key in _SECURE for key, _ in options)
