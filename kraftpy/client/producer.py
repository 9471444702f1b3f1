"""A producer for trio code.

    async with open_producer(world, [("127.0.0.1", 9092)]) as producer:
        delivery = await producer.send("events", b"value", key=b"key")
        metadata = await producer.wait(delivery)

Leaving the block flushes. `send` waits only while the buffer is full; the order of records is the
order of the calls.

With a `transactional_id`:

    await producer.init_transactions()
    producer.begin_transaction()
    await producer.send("events", b"value")
    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata)
    await producer.commit_transaction()

What the exceptions mean is told in transaction_errors.py. A block that is left in a transaction
aborts it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import KafkaError
from kraftpy.client.group_member import GroupMetadata
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.links import Driver
from kraftpy.client.producer_batch import Delivery, Identity, RecordMetadata
from kraftpy.client.producer_core import ProducerCore
from kraftpy.client.settings import ProducerSettings
from kraftpy.client.transaction_manager import Step, TransactionManager
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.reader import Header
from kraftpy.world import Address, World

__all__ = ["Producer", "open_producer"]


@asynccontextmanager
async def open_producer(
    world: World, bootstrap: Sequence[Address], settings: ProducerSettings | None = None
) -> AsyncIterator[Producer]:
    """A producer that lives as long as the block; what is unsent at its end is sent then."""
    settings = settings or ProducerSettings()
    core = ProducerCore(bootstrap, settings, world.rng.stream("producer"))
    async with trio.open_nursery() as nursery:
        driver = Driver(world, nursery, core, settings.client)
        nursery.start_soon(driver.run, name="client-producer")
        try:
            producer = Producer(world, core, driver, settings)
            yield producer
            await producer.flush()
            await producer.abort_open_transaction()
        except Exception:
            await producer.abort_open_transaction()
            raise
        finally:
            core.close()
            driver.close()
            nursery.cancel_scope.cancel()


class Producer:
    """Made by `open_producer`."""

    def __init__(
        self, world: World, core: ProducerCore, driver: Driver, settings: ProducerSettings
    ) -> None:
        self._world = world
        self._core = core
        self._driver = driver
        self._settings = settings
        self._turn = trio.Lock()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> Delivery:
        """Hand over a record. Raises KafkaError if it is too large, or finds no room in time."""
        size = self._core.size_of(key, value, headers)
        if not self._core.has_room(size) or self._turn.locked():
            await self._wait_for_room(size)
        clock = self._world.clock
        delivery = self._core.append(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=clock.wall_ms() if timestamp_ms is None else timestamp_ms,
            headers=headers,
            now_ms=clock.monotonic_ms(),
        )
        if self._core.needs_turn:
            self._driver.wake()
            # The batch leaves now rather than when its sender waits for something.
            await trio.lowlevel.checkpoint()
        return delivery

    async def wait(self, delivery: Delivery) -> RecordMetadata:
        """Where the record is, once the broker has acknowledged it; raises why not."""
        while not delivery.is_done:
            done = trio.Event()
            delivery.when_done(done.set)
            await done.wait()
        return delivery.result()

    async def flush(self) -> None:
        """Wait until all that was sent before is settled, one way or the other."""
        is_flushed = self._core.flush()
        self._driver.wake()
        await self._driver.until(is_flushed)
        await self._driver.wait_sent()

    async def init_transactions(self) -> None:
        """Once, first: fences earlier producers of the same id, and aborts what they left open."""
        await self._step(self._transaction.init())

    def begin_transaction(self) -> None:
        self._transaction.begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """The group's offsets are committed if the transaction is."""
        await self._step(self._transaction.send_offsets(offsets, group))

    async def commit_transaction(self) -> None:
        """Wait for all that was sent, and commit it. Raises why that can't be (see above)."""
        step = self._transaction.commit()
        self._core.flush()
        await self._step(step)

    async def abort_transaction(self) -> None:
        await self._step(self._transaction.abort())

    async def abort_open_transaction(self) -> None:
        """If there is one: nobody else would end it before its time is over."""
        if self._core.transaction is not None and self._core.transaction.is_open:
            await self.abort_transaction()

    @property
    def identity(self) -> Identity | None:
        """Who a transactional producer is to brokers now; None before `init_transactions`."""
        return self._transaction.identity

    @property
    def _transaction(self) -> TransactionManager:
        if self._core.transaction is None:
            raise ValueError("the producer has no transactional_id")
        return self._core.transaction

    async def _step(self, step: Step) -> None:
        self._driver.wake()
        await self._driver.until(lambda: step.is_done, self._settings.max_block_ms)
        step.result()

    async def _wait_for_room(self, size: int) -> None:
        # One after the other, so that a large record isn't overtaken for ever by small ones.
        async with self._turn:
            timeout_ms = self._settings.max_block_ms
            if not await self._driver.until(lambda: self._core.has_room(size), timeout_ms):
                why = f"no room in the buffer for {timeout_ms} ms"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
