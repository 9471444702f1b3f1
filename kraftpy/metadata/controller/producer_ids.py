"""Blocks of producer ids: each broker that asks gets the next thousand, for itself alone."""

from __future__ import annotations

from typing import Final

from kraftpy.metadata.controller.result import Caller, ControllerError, ControllerResult
from kraftpy.metadata.controller.view import MetadataView
from kraftpy.metadata.records import ProducerIdsRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

__all__ = ["BLOCK_SIZE", "ProducerIdControl"]

BLOCK_SIZE: Final = 1000
_LAST_ID: Final = (1 << 63) - 1


class ProducerIdControl:
    def __init__(self, context: MetadataView) -> None:
        self._context = context

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, _caller: Caller
    ) -> ControllerResult[AllocateProducerIdsResponse]:
        image = self._context.image
        broker = image.brokers.get(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            raise ControllerError(ErrorCode.STALE_BROKER_EPOCH)
        first = image.producer_ids.next_producer_id if image.producer_ids is not None else 0
        if first > _LAST_ID - BLOCK_SIZE:
            raise ControllerError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given away"
            )
        record = ProducerIdsRecord(request.broker_id, request.broker_epoch, first + BLOCK_SIZE)
        answer = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
        return ControllerResult((record,), answer)
