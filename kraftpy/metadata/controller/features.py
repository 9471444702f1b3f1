"""Raising and lowering the cluster's features.

All updates of a request happen, or none does. Every node that takes part must support the new
level: each registered broker, fenced ones included, and each controller. A voter that has not
registered may be an old one, and blocks the update. metadata.version goes down only if the log can
hold no record that the lower level doesn't know.

Turning eligible leader replicas on needs one min.insync.replicas for the whole cluster; turning
them off forgets who was eligible, because nobody would keep the lists true any more and they would
be believed when the feature comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, Protocol

from kraftpy.metadata.controller.configs import MIN_ISR
from kraftpy.metadata.controller.result import Caller, ControllerError, ControllerResult
from kraftpy.metadata.controller.view import MetadataView
from kraftpy.metadata.features import (
    CONTROLLER_REGISTRATION_LEVEL,
    ELIGIBLE_LEADER_REPLICAS,
    FEATURES,
    KRAFT_VERSION,
    changes_records_between,
    metadata_version_at,
    unmet_dependency,
)
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import (
    METADATA_VERSION,
    ClearElrRecord,
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = ["FeatureControl", "QuorumVersion", "elr_safety_records"]

# From this version of UpdateFeatures on, an update says in which direction it may go.
_FIRST_VERSION_WITH_UPGRADE_TYPES: Final = 1

DEFAULT_MIN_ISR: Final = "1"


class _Direction(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class QuorumVersion(Protocol):
    """What Raft knows of features: kraft.version is a matter of its own log."""

    @property
    def kraft_version(self) -> int: ...

    @property
    def voter_ids(self) -> Iterable[int]: ...

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Raise the level; ControllerError if it can't be. Raft writes the records itself."""
        ...


class FeatureControl:
    def __init__(self, context: MetadataView, quorum: QuorumVersion) -> None:
        self._context = context
        self._quorum = quorum

    def update_features(
        self, request: UpdateFeaturesRequest, caller: Caller
    ) -> ControllerResult[UpdateFeaturesResponse]:
        names = [update.feature for update in request.feature_updates]
        if len(set(names)) != len(names):
            raise ControllerError(ErrorCode.INVALID_REQUEST, "the request names a feature twice")
        image = self._context.image
        proposed = dict(image.features.items())
        proposed |= {each.feature: each.max_version_level for each in request.feature_updates}
        has_types = caller.api_version >= _FIRST_VERSION_WITH_UPGRADE_TYPES
        for update in request.feature_updates:
            direction = update.upgrade_type if has_types else _direction_of_v0(update)
            reason = self._refuse(update.feature, update.max_version_level, direction, proposed)
            if reason is not None:
                message = f"{update.feature} can't be at level {update.max_version_level}: {reason}"
                raise ControllerError(ErrorCode.INVALID_UPDATE_VERSION, message)
        level = proposed.get(KRAFT_VERSION)
        if level is not None and level != self._quorum.kraft_version:
            self._quorum.upgrade_kraft_version(level, validate_only=request.validate_only)
        answer = UpdateFeaturesResponse(
            results=[UpdatableFeatureResult(feature=name, error_message=None) for name in names]
        )
        if request.validate_only:
            return ControllerResult((), answer)
        levels = {name: proposed[name] for name in names if name != KRAFT_VERSION}
        return ControllerResult(tuple(self._records(levels)), answer)

    def _records(self, levels: Mapping[str, int]) -> Iterator[MetadataRecord]:
        image = self._context.image
        for name, level in levels.items():
            yield FeatureLevelRecord(name, level)
        elr_before = image.features.get(ELIGIBLE_LEADER_REPLICAS) or 0
        elr_after = levels.get(ELIGIBLE_LEADER_REPLICAS, elr_before)
        if elr_after and not elr_before:
            static = self._context.settings.static_configs
            yield from elr_safety_records(image, static.get(MIN_ISR, DEFAULT_MIN_ISR))
        elif elr_before and not elr_after:
            yield ClearElrRecord()

    def _refuse(
        self, name: str, level: int, direction: int, proposed: Mapping[str, int]
    ) -> str | None:
        """Why the cluster can't have this level; None if it can."""
        if name != METADATA_VERSION and name not in FEATURES:
            return "there is no such feature"
        if direction not in tuple(_Direction):
            return f"there is no upgrade type {direction}"
        if name == KRAFT_VERSION:
            current = self._quorum.kraft_version
        else:
            current = self._context.image.features.get(name) or 0
        if level < 0:
            return "a level is not negative"
        reason = self._unsupported(name, level)
        if reason is not None:
            return reason
        if level < current and direction == _Direction.UPGRADE:
            return f"it is at {current}, and a downgrade must be asked for as such"
        if level > current and direction != _Direction.UPGRADE:
            return f"it is at {current}, so that this is no downgrade"
        if name == METADATA_VERSION:
            return _refuse_metadata_version(current, level, direction, proposed)
        if name == KRAFT_VERSION and level < current:
            return "it is never lowered"
        return unmet_dependency(name, level, proposed.get(METADATA_VERSION, 0))

    def _unsupported(self, name: str, level: int) -> str | None:
        """Which node does not support the level, or can't be asked; None if all do."""
        settings, image = self._context.settings, self._context.image
        if not _supports(settings.features, name, level):
            return f"controller {settings.node_id} does not support it"
        for broker in image.brokers.values():
            if not _supports(broker.features, name, level):
                return f"broker {broker.broker_id} does not support it"
        if image.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
            return None
        for controller in image.controllers.values():
            is_other = controller.controller_id != settings.node_id
            if is_other and not _supports(controller.features, name, level):
                return f"controller {controller.controller_id} does not support it"
        for voter_id in sorted(self._quorum.voter_ids):
            if voter_id != settings.node_id and voter_id not in image.controllers:
                return f"controller {voter_id} has not registered and may not support it"
        return None


def _direction_of_v0(update: FeatureUpdateKey) -> _Direction:
    return _Direction.SAFE_DOWNGRADE if update.allow_downgrade else _Direction.UPGRADE


def _supports(features: Iterable[FeatureRange], name: str, level: int) -> bool:
    """Whether a node with these features does; one that isn't listed is supported at 0 alone."""
    for feature in features:
        if feature.name == name:
            return feature.min_supported_version <= level <= feature.max_supported_version
    return level == 0


def _refuse_metadata_version(
    current: int, level: int, direction: int, proposed: Mapping[str, int]
) -> str | None:
    if metadata_version_at(level) is None:
        return "there is no such version"
    if level < current and changes_records_between(level, current):
        if direction == _Direction.UNSAFE_DOWNGRADE:
            return "a downgrade that loses metadata is not supported"
        return f"the log may hold records that it can't have below {current}"
    for name in sorted(proposed):
        if name in FEATURES:
            reason = unmet_dependency(name, proposed[name], level)
            if reason is not None:
                return f"{name} is at {proposed[name]} and {reason}"
    return None


def elr_safety_records(image: MetadataImage, default_min_isr: str) -> Iterator[ConfigRecord]:
    """One min.insync.replicas for the whole cluster, without which eligibility means nothing.

    `default_min_isr` is what the controller's own configuration says.
    """
    if MIN_ISR not in image.config(ConfigResourceType.BROKER, ""):
        yield ConfigRecord(ConfigResourceType.BROKER, "", MIN_ISR, default_min_isr)
    for resource, settings in image.configs.items():
        is_single_broker = resource.resource_type is ConfigResourceType.BROKER and resource.name
        if is_single_broker and MIN_ISR in settings:
            yield ConfigRecord(ConfigResourceType.BROKER, resource.name, MIN_ISR, None)
