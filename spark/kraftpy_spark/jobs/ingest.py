"""Topics into a lake: the job, and the command `kraftpy-ingest`.

    kraftpy-ingest run --topics clicks --schema @clicks.json --lake lake --checkpoint checkpoint
    spark-submit --master spark://host:7077 .../kraftpy_spark/jobs/ingest.py run ...

Exactly once rests on two things: Spark's checkpoint, which gives a batch of the same number the
same offsets again, and the lake's log, which takes a batch of one number once (writing.py). The
checkpoint names its writer and its lake, so that it is not used with another lake.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kraftpy_spark.jobs import arguments
from kraftpy_spark.jobs.failure import JobFailed, explained_by_spark

if TYPE_CHECKING:
    from kraftpy.client.cluster import TopicInfo
    from kraftpy_spark.jobs.cluster_view import ClusterView

__all__ = ["asked_to_stop", "main"]

_EXAMPLES = """examples:
  kraftpy-ingest demo
  kraftpy-ingest run --topics clicks --schema 'id BIGINT NOT NULL, url STRING, at TIMESTAMP' \\
      --event-time at --lake lake --checkpoint checkpoint --dead-letters clicks.dlq
  kraftpy-ingest backfill --topics clicks --schema @clicks.json --lake lake \\
      --from-time 2026-11-16T00:00:00Z --to-time 2026-11-17T00:00:00Z
  kraftpy-ingest compact --lake lake
  kraftpy-ingest audit --topics clicks --lake lake
  kraftpy-ingest trace --trace-topic traces --key user-17
