"""A producer under way, of librdkafka: what was acknowledged, when, and in which order.

It runs in a thread of its own, as librdkafka wants it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import trio
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from kraftpy.client.admin_operations import NewTopic

__all__ = ["Load", "consume_all", "under_load", "write_to_all"]

FLUSH_SECONDS = 120
CONSUME_SECONDS = 120


@dataclass
class Load:
    """Values are numbers, sent in their order to one partition."""

    topic: str
    sent_count: int = 0
    acknowledged: list[tuple[float, int | None, int]] = field(default_factory=list)
    """Time, offset and value. librdkafka tells no offset of what an idempotent producer has not
    heard about, while something behind it was acknowledged: it must be there then.
    """
    failures: list[str] = field(default_factory=list)
    is_stopped: bool = False

    @property
    def values(self) -> list[int]:
        return [value for _, _, value in self.acknowledged]

    @property
    def longest_gap_seconds(self) -> float:
        """Between two acknowledgements."""
        return max(after[0] - before[0] for before, after in pairwise(self.acknowledged))

    def missing_in(self, found: list[tuple[int, int]]) -> list[tuple[int | None, int]]:
        """What was acknowledged, and is not among these offsets and values where it was said."""
        value_at = dict(found)
        values = set(value_at.values())
        return [
            (offset, value)
            for _, offset, value in self.acknowledged
            if (value not in values if offset is None else value_at.get(offset) != value)
        ]

    async def wait_acknowledged(self, count: int) -> None:
        """Return when so many more are acknowledged."""
        goal = len(self.acknowledged) + count
        with trio.fail_after(FLUSH_SECONDS):
            while len(self.acknowledged) < goal:  # noqa: ASYNC110 (another thread sets no event)
                await trio.sleep(0.01)

    def run(self, bootstrap: str, options: dict[str, Any]) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "log_level": 0,
                **options,
            }
        )
        while not self.is_stopped:
            value = b"%d" % self.sent_count
            producer.produce(self.topic, value, partition=0, callback=self._delivered)
            self.sent_count += 1
            producer.poll(0.002)
        left = producer.flush(FLUSH_SECONDS)
        assert left == 0, f"{left} records are neither acknowledged nor refused"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            value = int(message.value() or b"")
            self.acknowledged.append((time.monotonic(), message.offset(), value))


@asynccontextmanager
async def under_load(bootstrap: str, topic: str, **options: Any) -> AsyncIterator[Load]:
    """From the first acknowledgements on; at the end everything sent is answered."""
    load = Load(topic)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, load.run, bootstrap, options)
        try:
            await load.wait_acknowledged(50)
            yield load
        finally:
            load.is_stopped = True


async def consume_all(bootstrap: str, topic: str, *, partition: int = 0) -> list[tuple[int, int]]:
    """Offsets and values, from the first to the high watermark of now."""
    return await trio.to_thread.run_sync(_consume, bootstrap, topic, partition)


def _consume(bootstrap: str, topic: str, partition: int) -> list[tuple[int, int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        where = TopicPartition(topic, partition, OFFSET_BEGINNING)
        end = consumer.get_watermark_offsets(where, timeout=CONSUME_SECONDS)[1]
        consumer.assign([where])
        found: list[tuple[int, int]] = []
        give_up_at = time.monotonic() + CONSUME_SECONDS
        while not found or found[-1][0] < end - 1:
            assert time.monotonic() < give_up_at, f"{len(found)} records before offset {end}"
            for message in consumer.consume(1_000, timeout=0.2):
                assert message.error() is None, message.error()
                found.append((message.offset() or 0, int(message.value() or b"")))
        return found
    finally:
        consumer.close()


async def write_to_all(bootstrap: str, topic: NewTopic) -> None:
    """One record to each partition; returns when every replica in sync has them."""
    failures = await trio.to_thread.run_sync(_write_to_all, bootstrap, topic)
    assert failures == []


def _write_to_all(bootstrap: str, topic: NewTopic) -> list[str]:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(f"{message.partition()}: {error}")

    for partition in range(topic.partitions):
        producer.produce(topic.name, b"1", partition=partition, on_delivery=delivered)
    if producer.flush(FLUSH_SECONDS):
        failures.append(f"{len(producer)} are not written")
    return failures
