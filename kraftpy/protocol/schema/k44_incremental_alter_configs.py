"""IncrementalAlterConfigs: change configuration."""

from __future__ import annotations

from kraftpy.protocol.tables import (
    ALL,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)


class AlterableConfig(Struct):
    name: str = string(key=True)
    config_operation: int = int8(key=True)
    value: str | None = string(nullable=ALL)


class AlterConfigsResource(Struct):
    resource_type: int = int8(key=True)
    resource_name: str = string(key=True)
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    """Set, delete, append to or subtract from single configuration keys."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    """What became of each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
