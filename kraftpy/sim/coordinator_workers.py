"""Workers: members of a group that consume, transform and produce, each step in a transaction.

A worker reads its group's offset, writes what it makes of the next inputs to one or two partitions,
commits the offset behind them, and ends the transaction. Whatever goes wrong, it aborts, or begins
anew as another process would.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

from kraftpy.coordinator.transactions.endings import Ending
from kraftpy.coordinator.transactions.identities import Claim, Identity
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kraftpy.sim.coordinator_broker import TRANSACTION_TOPIC, CoordinatorBroker
from kraftpy.sim.coordinator_clients import TOPIC, Ask, Pause, Reply, Script, code_of
from kraftpy.sim.coordinator_leader import TransactionalWrite, commit_offsets, produce
from kraftpy.sim.coordinator_members import ModernConsumer
from kraftpy.sim.coordinator_partition import SimulatedPartition
from kraftpy.sim.coordinator_transactions import OUTPUTS, TransactionRules

__all__ = ["Worker"]

_AGAIN: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
)
_VERSION_2: Final = 2
_ATTEMPTS: Final = 6


class Worker(ModernConsumer):
    transactions: TransactionRules
    diligence = 0.8
    is_loyal = True
    identity: Identity | None = None

    @property
    def _adds(self) -> bool:
        return self.swarm.worker_version == _VERSION_2

    def work(self) -> Script:
        if self.is_calm:
            yield from self._heartbeat()
            yield Pause(self.random.randint(1, self.swarm.heartbeat_ms))
            return
        if self.identity is None:
            yield from self._begin()
            return
        index = self.random.choice(self.owned)
        found = yield from self.fetch(index, is_stable=True)
        if found is None:
            return
        first = max(0, found[0])
        values = [f"{index}:{first + n}" for n in range(self.random.randint(1, 3))]
        is_whole = yield from self._write(self.identity, index, first, values)
        if self.is_wild():
            # The process dies here, or forgets that there was a transaction.
            self.identity = None
            return
        yield from self._end(self.identity, is_commit=is_whole and self.random.random() < 0.9)

    def _restart(self) -> None:
        super()._restart()
        self.identity = None

    # Requests.

    def _until_answered(
        self,
        partition: SimulatedPartition,
        kind: str,
        call: Callable[[CoordinatorBroker, Reply], None],
        told: Callable[[CoordinatorBroker, Any], None] = lambda broker, found: None,
        attempts: int = _ATTEMPTS,
    ) -> Generator[Ask | Pause, Any, Any]:
        """An answer that says something; None if there was none."""
        for _ in range(attempts):
            # A late request of version 1 may end another transaction than its own (KAFKA-17754).
            answer = yield Ask(partition, kind, call, told, repeats=self._adds)
            if answer is not None and code_of(answer) not in _AGAIN:
                return answer
            yield Pause(self.random.randint(1, 40))
        return None

    @property
    def _coordinator(self) -> SimulatedPartition:
        return self._world.network.partitions[TRANSACTION_TOPIC, 0]

    def _begin(self) -> Script:
        wanted = Claim(self.name, self.swarm.transaction_timeout_ms)
        partitions = self._world.network.partitions

        def told(broker: CoordinatorBroker, found: Identity) -> None:
            ends = {name: partitions[name].reign.log_end_offset for name in OUTPUTS}
            self.transactions.begun(found, ends)

        answer = yield from self._until_answered(
            self._coordinator,
            "init",
            lambda broker, reply: broker.transaction_service.init_producer_id(wanted, reply),
            told,
        )
        if isinstance(answer, Identity):
            self.identity = answer
            self._sequences: dict[TopicPartition, int] = {}

    def _write(
        self, identity: Identity, index: int, first: int, values: list[str]
    ) -> Generator[Ask | Pause, Any, bool]:
        """Whether all of it was written."""
        group = self.where.name
        outputs = OUTPUTS[: 1 + (len(values) > 1 and self.random.random() < 0.5)]
        if not self._adds:
            answer = yield from self._until_answered(
                self._coordinator,
                "add partitions",
                lambda broker, reply: broker.transaction_service.add_partitions(
                    self.name, identity, [*outputs, group], reply, client_version=1
                ),
            )
            if answer is None or code_of(answer) is not ErrorCode.NONE:
                return False
        for number, name in enumerate(outputs):
            part = [value.encode() for value in values[number :: len(outputs)]]
            sequence = self._sequences.get(name, 0)
            write = TransactionalWrite(self.name, identity, name, self._adds)
            answer = yield from self._until_answered(
                self._world.network.partitions[name],
                "produce",
                partial(produce, write, part, sequence),
            )
            if answer is None or code_of(answer) is not ErrorCode.NONE:
                return False
            self._sequences[name] = sequence + len(part)
        return (yield from self._commit_offset(identity, index, first + len(values)))

    def _commit_offset(
        self, identity: Identity, index: int, offset: int
    ) -> Generator[Ask | Pause, Any, bool]:
        commit_id = f"{self.name}/{self.next_number()}"
        given = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=commit_id
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[given])],
        )
        write = TransactionalWrite(self.name, identity, self.where.name, self._adds)
        answer = yield from self._until_answered(
            self.where,
            "offsets",
            lambda broker, reply: commit_offsets(broker, write, request, reply),
        )
        return answer is not None and code_of(answer) is ErrorCode.NONE

    def _end(self, identity: Identity, *, is_commit: bool) -> Script:
        version = _VERSION_2 if self._adds else 1
        ending = Ending(self.name, identity.producer_id, identity.epoch, is_commit, version)
        answer = yield from self._until_answered(
            self._coordinator,
            "end",
            lambda broker, reply: broker.transaction_service.end(ending, reply),
            lambda broker, found: self.transactions.ended(self.name, identity, is_commit=is_commit),
        )
        self.identity = answer if isinstance(answer, Identity) else None
        if self._adds:
            self._sequences = {}
        elif not is_commit:
            # What was written, and with which sequence, is not known for sure.
            self.identity = None