"""


def run(options: Namespace) -> int:
    """Go on where the checkpoint ends, until stopped, or once to the topics' ends."""
    from kraftpy_spark.jobs.lake_files import open_files
    from kraftpy_spark.jobs.lake_format import open_lake
    from kraftpy_spark.jobs.reports import Reporter, lag_plot
    from kraftpy_spark.jobs.streaming import Ingestion, Pace, writer_of

    spark = arguments.session_of(options, "kraftpy-ingest run")
    view = _view(options)
    _topics(options, view)
    lake = open_lake(open_files(spark, options.lake), options.lake_format)
    reporter = Reporter(sys.stdout, options.metrics)
    pace = Pace(options.trigger, options.max_offsets_per_trigger, options.starting_offsets)
    with asked_to_stop() as is_stopped:
        job = Ingestion(
            spark=spark,
            lake=lake,
            batches=arguments.batch_writer(options, spark, lake),
            name=writer_of(open_files(spark, options.checkpoint), lake.files.root),
            view=view,
            reporter=reporter,
            compact_every=options.compact_every,
            is_stopped=is_stopped,
        )
        job.run(options.source_format, arguments.source_options(options), options.checkpoint, pace)
        if is_stopped():
            print("stopped; the same command goes on from the checkpoint")
    print(reporter.summary())
    if reporter.reports:
        print(lag_plot(reporter.reports))
    return 0


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether SIGTERM or Ctrl-C has come, which is looked at between two questions to Spark.

    An exception in the middle of one would leave the connection to Spark's JVM beyond use. A second
    signal is such an exception: for those who don't want to wait.
    """
    came: list[int] = []

    def note(number: int, _: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def backfill(options: Namespace) -> int:
    """One range of offsets or time, in one batch; what the lake has is left out."""
    from kraftpy_spark.jobs.backfill import Range, back_fill
    from kraftpy_spark.jobs.lake_files import open_files
    from kraftpy_spark.jobs.lake_format import open_lake
    from kraftpy_spark.jobs.reports import Reporter

    spark = arguments.session_of(options, "kraftpy-ingest backfill")
    view = _view(options)
    if view is None:
        raise JobFailed("a back-fill asks the cluster for offsets, which it can in plain text only")
    lake = open_lake(open_files(spark, options.lake), options.lake_format)
    chosen = Range(
        options.from_time, options.to_time, options.from_offsets or {}, options.to_offsets or {}
    )
    report = back_fill(
        spark,
        lake,
        arguments.batch_writer(options, spark, lake),
        view,
        chosen,
        topics=_topics(options, view),
        source_format=options.source_format,
        source_options=arguments.source_options(options),
    )
    Reporter(sys.stdout, options.metrics).tell(report)
    return 0


def compact(options: Namespace) -> int:
    from kraftpy_spark.jobs.compaction import compact_lake
    from kraftpy_spark.jobs.lake_files import open_files
    from kraftpy_spark.jobs.lake_format import open_lake

    spark = arguments.session_of(options, "kraftpy-ingest compact")
    lake = open_lake(open_files(spark, options.lake))
    target = int(options.target_mb * 1e6)
    done = compact_lake(spark, lake, target_bytes=target, quiet_ms=options.quiet)
    for each in done:
        print(each.line())
    print(f"{len(done)} folder{'' if len(done) == 1 else 's'} compacted")
    return 0


def audit(options: Namespace) -> int:
    """1 if something is lost or double."""
    from kraftpy_spark.jobs.audit import AuditSettings, audit_lake
    from kraftpy_spark.jobs.audit_text import audit_text
    from kraftpy_spark.jobs.lake_files import open_files
    from kraftpy_spark.jobs.lake_format import open_lake

    spark = arguments.session_of(options, "kraftpy-ingest audit")
    view = _view(options)
    if view is None:
        raise JobFailed("an audit asks the cluster for topics, which it can in plain text only")
    topics = _topics(options, view)
    settings = AuditSettings(
        source_format=options.source_format,
        source_options=arguments.source_options(options),
        topic_ids={name: str(info.topic_id) for name, info in topics.items()},
        beginnings={
            (source.topic, source.partition): offset
            for source, offset in view.beginnings(topics).items()
        },
        dead_letters=options.dead_letters,
        audit_topic=options.audit_topic,
        interval_ms=options.interval,
        grace_ms=options.grace,
    )
    lake = open_lake(open_files(spark, options.lake))
    found = audit_lake(spark, lake, settings, time.time_ns() // 1_000_000)
    print(json.dumps(found.to_json()) if options.format == "json" else audit_text(found))
    return 0 if found.is_clean else 1


def trace(options: Namespace) -> int:
    """1 if no such message is found."""
    from kraftpy_spark.jobs.trace_search import Wanted, chain_text, find_chains

    spark = arguments.session_of(options, "kraftpy-ingest trace")
    source = {"kafka.bootstrap.servers": options.bootstrap, **dict(options.option)}
    wanted = Wanted(
        message_id=options.id,
        key=options.key,
        topic=options.topic,
        from_ms=options.from_time,
        to_ms=options.to_time,
        tags=options.tag,
        status=options.status,
        limit=options.limit,
    )
    try:
        found = find_chains(spark, options.source_format, source, options.trace_topic, wanted)
    except Exception as error:
        raise explained_by_spark(error) from error
    for chain in found:
        if options.format == "json":
            print(json.dumps([json.loads(each.to_json()) for each in chain.traces]))
        else:
            print(chain_text(chain))
    if not found:
        print("no such message in the trace topic", file=sys.stderr)
    return 0 if found else 1


def demo(options: Namespace) -> int:
    """All of it, on a cluster of its own."""
    from kraftpy_spark.jobs.demo import run_demo

    return run_demo(options)


def _view(options: Namespace) -> ClusterView | None:
    """None if the cluster does not speak plain text."""
    from kraftpy_spark.jobs.cluster_view import ClusterView

    if arguments.is_secured(options.option):
        return None
    view = ClusterView(arguments.source_options(options))
    view.check()
    return view


def _topics(options: Namespace, view: ClusterView | None) -> Mapping[str, TopicInfo]:
    """What is to be read; and the dead-letter topic has to be there, too."""
    from kraftpy_spark.jobs.cluster_view import find_topics

    own = [topic for topic in arguments.own_topics(options) if topic in options.topics]
    if own:
        raise JobFailed(f"the job would read what it writes itself: take {own[0]} out of --topics")
    if view is None:
        return {}
    there = view.topics()
    if options.dead_letters is not None:
        find_topics(there, [options.dead_letters], None)
    if options.pattern is not None:
        return find_topics(there, (), arguments.topic_pattern(options))
    return find_topics(there, options.topics, None)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="kraftpy-ingest",
        description="Topics into a lake of Parquet, exactly once, with Spark.",
        epilog=_EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    made = commands.add_parser("run", help="stream topics into a lake")
    made.set_defaults(run=run)
    arguments.add_run(made)
    made = commands.add_parser("backfill", help="bring a range of offsets or time into a lake")
    made.set_defaults(run=backfill)
    arguments.add_backfill(made)
    made = commands.add_parser("compact", help="make few large files of many small ones")
    made.set_defaults(run=compact)
    arguments.add_compact(made)
    made = commands.add_parser("audit", help="is everything there once, and if not, what isn't")
    made.set_defaults(run=audit)
    arguments.add_audit(made)
    made = commands.add_parser("trace", help="what became of single messages, by the trace topic")
    made.set_defaults(run=trace)
    arguments.add_trace(made)
    made = commands.add_parser("demo", help="three nodes, clicks, a lake and its audit, end to end")
    made.set_defaults(run=demo)
    arguments.add_demo(made)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(words)
    from kraftpy_spark.jobs.failure import EXPLAINED

    try:
        code: int = options.run(options)
    except EXPLAINED as failure:
        print(f"kraftpy-ingest: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    # Under spark-submit the first entry is this folder, whose modules are not to be found by it.
    sys.path[:] = [
        each for each in sys.path if Path(each or ".").resolve() != Path(__file__).parent
    ]
    sys.exit(main())
