"""The state machine of one partition of `__transaction_state`.

A transactional id is pending while its newest record is not committed, and then until its markers
are written, once its end is decided. Whoever comes in that time is asked to come again, with two
exceptions, for producers that do the usual: partitions of one transaction may be added while
others of it are not committed yet, since the later record is lost with the earlier; and who begins
the next transaction waits a little while for the one before it to be completed.

The order that makes transactions atomic:

1. Prepare is written and committed. Before that no marker may be sent: another coordinator, which
   has not seen the record, might decide otherwise.
2. The producer is answered, and the markers are sent (broker/marker_sender.py).
3. All of them are committed: Complete is written.

Whoever loads a shard finds Prepare without Complete and goes on with 2, having made sure of 1.

Time. A transaction that is open for longer than its producer allowed is aborted. How long that is
is measured on the monotonic clock, so that a jump of the wall clock aborts nothing; only what was
open already when the shard was loaded is judged by the time in its record.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kraftpy.coordinator.outcome import CoordinatorError, CoordinatorRecord, Outcome
from kraftpy.coordinator.ports import ShardContext
from kraftpy.coordinator.timeline import TimelineMap
from kraftpy.coordinator.transactions.endings import (
    Ending,
    Verdict,
    fenced,
    identity_after,
    judge,
    prepared,
)
from kraftpy.coordinator.transactions.identities import (
    NEEDS_PRODUCER_ID,
    Claim,
    Identity,
    IdentityAnswer,
    LastEpochs,
    NeedsProducerId,
    check_claim,
    identify,
)
from kraftpy.coordinator.transactions.open_transactions import OpenTransactions
from kraftpy.coordinator.transactions.ports import MarkerJob, MarkerSender, ProvideProducerId
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.coordinator.transactions.state import (
    FIRST_VERSION_WITH_EPOCH_BUMP,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Partitions,
    Transaction,
    TransactionState,
    check_transition,
    merged,
    record_of,
    tombstone_of,
    transaction_of,
)
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.features import TRANSACTION_VERSION
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.transaction_records import TransactionLogKey
from kraftpy.world import InternalInvariant

__all__ = ["TransactionMachine"]

log = logging.getLogger(__name__)

_ABORT_TIMER: Final = "abort-timed-out"
_REST_TIMER: Final = "abort-the-rest"
_EXPIRY_TIMER: Final = "expire-ids"
_RETRY_MS: Final = 500
# How long the beginning of a transaction waits for the end of the one before it.
_PARKED_MS: Final = 100
# Looked at in one operation, so that it does not take long; the rest follows at once.
_MAX_EXPIRED: Final = 500
# The same, of aborts, which take a tenth of a millisecond each.
_MAX_ABORTED: Final = 20


class TransactionMachine:
    """A Machine. Operations raise CoordinatorError."""

    def __init__(
        self,
        context: ShardContext,
        settings: TransactionSettings,
        markers: MarkerSender,
        provide_producer_id: ProvideProducerId,
    ) -> None:
        self._context = context
        self._settings = settings
        self._markers = markers
        # For aborts of our own; requests bring theirs with them.
        self._provide_producer_id = provide_producer_id
        self.transactions: TimelineMap[str, Transaction] = TimelineMap(context.timeline)
        self._last_epochs = LastEpochs()
        self._open = OpenTransactions()
        self._parked: dict[str, list[Callable[[], None]]] = {}
        self._is_loaded = False

    # Requests.

    def init_producer_id(self, claim: Claim, fresh_id: int | None) -> Outcome[IdentityAnswer]:
        """Without a fresh id where one is needed, nothing happens but to say so."""
        transactional_id = claim.transactional_id
        old = self.transactions.get(transactional_id)
        if self._must_wait(transactional_id):
            raise CoordinatorError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if old is not None and old.state is TransactionState.ONGOING:
            check_claim(old, claim)
            if fresh_id is None and self._must_rotate(old):
                return Outcome(answer=NEEDS_PRODUCER_ID)
            # The producer comes again until the transaction of the one before it is aborted.
            return self._fence(old, CoordinatorError(ErrorCode.CONCURRENT_TRANSACTIONS), fresh_id)
        found = identify(
            old,
            claim,
            last_epoch=NO_EPOCH if old is None else self._last_epochs.before(old),
            fresh_id=fresh_id,
            now_ms=self._context.clock.wall_ms(),
        )
        if isinstance(found, NeedsProducerId):
            return Outcome(answer=found)
        new, last_epoch = found
        identity = Identity(new.producer_id, new.epoch)
        self._last_epochs.note(transactional_id, identity, last_epoch)
        return Outcome((self._record(old, new),), identity)

    def add_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: Partitions,
        *,
        client_version: int,
        again: Callable[[], None] | None = None,
    ) -> Outcome[ErrorCode]:
        """Partitions that the producer is going to write to; the first one begins a transaction.

        With `again`, there may be no answer: then it is called, and is to ask a second time.
        """
        old = self.transactions.get(transactional_id)
        if old is None:
            raise CoordinatorError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_ongoing = old.state is TransactionState.ONGOING
        is_mine = identity == Identity(old.producer_id, old.epoch)
        if self._must_wait(transactional_id) and not (is_ongoing and is_mine):
            # First of all: the producer may have an id that counts from Complete on.
            if again is None or not old.state.is_decided:
                raise CoordinatorError(ErrorCode.CONCURRENT_TRANSACTIONS)
            self._park(transactional_id, again)
            return Outcome()
        _check_identity(old, identity)
        if is_ongoing and old.contains(partitions):
            return Outcome(answer=ErrorCode.NONE)
        now_ms = self._context.clock.wall_ms()
        new = replace(
            old,
            state=TransactionState.ONGOING,
            partitions=merged(old.partitions, partitions),
            start_ms=old.start_ms if is_ongoing else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )
        return Outcome((self._record(old, new),), ErrorCode.NONE)

    def verify_partitions(
        self, transactional_id: str, identity: Identity, partitions: Partitions
    ) -> dict[tuple[str, int], ErrorCode]:
        """Whether each is a part of the open transaction, as far as that is committed."""
        transaction = self.transactions.committed_get(transactional_id)
        if transaction is None:
            raise CoordinatorError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        _check_identity(transaction, identity)
        if transaction.state.is_decided:
            raise CoordinatorError(ErrorCode.CONCURRENT_TRANSACTIONS)
        known = {topic: frozenset(transaction.partitions.get(topic, ())) for topic in partitions}
        return {
            (topic, index): ErrorCode.NONE
            if index in known[topic]
            else ErrorCode.TRANSACTION_ABORTABLE
            for topic, indexes in partitions.items()
            for index in indexes
        }

    def end(self, ending: Ending, fresh_id: int | None) -> Outcome[IdentityAnswer]:
        """Commit or abort; answered when that is decided for good."""
        transactional_id = ending.transactional_id
        old = self.transactions.get(transactional_id)
        if old is None:
            raise CoordinatorError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_pending = self.transactions.is_uncommitted(transactional_id)
        if judge(old, ending, is_pending=is_pending) is Verdict.DONE:
            return Outcome(answer=Identity(old.producer_id, old.epoch))
        needs_id = ending.bumps_epoch and old.is_exhausted
        if needs_id and fresh_id is None:
            return Outcome(answer=NEEDS_PRODUCER_ID)
        new = prepared(
            old,
            is_commit=ending.is_commit,
            client_version=ending.client_version,
            next_producer_id=fresh_id if needs_id and fresh_id is not None else NO_PRODUCER_ID,
            now_ms=self._context.clock.wall_ms(),
        )
        identity = identity_after(new)
        if ending.bumps_epoch:
            self._last_epochs.note(transactional_id, identity, old.epoch)
        return self._decide(old, new, identity)

    # Ending a transaction.

    def _must_rotate(self, old: Transaction) -> bool:
        """Whether a transaction that is aborted by us leaves its producer under another id."""
        return self._bumps_epoch and old.is_exhausted

    def _fence(
        self, old: Transaction, answer: CoordinatorError | None, fresh_id: int | None
    ) -> Outcome[IdentityAnswer]:
        """Abort a transaction that its producer did not end, and shut the producer out.

        One record says both, so that a failed append leaves the epoch as it was, and a second
        attempt does not raise it twice.
        """
        next_id = fresh_id if self._must_rotate(old) else None
        new = fenced(
            old,
            cluster_version=self._cluster_version,
            now_ms=self._context.clock.wall_ms(),
            next_producer_id=NO_PRODUCER_ID if next_id is None else next_id,
        )
        self._last_epochs.note(
            old.transactional_id,
            identity_after(new),
            old.epoch if self._bumps_epoch else NO_EPOCH,
        )
        return self._decide(old, new, answer)

    def _decide(self, old: Transaction, new: Transaction, answer: object) -> Outcome[Any]:
        def settled(error: CoordinatorError | None) -> None:
            if error is None:
                self._carry_out(new)

        return Outcome((self._record(old, new),), answer, settled)

    def _carry_out(self, decided: Transaction) -> None:
        """The decision is committed: have the markers written."""
        complete = partial(
            self._complete, decided.transactional_id, Identity(decided.producer_id, decided.epoch)
        )
        if not decided.partitions:
            self._context.submit(complete)
            return
        job = MarkerJob(
            shard=self._context.partition,
            coordinator_epoch=self._context.leader_epoch,
            transactional_id=decided.transactional_id,
            producer_id=decided.producer_id,
            producer_epoch=decided.epoch,
            is_commit=decided.state is TransactionState.PREPARE_COMMIT,
            transaction_version=decided.client_version,
            partitions=decided.partitions,
        )
        self._markers.send(job, lambda: self._context.submit(complete))

    def _complete(self, transactional_id: str, identity: Identity) -> Outcome[None]:
        """All markers are written. Tried again until that is in the log."""
        old = self.transactions.get(transactional_id)
        if (
            old is None
            or not old.state.is_decided
            or identity != Identity(old.producer_id, old.epoch)
        ):
            return Outcome()

        def settled(error: CoordinatorError | None) -> None:
            if error is None:
                self._unpark(transactional_id)
            else:
                again = partial(self._complete, transactional_id, identity)
                self._context.timers.schedule(f"complete {transactional_id}", _RETRY_MS, again)

        new = old.completed(self._context.clock.wall_ms())
        return Outcome((self._record(old, new),), settled=settled)

    # Those who wait for the end.

    def _park(self, transactional_id: str, again: Callable[[], None]) -> None:
        parked = self._parked.setdefault(transactional_id, [])
        parked.append(again)
        if len(parked) == 1:
            patience_over = partial(self._unpark, transactional_id)
            self._context.timers.schedule(f"park {transactional_id}", _PARKED_MS, patience_over)

    def _unpark(self, transactional_id: str) -> Outcome[None]:
        self._context.timers.cancel(f"park {transactional_id}")
        for again in self._parked.pop(transactional_id, ()):
            again()
        return Outcome()

    # Time.

    def _abort_timed_out(self) -> Outcome[None]:
        self._schedule(_ABORT_TIMER, self._settings.abort_interval_ms, self._abort_timed_out)
        now_ms = self._context.clock.monotonic_ms()
        return self._abort_some(deque(self._open.timed_out(self.transactions, now_ms)))

    def _abort_some(self, transactional_ids: deque[str]) -> Outcome[None]:
        """Each in an operation of its own, so that one which fails does not take others along."""
        for _ in range(min(len(transactional_ids), _MAX_ABORTED)):
            self._context.submit(partial(self._abort, transactional_ids.popleft()))
        if transactional_ids:
            self._schedule(_REST_TIMER, 0, partial(self._abort_some, transactional_ids))
        return Outcome()

    def _abort(self, transactional_id: str, fresh_id: int | None = None) -> Outcome[Any]:
        old = self.transactions.get(transactional_id)
        if (
            old is None
            or old.state is not TransactionState.ONGOING
            or self._must_wait(transactional_id)
            or not self._open.is_timed_out(old, self._context.clock.monotonic_ms())
        ):
            return Outcome()
        if fresh_id is None and self._must_rotate(old):
            self._provide_producer_id(partial(self._abort_with_id, transactional_id))
            return Outcome()
        log.info(
            "transaction aborted after its timeout transactional_id=%r producer_id=%d epoch=%d"
            " timeout_ms=%d",
            transactional_id,
            old.producer_id,
            old.epoch,
            old.timeout_ms,
        )
        return self._fence(old, None, fresh_id)

    def _abort_with_id(self, transactional_id: str, fresh_id: int | ErrorCode) -> None:
        """Without an id the next round tries again."""
        if not isinstance(fresh_id, ErrorCode):
            self._context.submit(partial(self._abort, transactional_id, fresh_id))

    def _expire_ids(self) -> Outcome[None]:
        """Forget ids that nobody has used for long."""
        return self._expire_some(deque(self.transactions))

    def _expire_some(self, transactional_ids: deque[str]) -> Outcome[None]:
        """Those whose tombstone is lost are looked at again in the next round."""
        latest_ms = self._context.clock.wall_ms() - self._settings.id_expiration_ms
        expired = []
        for _ in range(min(len(transactional_ids), _MAX_EXPIRED)):
            transactional_id = transactional_ids.popleft()
            transaction = self.transactions.get(transactional_id)
            if (
                transaction is not None
                and transaction.state.is_idle
                and transaction.update_ms <= latest_ms
                and not self.transactions.is_uncommitted(transactional_id)
            ):
                expired.append(transactional_id)
        if transactional_ids:
            self._schedule(_EXPIRY_TIMER, 0, partial(self._expire_some, transactional_ids))
        else:
            self._schedule(_EXPIRY_TIMER, self._settings.expiry_interval_ms, self._expire_ids)
        return Outcome([tombstone_of(each) for each in expired], is_atomic=False)

    def _schedule(self, key: str, delay_ms: int, operation: Callable[[], Outcome[None]]) -> None:
        self._context.timers.schedule(key, delay_ms, operation)

    # State.

    def _must_wait(self, transactional_id: str) -> bool:
        if self.transactions.is_uncommitted(transactional_id):
            return True
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and transaction.state.is_decided

    @property
    def _bumps_epoch(self) -> bool:
        return self._cluster_version >= FIRST_VERSION_WITH_EPOCH_BUMP

    @property
    def _cluster_version(self) -> int:
        return self._context.image().features.get(TRANSACTION_VERSION) or 0

    def _record(self, old: Transaction | None, new: Transaction) -> CoordinatorRecord:
        if old is not None:
            check_transition(old, new)
        return record_of(new, level=self._cluster_version)

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord
    ) -> None:
        key = record.key
        if not isinstance(key, TransactionLogKey):
            raise InternalInvariant(f"transaction-record-of-{type(key).__name__}")
        transactional_id = key.transactional_id
        if record.value is None:
            self.transactions.pop(transactional_id)
            self._last_epochs.forget(transactional_id)
            return
        transaction = transaction_of(transactional_id, record.value)
        self.transactions[transactional_id] = transaction
        if self._is_loaded:
            self._open.replayed(transaction, self._context.clock.monotonic_ms())

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Nobody writes into `__transaction_state` within a transaction."""

    def loaded(self) -> None:
        """Go on where the coordinator before this one stopped."""
        self._is_loaded = True
        clock = self._context.clock
        self._open.loaded(self.transactions, now_ms=clock.monotonic_ms(), wall_ms=clock.wall_ms())
        self._schedule(_ABORT_TIMER, self._settings.abort_interval_ms, self._abort_timed_out)
        self._schedule(_EXPIRY_TIMER, self._settings.expiry_interval_ms, self._expire_ids)
        for transactional_id, transaction in self.transactions.items():
            if transaction.state.is_decided:
                self._context.submit(partial(self._go_on, transactional_id))

    def _go_on(self, transactional_id: str) -> Outcome[Any]:
        """Carry out a decision that was found in the log, once it can't be lost any more."""
        found = self.transactions[transactional_id]

        def settled(error: CoordinatorError | None) -> None:
            if error is None:
                self._carry_out(found)

        return Outcome(settled=settled)

    def unloaded(self) -> None:
        self._markers.cancel(self._context.partition)
        for transactional_id in list(self._parked):
            self._unpark(transactional_id)

    def metadata_changed(self, changes: ImageChanges, image: MetadataImage) -> None:
        """The version of transactions is looked up when it is needed."""


def _check_identity(transaction: Transaction, identity: Identity) -> None:
    if transaction.producer_id != identity.producer_id:
        raise CoordinatorError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.epoch != identity.epoch or transaction.is_beyond_producers:
        raise CoordinatorError(ErrorCode.PRODUCER_FENCED)
