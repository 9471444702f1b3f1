"""Makes a node's snapshots and lets old ones go: the shell around snapshot_policy.

It is a publisher of the node's loader, so that it sees every image. One snapshot is written at a
time, in the background, in slices that leave the loop free; what is published meanwhile counts
towards the next one. An image is immutable, so writing it takes as long as it likes.

A snapshot that can't be written, for lack of space or because of the disk, is given up and told in
the log. Nothing is lost by that but time: the log keeps what the snapshot would have replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import trio

from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.metadata.snapshot import snapshot_batches
from kraftpy.metadata.snapshot_policy import (
    SnapshotReason,
    SnapshotSchedule,
    SnapshotSettings,
    oldest_to_keep,
)
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.snapshots import SnapshotRefusal
from kraftpy.raft.storage import StoredSnapshot
from kraftpy.world import Buffer, Buggify, Clock, never

__all__ = ["KeptLog", "SnapshotHome", "SnapshotKeeper"]

_log = logging.getLogger(__name__)

# How often old snapshots are looked for.
CLEANING_PERIOD_SECONDS: Final = 60.0
# A download may have brought a newer one, or the very same. The other reasons mean that the image
# is not what the log says.
_HARMLESS: Final = (SnapshotRefusal.BELOW_LOG_START, SnapshotRefusal.EXISTS)


class SnapshotHome(Protocol):
    """Where snapshots are written and expire: RaftDriver."""

    async def freeze_snapshot(
        self,
        snapshot_id: SnapshotId,
        batches: Callable[[int], Iterable[Buffer]],
        *,
        timestamp_ms: int,
    ) -> SnapshotRefusal | None: ...

    def expire_snapshots(self, oldest_kept: SnapshotId) -> None: ...


class KeptLog(Protocol):
    """What there is: CommittedLog."""

    def stored_snapshots(self) -> tuple[StoredSnapshot, ...]: ...

    def log_bytes_from(self, offset: int) -> int: ...


class SnapshotKeeper:
    """Install it in the loader, behind everybody else, and `run` it as a task."""

    __slots__ = (
        "_buggify",
        "_clock",
        "_due",
        "_home",
        "_log",
        "_may_snapshot",
        "_schedule",
        "_settings",
        "_wake",
    )

    name = "snapshots"

    def __init__(
        self,
        clock: Clock,
        home: SnapshotHome,
        log: KeptLog,
        settings: SnapshotSettings,
        may_snapshot: Callable[[], bool],
        *,
        buggify: Buggify = never,
    ) -> None:
        """`may_snapshot` says of the image just published whether one may be made of it."""
        self._clock = clock
        self._home = home
        self._log = log
        self._settings = settings
        self._may_snapshot = may_snapshot
        self._buggify = buggify
        self._schedule = SnapshotSchedule(settings, clock.monotonic_ms())
        # The image that waits to be written or is being written; no other is due meanwhile.
        self._due: MetadataImage | None = None
        self._wake = trio.Event()

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        now_ms = self._clock.monotonic_ms()
        reason = self._schedule.published(manifest, now_ms)
        if reason is None and self._buggify("snapshot-now"):
            reason = SnapshotReason.BYTES
        if reason is None or self._due is not None or not self._may_snapshot():
            return
        _log.info("a snapshot is due at %d: %s", image.provenance.end_offset, reason.value)
        self._schedule.made(now_ms)
        self._due = image
        self._wake.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_snapshots, name="metadata-snapshots")
            nursery.start_soon(self._clean, name="metadata-cleaning")

    async def _write_snapshots(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            if self._due is not None:
                await self.write(self._due)
                self._due = None

    async def write(self, image: MetadataImage) -> None:
        """Make a snapshot of an image; a failure is told in the log and is not the caller's."""
        provenance = image.provenance
        snapshot_id = SnapshotId(provenance.end_offset, provenance.epoch)
        started = self._clock.monotonic()
        try:
            refusal = await self._home.freeze_snapshot(
                snapshot_id,
                partial(_batches, image),
                timestamp_ms=provenance.timestamp_ms,
            )
        except OSError as error:
            _log.error("the snapshot at %d can't be written: %s", snapshot_id.end_offset, error)
            return
        if refusal is None:
            taken_ms = (self._clock.monotonic() - started) * 1000
            _log.info("snapshot written end_offset=%d ms=%d", snapshot_id.end_offset, taken_ms)
        elif refusal not in _HARMLESS:
            _log.error("no snapshot at %d: %s", snapshot_id.end_offset, refusal.value)

    async def _clean(self) -> None:
        while True:
            is_restless = self._buggify("snapshots-cleaned-early")
            await self._clock.sleep(1.0 if is_restless else CLEANING_PERIOD_SECONDS)
            self.clean()

    def clean(self) -> None:
        """Let go of what is too old or too much."""
        oldest = oldest_to_keep(
            self._settings,
            self._log.stored_snapshots(),
            self._log.log_bytes_from,
            self._clock.wall_ms(),
        )
        if oldest is not None:
            _log.info("metadata before %d expires", oldest.end_offset)
            self._home.expire_snapshots(oldest)


def _batches(image: MetadataImage, base_offset: int) -> Iterable[Buffer]:
    return snapshot_batches(image, base_offset=base_offset)
