"""EndTxn (26): commit or abort. From version 5 on the producer gets its next epoch thereby."""

from __future__ import annotations

from typing import Final

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.api.transaction_errors import for_version
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.endings import Ending
from kraftpy.coordinator.transactions.identities import Identity
from kraftpy.coordinator.transactions.service import TransactionService
from kraftpy.coordinator.transactions.state import FIRST_VERSION_WITH_EPOCH_BUMP
from kraftpy.protocol.schema.k26_end_txn import EndTxnRequest, EndTxnResponse
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["EndTxnHandler"]

_FIRST_VERSION_WITH_EPOCH: Final = 5
_OF_OLD_CLIENTS: Final = 0


class EndTxnHandler(Handler):
    api_key = 26

    def __init__(self, transactions: TransactionService) -> None:
        self._transactions = transactions

    def handle(self, request: EndTxnRequest, context: RequestContext) -> None:
        version = context.api_version
        context.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)

        def ended(answer: Identity | CoordinatorError) -> None:
            if isinstance(answer, CoordinatorError):
                response = EndTxnResponse(error_code=for_version(answer.code, version))
            else:
                response = EndTxnResponse(
                    producer_id=answer.producer_id, producer_epoch=answer.epoch
                )
            context.respond(response)

        bumps_epoch = version >= _FIRST_VERSION_WITH_EPOCH
        ending = Ending(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            FIRST_VERSION_WITH_EPOCH_BUMP if bumps_epoch else _OF_OLD_CLIENTS,
        )
        self._transactions.end(ending, ended)
