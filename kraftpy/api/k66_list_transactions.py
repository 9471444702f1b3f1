"""ListTransactions (66): the transactional ids of this broker that the asker may know of.

Ids may be asked for by a pattern. RE2 takes time in proportion to the id, but ids are many, and as
long as clients like: so they are matched in the background, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kraftpy.api.access import Access
from kraftpy.api.handler import Handler, RequestContext
from kraftpy.coordinator.groups.regex_pattern import Pattern, compile_pattern
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.listing import ListFilter
from kraftpy.coordinator.transactions.service import TransactionService
from kraftpy.coordinator.transactions.state import Transaction
from kraftpy.protocol.schema.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["ListTransactionsHandler"]


class ListTransactionsHandler(Handler):
    api_key = 66

    def __init__(
        self, transactions: TransactionService, defer: Callable[[Iterator[None]], None]
    ) -> None:
        """`defer` has something done in the background, pausing at each of its yields."""
        self._transactions = transactions
        self._defer = defer

    def handle(
        self, request: ListTransactionsRequest, context: RequestContext
    ) -> ListTransactionsResponse | None:
        wanted = ListFilter(
            state_names=request.state_filters,
            producer_ids=request.producer_id_filters,
            longer_than_ms=request.duration_filter,
        )
        text = request.transactional_id_pattern
        try:
            pattern = compile_pattern(text) if text else None
            found = self._transactions.list_all(wanted)
        except CoordinatorError as error:
            return ListTransactionsResponse(error_code=error.code)
        if context.access.is_limited:
            found = [each for each in found if _may_describe(each, context.access)]
        if pattern is None:
            return _response(wanted, found)
        self._defer(_respond_matching(pattern, wanted, found, context))
        return None


def _may_describe(each: Transaction, access: Access) -> bool:
    kind = ResourceType.TRANSACTIONAL_ID
    return access.may(AclOperation.DESCRIBE, kind, each.transactional_id, is_probe=True)


def _respond_matching(
    pattern: Pattern, wanted: ListFilter, found: Sequence[Transaction], context: RequestContext
) -> Iterator[None]:
    matching = []
    for each in found:
        if pattern.fullmatch(each.transactional_id) is not None:
            matching.append(each)
        yield
    context.respond(_response(wanted, matching))


def _response(wanted: ListFilter, found: Sequence[Transaction]) -> ListTransactionsResponse:
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
