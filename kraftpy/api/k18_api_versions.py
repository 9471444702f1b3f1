"""ApiVersions (18): which APIs and versions this listener serves, and the features behind them.

The answer lists what is implemented and nothing else, with two bows to clients in the field. The
minimum of Produce is given as 0 although versions 0 to 2 are refused: librdkafka before 2.11.1
takes a higher one for a broker without gzip, snappy and lz4, and sends uncompressed data. And
features whose lowest level is 0 are left out below version 4, because older Java clients fail on
them (KAFKA-17011).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from kraftpy.api.api_keys import API_VERSIONS_KEY
from kraftpy.api.handler import Handler, RequestContext
from kraftpy.metadata.records import FeatureRange
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

__all__ = ["ApiVersionsHandler", "FeatureView"]

_FIRST_VERSION_WITH_CLIENT_SOFTWARE = 3
_FIRST_VERSION_WITH_FEATURES_FROM_0 = 4
_SOFTWARE_PATTERN = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class FeatureView(Protocol):
    """What ApiVersions asks of the cluster's metadata."""

    def supported_features(self) -> Iterable[FeatureRange]: ...

    def finalized_features(self) -> Iterable[tuple[str, int]]:
        """Name and level of each feature the cluster has agreed on."""
        ...

    def finalized_features_epoch(self) -> int:
        """The metadata offset at which that was so; -1 when nothing is known yet."""
        ...


class ApiVersionsHandler(Handler):
    api_key = API_VERSIONS_KEY

    def __init__(self, others: Iterable[Handler], features: FeatureView) -> None:
        """`others` are all the handlers of the listener but this one."""
        self._features = features
        self._handlers = sorted([*others, self], key=lambda handler: handler.api_key)

    def handle(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        version = context.api_version
        if version >= _FIRST_VERSION_WITH_CLIENT_SOFTWARE:
            name, software_version = request.client_software_name, request.client_software_version
            if not (_is_valid_software(name) and _is_valid_software(software_version)):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            context.channel.client_software_name = name
            context.channel.client_software_version = software_version
        least_level = 0 if version >= _FIRST_VERSION_WITH_FEATURES_FROM_0 else 1
        return ApiVersionsResponse(
            api_keys=_listed(self._handlers),
            supported_features=[
                SupportedFeatureKey(name=name, min_version=min_level, max_version=max_level)
                for name, min_level, max_level in self._features.supported_features()
                if min_level >= least_level
            ],
            finalized_features_epoch=self._features.finalized_features_epoch(),
            finalized_features=[
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in self._features.finalized_features()
                if level > 0
            ],
        )

    def unsupported_version_answer(self) -> ApiVersionsResponse:
        """The answer, in the layout of version 0, to a version we don't know: which ones we do."""
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_listed([self])
        )


def _listed(handlers: Iterable[Handler]) -> list[ApiVersion]:
    ranges = [(handler.api_key, handler.versions()) for handler in handlers]
    return [
        ApiVersion(api_key=key, min_version=versions[0], max_version=versions[1])
        for key, versions in ranges
        if versions is not None
    ]


def _is_valid_software(text: str) -> bool:
    return _SOFTWARE_PATTERN.fullmatch(text) is not None
