"""Damage to files: as much as was asked for, in the logs of users' topics, drawn from the seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jepsen_tests.cluster.errors import NotHereError
from jepsen_tests.cluster.files import active_segments, cut_tail, flip_bits, wipe

CONTENT = bytes(1000)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions, one of them with two segments, the metadata, and an empty log."""
    for name in ("events-0/00.log", "events-0/90.log", "events-1/00.log", "__offsets-0/00.log"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)
    (tmp_path / "data" / "empty-0").mkdir()
    (tmp_path / "data" / "empty-0" / "00.log").touch()
    (tmp_path / "data" / "meta.properties").write_text("x")
    return tmp_path / "data"


def contents(data: Path) -> dict[str, bytes]:
    return {str(each.relative_to(data)): each.read_bytes() for each in sorted(data.rglob("*.log"))}


def test_only_what_is_written_to_is_damaged(data: Path) -> None:
    names = [str(each.relative_to(data)) for each in active_segments(str(data))]
    assert names == ["events-0/90.log", "events-1/00.log"]


def test_bits_are_flipped_where_the_seed_says(data: Path) -> None:
    """N10, JEP-99"""
    places = flip_bits(str(data), 5, seed=3)
    flipped = {
        f"{data / name}:{8 * position + bit}"
        for name, found in contents(data).items()
        for position, byte in enumerate(found)
        for bit in range(8)
        if byte >> bit & 1
    }
    assert flipped == set(places)
    assert len(places) == 5
    assert flip_bits(str(data), 5, seed=3) == places
    assert all(found == CONTENT for name, found in contents(data).items() if found)
    assert flip_bits(str(data), 5, seed=4) != places


@pytest.mark.parametrize(("count", "left"), [(1, 999), (400, 600), (5_000, 0)])
def test_a_tail_is_cut_off_one_file(data: Path, count: int, left: int) -> None:
    """N11, JEP-100"""
    before = contents(data)
    cut = cut_tail(str(data), count, seed=1)
    after = contents(data)
    changed = [name for name in before if before[name] != after[name]]
    assert [str(data / name) for name in changed] == [cut]
    assert len(after[changed[0]]) == left


def test_a_wiped_disk_is_empty(data: Path) -> None:
    """N16, JEP-105"""
    wipe(str(data))
    assert not data.exists()


def test_nothing_to_damage_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotHereError, match="no log with anything"):
        flip_bits(str(tmp_path), 1, seed=1)
