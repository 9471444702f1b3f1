"""What a log knows of its producers: idempotence and transactions, as Apache Kafka 4.3 keeps them.

For each producer id: its epoch, its last five batches (to recognise a repeated one and to see a
gap), the epoch of the coordinator that wrote its last marker, and where its open transaction began.
All of it is derived from the log. Snapshots only shorten the replay at start.

Sans-I/O and atomic. An append goes

1. `find_duplicate`: a repeated batch is answered with its first offsets, and nothing else happens;
2. `prepare`, then `add_batch` or `add_marker` on the update for each batch with a producer id; they
   raise for the first rule that is broken;
3. the bytes are written;
4. `commit(update)`. Until then the state has not changed, so that an append which fails anywhere
   leaves nothing behind;
5. for each of `update.completed`: `last_stable_offset_after`, the transaction index if it aborted,
   `complete`;
6. `advance` to the new log end.

Replay, after a reload or as a follower, is the same with the origin REPLICATION: what a leader has
accepted is taken without checks.

Who is checked for what: batches of clients for epoch, sequence and transaction; batches of a
coordinator (offset commits), which all have sequence 0, for epoch and transaction; markers for
epoch and coordinator epoch. Verification is in verifications.py.

The last stable offset. A transaction holds readers back from its first batch to its marker, and
longer: until the high watermark has passed the marker, which might otherwise still be lost to a
change of leader. `first_unstable` is the earliest of both kinds.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from kraftpy.log.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from kraftpy.log.producer_entries import (
    NO_EPOCH,
    NO_OFFSET,
    NO_SEQUENCE,
    RETAINED_BATCHES,
    SEQUENCE_MAX,
    BatchMetadata,
    CompletedTransaction,
    OpenTransaction,
    ProducerEntry,
    TakenSnapshot,
    in_slices,
    increment_sequence,
)
from kraftpy.log.verifications import NO_GUARD, VerificationGuard, Verifications
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import assert_always

__all__ = [
    "LATE_TRANSACTION_BUFFER_MS",
    "TRANSACTION_VERSION_UNKNOWN",
    "ProducerState",
    "ProducerUpdate",
]

TRANSACTION_VERSION_UNKNOWN: Final = -1
# How long a coordinator may take to abort a transaction that has timed out.
LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000

_log = logging.getLogger(__name__)


class ProducerUpdate:
    """The changes of one append, checked against the state and each other. From `prepare`."""

    __slots__ = (
        "_guard",
        "_origin",
        "_state",
        "_transaction_version",
        "completed",
        "entries",
        "markers",
        "started",
        "verified",
    )

    def __init__(
        self,
        state: ProducerState,
        origin: AppendOrigin,
        guard: VerificationGuard,
        transaction_version: int,
    ) -> None:
        self._state = state
        self._origin = origin
        self._guard = guard
        self._transaction_version = transaction_version
        self.entries: dict[int, ProducerEntry] = {}
        self.started: list[OpenTransaction] = []
        self.completed: list[CompletedTransaction] = []
        # Producer ids of transactional batches; producer ids and epochs of markers.
        self.verified: list[int] = []
        self.markers: list[tuple[int, int]] = []

    def add_batch(
        self,
        producer_id: int,
        epoch: int,
        *,
        base_sequence: int,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        is_transactional: bool,
        segment_base_offset: int = NO_OFFSET,
        position: int = -1,
    ) -> None:
        """A data batch with a producer id, as its header is after offsets were assigned."""
        old = self._entry(producer_id)
        self._check_epoch(old, epoch, is_fenced=epoch < old.epoch)
        if self._origin != AppendOrigin.REPLICATION and is_transactional:
            self._check_verified(old, epoch)
        if self._origin == AppendOrigin.CLIENT:
            self._check_sequence(old, epoch, base_sequence)
        open_offset = old.transaction_first_offset
        if not is_transactional:
            if open_offset != NO_OFFSET:
                raise InvalidTransactionStateError(
                    f"producer {producer_id} wrote outside its open transaction at {base_offset}"
                )
        else:
            self.verified.append(producer_id)
            if open_offset == NO_OFFSET:
                open_offset = base_offset
                self.started.append(
                    OpenTransaction(producer_id, base_offset, segment_base_offset, position)
                )
        delta = last_offset - base_offset
        last_sequence = (
            NO_SEQUENCE
            if base_sequence == NO_SEQUENCE
            else increment_sequence(base_sequence, delta)
        )
        batch = BatchMetadata(last_sequence, last_offset, delta, max_timestamp_ms)
        kept = old.batches[1 - RETAINED_BATCHES :] if epoch == old.epoch else ()
        self.entries[producer_id] = ProducerEntry(
            producer_id, epoch, old.coordinator_epoch, max_timestamp_ms, open_offset, (*kept, batch)
        )

    def add_marker(
        self,
        producer_id: int,
        epoch: int,
        *,
        coordinator_epoch: int,
        offset: int,
        timestamp_ms: int,
        is_abort: bool,
    ) -> None:
        """The marker that ends a transaction; one without data here completes nothing."""
        is_replica = self._origin == AppendOrigin.REPLICATION
        # The version travels beside a marker, not in it, so a replica does not know it.
        assert_always(
            is_replica or self._transaction_version != TRANSACTION_VERSION_UNKNOWN,
            "marker-without-transaction-version",
        )
        old = self._entry(producer_id)
        is_fenced = epoch < old.epoch
        if self._transaction_version >= 2 and epoch == old.epoch:
            # From version 2 on, a marker brings a new epoch (KIP-1228). One that is known already
            # is late, unless it repeats the marker that has ended the transaction.
            is_fenced = old.transaction_first_offset != NO_OFFSET
        self._check_epoch(old, epoch, is_fenced=is_fenced)
        if coordinator_epoch < old.coordinator_epoch:
            message = (
                f"marker for producer {producer_id} from coordinator epoch {coordinator_epoch}, "
                f"replaced by {old.coordinator_epoch}"
            )
            if not is_replica:
                raise TransactionCoordinatorFencedError(message)
            _log.info(message)
        if old.transaction_first_offset != NO_OFFSET:
            self.completed.append(
                CompletedTransaction(producer_id, old.transaction_first_offset, offset, is_abort)
            )
        self.markers.append((producer_id, epoch))
        kept = old.batches if epoch == old.epoch else ()
        self.entries[producer_id] = ProducerEntry(
            producer_id, epoch, coordinator_epoch, timestamp_ms, NO_OFFSET, kept
        )

    def _entry(self, producer_id: int) -> ProducerEntry:
        """With what this append has changed already; one without epoch for a new producer."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self._state.producers.get(producer_id)
        return ProducerEntry(producer_id) if entry is None else entry

    def _check_epoch(self, old: ProducerEntry, epoch: int, *, is_fenced: bool) -> None:
        if not is_fenced:
            return
        message = f"producer {old.producer_id} with epoch {epoch} was fenced by {old.epoch}"
        if self._origin != AppendOrigin.REPLICATION:
            raise InvalidProducerEpochError(message)
        _log.warning(message)

    def _check_verified(self, old: ProducerEntry, epoch: int) -> None:
        """A transaction may only begin here if its coordinator knows of it.

        Comes after the epoch: a fenced producer can recover from that error, not from this one.
        """
        is_open = old.transaction_first_offset != NO_OFFSET and old.epoch == epoch
        if not is_open and not self._state.accepts_guard(old.producer_id, self._guard):
            raise InvalidTransactionStateError(
                f"producer {old.producer_id} has no verified transaction on this partition"
            )

    def _check_sequence(self, old: ProducerEntry, epoch: int, sequence: int) -> None:
        producer_id = old.producer_id
        verification = self._state.verifications.get(producer_id)
        if verification is not None:
            if verification.supports_epoch_bump and not old.batches and sequence != 0:
                raise OutOfOrderSequenceError(
                    f"producer {producer_id} is new here and began at sequence {sequence}, not 0"
                )
            if sequence > verification.lowest_sequence:
                raise OutOfOrderSequenceError(
                    f"producer {producer_id} wrote sequence {sequence} while "
                    f"{verification.lowest_sequence} awaits verification"
                )
        if epoch != old.epoch:
            # One that is not known may have been forgotten, so it begins where it will.
            if sequence != 0 and old.epoch != NO_EPOCH:
                raise OutOfOrderSequenceError(
                    f"producer {producer_id} began epoch {epoch} at sequence {sequence}, not 0"
                )
            return
        last_sequence = old.last_sequence
        if sequence != (0 if last_sequence == SEQUENCE_MAX else last_sequence + 1):
            raise OutOfOrderSequenceError(
                f"producer {producer_id} wrote sequence {sequence} after {last_sequence}"
            )


