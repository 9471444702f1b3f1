"""Kafka's tools for groups, offsets and transactions: the same tables as against Apache Kafka.

The same clients leave the same behind on both sides. What a broker makes up, such as the ids of
members and producers, is named by the order of its coming; times are left out. And Kafka's dump of
our own files is as our own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from compat.bad_requests import batch
from compat.test_bad_input import node
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.kafka_jars import QUICK_JAVA, classpath, run_java

from kraftpy.client.blocking import BlockingConnection
from kraftpy.protocol.schema import k00_produce as k00
from kraftpy.protocol.schema import k22_init_producer_id as k22

pytestmark = [pytest.mark.compat, pytest.mark.java, pytest.mark.timeout(900)]

RUNNER = Path(__file__).with_name("ToolRunner.java")
SETTINGS = (
    "offsets.topic.replication.factor=1\n"
    "transaction.state.log.replication.factor=1\n"
    "transaction.state.log.min.isr=1\n"
    "transaction.state.log.num.partitions=3\n"
    "offsets.topic.num.partitions=3\n"
    "group.initial.rebalance.delay.ms=0\n"
    # So that a producer can leave a transaction that no coordinator knows.
    "transaction.partition.verification.enable=false\n"
)
SECONDS = 60
PARTITIONS = 3
TOPIC = "mine"
GROUPS = "consumer.group.ConsumerGroupCommand --bootstrap-server {}"
TRANSACTIONS = "TransactionsCommand --bootstrap-server {}"

COMMANDS = (
    "GroupsCommand --bootstrap-server {} --list",
    "GroupsCommand --bootstrap-server {} --list --consumer",
    f"{GROUPS} --list",
    f"{GROUPS} --list --state",
    f"{GROUPS} --list --state Empty",
    f"{GROUPS} --list --type consumer",
    *(
        f"{GROUPS} --describe --group {group}{option}"
        for group in ("g-classic", "g-consumer", "g-empty", "g-nobody")
        for option in ("", " --members --verbose", " --state", " --offsets --verbose")
    ),
    *(
        f"{GROUPS} --reset-offsets --group g-empty --topic mine {option}"
        for option in (
            "--to-earliest",
            "--to-latest",
            "--to-current",
            "--to-offset 2",
            "--shift-by -1",
            "--by-duration PT1H",
            "--to-datetime 2020-01-01T00:00:00.000",
            "--to-offset 1 --execute",
        )
    ),
    f"{GROUPS} --reset-offsets --group g-classic --topic mine --to-earliest --execute",
    f"{GROUPS} --describe --group g-empty",
    f"{GROUPS} --delete-offsets --group g-empty --topic mine:1",
    f"{GROUPS} --delete-offsets --group g-classic --topic mine",
    f"{GROUPS} --describe --group g-empty",
    f"{GROUPS} --delete --group g-classic",
    f"{GROUPS} --delete --group g-empty",
    f"{GROUPS} --list",
    f"{TRANSACTIONS} list",
    f"{TRANSACTIONS} list --duration-filter 3600000",
    f"{TRANSACTIONS} list --transactional-id-pattern t-o.*",
    f"{TRANSACTIONS} describe --transactional-id t-done",
    f"{TRANSACTIONS} describe --transactional-id t-open",
    f"{TRANSACTIONS} describe --transactional-id t-unknown",
    f"{TRANSACTIONS} describe-producers --topic mine --partition 0",
    f"{TRANSACTIONS} describe-producers --topic mine --partition 1",
    f"{TRANSACTIONS} find-hanging --broker-id 1 --max-transaction-timeout 0",
    f"{TRANSACTIONS} abort --topic mine --partition 2 --start-offset {{hanging}}",
    f"{TRANSACTIONS} find-hanging --broker-id 1 --max-transaction-timeout 0",
    f"{TRANSACTIONS} describe-producers --topic mine --partition 2",
    f"{TRANSACTIONS} forceTerminateTransaction --transactional-id t-open",
    f"{TRANSACTIONS} describe --transactional-id t-open",
)
FIRST_COLUMNS = ("GROUP", "ProducerId", "TransactionalId", "CoordinatorId", "Topic")
IDS = ("CONSUMER-ID", "ProducerId")
TIMES = (
    "LastTimestamp",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "Duration(min)",
    # The first one of a consumer group is 2 with Kafka, and 1 here.
    "CURRENT-EPOCH",
    "TARGET-EPOCH",
)


def fill(bootstrap: str) -> None:
    """A topic with a record in each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [created] = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values()
    created.result(SECONDS)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for partition in range(PARTITIONS):
        producer.produce(TOPIC, "first", partition=partition)
    assert producer.flush(SECONDS) == 0


