"""Producer, consumer and admin for code without a loop: scripts, commands, Spark's workers.

    with BlockingProducer([("127.0.0.1", 9092)]) as producer:
        producer.send("events", b"value", key=b"key")

The cores are those of the trio clients, and so is what they promise. Nothing happens in the
background: a producer sends while one of its methods runs, so that a record that lingers leaves
with the next call at the latest. Each object is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftpy.client.blocking import fresh_random, now_ms, wall_ms
from kraftpy.client.blocking_driver import BlockingDriver
from kraftpy.client.errors import KafkaError
from kraftpy.client.producer_batch import Delivery, RecordMetadata
from kraftpy.client.producer_core import ProducerCore
from kraftpy.client.settings import ProducerSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.reader import Header
from kraftpy.world import Address

__all__ = ["BlockingProducer"]


class BlockingProducer:
    """A context manager; leaving it in order flushes."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: ProducerSettings | None = None
    ) -> None:
        self._settings = settings or ProducerSettings()
        self._core = ProducerCore(bootstrap, self._settings, fresh_random())
        self._driver = BlockingDriver(self._core, self._settings.client)

    def __enter__(self) -> BlockingProducer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def send(
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
        core = self._core
        size = core.size_of(key, value, headers)
        if not core.has_room(size):
            timeout_ms = self._settings.max_block_ms
            if not self._driver.until(lambda: core.has_room(size), timeout_ms):
                why = f"no room in the buffer for {timeout_ms} ms"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
        delivery = core.append(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=wall_ms() if timestamp_ms is None else timestamp_ms,
            headers=headers,
            now_ms=now_ms(),
        )
        if core.needs_turn:
            self._driver.turn(now_ms())
        return delivery

    def poll(self, timeout_ms: int = 0) -> None:
        """Let records leave and answers come."""
        self._driver.until(lambda: False, timeout_ms)

    def wait(self, delivery: Delivery) -> RecordMetadata:
        """Where the record is, once the broker has acknowledged it; raises why not."""
        self._driver.until(lambda: delivery.is_done)
        return delivery.result()

    def flush(self) -> None:
        """Wait until all that was sent before is settled, one way or the other."""
        self._driver.until(self._core.flush())

    def close(self) -> None:
        """At once: what is not settled fails. Idempotent."""
        self._core.close()
        self._driver.close()
