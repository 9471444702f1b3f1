"""Fetch (1) on brokers: records for consumers and followers, from sessions or without.

A fetch is answered at once if it must not wait, wants nothing, has found enough, or has found
something that nobody should wait with (REP-29); otherwise it waits in the fetch purgatory until
there is enough, or its time is over, and is read once more (delayed_fetch.py).

An answer refers to slices of files. Those that are not in memory are brought there first, by the
disk's thread, because the loop would stand still while they are sent.

The metadata log is fetched from controllers, elsewhere (k01_fetch_metadata.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from kraftpy.api.access import Access
from kraftpy.api.handler import Handler, RequestContext
from kraftpy.api.leader_hints import LeaderHints, is_misdirected
from kraftpy.broker.delayed_fetch import DelayedFetch
from kraftpy.broker.fetch_reader import FetchReader, FetchResult, FetchTerms
from kraftpy.broker.fetch_sessions import (
    FINAL_EPOCH,
    FetchedPartition,
    FetchSession,
    FetchSessions,
)
from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.client.session_term import INITIAL_EPOCH
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.offsets import Isolation
from kraftpy.net.line import Spawn
from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.observe.topic_metrics import BYTES_OUT, REPLICATION_BYTES_OUT, TopicMetrics
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import encode_response
from kraftpy.protocol.schema.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType
from kraftpy.world import Clock, FileSlice, InternalInvariant

__all__ = ["FetchHandler"]

log = logging.getLogger(__name__)

_FIRST_VERSION_WITH_RACK: Final = 11
_FIRST_VERSION_BY_ID: Final = 13
_FIRST_VERSION_WITH_STATE: Final = 15
_FIRST_VERSION_WITH_LEADERS: Final = 16
_READ_COMMITTED: Final = 1


class FetchHandler(Handler):
    api_key = 1

    def __init__(
        self,
        replicas: HostedReplicas,
        sessions: FetchSessions,
        reader: FetchReader,
        hints: LeaderHints,
        *,
        clock: Clock,
        spawn: Spawn,
        metrics: TopicMetrics,
        registry: MetricRegistry,
        max_bytes: int,
    ) -> None:
        """`max_bytes` is the broker's `fetch.max.bytes`."""
        self._replicas = replicas
        self._sessions = sessions
        self._reader = reader
        self._hints = hints
        self._clock = clock
        self._spawn = spawn
        self._metrics = metrics
        self._registry = registry
        self._max_bytes = max_bytes

    def handle(self, request: FetchRequest, context: RequestContext) -> FetchResponse | None:
        terms = self._terms(request, context)
        session = self._session(request, terms)
        if isinstance(session, ErrorCode):
            return FetchResponse(error_code=session)
        is_full = request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        fetch = _Fetch(self, request, context, terms, session, is_full=is_full)
        result = self._reader.read(fetch.wanted(), terms, is_first=True)
        if (
            result.has_news
            or result.byte_count >= terms.min_bytes
            or request.max_wait_ms <= 0
            or (session is None and not result.reads)
        ):
            fetch.send(result)
        else:
            self._wait(fetch, request.max_wait_ms, result)
        return None

    def _session(self, request: FetchRequest, terms: FetchTerms) -> FetchSession | ErrorCode | None:
        """The session that the request begins or goes on with; None without one."""
        sessions = self._sessions
        if request.session_epoch == FINAL_EPOCH:
            sessions.close(request.session_id)
            return None
        begin_or_resume = (
            sessions.open if request.session_epoch == INITIAL_EPOCH else sessions.resume
        )
        session = begin_or_resume(request, terms.replica_id, uses_ids=terms.is_by_id)
        if isinstance(session, FetchSession):
            session.replica_epoch = terms.replica_epoch
        return session

    def _terms(self, request: FetchRequest, context: RequestContext) -> FetchTerms:
        version = context.api_version
        has_state = version >= _FIRST_VERSION_WITH_STATE
        replica_id = request.replica_state.replica_id if has_state else request.replica_id
        max_bytes = max(0, min(request.max_bytes, self._max_bytes))
        if context.charge is not None:
            if replica_id >= 0:
                context.charge.is_exempt = True
            else:
                # More than that would be held back for ever.
                max_bytes = int(min(max_bytes, context.charge.most_to_fetch()))
        if replica_id >= 0:
            isolation = Isolation.LOG_END
        elif request.isolation_level == _READ_COMMITTED:
            isolation = Isolation.COMMITTED
        else:
            isolation = Isolation.HIGH_WATERMARK
        return FetchTerms(
            replica_id=replica_id,
            replica_epoch=request.replica_state.replica_epoch,
            max_bytes=max_bytes,
            min_bytes=min(request.min_bytes, max_bytes),
            isolation=isolation,
            is_by_id=version >= _FIRST_VERSION_BY_ID,
            is_for_leader=replica_id >= 0 or version < _FIRST_VERSION_WITH_RACK,
            rack_id="" if replica_id >= 0 else request.rack_id,
            may_read=_readable(context.access, replica_id) if context.access.is_limited else None,
        )

    def _wait(self, fetch: _Fetch, max_wait_ms: int, result: FetchResult) -> None:
        operation = DelayedFetch(
            max_wait_ms,
            fetch.terms,
            self._reader,
            wanted=fetch.candidates,
            respond=fetch.complete,
            on_expired=partial(self._count_expired, is_of_follower=fetch.terms.is_of_follower),
        )
        keys: list[FetchSession] | list[TopicPartition]
        if fetch.session is not None:
            keys = [fetch.session]
        else:
            found = [partition for _, partition, _ in result.reads if partition is not None]
            keys = list(dict.fromkeys(partition.topic_partition for partition in found))
        self._replicas.fetch_purgatory.try_complete_else_watch(operation, keys, has_looked=True)

    def answer(self, fetch: _Fetch, result: FetchResult) -> None:
        """Answer with what was read; later, if some of it has to be brought to memory."""
        terms, session, context = fetch.terms, fetch.session, fetch.context
        response = FetchResponse()
        if session is None or fetch.is_full:
            response.responses = result.topics()
        else:
            response.responses = self._reader.news(result)
        if session is not None:
            response.session_id = session.session_id
        if self._is_held_back(fetch, response):
            return
        if session is not None:
            self._reader.settle(result, terms)
        if result.has_news and context.api_version >= _FIRST_VERSION_WITH_LEADERS:
            self._add_leaders(response, context)
        self._count_bytes(result, terms)
        cold = list(_cold_slices(result))
        if cold:
            self._spawn(partial(context.respond_with, partial(_warmed, cold, response)))
        else:
            context.respond(response)

    def _is_held_back(self, fetch: _Fetch, response: FetchResponse) -> bool:
        """Whether the client has had so much that it gets nothing now (NET-84); it is told so.

        Its session stays as it was before; one that would begin now doesn't.
        """
        charge, context = fetch.context.charge, fetch.context
        if charge is None or fetch.terms.is_of_follower:
            return False
        parts = encode_response(response, context.api_version, context.correlation_id)
        delay_ms = charge.fetched(sum(map(len, parts)))
        if delay_ms <= 0:
            return False
        empty = FetchResponse(throttle_time_ms=delay_ms)
        if fetch.session is not None and not fetch.is_full:
            empty.session_id = fetch.session.session_id
        elif fetch.session is not None:
            self._sessions.close(fetch.session.session_id)
        context.respond(empty)
        return True

    def _add_leaders(self, response: FetchResponse, context: RequestContext) -> None:
        leaders = []
        for topic in response.responses:
            for data in topic.partitions:
                if is_misdirected(data.error_code):
                    leader, epoch = self._hints.leader_of(
                        topic.topic, topic.topic_id, data.partition_index
                    )
                    data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                    leaders.append(leader)
        if leaders:
            listener_name = context.channel.listener_name
            response.node_endpoints = self._hints.endpoints(leaders, listener_name, NodeEndpoint)

    def _count_bytes(self, result: FetchResult, terms: FetchTerms) -> None:
        if not result.byte_count:
            return
        now = self._clock.monotonic()
        if terms.is_of_follower:
            self._metrics.mark_all(REPLICATION_BYTES_OUT, now, result.byte_count)
            self._reader.sent(result)
            return
        for _, partition, data in result.reads:
            if partition is not None and data.records:
                topic = partition.topic_partition[0]
                self._metrics.mark(BYTES_OUT, topic, now, len(data.records))

    def _count_expired(self, *, is_of_follower: bool) -> None:
        now = self._clock.monotonic()
        tags = (("fetcherType", "follower" if is_of_follower else "consumer"),)
        name = MetricName("kafka.server", "DelayedFetchMetrics", "ExpiresPerSec", tags)
        self._registry.meter(name, now).mark(now)

    def read_again(self, fetch: _Fetch) -> FetchResult:
        return self._reader.read(fetch.wanted(), fetch.terms, is_first=False)

    def second_name(self, request: FetchRequest) -> str:
        """Followers' and consumers' fetches are told apart, as in Kafka."""
        is_of_follower = max(request.replica_id, request.replica_state.replica_id) >= 0
        return "FetchFollower" if is_of_follower else "FetchConsumer"

    def error_answer(
        self, request: FetchRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> FetchResponse:
        """Of the whole, and of each partition, where a version has nothing else."""
        response = FetchResponse(error_code=code)
        for topic in request.topics:
            partitions = [
                PartitionData(
                    partition_index=wanted.partition,
                    error_code=code,
                    high_watermark=-1,
                    aborted_transactions=None,
                    records=b"",
                )
                for wanted in topic.partitions
            ]
            response.responses.append(
                FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
                )
            )
        return response

    def error_codes(self, response: FetchResponse) -> Iterator[int]:
        yield response.error_code
        for topic in response.responses:
            for data in topic.partitions:
                yield data.error_code


