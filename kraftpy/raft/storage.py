"""The durable side of a core: `__cluster_metadata-0`, an ordinary partition log, and what is by it.

`perform` takes the core's effects in their order and never waits. An append goes into the page
cache at once, and so does a piece of a download. What has to wait for directories (truncation,
installation, removal) stands in a queue, with whatever comes behind it. The core does not mind: it
holds the batches that are not durable itself, and asks nothing about what it has cut off.

`sync` empties the queue and makes everything durable that was performed before, however many tokens
that is: group commit is no more than calling it again and again while there is work. The driver
calls it from one task and feeds what it returns to the core.

The promise and the log are two files, and a crash may keep more of one than of the other; each has
a prefix of what was asked. Of several promises under one sync only the last is written.

Any failure is final. The core has taken for done what was asked, so a storage that could not do it
refuses everything from then on, and the node has to end.

The log start is kept in `log-start-offset-checkpoint`, in the partition's own directory, where
Kafka passes over it: a segment need not begin where a snapshot ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias, assert_never

from kraftpy.log.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    AtomicFile,
    TopicPartition,
    format_offsets,
)
from kraftpy.log.errors import StorageError
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_reading import ReadableLog
from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.raft.durable_end import DurableEnd
from kraftpy.raft.effects import (
    AppendLog,
    DeleteSnapshots,
    DropDownload,
    InstallSnapshot,
    PersistElection,
    TrimLog,
    TruncateLog,
    WriteSnapshotChunk,
)
from kraftpy.raft.inputs import Persisted
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.memory_storage import StorageEffect
from kraftpy.raft.quorum_state_file import QuorumStateFile
from kraftpy.raft.rpc import METADATA_PARTITION, METADATA_TOPIC
from kraftpy.raft.snapshot_content import SnapshotHead
from kraftpy.raft.snapshot_files import SnapshotFiles, SnapshotWriter
from kraftpy.records.walker import walk_batches
from kraftpy.world import Buffer, Disk, InternalInvariant, assert_always

__all__ = [
    "TOPIC_PARTITION",
    "LeftFiles",
    "RaftStorage",
    "StoredSnapshot",
    "metadata_log_config",
]

TOPIC_PARTITION: Final[TopicPartition] = (METADATA_TOPIC, METADATA_PARTITION)
_OFFSET_BYTES = 8

# Everything but the promise, which has a place of its own.
_LogEffect: TypeAlias = (
    AppendLog
    | TruncateLog
    | TrimLog
    | WriteSnapshotChunk
    | DropDownload
    | InstallSnapshot
    | DeleteSnapshots
)


def metadata_log_config(
    *, segment_bytes: int = 1024 * 1024 * 1024, segment_ms: int = 7 * 86_400_000
) -> LogConfig:
    """`metadata.log.segment.*`. Only the log start removes segments, neither age nor size."""
    return LogConfig(is_deleted=False, segment_bytes=segment_bytes, segment_ms=segment_ms)


class StoredSnapshot(NamedTuple):
    """A frozen snapshot: its size, and the time of the last record that it covers."""

    snapshot_id: SnapshotId
    size_bytes: int
    last_contained_ms: int


class LeftFiles:
    """The log's owner: it gathers the files that have left the log until the next sync.

    Nobody reads them any longer, since reads are over when they return. Flushing is `sync`'s, and a
    failure reaches the storage as an error anyway.
    """

    __slots__ = ("paths",)

    def __init__(self) -> None:
        self.paths: list[str] = []

    def work_pending(self, log: ReadableLog) -> None:
        """All of it is done by the next sync."""

    def unlink_later(self, paths: Sequence[str], delay_ms: int) -> None:
        self.paths += paths

    def storage_failed(self, log: ReadableLog, error: OSError) -> None:
        """Whoever asked for what failed gets the error."""


class RaftStorage:
    """Made by `kraftpy.raft.storage_opening.open_storage`."""

    __slots__ = (
        "_disk",
        "_download",
        "_durable_end",
        "_is_syncing",
        "_left_files",
        "_log",
        "_promise",
        "_queue",
        "_quorum_state",
        "_refusal",
        "_snapshots",
        "_start_file",
        "durable_token",
        "last_token",
    )

    def __init__(
        self,
        disk: Disk,
        log: PartitionLog,
        snapshots: SnapshotFiles,
        quorum_state: QuorumStateFile,
        *,
        left_files: LeftFiles,
        durable_end: DurableEnd,
    ) -> None:
        """All of what is given is durable."""
        self._disk = disk
        self._log = log
        self._durable_end = durable_end
        self._snapshots = snapshots
        self._quorum_state = quorum_state
        self._left_files = left_files
        self._start_file = AtomicFile(disk, f"{log.directory}/{LOG_START_OFFSET_CHECKPOINT}")
        self._queue: deque[_LogEffect] = deque()
        self._promise: PersistElection | None = None
        self._download: SnapshotWriter | None = None
        self._is_syncing = False
        self._refusal: StorageError | None = None
        # Of the last effect performed, and of the last one known to be on the medium.
        self.last_token = 0
        self.durable_token = 0

    # Effects.

    def perform(self, effect: StorageEffect) -> None:
        """Carry one effect out, or see that the next sync does. Raises StorageError."""
        self._check_usable()
        if isinstance(effect, PersistElection | AppendLog | TruncateLog | InstallSnapshot):
            assert_always(effect.token > self.last_token, "raft-token-order", token=effect.token)
            self.last_token = effect.token
        if isinstance(effect, PersistElection):
            self._promise = effect
            return
        with _Finality(self._give_up):
            if self._queue:
                self._queue.append(effect)
            elif isinstance(effect, AppendLog):
                self._append(effect)
            elif isinstance(effect, WriteSnapshotChunk) and self._fits(effect):
                self._write_chunk(effect)
            else:
                self._queue.append(effect)

    @property
    def has_work(self) -> bool:
        """Whether a sync would do anything."""
        return bool(self.last_token > self.durable_token or self._queue or self._left_files.paths)

    async def sync(self) -> Persisted:
        """Make everything last that was performed before; one at a time.

        What is performed meanwhile is the next one's. If this is cancelled it is not known what was
        done, and the storage is of no more use.
        """
        self._check_usable()
        assert_always(not self._is_syncing, "raft-sync-twice")
        self._is_syncing = True
        with _Finality(self._give_up):
            while self._queue:
                # It stays at the head until it is done, so that nothing overtakes it.
                await self._change(self._queue[0])
                self._queue.popleft()
            token = self.last_token
            promise, self._promise = self._promise, None
            if promise is not None:
                await self._quorum_state.write(promise)
            await self._log.flush()
            self._durable_end.raise_to(self._log.recovery_point)
            await self._log.rebuild_damaged_indexes()
            await self._remove_left_files()
        self._is_syncing = False
        self.durable_token = token
        return Persisted(token)

    async def _change(self, effect: _LogEffect) -> None:
        match effect:
            case AppendLog():
                self._append(effect)
            case TruncateLog():
                await self._durable_end.lower(effect.end_offset)
                await self._log.truncate_to(effect.end_offset)
            case TrimLog():
                await self._trim(effect.start_offset)
            case WriteSnapshotChunk():
                if not self._fits(effect):
                    await self._drop_download()
                self._write_chunk(effect)
            case DropDownload():
                await self._drop_download()
            case InstallSnapshot():
                await self._install(effect.snapshot_id)
            case DeleteSnapshots():
                for snapshot_id in effect.snapshot_ids:
                    await self._snapshots.delete(snapshot_id)
            case _:
                assert_never(effect)

    def _append(self, effect: AppendLog) -> None:
        log = self._log
        for batch in effect.batches:
            assert_always(
                batch.base_offset == log.log_end_offset, "storage-append-gap", log=log.directory
            )
            log.append_as_follower(batch.data, batch.epoch)

    async def _trim(self, start_offset: int) -> None:
        log = self._log
        await self._start_file.replace(format_offsets({TOPIC_PARTITION: start_offset}))
        # The core trims what is committed; the log has not heard of that.
        log.update_high_watermark(start_offset)
        log.raise_log_start(start_offset)
        await log.delete_old_segments()

    async def _remove_left_files(self) -> None:
        while self._left_files.paths:
            path = self._left_files.paths.pop()
            with suppress(FileNotFoundError):
                await self._disk.unlink(path)

    # Snapshots.

    def create_snapshot(self, snapshot_id: SnapshotId) -> SnapshotWriter:
        """For the state machine's own, which reports SnapshotFrozen when it has frozen it."""
        self._check_usable()
        return self._snapshots.create(snapshot_id, "own")

    def _fits(self, effect: WriteSnapshotChunk) -> bool:
        """Whether there is no other download in the way of this piece."""
        return effect.position > 0 or self._download is None

    def _write_chunk(self, effect: WriteSnapshotChunk) -> None:
        if effect.position == 0:
            self._download = self._snapshots.create(effect.snapshot_id, "download")
        download = self._download
        if (
            download is None
            or download.snapshot_id != effect.snapshot_id
            or download.position != effect.position
        ):
            raise InternalInvariant(f"raft-download-gap: {effect.snapshot_id} at {effect.position}")
        download.append(effect.data)

    async def _drop_download(self) -> None:
        if self._download is not None:
            download, self._download = self._download, None
            await download.abandon()

    async def _install(self, snapshot_id: SnapshotId) -> None:
        """A crash in the middle leaves a snapshot that the log does not lead to; see opening."""
        download, self._download = self._download, None
        if download is None or download.snapshot_id != snapshot_id:
            raise InternalInvariant(f"raft-install-unknown: {snapshot_id}")
        await download.freeze()
        # All of it goes, and in no certain order.
        await self._durable_end.lower(0)
        await self._log.truncate_fully_and_start_at(snapshot_id.end_offset)

    # The view of a core.

    def read_head(self, snapshot_id: SnapshotId) -> SnapshotHead:
        """What the first batch of a frozen snapshot says."""
        return self._snapshots.read_head(snapshot_id)

    @property
    def snapshot_ids(self) -> tuple[SnapshotId, ...]:
        return self._snapshots.ids

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Of what is written, durable or not."""
        return self._log.log_end_offset

    def log_bytes_from(self, offset: int) -> int:
        """What the log takes if it begins at `offset`: whole segments go, no part of one."""
        size = 0
        for segment in self._log.segments:
            if segment.base_offset <= offset:
                # The last one that begins here or before holds the offset.
                size = 0
            size += segment.size_bytes
        return size

    def stored_snapshot(self, snapshot_id: SnapshotId) -> StoredSnapshot:
        """What retention asks of a frozen snapshot."""
        snapshots = self._snapshots
        head = snapshots.read_head(snapshot_id)
        return StoredSnapshot(snapshot_id, snapshots.size(snapshot_id), head.last_contained_ms)

    def read(self, start_offset: int, end_offset: int, max_bytes: int) -> Buffer:
        """Within one segment."""
        if start_offset >= min(end_offset, self._log.log_end_offset):
            return b""
        records = self._log.read(start_offset, max_bytes, Isolation.LOG_END).records
        if records is None:
            return b""
        with self._log.storage_guard("read"):
            data = records.file.pread(records.length, records.position)
        size = 0
        for batch in walk_batches(data):
            if batch.last_offset >= end_offset:
                break
            size += batch.size
        return data if size == len(data) else data[:size]

    def starts_batch(self, offset: int) -> bool:
        log = self._log
        if not log.log_start_offset <= offset < log.log_end_offset:
            return offset == log.log_end_offset
        records = log.read(offset, _OFFSET_BYTES, Isolation.LOG_END).records
        if records is None:
            return False
        with log.storage_guard("read"):
            base_offset = records.file.pread(_OFFSET_BYTES, records.position)
        return int.from_bytes(base_offset) == offset

    def snapshot_size(self, snapshot_id: SnapshotId) -> int:
        return self._snapshots.size(snapshot_id)

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> Buffer:
        return self._snapshots.read(snapshot_id, position, max_bytes)

    # Lifetime.

    async def close(self) -> None:
        """Make everything last and let go of the files; quietly if the storage has failed."""
        if self._refusal is not None:
            self.abandon()
            return
        await self.sync()
        await self._drop_download()
        await self._log.close()
        await self._durable_end.replace(self._log.log_end_offset)
        self._refusal = StorageError(f"{self._log.directory} is closed")

    def abandon(self) -> None:
        """Let go of the files as they are, without a touch to them. Idempotent."""
        if self._refusal is None:
            self._refusal = StorageError(f"{self._log.directory} is abandoned")
        if self._download is not None:
            self._download.close()
        self._durable_end.close()
        self._log.go_offline(self._refusal.message)

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _give_up(self, error: BaseException) -> None:
        directory = self._log.directory
        self._refusal = StorageError(f"{directory} is of no more use: {error!r}")
        if isinstance(error, OSError):
            raise StorageError(f"{directory}: {error}") from error


class _Finality:
    """Around all work: after a failure nothing is possible any more."""

    __slots__ = ("_give_up",)

    def __init__(self, give_up: Callable[[BaseException], None]) -> None:
        self._give_up = give_up

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._give_up(error)
