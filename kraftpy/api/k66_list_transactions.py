"""ListTransactions (66): the transactional ids that this broker coordinates."""

from __future__ import annotations

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.coordinator.groups.regex_pattern import compile_pattern
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.listing import ListFilter
from kraftpy.coordinator.transactions.service import TransactionService
from kraftpy.protocol.schema.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

__all__ = ["ListTransactionsHandler"]


class ListTransactionsHandler(Handler):
    api_key = 66

    def __init__(self, transactions: TransactionService) -> None:
        self._transactions = transactions

    def handle(
        self, request: ListTransactionsRequest, context: RequestContext
    ) -> ListTransactionsResponse:
        try:
            wanted = _filter(request)
            found = self._transactions.list_all(wanted)
        except CoordinatorError as error:
            return ListTransactionsResponse(error_code=error.code)
        return ListTransactionsResponse(
            unknown_state_filters=wanted.unknown_states,
            transaction_states=[
                TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.state.title,
                )
                for each in found
            ],
        )


def _filter(request: ListTransactionsRequest) -> ListFilter:
    """Raises CoordinatorError for a pattern that is none."""
    pattern = None
    if request.transactional_id_pattern:
        pattern = compile_pattern(request.transactional_id_pattern)
    return ListFilter(
        state_names=request.state_filters,
        producer_ids=request.producer_id_filters,
        longer_than_ms=request.duration_filter,
        matches=None if pattern is None else lambda name: pattern.fullmatch(name) is not None,
    )
