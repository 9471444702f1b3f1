"""TxnOffsetCommit (28): offsets of a group that count when a transaction is committed.

The group's coordinator writes them as a part of the producer's transaction. As with records, the
transaction's coordinator is asked first whether there is such a transaction; from version 5 on that
adds the group's partition to it. Topics that do not exist fail for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.partition import ReplicaError
from kraftpy.broker.transaction_verifier import Question, TransactionVerifier
from kraftpy.coordinator.batch import Producer
from kraftpy.coordinator.failures import for_clients
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.runtime import CoordinatorRuntime
from kraftpy.coordinator.transactions.identities import Identity
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.errors import LogError
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kraftpy.records.batch import NO_SEQUENCE
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["TxnOffsetCommitHandler"]

_FIRST_VERSION_THAT_ADDS: Final = 5
_FIRST_VERSION_WITH_ABORTABLE: Final = 4
# Producers before it take the error for a coordinator that loads for their own failure.
_FIRST_VERSION_WITH_LOADING: Final = 2
# There is no limit in the request; the verifier has its own.
_LONG_MS: Final = 30_000


class TxnOffsetCommitHandler(Handler):
    api_key = 28

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupMachine],
        lookup: CoordinatorLookup,
        *,
        replicas: HostedReplicas,
        cluster: BrokerMetadata,
        verifier: TransactionVerifier,
    ) -> None:
        """`runtime` and `lookup` are those of groups."""
        self._runtime = runtime
        self._lookup = lookup
        self._replicas = replicas
        self._cluster = cluster
        self._verifier = verifier

    def handle(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> TxnOffsetCommitResponse | None:
        access, kind = context.access, ResourceType.TRANSACTIONAL_ID
        context.require(AclOperation.WRITE, kind, request.transactional_id)
        context.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        if request.group_id == "":
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        allowed: list[TxnOffsetCommitRequestTopic] = []
        denied: list[TxnOffsetCommitRequestTopic] = []
        for topic in request.topics:
            may_read = access.may(AclOperation.READ, ResourceType.TOPIC, topic.name)
            (allowed if may_read else denied).append(topic)
        request.topics, unknown = _sorted_out(allowed, self._cluster.image)
        failed = _refused(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        failed += _refused(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if not request.topics:
            return TxnOffsetCommitResponse(topics=failed)

        def committed(answer: TxnOffsetCommitResponse | CoordinatorError) -> None:
            if isinstance(answer, CoordinatorError):
                code = _for_version(answer.code, context.api_version)
                answer = TxnOffsetCommitResponse(topics=_refused(request.topics, code))
            _add(answer, failed)
            context.respond(answer)

        self._verify(request, context.api_version, committed)
        return None

    def _verify(
        self,
        request: TxnOffsetCommitRequest,
        version: int,
        reply: Callable[[TxnOffsetCommitResponse | CoordinatorError], None],
    ) -> None:
        partition_id = self._lookup.partition_of(request.group_id)
        name = (self._lookup.topic, partition_id)
        identity = Identity(request.producer_id, request.producer_epoch)
        adds = version >= _FIRST_VERSION_THAT_ADDS
        try:
            guard = self._begin(name, identity, adds=adds)
        except CoordinatorError as error:
            reply(for_clients(error))
            return

        def write() -> None:
            self._runtime.write_transactional(
                partition_id,
                lambda machine: machine.offsets.commit_transactional(request, version),
                reply,
                Producer(identity.producer_id, identity.epoch, guard),
            )

        def answered(verdicts: Mapping[TopicPartition, ErrorCode]) -> None:
            code = verdicts[name]
            if code is ErrorCode.NONE:
                write()
            else:
                reply(for_clients(CoordinatorError(code)))

        if guard is NO_GUARD:
            write()
        else:
            question = Question(request.transactional_id, identity, [name], adds)
            self._verifier.ask(question, _LONG_MS, answered)

    def _begin(self, name: TopicPartition, identity: Identity, *, adds: bool) -> VerificationGuard:
        partition = self._replicas.lookup(name)
        if isinstance(partition, ErrorCode):
            raise CoordinatorError(ErrorCode.NOT_COORDINATOR)
        try:
            return self._verifier.begin(partition, identity, NO_SEQUENCE, adds=adds)
        except (ReplicaError, LogError) as error:
            raise CoordinatorError(error.error_code) from error

    def error_answer(
        self,
        request: TxnOffsetCommitRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(topics=_refused(request.topics, code))

    def error_codes(self, response: TxnOffsetCommitResponse) -> Iterator[int]:
        for topic in response.topics:
            for partition in topic.partitions:
                yield partition.error_code


def _sorted_out(
    topics: Sequence[TxnOffsetCommitRequestTopic], image: MetadataImage
) -> tuple[list[TxnOffsetCommitRequestTopic], list[TxnOffsetCommitRequestTopic]]:
    """The partitions that exist, and those that don't."""
    existing: list[TxnOffsetCommitRequestTopic] = []
    unknown: list[TxnOffsetCommitRequestTopic] = []
    for topic in topics:
        known = image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        for found, is_wanted in ((existing, True), (unknown, False)):
            partitions = [
                each
                for each in topic.partitions
                if (0 <= each.partition_index < count) is is_wanted
            ]
            if partitions:
                found.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=partitions))
    return existing, unknown


def _add(answer: TxnOffsetCommitResponse, more: Sequence[TxnOffsetCommitResponseTopic]) -> None:
    """Each topic stands in an answer once."""
    by_name = {topic.name: topic for topic in answer.topics}
    for topic in more:
        known = by_name.get(topic.name)
        if known is None:
            answer.topics.append(topic)
        else:
            known.partitions += topic.partitions


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_VERSION_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_VERSION_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _refused(
    topics: Sequence[TxnOffsetCommitRequestTopic], code: ErrorCode
) -> list[TxnOffsetCommitResponseTopic]:
    return [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(
                    partition_index=each.partition_index, error_code=code
                )
                for each in topic.partitions
            ],
        )
        for topic in topics
    ]
