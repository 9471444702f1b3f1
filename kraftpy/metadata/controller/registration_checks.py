"""What a node that registers must say about itself, and what must fit the cluster.

Kafka trusts what nodes send in a few places where we don't: names that come twice, ranges that end
before they begin, lists without end. They get the error of a registration that makes no sense.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from kraftpy.metadata.controller.result import ControllerError
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import METADATA_VERSION, Endpoint, FeatureRange
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid, format_uuid

__all__ = [
    "FEATURES_MAX",
    "LISTENERS_MAX",
    "LOG_DIRS_MAX",
    "TEXT_LENGTH_MAX",
    "check_directories",
    "check_features",
    "check_text",
    "end_points",
    "feature_ranges",
    "invalid",
]

LISTENERS_MAX: Final = 64
FEATURES_MAX: Final = 256
LOG_DIRS_MAX: Final = 1024
# Host names end at 253 characters, names of racks and features long before.
TEXT_LENGTH_MAX: Final = 1024

# PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.
_SECURITY_PROTOCOLS: Final = range(4)
# The first ids, as numbers, stand for directories that are none: unassigned, lost, and to come.
_RESERVED_DIRECTORIES_END: Final = 100


class _Listener(Protocol):
    name: str
    host: str
    port: int
    security_protocol: int


class _Feature(Protocol):
    name: str
    min_supported_version: int
    max_supported_version: int


def invalid(message: str) -> ControllerError:
    return ControllerError(ErrorCode.INVALID_REGISTRATION, message)


def check_text(*texts: str) -> None:
    if any(len(text) > TEXT_LENGTH_MAX for text in texts):
        raise invalid(f"a name has more than {TEXT_LENGTH_MAX} characters")


def _check_names(kind: str, names: Sequence[str], count_max: int) -> None:
    if len(names) > count_max:
        raise invalid(f"{len(names)} {kind}s; {count_max} are allowed")
    check_text(*names)
    if len(set(names)) != len(names):
        raise invalid(f"a {kind} is given twice")


def end_points(listeners: Sequence[_Listener]) -> tuple[Endpoint, ...]:
    _check_names("listener", [listener.name for listener in listeners], LISTENERS_MAX)
    check_text(*[listener.host for listener in listeners])
    for listener in listeners:
        if listener.security_protocol not in _SECURITY_PROTOCOLS:
            raise invalid(
                f"listener {listener.name} has the security protocol {listener.security_protocol}"
            )
    return tuple(
        Endpoint(listener.name, listener.host, listener.port, listener.security_protocol)
        for listener in listeners
    )


def feature_ranges(features: Sequence[_Feature]) -> tuple[FeatureRange, ...]:
    _check_names("feature", [feature.name for feature in features], FEATURES_MAX)
    for feature in features:
        if not 0 <= feature.min_supported_version <= feature.max_supported_version:
            raise invalid(f"feature {feature.name} has no levels between its bounds")
    return tuple(
        FeatureRange(feature.name, feature.min_supported_version, feature.max_supported_version)
        for feature in features
    )


def check_features(image: MetadataImage, ranges: Iterable[FeatureRange]) -> None:
    """Whether a node can work at the cluster's levels; a feature unnamed is one it lacks."""
    supported = {feature.name: feature for feature in ranges}
    if METADATA_VERSION not in supported:
        raise invalid(f"no range of {METADATA_VERSION} is given")
    for name, level in image.features.items():
        feature = supported.get(name) or FeatureRange(name, 0, 0)
        if not feature.min_supported_version <= level <= feature.max_supported_version:
            raise ControllerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster has {name} at level {level}; the node supports "
                f"{feature.min_supported_version} to {feature.max_supported_version}",
            )


def check_directories(image: MetadataImage, broker_id: int, log_dirs: Sequence[Uuid]) -> None:
    """Directories have ids of their own, and nobody else has them."""
    if not log_dirs:
        raise invalid("no directory is given")
    if len(log_dirs) > LOG_DIRS_MAX:
        raise invalid(f"{len(log_dirs)} directories; {LOG_DIRS_MAX} are allowed")
    own = set(log_dirs)
    if any(int.from_bytes(each, "big") < _RESERVED_DIRECTORIES_END for each in log_dirs):
        raise invalid("the id of a directory is a reserved one")
    if len(own) != len(log_dirs):
        raise invalid("a directory is given twice")
    for broker in image.brokers.values():
        if broker.broker_id == broker_id:
            continue
        for directory in broker.log_dirs:
            if directory in own:
                raise invalid(
                    f"directory {format_uuid(directory)} belongs to broker {broker.broker_id}"
                )
