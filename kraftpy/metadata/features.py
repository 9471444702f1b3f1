"""The features of a cluster: which levels there are, what each one needs, and what comes with it.

A feature has one level for the whole cluster, fixed in the metadata log. metadata.version is the
one that every cluster has: it says which records the log may hold and which versions of requests
nodes use among themselves, and it names a release. The others are off at level 0. All figures are
Apache Kafka 4.3's.

kraft.version is a feature to those who ask, but no record of this log: Raft keeps it in control
records of its own. There are no share groups and no Streams groups here, so that the levels which
turn them on are known and refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from kraftpy.metadata.records import METADATA_VERSION, FeatureRange

__all__ = [
    "CONTROLLER_REGISTRATION_LEVEL",
    "CORDONED_DIRECTORIES_LEVEL",
    "DELEGATION_TOKENS_LEVEL",
    "DIRECTORIES_LEVEL",
    "ELIGIBLE_LEADER_REPLICAS",
    "ELR_RECORDS_LEVEL",
    "FEATURES",
    "GROUP_VERSION",
    "ISR_SHRINK_KEEPS_EPOCH_LEVEL",
    "KRAFT_VERSION",
    "LATEST_METADATA_VERSION",
    "METADATA_VERSIONS",
    "MINIMUM_METADATA_VERSION",
    "SCRAM_LEVEL",
    "SHARE_VERSION",
    "STREAMS_VERSION",
    "TRANSACTIONS_LEVEL",
    "TRANSACTION_VERSION",
    "Feature",
    "FeatureLevel",
    "MetadataVersion",
    "changes_records_between",
    "default_levels",
    "metadata_version_at",
    "metadata_version_of_release",
    "supported_features",
    "unmet_dependency",
]

KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"


class MetadataVersion(NamedTuple):
    """One level of metadata.version."""

    level: int
    name: str
    changes_records: bool
    """Whether records appear with it that a node at the level before can't read."""

    @property
    def release(self) -> str:
        return self.name.partition("-")[0]


METADATA_VERSIONS: Final = tuple(
    MetadataVersion(level, name, changes_records)
    for level, name, changes_records in (
        (7, "3.3-IV3", True),
        (8, "3.4-IV0", True),
        (9, "3.5-IV0", False),
        (10, "3.5-IV1", False),
        (11, "3.5-IV2", True),
        (12, "3.6-IV0", False),
        (13, "3.6-IV1", True),
        (14, "3.6-IV2", True),
        (15, "3.7-IV0", True),
        (16, "3.7-IV1", False),
        (17, "3.7-IV2", True),
        (18, "3.7-IV3", False),
        (19, "3.7-IV4", False),
        (20, "3.8-IV0", False),
        (21, "3.9-IV0", False),
        (22, "4.0-IV0", False),
        (23, "4.0-IV1", True),
        (24, "4.0-IV2", False),
        (25, "4.0-IV3", False),
        (26, "4.1-IV0", False),
        (27, "4.1-IV1", False),
        (28, "4.2-IV0", False),
        (29, "4.2-IV1", False),
        (30, "4.3-IV0", True),
    )
)
MINIMUM_METADATA_VERSION: Final = METADATA_VERSIONS[0]
LATEST_METADATA_VERSION: Final = METADATA_VERSIONS[-1]

# The levels of metadata.version that other modules ask about.
SCRAM_LEVEL: Final = 11
ISR_SHRINK_KEEPS_EPOCH_LEVEL: Final = 12
TRANSACTIONS_LEVEL: Final = 13
DELEGATION_TOKENS_LEVEL: Final = 14
CONTROLLER_REGISTRATION_LEVEL: Final = 15
DIRECTORIES_LEVEL: Final = 17
ELR_RECORDS_LEVEL: Final = 23
CORDONED_DIRECTORIES_LEVEL: Final = 30


class FeatureLevel(NamedTuple):
    """A level above 0 of a feature."""

    level: int
    default_from: int
    """New clusters have it from this level of metadata.version on."""
    needs_metadata_version: int = MINIMUM_METADATA_VERSION.level
    """It can't be set below this level of metadata.version."""


class Feature(NamedTuple):
    name: str
    levels: tuple[FeatureLevel, ...]
    is_implemented: bool = True

    @property
    def max_supported_level(self) -> int:
        return self.levels[-1].level if self.is_implemented else 0


FEATURES: Final[Mapping[str, Feature]] = {
    feature.name: feature
    for feature in (
        Feature(KRAFT_VERSION, (FeatureLevel(1, 21, needs_metadata_version=21),)),
        Feature(TRANSACTION_VERSION, (FeatureLevel(1, 24), FeatureLevel(2, 24))),
        Feature(GROUP_VERSION, (FeatureLevel(1, 22),)),
        Feature(
            ELIGIBLE_LEADER_REPLICAS,
            (FeatureLevel(1, 26, needs_metadata_version=ELR_RECORDS_LEVEL),),
        ),
        Feature(SHARE_VERSION, (FeatureLevel(1, 28),), is_implemented=False),
        Feature(STREAMS_VERSION, (FeatureLevel(1, 29),), is_implemented=False),
    )
}
"""Every feature but metadata.version, by name."""


def metadata_version_at(level: int) -> MetadataVersion | None:
    """What a level of metadata.version is called; None for one that nobody knows."""
    index = level - MINIMUM_METADATA_VERSION.level
    return METADATA_VERSIONS[index] if 0 <= index < len(METADATA_VERSIONS) else None


def metadata_version_of_release(text: str) -> MetadataVersion | None:
    """The version behind a text such as 4.3, 4.3.1 or 4.0-IV1; None if there is none.

    A release stands for the last of its versions.
    """
    for version in reversed(METADATA_VERSIONS):
        if text == version.name:
            return version
    found = re.fullmatch(r"([0-9]+\.[0-9]+)(?:\.[0-9]+)?", text)
    if found is None:
        return None
    for version in reversed(METADATA_VERSIONS):
        if found[1] == version.release:
            return version
    return None


def changes_records_between(level: int, other_level: int) -> bool:
    """Whether records may be in a log at the higher level that the lower one can't read."""
    low, high = sorted((level, other_level))
    return any(
        version.changes_records for version in METADATA_VERSIONS if low < version.level <= high
    )


def default_levels(metadata_version: int) -> dict[str, int]:
    """The levels, above 0, that a new cluster of this metadata.version has, metadata.version first.

    kraft.version is not among them: whether it is 1 depends on how the quorum finds its voters.
    """
    levels = {METADATA_VERSION: metadata_version}
    for name, feature in sorted(FEATURES.items()):
        level = max(
            (each.level for each in feature.levels if each.default_from <= metadata_version),
            default=0,
        )
        level = min(level, feature.max_supported_level)
        if level and name != KRAFT_VERSION:
            levels[name] = level
    return levels


@cache
def supported_features() -> tuple[FeatureRange, ...]:
    """What a node of this release supports, as it says in its registration."""
    own = FeatureRange(
        METADATA_VERSION, MINIMUM_METADATA_VERSION.level, LATEST_METADATA_VERSION.level
    )
    others = [
        FeatureRange(name, 0, feature.max_supported_level) for name, feature in FEATURES.items()
    ]
    return tuple(sorted([own, *others]))


def unmet_dependency(name: str, level: int, metadata_version: int) -> str | None:
    """Why a feature can't have this level beside this metadata.version; None if it can."""
    for each in FEATURES[name].levels:
        if each.level == level and metadata_version < each.needs_metadata_version:
            return f"it needs {METADATA_VERSION} {each.needs_metadata_version}"
    return None
