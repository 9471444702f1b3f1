"""Exactly once while things go wrong: schedules drawn from seeds, and what must hold at the end.

A schedule has a reader (Spark's own connector, or `kraftpy`), a death of the driver by SIGKILL (at
a point of a batch's way into the lake, or in the middle of a task that copies to another topic), a
fault of the cluster (the leader of the input is killed, or cut off from the other nodes), and
perhaps tasks that fail at their first attempt. Input is sent before and while that happens.
Afterwards a second driver goes on from the checkpoints. Then every record of the input is once in
the lake, or once among the dead letters if it is spoiled, and once in the copy; and every body has
the CRC that was sent with it.

Starting a driver costs most, so that one process finishes a schedule and then begins the next.

    make spark-faults
    PYTHONPATH=tests:. .venv/bin/python tests/spark/fault_schedules.py --seeds 1 --gigabytes 2
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import TypeVar

import pyarrow.parquet as pq
from kraftpy_spark.clicks import ClickPlan, clicks, produce_clicks
from spark.fault_driver import BEGINS, COPYING, Job
from spark.spark_brokers import SparkBroker
from support.kafka_jars import spark_connector_folder

from kraftpy.client.blocking import BlockingConnection
from kraftpy.client.blocking_clients import BlockingConsumer
from kraftpy.client.calls import TopicPartition
from kraftpy.client.settings import ConsumerSettings, IsolationLevel, ProducerSettings
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataRequestTopic
from kraftpy.testing.cluster import ClusterOptions, KafkaCluster, open_kafka_cluster

T = TypeVar("T")
DRIVER = Path(__file__).with_name("fault_driver.py")
PARTITIONS = 3
DRIVER_ATTEMPTS = 5
SLOW_START = "Python worker failed to connect back"
POINTS = ("staged", "dead-lettered", "committed", "published", COPYING)
CLUSTER_FAULTS = ("kill", "partition")
READERS = ("kraftpy", "kafka")
# A machine that has too much to do is no reason to give up.
PATIENT_PRODUCER = ProducerSettings(delivery_timeout_ms=900_000)
SETTINGS = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


@dataclass(frozen=True)
class Schedule:
    seed: int
    reader: str
    kill_at: tuple[str, int]
    cluster_fault: str
    fault_at: tuple[str, int]
    fails_tasks: bool
    records: int
    body_bytes: int

    @classmethod
    def draw(cls, seed: int, *, records: int = 3_000, body_bytes: int = 100) -> Schedule:
        """Neighbouring seeds differ in reader, point and fault, so that few of them have all."""
        random = Random(f"fault schedule {seed}")
        point = POINTS[seed % len(POINTS)]
        offset = random.randrange(1, records // PARTITIONS // 2)
        return cls(
            seed=seed,
            reader=READERS[seed % 2],
            kill_at=(point, offset if point == COPYING else random.randrange(2)),
            cluster_fault=CLUSTER_FAULTS[seed // 2 % 2],
            # A copy does not wait for the other query, so that this has to come before both.
            fault_at=(BEGINS if point == COPYING else "staged", 0),
            fails_tasks=seed % 4 in (1, 2),
            records=records,
            body_bytes=body_bytes,
        )

    def __str__(self) -> str:
        tasks = ", tasks fail" if self.fails_tasks else ""
        point, number = self.kill_at
        at = f"offset {number} of a copy" if point == COPYING else f"{point} of batch {number}"
        what = f"{self.reader} reads, {self.cluster_fault} a leader, the driver dies at {at}{tasks}"
        return f"seed {self.seed}: {what}"

    @property
    def plans(self) -> tuple[ClickPlan, ClickPlan]:
        """What is sent before, and what is sent while things go wrong."""
        half = self.records // 2
        plan = ClickPlan(
            seed=self.seed, count=half, body_bytes=self.body_bytes, spoiled_share=30 / self.records
        )
        return plan, replace(plan, first_id=half, count=self.records - half)

    def job(self, bootstrap: str, directory: Path) -> Job:
        # Two batches of the first half, and two of the second.
        return Job(
            name=f"faults-{self.seed}",
            bootstrap=bootstrap,
            source_format=self.reader,
            directory=str(directory / f"faults-{self.seed}"),
            max_offsets_per_trigger=self.records // 4,
            wait_at=self.fault_at,
            kill_at=self.kill_at,
            fails_tasks=self.fails_tasks,
        )


class Rig:
    """A cluster, and drivers that die on it."""

    def __init__(self, cluster: KafkaCluster, directory: Path, jars: Sequence[str]) -> None:
        self._cluster = cluster
        self._directory = directory
        self._jars = jars
        # Seeds whose fault has happened, with the input that goes with it.
        self._struck: dict[int, None] = {}
        self.broker = SparkBroker("kraftpy", cluster.bootstrap_servers, len(cluster.nodes))

    def run(self, schedules: Sequence[Schedule]) -> None:
        """All of them, each checked when a second driver has finished it."""
        before: Schedule | None = None
        for schedule in (*schedules, None):
            if schedule is not None:
                self._prepare(schedule)
            self._drive(before, schedule)
            if before is not None:
                self.check(before)
                print(f"{before}: all there, once", flush=True)
            before = schedule

    def _prepare(self, schedule: Schedule) -> None:
        for topic in self._job(schedule).topics:
            self.broker.topic(PARTITIONS, name=topic)
        self._send(schedule, schedule.plans[0])

    def _send(self, schedule: Schedule, plan: ClickPlan) -> None:
        topic = self._job(schedule).name
        sent = produce_clicks(
            self.broker.addresses, topic, PARTITIONS, plan, settings=PATIENT_PRODUCER
        )
        assert sent == plan.count

    def _job(self, schedule: Schedule) -> Job:
        return schedule.job(self._cluster.bootstrap_servers, self._directory)

    def _drive(self, before: Schedule | None, schedule: Schedule | None) -> None:
        """One driver: it finishes the one, and dies in the other.

        Spark gives its helpers in Python ten seconds to start, which a busy machine may not have.
        A driver that ends of that is started again, as anybody's supervisor would do it.
        """
        jobs = []
        if before is not None:
            never = ("", -1)
            jobs.append(replace(self._job(before), wait_at=never, kill_at=never))
        if schedule is not None:
            jobs.append(self._job(schedule))
        wanted = [-9 if schedule is not None else 0]
        for _ in range(DRIVER_ATTEMPTS):
            code, said = self._drive_once(jobs, schedule)
            if code == 0 or not any(SLOW_START in line for line in said):
                break
            # It may be beyond the point of its death by now.
            wanted.append(0)
        shown = "".join(said)
        assert code in wanted, f"{schedule or before}: the driver ended with {code}\n{shown}"

    def _drive_once(self, jobs: Sequence[Job], schedule: Schedule | None) -> tuple[int, list[str]]:
        said = []
        with self._driver(jobs) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)
                if line.rstrip().endswith(" waits") and schedule is not None:
                    self._strike(schedule, partial(_go_on, process))
            code = process.wait()
        if self._cluster.journal:
            self._cluster.heal()
        return code, said

    def _strike(self, schedule: Schedule, go_on: Callable[[], None]) -> None:
        """A fault of the cluster, and more input while it lasts or right after it.

        A leader that is cut off takes records that it can't keep, and clients that reach it may
        find nothing wrong with that for minutes. So it comes back when there is another leader.
        """
        topic = self._job(schedule).name
        leader = self._cluster.leader_of(topic)
        others = [node for node in self._cluster.nodes if node != leader]
        if schedule.cluster_fault == "kill":
            self._cluster.kill(leader)
            go_on()
        else:
            self._cluster.partition(leader, others)
            go_on()
            while self._leader_seen_by(others[0], topic) in (leader, -1):
                time.sleep(0.1)
            self._cluster.heal()
        if schedule.seed not in self._struck:
            self._struck[schedule.seed] = None
            self._send(schedule, schedule.plans[1])

    def _leader_seen_by(self, node: int, topic: str) -> int:
        host, _, port = self._cluster.brokers[node].rpartition(":")
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        with BlockingConnection((host, int(port))) as connection:
            [found] = connection.request(request).topics
        return next(each.leader_id for each in found.partitions if each.partition_index == 0)

    @contextmanager
    def _driver(self, jobs: Sequence[Job]) -> Iterator[subprocess.Popen[str]]:
        words = json.dumps([list(self._jars), [job.to_json() for job in jobs]])
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def check(self, schedule: Schedule) -> None:
        """Every record once, and whole. Records are compared by digests: there may be gigabytes."""
        assert schedule.seed in self._struck, "the fault of the cluster has not happened"
        job = self._job(schedule)
        good: Counter[int] = Counter()
        spoiled: Counter[bytes] = Counter()
        everything: Counter[bytes] = Counter()
        for click in (click for plan in schedule.plans for click in clicks(plan)):
            everything[digest(click.value)] += 1
            if click.is_spoiled:
                spoiled[digest(click.value)] += 1
            else:
                good[click.number] += 1
        compare("the lake", good, Counter(lake_numbers(Path(job.directory) / "lake")))
        _, copy, letters = job.topics
        compare("the dead letters", spoiled, self._digests(letters))
        compare("the copy", everything, self._digests(copy))

    def _digests(self, topic: str) -> Counter[bytes]:
        """Of all committed records of a topic."""
        settings = ConsumerSettings(
            isolation_level=IsolationLevel.READ_COMMITTED, auto_offset_reset="earliest"
        )
        found: Counter[bytes] = Counter()
        with BlockingConsumer(self.broker.addresses, settings) as consumer:
            wheres = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
            ends = consumer.end_offsets(wheres)
            consumer.assign(wheres)
            while any(consumer.position(where) < ends[where] for where in wheres):
                for part in consumer.poll(1_000):
                    found.update(digest(record.value or b"") for record in part.records)
        return found


def digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=8).digest()


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()


def lake_numbers(root: Path) -> Iterator[int]:
    """Of all clicks that a plain reader finds; each body is compared with its CRC."""
    for path in sorted(root.glob("event_date=*/event_hour=*/*.parquet")):
        table = pq.ParquetFile(path).read(columns=["id", "body", "crc"])
        for number, body, crc in zip(
            *(column.to_pylist() for column in table.columns), strict=True
        ):
            assert zlib.crc32(body.encode()) == crc, f"click {number} in {path} is not whole"
            yield number


def compare(name: str, wanted: Counter[T], found: Counter[T]) -> None:
    missing, surplus = wanted - found, found - wanted
    assert not missing, f"{name}: {missing.total()} missing, such as {list(missing)[:5]}"
    assert not surplus, f"{name}: {surplus.total()} too many, such as {list(surplus)[:5]}"


@contextmanager
def open_rig(directory: Path) -> Iterator[Rig]:
    jars = sorted(str(path) for path in spark_connector_folder().glob("*.jar"))
    options = ClusterOptions(nodes=3, settings=SETTINGS)
    with open_kafka_cluster(options, directory / "nodes") as cluster:
        yield Rig(cluster, directory, jars)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=40, metavar="N")
    parser.add_argument("--first-seed", type=int, default=0, metavar="SEED")
    parser.add_argument("--gigabytes", type=float, metavar="GB", help="of bodies, in each schedule")
    options = parser.parse_args()
    numbers = range(options.first_seed, options.first_seed + options.seeds)
    size = {}
    if options.gigabytes:
        size = {"records": int(options.gigabytes * 1e6), "body_bytes": 1_000}
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="kraftpy-faults-") as directory,
        open_rig(Path(directory)) as rig,
    ):
        rig.run([Schedule.draw(seed, **size) for seed in numbers])
    print(f"{options.seeds} schedules in {time.monotonic() - started:.0f} s: every record is once")


if __name__ == "__main__":
    main()
