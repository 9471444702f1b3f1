"""Produce (0): append one batch to each of some partitions, and say so when it is safe enough.

All of it happens while the frame is there: batches are stamped and written where they lie, and
nothing refers to them afterwards. What remains is to wait, if the producer wants that: until
everybody in sync has the records (acks=all), or until they are flushed, where `flush.messages`
demands it (delayed_produce.py).

A partition's failure is its own: the others are appended and answered (NET-91). With acks=0 there
is nobody to tell, but for the connection, which is closed (NET-92).

Clients don't write to internal topics, except for the admin client of Kafka's own tools.

A request may have to wait before it is appended: for a log that is being made, since clients may
know of a new leader before it is one; or, with a transactional id, for a word of the transaction
coordinator (transactional_produce.py). Then its batches are copied, and the connection keeps its
order: what comes behind must not be appended before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, cast

from kraftpy.api.access import Access
from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.api.leader_hints import LeaderHints, is_misdirected
from kraftpy.api.partition_view import INTERNAL_TOPICS
from kraftpy.api.produce_append import ProduceAppend, fail, fail_by
from kraftpy.api.transactional_produce import ProduceVerification
from kraftpy.broker.awaited_leader import AwaitedLeader
from kraftpy.broker.delayed_produce import DelayedProduce, PendingAppend, expired_produce
from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.broker.partition import ALL_IN_SYNC, Partition, ReplicaError
from kraftpy.log.errors import LogError
from kraftpy.log.offsets import AppendInfo
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.topic_metrics import (
    BYTES_IN,
    FAILED_PRODUCE_REQUESTS,
    MESSAGES_IN,
    TOTAL_PRODUCE_REQUESTS,
    TopicMetrics,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.protocol.schema.k00_produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kraftpy.records.errors import RecordDataError
from kraftpy.records.validation import single_batch
from kraftpy.security.acl_terms import AclOperation, ResourceType
from kraftpy.world import Buffer, Clock

__all__ = ["ProduceHandler"]

log = logging.getLogger(__name__)

_FIRST_VERSION_BY_ID: Final = 13
_FIRST_VERSION_WITH_LEADERS: Final = 10
_NO_ACKS: Final = 0
_LEADER_ONLY: Final = 1
_ADMIN_CLIENT: Final = "__admin_client"
# What a well-behaved producer meets, too; Kafka does not count these as failures.
_EXPECTED: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

# What comes in is bytes; slices of files only go out.
_Records: TypeAlias = Buffer | None


class ProduceHandler(Handler):
    api_key = 0

    def __init__(
        self,
        replicas: HostedReplicas,
        hints: LeaderHints,
        *,
        clock: Clock,
        metrics: TopicMetrics,
        registry: MetricRegistry,
        verification: ProduceVerification | None = None,
    ) -> None:
        """Without `verification`, logs take transactional batches as they come, or refuse them."""
        self._replicas = replicas
        self._verification = verification
        self._hints = hints
        self._clock = clock
        self._metrics = metrics
        self._registry = registry

    def handle(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
        return self._begin(request, context, request.timeout_ms)

    def _begin(
        self,
        request: ProduceRequest,
        context: RequestContext,
        left_ms: int,
        *,
        is_late: bool = False,
    ) -> ProduceResponse | None:
        """Carry it out, if nothing must be waited for that can come in the time that is left.

        One that is late has waited in vain, and has no time for replicas to get anything.
        """
        answer = ProduceResponse()
        failures: list[tuple[ErrorCode, Partition | None]] = []
        appends = self._admit(request, context, answer, failures)
        partition_count = sum(len(topic.partition_data) for topic in request.topic_data)
        is_whole = len(appends) == partition_count
        if not (is_whole or is_late) and self._has_to_wait(request, answer, context, left_ms):
            return None
        for code, partition in failures:
            self._count_failure(code, partition)
        acks = request.acks
        if acks not in (ALL_IN_SYNC, _NO_ACKS, _LEADER_ONLY):
            for each in appends:
                fail(each.result, ErrorCode.INVALID_REQUIRED_ACKS)
            return self._finished(answer, context)
        if is_late and acks == ALL_IN_SYNC:
            for each in appends:
                fail(each.result, ErrorCode.REQUEST_TIMED_OUT)
            return self._finished(answer, context)
        if request.transactional_id is not None and self._verification is not None:
            return self._append_verified(
                self._verification, request, appends, answer, context, left_ms=left_ms
            )
        return self._append_all(appends, acks, left_ms, answer, context)

    def _has_to_wait(
        self,
        request: ProduceRequest,
        answer: ProduceResponse,
        context: RequestContext,
        left_ms: int,
    ) -> bool:
        """Whether a partition is about to be led here; the request begins anew when it is.

        Otherwise a producer without acknowledgements would lose what it sends to a new topic.
        """
        if left_ms <= 0:
            return False
        began_ms = self._clock.monotonic_ms()

        def go_on(is_led: bool) -> None:
            waited_ms = self._clock.monotonic_ms() - began_ms
            still_ms = max(0, left_ms - waited_ms)
            context.resume(lambda: self._begin(request, context, still_ms, is_late=not is_led))

        wait = AwaitedLeader(left_ms, go_on)
        for topic in answer.responses:
            for result in topic.partition_responses:
                if (
                    result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                    and self._replicas.await_leader(
                        topic.name, topic.topic_id, result.index, wait.led
                    )
                ):
                    _keep_records(request)
                    context.keep_order()
                    name = (topic.name, result.index)
                    self._replicas.produce_purgatory.try_complete_else_watch(wait, [name])
                    return True
        return False

    def _append_verified(
        self,
        verification: ProduceVerification,
        request: ProduceRequest,
        appends: list[ProduceAppend],
        answer: ProduceResponse,
        context: RequestContext,
        *,
        left_ms: int,
    ) -> ProduceResponse | None:
        """Append when the transaction coordinator has spoken, if it must be asked."""
        acks = request.acks
        unverified = verification.begin(appends, context.api_version)

        def append() -> ProduceResponse | None:
            verified = [each for each in appends if not each.has_failed]
            return self._append_all(verified, acks, left_ms, answer, context)

        if not unverified:
            return append()
        for each in appends:
            each.records = bytearray(each.records)
        context.keep_order()
        verification.ask(request, unverified, context.api_version, lambda: context.resume(append))
        return None

    def _append_all(
        self,
        appends: list[ProduceAppend],
        acks: int,
        timeout_ms: int,
        answer: ProduceResponse,
        context: RequestContext,
    ) -> ProduceResponse | None:
        now_ms = self._clock.monotonic_ms()
        pending: list[PendingAppend] = []
        for each in appends:
            info = self._append(each, acks, now_ms)
            if info is not None and (acks == ALL_IN_SYNC or info.must_flush):
                required_offset = info.last_offset + 1
                append = PendingAppend(each.partition, required_offset, each.result, acks=acks)
                code = append.verdict_of(each.partition)
                if code is None:
                    pending.append(append)
                else:
                    each.result.error_code = code
        if acks == _NO_ACKS:
            _end_without_answer(answer, context)
            return None
        if pending:
            self._wait(pending, timeout_ms, answer, context)
            return None
        return self._finished(answer, context)

    def _admit(
        self,
        request: ProduceRequest,
        context: RequestContext,
        answer: ProduceResponse,
        failures: list[tuple[ErrorCode, Partition | None]],
    ) -> list[ProduceAppend]:
        """What can be appended as far as one can tell beforehand; the rest fails in `answer`.

        `failures` are what is to be counted, once: the request may have to begin anew.
        """
        version = context.api_version
        replicas = self._replicas
        limited = context.access if context.access.is_limited else None
        if limited is not None and _is_transactional(request, version):
            transactional_id = request.transactional_id or ""
            context.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        appends = []
        is_transactional = False
        for topic in request.topic_data:
            may_write = limited is None or self._may_write(topic, limited)
            results: list[PartitionProduceResponse] = []
            answer.responses.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=results
                )
            )
            for data in topic.partition_data:
                result = PartitionProduceResponse(index=data.index, base_offset=-1)
                results.append(result)
                if not may_write:
                    fail(result, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    continue
                if version >= _FIRST_VERSION_BY_ID:
                    found = replicas.lookup_by_id(topic.topic_id, data.index)
                else:
                    found = replicas.lookup((topic.name, data.index))
                if isinstance(found, ErrorCode):
                    fail(result, found)
                    failures.append((found, None))
                    continue
                try:
                    batch = single_batch(cast("_Records", data.records), produce_version=version)
                except RecordDataError as error:
                    fail_by(result, error)
                    failures.append((error.error_code, found))
                    continue
                is_transactional = is_transactional or batch.is_transactional
                if (
                    found.topic_partition[0] in INTERNAL_TOPICS
                    and context.client_id != _ADMIN_CLIENT
                ):
                    fail(result, ErrorCode.INVALID_TOPIC_EXCEPTION, "an internal topic")
                    continue
                appends.append(ProduceAppend(found, batch, result))
        if is_transactional and request.transactional_id is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return appends

    def _may_write(self, topic: TopicProduceData, access: Access) -> bool:
        """One whose id nobody knows is not refused for that reason."""
        name = self._hints.name_of(topic.name, topic.topic_id)
        return name is None or access.may(AclOperation.WRITE, ResourceType.TOPIC, name)

    def _append(self, each: ProduceAppend, acks: int, now_ms: int) -> AppendInfo | None:
        partition, result = each.partition, each.result
        topic = partition.topic_partition[0]
        metrics = self._metrics
        now = self._clock.monotonic()
        metrics.mark(TOTAL_PRODUCE_REQUESTS, topic, now)
        try:
            info = partition.append(
                each.records, required_acks=acks, now_ms=now_ms, guard=each.guard
            )
        except (ReplicaError, LogError, RecordDataError) as error:
            fail_by(result, error)
            self._count_failure(error.error_code, partition)
            return None
        result.base_offset = info.first_offset
        result.log_append_time_ms = info.log_append_time_ms
        result.log_start_offset = info.log_start_offset
        if not info.is_duplicate:
            metrics.mark(BYTES_IN, topic, now, info.valid_bytes)
            metrics.mark(MESSAGES_IN, topic, now, info.last_offset - info.first_offset + 1)
        return info

    def _wait(
        self,
        pending: list[PendingAppend],
        timeout_ms: int,
        answer: ProduceResponse,
        context: RequestContext,
    ) -> None:
        operation = DelayedProduce(
            timeout_ms,
            pending,
            self._replicas,
            respond=lambda: context.respond(self._finished(answer, context)),
            on_expired=self._count_expired,
        )
        keys = [each.partition.topic_partition for each in pending]
        self._replicas.produce_purgatory.try_complete_else_watch(operation, keys, has_looked=True)

    def _finished(self, answer: ProduceResponse, context: RequestContext) -> ProduceResponse:
        """The answer, with the way to the right leader for whoever came to the wrong one."""
        if context.charge is not None:
            answer.throttle_time_ms = context.charge.produced()
        if context.api_version < _FIRST_VERSION_WITH_LEADERS:
            return answer
        leaders = []
        for topic in answer.responses:
            for result in topic.partition_responses:
                if is_misdirected(result.error_code):
                    leader, epoch = self._hints.leader_of(topic.name, topic.topic_id, result.index)
                    result.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                    leaders.append(leader)
        if leaders:
            listener_name = context.channel.listener_name
            answer.node_endpoints = self._hints.endpoints(leaders, listener_name, NodeEndpoint)
        return answer

    def _count_failure(self, code: ErrorCode, partition: Partition | None) -> None:
        if code in _EXPECTED:
            return
        now = self._clock.monotonic()
        if partition is None:
            self._metrics.mark_all(FAILED_PRODUCE_REQUESTS, now)
        else:
            self._metrics.mark(FAILED_PRODUCE_REQUESTS, partition.topic_partition[0], now)

    def _count_expired(self, pending: Sequence[PendingAppend]) -> None:
        now = self._clock.monotonic()
        for each in pending:
            for name in (expired_produce(), expired_produce(each.partition.topic_partition)):
                self._registry.meter(name, now).mark(now)

    def error_answer(
        self, request: ProduceRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> ProduceResponse | None:
        """The error for each partition; None, which closes the connection, with acks=0."""
        if request.acks == _NO_ACKS:
            return None
        answer = ProduceResponse()
        for topic in request.topic_data:
            results = [
                PartitionProduceResponse(
                    index=data.index, error_code=code, base_offset=-1, error_message=message
                )
                for data in topic.partition_data
            ]
            answer.responses.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=results
                )
            )
        return answer

    def error_codes(self, response: ProduceResponse) -> Iterator[int]:
        for topic in response.responses:
            for result in topic.partition_responses:
                yield result.error_code


def _is_transactional(request: ProduceRequest, version: int) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                batch = single_batch(cast("_Records", data.records), produce_version=version)
            except RecordDataError:
                continue
            if batch.is_transactional:
                return True
    return False


def _end_without_answer(answer: ProduceResponse, context: RequestContext) -> None:
    """The producer hears nothing, unless something went wrong: then it loses the connection."""
    for topic in answer.responses:
        for result in topic.partition_responses:
            if result.error_code != ErrorCode.NONE:
                log.info(
                    "acks=0 failed, the connection is closed error=%s topic=%r partition=%d %s",
                    ErrorCode(result.error_code).name,
                    topic.name if topic.topic_id == ZERO_UUID else topic.topic_id.hex(),
                    result.index,
                    context.describe(),
                )
                context.disconnect()
                return
    context.respond_nothing()


def _keep_records(request: ProduceRequest) -> None:
    """Copy what lies in the request's frame, which is valid for the moment only."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytearray(cast("Buffer", data.records))
