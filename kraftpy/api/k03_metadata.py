"""Metadata (3): the brokers of the cluster and, so far, the absence of its topics.

A topic is asked for by name, or from version 12 on by id. The list of topics means "all" when it is
null, and in version 0, which can't say null, when it is empty (NET-79). Brokers are listed with the
address of the listener that the request came in on (NET-80).
"""

from __future__ import annotations

import re

from kraftpy.api.cluster import CLUSTER_OPERATIONS, ClusterView
from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.protocol.schema.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

__all__ = ["MetadataHandler"]

_FIRST_VERSION_BY_ID = 12
_INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}", re.ASCII)


class MetadataHandler(Handler):
    api_key = 3

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    def handle(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        cluster = self._cluster
        _check_topics(request, context.api_version)
        answer = MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in cluster.brokers(context.channel.listener_name)
            ],
            cluster_id=cluster.cluster_id,
            controller_id=cluster.controller_for_clients(),
            topics=_missing_topics(request),
        )
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = CLUSTER_OPERATIONS
        return answer

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

    def error_codes(self, response: MetadataResponse) -> list[int]:
        return [response.error_code, *(topic.error_code for topic in response.topics)]


def _check_topics(request: MetadataRequest, version: int) -> None:
    """Versions 10 and 11 have the fields of a lookup by id, but not its meaning."""
    if version >= _FIRST_VERSION_BY_ID or request.topics is None:
        return
    for topic in request.topics:
        if topic.name is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a topic needs a name in version {version}")
        if topic.topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"version {version} takes no topic ids")


def _missing_topics(request: MetadataRequest) -> list[MetadataResponseTopic]:
    """An answer for each topic that was asked for, once: a cluster without topics has none."""
    asked = request.topics or []
    ids = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID)
    if ids:
        # With one topic id in the request, names in it are not looked at, as in Kafka.
        return [
            MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=each)
            for each in ids
        ]
    return [_missing_topic(name) for name in dict.fromkeys(map(_name_of, asked))]


def _name_of(topic: MetadataRequestTopic) -> str:
    return topic.name or ""


def _missing_topic(name: str) -> MetadataResponseTopic:
    is_possible = _TOPIC_NAME.fullmatch(name) is not None
    return MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_possible
        else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in _INTERNAL_TOPICS,
    )
