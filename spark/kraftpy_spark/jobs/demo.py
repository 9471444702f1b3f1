"""All of it in one command: three nodes, a stream of clicks, the lake, a compaction, the audit.

Clicks are produced while they are ingested, so that there is a lag to look at.
"""

from __future__ import annotations

import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kraftpy.client.admin_operations import NewTopic, create_topics, require
from kraftpy.client.blocking_clients import BlockingAdmin, BlockingProducer
from kraftpy_spark.clicks import SCHEMA, ClickPlan, produce_clicks
from kraftpy_spark.jobs.audit_records import AuditCounter
from kraftpy_spark.options import parse_servers

if TYPE_CHECKING:
    from kraftpy.world import Address

__all__ = ["run_demo"]

_PARTITIONS = 4
_INTERVAL_MS = 5_000
_SPOILED_SHARE = 0.001
_FAR_PAST_GRACE_MS = 1


class _Producer(threading.Thread):
    """Sends clicks in parts, and then tells the audit topic; what fails is kept for the end."""

    def __init__(self, servers: tuple[Address, ...], count: int) -> None:
        super().__init__(name="clicks", daemon=True)
        self._servers = servers
        self._count = count
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._produce()
        except BaseException as failure:
            self.failure = failure

    def _produce(self) -> None:
        counter = AuditCounter("demo", _INTERVAL_MS)
        part = max(1, self._count // 20)
        for first in range(0, self._count, part):
            now_ms = time.time_ns() // 1_000_000
            plan = ClickPlan(
                count=min(part, self._count - first),
                first_id=first,
                begin_ms=now_ms,
                step_ms=0,
                spoiled_share=_SPOILED_SHARE,
            )
            produce_clicks(self._servers, "clicks", _PARTITIONS, plan, audit=counter)
        with BlockingProducer(self._servers) as producer:
            for record in counter.flush():
                producer.send("clicks.audit", record.to_json().encode())


def run_demo(options: Namespace) -> int:
    from kraftpy_spark.jobs.ingest import main

    with _directory(options.directory) as directory, _cluster(directory) as bootstrap:
        servers = parse_servers({"kafka.bootstrap.servers": bootstrap})
        topics = [NewTopic(name, _PARTITIONS, 3) for name in ("clicks", "clicks.dlq")]
        with BlockingAdmin(servers) as admin:
            require(admin.run(create_topics([*topics, NewTopic("clicks.audit", 1, 3)])))
        print(f"three nodes at {bootstrap}; {options.clicks:,} clicks are on their way", flush=True)
        producer = _Producer(servers, options.clicks)
        producer.start()
        source = ["-b", bootstrap, "--topics", "clicks", "--lake", str(directory / "lake")]
        source += ["--source-format", options.source_format, *_session_words(options)]
        run = ["run", *source, "--checkpoint", str(directory / "checkpoint"), "--once", "--audit"]
        run += ["--schema", SCHEMA, "--event-time", "at", "--dead-letters", "clicks.dlq"]
        run += ["--max-offsets-per-trigger", str(max(1, options.clicks // 8))]
        # What was sent meanwhile is read by the next turn, until all that was sent is read.
        while producer.is_alive():
            if main(run):
                return 1
        producer.join()
        if producer.failure is not None:
            raise producer.failure
        audit = ["audit", *source, "--dead-letters", "clicks.dlq", "--audit-topic", "clicks.audit"]
        audit += ["--interval", f"{_INTERVAL_MS}ms", "--grace", f"{_FAR_PAST_GRACE_MS}ms"]
        lake = ["--lake", str(directory / "lake"), *_session_words(options)]
        return main(run) or main(["compact", *lake]) or main(audit)


def _session_words(options: Namespace) -> list[str]:
    words = ["--master", options.master] if options.master else []
    if options.jars:
        words += ["--jars", ",".join(options.jars)]
    for key, value in options.conf:
        words += ["--conf", f"{key}={value}"]
    return words


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="kraftpy-demo-") as made:
        yield Path(made)


@contextmanager
def _cluster(directory: Path) -> Iterator[str]:
    from kraftpy.testing.cluster import ClusterOptions, open_kafka_cluster

    with open_kafka_cluster(ClusterOptions(nodes=3), directory / "nodes") as cluster:
        yield cluster.bootstrap_servers
