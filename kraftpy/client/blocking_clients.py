"""Producer, consumer and admin for code without a loop: scripts, commands, Spark's workers.

    with BlockingProducer([("127.0.0.1", 9092)]) as producer:
        producer.send("events", b"value", key=b"key")

The cores are those of the trio clients, and so is what they promise. Nothing happens in the
background: a producer sends while one of its methods runs, so that a record that lingers leaves
with the next call at the latest. Each object is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from kraftpy.client.admin_core import AdminCore, Operation
from kraftpy.client.blocking import fresh_random, now_ms, wall_ms
from kraftpy.client.blocking_driver import BlockingDriver
from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer_core import ConsumerCore, PartitionRecords
from kraftpy.client.errors import KafkaError
from kraftpy.client.leader_questions import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetAnswer
from kraftpy.client.positions import PartitionProgress
from kraftpy.client.producer_batch import Delivery, RecordMetadata
from kraftpy.client.producer_core import ProducerCore
from kraftpy.client.settings import AdminSettings, ConsumerSettings, ProducerSettings
from kraftpy.client.topic_wait import TopicWait
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.reader import Header
from kraftpy.world import Address

__all__ = ["BlockingAdmin", "BlockingConsumer", "BlockingProducer"]

T = TypeVar("T")


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
        # Nobody else tells of requests without answers.
        self._driver.until(lambda: not self._driver.has_unsent)

    def close(self) -> None:
        """At once: what is not settled fails. Idempotent."""
        self._core.close()
        self._driver.close()


class BlockingConsumer:
    """A context manager."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: ConsumerSettings | None = None
    ) -> None:
        self._settings = settings or ConsumerSettings()
        self._core = ConsumerCore(bootstrap, self._settings, fresh_random())
        self._driver = BlockingDriver(self._core, self._settings.client)

    def __enter__(self) -> BlockingConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._core.assignment

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions. Raises KafkaError if there is no such topic."""
        wait = TopicWait(self._core.cluster, topic)
        self._driver.until(lambda: wait.is_done, self._settings.default_api_timeout_ms)
        return wait.result()

    def assign(self, wheres: Iterable[TopicPartition]) -> None:
        """Consume these partitions and no others; those that stay keep their positions."""
        self._core.assign(wheres)

    def seek(self, where: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Go on here; with the epoch of the record before, a cut log is noticed."""
        self._core.seek(where, offset, leader_epoch)

    def seek_to_timestamp(self, where: TopicPartition, timestamp: int) -> None:
        """Go on with the first record of this time or later; or at the end, if there is none."""
        self._core.seek_to_timestamp(where, timestamp)

    def seek_to_beginning(self, where: TopicPartition) -> None:
        self.seek_to_timestamp(where, EARLIEST_TIMESTAMP)

    def seek_to_end(self, where: TopicPartition) -> None:
        self.seek_to_timestamp(where, LATEST_TIMESTAMP)

    def pause(self, where: TopicPartition) -> None:
        self._core.pause(where)

    def resume(self, where: TopicPartition) -> None:
        self._core.resume(where)

    def position(self, where: TopicPartition) -> int:
        """The offset of the next record, looked up first where that is still to be done."""
        timeout_ms = self._settings.default_api_timeout_ms
        self._driver.until(lambda: self._core.position(where) is not None, timeout_ms)
        return self._core.require_position(where)

    def progress(self, where: TopicPartition) -> PartitionProgress:
        """What the last fetch said about the log's ends."""
        return self._core.progress(where)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAnswer]:
        """The first offsets of these times or later; -1 where there is none."""
        lookup = self._core.look_up(timestamps, now_ms())
        self._driver.until(lambda: lookup.is_done)
        return lookup.result()

    def beginning_offsets(self, wheres: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = self.offsets_for_times(dict.fromkeys(wheres, EARLIEST_TIMESTAMP))
        return {where: answer.offset for where, answer in found.items()}

    def end_offsets(self, wheres: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of the logs, as far as this consumer's isolation level lets it read."""
        found = self.offsets_for_times(dict.fromkeys(wheres, LATEST_TIMESTAMP))
        return {where: answer.offset for where, answer in found.items()}

    def poll(
        self, timeout_ms: int | None = None, *, max_records: int | None = None
    ) -> list[PartitionRecords]:
        """Records, as soon as there are any; none if the time is over before."""
        count = self._settings.max_poll_records if max_records is None else max_records
        deadline_ms = None if timeout_ms is None else now_ms() + timeout_ms
        while True:
            records = self._core.take(count)
            if records:
                # The next answer is on its way while the user works on these.
                self._driver.turn(now_ms())
                return records
            left_ms = None if deadline_ms is None else max(0, deadline_ms - now_ms())
            if not self._driver.until(lambda: self._core.has_output, left_ms):
                return []

    def close(self) -> None:
        """Idempotent."""
        self._driver.close()


class BlockingAdmin:
    """Runs the operations of admin_operations.py; a context manager."""

    def __init__(self, bootstrap: Sequence[Address], settings: AdminSettings | None = None) -> None:
        self._settings = settings or AdminSettings()
        self._core = AdminCore(bootstrap, self._settings, fresh_random())
        self._driver = BlockingDriver(self._core, self._settings.client)

    def __enter__(self) -> BlockingAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, operation: Operation[T]) -> T:
        """Carry an operation out; its result. Raises KafkaError."""
        run = self._core.start(operation, now_ms())
        self._driver.until(lambda: run.is_done)
        return run.result()

    def close(self) -> None:
        """Idempotent."""
        self._driver.close()
