"""What the leader of a partition does with transactional writes: it asks before it appends.

For a batch of records and for a group's offsets alike, the first write of a transaction on a
partition waits for the coordinator's word, which may come much later (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kraftpy.coordinator.batch import Producer
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.identities import Identity
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.errors import LogError
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k28_txn_offset_commit import TxnOffsetCommitRequest
from kraftpy.records.batch import NO_SEQUENCE
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.validation import AppendOrigin
from kraftpy.sim.coordinator_broker import TRANSACTION_TOPIC, CoordinatorBroker
from kraftpy.sim.coordinator_partition import Reign

__all__ = ["TransactionalWrite", "commit_offsets", "produce"]

_OFFSET_COMMIT_ADDS: Final = 5
_OFFSET_COMMIT_VERIFIES: Final = 4

_Reply = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class TransactionalWrite:
    """Who writes where; `adds` is version 2 of transactions."""

    transactional_id: str
    identity: Identity
    name: TopicPartition
    adds: bool


def produce(
    write: TransactionalWrite,
    values: list[bytes],
    sequence: int,
    broker: CoordinatorBroker,
    reply: _Reply,
) -> None:
    """Reply with an error code when the batch is committed, or won't be."""
    reign = broker.leads(broker.network.partitions[write.name])
    if reign is None:
        reply(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return
    builder = BatchBuilder(
        producer_id=write.identity.producer_id,
        producer_epoch=write.identity.epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    for value in values:
        builder.append(None, value, timestamp_ms=broker.clock.wall_ms())
    batch = bytes(builder.build())

    def verified(guard: VerificationGuard) -> None:
        try:
            reign.append(batch, guard=guard, origin=AppendOrigin.CLIENT)
        except CoordinatorError as error:
            reply(error.code)
        else:
            broker.when_committed(reign, lambda: reply(ErrorCode.NONE))

    _verify(broker, reign, write, sequence, verified=verified, refused=reply)


def commit_offsets(
    broker: CoordinatorBroker,
    write: TransactionalWrite,
    request: TxnOffsetCommitRequest,
    reply: _Reply,
) -> None:
    """Reply with the answer, or with an error."""
    reign = broker.leads(broker.network.partitions[write.name])
    if reign is None:
        reply(ErrorCode.NOT_COORDINATOR)
        return
    version = _OFFSET_COMMIT_ADDS if write.adds else _OFFSET_COMMIT_VERIFIES
    _verify(
        broker,
        reign,
        write,
        NO_SEQUENCE,
        verified=lambda guard: broker.groups.write_transactional(
            write.name[1],
            lambda machine: machine.offsets.commit_transactional(request, version),
            reply,
            Producer(write.identity.producer_id, write.identity.epoch, guard),
        ),
        refused=reply,
    )


def _verify(
    broker: CoordinatorBroker,
    reign: Reign,
    write: TransactionalWrite,
    sequence: int,
    *,
    verified: Callable[[VerificationGuard], None],
    refused: _Reply,
) -> None:
    identity = write.identity
    try:
        guard = reign.log.producers.start_verification(
            identity.producer_id,
            epoch=identity.epoch,
            sequence=sequence,
            now_ms=broker.clock.wall_ms(),
            supports_epoch_bump=write.adds,
        )
    except LogError as error:
        refused(error.error_code)
        return
    if guard is NO_GUARD:
        verified(guard)
        return

    def answered(found: Any) -> None:
        code = found.code if isinstance(found, CoordinatorError) else found
        if code is ErrorCode.NONE:
            verified(guard)
        else:
            refused(code)

    network = broker.network
    coordinator_id = broker.leader_of(network.partitions[TRANSACTION_TOPIC, 0])
    coordinator = network.brokers.get(coordinator_id)
    if coordinator is None:
        refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    network.request(
        coordinator_id,
        "verification",
        lambda: _ask(
            coordinator,
            write,
            lambda found: network.answer_broker(broker, "verified", lambda: answered(found)),
        ),
    )


def _ask(coordinator: CoordinatorBroker, write: TransactionalWrite, reply: _Reply) -> None:
    service = coordinator.transaction_service
    if write.adds:
        service.add_partitions(
            write.transactional_id, write.identity, [write.name], reply, client_version=2
        )
        return
    try:
        found = service.verify_partitions(write.transactional_id, write.identity, [write.name])
    except CoordinatorError as error:
        reply(error)
    else:
        reply(found[write.name])
