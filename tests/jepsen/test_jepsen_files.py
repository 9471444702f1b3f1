"""Damage to files: as much as was asked for, in the logs of users' topics, drawn from the seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jepsen_tests.cluster.errors import NotHereError
from jepsen_tests.cluster.files import active_segments, cut_tail, flip_bits, stray_write, wipe
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.walker import walk_batches

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


def batches(count: int) -> bytes:
    built = bytearray()
    for offset in range(count):
        builder = BatchBuilder(base_offset=offset, leader_epoch=3)
        builder.append(b"k", b"v", timestamp_ms=0)
        built += builder.build()
    return bytes(built)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_nobody_can_notice_is_not_flipped(data: Path, count: int) -> None:
    """N10: an epoch, and an offset unless all else is sound."""
    content = batches(3)
    size = len(content) // 3
    offsets_flipped = set()
    for seed in range(100):
        for segment in active_segments(str(data)):
            segment.write_bytes(content)
        places = [place.rpartition(":") for place in flip_bits(str(data), count, seed)]
        for path, _, bit in places:
            number, position = divmod(int(bit) // 8, size)
            assert position not in range(12, 16)
            if position < 8:
                assert [place[0] for place in places].count(path) == 1
                offsets_flipped.add(number)
    assert offsets_flipped == {0, 1, 2}


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
    assert list(data.iterdir()) == []


def test_nothing_to_damage_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotHereError, match="no log with anything"):
        flip_bits(str(tmp_path), 1, seed=1)


def test_a_stray_write_spoils_one_batch_and_is_noticed(data: Path) -> None:
    """N12, JEP-101: nothing but bytes that a checksum covers."""
    with pytest.raises(NotHereError, match="no two batches that differ"):
        stray_write(str(data), seed=1)
    batches = b""
    for number in range(5):
        builder = BatchBuilder(base_offset=number)
        builder.append(b"k", b"value %d" % number * 9, timestamp_ms=number)
        batches += bytes(builder.build())
    for path in active_segments(str(data)):
        path.write_bytes(batches)
    place = stray_write(str(data), seed=1)
    path = Path(place.rpartition(":")[0])
    found = list(walk_batches(path.read_bytes()))
    assert [each.base_offset for each in found] == list(range(5))
    assert sum(not each.is_valid for each in found) == 1
    path.write_bytes(batches)
    assert stray_write(str(data), seed=1) == place
