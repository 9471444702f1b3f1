"""When a node makes a snapshot of its metadata, and which old ones go (kraft.md 9).

Every node, broker or controller, makes its own from its own image: after so many bytes of records,
or so long after the last one that was made or loaded. Time alone makes none: without a new record
there is nothing new to keep.

An old snapshot goes, and the log begins where the next one ends, when its last record is older than
`metadata.max.retention.ms`, or while log and snapshots together exceed
`metadata.max.retention.bytes`. The newest always stays. The two reasons are looked at in this
order, and only the oldest snapshot is ever looked at, since what remains must be a suffix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from kraftpy.config import NodeConfig
from kraftpy.metadata.publisher import Manifest, Source
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.storage import StoredSnapshot

__all__ = [
    "SnapshotReason",
    "SnapshotSchedule",
    "SnapshotSettings",
    "oldest_to_keep",
    "snapshot_settings",
]


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Kafka's metadata.log.max.* and metadata.max.retention.*."""

    bytes_between: int = 20 * 1024 * 1024
    # 0: never by time.
    interval_ms: int = 3_600_000
    # Negative: no limit.
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 86_400_000


def snapshot_settings(config: NodeConfig) -> SnapshotSettings:
    return SnapshotSettings(
        bytes_between=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
        interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms"),
        retention_bytes=config.get_int("metadata.max.retention.bytes"),
        retention_ms=config.get_int("metadata.max.retention.ms"),
    )


class SnapshotReason(Enum):
    BYTES = "enough records have come"
    TIME = "the last one is old"


class SnapshotSchedule:
    """Counts what has come since the last snapshot."""

    __slots__ = ("_bytes", "_settings", "_since_ms")

    def __init__(self, settings: SnapshotSettings, now_ms: int) -> None:
        self._settings = settings
        self.made(now_ms)

    def made(self, now_ms: int) -> None:
        """A snapshot was made, or is being made, of all that was published so far."""
        self._bytes = 0
        self._since_ms = now_ms

    def published(self, manifest: Manifest, now_ms: int) -> SnapshotReason | None:
        """There is a new image; why a snapshot of it is due, or None."""
        if manifest.source is Source.SNAPSHOT:
            self.made(now_ms)
            return None
        self._bytes += manifest.size_bytes
        settings = self._settings
        if self._bytes >= settings.bytes_between:
            return SnapshotReason.BYTES
        if settings.interval_ms and now_ms - self._since_ms >= settings.interval_ms:
            return SnapshotReason.TIME
        return None


def oldest_to_keep(
    settings: SnapshotSettings,
    snapshots: Sequence[StoredSnapshot],
    log_bytes_from: Callable[[int], int],
    wall_ms: int,
) -> SnapshotId | None:
    """The snapshot at which the log is to begin; None if nothing is to go.

    `snapshots` are in order; `log_bytes_from(offset)` is what the log takes if it begins there.
    """
    kept = 0
    while kept + 1 < len(snapshots) and (
        _is_old(settings, snapshots[kept], wall_ms)
        or _is_too_much(settings, snapshots[kept:], log_bytes_from)
    ):
        kept += 1
    return snapshots[kept].snapshot_id if kept else None


def _is_old(settings: SnapshotSettings, snapshot: StoredSnapshot, wall_ms: int) -> bool:
    age_ms = wall_ms - snapshot.last_contained_ms
    return 0 <= settings.retention_ms < age_ms


def _is_too_much(
    settings: SnapshotSettings,
    snapshots: Sequence[StoredSnapshot],
    log_bytes_from: Callable[[int], int],
) -> bool:
    if settings.retention_bytes < 0:
        return False
    log_bytes = log_bytes_from(snapshots[0].snapshot_id.end_offset)
    return log_bytes + sum(each.size_bytes for each in snapshots) > settings.retention_bytes
