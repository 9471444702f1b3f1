"""What the core knows of its log: ends, epochs, snapshots, and the tail that isn't on disk yet.

The records themselves lie in the storage, which the core sees through `LogView`, read-only. What
it wants changed leaves as effects, and until the storage reports them durable the core holds the
batches in `_tail`. A leader can therefore send a batch to its followers while its own disk still
writes, and counts itself only up to `durable_end_offset`.

Invariants: start_offset <= high_watermark <= end_offset; durable_end_offset <= end_offset; the
high watermark never falls; start_offset > 0 only where a snapshot ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, Protocol

from kraftpy.log.epochs import EpochEntry, LeaderEpochCache
from kraftpy.world import Buffer, InternalInvariant, assert_always, quickly_made

__all__ = [
    "BOOTSTRAP_SNAPSHOT",
    "MAX_BATCH_BYTES",
    "Batch",
    "LogState",
    "LogView",
    "OffsetAndEpoch",
    "SnapshotId",
]

# The largest batch of a metadata log, and of a snapshot.
MAX_BATCH_BYTES = 8 * 1024 * 1024
_epoch_of = itemgetter(0)


class SnapshotId(NamedTuple):
    """The exclusive end offset and the epoch of the last record that a snapshot covers."""

    end_offset: int
    epoch: int


class OffsetAndEpoch(NamedTuple):
    offset: int
    epoch: int


# Written by `storage format`, local to its node, never replicated.
BOOTSTRAP_SNAPSHOT = SnapshotId(0, 0)


@quickly_made
@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch and the offsets it covers."""

    base_offset: int
    end_offset: int
    epoch: int
    data: bytes
    is_control: bool


class LogView(Protocol):
    """What a core reads of its storage. Nothing here waits."""

    def read(self, start_offset: int, end_offset: int, max_bytes: int) -> Buffer:
        """Whole batches from `start_offset` on, below `end_offset`; at least one if there is."""
        ...

    def starts_batch(self, offset: int) -> bool:
        """Whether a batch begins at `offset`, or the log ends there."""
        ...

    def snapshot_size(self, snapshot_id: SnapshotId) -> int: ...

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> Buffer: ...


