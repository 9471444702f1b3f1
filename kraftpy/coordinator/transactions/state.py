"""What is known of a transactional id, the states of its transaction, and its record.

The newest record of an id is all there is to know of it. Each change writes a whole new one, so
that a Transaction is replaced and never changed.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing, Empty, ...
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing, Empty, ...

Prepare is the decision: once its record is committed nothing but its own Complete may follow.
From version 2 of transactions on, a producer may also abort what has not begun, so that
PrepareAbort follows Empty and Complete as well. Kafka's PrepareEpochFence, in which an old producer
is shut out before its transaction is aborted, is no state here: shutting out and aborting are one
record. An id that is forgotten is Dead, and has no record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from kraftpy.coordinator.outcome import CoordinatorRecord
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.protocol.schema.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from kraftpy.protocol.tables import RecordValue
from kraftpy.world import assert_always

__all__ = [
    "EPOCH_MAX",
    "FIRST_VERSION_WITH_EPOCH_BUMP",
    "NO_EPOCH",
    "NO_PARTITIONS",
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "Partitions",
    "Transaction",
    "TransactionState",
    "check_transition",
    "grouped",
    "merged",
    "record_of",
    "tombstone_of",
    "transaction_of",
]

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
EPOCH_MAX: Final = 2**15 - 1
# Of transaction.version, and of clients: the epoch grows with each transaction.
FIRST_VERSION_WITH_EPOCH_BUMP: Final = 2
_FIRST_LEVEL_WITH_FLEXIBLE_VALUES: Final = 1

# The partitions of a transaction by topic, each list sorted.
Partitions = Mapping[str, tuple[int, ...]]
NO_PARTITIONS: Final[Partitions] = MappingProxyType({})


class TransactionState(IntEnum):
    """The numbers are those in records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def title(self) -> str:
        """As Kafka's tools write it."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_decided(self) -> bool:
        """Its markers are on their way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Nothing has begun, or all is done."""
        return self in _IDLE


_IDLE: Final = (
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
_SOURCES: Final[Mapping[TransactionState, tuple[TransactionState, ...]]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: (*_IDLE, TransactionState.ONGOING),
    TransactionState.PREPARE_COMMIT: (TransactionState.ONGOING,),
    TransactionState.PREPARE_ABORT: (TransactionState.ONGOING,),
    TransactionState.COMPLETE_COMMIT: (TransactionState.PREPARE_COMMIT,),
    TransactionState.COMPLETE_ABORT: (TransactionState.PREPARE_ABORT,),
    TransactionState.DEAD: _IDLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transactional id with its producer and its transaction.

    `epoch` is that of the producer, and from Prepare to Complete that of the markers. A producer
    whose epochs are used up goes on under `next_producer_id` when its transaction is complete.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    start_ms: int = NO_TIMESTAMP
    """Of the wall clock, as the other one; NO_TIMESTAMP before the first partition."""
    update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    """The version of transactions that its client, or the coordinator itself, acts by."""

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= FIRST_VERSION_WITH_EPOCH_BUMP

    @property
    def is_exhausted(self) -> bool:
        """No epoch is left for this producer id: the last one is for markers only."""
        return self.epoch >= EPOCH_MAX - 1

    @property
    def is_beyond_producers(self) -> bool:
        """Its epoch is the last one, left by an abort of ours: nobody may begin or end with it."""
        return self.epoch == EPOCH_MAX

    def contains(self, partitions: Partitions) -> bool:
        own = self.partitions
        return all(
            frozenset(own.get(topic, ())).issuperset(indexes)
            for topic, indexes in partitions.items()
        )

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        done = replace(
            self,
            state=TransactionState.COMPLETE_COMMIT
            if is_commit
            else TransactionState.COMPLETE_ABORT,
            partitions=NO_PARTITIONS,
            update_ms=now_ms,
        )
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return replace(
            done,
            producer_id=self.next_producer_id,
            epoch=0,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )


def grouped(partitions: Iterable[TopicPartition]) -> Partitions:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return {topic: tuple(sorted(dict.fromkeys(indexes))) for topic, indexes in topics.items()}


def merged(one: Partitions, other: Partitions) -> Partitions:
    topics = dict(one)
    for topic, indexes in other.items():
        topics[topic] = tuple(sorted(dict.fromkeys((*topics.get(topic, ()), *indexes))))
    return topics


def check_transition(old: Transaction, new: Transaction) -> None:
    """Raise for a change that no request may ever lead to; it would be our own mistake."""
    sources = _SOURCES[new.state]
    if new.state is TransactionState.PREPARE_ABORT and new.bumps_epoch:
        sources = (*sources, *_IDLE)
    assert_always(old.state in sources, "transaction-illegal-transition", old=old, new=new)
    if new.state is TransactionState.ONGOING:
        has_right_partitions = new.contains(old.partitions)
    elif new.state.is_decided:
        has_right_partitions = new.partitions == old.partitions
    else:
        has_right_partitions = not new.partitions
    assert_always(has_right_partitions, "transaction-wrong-partitions", old=old, new=new)
    assert_always(
        old.producer_id != new.producer_id or new.epoch >= old.epoch,
        "transaction-epoch-backwards",
        old=old,
        new=new,
    )


def record_of(transaction: Transaction, *, level: int) -> CoordinatorRecord:
    """In the version that a level of transaction.version asks for.

    Only the newer one can tell of a rotation of producer ids, so it is written for clients of
    version 2 whatever the level: they come only to a cluster that has promised it to them.
    """
    is_flexible = level >= _FIRST_LEVEL_WITH_FLEXIBLE_VALUES or transaction.bumps_epoch
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None
        if transaction.state is TransactionState.EMPTY
        else [
            PartitionsSchema(topic=topic, partition_ids=list(indexes))
            for topic, indexes in transaction.partitions.items()
        ],
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if is_flexible:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    key = TransactionLogKey(transactional_id=transaction.transactional_id)
    return CoordinatorRecord(key, value, int(is_flexible))


def tombstone_of(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id))


def transaction_of(transactional_id: str, value: RecordValue) -> Transaction:
    """Raises ValueError for a state that there is not."""
    if not isinstance(value, TransactionLogValue):
        raise ValueError(f"{type(value).__name__} is no value of a transactional id")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions={
            each.topic: tuple(sorted(each.partition_ids))
            for each in value.transaction_partitions or ()
        },
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