def join(bootstrap: str, group: str, protocol: str) -> Consumer:
    """A member that has committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": f"of-{group}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # It is not polled while the tools run.
            "max.poll.interval.ms": 900_000,
        }
    )
    consumer.subscribe([TOPIC])
    deadline = time.monotonic() + SECONDS
    while len(consumer.assignment()) < PARTITIONS:
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    return consumer


def leave_transactions(bootstrap: str) -> list[Producer]:
    """One that is done, and one that is open."""
    producers = []
    for name in ("t-done", "t-open"):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                # The one that is open must stay so while the tools run.
                "transaction.timeout.ms": 900_000,
            }
        )
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        producer.produce(TOPIC, name, partition=0)
        producer.produce(TOPIC, name, partition=1)
        producer.flush(SECONDS)
        if name == "t-done":
            producer.commit_transaction(SECONDS)
            wait_for_markers(bootstrap)
        producers.append(producer)
    return producers


def wait_for_markers(bootstrap: str) -> None:
    """A commit is answered before its markers are written, and what comes next may be quicker."""
    ends = []
    for level in ("read_committed", "read_uncommitted"):
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "nobody", "isolation.level": level}
        )
        ends.append(consumer)
    deadline = time.monotonic() + SECONDS
    for partition in range(2):
        where = TopicPartition(TOPIC, partition)
        while len({each.get_watermark_offsets(where, SECONDS)[1] for each in ends}) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    for each in ends:
        each.close()


def leave_hanging(port: int) -> int:
    """Records of a transaction of which its coordinator does not know; where they begin."""
    with BlockingConnection(("127.0.0.1", port)) as connection:
        named = k22.InitProducerIdRequest(transactional_id="t-other", transaction_timeout_ms=60_000)
        pair = connection.request(named, max_version=4)
        while pair.error_code:
            time.sleep(0.1)
            pair = connection.request(named, max_version=4)
        records = batch(
            producer_id=pair.producer_id,
            producer_epoch=pair.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        partition = k00.PartitionProduceData(index=2, records=records)
        topic = k00.TopicProduceData(name=TOPIC, partition_data=[partition])
        request = k00.ProduceRequest(
            transactional_id="t-other", acks=-1, timeout_ms=30_000, topic_data=[topic]
        )
        answer = connection.request(request, max_version=11)
        [told] = answer.responses[0].partition_responses
        assert told.error_code == 0
        base_offset: int = told.base_offset
        return base_offset


def plain(text: str, bootstrap: str) -> list[str]:
    """Without what differs between any two brokers."""
    names: dict[str, str] = {}
    text = text.replace(bootstrap, "servers").replace("127.0.0.1", "host")
    told: list[str] = []
    columns: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("$") or not words:
            columns = []
        elif words[0] in FIRST_COLUMNS:
            columns = words
        # The last column may be empty.
        elif len(words) >= len(columns) - 1 > 0:
            for at, column in enumerate(columns[: len(words)]):
                if column in TIMES and words[at] != "None":
                    words[at] = "time"
                if column in IDS and words[at] != "-":
                    words[at] = names.setdefault(words[at], f"{column} {len(names)}")
        told.append(" ".join(words))
    return told


def tell(port: int) -> list[str]:
    bootstrap = f"127.0.0.1:{port}"
    fill(bootstrap)
    members = [join(bootstrap, f"g-{each}", each) for each in ("classic", "consumer")]
    alone = Consumer({"bootstrap.servers": bootstrap, "group.id": "g-empty"})
    alone.commit(
        offsets=[TopicPartition(TOPIC, each, each) for each in range(2)], asynchronous=False
    )
    alone.close()
    producers = leave_transactions(bootstrap)
    hanging = leave_hanging(port)
    lines = [each.format(bootstrap, hanging=hanging) for each in COMMANDS]
    done = run_java(RUNNER, *lines, timeout_seconds=600)
    for member in members:
        member.close()
    assert done.returncode == 0, done.stderr
    del producers
    return plain(done.stdout, bootstrap)


def sections(told: list[str]) -> dict[str, list[str]]:
    """What each command has printed, its rows in one order."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in told:
        if line.startswith("$"):
            name = f"{len(found)} {line}"
            found[name] = []
        elif line:
            found[name].append(line)
    return {name: sorted(lines) for name, lines in found.items()}


@contextmanager
def both(folder: Path) -> Iterator[tuple[int, int]]:
    java = [*QUICK_JAVA, "-Xmx512m", "-cp", classpath()]
    own = [sys.executable, "-m", "kraftpy.cli.main"]
    storage = [*java, "kafka.tools.StorageTool", "format"]
    with (
        node(folder / "kafka", storage, [*java, "kafka.Kafka"], SETTINGS) as kafka,
        node(folder / "kraftpy", [*own, "storage", "format"], [*own, "node"], SETTINGS) as kraftpy,
    ):
        yield kafka, kraftpy


def test_the_same_tables(tmp_path: Path) -> None:
    """GRP-46 to GRP-48, GRP-53, GRP-75, CGP-58, TV-30, TV-31"""
    with both(tmp_path) as ports, ThreadPoolExecutor(2) as pool:
        theirs, ours = map(sections, pool.map(tell, ports))
    differences = {
        name: (ours.get(name), theirs[name]) for name in theirs if ours.get(name) != theirs[name]
    }
    for name, (own, other) in differences.items():
        print(name, *(own or ()), "and not", *other, sep="\n    ")
    assert differences == {}
    assert len(theirs) == len(COMMANDS)
    for decoder, topic in (
        ("--offsets-decoder", "__consumer_offsets"),
        ("--transaction-log-decoder", "__transaction_state"),
    ):
        files = sorted(map(str, (tmp_path / "kraftpy/data").glob(f"{topic}-*/*.log")))
        assert dump_by_kafka(decoder, files) == dump_by_ourselves(decoder, files)


def dump_by_kafka(decoder: str, files: list[str]) -> list[str]:
    tool = "org.apache.kafka.tools.DumpLogSegments"
    done = run_java(tool, decoder, "--files", ",".join(files), logs=True)
    assert (done.returncode, done.stderr) == (0, "")
    return records_of(done.stdout)


def dump_by_ourselves(decoder: str, files: list[str]) -> list[str]:
    command = [sys.executable, "-m", "kraftpy.cli.main", "log", "dump", decoder, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return records_of(done.stdout)


def records_of(dump: str) -> list[str]:
    found = [line for line in dump.splitlines() if line.startswith("|")]
    assert len(found) > 2
    return found
