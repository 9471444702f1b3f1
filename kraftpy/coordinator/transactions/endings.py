"""EndTxn: whether a transaction may be committed or aborted now, and what is written then.

Two generations of clients end transactions differently (KIP-890):

- Version 1 keeps its epoch over many transactions. An end that is repeated can't be told from the
  end of the next transaction, so a late one may hit the wrong transaction.
- From version 2 on, each end raises the epoch and tells the producer the new one. A request with
  the epoch before the present one is a repetition, with the present one it is about the next
  transaction. When the epochs of a producer id are used up, the producer goes on under a new one:
  then a repetition names the previous id with its last epoch.

Between Prepare and Complete nobody is judged: everybody is asked to come again. Kafka has rules for
that time as well, but never gets to them: a transaction counts as pending there from the moment its
end is decided. Were they followed, a producer that has its answer and goes on would be shut out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, TypeAlias

from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.identities import Identity
from kraftpy.coordinator.transactions.state import (
    EPOCH_MAX,
    FIRST_VERSION_WITH_EPOCH_BUMP,
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
)
from kraftpy.protocol.errors import ErrorCode

__all__ = ["Ending", "Verdict", "fenced", "identity_after", "judge", "prepared"]


@dataclass(frozen=True, slots=True)
class Ending:
    """A producer's wish."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    client_version: int

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= FIRST_VERSION_WITH_EPOCH_BUMP


class Verdict(Enum):
    PREPARE = auto()
    """It may be decided now."""
    DONE = auto()
    """It has been done before."""


_INVALID: Final = ErrorCode.INVALID_TXN_STATE
_FENCED: Final = ErrorCode.PRODUCER_FENCED
_PREPARE: Final = Verdict.PREPARE
_DONE: Final = Verdict.DONE

_Table: TypeAlias = Mapping[TransactionState, tuple[Verdict | ErrorCode, ...]]
# By state: abort, commit.
_VERSION_1: Final[_Table] = {
    TransactionState.ONGOING: (_PREPARE, _PREPARE),
    TransactionState.EMPTY: (_INVALID, _INVALID),
    TransactionState.COMPLETE_ABORT: (_DONE, _INVALID),
    TransactionState.COMPLETE_COMMIT: (_INVALID, _DONE),
}
# By state: abort repeated, abort, commit repeated, commit.
_VERSION_2: Final[_Table] = {
    TransactionState.ONGOING: (_FENCED, _PREPARE, _FENCED, _PREPARE),
    TransactionState.EMPTY: (_FENCED, _PREPARE, _FENCED, _INVALID),
    TransactionState.COMPLETE_ABORT: (_DONE, _PREPARE, _INVALID, _INVALID),
    TransactionState.COMPLETE_COMMIT: (_INVALID, _PREPARE, _DONE, _INVALID),
}


def judge(transaction: Transaction, ending: Ending, *, is_pending: bool) -> Verdict:
    """Raises CoordinatorError with the producer's error.

    `is_pending`: the newest record of the transactional id is not committed.
    """
    must_wait = is_pending or transaction.state.is_decided
    if ending.bumps_epoch:
        verdict = _judge_version_2(transaction, ending, must_wait=must_wait)
    else:
        verdict = _judge_version_1(transaction, ending, must_wait=must_wait)
    if isinstance(verdict, ErrorCode):
        raise CoordinatorError(verdict)
    return verdict


def _judge_version_1(
    transaction: Transaction, ending: Ending, *, must_wait: bool
) -> Verdict | ErrorCode:
    if ending.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if ending.epoch != transaction.epoch:
        return ErrorCode.PRODUCER_FENCED
    if must_wait:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.is_beyond_producers:
        return ErrorCode.PRODUCER_FENCED
    return _VERSION_1[transaction.state][ending.is_commit]


def _judge_version_2(
    transaction: Transaction, ending: Ending, *, must_wait: bool
) -> Verdict | ErrorCode:
    if must_wait:
        # Before anything else: the producer may have a new id already, which counts from Complete.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_rotation_repeated = (
        ending.producer_id == transaction.previous_producer_id
        and ending.epoch == EPOCH_MAX - 1
        and transaction.epoch == 0
    )
    if ending.producer_id != transaction.producer_id and not is_rotation_repeated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_repeated = is_rotation_repeated or transaction.epoch == ending.epoch + 1
    is_older = not is_repeated and ending.epoch != transaction.epoch
    if is_older or transaction.is_beyond_producers:
        return ErrorCode.PRODUCER_FENCED
    return _VERSION_2[transaction.state][2 * ending.is_commit + (not is_repeated)]


def prepared(
    transaction: Transaction,
    *,
    is_commit: bool,
    client_version: int,
    now_ms: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> Transaction:
    """The decision."""
    bumps_epoch = client_version >= FIRST_VERSION_WITH_EPOCH_BUMP
    return replace(
        transaction,
        state=TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
        epoch=transaction.epoch + bumps_epoch,
        client_version=client_version,
        next_producer_id=next_producer_id,
        # What has no partition has not begun.
        start_ms=transaction.start_ms if transaction.partitions else now_ms,
        update_ms=now_ms,
    )


def fenced(
    transaction: Transaction,
    *,
    cluster_version: int,
    now_ms: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> Transaction:
    """Aborted under an epoch that its producer does not have.

    There is always one more: the last epoch of a producer id is given to no producer.
    """
    if cluster_version >= FIRST_VERSION_WITH_EPOCH_BUMP:
        return prepared(
            transaction,
            is_commit=False,
            client_version=cluster_version,
            now_ms=now_ms,
            next_producer_id=next_producer_id,
        )
    aborted = prepared(transaction, is_commit=False, client_version=0, now_ms=now_ms)
    return replace(aborted, epoch=transaction.epoch + 1)


def identity_after(transaction: Transaction) -> Identity:
    """What the producer writes with when its decided transaction is complete."""
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return Identity(transaction.next_producer_id, 0)
    return Identity(transaction.producer_id, transaction.epoch)
