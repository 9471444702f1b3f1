"""Copies a topic to another, exactly once, until its input ends: one of Python's clients.

Arguments: librdkafka or aiokafka; bootstrap servers; source; target; group. What a transaction
fails with is told on standard output; what the client can't recover from ends this with an error.

Both clients can wait for ever for a coordinator that has left the cluster, whatever timeout they
are given (librdkafka's issue 5511, aiokafka's 1145). A transaction that takes too long is a reason
to start anew: under the same transactional id, so that what the old process has begun is aborted.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

BATCH = 100
POLL_SECONDS = 0.1
PATIENCE_SECONDS = 60
STUCK_SECONDS = 10


def start_anew() -> None:
    """As the same process, with the same input."""
    print("anew", flush=True)
    os.execv(sys.executable, [sys.executable, *sys.argv])


@contextmanager
def watched() -> Iterator[None]:
    """Start anew if what is done here takes too long."""
    timer = threading.Timer(STUCK_SECONDS, start_anew)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def input_end() -> threading.Event:
    """Set when there is nothing more to read."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def copy_with_librdkafka(servers: str, source: str, target: str, group: str) -> None:
    from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

    base = {"bootstrap.servers": servers, "log_level": 0, "error_cb": lambda _: None}
    consumer = Consumer(
        base
        | {
            "group.id": group,
            "session.timeout.ms": 6000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = Producer(base | {"transactional.id": group})
    producer.init_transactions(PATIENCE_SECONDS)
    consumer.subscribe([source])
    ended = input_end()

    def carry_out(operation: Any, *arguments: Any) -> None:
        """Call it until it is done; raises what calling it again would not help against."""
        while True:
            try:
                operation(*arguments, PATIENCE_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def rewind() -> None:
        carry_out(producer.abort_transaction)
        assigned = consumer.assignment()
        for each in consumer.committed(assigned, timeout=PATIENCE_SECONDS) if assigned else []:
            each.offset = max(each.offset, 0)
            consumer.seek(each)

    def copy(messages: list[Message]) -> None:
        producer.begin_transaction()
        try:
            positions: dict[int, int] = {}
            for message in messages:
                producer.produce(target, message.value(), partition=message.partition())
                positions[message.partition()] = message.offset() + 1
            moved = [TopicPartition(source, *each) for each in positions.items()]
            metadata = consumer.consumer_group_metadata()
            carry_out(producer.send_offsets_to_transaction, moved, metadata)
            carry_out(producer.commit_transaction)
        except KafkaException as error:
            print(error.args[0].name(), flush=True)
            if not error.args[0].txn_requires_abort():
                raise
            rewind()

    while not ended.is_set():
        messages = [each for each in consumer.consume(BATCH, POLL_SECONDS) if not each.error()]
        if messages:
            with watched():
                copy(messages)
    consumer.close()


async def copy_with_aiokafka(servers: str, source: str, target: str, group: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.errors import KafkaError, ProducerFenced

    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=6000,
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=group)
    await producer.start()
    await consumer.start()
    ended = input_end()

    async def copy(batches: dict[TopicPartition, list[Any]]) -> None:
        async with producer.transaction():
            for partition, records in batches.items():
                for record in records:
                    await producer.send(target, record.value, partition=partition.partition)
            moved = {each: records[-1].offset + 1 for each, records in batches.items()}
            await producer.send_offsets_to_transaction(moved, group)

    while not ended.is_set():
        batches = await consumer.getmany(timeout_ms=round(POLL_SECONDS * 1000), max_records=BATCH)
        if not batches:
            continue
        with watched():
            try:
                await copy(batches)
            except ProducerFenced:
                raise
            except KafkaError as error:
                print(type(error).__name__, flush=True)
                for partition in batches:
                    if partition in consumer.assignment():
                        consumer.seek(partition, await consumer.committed(partition) or 0)
    await consumer.stop()
    await producer.stop()


def main() -> None:
    client, *arguments = sys.argv[1:]
    if client == "aiokafka":
        asyncio.run(copy_with_aiokafka(*arguments))
    else:
        copy_with_librdkafka(*arguments)


if __name__ == "__main__":
    main()
