"""IncrementalAlterConfigs (44) of a node's loggers: the node that is asked changes its own.

That is no part of the cluster's metadata, so it never reaches the controller, and a restart ends
it. A resource is changed whole or not at all.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from kraftpy.metadata.controller.config_alterations import Operation
from kraftpy.metadata.controller.result import Refusal
from kraftpy.metadata.records import ConfigResourceType
from kraftpy.observe.log_levels import LEVELS, ROOT, has_logger, set_level, unset_level
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)

__all__ = ["alter_loggers"]

log = logging.getLogger(__name__)

_Split: TypeAlias = tuple[list[AlterConfigsResourceResponse], list[AlterConfigsResource]]


def alter_loggers(
    request: IncrementalAlterConfigsRequest,
    node_id: int,
    may_alter: Callable[[], bool] = lambda: True,
) -> _Split:
    """What came of the resources that are loggers; and the other resources.

    `may_alter` is asked whether the sender may change loggers at all, if there are any to change.
    """
    loggers: list[AlterConfigsResource] = []
    others: list[AlterConfigsResource] = []
    for resource in request.resources:
        is_logger = resource.resource_type == ConfigResourceType.BROKER_LOGGER
        (loggers if is_logger else others).append(resource)
    named = Counter(resource.resource_name for resource in loggers)
    answers = []
    for resource in loggers:
        refusal = _refuse(resource, node_id) if may_alter() else _not_allowed()
        if named[resource.resource_name] > 1:
            refusal = _wrong("the request names the resource twice")
        if refusal is None and not request.validate_only:
            _alter(resource)
        answers.append(
            AlterConfigsResourceResponse(
                error_code=ErrorCode.NONE if refusal is None else refusal.code,
                error_message=None if refusal is None else refusal.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return answers, others


def _refuse(resource: AlterConfigsResource, node_id: int) -> Refusal | None:
    name = resource.resource_name
    if name != str(node_id):
        return _wrong(f"this is node {node_id}, asked for is {name[:20]!r}")
    seen = set()
    for config in resource.configs:
        if config.name in seen:
            return _wrong(f"{config.name} is named twice")
        seen.add(config.name)
        refusal = _refuse_change(config)
        if refusal is not None:
            return refusal
    return None


def _refuse_change(config: AlterableConfig) -> Refusal | None:
    operation, name, level = config.config_operation, config.name, config.value
    if operation not in (Operation.SET, Operation.DELETE):
        return _wrong(f"operation {operation} is not for loggers")
    if operation == Operation.SET and level is None:
        return _wrong(f"{name} can't be set to null")
    if not has_logger(name):
        return Refusal(ErrorCode.INVALID_CONFIG, f"there is no logger {name}")
    if operation == Operation.SET and level not in LEVELS:
        reason = f"{name} can't have the level {level}; levels are {', '.join(LEVELS)}"
        return Refusal(ErrorCode.INVALID_CONFIG, reason)
    if operation == Operation.DELETE and name == ROOT:
        return _wrong(f"{ROOT} must have a level")
    return None


def _not_allowed() -> Refusal:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return Refusal(code, code.message)


def _wrong(reason: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, reason)


def _alter(resource: AlterConfigsResource) -> None:
    for config in resource.configs:
        if config.config_operation == Operation.SET and config.value is not None:
            set_level(config.name, config.value)
            log.warning("logger level set logger=%s level=%s", config.name, config.value)
        else:
            unset_level(config.name)
            log.warning("logger level unset logger=%s", config.name)
