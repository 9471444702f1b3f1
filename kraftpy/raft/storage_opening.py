"""Opening the storage of a core: what a node finds when it starts (section 9, recovery).

The log is recovered from its first batch on, each CRC checked. It is small: snapshots keep it so.

What a crash can have left, and what is made of it:

- A `.part` or `.deleted` snapshot is removed, and so is one below the log start.
- A batch that does not continue the one before it ends the log. Not so below the offset up to which
  the log is known to have been synced (durable_end.py): that is no trace of a crash but damage, and
  what it would cut off is what the quorum has decided. The node refuses to start.
- A newest snapshot that is not whole is damage too, since freezing makes it durable first.
- A newest snapshot that the log does not lead to, because it ends before it or has another epoch
  there, is an installation that was interrupted, or has outlived the tail that it was made of. It
  covers what is committed, so the log restarts behind it.
- A log start at which no snapshot ends is raised to the next end of one. Without any, what lies
  below the log start is lost, and the node refuses to start.

The core is told that all of this is durable. After the mere end of a process it was in the page
cache, perhaps, so it is synced before anybody hears of it.
"""

from __future__ import annotations

import logging

from kraftpy.log.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    AtomicFile,
    format_partition_metadata,
    parse_offsets,
    parse_partition_metadata,
    read_text,
)
from kraftpy.log.epochs import LeaderEpochCache
from kraftpy.log.errors import InconsistentTopicIdError, StorageError
from kraftpy.log.handles import HandlePool
from kraftpy.log.loading import load_log
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.offsets import Isolation
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.segment_files import directory_name
from kraftpy.raft.durable_end import DurableEnd
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT, SnapshotId
from kraftpy.raft.quorum import RecoveredState, learn_control_records
from kraftpy.raft.quorum_state_file import QuorumStateFile
from kraftpy.raft.rpc import METADATA_TOPIC_ID
from kraftpy.raft.snapshot_content import IncomingSnapshot
from kraftpy.raft.snapshot_files import CorruptSnapshotFileError, SnapshotFiles
from kraftpy.raft.storage import TOPIC_PARTITION, LeftFiles, RaftStorage
from kraftpy.raft.voters import BOOTSTRAP_OFFSET, History, VoterSet
from kraftpy.records.batch import RecordBatch
from kraftpy.records.errors import RecordDataError
from kraftpy.records.walker import batch_at, walk_batches
from kraftpy.world import Clock, Disk, Random

__all__ = ["open_storage"]

_log = logging.getLogger(__name__)

_OPEN_FILES_MAX = 50
_READ_BYTES = 1024 * 1024
_REMEDY = (
    "Bring the directory back as it was. If that can't be, and the other controllers are well: "
    "remove this node from the quorum's voters, if it is one, format the directory anew, and let "
    "the node join again."
)