class ProducerState:
    """All producers of one log.

    `map_end_offset`: the state covers the log up to here. `snapshot_offset`: the latest snapshot
    covers it up to there.
    """

    __slots__ = (
        "_expiration_ms",
        "_open",
        "_producers",
        "_unreplicated",
        "_verify_transactions",
        "_withheld",
        "map_end_offset",
        "producers",
        "snapshot_offset",
        "verifications",
    )

    def __init__(self, *, expiration_ms: int, verify_transactions: bool = True) -> None:
        self._expiration_ms = expiration_ms
        self._verify_transactions = verify_transactions
        self._producers: dict[int, ProducerEntry] = {}
        # By first offset, which is also the order of insertion: the log only grows.
        self._open: dict[int, OpenTransaction] = {}
        # Ended by a marker that the high watermark has not passed: (first offset, last offset,
        # transaction), ordered by first offset.
        self._unreplicated: list[tuple[int, int, OpenTransaction]] = []
        # Snapshots that wait for the marker at an offset. In order.
        self._withheld: list[tuple[int, TakenSnapshot]] = []
        self.producers: Mapping[int, ProducerEntry] = MappingProxyType(self._producers)
        self.verifications = Verifications()
        self.map_end_offset = 0
        self.snapshot_offset = 0

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    def configure(self, *, expiration_ms: int, verify_transactions: bool) -> None:
        """Other settings of the node; they hold from the next append and the next expiration on."""
        self._expiration_ms = expiration_ms
        self._verify_transactions = verify_transactions

    # Appending.

    def find_duplicate(
        self, producer_id: int, epoch: int, *, base_sequence: int, last_offset_delta: int
    ) -> BatchMetadata | None:
        """The remembered batch that a client repeats, if this is a repetition."""
        entry = self._producers.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return None
        last_sequence = increment_sequence(base_sequence, last_offset_delta)
        for batch in entry.batches:
            if batch.last_sequence == last_sequence and batch.offset_delta == last_offset_delta:
                return batch
        return None

    def prepare(
        self,
        origin: AppendOrigin,
        *,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> ProducerUpdate:
        """Begin an append. A leader that writes a marker must know the `transaction_version`."""
        return ProducerUpdate(self, origin, guard, transaction_version)

    def commit(self, update: ProducerUpdate) -> None:
        """The batches of `update` are in the log."""
        self._producers.update(update.entries)
        for transaction in update.started:
            self._open[transaction.first_offset] = transaction
        for producer_id in update.verified:
            self.verifications.batch_written(producer_id)
        for producer_id, epoch in update.markers:
            self.verifications.marker_written(producer_id, epoch)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """For the transaction index: what is undecided when this transaction is complete."""
        for first_offset, transaction in self._open.items():
            if transaction.producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete(self, completed: CompletedTransaction) -> None:
        """The transaction is decided; readers wait until its marker is replicated."""
        first_offset = completed.first_offset
        assert_always(first_offset in self._open, "completed-unknown-transaction", what=completed)
        entry = (first_offset, completed.last_offset, self._open.pop(first_offset))
        insort(self._unreplicated, entry, key=lambda item: item[0])

    def advance(self, end_offset: int) -> None:
        """The state covers the log up to `end_offset`."""
        self.map_end_offset = end_offset

    # The last stable offset.

    @property
    def first_unstable(self) -> OpenTransaction | None:
        """The earliest transaction that is undecided, or decided by an unreplicated marker."""
        undecided = next(iter(self._open.values()), None)
        if not self._unreplicated:
            return undecided
        unreplicated = self._unreplicated[0][2]
        if undecided is None or unreplicated.first_offset < undecided.first_offset:
            return unreplicated
        return undecided

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the earliest open transaction begins."""
        return next(iter(self._open), None)

    def high_watermark_advanced(self, high_watermark: int) -> TakenSnapshot | None:
        """Markers below are replicated: their transactions hold nobody back any more.

        What it gives is to be written: the latest snapshot that has waited for one of them.
        """
        if self._unreplicated:
            self._unreplicated = [item for item in self._unreplicated if item[1] >= high_watermark]
        released: TakenSnapshot | None = None
        while self._withheld and self._withheld[0][0] < high_watermark:
            _, released = self._withheld.pop(0)
            self.snapshot_offset = max(self.snapshot_offset, released[0])
        return released

    def has_late_transaction(self, now_ms: int, max_transaction_timeout_ms: int) -> bool:
        """Whether the earliest open transaction should have been aborted long ago."""
        earliest = next(iter(self._open.values()), None)
        entry = None if earliest is None else self._producers.get(earliest.producer_id)
        if entry is None or entry.last_timestamp_ms <= 0:
            return False
        idle_ms = now_ms - entry.last_timestamp_ms
        return idle_ms > max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    # Verification.

    def start_verification(
        self, producer_id: int, *, epoch: int, sequence: int, now_ms: int, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """The guard to append with when the coordinator has agreed.

        NO_GUARD where it need not be asked: the transaction is open here.
        """
        entry = self._producers.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                raise InvalidProducerEpochError(
                    f"producer {producer_id} with epoch {epoch} was fenced by {entry.epoch}"
                )
            if epoch == entry.epoch and entry.transaction_first_offset != NO_OFFSET:
                return NO_GUARD
        return self.verifications.start(
            producer_id,
            epoch=epoch,
            sequence=sequence,
            now_ms=now_ms,
            supports_epoch_bump=supports_epoch_bump,
        )

    def accepts_guard(self, producer_id: int, guard: VerificationGuard) -> bool:
        return not self._verify_transactions or self.verifications.accepts(producer_id, guard)

    # Lifetime.

    def remove_expired(self, now_ms: int) -> Iterator[int]:
        """Forget who has been idle for too long; how many producers that were, slice by slice.

        Between two slices anything may happen.
        """
        self.verifications.remove_expired(now_ms, self._expiration_ms)
        for some in in_slices(list(self._producers.values())):
            expired = [
                entry
                for entry in some
                if self._is_expired(entry, now_ms)
                and self._producers.get(entry.producer_id) is entry
            ]
            for entry in expired:
                del self._producers[entry.producer_id]
            yield len(expired)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        return (
            entry.transaction_first_offset == NO_OFFSET
            and now_ms - entry.last_timestamp_ms >= self._expiration_ms
        )

    def take_snapshot(self) -> TakenSnapshot | None:
        """What to write as `<offset>.snapshot`; None when the latest one covers it all.

        Takes no more than a reference to each producer, so that a roll can wait for it.

        One that knows of a marker which is not replicated waits until it is: who starts from the
        snapshot would take the transaction for decided, although the marker may still be cut off.
        A segment is deleted below the high watermark only: the snapshot at its end is there then.
        """
        if self.map_end_offset <= self.snapshot_offset:
            return None
        taken = self.map_end_offset, tuple(self._producers.values())
        if self._unreplicated:
            last_marker = max(offset for _, offset, _ in self._unreplicated)
            self._withheld.append((last_marker, taken))
            return None
        self.snapshot_offset = self.map_end_offset
        return taken

    def truncated(self, end_offset: int) -> None:
        """The log was cut there: what knows of more is never written."""
        self._withheld = [each for each in self._withheld if each[1][0] <= end_offset]

    def reload(self, log_start_offset: int, *, snapshot_offset: int | None = None) -> None:
        """Begin again from nothing; replay follows from `map_end_offset`.

        From a snapshot, `restore` and `reopen` come before that. For loading, and where the log was
        cut below what the state covers. The log end is at or below the high watermark then, so
        nothing decided is unreplicated.
        """
        self._clear()
        self.snapshot_offset = log_start_offset if snapshot_offset is None else snapshot_offset
        self.map_end_offset = self.snapshot_offset

    def restore(self, entries: Iterable[ProducerEntry], now_ms: int) -> list[ProducerEntry]:
        """Some of the producers in a snapshot; those with a transaction that `reopen` must get."""
        alive = [entry for entry in entries if not self._is_expired(entry, now_ms)]
        self._producers.update((entry.producer_id, entry) for entry in alive)
        return [entry for entry in alive if entry.transaction_first_offset != NO_OFFSET]

    def reopen(self, entries: Iterable[ProducerEntry]) -> None:
        """The transactions of all these, in whatever order they come."""
        for first_offset, producer_id in sorted(
            (entry.transaction_first_offset, entry.producer_id) for entry in entries
        ):
            self._open[first_offset] = OpenTransaction(producer_id, first_offset)

    def blank(self) -> ProducerState:
        """One that knows nothing yet, to be filled and taken over."""
        blank = ProducerState(
            expiration_ms=self._expiration_ms, verify_transactions=self._verify_transactions
        )
        blank.verifications = self.verifications
        return blank

    def take_over(self, other: ProducerState) -> None:
        """All that a filled one knows, at one stroke. Nobody may use that one any more."""
        self._producers, self._open = other._producers, other._open
        self._unreplicated = other._unreplicated
        self.producers = other.producers
        self.map_end_offset = other.map_end_offset
        self.snapshot_offset = other.snapshot_offset

    def log_start_advanced(
        self, log_start_offset: int, *, latest_snapshot_offset: int | None
    ) -> None:
        """Data below is deleted. Its producers stay, so that they can go on writing."""
        self.high_watermark_advanced(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        self.snapshot_offset = (
            log_start_offset if latest_snapshot_offset is None else latest_snapshot_offset
        )

    def truncate_fully(self, start_offset: int) -> None:
        """The log is empty and begins at `start_offset`; all snapshots are gone."""
        self._clear()
        self._withheld.clear()
        self.map_end_offset = start_offset
        self.snapshot_offset = 0

    def _clear(self) -> None:
        self._producers.clear()
        self._open.clear()
        self._unreplicated.clear()
