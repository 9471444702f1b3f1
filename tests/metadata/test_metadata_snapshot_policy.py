"""When snapshots are made, and which ones go (kraft.md 9)."""

from __future__ import annotations

import pytest

from kraftpy.config import NodeConfig, from_mapping
from kraftpy.metadata.image import Provenance
from kraftpy.metadata.publisher import Manifest, Source
from kraftpy.metadata.snapshot_policy import (
    SnapshotReason,
    SnapshotSchedule,
    SnapshotSettings,
    oldest_to_keep,
    snapshot_settings,
)
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.storage import StoredSnapshot

DAY_MS = 86_400_000


def manifest(size_bytes: int, source: Source = Source.LOG) -> Manifest:
    return Manifest(source, Provenance(1, 1, 1), 1, 1, size_bytes)


def test_by_bytes() -> None:
    """KRF-73: exactly at the limit, not one byte before."""
    schedule = SnapshotSchedule(SnapshotSettings(bytes_between=100), 0)
    assert schedule.published(manifest(99), 0) is None
    assert schedule.published(manifest(1), 0) is SnapshotReason.BYTES
    # It stays due until one is made.
    assert schedule.published(manifest(1), 0) is SnapshotReason.BYTES
    schedule.made(0)
    assert schedule.published(manifest(99), 0) is None


def test_by_time() -> None:
    """KRF-73: an hour after the start, the last one made, or the last one loaded."""
    schedule = SnapshotSchedule(SnapshotSettings(interval_ms=1_000), 500)
    assert schedule.published(manifest(1), 1_499) is None
    assert schedule.published(manifest(1), 1_500) is SnapshotReason.TIME
    assert schedule.published(manifest(1, Source.SNAPSHOT), 1_600) is None
    assert schedule.published(manifest(1), 2_599) is None
    assert schedule.published(manifest(1), 2_600) is SnapshotReason.TIME


def test_a_loaded_snapshot_counts_as_made() -> None:
    """KRF-73"""
    schedule = SnapshotSchedule(SnapshotSettings(bytes_between=100), 0)
    schedule.published(manifest(99), 0)
    assert schedule.published(manifest(1_000, Source.SNAPSHOT), 0) is None
    assert schedule.published(manifest(99), 0) is None


def test_never_by_time() -> None:
    schedule = SnapshotSchedule(SnapshotSettings(interval_ms=0), 0)
    assert schedule.published(manifest(1), 10**12) is None


def stored(end_offset: int, size_bytes: int, last_contained_ms: int) -> StoredSnapshot:
    return StoredSnapshot(SnapshotId(end_offset, 1), size_bytes, last_contained_ms)


def log_bytes_from(offset: int) -> int:
    """A hundred offsets, each a byte, in segments of ten."""
    return 100 - offset // 10 * 10


THREE = (stored(20, 5, 1 * DAY_MS), stored(40, 5, 2 * DAY_MS), stored(60, 5, 3 * DAY_MS))


@pytest.mark.parametrize(
    ("retention_ms", "wall_ms", "expected"),
    [
        (DAY_MS, 2 * DAY_MS, None),
        (DAY_MS, 2 * DAY_MS + 1, 40),
        (DAY_MS, 3 * DAY_MS + 1, 60),
        (DAY_MS, 100 * DAY_MS, 60),
        (0, 100 * DAY_MS, 60),
        (-1, 100 * DAY_MS, None),
    ],
)
def test_by_age(retention_ms: int, wall_ms: int, expected: int | None) -> None:
    """KRF-71: the age is that of the last record covered; the newest always stays."""
    settings = SnapshotSettings(retention_ms=retention_ms)
    kept = oldest_to_keep(settings, THREE, log_bytes_from, wall_ms)
    assert kept == (None if expected is None else (expected, 1))


@pytest.mark.parametrize(
    ("retention_bytes", "expected"),
    [
        # 80 bytes of log and 15 of snapshots; then 60 and 10; then 40 and 5.
        (95, None),
        (94, 40),
        (70, 40),
        (69, 60),
        (0, 60),
        (-1, None),
    ],
)
def test_by_size(retention_bytes: int, expected: int | None) -> None:
    """KRF-71: as many as are needed, and no more."""
    settings = SnapshotSettings(retention_bytes=retention_bytes, retention_ms=-1)
    kept = oldest_to_keep(settings, THREE, log_bytes_from, 0)
    assert kept == (None if expected is None else (expected, 1))


@pytest.mark.parametrize("snapshots", [(), THREE[:1]])
def test_a_lone_snapshot_stays(snapshots: tuple[StoredSnapshot, ...]) -> None:
    """KRF-71"""
    settings = SnapshotSettings(retention_bytes=0, retention_ms=0)
    assert oldest_to_keep(settings, snapshots, log_bytes_from, 100 * DAY_MS) is None


def test_settings_of_a_node() -> None:
    base = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.listener.names": "C",
        "listeners": "C://h:1",
        "listener.security.protocol.map": "C:PLAINTEXT",
        "controller.quorum.voters": "1@h:1",
    }
    assert snapshot_settings(NodeConfig(from_mapping(base, "test"))) == SnapshotSettings()
    changed = base | {
        "metadata.log.max.record.bytes.between.snapshots": "1",
        "metadata.log.max.snapshot.interval.ms": "2",
        "metadata.max.retention.bytes": "3",
        "metadata.max.retention.ms": "4",
    }
    assert snapshot_settings(NodeConfig(from_mapping(changed, "test"))) == SnapshotSettings(
        1, 2, 3, 4
    )
