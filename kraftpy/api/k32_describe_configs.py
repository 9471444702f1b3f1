"""DescribeConfigs (32): what is set, where it was set, and what would hold otherwise.

Settings of topics, groups and subscriptions come from the image, so that any node can tell them.
Those of a broker, and its loggers, are known to itself alone: asked about another one it refuses.
The broker without a name stands for what is set for all brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftpy.api.access import Access
from kraftpy.api.config_access import refuse_configs
from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.config.definition import ConfigType
from kraftpy.config.describe import (
    Description,
    Synonym,
    describe_client_metrics,
    describe_cluster_defaults,
    describe_group,
    describe_node,
    describe_topic,
)
from kraftpy.config.dynamic import DynamicConfig
from kraftpy.config.problems import ConfigurationError
from kraftpy.config.topic_config import TopicConfig
from kraftpy.metadata.controller.topic_names import wrong_name
from kraftpy.metadata.records import ConfigResourceType
from kraftpy.observe.log_levels import levels
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kraftpy.security.acl_terms import AclOperation

__all__ = ["DescribeConfigsHandler"]

_UNKNOWN_TYPE: Final = 0
_STRING_TYPE: Final = 2
_LOGGER_SOURCE: Final = 6
_TYPE_NUMBERS: Final = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: _STRING_TYPE,
    ConfigType.INT: 3,
    ConfigType.SHORT: 4,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.CLASS: 8,
    ConfigType.PASSWORD: 9,
}


class DescribeConfigsHandler(Handler):
    api_key = 32

    def __init__(self, cluster: BrokerMetadata, config: DynamicConfig) -> None:
        self._cluster = cluster
        self._config = config

    def handle(
        self, request: DescribeConfigsRequest, context: RequestContext
    ) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                self._describe(resource, request, context.access) for resource in request.resources
            ]
        )

    def error_answer(
        self,
        request: DescribeConfigsRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[_refusal(resource, code, message) for resource in request.resources]
        )

    def error_codes(self, response: DescribeConfigsResponse) -> Iterator[int]:
        for result in response.results:
            yield result.error_code

    def _describe(
        self, resource: DescribeConfigsResource, request: DescribeConfigsRequest, access: Access
    ) -> DescribeConfigsResult:
        refusal = refuse_configs(
            access, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
        )
        if refusal is not None:
            return _refusal(resource, refusal, refusal.message)
        try:
            found = self._configs_of(resource, request)
        except ApiError as error:
            return _refusal(resource, error.code, error.message)
        except ConfigurationError as error:
            reasons = "; ".join(str(problem) for problem in error.problems)
            return _refusal(resource, ErrorCode.INVALID_CONFIG, reasons)
        # An empty list of keys asks for all of them, like none at all.
        keys = resource.configuration_keys
        return DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[each for each in found if not keys or each.name in keys],
        )

    def _configs_of(
        self, resource: DescribeConfigsResource, request: DescribeConfigsRequest
    ) -> list[DescribeConfigsResourceResult]:
        if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
            self._check_own_id(resource.resource_name)
            return _loggers()
        return [
            _result(
                each,
                with_synonyms=request.include_synonyms,
                with_documentation=request.include_documentation,
            )
            for each in self._descriptions(resource)
        ]

    def _descriptions(self, resource: DescribeConfigsResource) -> list[Description]:
        image, config, name = self._cluster.image, self._config, resource.resource_name
        match resource.resource_type:
            case ConfigResourceType.TOPIC:
                reason = wrong_name(name)
                if reason is not None:
                    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
                if name not in image.topics:
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                own = image.config(ConfigResourceType.TOPIC, name)
                return describe_topic(TopicConfig(own, config.current), config)
            case ConfigResourceType.BROKER if not name:
                return describe_cluster_defaults(config)
            case ConfigResourceType.BROKER:
                self._check_own_id(name)
                return describe_node(config)
            case ConfigResourceType.GROUP | ConfigResourceType.CLIENT_METRICS if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the resource needs a name")
            case ConfigResourceType.GROUP:
                return describe_group(image.config(ConfigResourceType.GROUP, name), config)
            case ConfigResourceType.CLIENT_METRICS:
                own = image.config(ConfigResourceType.CLIENT_METRICS, name)
                return describe_client_metrics(own, config)
        reason = f"there are no settings for resources of type {resource.resource_type}"
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)

    def _check_own_id(self, name: str) -> None:
        own_id = self._config.current.node_id
        if name != str(own_id):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"this is node {own_id}, asked for is {name[:20]!r}"
            )


def _refusal(
    resource: DescribeConfigsResource, code: ErrorCode, message: str
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _result(
    described: Description, *, with_synonyms: bool, with_documentation: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=described.name,
        value=described.value,
        read_only=described.read_only,
        config_source=described.source,
        is_sensitive=described.sensitive,
        synonyms=[_synonym(each) for each in described.synonyms] if with_synonyms else [],
        config_type=_UNKNOWN_TYPE if described.type is None else _TYPE_NUMBERS[described.type],
        documentation=described.doc if with_documentation else None,
    )


def _synonym(synonym: Synonym) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)


def _loggers() -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(
            name=name,
            value=level,
            config_source=_LOGGER_SOURCE,
            config_type=_STRING_TYPE,
            documentation=None,
        )
        for name, level in levels().items()
    ]
