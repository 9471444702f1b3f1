"""Metadata (3): the brokers of the cluster, its topics, and who leads their partitions.

A topic is asked for by name, or from version 12 on by id. The list of topics means "all" when it is
null, and in version 0, which can't say null, when it is empty (NET-79). Brokers are listed with the
address of the listener that the request came in on (NET-80).

With an authorizer, topics that the sender may not describe are left out of "all", and refused when
asked for, whether they exist or not. To have a topic created one must be allowed to create it.

A topic that isn't there is created if the request and the node's settings allow it, which takes
longer than the answer: LEADER_NOT_AVAILABLE makes the client ask again (NET-77).

An answer with many partitions is put together in slices, by a task of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, TypeAlias

import trio

from kraftpy.api.access import Access
from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.api.metadata_slices import SlicedTopics
from kraftpy.api.partition_view import INTERNAL_TOPICS, ListenerView, PartitionView
from kraftpy.broker.envelope import Sender
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.topic_creation import AutoTopicCreation
from kraftpy.metadata.controller.topic_names import wrong_name
from kraftpy.metadata.image import TopicImage
from kraftpy.metadata.records import PartitionRecord
from kraftpy.net.line import Spawn
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["MetadataHandler"]

_FIRST_VERSION_BY_ID = 12
_FIRST_VERSION_WITH_ABSENT_REPLICAS = 1
_FIRST_VERSION_WITH_MISSING_LISTENERS = 6

# About a millisecond's work.
_PARTITIONS_OF_A_SLICE: Final = 250

# A topic that is there, or what is said of one that isn't.
_Found: TypeAlias = TopicImage | MetadataResponseTopic


class MetadataHandler(Handler):
    api_key = 3

    def __init__(
        self,
        cluster: BrokerMetadata,
        creation: AutoTopicCreation | None = None,
        *,
        spawn: Spawn | None = None,
    ) -> None:
        """Without `creation`, topics come into being only when somebody creates them.

        `spawn` starts tasks; without it, large answers are put together at once as well.
        """
        self._cluster = cluster
        self._creation = creation
        self._spawn = spawn

    def handle(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse | None:
        cluster = self._cluster
        version = context.api_version
        _check_topics(request, version)
        brokers = cluster.brokers(context.channel.listener_name)
        answer = MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in brokers
            ],
            cluster_id=cluster.cluster_id,
            controller_id=cluster.controller_for_clients(brokers),
        )
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = context.access.cluster_operations()
        found = self._find(request, context)
        view = ListenerView(cluster.image, context.channel.listener_name, cluster.suspected())
        asker = context.access if request.include_topic_authorized_operations else None
        writer = _TopicWriter(view, version, asker)
        if self._spawn is None or not _is_large(found):
            answer.topics = [writer.topic(topic) for topic in found]
            return answer
        sliced = SlicedTopics(version)
        work = partial(_slice, answer, found, writer, sliced)
        self._spawn(partial(context.respond_with, work, sliced.encode_response))
        return None

    def error_answer(
        self,
        request: MetadataRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> MetadataResponse:
        """Each topic asked for carries the error; from version 13 on the answer itself as well."""
        topics = request.topics or []
        can_be_null = context.api_version >= _FIRST_VERSION_BY_ID
        return MetadataResponse(
            error_code=code,
            topics=[
                MetadataResponseTopic(
                    error_code=code,
                    name=topic.name if can_be_null else topic.name or "",
                    topic_id=topic.topic_id,
                )
                for topic in topics
            ],
        )

    def error_codes(self, response: MetadataResponse) -> Iterator[int]:
        yield response.error_code
        for topic in response.topics:
            yield topic.error_code

    def _find(self, request: MetadataRequest, context: RequestContext) -> list[_Found]:
        image = self._cluster.image
        asked = request.topics
        if asked is None or (context.api_version == 0 and not asked):
            return [
                topic
                for topic in image.topics.values()
                if _may_describe(context.access, topic.name, is_probe=True)
            ]
        ids = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID)
        if ids:
            # With one topic id in the request, names in it are not looked at, as in Kafka.
            return [self._find_by_id(topic_id, context.access) for topic_id in ids]
        names = list(dict.fromkeys(topic.name or "" for topic in asked))
        hidden = {
            name: ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for name in names
            if not _may_describe(context.access, name)
        }
        missing = [name for name in names if name not in image.topics and name not in hidden]
        codes = self._missing(missing, request, context)
        codes |= hidden
        return [
            MetadataResponseTopic(
                error_code=codes[name],
                name=name,
                is_internal=name in INTERNAL_TOPICS and name not in hidden,
            )
            if name in codes
            else image.topics[name]
            for name in names
        ]

    def _find_by_id(self, topic_id: Uuid, access: Access) -> _Found:
        found = self._cluster.image.topic_by_id(topic_id)
        if found is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif not _may_describe(access, found.name):
            # Ids are no secret, names are.
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            return found
        return MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id)

    def _missing(
        self, names: list[str], request: MetadataRequest, context: RequestContext
    ) -> dict[str, ErrorCode]:
        """What to say of topics that aren't there; some may be on their way."""
        codes = {
            name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if wrong_name(name) is None
            else ErrorCode.INVALID_TOPIC_EXCEPTION
            for name in names
        }
        if self._creation is not None and request.allow_auto_topic_creation:
            possible = [
                name for name, code in codes.items() if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ]
            denied = _not_creatable(context.access, possible)
            codes |= denied
            channel = context.channel
            sender = Sender(channel.principal, channel.client_host)
            allowed = [name for name in possible if name not in denied]
            codes |= self._creation.create(allowed, sender)
        return codes


