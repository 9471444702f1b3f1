"""The transaction coordinator as others see it: handlers of requests, and leaders of partitions.

Finds the shard of a transactional id, checks what needs no state, and fetches a producer id where
an operation turns out to need one. Everything is answered through a reply, perhaps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from kraftpy.coordinator.outcome import CoordinatorError, Outcome, Reply
from kraftpy.coordinator.runtime import CoordinatorRuntime
from kraftpy.coordinator.shard import ShardState
from kraftpy.coordinator.transactions.endings import Ending
from kraftpy.coordinator.transactions.identities import (
    Claim,
    Identity,
    IdentityAnswer,
    NeedsProducerId,
)
from kraftpy.coordinator.transactions.listing import (
    ListFilter,
    describe_transaction,
    list_transactions,
)
from kraftpy.coordinator.transactions.machine import TransactionMachine
from kraftpy.coordinator.transactions.ports import ProvideProducerId
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.coordinator.transactions.state import Transaction, grouped
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import Clock

__all__ = ["PartitionErrors", "TransactionService"]

_Answer = TypeVar("_Answer")

PartitionErrors: TypeAlias = Mapping[TopicPartition, ErrorCode]
_Operation: TypeAlias = Callable[[TransactionMachine, int | None], Outcome[IdentityAnswer]]


class TransactionService:
    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionMachine],
        settings: TransactionSettings,
        *,
        shard_of: Callable[[str], int],
        provide_producer_id: ProvideProducerId,
        clock: Clock,
    ) -> None:
        """`shard_of` a transactional id; raises CoordinatorError while there is no such topic."""
        self._runtime = runtime
        self._settings = settings
        self._shard_of = shard_of
        self._provide_producer_id = provide_producer_id
        self._clock = clock

    # Producers.

    def init_producer_id(self, claim: Claim, reply: Reply[Identity]) -> None:
        if claim.transactional_id == "":
            reply(CoordinatorError(ErrorCode.INVALID_REQUEST))
        elif not 0 < claim.timeout_ms <= self._settings.max_timeout_ms:
            reply(CoordinatorError(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        else:
            self._write_with_id(
                claim.transactional_id,
                lambda machine, fresh_id: machine.init_producer_id(claim, fresh_id),
                reply,
            )

    def end(self, ending: Ending, reply: Reply[Identity]) -> None:
        if ending.transactional_id == "":
            reply(CoordinatorError(ErrorCode.INVALID_REQUEST))
        else:
            self._write_with_id(
                ending.transactional_id,
                lambda machine, fresh_id: machine.end(ending, fresh_id),
                reply,
            )

    def add_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: Sequence[TopicPartition],
        reply: Reply[ErrorCode],
        *,
        client_version: int,
    ) -> None:
        if transactional_id == "":
            reply(CoordinatorError(ErrorCode.INVALID_REQUEST))
            return
        by_topic = grouped(partitions)

        def attempt(again: Callable[[], None] | None) -> None:
            self._write(
                transactional_id,
                lambda machine: machine.add_partitions(
                    transactional_id,
                    identity,
                    by_topic,
                    client_version=client_version,
                    again=again,
                ),
                reply,
            )

        attempt(lambda: attempt(None))

    def verify_partitions(
        self, transactional_id: str, identity: Identity, partitions: Sequence[TopicPartition]
    ) -> PartitionErrors:
        """Raises CoordinatorError if none of them can be a part of an open transaction."""
        if transactional_id == "":
            raise CoordinatorError(ErrorCode.INVALID_REQUEST)
        by_topic = grouped(partitions)
        return self._runtime.read(
            self._shard_of(transactional_id),
            lambda machine: machine.verify_partitions(transactional_id, identity, by_topic),
        )

    # Operators.

    def describe(self, transactional_id: str) -> Transaction:
        """Raises CoordinatorError."""
        return self._runtime.read(
            self._shard_of(transactional_id),
            lambda machine: describe_transaction(machine, transactional_id),
        )

    def list_all(self, wanted: ListFilter) -> list[Transaction]:
        """Those of all shards here. Raises CoordinatorError while one of them is loading."""
        wall_ms = self._clock.wall_ms()
        found: list[Transaction] = []
        for shard in self._runtime.shards():
            if shard.state is ShardState.LOADING:
                raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if shard.state is ShardState.ACTIVE:
                found += shard.read(partial(list_transactions, wanted=wanted, wall_ms=wall_ms))
        return found

    # Writing.

    def _write_with_id(
        self, transactional_id: str, operation: _Operation, reply: Reply[Identity]
    ) -> None:
        """Carry the operation out, a second time with a new producer id if it needs one."""

        def answered(answer: IdentityAnswer) -> None:
            if isinstance(answer, NeedsProducerId):
                self._provide_producer_id(provided)
            else:
                reply(answer)

        def provided(fresh_id: int | ErrorCode) -> None:
            if isinstance(fresh_id, ErrorCode):
                reply(CoordinatorError(fresh_id))
            else:
                attempt(fresh_id)

        def attempt(fresh_id: int | None) -> None:
            self._write(transactional_id, lambda machine: operation(machine, fresh_id), answered)

        attempt(None)

    def _write(
        self,
        transactional_id: str,
        operation: Callable[[TransactionMachine], Outcome[_Answer]],
        reply: Reply[_Answer],
    ) -> None:
        try:
            shard = self._shard_of(transactional_id)
        except CoordinatorError as error:
            reply(error)
        else:
            self._runtime.write(shard, operation, reply)
