"""One partition's batches in a producer: their order, their sequence numbers, their repetition.

A batch goes through three places: `open` (records may be added), `closed` (waiting for its first
send), `outstanding` (sent at least once, and not settled). Only from the first send on it has a
sequence number, so outstanding batches are in the order of their numbers.

How order and uniqueness are kept for an idempotent producer:

- A batch that must be sent again goes alone and first: only the head of `outstanding` is repeated,
  and no new batch is sent while one waits for that. Batches sent behind a lost one are refused as
  out of order, and wait for their turn to be the head.
- A repetition has its old number, so the broker can tell it from new records.
- The head is out of order only if something before it is missing at the broker although it was
  settled here: given up (a failure or a time-out was reported to the user), or lost by the brokers.
  The broker then has none of the outstanding batches, since each would have been out of order too.
  They get new numbers, from 0, in a new epoch: `must_renumber`. That waits until none is in flight,
  because its answer would be about the old number.
- A new epoch is also taken before the next batch when one was given up and nothing is outstanding.
- The first batch under a new identity goes alone: a broker that knows nothing of a producer takes
  any number for the first one, so a later batch could get in before the first.
- The epoch belongs to the producer. Another partition takes over a new one when nothing of it is
  outstanding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kraftpy.client.calls import TopicPartition
from kraftpy.client.producer_batch import Batch, Identity
from kraftpy.client.settings import ProducerSettings

__all__ = ["PartitionQueue"]


class PartitionQueue:
    __slots__ = (
        "_identity",
        "_is_established",
        "_is_in_doubt",
        "_next_sequence",
        "_settings",
        "closed",
        "must_renumber",
        "open",
        "outstanding",
        "where",
    )

    def __init__(self, where: TopicPartition, settings: ProducerSettings) -> None:
        self.where = where
        self._settings = settings
        self.open: Batch | None = None
        self.closed: deque[Batch] = deque()
        self.outstanding: deque[Batch] = deque()
        self.must_renumber = False
        self._identity: Identity | None = None
        self._next_sequence = 0
        self._is_in_doubt = False
        # Does the broker know us? Without idempotence it need not.
        self._is_established = not settings.is_idempotent

    @property
    def is_empty(self) -> bool:
        return self.open is None and not self.closed and not self.outstanding

    def batches(self) -> Iterator[Batch]:
        """All, in order."""
        yield from self.outstanding
        yield from self.closed
        if self.open is not None:
            yield self.open

    def room_for(self, size: int, now_ms: int) -> Batch:
        """The batch that a record of at most `size` bytes belongs into."""
        batch = self.open
        if batch is not None and batch.size + size > self._settings.batch_size and batch.count:
            self.close_open()
            batch = None
        if batch is None:
            batch = self.open = Batch(self.where, self._settings, now_ms)
        return batch

    def close_open(self) -> None:
        if self.open is not None:
            self.open.close()
            self.closed.append(self.open)
            self.open = None

    def due_ms(self, identity: Identity | None) -> int | None:
        """When `take` gives a batch, as far as time decides that; None: not by time.

        `identity` is the producer's present one, or None without idempotence.
        """
        waiting = self._first_waiting()
        if waiting is not None:
            if waiting is not self.outstanding[0] or self._must_wait_to_renumber():
                return None
            return waiting.not_before_ms
        if self.outstanding and (identity != self._identity or not self._is_established):
            return None
        if self.closed:
            return 0
        if self.open is not None:
            return self.open.created_ms + self._settings.linger_ms
        return None

    def needs_new_identity(self, current: Identity) -> bool:
        """Must the producer's epoch rise before this partition can send?"""
        if self._identity != current:
            return False
        if self.must_renumber:
            return not self._must_wait_to_renumber()
        return self._is_in_doubt and not self.outstanding

    def take(self, now_ms: int, identity: Identity | None) -> Batch | None:
        """The batch to send now, marked as in flight."""
        due_ms = self.due_ms(identity)
        if due_ms is None or due_ms > now_ms:
            return None
        batch = self._first_waiting()
        if batch is not None:
            if self.must_renumber and identity is not None:
                self._adopt(identity)
                for each in self.outstanding:
                    self._next_sequence = each.number(identity, self._next_sequence)
        else:
            if not self.closed:
                self.close_open()
            batch = self.closed.popleft()
            if identity is not None:
                if identity != self._identity:
                    self._adopt(identity)
                self._next_sequence = batch.number(identity, self._next_sequence)
            self.outstanding.append(batch)
        batch.is_in_flight = True
        batch.attempts += 1
        return batch

    def settle(self, batch: Batch) -> None:
        """The batch is done, one way or the other: it is in nobody's way any more."""
        if batch is self.open:
            self.open = None
        elif batch in self.closed:
            self.closed.remove(batch)
        else:
            self.outstanding.remove(batch)
            if batch.failure is None:
                self._is_established = True
            else:
                # What the broker has of a batch that failed, nobody knows.
                self._is_in_doubt = True
        if not self.outstanding:
            self.must_renumber = False

    def replace(self, batch: Batch, parts: tuple[Batch, Batch]) -> None:
        """A batch was split: its parts go first, under new numbers."""
        position = self.outstanding.index(batch)
        self.outstanding.remove(batch)
        self.outstanding.insert(position, parts[1])
        self.outstanding.insert(position, parts[0])
        self.must_renumber = self._identity is not None

    def is_head(self, batch: Batch) -> bool:
        return bool(self.outstanding) and self.outstanding[0] is batch

    def _first_waiting(self) -> Batch | None:
        return next((batch for batch in self.outstanding if not batch.is_in_flight), None)

    def _must_wait_to_renumber(self) -> bool:
        return self.must_renumber and any(batch.is_in_flight for batch in self.outstanding)

    def _adopt(self, identity: Identity) -> None:
        self._identity = identity
        self._is_established = False
        self._next_sequence = 0
        self._is_in_doubt = False
        self.must_renumber = False
