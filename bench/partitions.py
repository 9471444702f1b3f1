"""Many partitions at once, against Apache Kafka: how long until they work, and what they weigh.

Three nodes, one topic of 1,000 partitions with three replicas, then one of 3,000, each created by
one call and in a cluster of its own.

- until the call is answered, and until the metadata shows all replicas in sync. That is what the
  controller has written, not what brokers have done: both servers write a new partition with all of
  its replicas in sync.
- until a record with acks=all is written to every partition: it is led, and followed by everybody.
- memory for each replica of it, of all nodes together, with that one record in it; a small topic
  was there before, so that what a node needs once is not in it.

A server that needs longer than LIMIT_SECONDS for a step is not waited for: its line says so, and
how far it was.

Making files is most of it, so the state of the file system matters; PARTITIONS_COUNTS in the
environment changes the sizes, PARTITIONS_SECONDS the limit, TMPDIR where the data goes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench._peers import Cluster, kafka_cluster, kraftpy_cluster

COUNTS = tuple(int(text) for text in os.environ.get("PARTITIONS_COUNTS", "1000,3000").split(","))
NODES = 3
FEW = 30
LIMIT_SECONDS = float(os.environ.get("PARTITIONS_SECONDS", "240"))
# A client that asks again soon, so that the pauses of clients are not what is measured.
EAGER = {
    "acks": "all",
    "linger.ms": 5,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "message.timeout.ms": int(LIMIT_SECONDS * 1000),
}


class TooSlowError(Exception):
    """A step was not over within the limit."""


@dataclass
class Creation:
    """None: it did not come so far."""

    answered_seconds: float | None = None
    shown_seconds: float | None = None
    written_seconds: float | None = None
    bytes_of_a_replica: float | None = None


def main() -> None:
    print(f"   load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)
    for count in COUNTS:
        print(f"   {count:,} partitions, {NODES} replicas: kraftpy, Kafka, ratio", flush=True)
        ours, kafka = (measured(start, count) for start in (kraftpy_cluster, kafka_cluster))
        show("answered after, s", ours.answered_seconds, kafka.answered_seconds)
        show("in sync by the metadata, s", ours.shown_seconds, kafka.shown_seconds)
        show("all written with acks=all, s", ours.written_seconds, kafka.written_seconds)
        show("memory of a replica, bytes", ours.bytes_of_a_replica, kafka.bytes_of_a_replica)
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
        creation = Creation()
        started = time.perf_counter()
        try:
            create(admin, "many", count)
            creation.answered_seconds = time.perf_counter() - started
            wait_for_replicas(admin, "many", count)
            creation.shown_seconds = time.perf_counter() - started
            write_to_all(cluster, "many", count)
            creation.written_seconds = time.perf_counter() - started
            time.sleep(1)
            grown = cluster.resident_bytes() - memory_before
            creation.bytes_of_a_replica = grown / (count * NODES)
        except TooSlowError as error:
            print(f"     {cluster.name}: {error} after {LIMIT_SECONDS:g} s", flush=True)
    return creation


def create(admin: AdminClient, topic: str, count: int) -> None:
    wanted = NewTopic(topic, count, NODES, config={"min.insync.replicas": "2"})
    # A client gives an answer up after a minute, if it is not told to be patient.
    [done] = admin.create_topics([wanted], request_timeout=LIMIT_SECONDS).values()
    try:
        done.result(LIMIT_SECONDS)
    except (KafkaException, TimeoutError) as error:
        raise TooSlowError(f"the call is not answered ({error})") from error


def wait_for_replicas(admin: AdminClient, topic: str, count: int) -> None:
    deadline = time.perf_counter() + LIMIT_SECONDS
    in_sync = 0
    while time.perf_counter() < deadline:
        with contextlib.suppress(KafkaException):
            found = admin.list_topics(topic, timeout=LIMIT_SECONDS).topics[topic].partitions
            in_sync = sum(len(each.isrs) == NODES for each in found.values())
        if in_sync == count:
            return
        time.sleep(0.02)
    raise TooSlowError(f"{in_sync:,} of {count:,} partitions are in sync")


def write_to_all(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **EAGER})
    failed: list[object] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    for partition in range(count):
        producer.produce(topic, b"x", partition=partition, on_delivery=delivered)
    unwritten = producer.flush(LIMIT_SECONDS) + len(failed)
    if unwritten:
        producer.purge()
        raise TooSlowError(f"{count - unwritten:,} of {count:,} records are written")


def show(line: str, ours: float | None, kafka: float | None) -> None:
    texts = ["-" if each is None else f"{each:.2f}" for each in (ours, kafka)]
    ratio = "" if ours is None or kafka is None else f"{ours / kafka:8.2f} x"
    print(f"     {line:44} {texts[0]:>9} {texts[1]:>9} {ratio}", flush=True)