async def open_storage(
    metadata_directory: str,
    config: LogConfig,
    static_voters: VoterSet,
    *,
    disk: Disk,
    clock: Clock,
    jitter: Random,
) -> tuple[RaftStorage, RecoveredState]:
    """The storage in `<metadata directory>/__cluster_metadata-0`, made if there is none.

    Raises QuorumStateError for a promise that can't be read, StorageError for other files that
    can't be right, and OSError.
    """
    directory = f"{metadata_directory}/{directory_name(*TOPIC_PARTITION)}"
    await disk.make_directory(directory)
    # First of all, since nothing may be changed in a directory that a node must not start with.
    quorum_state = QuorumStateFile(disk, directory)
    election = await quorum_state.read()
    await _check_topic_id(disk, directory)
    snapshots = SnapshotFiles(disk, directory)
    await snapshots.load()
    pace = Pace(clock)
    await _check_newest_snapshot(snapshots, pace)
    stored_start = await _read_offset(disk, directory, LOG_START_OFFSET_CHECKPOINT)
    durable_end = DurableEnd(disk, directory)
    durable_end.read()
    _first_snapshot(snapshots, stored_start, directory)
    left_files = LeftFiles()
    environment = LogEnvironment(
        disk=disk,
        pool=HandlePool(disk, _OPEN_FILES_MAX),
        clock=clock,
        pace=pace,
        jitter=jitter,
        owner=left_files,
        verify_transactions=False,
    )
    log = await _load_sound(environment, directory, config, stored_start, durable_end.offset)
    await _reconcile(log, snapshots, durable_end)
    await log.flush()
    # If it is empty a flush passes over it, and what a truncation cut off might come back.
    await log.active_segment.log_file.sync()
    await disk.sync_directory(directory)
    await disk.sync_directory(metadata_directory)
    await durable_end.replace(log.log_end_offset)
    if election is None and log.log_end_offset > 0:
        # Kafka starts, too, and says nothing.
        _log.warning(
            "%s is missing beside a log of %d records: this node may have voted, and will vote "
            "again in the same epoch if it is asked",
            quorum_state.path,
            log.log_end_offset,
        )
    storage = RaftStorage(
        disk, log, snapshots, quorum_state, left_files=left_files, durable_end=durable_end
    )
    walk = _Walk(storage, snapshots, static_voters)
    await walk.run(pace)
    recovered = RecoveredState(
        storage,
        election or ElectionState(),
        log.log_start_offset,
        log.log_end_offset,
        walk.epochs.entries,
        snapshots.ids,
        walk.voters.entries(),
        walk.kraft_versions.entries(),
    )
    return storage, recovered


async def _load_sound(
    environment: LogEnvironment,
    directory: str,
    config: LogConfig,
    start_offset: int,
    durable_end: int,
) -> PartitionLog:
    """The log up to where it stops being one. StorageError if that is below `durable_end`."""
    try:
        log = await load_log(
            environment,
            directory,
            TOPIC_PARTITION,
            config,
            is_clean=False,
            log_start_offset=start_offset,
            durable_end=durable_end,
        )
        await _cut_at_gap(log, environment.pace, durable_end)
    except StorageError as error:
        raise StorageError(f"{error}. {_REMEDY}") from error
    return log


async def _check_topic_id(disk: Disk, directory: str) -> None:
    path = f"{directory}/{PARTITION_METADATA}"
    text = await read_text(disk, path)
    if text is None:
        await AtomicFile(disk, path).replace(format_partition_metadata(METADATA_TOPIC_ID))
    elif parse_partition_metadata(text, path) != METADATA_TOPIC_ID:
        raise InconsistentTopicIdError(f"{path}: another topic's id")


async def _read_offset(disk: Disk, directory: str, name: str) -> int:
    path = f"{directory}/{name}"
    text = await read_text(disk, path)
    return 0 if text is None else parse_offsets(text, path).get(TOPIC_PARTITION, 0)


def _first_snapshot(
    snapshots: SnapshotFiles, start_offset: int, directory: str
) -> SnapshotId | None:
    """The first snapshot at the log start or behind it; only a log that begins at 0 needs none."""
    for snapshot_id in snapshots.ids:
        if snapshot_id.end_offset >= start_offset:
            return snapshot_id
    if start_offset > 0:
        raise StorageError(
            f"{directory}: the log begins at {start_offset}, and no snapshot covers what is below"
        )
    return None


async def _check_newest_snapshot(snapshots: SnapshotFiles, pace: Pace) -> None:
    """Read it before anything is changed: it will be loaded, and others ask for it."""
    newest = max(snapshots.ids, default=None)
    if newest is None:
        return
    content = IncomingSnapshot()
    position = 0
    try:
        while data := snapshots.read(newest, position, _READ_BYTES):
            content.take(data)
            position += len(data)
            await pace.rest(len(data))
        content.finish()
    except RecordDataError as error:
        raise CorruptSnapshotFileError(f"{snapshots.path(newest)}: {error}. {_REMEDY}") from error


