"""AlterConfigs (33) and IncrementalAlterConfigs (44) on a broker: its own settings it judges first.

The controller judges a broker's keys one by one; only the broker knows what else it is configured
with, and so whether all of it fits together. A resource that it refuses goes no further, the others
travel to the controller, and the client gets one answer about all of them. Nothing is refused on
behalf of another broker: clients send such requests to the broker that they are about. Its loggers
are its own affair (logger_levels.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kraftpy.api.forwarding import ForwardingHandler
from kraftpy.api.handler import RequestContext
from kraftpy.api.logger_levels import alter_loggers
from kraftpy.broker.envelope import joined
from kraftpy.broker.forwarder import Forwarder
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.config.dynamic import DynamicConfig
from kraftpy.config.problems import ConfigurationError
from kraftpy.metadata.controller.config_alterations import Alteration, increments, replacement
from kraftpy.metadata.controller.result import Refusal
from kraftpy.metadata.records import ConfigResourceType
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import encode_request
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema import k33_alter_configs as k33
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.security.acl_terms import AclOperation

__all__ = ["CONFIG_APIS", "ConfigForwardingHandler"]

_ALTERATIONS: Final[dict[int, Callable[[Any, Any], Alteration]]] = {
    33: replacement,
    44: increments,
}
_RESULTS: Final = {33: k33.AlterConfigsResourceResponse, 44: k44.AlterConfigsResourceResponse}

CONFIG_APIS: Final = tuple(_ALTERATIONS)


class ConfigForwardingHandler(ForwardingHandler):
    def __init__(
        self,
        api_key: int,
        forwarder: Forwarder,
        cluster: BrokerMetadata,
        config: DynamicConfig,
    ) -> None:
        super().__init__(api_key, forwarder)
        self._cluster = cluster
        self._config = config

    def handle(self, request: Any, context: RequestContext) -> None:
        answered: list[Any] = []
        resources: list[Any] = request.resources
        if isinstance(request, k44.IncrementalAlterConfigsRequest):
            may_alter = partial(context.access.may_cluster, AclOperation.ALTER_CONFIGS)
            answered, resources = alter_loggers(request, self._config.current.node_id, may_alter)
        accepted: list[Any] = []
        for resource in resources:
            refusal = self._refuse(resource)
            if refusal is None:
                accepted.append(resource)
            else:
                answered.append(self._result(resource, refusal))
        if not answered:
            self.forward(context.frame, request, context)
        elif not accepted:
            response_class: Any = API[self.api_key].response_class
            context.respond(response_class(responses=answered))
        else:
            rest = type(request)(resources=accepted, validate_only=request.validate_only)
            frame = encode_request(
                rest, context.api_version, context.correlation_id, context.client_id
            )

            def finish(response: Any) -> None:
                response.responses += answered
                context.respond(response)

            self.forward(joined(frame), request, context, finish)

    def _refuse(self, resource: Any) -> Refusal | None:
        """Why this broker can't have these settings; None if it can, or isn't meant."""
        name = resource.resource_name
        own_names = ("", str(self._config.current.node_id))
        if resource.resource_type != ConfigResourceType.BROKER or name not in own_names:
            return None
        present = self._cluster.image.config(ConfigResourceType.BROKER, name)
        changes = _ALTERATIONS[self.api_key](present, resource)
        if isinstance(changes, Refusal):
            return changes
        after = {**present, **changes}
        settings = {key: value for key, value in after.items() if value is not None}
        try:
            self._config.check(settings, per_broker=bool(name))
        except ConfigurationError as error:
            reasons = "; ".join(str(problem) for problem in error.problems)
            return Refusal(ErrorCode.INVALID_REQUEST, reasons)
        return None

    def _result(self, resource: Any, refusal: Refusal) -> Any:
        return _RESULTS[self.api_key](
            error_code=refusal.code,
            error_message=refusal.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