def _may_describe(access: Access, name: str, *, is_probe: bool = False) -> bool:
    return access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_probe=is_probe)


def _not_creatable(access: Access, names: list[str]) -> dict[str, ErrorCode]:
    if access.may_cluster(AclOperation.CREATE, is_probe=True):
        return {}
    return {
        name: ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for name in names
        if not access.may(AclOperation.CREATE, ResourceType.TOPIC, name)
    }


def _check_topics(request: MetadataRequest, version: int) -> None:
    """Versions 10 and 11 have the fields of a lookup by id, but not its meaning."""
    if version >= _FIRST_VERSION_BY_ID or request.topics is None:
        return
    for topic in request.topics:
        if topic.name is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a topic needs a name in version {version}")
        if topic.topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"version {version} takes no topic ids")


def _is_large(found: list[_Found]) -> bool:
    return sum(len(topic.partitions) for topic in found) > _PARTITIONS_OF_A_SLICE


async def _slice(
    answer: MetadataResponse, found: list[_Found], writer: _TopicWriter, sliced: SlicedTopics
) -> MetadataResponse:
    """Write the topics of an answer, with others served in between; it keeps their error codes."""
    batch: list[MetadataResponseTopic] = []
    size = 0
    for topic in found:
        written = writer.start(topic)
        for start in range(0, len(topic.partitions), _PARTITIONS_OF_A_SLICE):
            if size >= _PARTITIONS_OF_A_SLICE:
                await trio.lowlevel.checkpoint()
                size = 0
            some = writer.partitions(topic, slice(start, start + _PARTITIONS_OF_A_SLICE))
            written.partitions += some
            size += len(some)
        batch.append(written)
        if size >= _PARTITIONS_OF_A_SLICE or len(batch) >= _PARTITIONS_OF_A_SLICE:
            sliced.append(batch)
            for each in batch:
                each.partitions = []
            answer.topics += batch
            batch = []
            await trio.lowlevel.checkpoint()
            size = 0
    sliced.append(batch)
    answer.topics += batch
    return answer


class _TopicWriter:
    """Topics as one answer has them; with what `asker` may do to them, if there is one."""

    __slots__ = ("_asker", "_version", "_view")

    def __init__(self, view: ListenerView, version: int, asker: Access | None) -> None:
        self._view = view
        self._version = version
        self._asker = asker

    def topic(self, found: _Found) -> MetadataResponseTopic:
        written = self.start(found)
        if isinstance(found, TopicImage):
            written.partitions = self.partitions(found, slice(None))
        return written

    def start(self, found: _Found) -> MetadataResponseTopic:
        """A topic without its partitions."""
        if isinstance(found, MetadataResponseTopic):
            return found
        written = MetadataResponseTopic(
            name=found.name, topic_id=found.topic_id, is_internal=found.name in INTERNAL_TOPICS
        )
        if self._asker is not None:
            operations = self._asker.operations(ResourceType.TOPIC, found.name)
            written.topic_authorized_operations = operations
        return written

    def partitions(self, found: _Found, which: slice) -> list[MetadataResponsePartition]:
        view, version = self._view, self._version
        if isinstance(found, MetadataResponseTopic):
            return []
        return [
            _partition(view.of(partition), partition, version)
            for partition in found.partitions[which]
        ]


def _partition(
    view: PartitionView, partition: PartitionRecord, version: int
) -> MetadataResponsePartition:
    code, replicas, isr = view.error_code, partition.replicas, partition.isr
    if version < _FIRST_VERSION_WITH_ABSENT_REPLICAS:
        replicas = tuple(each for each in replicas if each not in view.offline_replicas)
        isr = tuple(each for each in isr if each not in view.offline_replicas)
        has_all = len(replicas) == len(partition.replicas) and len(isr) == len(partition.isr)
        if code is ErrorCode.NONE and not has_all:
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    if code is ErrorCode.LISTENER_NOT_FOUND and version < _FIRST_VERSION_WITH_MISSING_LISTENERS:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition.partition_id,
        leader_id=view.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(isr),
        offline_replicas=view.offline_replicas,
    )
