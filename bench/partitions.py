"""Many partitions at once, against Apache Kafka: how long until they work, and what they weigh.

Three nodes, one topic of 1,000 partitions with three replicas, then one of 3,000, each created by
one call and in a cluster of its own.

- until the call is answered, and until the metadata shows all replicas in sync. That is what the
  controller has written, not what brokers have done: both servers write a new partition with all of
  its replicas in sync.
- until a record with acks=all is written to every partition: it is led, and followed by everybody.
- memory for each replica of it, of all nodes together, with that one record in it; a small topic
  was there before, so that what a node needs once is not in it.

Making files is most of it, so the state of the file system matters; PARTITIONS_COUNTS in the
environment changes the sizes, TMPDIR where the data goes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench._peers import Cluster, kafka_cluster, kraftpy_cluster

COUNTS = tuple(int(text) for text in os.environ.get("PARTITIONS_COUNTS", "1000,3000").split(","))
NODES = 3
FEW = 30
TIMEOUT_SECONDS = 240.0
# A client that asks again soon, so that the pauses of clients are not what is measured.
EAGER = {
    "acks": "all",
    "linger.ms": 5,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "message.timeout.ms": int(TIMEOUT_SECONDS * 1000),
}


@dataclass(frozen=True)
class Creation:
    answered_seconds: float
    shown_seconds: float
    written_seconds: float
    bytes_of_a_replica: float


def main() -> None:
    print(f"   load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)
    for count in COUNTS:
        print(f"   {count:,} partitions, {NODES} replicas: kraftpy, Kafka, ratio", flush=True)
        ours, kafka = (measured(start, count) for start in (kraftpy_cluster, kafka_cluster))
        show("answered after, s", ours.answered_seconds, kafka.answered_seconds)
        show("in sync by the metadata, s", ours.shown_seconds, kafka.shown_seconds)
        show("all written with acks=all, s", ours.written_seconds, kafka.written_seconds)
        show(
            "memory of a replica, kB", ours.bytes_of_a_replica / 1e3, kafka.bytes_of_a_replica / 1e3
        )
    print(f"   load average {os.getloadavg()[0]:.1f}")


def measured(
    start: Callable[[int], contextlib.AbstractContextManager[Cluster]], count: int
) -> Creation:
    with start(NODES) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        create(admin, "few", FEW)
        write_to_all(cluster, "few", FEW)
        # Memory of a server that has just started still moves.
        time.sleep(2)
        memory_before = cluster.resident_bytes()
        started = time.perf_counter()
        create(admin, "many", count)
        answered = time.perf_counter()
        wait_for_replicas(admin, "many", count)
        shown = time.perf_counter()
        write_to_all(cluster, "many", count)
        written = time.perf_counter()
        time.sleep(1)
        grown = cluster.resident_bytes() - memory_before
    return Creation(answered - started, shown - started, written - started, grown / (count * NODES))


def create(admin: AdminClient, topic: str, count: int) -> None:
    wanted = NewTopic(topic, count, NODES, config={"min.insync.replicas": "2"})
    for done in admin.create_topics([wanted]).values():
        done.result(TIMEOUT_SECONDS)


def wait_for_replicas(admin: AdminClient, topic: str, count: int) -> None:
    deadline = time.perf_counter() + TIMEOUT_SECONDS
    while time.perf_counter() < deadline:
        found = admin.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].partitions
        if len(found) == count and all(len(each.isrs) == NODES for each in found.values()):
            return
        time.sleep(0.02)
    raise SystemExit(f"not all replicas of {count:,} partitions are in sync")


def write_to_all(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **EAGER})
    failed: list[object] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    for partition in range(count):
        producer.produce(topic, b"x", partition=partition, on_delivery=delivered)
    left = producer.flush(TIMEOUT_SECONDS)
    if left or failed:
        raise SystemExit(f"{cluster.name}: {left + len(failed):,} records were not written")


def show(line: str, ours: float, kafka: float) -> None:
    print(f"     {line:44} {ours:9.2f} {kafka:9.2f} {ours / kafka:8.2f} x", flush=True)
