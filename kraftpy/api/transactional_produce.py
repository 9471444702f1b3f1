"""Which batches of a Produce need a word of the transaction coordinator, and what it means.

A batch needs one if it would begin a transaction on its partition (KIP-890). From version 12 of
Produce on, the question also adds the partition to the transaction; older clients have done that
themselves before.

What a coordinator says is not what producers expect of a leader, so it is translated. All that
passes by itself becomes NOT_ENOUGH_REPLICAS, upon which every producer tries again; newer ones are
told as well that the transaction before is still being completed, or that they should abort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kraftpy.api.handler import ApiError
from kraftpy.api.produce_append import ProduceAppend, fail, fail_by
from kraftpy.broker.partition import ReplicaError
from kraftpy.broker.transaction_verifier import Question, TransactionVerifier
from kraftpy.coordinator.transactions.identities import Identity
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.errors import LogError
from kraftpy.log.verifications import NO_GUARD
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k00_produce import ProduceRequest

__all__ = ["ProduceVerification"]

_FIRST_VERSION_THAT_ADDS: Final = 12
_FIRST_VERSION_WITH_ABORTABLE: Final = 11
_PASSING: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class ProduceVerification:
    def __init__(self, verifier: TransactionVerifier) -> None:
        self._verifier = verifier

    def begin(self, appends: Sequence[ProduceAppend], api_version: int) -> list[ProduceAppend]:
        """Those that must be asked for, with the guards to append them with; some fail here."""
        transactional = [each for each in appends if each.batch.is_transactional]
        identities = {(each.batch.producer_id, each.batch.producer_epoch) for each in transactional}
        if len(identities) > 1:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "batches of several producers")
        return [each for each in transactional if self._needs_word(each, api_version)]

    def _needs_word(self, each: ProduceAppend, api_version: int) -> bool:
        batch = each.batch
        try:
            guard = self._verifier.begin(
                each.partition,
                Identity(batch.producer_id, batch.producer_epoch),
                batch.base_sequence,
                adds=api_version >= _FIRST_VERSION_THAT_ADDS,
            )
        except (ReplicaError, LogError) as error:
            fail_by(each.result, error)
            return False
        each.guard = guard
        return guard is not NO_GUARD

    def ask(
        self,
        request: ProduceRequest,
        unverified: Sequence[ProduceAppend],
        api_version: int,
        done: Callable[[], None],
    ) -> None:
        """Call `done` when the coordinator has spoken; what it does not know fails."""
        batch = unverified[0].batch
        question = Question(
            request.transactional_id or "",
            Identity(batch.producer_id, batch.producer_epoch),
            [each.partition.topic_partition for each in unverified],
            adds=api_version >= _FIRST_VERSION_THAT_ADDS,
        )

        def answered(verdicts: Mapping[TopicPartition, ErrorCode]) -> None:
            for each in unverified:
                code = _for_producers(verdicts[each.partition.topic_partition], api_version)
                if code is not ErrorCode.NONE:
                    fail(each.result, code)
            done()

        self._verifier.ask(question, request.timeout_ms, answered)


def _for_producers(code: ErrorCode, api_version: int) -> ErrorCode:
    if code in _PASSING:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < _FIRST_VERSION_THAT_ADDS:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < _FIRST_VERSION_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code
