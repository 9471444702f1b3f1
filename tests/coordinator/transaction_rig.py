"""A transaction coordinator on a real shard; markers are written when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator.shard_kit import ShardRig, Waiting

from kraftpy.coordinator.outcome import Outcome
from kraftpy.coordinator.transactions.endings import Ending
from kraftpy.coordinator.transactions.identities import Claim, Identity, NeedsProducerId
from kraftpy.coordinator.transactions.machine import TransactionMachine
from kraftpy.coordinator.transactions.ports import MarkerJob
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.coordinator.transactions.state import (
    Transaction,
    TransactionState,
    grouped,
    record_of,
    tombstone_of,
)
from kraftpy.metadata.features import TRANSACTION_VERSION
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.protocol.coordinator_records import TRANSACTION_RECORDS
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.transaction_records import TransactionLogKey, TransactionLogValue
from kraftpy.records.reader import read_records
from kraftpy.records.walker import walk_batches

ID = "order-service"
A0 = ("a", 0)
A1 = ("a", 1)
B0 = ("b", 0)
TIMEOUT_MS = 60_000


@dataclass
class HandMarkers:
    """A MarkerSender: jobs wait until they are written by hand."""

    writes_at_once: bool = False
    jobs: list[tuple[MarkerJob, Callable[[], None]]] = field(default_factory=list)
    sent: list[MarkerJob] = field(default_factory=list)

    def send(self, job: MarkerJob, done: Callable[[], None]) -> None:
        self.sent.append(job)
        if self.writes_at_once:
            done()
        else:
            self.jobs.append((job, done))

    def cancel(self, shard: int) -> None:
        self.jobs = [each for each in self.jobs if each[0].shard != shard]

    def write_all(self) -> None:
        jobs, self.jobs = self.jobs, []
        for _, done in jobs:
            done()


class TransactionRig(ShardRig[TransactionMachine]):
    def __init__(
        self,
        *,
        level: int = 2,
        settings: TransactionSettings | None = None,
        commits_at_once: bool = True,
        writes_markers_at_once: bool = True,
    ) -> None:
        self.markers = HandMarkers(writes_markers_at_once)
        self.transaction_settings = settings or TransactionSettings()
        self.next_producer_id = 1500
        self.has_producer_ids = True
        super().__init__(
            self._make_transactions,
            TRANSACTION_RECORDS,
            image=replace(
                EMPTY_IMAGE, features=EMPTY_IMAGE.features.updated({TRANSACTION_VERSION: level})
            ),
            commits_at_once=commits_at_once,
        )

    def _make_transactions(self, context: Any) -> TransactionMachine:
        return TransactionMachine(
            context, self.transaction_settings, self.markers, self.provide_producer_id
        )

    def provide_producer_id(self, provided: Callable[[int | ErrorCode], None]) -> None:
        if self.has_producer_ids:
            self.next_producer_id += 1
            provided(self.next_producer_id - 1)
        else:
            provided(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    # Requests.

    def begin_init(self, given: Identity | None = None, name: str = ID) -> Waiting:
        """As the service does it: a second time if a producer id is needed."""
        claim = Claim(name, TIMEOUT_MS, given)
        return self._with_id(lambda machine, fresh: machine.init_producer_id(claim, fresh))

    def init(self, given: Identity | None = None, name: str = ID) -> Identity:
        return self.answered(self.begin_init(given, name))

    def begin_end(
        self, identity: Identity, *, is_commit: bool = True, version: int = 2, name: str = ID
    ) -> Waiting:
        ending = Ending(name, identity.producer_id, identity.epoch, is_commit, version)
        return self._with_id(lambda machine, fresh: machine.end(ending, fresh))

    def end(
        self, identity: Identity, *, is_commit: bool = True, version: int = 2, name: str = ID
    ) -> Identity:
        return self.answered(
            self.begin_end(identity, is_commit=is_commit, version=version, name=name)
        )

    def begin_add(
        self,
        identity: Identity,
        *partitions: tuple[str, int],
        version: int = 2,
        name: str = ID,
    ) -> Waiting:
        return self.write(
            lambda machine: machine.add_partitions(
                name, identity, grouped(partitions), client_version=version
            )
        )

    def add(
        self,
        identity: Identity,
        *partitions: tuple[str, int],
        version: int = 2,
        name: str = ID,
    ) -> None:
        waiting = self.begin_add(identity, *partitions, version=version, name=name)
        assert self.answered(waiting) == ErrorCode.NONE

    def answered(self, waiting: Waiting) -> Any:
        self.commit()
        assert waiting.answer is not None, "not answered"
        self.flush_all()
        return waiting.answer

    def refused(self, waiting: Waiting) -> ErrorCode:
        self.commit()
        assert waiting.error is not None, "not answered"
        self.flush_all()
        return waiting.error

    def advance(self, milliseconds: int) -> None:
        super().advance(milliseconds)
        self.flush_all()

    def flush_all(self) -> None:
        """What operations of the coordinator's own have written is committed, too."""
        if self.commits_at_once:
            end = -1
            while self.log.log_end_offset != end:
                end = self.log.log_end_offset
                self.commit()

    def _with_id(
        self, operation: Callable[[TransactionMachine, int | None], Outcome[Any]]
    ) -> Waiting:
        waiting = self.write(lambda machine: operation(machine, None))
        if waiting.replies and isinstance(waiting.replies[0], NeedsProducerId):
            fresh = self.next_producer_id
            self.next_producer_id += 1
            waiting = self.write(lambda machine: operation(machine, fresh))
        return waiting

    # State.

    @property
    def transaction(self) -> Transaction:
        return self.machine.transactions[ID]

    @property
    def state(self) -> TransactionState:
        return self.transaction.state

    def put(self, transaction: Transaction | None) -> None:
        """Have the log say so, as if earlier requests had led there."""
        record = tombstone_of(ID) if transaction is None else record_of(transaction, level=2)
        self.call(lambda machine: Outcome((record,), "done"))

    def records(self) -> list[tuple[str, TransactionLogValue | None]]:
        """Everything in the log."""
        found = []
        for batch in walk_batches(self.log.read_now(0)):
            for record in read_records(batch, max_bytes=1 << 20):  # type: ignore[arg-type]
                assert record.key is not None
                key = TRANSACTION_RECORDS.decode_key(record.key)
                assert isinstance(key, TransactionLogKey)
                value = None
                if record.value is not None:
                    value, _ = TRANSACTION_RECORDS.decode_value(key, record.value)
                    assert isinstance(value, TransactionLogValue)
                found.append((key.transactional_id, value))
        return found

    def states(self) -> list[TransactionState]:
        """Of the records of ID, in order."""
        return [
            TransactionState(value.transaction_status)
            for name, value in self.records()
            if name == ID and value is not None
        ]


def transaction_in(
    state: TransactionState, *, producer_id: int = 1000, epoch: int = 5, **changes: Any
) -> Transaction:
    """One that has come to a state; with partitions where it must have some."""
    has_partitions = state is TransactionState.ONGOING or state.is_decided
    fields = {
        "transactional_id": ID,
        "producer_id": producer_id,
        "epoch": epoch,
        "timeout_ms": TIMEOUT_MS,
        "state": state,
        "partitions": {"a": (0,)} if has_partitions else {},
        "start_ms": 1 if has_partitions else -1,
        "update_ms": 1,
        "client_version": 2,
        **changes,
    }
    return Transaction(**fields)
