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
from dataclasses import dataclass
from typing import Protocol

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

__all__ = ["API_VERSIONS_KEY", "ApiVersionsHandler", "FeatureRange", "FeatureView"]

API_VERSIONS_KEY = 18
_FIRST_VERSION_WITH_CLIENT_SOFTWARE = 3
_FIRST_VERSION_WITH_FEATURES_FROM_0 = 4
_SOFTWARE_PATTERN = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """The lowest and highest level of one feature that this node supports."""

    name: str
    min_level: int
    max_level: int


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

    def __init__(self, other_keys: Iterable[int], features: FeatureView) -> None:
        self._features = features
        self._ranges = [_listed(key) for key in sorted([*other_keys, self.api_key])]
        self._own_range = _listed(self.api_key)

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
            api_keys=self._ranges,
            supported_features=[
                SupportedFeatureKey(
                    name=feature.name, min_version=feature.min_level, max_version=feature.max_level
                )
                for feature in self._features.supported_features()
                if feature.min_level >= least_level
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
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[self._own_range]
        )


def _listed(api_key: int) -> ApiVersion:
    spec = API[api_key]
    return ApiVersion(
        api_key=api_key,
        min_version=spec.advertised_min_version,
        max_version=spec.max_version,
    )


def _is_valid_software(text: str) -> bool:
    return _SOFTWARE_PATTERN.fullmatch(text) is not None
