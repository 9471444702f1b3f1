"""The data path against Apache Kafka, both with librdkafka as the client.

One node with one replica, then three nodes with three replicas of which two must be in sync. Both
clusters run at the same time and take turns line by line, so a busy machine is busy for both: the
ratio is the result. A line begins when neither cluster works any more: a JVM compiles and collects
for seconds after a load, and on two processors that would be measured as the other's slowness (it
was: a fifth of the rate, for the first line behind Kafka's). Kafka is cold, as after a start; with
DATA_PASSES=3 the third pass shows it warm, and with DATA_PASSES=0 it is left at start and memory.
DATA_MB is the size of a throughput line, DATA_MESSAGES the count of a latency line. One cold line
takes a second or two and differs by a third from run to run: DATA_RUNS=5 starts both clusters anew
five times, and shows the median of the ratios with the least and the largest.

A virtual machine gives memory that it does not use back to its host (`page_reporting`), and each
page that it uses again is slow: up to 10 us in the middle of the write that touches it, which
doubled what kraftpy needs for a line. No broker can help that, and it is chance which line it hits,
so as much memory as producing fills is used and freed before it.

- time from the start of the processes until all brokers are in the metadata, memory idle and loaded
- produce of 1,000 B with acks=all to 1 and to 6 partitions, and consuming that without a group
- acks=all of 100 B with one in flight; from producing to consuming
- seconds of the brokers' processors for each GB
"""

from __future__ import annotations

import mmap
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench._peers import Cluster, kafka_cluster, kraftpy_cluster

MEGABYTES = int(os.environ.get("DATA_MB", "200"))
MESSAGES = int(os.environ.get("DATA_MESSAGES", "1000"))
PASSES = int(os.environ.get("DATA_PASSES", "1"))
RUNS = int(os.environ.get("DATA_RUNS", "1"))
NODES = tuple(int(text) for text in os.environ.get("DATA_NODES", "1,3").split(","))
MESSAGE_BYTES = 1_000
# Half a second is short enough to be disturbed by anything, so the best is shown beside the first.
CONSUME_ROUNDS = 3
SMALL_BYTES = 100
# Less than a tenth of one processor, of all servers together, for this long is rest.
REST_SECONDS = 0.3
REST_SHARE = 0.1
# Three replicas in the page cache, the client's queue, and buffers on the way.
MEMORY_OF_A_BYTE = 10
WARM_UP = 20
TIMEOUT_SECONDS = 60.0

BULK = {
    "acks": "all",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}
# By line, of all runs so far.
ratios: dict[str, list[float]] = {}
AT_ONCE = {"acks": "all", "linger.ms": 0}
# With its default a consumer whose queue is full does nothing for a second, and it is chance which
# of the servers that hits, and how often.
FETCH = {
    "group.id": "unused",
    "enable.auto.commit": False,
    "max.partition.fetch.bytes": 10 << 20,
    "fetch.queue.backoff.ms": 1,
}


@dataclass(frozen=True)
class Spent:
    """What a line took, and what the brokers' processors did for it."""

    seconds: float
    cpu_seconds: float
    size: int

    @property
    def rate(self) -> float:
        return self.size / self.seconds / 1e6

    @property
    def cpu_of_a_gigabyte(self) -> float:
        return self.cpu_seconds / self.size * 1e9


