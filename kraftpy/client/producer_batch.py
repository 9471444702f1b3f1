"""A producer's batches, and what became of each record in them.

A Delivery is the promise made for one record. It holds no result of its own: the record's batch
does, and the delivery knows its place there. A batch that a broker finds too large is split; its
deliveries then look into the part that has their record. So a batch of a thousand records is
settled in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kraftpy.client.calls import TopicPartition
from kraftpy.client.settings import ProducerSettings
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.reader import Header, read_records
from kraftpy.world import assert_always

__all__ = ["NO_OFFSET", "Batch", "Delivery", "Identity", "RecordMetadata"]

NO_OFFSET = -1
_SEQUENCE_MASK = 2**31 - 1


class Identity(NamedTuple):
    """Who a broker takes the producer for; sequences count within it."""

    producer_id: int
    epoch: int


class RecordMetadata(NamedTuple):
    """Where a record is.

    The offset is -1 if the broker didn't say: with acks=0, or when it had the record already.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Batch:
    """Records of one partition, from `append` to a result, which comes exactly once."""

    __slots__ = (
        "_base_offset",
        "_builder",
        "_log_append_time_ms",
        "_parts",
        "_waiters",
        "attempts",
        "base_sequence",
        "count",
        "created_ms",
        "data",
        "failure",
        "identity",
        "is_done",
        "is_in_flight",
        "not_before_ms",
        "size",
        "where",
    )

    def __init__(self, where: TopicPartition, settings: ProducerSettings, now_ms: int) -> None:
        codec = Codec[settings.compression_type.upper()]
        self._builder: BatchBuilder | None = BatchBuilder(
            codec=codec,
            level=settings.compression_level,
            is_transactional=settings.transactional_id is not None,
        )
        self.where = where
        self.created_ms = now_ms
        self.count = 0
        # Before compression; this much of the buffer it holds until it is done.
        self.size = 0
        self.data: bytearray | None = None
        self.identity: Identity | None = None
        self.base_sequence = -1
        self.attempts = 0
        self.not_before_ms = 0
        self.is_in_flight = False
        self.is_done = False
        self.failure: Exception | None = None
        self._base_offset = NO_OFFSET
        self._log_append_time_ms = -1
        self._waiters: list[Callable[[], None]] = []
        self._parts: tuple[Batch, Batch] | None = None

    @property
    def is_closed(self) -> bool:
        return self._builder is None

    def append(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Iterable[Header]
    ) -> int:
        """Add a record; its index."""
        builder = self._builder
        assert_always(builder is not None, "producer-append-to-closed-batch")
        builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)  # type: ignore[union-attr]
        self.size = builder.size  # type: ignore[union-attr]
        self.count += 1
        return self.count - 1

    def close(self) -> None:
        """No more records: compress and seal."""
        if self._builder is not None:
            self.data = self._builder.build()
            self._builder = None

    def number(self, identity: Identity, base_sequence: int) -> int:
        """Stamp the batch with its place in the producer's sequence; the next batch's."""
        self.identity = identity
        self.base_sequence = base_sequence
        RecordBatch(self._sealed()).set_producer(
            identity.producer_id, identity.epoch, base_sequence
        )
        return (base_sequence + self.count) & _SEQUENCE_MASK

    def finish(self, base_offset: int, log_append_time_ms: int) -> None:
        self._base_offset = base_offset
        self._log_append_time_ms = log_append_time_ms
        self._end()

    def fail(self, failure: Exception) -> None:
        self.failure = failure
        self._end()

    def split(self, settings: ProducerSettings) -> tuple[Batch, Batch]:
        """Two batches with half the records each; together they take this one's place."""
        records = list(read_records(RecordBatch(self._sealed()), max_bytes=_SEQUENCE_MASK))
        middle = len(records) // 2
        halves = []
        for part in (records[:middle], records[middle:]):
            half = Batch(self.where, settings, self.created_ms)
            for _, timestamp_ms, key, value, headers in part:
                half.append(key, value, timestamp_ms, headers)
            half.close()
            half.attempts = self.attempts
            half.when_done(self._end_with_parts)
            halves.append(half)
        self._parts = (halves[0], halves[1])
        self.data = None
        return self._parts

    def when_done(self, waiter: Callable[[], None]) -> None:
        if self.is_done:
            waiter()
        else:
            self._waiters.append(waiter)

    def of_record(self, index: int) -> tuple[Batch, int]:
        """The batch that really holds record `index`, and its index there."""
        batch = self
        while batch._parts is not None:
            first, second = batch._parts
            if index < first.count:
                batch = first
            else:
                batch, index = second, index - first.count
        return batch, index

    def offset_of(self, index: int) -> int:
        return NO_OFFSET if self._base_offset == NO_OFFSET else self._base_offset + index

    @property
    def log_append_time_ms(self) -> int:
        return self._log_append_time_ms

    def _sealed(self) -> bytearray:
        assert_always(self.data is not None, "producer-batch-not-closed")
        return self.data  # type: ignore[return-value]

    def _end_with_parts(self) -> None:
        if self._parts is not None and all(part.is_done for part in self._parts):
            self._end()

    def _end(self) -> None:
        assert_always(not self.is_done, "producer-batch-settled-twice")
        self.is_done = True
        self.is_in_flight = False
        self.data = None
        self._builder = None
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()


class Delivery:
    """The promise for one record: done or not, and then a result or a failure."""

    __slots__ = ("_batch", "_failure", "_index", "_waiters", "timestamp_ms", "topic")

    def __init__(self, topic: str, timestamp_ms: int) -> None:
        self.topic = topic
        self.timestamp_ms = timestamp_ms
        self._batch: Batch | None = None
        self._index = 0
        # Only of use while the record has no batch yet.
        self._failure: Exception | None = None
        self._waiters: list[Callable[[], None]] | None = None

    @property
    def is_done(self) -> bool:
        if self._batch is None:
            return self._failure is not None
        return self._batch.of_record(self._index)[0].is_done

    def result(self) -> RecordMetadata:
        """Where the record is; raises why it isn't."""
        if self._batch is None:
            assert_always(self._failure is not None, "producer-result-before-done")
            raise self._failure  # type: ignore[misc]
        batch, index = self._batch.of_record(self._index)
        assert_always(batch.is_done, "producer-result-before-done")
        if batch.failure is not None:
            raise batch.failure
        timestamp_ms = batch.log_append_time_ms
        if timestamp_ms < 0:
            timestamp_ms = self.timestamp_ms
        return RecordMetadata(
            self.topic, batch.where.partition, batch.offset_of(index), timestamp_ms
        )

    def when_done(self, waiter: Callable[[], None]) -> None:
        """Call `waiter` when there is a result; at once if there is."""
        if self.is_done:
            waiter()
        elif self._batch is not None:
            self._batch.of_record(self._index)[0].when_done(waiter)
        else:
            self._waiters = [*(self._waiters or ()), waiter]

    def place(self, batch: Batch, index: int) -> None:
        """The record has found its batch."""
        self._batch = batch
        self._index = index
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            batch.when_done(waiter)

    def refuse(self, failure: Exception) -> None:
        """The record will never have a batch."""
        self._failure = failure
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            waiter()
