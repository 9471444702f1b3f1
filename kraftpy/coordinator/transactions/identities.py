"""InitProducerId: which producer id and epoch a producer gets under a transactional id.

Each producer that comes gets a higher epoch than the one before it, which is shut out thereby. One
that says which id and epoch it has goes on where it was, and only if nobody came in between. Its
answer may have been lost: who names the epoch before the present one, and was the one to be given
the present one, gets it again.

That last epoch is not in Kafka's records, so it is only remembered (`LastEpochs`), with the
identity that it led to; where that is not the present one, nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.state import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PARTITIONS,
    NO_TIMESTAMP,
    Transaction,
    TransactionState,
)
from kraftpy.protocol.errors import ErrorCode

__all__ = [
    "NEEDS_PRODUCER_ID",
    "Claim",
    "Identity",
    "IdentityAnswer",
    "LastEpochs",
    "NeedsProducerId",
    "check_claim",
    "identify",
]


class Identity(NamedTuple):
    """What a producer signs its batches with."""

    producer_id: int
    epoch: int


class NeedsProducerId:
    """The answer of an operation that can't be carried out without a new producer id."""

    __slots__ = ()


NEEDS_PRODUCER_ID: Final = NeedsProducerId()


IdentityAnswer: TypeAlias = Identity | NeedsProducerId | CoordinatorError


@dataclass(frozen=True, slots=True)
class Claim:
    """A producer that wants to write under a transactional id."""

    transactional_id: str
    timeout_ms: int
    given: Identity | None = None
    """What it has, if it says so."""


class LastEpochs:
    """For each transactional id the epoch before its present identity. Memory only."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, tuple[Identity, int]] = {}

    def note(self, transactional_id: str, identity: Identity, last_epoch: int) -> None:
        self._last[transactional_id] = (identity, last_epoch)

    def before(self, transaction: Transaction) -> int:
        known = self._last.get(transaction.transactional_id)
        present = Identity(transaction.producer_id, transaction.epoch)
        return NO_EPOCH if known is None or known[0] != present else known[1]

    def forget(self, transactional_id: str) -> None:
        self._last.pop(transactional_id, None)


def check_claim(old: Transaction, claim: Claim) -> None:
    """Refuse a producer whose id has been replaced, unless it may be waiting for just that."""
    given = claim.given
    if given is None or given.producer_id == old.producer_id:
        return
    awaits_rotation = given.producer_id == old.previous_producer_id and given.epoch >= EPOCH_MAX - 1
    if not awaits_rotation:
        raise CoordinatorError(ErrorCode.PRODUCER_FENCED)


def identify(
    old: Transaction | None, claim: Claim, *, last_epoch: int, fresh_id: int | None, now_ms: int
) -> tuple[Transaction, int] | NeedsProducerId:
    """The transactional id with its next identity, and the epoch to remember as the last one.

    `old` is idle: a transaction under way has to be ended before. Raises CoordinatorError.
    """
    given = claim.given
    if old is None:
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        new = Transaction(
            transactional_id=claim.transactional_id,
            producer_id=fresh_id,
            epoch=0,
            timeout_ms=claim.timeout_ms,
            update_ms=now_ms,
        )
        return new, NO_EPOCH
    check_claim(old, claim)
    idle = replace(
        old,
        state=TransactionState.EMPTY,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIMESTAMP,
        timeout_ms=claim.timeout_ms,
        update_ms=now_ms,
    )
    is_present = given is not None and given == Identity(old.producer_id, old.epoch)
    if given is None or is_present:
        new_last_epoch = old.epoch if is_present else NO_EPOCH
        if not old.is_exhausted:
            return replace(idle, epoch=old.epoch + 1), new_last_epoch
        if fresh_id is None:
            return NEEDS_PRODUCER_ID
        return (
            replace(idle, producer_id=fresh_id, epoch=0, previous_producer_id=old.producer_id),
            new_last_epoch,
        )
    if given.epoch == last_epoch:
        return idle, last_epoch
    raise CoordinatorError(ErrorCode.PRODUCER_FENCED)