def main() -> None:
    print(f"   load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)
    for nodes in NODES:
        ratios.clear()
        for number in range(1, RUNS + 1):
            run = f", run {number} of {RUNS}" if RUNS > 1 else ""
            print(f"   {nodes} nodes, {nodes} replicas{run}: kraftpy, Kafka, ratio", flush=True)
            with kraftpy_cluster(nodes) as ours, kafka_cluster(nodes) as kafka:
                measure(ours, kafka, nodes)
        if RUNS > 1:
            print(f"   {nodes} nodes, {RUNS} runs: median of the ratios, least, largest")
            for line, values in ratios.items():
                middle, least, largest = median(values), min(values), max(values)
                print(f"     {line:44} {middle:8.2f} x {least:8.2f} {largest:8.2f}", flush=True)
    print(f"   load average {os.getloadavg()[0]:.1f}")


def measure(ours: Cluster, kafka: Cluster, replicas: int) -> None:
    clusters = (ours, kafka)
    # Memory of a server that has just started still moves.
    time.sleep(2)
    show("ready after, s", [each.ready_seconds for each in clusters])
    show("memory idle, MB", [each.resident_bytes() / 1e6 for each in clusters])
    for number in range(1, PASSES + 1):
        if PASSES > 1:
            print(f"   pass {number}")
        for partitions in (1, 6):
            measure_throughput(clusters, f"bulk-{partitions}-{number}", partitions, replicas)
        measure_latency(clusters, f"small-{number}", replicas)
    show("memory loaded, MB", [each.resident_bytes() / 1e6 for each in clusters])


def measure_throughput(
    clusters: Sequence[Cluster], topic: str, partitions: int, replicas: int
) -> None:
    for cluster in clusters:
        create(cluster, topic, partitions, replicas)
    of = f"{partitions} partition{'s' * (partitions > 1)}"
    report(
        f"produce, {of}",
        [measured(clusters, cluster, produce, topic, partitions) for cluster in clusters],
    )
    rounds = [
        [measured(clusters, cluster, consume, topic, partitions) for cluster in clusters]
        for _ in range(CONSUME_ROUNDS)
    ]
    report(f"consume, {of}", rounds[0])
    best = [max(each.rate for each in runs) for runs in zip(*rounds, strict=True)]
    show(f"consume, {of}, best of {CONSUME_ROUNDS}, MB/s", best)


def report(line: str, spent: Sequence[Spent]) -> None:
    show(f"{line}, MB/s", [each.rate for each in spent])
    show(f"{line}, CPU s for a GB", [each.cpu_of_a_gigabyte for each in spent])


def rest(clusters: Sequence[Cluster]) -> None:
    """Wait until none of them works, but not for ever."""
    deadline = time.monotonic() + TIMEOUT_SECONDS / 4
    while time.monotonic() < deadline:
        before = sum(each.cpu_seconds() for each in clusters)
        time.sleep(REST_SECONDS)
        if sum(each.cpu_seconds() for each in clusters) - before < REST_SECONDS * REST_SHARE:
            return


def have_memory(size: int) -> None:
    """Take that much from the host of this machine, so that the next to use it need not wait."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, size, flags=flags).close()


def measured(
    clusters: Sequence[Cluster],
    cluster: Cluster,
    line: Callable[[Cluster, str, int], float],
    topic: str,
    partitions: int,
) -> Spent:
    """One line on one of the clusters, while the others rest."""
    size = message_count() * MESSAGE_BYTES
    if line is produce:
        have_memory(MEMORY_OF_A_BYTE * size)
    rest(clusters)
    cpu_before = cluster.cpu_seconds()
    seconds = line(cluster, topic, partitions)
    return Spent(seconds, cluster.cpu_seconds() - cpu_before, size)


def message_count() -> int:
    return MEGABYTES * 1_000_000 // MESSAGE_BYTES


def create(cluster: Cluster, topic: str, partitions: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"min.insync.replicas": str(min(2, replicas))}
    wanted = NewTopic(topic, partitions, replicas, config=config)
    for done in admin.create_topics([wanted]).values():
        done.result(TIMEOUT_SECONDS)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        found = admin.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].partitions.values()
        if len(found) == partitions and all(len(each.isrs) == replicas for each in found):
            return
        time.sleep(0.05)
    raise SystemExit(f"{cluster.name}: {topic} has not all of its replicas in sync")


def produce(cluster: Cluster, topic: str, partitions: int) -> float:
    """Seconds until everything is acknowledged."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **BULK})
    producer.list_topics(topic, timeout=TIMEOUT_SECONDS)
    # Random, lest anything between here and the disk finds it easy; and not one value only.
    values = [random.randbytes(MESSAGE_BYTES) for _ in range(1_000)]
    count = message_count()
    started = time.perf_counter()
    for number in range(count):
        producer.produce(topic, values[number % 1_000], partition=number % partitions)
    left = producer.flush(TIMEOUT_SECONDS)
    seconds = time.perf_counter() - started
    stored = sum(end - start for start, end in watermarks(cluster, topic, partitions))
    if left or stored != count:
        raise SystemExit(f"{cluster.name}: {stored:,} of {count:,} are in {topic}, {left:,} waited")
    return seconds


def watermarks(cluster: Cluster, topic: str, partitions: int) -> list[tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **FETCH})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=TIMEOUT_SECONDS)
            for each in range(partitions)
        ]
    finally:
        consumer.close()


def consume(cluster: Cluster, topic: str, partitions: int) -> float:
    """Seconds until the last message is here; the first one includes the connections."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **FETCH})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    left = message_count()
    started = time.perf_counter()
    try:
        while left > 0:
            messages = consumer.consume(10_000, timeout=0.5)
            left -= sum(1 for message in messages if message.error() is None)
            if time.perf_counter() - started > TIMEOUT_SECONDS:
                raise SystemExit(f"{cluster.name}: {left:,} messages of {topic} did not come")
        return time.perf_counter() - started
    finally:
        consumer.close()


def measure_latency(clusters: Sequence[Cluster], topic: str, replicas: int) -> None:
    for name, line in (("acks=all", acknowledge), ("produce to consume", deliver)):
        found = []
        for cluster in clusters:
            create(cluster, f"{topic}-{line.__name__}", 1, replicas)
            rest(clusters)
            found.append(sorted(line(cluster, f"{topic}-{line.__name__}")[WARM_UP:]))
        show(f"{name}, p50, ms", [times[len(times) // 2] * 1e3 for times in found])
        show(f"{name}, p99, ms", [times[len(times) * 99 // 100] * 1e3 for times in found])


def acknowledge(cluster: Cluster, topic: str) -> list[float]:
    """Seconds from each call until its acknowledgement, one at a time."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **AT_ONCE})
    value = random.randbytes(SMALL_BYTES)
    times = []
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    for _ in range(MESSAGES + WARM_UP):
        started = time.perf_counter()
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        while len(producer):
            producer.poll(1)
        times.append(time.perf_counter() - started)
    if failed:
        raise SystemExit(f"{cluster.name}: {failed[0]}")
    return times


def deliver(cluster: Cluster, topic: str) -> list[float]:
    """Seconds from each call until a consumer has the message, one at a time."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **AT_ONCE})
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **FETCH})
    consumer.assign([TopicPartition(topic, 0, 0)])
    value = random.randbytes(SMALL_BYTES)
    times = []
    try:
        for _ in range(MESSAGES + WARM_UP):
            started = time.perf_counter()
            producer.produce(topic, value, partition=0)
            message = consumer.poll(TIMEOUT_SECONDS)
            if message is None or message.error() is not None:
                raise SystemExit(f"{cluster.name}: no message, but {message and message.error()}")
            times.append(time.perf_counter() - started)
            # The acknowledgement may come later than the message.
            producer.flush(TIMEOUT_SECONDS)
    finally:
        consumer.close()
    return times


def show(line: str, values: Sequence[float]) -> None:
    ours, kafka = values
    ratios.setdefault(line, []).append(ours / kafka)
    shown = [f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in values]
    print(f"     {line:44} {shown[0]:>9} {shown[1]:>9} {ours / kafka:8.2f} x", flush=True)
