"""Transactions against Apache Kafka, in the same run, both with librdkafka as the client.

Three nodes with three replicas of everything; both clusters run at the same time and take turns, as
in `data`. Each transaction has one record for each of five partitions, all of them acknowledged
before it ends.

- commit and abort: from the call until it returns, which is when the coordinator has decided
- a whole transaction: from its begin to its end, with what it waits for while the one before it is
  still being completed

TRANSACTIONS_COUNT in the environment is how many of each there are; the first ones warm up. With
TRANSACTIONS_PASSES=3 the third pass shows a JVM that is warm.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence

from confluent_kafka import Producer

from bench._peers import Cluster, kafka_cluster, kraftpy_cluster
from bench.data import create, rest, show

COUNT = int(os.environ.get("TRANSACTIONS_COUNT", "200"))
PASSES = int(os.environ.get("TRANSACTIONS_PASSES", "1"))
WARM_UP = 20
NODES = 3
PARTITIONS = 5
VALUE_BYTES = 100
TIMEOUT_SECONDS = 60.0


def main() -> None:
    print(f"   load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)
    with kraftpy_cluster(NODES) as ours, kafka_cluster(NODES) as kafka:
        clusters = (ours, kafka)
        for cluster in clusters:
            create(cluster, "t", PARTITIONS, NODES)
        for number in range(1, PASSES + 1):
            if PASSES > 1:
                print(f"   pass {number}")
            for is_commit in (True, False):
                measure(clusters, is_commit=is_commit)
    print(f"   load average {os.getloadavg()[0]:.1f}")


def measure(clusters: Sequence[Cluster], *, is_commit: bool) -> None:
    ends, wholes = [], []
    for cluster in clusters:
        rest(clusters)
        end, whole = transactions(cluster, is_commit=is_commit)
        ends.append(sorted(end))
        wholes.append(sorted(whole))
    name = "commit" if is_commit else "abort"
    show(f"{name}, {PARTITIONS} partitions, p50, ms", [middle(each) * 1e3 for each in ends])
    show(f"{name}, p99, ms", [late(each) * 1e3 for each in ends])
    show(f"whole transaction with {name}, p50, ms", [middle(each) * 1e3 for each in wholes])


def transactions(cluster: Cluster, *, is_commit: bool) -> tuple[list[float], list[float]]:
    """Seconds of each end, and of each whole transaction."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": f"bench-{random.randbytes(4).hex()}",
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    end = producer.commit_transaction if is_commit else producer.abort_transaction
    value = random.randbytes(VALUE_BYTES)
    ends, wholes = [], []
    for _ in range(COUNT + WARM_UP):
        began = time.perf_counter()
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("t", value, partition=partition)
        if producer.flush(TIMEOUT_SECONDS):
            raise SystemExit(f"{cluster.name}: records of a transaction were not acknowledged")
        sent = time.perf_counter()
        end(TIMEOUT_SECONDS)
        ended = time.perf_counter()
        ends.append(ended - sent)
        wholes.append(ended - began)
    return ends[WARM_UP:], wholes[WARM_UP:]


def middle(times: Sequence[float]) -> float:
    return times[len(times) // 2]


def late(times: Sequence[float]) -> float:
    return times[len(times) * 99 // 100]
