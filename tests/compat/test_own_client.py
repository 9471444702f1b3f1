"""Our own client and commands against Apache Kafka, beside other people's clients."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count

import pytest
from client.kits import KITS, Kit, Message
from confluent_kafka import Consumer, Producer, TopicPartition

from bench._peers import Server
from kraftpy.client import admin_operations as admin
from kraftpy.client import calls
from kraftpy.client.errors import KafkaError
from kraftpy.client.producer_batch import RecordMetadata
from kraftpy.client.settings import ConsumerSettings, IsolationLevel, ProducerSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import Address

pytestmark = [pytest.mark.compat, pytest.mark.java]

both_kits = pytest.mark.parametrize("kit", KITS, ids=lambda kit: type(kit).__name__)
EARLIEST = ConsumerSettings(auto_offset_reset="earliest")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NAMES = count()
SECONDS = 60


@pytest.fixture
def topic(servers: list[Address]) -> str:
    name = f"topic-{next(NAMES)}"
    # Records from 1970 stay.
    new = admin.NewTopic(name, 3, 1, {"retention.ms": "-1"})
    admin.require(KITS[0].run(servers, admin.create_topics([new])))
    return name


def bootstrap(kafka: Server) -> str:
    return f"{kafka.host}:{kafka.port}"


def read_by_confluent(kafka: Server, topic: str, wanted: int) -> list[tuple[int, bytes, bytes]]:
    """Partition, key and value of so many records."""
    consumer = Consumer({"bootstrap.servers": bootstrap(kafka), "group.id": "reader"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    read = []
    while len(read) < wanted:
        message = consumer.poll(SECONDS)
        assert message is not None, f"{len(read)} of {wanted}"
        assert message.error() is None
        read.append((message.partition(), message.key(), message.value()))
    consumer.close()
    return read


@both_kits
@pytest.mark.parametrize("codec", CODECS)
def test_others_read_what_we_produce(
    kafka: Server, servers: list[Address], topic: str, kit: Kit, codec: str
) -> None:
    settings = ProducerSettings(compression_type=codec)  # type: ignore[arg-type]
    sent = [Message(topic, b"value %d" % n, key=b"key %d" % (n % 50)) for n in range(1_000)]
    outcomes = kit.produce(servers, sent, settings)
    read = read_by_confluent(kafka, topic, len(sent))
    for partition in range(3):
        mine = [
            (message.key, message.value)
            for message, outcome in zip(sent, outcomes, strict=True)
            if isinstance(outcome, RecordMetadata) and outcome.partition == partition
        ]
        assert [(key, value) for at, key, value in read if at == partition] == mine


# On Python 3.11 the client's own import uses what that release deprecated for a while.
@pytest.mark.filterwarnings("ignore:(read_text|open_text) is deprecated:DeprecationWarning")
def test_kafka_python_reads_ours_and_we_read_its(
    kafka: Server, servers: list[Address], topic: str
) -> None:
    import kafka as kafka_python

    ours = [Message(topic, b"ours %d" % n, partition=0) for n in range(100)]
    KITS[0].produce(servers, ours, ProducerSettings(compression_type="lz4"))
    producer = kafka_python.KafkaProducer(bootstrap_servers=bootstrap(kafka))
    for number in range(100):
        producer.send(topic, b"its %d" % number, partition=0)
    producer.flush()
    producer.close()
    values = [message.value for message in ours] + [b"its %d" % n for n in range(100)]
    read = KITS[0].consume(servers, topic, 200, EARLIEST)
    assert [record.value for _, record in read] == values
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=bootstrap(kafka))
    where = kafka_python.TopicPartition(topic, 0)
    consumer.assign([where])
    consumer.seek_to_beginning()
    its_read: list[bytes | None] = []
    while len(its_read) < len(values):
        its_read += [record.value for record in consumer.poll(1_000).get(where, ())]
    consumer.close()
    assert its_read == values


def test_keys_go_where_others_put_them(kafka: Server, servers: list[Address], topic: str) -> None:
    keys = [b"%d" % n * (n % 9) for n in range(1, 100)]
    outcomes = KITS[0].produce(servers, [Message(topic, b"", key) for key in keys], EAGER)
    theirs: dict[bytes, int] = {}
    producer = Producer({"bootstrap.servers": bootstrap(kafka), "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(
            topic,
            b"",
            key,
            on_delivery=lambda error, message: theirs.update({message.key(): message.partition()}),
        )
    assert producer.flush(SECONDS) == 0
    for key, outcome in zip(keys, outcomes, strict=True):
        if key:
            assert isinstance(outcome, RecordMetadata)
            assert theirs[key] == outcome.partition


EAGER = ProducerSettings(linger_ms=0)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_acks_setting(servers: list[Address], topic: str, acks: int) -> None:
    settings = ProducerSettings(acks=acks)  # type: ignore[arg-type]
    # Without acks, what comes before the broker has made its replica is lost.
    assert KITS[1].produce(servers, [Message(topic, b"", partition=0)], ProducerSettings())
    sent = [Message(topic, b"%d" % n, partition=0) for n in range(100)]
    outcomes = KITS[1].produce(servers, sent, settings)
    offsets = [each.offset for each in outcomes if isinstance(each, RecordMetadata)]
    assert offsets == ([-1] * 100 if acks == 0 else list(range(1, 101)))
    read = KITS[1].consume(servers, topic, 101, EARLIEST)
    assert [record.value for _, record in read][1:] == [message.value for message in sent]


@both_kits
@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_others_produce(
    kafka: Server, servers: list[Address], topic: str, kit: Kit, codec: str
) -> None:
    # Idempotent, because a retry of another producer may change the order.
    options = {"bootstrap.servers": bootstrap(kafka), "enable.idempotence": True}
    producer = Producer({**options, "compression.type": codec})
    for number in range(1_000):
        key = None if number % 3 else b"key"
        value = None if number % 7 == 0 else b"value %d" % number
        producer.produce(topic, value, key, partition=number % 3, headers=[("h", b"%d" % number)])
    assert producer.flush(SECONDS) == 0
    read = kit.consume(servers, topic, 1_000, EARLIEST)
    assert len(read) == 1_000
    for partition in range(3):
        mine = [record for where, record in read if where.partition == partition]
        numbers = range(partition, 1_000, 3)
        assert [record.headers for record in mine] == [(("h", b"%d" % n),) for n in numbers]
        assert [record.key for record in mine] == [None if n % 3 else b"key" for n in numbers]
        assert [record.value for record in mine] == [
            None if n % 7 == 0 else b"value %d" % n for n in numbers
        ]
        assert [record.offset for record in mine] == list(range(len(mine)))


@both_kits
def test_aborted_transactions_are_not_read(
    kafka: Server, servers: list[Address], topic: str, kit: Kit
) -> None:
    options = {"bootstrap.servers": bootstrap(kafka), "transactional.id": f"of {topic}"}
    producer = Producer(options)
    producer.init_transactions(SECONDS)
    for number in range(6):
        producer.begin_transaction()
        for part in range(10):
            producer.produce(topic, b"%d %d" % (number, part), partition=0)
        # Otherwise the client would drop, before an abort, what it has not sent yet.
        assert producer.flush(SECONDS) == 0
        if number % 2:
            producer.abort_transaction(SECONDS)
        else:
            producer.commit_transaction(SECONDS)
    settings = ConsumerSettings(
        auto_offset_reset="earliest", isolation_level=IsolationLevel.READ_COMMITTED
    )
    read = kit.consume(servers, topic, 30, settings)
    assert [record.value for _, record in read] == [
        b"%d %d" % (number, part) for number in (0, 2, 4) for part in range(10)
    ]
    assert len(kit.consume(servers, topic, 60, EARLIEST)) == 60


def test_a_batch_that_kafka_finds_too_large_is_split(servers: list[Address], topic: str) -> None:
    settings = ProducerSettings(batch_size=4_000_000, max_request_size=8_000_000, linger_ms=1_000)
    sent = [Message(topic, b"x" * 1_000, partition=0) for _ in range(3_000)]
    outcomes = KITS[0].produce(servers, sent, settings)
    offsets = [each.offset for each in outcomes if isinstance(each, RecordMetadata)]
    assert offsets == list(range(3_000))


@both_kits
def test_offsets_by_time(servers: list[Address], topic: str, kit: Kit) -> None:
    sent = [Message(topic, b"%d" % n, partition=0, timestamp_ms=1_000 * n) for n in range(1, 10)]
    kit.produce(servers, sent, ProducerSettings())

    def start(consumer: object, partitions: list[calls.TopicPartition]) -> None:
        for where in partitions:
            consumer.seek_to_timestamp(where, 6_500)  # type: ignore[attr-defined]

    read = kit.consume(servers, topic, 3, EARLIEST, start)
    assert [record.value for _, record in read] == [b"7", b"8", b"9"]


@both_kits
def test_administration(servers: list[Address], kit: Kit) -> None:
    name = f"admin-{next(NAMES)}"
    new = admin.NewTopic(name, 2, 1, {"retention.ms": "12345"})
    assert kit.run(servers, admin.create_topics([new])) == {name: None}
    again = kit.run(servers, admin.create_topics([new]))[name]
    assert again.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert kit.run(servers, admin.create_partitions({name: 4})) == {name: None}

    def partitions() -> list[int]:
        """None while the broker has not heard of the topic, which may be a moment later."""
        try:
            return list(kit.run(servers, admin.describe_topics([name]))[name].partitions)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return []

    while partitions() != [0, 1, 2, 3]:
        pass
    assert name in kit.run(servers, admin.list_topics())
    kind = admin.ConfigKind.TOPIC
    kit.run(servers, admin.alter_configs(kind, name, {"retention.ms": None, "segment.ms": "777"}))

    def set_here() -> dict[str, str | None]:
        entries = kit.run(servers, admin.describe_configs(kind, name))
        return {entry.name: entry.value for entry in entries if entry.source == 1}

    while set_here() != {"segment.ms": "777"}:
        pass
    with pytest.raises(KafkaError) as raised:
        kit.run(servers, admin.alter_configs(kind, name, {"retention.ms": "soon"}))
    assert raised.value.code == ErrorCode.INVALID_CONFIG
    kit.produce(servers, [Message(name, b"x", partition=1) for _ in range(9)], ProducerSettings())
    where = calls.TopicPartition(name, 1)
    assert kit.run(servers, admin.delete_records({where: 4})) == {where: 4}
    assert len(kit.consume(servers, name, 5, EARLIEST)) == 5
    assert kit.run(servers, admin.describe_cluster()).brokers[0].address == servers[0]
    assert kit.run(servers, admin.describe_quorum()).leader_id == 1
    assert kit.run(servers, admin.delete_topics([name])) == {name: None}
    while name in kit.run(servers, admin.list_topics()):
        pass
    with pytest.raises(KafkaError, match="no topic"):
        kit.run(servers, admin.describe_topics([name]))


def kraftpy(kafka: Server, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kraftpy.cli.main", *arguments, "-b", bootstrap(kafka)]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=200
    )


def test_the_commands(kafka: Server) -> None:
    """The tour that the help promises."""
    # Not so short that Kafka's next round of deletions takes what was produced.
    retention = "retention.ms=99000000"
    made = kraftpy(kafka, "topics", "create", "tour", "-p", "2", "--config", retention)
    assert (made.returncode, made.stdout) == (0, "tour: created\n")
    while "tour" not in (listed := kraftpy(kafka, "topics", "list").stdout):
        pass
    row = ["tour", "2", "partitions,", "replicas:", "1"]
    assert row in [line.split() for line in listed.splitlines()]
    (described,) = json.loads(
        kraftpy(kafka, "topics", "describe", "tour", "--format", "json").stdout
    )
    assert described["configs"] == {"retention.ms": "99000000"}
    assert [each["leader"] for each in described["partitions"]] == [1, 1]
    lines = "".join(f"k{n}:v{n}\n" for n in range(500))
    options = ("--key-separator", ":", "--compression", "zstd")
    sent = kraftpy(kafka, "produce", "tour", *options, stdin=lines)
    assert (sent.returncode, sent.stderr) == (0, "500 records produced to tour\n")
    read = kraftpy(
        kafka, "consume", "tour", "--from-beginning", "--exit-at-end", "--key-separator", ":"
    )
    assert read.returncode == 0
    assert sorted(read.stdout.splitlines()) == sorted(lines.splitlines())
    one = kraftpy(kafka, "consume", "tour", "-p", "1", "-o", "7", "-n", "1", "--format", "json")
    facts = json.loads(one.stdout)
    assert (facts["partition"], facts["offset"]) == (1, 7)
    last = kraftpy(kafka, "consume", "tour", "--offset", "-1", "--exit-at-end")
    assert len(last.stdout.splitlines()) == 2
    gone = kraftpy(kafka, "topics", "delete", "tour")
    assert (gone.returncode, gone.stdout) == (0, "tour: deleted\n")


def test_commands_that_fail_say_what_to_do_next(kafka: Server) -> None:
    missing = kraftpy(kafka, "consume", "missing", "-n", "1")
    assert missing.returncode == 1
    assert "there is no topic missing" in missing.stderr
    assert "kraftpy topics create" in missing.stderr
    kraftpy(kafka, "topics", "create", "one")
    twice = kraftpy(kafka, "topics", "create", "one")
    assert twice.returncode == 1
    assert "--if-not-exists" in twice.stderr
    assert kraftpy(kafka, "topics", "create", "one", "--if-not-exists").returncode == 0
    keyless = kraftpy(kafka, "produce", "one", "--key-separator", ":", stdin="a:b\nc\n")
    assert keyless.returncode == 1
    assert "line 2 has no ':'" in keyless.stderr
    both = kraftpy(kafka, "consume", "one", "--from-beginning", "--offset", "3")
    assert both.returncode == 2
    wrong = kraftpy(kafka, "consume", "one", "--partition", "9")
    assert wrong.returncode == 1
    assert "partitions 0 to 0" in wrong.stderr
