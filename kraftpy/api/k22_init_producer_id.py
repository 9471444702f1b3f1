"""InitProducerId (22): an identity for a producer, by which its batches are told apart.

Any broker gives one to an idempotent producer, with epoch 0. A transactional id has a coordinator,
which alone may give one; there are no coordinators yet, so no broker is the right one to ask.
"""

from __future__ import annotations

from typing import Final

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.producer_ids import ProducerIds
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

__all__ = ["InitProducerIdHandler"]

_NONE: Final = -1


class InitProducerIdHandler(Handler):
    api_key = 22

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def handle(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> InitProducerIdResponse | None:
        # An id without an epoch, or the other way round, is nobody's identity.
        if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
            return _refusal(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            is_empty = request.transactional_id == ""
            return _refusal(ErrorCode.INVALID_REQUEST if is_empty else ErrorCode.NOT_COORDINATOR)

        def reply(outcome: int | ErrorCode) -> None:
            if isinstance(outcome, ErrorCode):
                context.respond(_refusal(outcome))
            else:
                context.respond(InitProducerIdResponse(producer_id=outcome, producer_epoch=0))

        self._producer_ids.provide(reply)
        return None

    def error_answer(
        self, request: InitProducerIdRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> InitProducerIdResponse:
        return _refusal(code)


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=_NONE, producer_epoch=_NONE)
