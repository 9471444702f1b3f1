"""Settings of a node, by their keys, and what they do to its metadata log."""

from __future__ import annotations

from kraftpy.config import NodeConfig, from_mapping
from kraftpy.metadata.snapshot_policy import StoredSnapshot, oldest_to_keep, snapshot_settings
from kraftpy.raft.log_state import SnapshotId

NODE = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@h:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:0",
}
DAY_MS = 86_400_000
# Two snapshots, of which the older one ends with a record of an hour after the epoch.
SNAPSHOTS = (
    StoredSnapshot(SnapshotId(10, 1), 1_000, 3_600_000),
    StoredSnapshot(SnapshotId(20, 1), 1_000, 5_000_000),
)


def oldest_kept(wall_ms: int, **settings: str) -> SnapshotId | None:
    config = NodeConfig(from_mapping(NODE | settings, "the test"))
    return oldest_to_keep(snapshot_settings(config), SNAPSHOTS, lambda offset: 50_000, wall_ms)


def test_old_snapshots_go() -> None:
    """metadata.max.retention.ms and metadata.max.retention.bytes; the newest snapshot stays."""
    assert oldest_kept(DAY_MS) is None
    assert oldest_kept(DAY_MS, **{"metadata.max.retention.ms": "80000000"}) == (20, 1)
    assert oldest_kept(DAY_MS, **{"metadata.max.retention.bytes": "51000"}) == (20, 1)
    assert oldest_kept(DAY_MS, **{"metadata.max.retention.bytes": "60000"}) is None