async def _cut_at_gap(log: PartitionLog, pace: Pace, durable_end: int) -> None:
    """End the log where it stops being one. Raises StorageError if that is below `durable_end`.

    Sectors that were never written may show an old batch, sound in itself. In other logs a gap is
    what the cleaner leaves; here nothing durable can lie behind one.
    """
    end_offset = log.segments.first.base_offset
    epoch = 0
    for segment in log.segments:
        for header in segment.headers():
            if header.base_offset != end_offset or header.leader_epoch < epoch:
                _check_end(log, end_offset, durable_end)
                _log.warning("%s: what follows %d does not continue it", log, end_offset)
                await log.truncate_to(end_offset)
                return
            end_offset = header.last_offset + 1
            epoch = header.leader_epoch
            await pace.rest(header.size)
    _check_end(log, end_offset, durable_end)


def _check_end(log: PartitionLog, end_offset: int, durable_end: int) -> None:
    if end_offset < durable_end:
        raise StorageError(
            f"{log.directory} was synced up to offset {durable_end}, and now ends at {end_offset}"
        )


async def _reconcile(log: PartitionLog, snapshots: SnapshotFiles, durable_end: DurableEnd) -> None:
    """Make log and snapshots fit together."""
    newest = max(snapshots.ids, default=None)
    if newest is not None and not _leads_to(log, newest):
        await durable_end.lower(0)
        await log.truncate_fully_and_start_at(newest.end_offset)
    start_offset = log.log_start_offset
    first = _first_snapshot(snapshots, start_offset, log.directory)
    if start_offset > 0 and first is not None and first.end_offset > start_offset:
        start_offset = first.end_offset
        log.update_high_watermark(start_offset)
        log.raise_log_start(start_offset)
    for snapshot_id in snapshots.ids:
        if snapshot_id.end_offset < start_offset:
            await snapshots.delete(snapshot_id)


def _leads_to(log: PartitionLog, snapshot_id: SnapshotId) -> bool:
    """Whether this log has the record that the snapshot ends with, or begins behind it."""
    end_offset = snapshot_id.end_offset
    if end_offset <= log.log_start_offset:
        return True
    if end_offset > log.log_end_offset:
        return False
    records = log.read(end_offset - 1, 1, Isolation.LOG_END).records
    if records is None:
        return False
    batch = batch_at(records.file.pread(records.length, records.position))
    return (
        isinstance(batch, RecordBatch)
        and batch.last_offset == end_offset - 1
        and batch.leader_epoch == snapshot_id.epoch
    )


class _Walk:
    """What snapshot and log say of epochs, voters and kraft.version, by offset."""

    __slots__ = ("_storage", "epochs", "kraft_versions", "voters")

    def __init__(
        self, storage: RaftStorage, snapshots: SnapshotFiles, static_voters: VoterSet
    ) -> None:
        self._storage = storage
        self.epochs = LeaderEpochCache()
        self.voters = History(static_voters)
        self.kraft_versions = History(0)
        first = min(snapshots.ids, default=None)
        if first is not None and first.end_offset == storage.log_start_offset:
            head = snapshots.read_head(first)
            said_at = BOOTSTRAP_OFFSET if first == BOOTSTRAP_SNAPSHOT else first.end_offset - 1
            if head.voters is not None:
                self.voters = History(head.voters, said_at)
            self.kraft_versions = History(head.kraft_version, said_at)

    async def run(self, pace: Pace) -> None:
        storage = self._storage
        offset, end_offset = storage.log_start_offset, storage.log_end_offset
        while offset < end_offset:
            data = storage.read(offset, end_offset, _READ_BYTES)
            if not data:
                raise StorageError(f"the metadata log can't be read at {offset}")
            for batch in walk_batches(data):
                if not isinstance(batch, RecordBatch):
                    raise StorageError(f"the metadata log has no leader epoch at {offset}")
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
                if batch.is_control:
                    learn_control_records(batch.data, self.voters, self.kraft_versions)
                offset = batch.last_offset + 1
            await pace.rest(len(data))
