"""AddOffsetsToTxn (25): a transaction is going to commit offsets of a group.

To the transaction that is one more partition: the one of `__consumer_offsets` that the group is in.
"""

from __future__ import annotations

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.api.transaction_errors import for_version
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.identities import Identity
from kraftpy.coordinator.transactions.service import TransactionService
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k25_add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["AddOffsetsToTxnHandler"]


class AddOffsetsToTxnHandler(Handler):
    api_key = 25

    def __init__(self, transactions: TransactionService, groups: CoordinatorLookup) -> None:
        self._transactions = transactions
        self._groups = groups

    def handle(self, request: AddOffsetsToTxnRequest, context: RequestContext) -> None:
        context.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.require(AclOperation.READ, ResourceType.GROUP, request.group_id)

        def added(answer: ErrorCode | CoordinatorError) -> None:
            code = answer.code if isinstance(answer, CoordinatorError) else answer
            context.respond(
                AddOffsetsToTxnResponse(error_code=for_version(code, context.api_version))
            )

        self._transactions.add_partitions(
            request.transactional_id,
            Identity(request.producer_id, request.producer_epoch),
            [(self._groups.topic, self._groups.partition_of(request.group_id))],
            added,
            # Clients of version 2 add offsets by committing them.
            client_version=0,
        )
