"""What a fetch has brought of one partition, until the user has taken it.

Batches are looked into only when the user wants their records. On the way out:

- records before the position are passed over: a fetch begins with the whole batch that holds it;
- control batches are never shown, they only move the position;
- under read_committed, batches of aborted transactions are passed over. The broker tells the
  aborted ones with the data: a producer's transactional batches from `first_offset` on, up to its
  abort marker, don't count.

No CRC covers the offset that a batch begins with. Those of one fetch only grow, so that a batch
which overlaps the next is damaged, or the next one is: whichever is not in its place is refused.
Kafka's consumer passes over what it takes for old, and so may lose records in silence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import dropwhile, islice

from kraftpy.client.calls import TopicPartition
from kraftpy.protocol.schema.k01_fetch import AbortedTransaction
from kraftpy.records.batch import NO_EPOCH, RecordBatch
from kraftpy.records.control import ControlType, control_type
from kraftpy.records.errors import CorruptRecord, RecordDataError
from kraftpy.records.reader import Record, read_records
from kraftpy.records.walker import AnyBatch, first_offset_of, records_of, walk_batches
from kraftpy.world import Buffer

__all__ = ["Fetched"]


class Fetched:
    __slots__ = (
        "_aborted",
        "_aborted_producers",
        "_batch",
        "_batches",
        "_check_crcs",
        "_damage",
        "_end",
        "_max_bytes",
        "_records",
        "position",
        "position_epoch",
        "size",
        "where",
    )

    def __init__(
        self,
        where: TopicPartition,
        data: Buffer,
        *,
        position: int,
        position_epoch: int,
        aborted: Sequence[AbortedTransaction],
        check_crcs: bool,
        max_batch_bytes: int,
    ) -> None:
        """Raises RecordDataError if no batches can be in `data`."""
        self.where = where
        self.size = len(data)
        self._batches: deque[AnyBatch] = deque(walk_batches(data))
        self._aborted = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborted_producers: dict[int, None] = {}
        self._check_crcs = check_crcs
        self._max_bytes = max_batch_bytes
        self._damage: RecordDataError | None = None
        # Where the batch before the next one ends.
        self._end = -1
        self._batch: AnyBatch | None = None
        self._records: Iterator[Record] | None = None
        # The offset of the next record that the user has not seen, and the epoch of the one before.
        self.position = position
        self.position_epoch = position_epoch

    @property
    def is_empty(self) -> bool:
        return self._batch is None and not self._batches and self._damage is None

    @property
    def end(self) -> tuple[int, int] | None:
        """Where to fetch on, and the epoch of the last record before; None if nothing came."""
        if not self._batches:
            return None
        last = self._batches[-1]
        return last.next_offset, _epoch_of(last)

    def take(self, count: int) -> list[Record]:
        """The next records, at most `count`; fewer only if there are no more.

        Raises RecordDataError for a batch that is damaged; the position stays before it.
        """
        if self._damage is not None:
            raise self._damage
        taken: list[Record] = []
        while len(taken) < count:
            try:
                if self._records is None and not self._open_batch():
                    break
                records = list(islice(self._records or (), count - len(taken)))
            except RecordDataError as damage:
                # What came before it is good, and the user's.
                self._damage = damage
                if not taken:
                    raise
                break
            if records:
                taken += records
                self.position = records[-1].offset + 1
                self.position_epoch = _epoch_of(self._batch)
            if len(taken) < count:
                self._close_batch()
        return taken

    def take_batches(self) -> list[AnyBatch]:
        """The next batches, all that there are, for those who look into many records at once.

        The first may begin with records before the position. Raises as `take` does.
        """
        if self._damage is not None:
            raise self._damage
        taken: list[AnyBatch] = []
        try:
            while (batch := self._next_batch()) is not None:
                taken.append(batch)
                self._batch = batch
                self._close_batch()
        except RecordDataError as damage:
            self._damage = damage
            if not taken:
                raise
        return taken

    def _open_batch(self) -> bool:
        """On to the records of the next batch that has some for the user; is there one?"""
        self._batch = self._next_batch()
        if self._batch is None:
            return False
        records = records_of(self._batch, max_bytes=self._max_bytes)
        self._records = dropwhile(partial(_is_before, self.position), records)
        return True

    def _next_batch(self) -> AnyBatch | None:
        """The next one with records for the user, if there is one."""
        while self._batches:
            batch = self._batches[0]
            self._check_place(batch)
            if batch.next_offset > self.position:
                if self._check_crcs and not batch.is_valid:
                    raise CorruptRecord(f"{self.where}: wrong CRC at offset {self.position}")
                if not isinstance(batch, RecordBatch) or not self._is_hidden(batch):
                    return self._batches.popleft()
                self.position = batch.next_offset
                self.position_epoch = batch.leader_epoch
            self._batches.popleft()
        return None

    def _check_place(self, batch: AnyBatch) -> None:
        """Raises CorruptRecord if its offsets can't be right."""
        first_offset = first_offset_of(batch)
        following = first_offset_of(self._batches[1]) if len(self._batches) > 1 else None
        is_first = self._end < 0
        expected = self.position if is_first else self._end
        if not is_first and first_offset < expected:
            is_misplaced = True
        elif is_first and batch.next_offset <= expected:
            # Nothing is wanted of it. Somebody must have what is.
            is_misplaced = following is None or following > expected
        else:
            # Where the first one begins nobody knows.
            is_overlapping = following is not None and following <= batch.last_offset
            is_misplaced = is_overlapping and (is_first or first_offset > expected)
        if is_misplaced:
            raise CorruptRecord(
                f"{self.where}: offset {first_offset} to {batch.last_offset} in the place of "
                f"{expected}"
            )
        self._end = batch.next_offset

    def _close_batch(self) -> None:
        if self._batch is not None:
            # Compaction may have removed the last records, but not their offsets.
            self.position = max(self.position, self._batch.next_offset)
            self.position_epoch = _epoch_of(self._batch)
        self._batch = None
        self._records = None

    def _is_hidden(self, batch: RecordBatch) -> bool:
        """Is this batch a marker, or part of an aborted transaction?"""
        while self._aborted and self._aborted[0].first_offset <= batch.last_offset:
            self._aborted_producers[self._aborted.popleft().producer_id] = None
        if batch.is_control:
            for record in read_records(batch, max_bytes=self._max_bytes):
                if control_type(record) is ControlType.ABORT:
                    self._aborted_producers.pop(batch.producer_id, None)
            return True
        return batch.is_transactional and batch.producer_id in self._aborted_producers


def _is_before(position: int, record: Record) -> bool:
    return record.offset < position


def _epoch_of(batch: AnyBatch | None) -> int:
    return batch.leader_epoch if isinstance(batch, RecordBatch) else NO_EPOCH
