"""DescribeTransactions (65): the state of transactional ids, as their coordinator knows it."""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.api.access import Access
from kraftpy.api.handler import Handler, RequestContext
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.service import TransactionService
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["DescribeTransactionsHandler"]


class DescribeTransactionsHandler(Handler):
    api_key = 65

    def __init__(self, transactions: TransactionService) -> None:
        self._transactions = transactions

    def handle(
        self, request: DescribeTransactionsRequest, context: RequestContext
    ) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[
                self._describe(each, context.access) for each in request.transactional_ids
            ]
        )

    def _describe(self, transactional_id: str, access: Access) -> TransactionState:
        """Without the topics that the asker may not describe."""
        if not access.may(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return _failed(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if transactional_id == "":
            return _failed(transactional_id, ErrorCode.INVALID_REQUEST)
        try:
            found = self._transactions.describe(transactional_id)
        except CoordinatorError as error:
            return _failed(transactional_id, error.code)
        return TransactionState(
            transactional_id=transactional_id,
            transaction_state=found.state.title,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.start_ms,
            producer_id=found.producer_id,
            producer_epoch=found.epoch,
            topics=[
                TopicData(topic=topic, partitions=list(indexes))
                for topic, indexes in found.partitions.items()
                if access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
            ],
        )

    def error_answer(
        self,
        request: DescribeTransactionsRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[_failed(each, code) for each in request.transactional_ids]
        )

    def error_codes(self, response: DescribeTransactionsResponse) -> Iterator[int]:
        for state in response.transaction_states:
            yield state.error_code


def _failed(transactional_id: str, code: ErrorCode) -> TransactionState:
    return TransactionState(error_code=code, transactional_id=transactional_id)
