"""A storage in memory: what is on the disk, what only the page cache has, and how both survive.

Effects change the visible image at once and the durable one when they are synced, in the order of
their tokens. A crash leaves the durable image and, of what was not synced, as much as it pleases: a
prefix of the log's effects and, independently, of the promises, because they are two files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, TypeAlias

from kraftpy.log.epochs import LeaderEpochCache
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
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT, Batch, SnapshotId
from kraftpy.raft.quorum import RecoveredState, learn_control_records
from kraftpy.raft.snapshot_content import SnapshotHead, read_snapshot_head
from kraftpy.raft.voters import BOOTSTRAP_OFFSET, History, VoterSet
from kraftpy.world import Buffer, assert_always

__all__ = ["LogImage", "MemoryStorage", "StorageEffect"]

StorageEffect: TypeAlias = (
    PersistElection
    | AppendLog
    | TruncateLog
    | TrimLog
    | WriteSnapshotChunk
    | DropDownload
    | InstallSnapshot
    | DeleteSnapshots
)
# A tuple, because a union would be made anew for each effect.
_WITH_TOKEN: Final = (PersistElection, AppendLog, TruncateLog, InstallSnapshot)
_base_offset = attrgetter("base_offset")
_LAST: Final = 4


@dataclass(slots=True)
class LogImage:
    """A log and its snapshots at one moment."""

    start_offset: int = 0
    end_offset: int = 0
    batches: list[Batch] = field(default_factory=list)
    snapshots: dict[SnapshotId, bytes] = field(default_factory=dict)
    # Of the batches: kept beside them, because a log of thousands of epochs is recovered often.
    epochs: LeaderEpochCache = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self.epochs = LeaderEpochCache()
        self._learn_epochs(self.batches)

    def copy(self) -> LogImage:
        twin = LogImage(self.start_offset, self.end_offset, snapshots=dict(self.snapshots))
        twin.batches = list(self.batches)
        twin.epochs = self.epochs.copy()
        return twin

    def _learn_epochs(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            if batch.epoch != self.epochs.latest_epoch:
                self.epochs.assign(batch.epoch, batch.base_offset)

    def apply(self, effect: StorageEffect, download: bytes = b"") -> None:
        match effect:
            case AppendLog():
                assert_always(
                    effect.batches[0].base_offset == self.end_offset, "storage-append-gap"
                )
                self.batches += effect.batches
                self._learn_epochs(effect.batches)
                self.end_offset = effect.batches[-1].end_offset
            case TruncateLog():
                del self.batches[self.position(effect.end_offset) :]
                self.epochs.truncate_from_end(effect.end_offset)
                self.end_offset = effect.end_offset
            case TrimLog():
                del self.batches[: self.position(effect.start_offset)]
                self.start_offset = effect.start_offset
                if self.batches:
                    self.epochs.truncate_from_start(effect.start_offset)
                else:
                    self.epochs.clear()
            case InstallSnapshot():
                self.snapshots[effect.snapshot_id] = download
                self.batches.clear()
                self.epochs.clear()
                self.start_offset = self.end_offset = effect.snapshot_id.end_offset
            case DeleteSnapshots():
                for snapshot_id in effect.snapshot_ids:
                    self.snapshots.pop(snapshot_id, None)

    def position(self, offset: int) -> int:
        """The index of the first batch that begins at `offset` or behind it."""
        batches = self.batches
        # Nearly always it is one of the last.
        start = len(batches) - _LAST
        if start < 0 or batches[start].base_offset >= offset:
            start = 0
        return bisect_left(batches, offset, lo=start, key=_base_offset)

    def leads_to(self, snapshot_id: SnapshotId) -> bool:
        """Whether the log has the record that the snapshot ends with, or begins behind it."""
        if snapshot_id.end_offset <= self.start_offset:
            return True
        position = self.position(snapshot_id.end_offset) - 1
        if position < 0:
            return False
        last = self.batches[position]
        return (last.end_offset, last.epoch) == snapshot_id


class MemoryStorage:
    __slots__ = (
        "_download",
        "_head",
        "_pending",
        "_silent",
        "durable",
        "durable_election",
        "durable_token",
        "election",
        "last_token",
        "log",
    )

    def __init__(self, snapshots: dict[SnapshotId, bytes] | None = None) -> None:
        """Empty but for given snapshots, which a formatted directory may have."""
        self.log = LogImage(snapshots=dict(snapshots or {}))
        self.durable = self.log.copy()
        self.election = ElectionState()
        self.durable_election = ElectionState()
        self.durable_token = 0
        # Of the effects that were performed; what lies behind the durable one is not synced yet.
        self.last_token = 0
        self._pending: deque[tuple[int, StorageEffect, bytes]] = deque()
        self._download = bytearray()
        # Control batches, by offset, that were read before and say nothing of voters or versions.
        self._silent: dict[int, Batch] = {}
        # The snapshot whose head was read last, and what it says.
        self._head: tuple[bytes, SnapshotHead] | None = None

    # Effects.

    def perform(self, effect: StorageEffect) -> None:
        """Carry one effect out, visibly; `sync` makes it last."""
        match effect:
            case PersistElection():
                self.election = effect.election
            case WriteSnapshotChunk():
                if effect.position == 0:
                    self._download.clear()
                self._download += effect.data
                return
            case DropDownload():
                self._download.clear()
                return
            case _:
                self.log.apply(effect, bytes(self._download))
        token = 0
        if isinstance(effect, _WITH_TOKEN):
            token = effect.token
        elif self._pending:
            token = self._pending[-1][0]
        data = bytes(self._download) if isinstance(effect, InstallSnapshot) else b""
        if token == 0:
            self.durable.apply(effect)
        else:
            self._pending.append((token, effect, data))
            self.last_token = token

    def freeze_snapshot(self, snapshot_id: SnapshotId, data: bytes) -> None:
        """A snapshot that the state machine wrote, synced by itself."""
        self.log.snapshots[snapshot_id] = data
        self.durable.snapshots[snapshot_id] = data

    def sync(self, token: int) -> list[AppendLog]:
        """Make everything up to `token` last; the appends among it."""
        pending = self._pending
        appends = []
        while pending and pending[0][0] <= token:
            _, effect, data = pending.popleft()
            self._make_durable(effect, data)
            if isinstance(effect, AppendLog):
                appends.append(effect)
        self.durable_token = max(self.durable_token, token)
        return appends

    def _make_durable(self, effect: StorageEffect, data: bytes) -> None:
        if isinstance(effect, PersistElection):
            self.durable_election = effect.election
        else:
            self.durable.apply(effect, data)

    def crash(self, *, kept_promises: float, kept_log: float) -> None:
        """Lose what was not synced, but for these shares of its beginning."""
        pending = list(self._pending)
        promises = [each for each in pending if isinstance(each[1], PersistElection)]
        changes = [each for each in pending if not isinstance(each[1], PersistElection)]
        for _, effect, data in promises[: round(len(promises) * kept_promises)]:
            self._make_durable(effect, data)
        for _, effect, data in changes[: round(len(changes) * kept_log)]:
            self._make_durable(effect, data)
        self._pending.clear()
        self._download.clear()
        self.durable_token = self.last_token = 0
        self.log = self.durable.copy()
        self.election = self.durable_election

    # The view of a core.

    def read(self, start_offset: int, end_offset: int, max_bytes: int) -> Buffer:
        log = self.log
        parts: list[bytes] = []
        size = 0
        for position in range(log.position(start_offset), len(log.batches)):
            batch = log.batches[position]
            size += len(batch.data)
            if batch.end_offset > end_offset or (parts and size > max_bytes):
                break
            parts.append(batch.data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def starts_batch(self, offset: int) -> bool:
        log = self.log
        position = log.position(offset)
        if position < len(log.batches):
            return log.batches[position].base_offset == offset
        return offset == log.end_offset

    def snapshot_size(self, snapshot_id: SnapshotId) -> int:
        return len(self.log.snapshots[snapshot_id])

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> Buffer:
        return self.log.snapshots[snapshot_id][position : position + max_bytes]

    # Recovery.

    def recover(self, static_voters: VoterSet) -> RecoveredState:
        """What a core starts from: promise, epochs, snapshots, and the voters on record."""
        log = self.log
        newest = max(log.snapshots, default=None)
        if newest is not None and not log.leads_to(newest):
            # The crash came between the download's end and the emptying of the log, or took the
            # tail that the snapshot was made of.
            log.apply(InstallSnapshot(newest, 0), log.snapshots[newest])
        for snapshot_id in [each for each in log.snapshots if each.end_offset < log.start_offset]:
            del log.snapshots[snapshot_id]
        self.durable = log.copy()
        voters, kraft_versions = self._recover_voters(static_voters)
        return RecoveredState(
            self,
            self.election,
            log.start_offset,
            log.end_offset,
            log.epochs.entries,
            tuple(sorted(log.snapshots)),
            voters.entries(),
            kraft_versions.entries(),
        )

    def _recover_voters(self, static: VoterSet) -> tuple[History[VoterSet], History[int]]:
        log = self.log
        voters = History(static)
        kraft_versions = History(0)
        first = min(log.snapshots, default=None)
        if first is not None and first.end_offset == log.start_offset:
            head = self._head_of(log.snapshots[first])
            offset = BOOTSTRAP_OFFSET if first == BOOTSTRAP_SNAPSHOT else first.end_offset - 1
            if head.voters is not None:
                voters = History(head.voters, offset)
            kraft_versions = History(head.kraft_version, offset)
        silent = self._silent
        unread = [
            batch
            for batch in log.batches
            if batch.is_control and silent.get(batch.base_offset) is not batch
        ]
        for batch in unread:
            known = voters.latest_offset, kraft_versions.latest_offset
            learn_control_records(batch.data, voters, kraft_versions)
            if known == (voters.latest_offset, kraft_versions.latest_offset):
                silent[batch.base_offset] = batch
        return voters, kraft_versions

    def _head_of(self, snapshot: bytes) -> SnapshotHead:
        if self._head is None or self._head[0] is not snapshot:
            self._head = snapshot, read_snapshot_head(snapshot)
        return self._head[1]