class LogState:
    __slots__ = (
        "_pending",
        "_tail",
        "_view",
        "durable_end_offset",
        "end_offset",
        "epochs",
        "high_watermark",
        "last_epoch",
        "snapshots",
        "start_offset",
    )

    def __init__(
        self,
        view: LogView,
        *,
        start_offset: int,
        end_offset: int,
        epochs: Iterable[EpochEntry],
        snapshots: Iterable[SnapshotId],
    ) -> None:
        """The log as its storage recovered it: all of it is durable."""
        self._view = view
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.durable_end_offset = end_offset
        self.epochs = LeaderEpochCache(epochs)
        self.snapshots = sorted(snapshots)
        self._tail: list[Batch] = []
        self._pending: deque[tuple[int, int]] = deque()
        latest = self.latest_snapshot
        self.high_watermark = max(start_offset, latest.end_offset if latest else 0)
        self.last_epoch = self._epoch_at_end()
        assert_always(self.high_watermark <= end_offset, "raft-snapshot-beyond-log")
        assert_always(
            start_offset == 0 or (self.snapshots and self.snapshots[0].end_offset == start_offset),
            "raft-log-start-without-snapshot",
            start_offset=start_offset,
        )

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest one that may be given to others."""
        if self.snapshots and self.snapshots[-1] != BOOTSTRAP_SNAPSHOT:
            return self.snapshots[-1]
        return None

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        for snapshot_id in self.snapshots:
            if snapshot_id != BOOTSTRAP_SNAPSHOT:
                return snapshot_id
        return None

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def _epoch_at_end(self) -> int:
        latest = self.epochs.latest_epoch
        if latest is not None:
            return latest
        snapshot = self.latest_snapshot
        return snapshot.epoch if snapshot is not None else 0

    # Reading.

    def is_covered_by(self, *, end_offset: int, epoch: int) -> bool:
        """Whether a log that ends there is at least as up to date as this one."""
        return (epoch, end_offset) >= (self.last_epoch, self.end_offset)

    def read(self, offset: int, max_bytes: int) -> Buffer:
        """Batches from `offset` on, committed or not; at least one if there is."""
        tail = self._tail
        tail_start = tail[0].base_offset if tail else self.end_offset
        if offset < tail_start:
            return self._view.read(offset, tail_start, max_bytes)
        parts: list[bytes] = []
        size = 0
        for batch in tail:
            if batch.base_offset >= offset:
                size += len(batch.data)
                if parts and size > max_bytes:
                    break
                parts.append(batch.data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def starts_batch(self, offset: int) -> bool:
        if offset == self.end_offset:
            return True
        if self._tail and offset >= self._tail[0].base_offset:
            return any(batch.base_offset == offset for batch in self._tail)
        return self._view.starts_batch(offset)

    def snapshot_size(self, snapshot_id: SnapshotId) -> int:
        return self._view.snapshot_size(snapshot_id)

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> Buffer:
        return self._view.read_snapshot(snapshot_id, position, max_bytes)

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch of the log that is not above `epoch`, and where it ends."""
        latest = self.epochs.latest_epoch
        if latest is None or latest <= epoch:
            # The rule, however many epochs there were.
            return self.end
        entries = self.epochs.entries
        following = bisect_right(entries, epoch, key=_epoch_of)
        end_offset = entries[following].start_offset
        if following > 0:
            return OffsetAndEpoch(end_offset, entries[following - 1].epoch)
        snapshot = self.earliest_snapshot
        if snapshot is not None and snapshot.end_offset == end_offset:
            return OffsetAndEpoch(end_offset, snapshot.epoch)
        return OffsetAndEpoch(end_offset, epoch)

    # Changing. The owner emits the effect that belongs to each.

    def append(self, batch: Batch, token: int) -> None:
        if (
            batch.base_offset != self.end_offset
            or batch.end_offset <= batch.base_offset
            or batch.epoch < self.last_epoch
        ):
            raise InternalInvariant(
                f"raft-append-order: {batch.base_offset} of epoch {batch.epoch}"
                f" behind {self.end_offset} of {self.last_epoch}"
            )
        if batch.epoch != self.last_epoch or self.epochs.latest is None:
            self.epochs.assign(batch.epoch, batch.base_offset)
            self.last_epoch = batch.epoch
        self._tail.append(batch)
        self._pending.append((token, batch.end_offset))
        self.end_offset = batch.end_offset

    def persisted(self, token: int) -> bool:
        """Everything up to `token` is on disk; whether the durable end moved."""
        pending = self._pending
        durable = self.durable_end_offset
        while pending and pending[0][0] <= token:
            durable = max(durable, pending.popleft()[1])
        if durable == self.durable_end_offset:
            return False
        self.durable_end_offset = durable
        tail = self._tail
        count = 0
        while count < len(tail) and tail[count].end_offset <= durable:
            count += 1
        del tail[:count]
        return True

    def truncate(self, end_offset: int) -> None:
        if end_offset < self.high_watermark:
            raise InternalInvariant(
                f"raft-truncate-committed: to {end_offset}, committed {self.high_watermark}"
            )
        self.end_offset = end_offset
        self.durable_end_offset = min(self.durable_end_offset, end_offset)
        while self._tail and self._tail[-1].end_offset > end_offset:
            self._tail.pop()
        # A write still under way may reach further, but nothing behind this point is ours.
        self._pending = deque((token, min(end, end_offset)) for token, end in self._pending)
        self.epochs.truncate_from_end(end_offset)
        self.last_epoch = self._epoch_at_end()

    def advance_high_watermark(self, offset: int) -> bool:
        """Whether that is news."""
        if offset <= self.high_watermark:
            return False
        assert_always(offset <= self.end_offset, "raft-high-watermark-beyond-end", offset=offset)
        self.high_watermark = offset
        return True

    def install(self, snapshot_id: SnapshotId, token: int) -> tuple[SnapshotId, ...]:
        """Restart behind a snapshot that covers more than this log; the snapshots now useless."""
        assert_always(
            snapshot_id.end_offset > self.high_watermark,
            "raft-snapshot-behind-high-watermark",
            snapshot_id=snapshot_id,
        )
        older = tuple(self.snapshots)
        self._tail.clear()
        self._pending.clear()
        self.epochs.clear()
        self.snapshots = [snapshot_id]
        self.start_offset = self.end_offset = self.high_watermark = snapshot_id.end_offset
        self.durable_end_offset = 0
        self._pending.append((token, snapshot_id.end_offset))
        self.last_epoch = snapshot_id.epoch
        return older

    def trim(self, oldest_kept: SnapshotId) -> tuple[SnapshotId, ...]:
        """Begin at a snapshot's end; the snapshots below are returned."""
        assert_always(
            oldest_kept in self.snapshots and oldest_kept.end_offset >= self.start_offset,
            "raft-trim-snapshot",
            oldest_kept=oldest_kept,
        )
        position = self.snapshots.index(oldest_kept)
        removed = tuple(self.snapshots[:position])
        del self.snapshots[:position]
        self.start_offset = oldest_kept.end_offset
        if self.start_offset == self.end_offset:
            self.epochs.clear()
        else:
            self.epochs.truncate_from_start(self.start_offset)
        return removed
