"""InitProducerId (22): an identity for a producer, by which its batches are told apart.

Any broker gives one to an idempotent producer, with epoch 0. Under a transactional id only its
coordinator may give one, which shuts out who had it before.
"""

from __future__ import annotations

from typing import Final

from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.broker.producer_ids import ProducerIds
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.identities import Claim, Identity
from kraftpy.coordinator.transactions.service import TransactionService
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["InitProducerIdHandler"]

_NONE: Final = -1
_FIRST_VERSION_WITH_FENCED: Final = 4


class InitProducerIdHandler(Handler):
    api_key = 22

    def __init__(self, producer_ids: ProducerIds, transactions: TransactionService) -> None:
        self._producer_ids = producer_ids
        self._transactions = transactions

    def handle(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> InitProducerIdResponse | None:
        _check_access(request, context)
        # An id without an epoch, or the other way round, is nobody's identity.
        if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
            return _refusal(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is None:
            self._give_any(context)
            return None
        given = None
        if request.producer_id != _NONE:
            given = Identity(request.producer_id, request.producer_epoch)

        def reply(answer: Identity | CoordinatorError) -> None:
            if not isinstance(answer, CoordinatorError):
                context.respond(
                    InitProducerIdResponse(
                        producer_id=answer.producer_id, producer_epoch=answer.epoch
                    )
                )
                return
            code = answer.code
            if code is ErrorCode.PRODUCER_FENCED and (
                context.api_version < _FIRST_VERSION_WITH_FENCED
            ):
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            context.respond(_refusal(code))

        claim = Claim(request.transactional_id, request.transaction_timeout_ms, given)
        self._transactions.init_producer_id(claim, reply)
        return None

    def _give_any(self, context: RequestContext) -> None:
        def reply(outcome: int | ErrorCode) -> None:
            if isinstance(outcome, ErrorCode):
                context.respond(_refusal(outcome))
            else:
                context.respond(InitProducerIdResponse(producer_id=outcome, producer_epoch=0))

        self._producer_ids.provide(reply)

    def error_answer(
        self, request: InitProducerIdRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> InitProducerIdResponse:
        return _refusal(code)


def _check_access(request: InitProducerIdRequest, context: RequestContext) -> None:
    """Who may write to any topic may be idempotent, too."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        context.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not context.access.may_cluster(
        AclOperation.IDEMPOTENT_WRITE, is_probe=True
    ) and not context.access.may_any(AclOperation.WRITE, ResourceType.TOPIC):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=_NONE, producer_epoch=_NONE)
