"""Small things to do with confluent-kafka, as a user's test would."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraftpy.testing.cluster import KafkaCluster

# Only ends what hangs.
SECONDS = 90.0
ATTEMPT_SECONDS = 15.0
AGAIN = (
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.NOT_CONTROLLER,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
)
POLL_SECONDS = 0.02
# For processes: a machine that does other work may hold up one of them for the usual three seconds,
# and a fault of the leader would hit a node that leads no more.
LEADERS_STAY = {"broker.session.timeout.ms": "12000"}


def create_topic(
    cluster: KafkaCluster, name: str, *, replicas: list[int] | None = None, **configs: str
) -> None:
    """With one partition; `replicas` says where, the leader first.

    librdkafka's admin asks once. The node that it asks may be about to die of a fault, so this one
    asks again, like other clients; what it finds then may be its own.
    """
    config = {key.replace("_", "."): value for key, value in configs.items()}
    if replicas is None:
        topic = NewTopic(name, 1, len(cluster.brokers), config=config)
    else:
        topic = NewTopic(name, 1, replica_assignment=[replicas], config=config)
    attempts = count(1)

    def is_created() -> bool:
        attempt = next(attempts)
        # A request for a node that died before it was sent waits for that node's return.
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        [future] = admin.create_topics([topic], request_timeout=ATTEMPT_SECONDS).values()
        try:
            future.result(SECONDS)
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            is_there = error.code() == KafkaError.TOPIC_ALREADY_EXISTS
            # Those below zero are the client's own: it did not hear what became of it.
            if (error.code() >= 0 and error.code() not in AGAIN) or (is_there and attempt == 1):
                raise
            return bool(is_there)
        return True

    eventually(is_created)
    eventually(lambda: cluster.leader_of(name))


def producer(cluster: KafkaCluster, **configs: Any) -> Producer:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "message.timeout.ms": int(SECONDS * 1000),
            "log_level": 0,
            **settings,
        }
    )


def send(sender: Producer, topic: str, value: bytes, seconds: float = SECONDS) -> int | KafkaError:
    """The offset that it got, or why it got none. Raises TimeoutError if there is no answer."""
    answers: list[int | KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        assert error is not None or offset is not None
        answers.append(error if error is not None else int(offset or 0))

    sender.produce(topic, value, partition=0, on_delivery=delivered)
    if sender.flush(seconds) or not answers:
        raise TimeoutError(f"{value!r} was not answered within {seconds} s")
    return answers[0]


def polled(cluster: KafkaCluster, topic: str) -> Iterator[Message]:
    """What a consumer is given, from the start of a topic on. Ends when that takes too long."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "nobody", "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(POLL_SECONDS)
            if message is not None:
                yield message
    finally:
        consumer.close()


def read(cluster: KafkaCluster, topic: str, count: int) -> list[bytes]:
    """The first records of a topic."""
    good = (message for message in polled(cluster, topic) if message.error() is None)
    return [message.value() or b"" for message in islice(good, count)]


def first_error(cluster: KafkaCluster, topic: str) -> int:
    """The code of the first error that a consumer is told."""
    for message in polled(cluster, topic):
        error = message.error()
        if error is not None:
            return error.code()
    raise AssertionError("no error")


def eventually(condition: Callable[[], object]) -> None:
    """Wait for a cluster to come round."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            if condition():
                return
        except (LookupError, OSError):
            pass
        assert time.monotonic() < deadline, "it never did"
        time.sleep(POLL_SECONDS)
