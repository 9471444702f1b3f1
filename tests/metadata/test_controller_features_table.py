"""The table of features: figures, names of releases, what a new cluster gets."""

from __future__ import annotations

import pytest

from kraftpy.metadata.features import (
    FEATURES,
    LATEST_METADATA_VERSION,
    METADATA_VERSIONS,
    MINIMUM_METADATA_VERSION,
    changes_records_between,
    default_levels,
    metadata_version_at,
    metadata_version_of_release,
    supported_features,
    unmet_dependency,
)


def test_levels_have_no_gaps_and_begin_at_the_oldest_that_4x_reads() -> None:
    assert [version.level for version in METADATA_VERSIONS] == list(range(7, 31))
    assert MINIMUM_METADATA_VERSION.name == "3.3-IV3"
    assert LATEST_METADATA_VERSION.name == "4.3-IV0"


def test_steps_that_change_records() -> None:
    changing = [version.level for version in METADATA_VERSIONS if version.changes_records]
    assert changing == [7, 8, 11, 13, 14, 15, 17, 23, 30]


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("4.3", 30),
        ("4.3.1", 30),
        ("4.0", 25),
        ("4.0-IV1", 23),
        ("3.7", 19),
        ("3.3", 7),
        ("3.2", None),
        ("4.0-IV9", None),
        ("4.3.1-IV0", None),
        ("four", None),
    ],
)
def test_names_of_releases(text: str, level: int | None) -> None:
    version = metadata_version_of_release(text)
    assert (version.level if version else None) == level


def test_every_level_is_found_and_its_neighbours_outside_are_not() -> None:
    for version in METADATA_VERSIONS:
        assert metadata_version_at(version.level) is version
    assert metadata_version_at(6) is None
    assert metadata_version_at(31) is None


def test_changes_count_from_above_the_lower_level_to_the_higher() -> None:
    assert not changes_records_between(29, 23)
    assert changes_records_between(29, 22)
    assert changes_records_between(22, 23)
    assert not changes_records_between(30, 30)


def test_defaults_of_a_new_cluster() -> None:
    assert default_levels(30) == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
    assert default_levels(25) == {
        "metadata.version": 25,
        "group.version": 1,
        "transaction.version": 2,
    }
    assert default_levels(21) == {"metadata.version": 21}


def test_what_is_not_implemented_is_not_offered() -> None:
    ranges = {name: (low, high) for name, low, high in supported_features()}
    assert ranges["metadata.version"] == (7, 30)
    assert ranges["transaction.version"] == (0, 2)
    assert ranges["kraft.version"] == (0, 1)
    assert ranges["share.version"] == (0, 0)
    assert ranges["streams.version"] == (0, 0)
    assert sorted(ranges) == sorted([*FEATURES, "metadata.version"])


def test_dependencies() -> None:
    assert unmet_dependency("eligible.leader.replicas.version", 1, 22) is not None
    assert unmet_dependency("eligible.leader.replicas.version", 1, 23) is None
    assert unmet_dependency("eligible.leader.replicas.version", 0, 7) is None
    assert unmet_dependency("kraft.version", 1, 20) is not None
    assert unmet_dependency("transaction.version", 2, 7) is None
