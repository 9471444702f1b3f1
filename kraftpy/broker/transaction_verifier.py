"""Asks transaction coordinators for leaders of partitions: is this write a part of a transaction?

A leader that gets the first transactional batch of a producer asks the coordinator of its
transactional id (KIP-890). Clients of version 1 have told the coordinator about the partition
themselves, and it only has to confirm that (verify). For clients of version 2 this is how the
coordinator hears of the partition (add).

Questions to one coordinator share a request, in which a transactional id may occur once. Two that
wait for the same id are two attempts of its producers: the one with the older epoch is over, and of
two with the same epoch the earlier has been given up by its client. Several requests may be under
way to a broker, since one whose transaction has to wait must not hold up the others.

While the transaction before is still being completed, the coordinator answers that the two are
concurrent. For clients of version 2, who have good reason to come that early, the question is asked
again for a little while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import trio

from kraftpy.broker.broker_peers import BrokerPeers
from kraftpy.broker.hosted_replicas import log_of
from kraftpy.broker.partition import Partition
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.identities import Identity
from kraftpy.coordinator.transactions.service import TransactionService
from kraftpy.coordinator.transactions.state import FIRST_VERSION_WITH_EPOCH_BUMP
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kraftpy.world import Clock

__all__ = ["Question", "TransactionVerifier", "VerifierSettings"]

log = logging.getLogger(__name__)

_FAILURES: Final = MetricName(
    "kafka.server", "AddPartitionsToTxnManager", "VerificationFailureRate"
)
_TIMES: Final = MetricName("kafka.server", "AddPartitionsToTxnManager", "VerificationTimeMs")

_MAX_UNDER_WAY: Final = 8

_Verdicts: TypeAlias = Mapping[TopicPartition, ErrorCode]
_Reply: TypeAlias = Callable[[_Verdicts], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierSettings:
    retry_backoff_ms: int = 20
    """add.partitions.to.txn.retry.backoff.ms"""
    retry_backoff_max_ms: int = 100
    """add.partitions.to.txn.retry.backoff.max.ms: as long as that is tried again"""


@dataclass(frozen=True, slots=True)
class Question:
    """Whether partitions are in the transaction of a producer; `adds` puts them in."""

    transactional_id: str
    identity: Identity
    partitions: Sequence[TopicPartition]
    adds: bool

    def same(self, code: ErrorCode) -> _Verdicts:
        return dict.fromkeys(self.partitions, code)


_Waiting: TypeAlias = tuple[Question, _Reply]


class TransactionVerifier:
    """Its tasks live in `nursery`."""

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        nursery: trio.Nursery,
        *,
        settings: VerifierSettings,
        peers: BrokerPeers,
        service: TransactionService,
        coordinator_of: Callable[[str], int | None],
        is_enabled: Callable[[], bool],
        registry: MetricRegistry,
    ) -> None:
        """`coordinator_of` a transactional id is the broker to ask, None while there is none.

        `service` is this broker's own coordinator, which is asked directly. `is_enabled` is
        `transaction.partition.verification.enable`.
        """
        self._broker_id = broker_id
        self._clock = clock
        self._nursery = nursery
        self._settings = settings
        self._peers = peers
        self._service = service
        self._coordinator_of = coordinator_of
        self._is_enabled = is_enabled
        self._failures = registry.meter(_FAILURES, clock.monotonic())
        self._times = registry.histogram(_TIMES)
        # By broker and transactional id.
        self._queued: dict[int, dict[str, _Waiting]] = {}
        # Requests that are under way, by broker.
        self._under_way: dict[int, int] = {}

    def begin(
        self, partition: Partition, identity: Identity, sequence: int, *, adds: bool
    ) -> VerificationGuard:
        """What a transactional batch has to be appended with; NO_GUARD if nobody must be asked.

        Raises ReplicaError or LogError.
        """
        partition.check_leader()
        if not self._is_enabled():
            return NO_GUARD
        return log_of(partition).producers.start_verification(
            identity.producer_id,
            epoch=identity.epoch,
            sequence=sequence,
            now_ms=self._clock.wall_ms(),
            supports_epoch_bump=adds,
        )

    def ask(self, question: Question, timeout_ms: int, reply: _Reply) -> None:
        """Have `reply` called once with a verdict on each partition, perhaps at once."""
        started_ms = self._clock.monotonic_ms()
        retry_until_ms = started_ms + min(self._settings.retry_backoff_max_ms, timeout_ms)

        def answered(verdicts: _Verdicts) -> None:
            now_ms = self._clock.monotonic_ms()
            next_ms = now_ms + self._settings.retry_backoff_ms
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values()
            if is_busy and question.adds and next_ms <= retry_until_ms:
                self._nursery.start_soon(self._ask_again, question, answered, name="verify-again")
                return
            self._times.update(now_ms - started_ms)
            if any(code is not ErrorCode.NONE for code in verdicts.values()):
                self._failures.mark(self._clock.monotonic())
            reply(verdicts)

        self._attempt(question, answered)

    async def _ask_again(self, question: Question, reply: _Reply) -> None:
        await self._clock.sleep(self._settings.retry_backoff_ms / 1000)
        self._attempt(question, reply)

    def _attempt(self, question: Question, reply: _Reply) -> None:
        coordinator = self._coordinator_of(question.transactional_id)
        if coordinator is None:
            reply(question.same(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif coordinator == self._broker_id:
            self._ask_here(question, reply)
        else:
            self._queue(coordinator, question, reply)

    # The coordinator here.

    def _ask_here(self, question: Question, reply: _Reply) -> None:
        def added(answer: ErrorCode | CoordinatorError) -> None:
            code = answer.code if isinstance(answer, CoordinatorError) else answer
            reply(question.same(_for_leaders(code)))

        if question.adds:
            self._service.add_partitions(
                question.transactional_id,
                question.identity,
                question.partitions,
                added,
                client_version=FIRST_VERSION_WITH_EPOCH_BUMP,
            )
            return
        try:
            verdicts = self._service.verify_partitions(
                question.transactional_id, question.identity, question.partitions
            )
        except CoordinatorError as error:
            reply(question.same(_for_leaders(error.code)))
        else:
            reply(verdicts)

    # Coordinators elsewhere.

    def _queue(self, broker_id: int, question: Question, reply: _Reply) -> None:
        queued = self._queued.setdefault(broker_id, {})
        earlier = queued.get(question.transactional_id)
        if earlier is not None:
            earlier_epoch = earlier[0].identity.epoch
            if earlier_epoch > question.identity.epoch:
                reply(question.same(ErrorCode.INVALID_PRODUCER_EPOCH))
                return
            is_same_epoch = earlier_epoch == question.identity.epoch
            del queued[question.transactional_id]
            code = (
                ErrorCode.NETWORK_EXCEPTION if is_same_epoch else ErrorCode.INVALID_PRODUCER_EPOCH
            )
            earlier[1](earlier[0].same(code))
        queued[question.transactional_id] = (question, reply)
        under_way = self._under_way.get(broker_id, 0)
        if under_way < _MAX_UNDER_WAY:
            self._under_way[broker_id] = under_way + 1
            self._nursery.start_soon(self._send_all, broker_id, name="verify-transactions")

    async def _send_all(self, broker_id: int) -> None:
        """One request after the other, as long as there is something left to ask."""
        try:
            while queued := self._queued.pop(broker_id, None):
                await self._send(broker_id, list(queued.values()))
        finally:
            self._under_way[broker_id] -= 1

    async def _send(self, broker_id: int, asked: Sequence[_Waiting]) -> None:
        request = AddPartitionsToTxnRequest(
            transactions=[_transaction(question) for question, _ in asked]
        )
        code = ErrorCode.NETWORK_EXCEPTION
        answer: AddPartitionsToTxnResponse | None = None
        try:
            answer = await self._peers.request(broker_id, request)
        except ConnectionError as error:
            log.info("transactions not verified broker=%d: %s", broker_id, error)
        except UnsupportedVersion as error:
            log.error("transactions can't be verified broker=%d: %s", broker_id, error)
            code = ErrorCode.INVALID_TXN_STATE
        if answer is not None and answer.error_code != ErrorCode.NONE:
            code = _for_leaders(_known(answer.error_code))
            answer = None
        verdicts = {} if answer is None else _verdicts_in(answer)
        for question, reply in asked:
            own = verdicts.get(question.transactional_id, {})
            reply({name: own.get(name, code) for name in question.partitions})


def _transaction(question: Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in question.partitions:
        topic = topics.setdefault(name, AddPartitionsToTxnTopic(name=name, partitions=[]))
        topic.partitions.append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.identity.producer_id,
        producer_epoch=question.identity.epoch,
        verify_only=not question.adds,
        topics=list(topics.values()),
    )


def _verdicts_in(answer: AddPartitionsToTxnResponse) -> dict[str, _Verdicts]:
    return {
        result.transactional_id: {
            (topic.name, partition.partition_index): _for_leaders(
                _known(partition.partition_error_code)
            )
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in answer.results_by_transaction
    }


def _for_leaders(code: ErrorCode) -> ErrorCode:
    """In the words of those who append, which differ from a coordinator's."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _known(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
