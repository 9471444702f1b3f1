"""AddPartitionsToTxn (24): the partitions that a transaction is going to write to.

Clients send it before they write, for one transaction, up to version 3. From version 4 on it comes
from leaders of partitions, for several transactions at once, and either adds or only verifies
(broker/transaction_verifier.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from kraftpy.api.access import Access
from kraftpy.api.handler import Handler, RequestContext
from kraftpy.api.partition_view import INTERNAL_TOPICS
from kraftpy.api.transaction_errors import for_version
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.transactions.identities import Identity
from kraftpy.coordinator.transactions.service import TransactionService
from kraftpy.coordinator.transactions.state import FIRST_VERSION_WITH_EPOCH_BUMP
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["AddPartitionsToTxnHandler"]

_FIRST_VERSION_OF_BROKERS: Final = 4
_OF_OLD_CLIENTS: Final = 0

_Verdicts: TypeAlias = Mapping[TopicPartition, ErrorCode]


class AddPartitionsToTxnHandler(Handler):
    api_key = 24

    def __init__(self, transactions: TransactionService, cluster: BrokerMetadata) -> None:
        self._transactions = transactions
        self._cluster = cluster

    def handle(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> None:
        version = context.api_version
        if version >= _FIRST_VERSION_OF_BROKERS:
            context.require(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        else:
            context.require(
                AclOperation.WRITE,
                ResourceType.TRANSACTIONAL_ID,
                request.v3_and_below_transactional_id,
            )
        asked = _transactions_of(request, version)
        results: dict[int, AddPartitionsToTxnResult] = {}

        def answered(index: int, verdicts: _Verdicts) -> None:
            each = asked[index]
            results[index] = AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=_results(
                    each.topics,
                    lambda name: for_version(verdicts[name], version),
                ),
            )
            if len(results) == len(asked):
                context.respond(_response([results[place] for place in sorted(results)], version))

        if not asked:
            context.respond(AddPartitionsToTxnResponse())
        for index, each in enumerate(asked):
            self._serve(each, context, partial(answered, index))

    def _serve(
        self,
        each: AddPartitionsToTxnTransaction,
        context: RequestContext,
        reply: Callable[[_Verdicts], None],
    ) -> None:
        names = [(topic.name, index) for topic in each.topics for index in topic.partitions]
        identity = Identity(each.producer_id, each.producer_epoch)

        def added(answer: ErrorCode | CoordinatorError) -> None:
            code = answer.code if isinstance(answer, CoordinatorError) else answer
            reply(dict.fromkeys(names, code))

        is_broker = context.api_version >= _FIRST_VERSION_OF_BROKERS
        refused = self._refused(names, None if is_broker else context.access)
        if refused:
            reply(refused)
        elif each.verify_only:
            try:
                reply(self._transactions.verify_partitions(each.transactional_id, identity, names))
            except CoordinatorError as error:
                added(error)
        else:
            self._transactions.add_partitions(
                each.transactional_id,
                identity,
                names,
                added,
                client_version=FIRST_VERSION_WITH_EPOCH_BUMP if is_broker else _OF_OLD_CLIENTS,
            )

    def _refused(self, names: Sequence[TopicPartition], client: Access | None) -> _Verdicts:
        """What to answer if a partition may not be written to, or does not exist; then the others
        are not added either. A client may write to no internal topic, whatever its ACLs; what a
        broker (None) asks for, it has judged itself.
        """
        topics = self._cluster.image.topics
        refused: dict[TopicPartition, ErrorCode] = {}
        for topic, index in names:
            found = topics.get(topic)
            if client is not None and (
                topic in INTERNAL_TOPICS
                or not client.may(AclOperation.WRITE, ResourceType.TOPIC, topic)
            ):
                refused[topic, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif found is None or not 0 <= index < len(found.partitions):
                refused[topic, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not refused:
            return {}
        return {**dict.fromkeys(names, ErrorCode.OPERATION_NOT_ATTEMPTED), **refused}

    def error_answer(
        self,
        request: AddPartitionsToTxnRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> AddPartitionsToTxnResponse:
        if context.api_version >= _FIRST_VERSION_OF_BROKERS:
            return AddPartitionsToTxnResponse(error_code=code)
        results = _results(request.v3_and_below_topics, lambda name: code)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def error_codes(self, response: AddPartitionsToTxnResponse) -> Iterator[int]:
        if response.error_code != ErrorCode.NONE:
            yield response.error_code
        for topic in (
            *response.results_by_topic_v3_and_below,
            *(topic for each in response.results_by_transaction for topic in each.topic_results),
        ):
            for result in topic.results_by_partition:
                yield result.partition_error_code


def _transactions_of(
    request: AddPartitionsToTxnRequest, version: int
) -> list[AddPartitionsToTxnTransaction]:
    if version >= _FIRST_VERSION_OF_BROKERS:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            verify_only=False,
            topics=request.v3_and_below_topics,
        )
    ]


def _response(
    results: Sequence[AddPartitionsToTxnResult], version: int
) -> AddPartitionsToTxnResponse:
    if version >= _FIRST_VERSION_OF_BROKERS:
        return AddPartitionsToTxnResponse(results_by_transaction=list(results))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], code_of: Callable[[TopicPartition], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code_of((topic.name, index))
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
