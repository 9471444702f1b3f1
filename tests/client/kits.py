"""Both shells behind one face, so that one test is for both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import trio

from kraftpy.client.admin import open_admin
from kraftpy.client.admin_core import Operation
from kraftpy.client.blocking_clients import BlockingAdmin, BlockingConsumer, BlockingProducer
from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer import open_consumer
from kraftpy.client.errors import ClientClosed, KafkaError
from kraftpy.client.producer import open_producer
from kraftpy.client.producer_batch import Delivery, RecordMetadata
from kraftpy.client.settings import ConsumerSettings, ProducerSettings
from kraftpy.records.reader import Record
from kraftpy.world import Address
from kraftpy.world.real import real_world

TIMEOUT_SECONDS = 60
POLL_MS = 1_000


class Message(NamedTuple):
    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None

    def options(self) -> dict[str, Any]:
        options = self._asdict()
        del options["topic"], options["value"]
        return options


Outcome = RecordMetadata | Exception
Read = list[tuple[TopicPartition, Record]]
# What to do with a consumer (either kind, its plain methods) before reading.
Start = Callable[[Any, list[TopicPartition]], None]


class Kit(Protocol):
    def produce(
        self, servers: list[Address], messages: Iterable[Message], settings: ProducerSettings
    ) -> list[Outcome]: ...

    def consume(
        self,
        servers: list[Address],
        topic: str,
        count: int,
        settings: ConsumerSettings,
        start: Start = lambda consumer, partitions: None,
    ) -> Read: ...

    def run(self, servers: list[Address], operation: Operation[Any]) -> Any: ...


def _outcome(delivery: Delivery) -> Outcome:
    try:
        return delivery.result()
    except (KafkaError, ClientClosed) as failure:
        return failure


class BlockingKit:
    def produce(
        self, servers: list[Address], messages: Iterable[Message], settings: ProducerSettings
    ) -> list[Outcome]:
        with BlockingProducer(servers, settings) as producer:
            deliveries = [
                producer.send(message.topic, message.value, **message.options())
                for message in messages
            ]
        return [_outcome(delivery) for delivery in deliveries]

    def consume(
        self,
        servers: list[Address],
        topic: str,
        count: int,
        settings: ConsumerSettings,
        start: Start = lambda consumer, partitions: None,
    ) -> Read:
        read: Read = []
        with BlockingConsumer(servers, settings) as consumer:
            partitions = consumer.partitions_of(topic)
            consumer.assign(partitions)
            start(consumer, partitions)
            while len(read) < count:
                for name, partition, records in consumer.poll(POLL_MS):
                    where = TopicPartition(name, partition)
                    read += [(where, record) for record in records]
        return read

    def run(self, servers: list[Address], operation: Operation[Any]) -> Any:
        with BlockingAdmin(servers) as admin:
            return admin.run(operation)


class TrioKit:
    def produce(
        self, servers: list[Address], messages: Iterable[Message], settings: ProducerSettings
    ) -> list[Outcome]:
        async def main() -> list[Outcome]:
            with trio.fail_after(TIMEOUT_SECONDS):
                async with open_producer(real_world(), servers, settings) as producer:
                    deliveries = [
                        await producer.send(message.topic, message.value, **message.options())
                        for message in messages
                    ]
            return [_outcome(delivery) for delivery in deliveries]

        return _run(main)

    def consume(
        self,
        servers: list[Address],
        topic: str,
        count: int,
        settings: ConsumerSettings,
        start: Start = lambda consumer, partitions: None,
    ) -> Read:
        async def main() -> Read:
            read: Read = []
            with trio.fail_after(TIMEOUT_SECONDS):
                async with open_consumer(real_world(), servers, settings) as consumer:
                    partitions = await consumer.partitions_of(topic)
                    consumer.assign(partitions)
                    start(consumer, partitions)
                    while len(read) < count:
                        for name, partition, records in await consumer.poll(POLL_MS):
                            where = TopicPartition(name, partition)
                            read += [(where, record) for record in records]
            return read

        return _run(main)

    def run(self, servers: list[Address], operation: Operation[Any]) -> Any:
        async def main() -> Any:
            with trio.fail_after(TIMEOUT_SECONDS):
                async with open_admin(real_world(), servers) as admin:
                    return await admin.run(operation)

        return _run(main)


def _run(main: Callable[[], Any]) -> Any:
    """The client's nurseries wrap what goes wrong inside; the tests want to see it bare."""
    try:
        return trio.run(main)
    except BaseExceptionGroup as group:
        failure: BaseException = group
        while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
            failure = failure.exceptions[0]
        raise failure from None


KITS = [BlockingKit(), TrioKit()]
