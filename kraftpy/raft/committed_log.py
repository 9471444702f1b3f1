"""The log and its snapshots as a state machine sees them: what is committed, for reading.

Records may lie in the core's memory or in the storage; a reader need not know. What is read stays
valid, whatever happens to the log afterwards.

An installed snapshot moves the log start at once, and its file appears when the disk is done. In
between a reader that is behind can neither read on nor load; it is told when that changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.log.errors import StorageError
from kraftpy.raft.core import RaftCore
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.snapshot_content import SnapshotHead, data_batches
from kraftpy.raft.storage import RaftStorage, StoredSnapshot
from kraftpy.records.batch import RecordBatch
from kraftpy.records.errors import RecordDataError
from kraftpy.records.walker import AnyBatch, walk_batches

__all__ = ["CommittedLog", "SnapshotGoneError"]

_READ_BYTES = 256 * 1024


class SnapshotGoneError(Exception):
    """The snapshot was deleted while it was read; a newer one has taken its place."""


class CommittedLog:
    __slots__ = ("_core", "_storage")

    def __init__(self, core: RaftCore, storage: RaftStorage) -> None:
        self._core = core
        self._storage = storage

    @property
    def start_offset(self) -> int:
        return self._core.quorum.log.start_offset

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest snapshot that can be read now; the one of `storage format` never counts."""
        latest = self._core.quorum.log.latest_snapshot
        return latest if latest in self._storage.snapshot_ids else None

    def batches(self, start_offset: int, end_offset: int) -> Iterator[RecordBatch]:
        """Some batches from `start_offset` on, at least one, none beyond `end_offset`.

        Raises StorageError if they can't be read, or are not what was written.
        """
        data = self._core.quorum.log.read(start_offset, _READ_BYTES)
        offset = start_offset
        for batch in walk_batches(data):
            if not isinstance(batch, RecordBatch):
                raise StorageError(f"the metadata log has no leader epoch at {offset}")
            if batch.base_offset >= end_offset:
                break
            if not batch.is_valid or batch.base_offset != offset:
                raise StorageError(f"the metadata log is damaged at {offset}")
            offset = batch.next_offset
            yield batch
        if offset == start_offset:
            raise StorageError(f"the metadata log can't be read at {offset}")

    def stored_snapshots(self) -> tuple[StoredSnapshot, ...]:
        """All frozen snapshots that the core knows, in order, that of `storage format` too."""
        stored = self._storage.snapshot_ids
        return tuple(
            self._storage.stored_snapshot(snapshot_id)
            for snapshot_id in self._core.quorum.log.snapshots
            if snapshot_id in stored
        )

    def log_bytes_from(self, offset: int) -> int:
        """What the log takes on the disk if it begins at `offset`."""
        return self._storage.log_bytes_from(offset)

    def snapshot_head(self, snapshot_id: SnapshotId) -> SnapshotHead:
        return self._storage.read_head(snapshot_id)

    def snapshot_batches(self, snapshot_id: SnapshotId) -> Iterator[RecordBatch]:
        """The state machine's batches, read as they are asked for.

        Raises StorageError if the snapshot is damaged, or not whole, and SnapshotGoneError.
        """
        try:
            yield from data_batches(self._all_batches(snapshot_id))
        except RecordDataError as error:
            raise StorageError(f"snapshot {snapshot_id}: {error}") from error

    def _all_batches(self, snapshot_id: SnapshotId) -> Iterator[AnyBatch]:
        position = 0
        size = _READ_BYTES
        while True:
            if snapshot_id not in self._storage.snapshot_ids:
                raise SnapshotGoneError(str(snapshot_id))
            data = self._storage.read_snapshot(snapshot_id, position, size)
            done = 0
            for batch in walk_batches(data):
                done += batch.size
                yield batch
            if len(data) < size and done == len(data):
                return
            if len(data) < size and done == 0:
                raise StorageError(f"snapshot {snapshot_id} is cut off at {position}")
            # A batch that does not fit is asked for again with more room.
            size = _READ_BYTES if done else size * 2
            position += done
