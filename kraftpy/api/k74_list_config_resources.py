"""ListConfigResources (74): what configurations could be described (KIP-1142).

Topics and brokers always have one. Groups and subscriptions to client metrics are resources from
the moment that something is set for them; the groups themselves are ListGroups' to list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata.records import ConfigResourceType
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kraftpy.security.acl_terms import AclOperation

__all__ = ["ListConfigResourcesHandler"]

_FIRST_VERSION_WITH_TYPES: Final = 1


class ListConfigResourcesHandler(Handler):
    api_key = 74
    cluster_operation = AclOperation.DESCRIBE_CONFIGS

    def __init__(self, cluster: BrokerMetadata) -> None:
        self._cluster = cluster

    def handle(
        self, request: ListConfigResourcesRequest, context: RequestContext
    ) -> ListConfigResourcesResponse:
        resources = [
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in _wanted(request, context)
            for name in self._names(kind, context.channel.listener_name)
        ]
        return ListConfigResourcesResponse(config_resources=resources)

    def _names(self, kind: ConfigResourceType, listener_name: str) -> Iterable[str]:
        if kind is ConfigResourceType.TOPIC:
            return self._cluster.image.topics
        if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
            return [str(broker.node_id) for broker in self._cluster.brokers(listener_name)]
        return [
            resource.name
            for resource in self._cluster.image.configs
            if resource.resource_type is kind
        ]


def _wanted(
    request: ListConfigResourcesRequest, context: RequestContext
) -> Iterable[ConfigResourceType]:
    """The types that are asked for, each once; all of them if none is. Raises ApiError."""
    if context.api_version < _FIRST_VERSION_WITH_TYPES:
        return (ConfigResourceType.CLIENT_METRICS,)
    if not request.resource_types:
        return ConfigResourceType
    try:
        return dict.fromkeys(ConfigResourceType(each) for each in request.resource_types)
    except ValueError:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, "there is a type of resources that is not known here"
        ) from None