class _Fetch:
    """One request on its way to its answer."""

    __slots__ = ("_handler", "_partitions", "context", "is_full", "session", "terms")

    def __init__(
        self,
        handler: FetchHandler,
        request: FetchRequest,
        context: RequestContext,
        terms: FetchTerms,
        session: FetchSession | None,
        *,
        is_full: bool,
    ) -> None:
        self._handler = handler
        self.context = context
        self.terms = terms
        self.session = session
        # Every partition is answered for, whether there is news of it or not.
        self.is_full = is_full
        # Those of a fetch without a session.
        self._partitions: list[FetchedPartition] = []
        if session is None:
            self._partitions = [
                FetchedPartition(topic.topic, topic.topic_id, wanted)
                for topic in request.topics
                for wanted in topic.partitions
            ]

    def wanted(self) -> Iterable[FetchedPartition]:
        """What the answer is about."""
        if self.session is None:
            return self._partitions
        if self.is_full:
            return list(self.session.partitions.values())
        return list(self.session.stirred)

    def candidates(self) -> Iterable[FetchedPartition]:
        """Where something may have come; not to be kept."""
        return self._partitions if self.session is None else self.session.stirred

    def send(self, result: FetchResult) -> None:
        self._handler.answer(self, result)

    def complete(self) -> None:
        """It has waited long enough. Whoever completes it is not concerned by a failure."""
        try:
            self.send(self._handler.read_again(self))
        except InternalInvariant:
            raise
        except Exception:
            log.exception("a fetch failed after its wait %s", self.context.describe())
            if not self.context.is_answered:
                self.context.respond_error(ErrorCode.UNKNOWN_SERVER_ERROR)


def _readable(access: Access, replica_id: int) -> Callable[[str], bool]:
    """Followers read everything, or nothing."""
    if replica_id >= 0:
        return lambda _topic: access.may_cluster(AclOperation.CLUSTER_ACTION)
    return lambda topic: access.may(AclOperation.READ, ResourceType.TOPIC, topic)


def _cold_slices(result: FetchResult) -> Iterator[FileSlice]:
    if not result.byte_count:
        return
    for _, _, data in result.reads:
        part = data.records
        if isinstance(part, FileSlice) and not part.file.resident(part.position, part.length):
            yield part


async def _warmed(cold: Iterable[FileSlice], response: FetchResponse) -> FetchResponse:
    """The answer, when what it consists of is in memory."""
    try:
        for part in cold:
            await part.file.warm(part.position, part.length)
    except OSError as error:
        # Sending meets the same error, and then the connection is closed.
        log.warning("could not read ahead for a fetch: %s", error)
    return response
