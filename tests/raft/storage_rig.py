"""The two storages of a core behind one handle, and a random but legal life for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from raft_cluster import key_of, voter_of

from kraftpy.protocol.schema.control_records import KRaftVersionRecord
from kraftpy.raft import effects as fx
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.log_state import Batch, LogView, SnapshotId
from kraftpy.raft.memory_storage import LogImage, MemoryStorage, StorageEffect
from kraftpy.raft.quorum import RecoveredState
from kraftpy.raft.storage import RaftStorage, metadata_log_config
from kraftpy.raft.storage_opening import open_storage
from kraftpy.raft.voters import VoterSet
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import build_control_batch
from kraftpy.records.walker import walk_batches
from kraftpy.sim.quorum_nemesis import snapshot_bytes
from kraftpy.world import Buffer, Disk
from kraftpy.world.memory_clock import MemoryClock

STATIC = VoterSet([voter_of(9)])
# A roll every few batches, an index entry for each.
TINY = replace(
    metadata_log_config(segment_bytes=1024), index_interval_bytes=1, segment_index_bytes=1200
)


class Subject(Protocol):
    """A storage under test."""

    @property
    def view(self) -> LogView: ...

    def perform(self, effect: StorageEffect) -> None: ...

    async def sync(self) -> int: ...

    async def freeze(self, snapshot_id: SnapshotId, data: bytes) -> None: ...

    async def reopen(self) -> RecoveredState:
        """The process ends without a word, and another begins."""
        ...


class MemorySubject:
    def __init__(self) -> None:
        self.view = MemoryStorage()

    def perform(self, effect: StorageEffect) -> None:
        self.view.perform(effect)

    async def sync(self) -> int:
        self.view.sync(self.view.last_token)
        return self.view.durable_token

    async def freeze(self, snapshot_id: SnapshotId, data: bytes) -> None:
        self.view.freeze_snapshot(snapshot_id, data)

    async def reopen(self) -> RecoveredState:
        self.view.crash(kept_promises=1.0, kept_log=1.0)
        return self.view.recover(STATIC)


async def open_at(disk: Disk, directory: str) -> tuple[RaftStorage, RecoveredState]:
    return await open_storage(
        directory, TINY, STATIC, disk=disk, clock=MemoryClock(), jitter=Random(1)
    )


class DiskSubject:
    def __init__(self, disk: Disk, directory: str, storage: RaftStorage) -> None:
        self.disk = disk
        self.directory = directory
        self.view = storage

    def perform(self, effect: StorageEffect) -> None:
        self.view.perform(effect)

    async def sync(self) -> int:
        return (await self.view.sync()).token

    async def freeze(self, snapshot_id: SnapshotId, data: bytes) -> None:
        writer = self.view.create_snapshot(snapshot_id)
        writer.append(data[:7])
        writer.append(data[7:])
        await writer.freeze()

    async def reopen(self) -> RecoveredState:
        self.view, recovered = await open_at(self.disk, self.directory)
        return recovered


def data_batch(base_offset: int, epoch: int, *values: bytes) -> Batch:
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch)
    for value in values:
        builder.append(None, value, timestamp_ms=0)
    return Batch(base_offset, base_offset + len(values), epoch, bytes(builder.build()), False)


def voters_batch(base_offset: int, epoch: int, *node_ids: int) -> Batch:
    voters = VoterSet(voter_of(node_id) for node_id in node_ids)
    data = build_control_batch(
        [KRaftVersionRecord(kraft_version=1), voters.to_record()],
        base_offset=base_offset,
        leader_epoch=epoch,
        timestamp_ms=0,
    )
    return Batch(base_offset, base_offset + 2, epoch, bytes(data), True)


def snapshot_of(snapshot_id: SnapshotId) -> bytes:
    voters = VoterSet([voter_of(1 + snapshot_id.end_offset % 7)])
    return snapshot_bytes(snapshot_id, voters, snapshot_id.end_offset % 2)


def promise_of(number: int, token: int) -> fx.PersistElection:
    election = ElectionState(number, number % 4 - 1, key_of(number % 3) if number % 3 else None)
    return fx.PersistElection(election, 1, (1, 2, 3), token)


def contents(
    view: LogView, start_offset: int, end_offset: int, max_bytes: int = 200
) -> list[bytes]:
    """All batches from start to end, read as a fetcher would."""
    found: list[bytes] = []
    offset = start_offset
    while offset < end_offset:
        data: Buffer = view.read(offset, end_offset, max_bytes)
        batches = list(walk_batches(data))
        assert batches, f"nothing at {offset}"
        assert len(batches) == 1 or len(data) <= max_bytes
        assert sum(batch.size for batch in batches) == len(data), "only whole batches"
        found += [bytes(batch.data) for batch in batches]
        offset = batches[-1].last_offset + 1
    assert offset == end_offset
    return found


@dataclass
class Freeze:
    """The state machine's own snapshot."""

    snapshot_id: SnapshotId
    data: bytes


class Life:
    """Draws what a core could want, one step after the other, and keeps the log as it should be."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.image = LogImage()
        self.committed = 0
        self.epoch = 1
        self.token = 0

    def step(self) -> list[StorageEffect | Freeze]:
        choice = self.random.randrange(13)
        image = self.image
        if choice < 5:
            return [self._append()]
        if choice < 7:
            self.token += 1
            return [promise_of(self.token, self.token)]
        if choice == 7:
            return self._truncate()
        if choice == 8:
            return self._install()
        if choice == 9:
            return self._drop()
        self._commit()
        if choice < 12:
            return self._freeze()
        if len(image.snapshots) < 2:
            return []
        kept = self.random.choice(sorted(image.snapshots)[1:])
        removed = tuple(each for each in sorted(image.snapshots) if each < kept)
        return self._note([fx.TrimLog(kept.end_offset), fx.DeleteSnapshots(removed)])

    def _note(self, effects: list[StorageEffect | Freeze]) -> list[StorageEffect | Freeze]:
        download = b""
        for effect in effects:
            if isinstance(effect, Freeze):
                self.image.snapshots[effect.snapshot_id] = effect.data
            elif isinstance(effect, fx.WriteSnapshotChunk):
                download = bytes(effect.data) if not effect.position else download + effect.data
            else:
                self.image.apply(effect, download)
        return effects

    def _append(self) -> StorageEffect:
        self.epoch += self.random.randrange(5) == 0
        batches = []
        offset = self.image.end_offset
        for _ in range(self.random.randint(1, 3)):
            if self.random.randrange(4) == 0:
                batch = voters_batch(offset, self.epoch, *self.random.sample(range(1, 8), 3))
            else:
                values = [bytes(self.random.randrange(200))] * self.random.randint(1, 3)
                batch = data_batch(offset, self.epoch, *values)
            batches.append(batch)
            offset = batch.end_offset
        self.token += 1
        append = fx.AppendLog(tuple(batches), self.token)
        self._note([append])
        return append

    def _commit(self) -> None:
        ends = [batch.end_offset for batch in self.image.batches]
        if ends:
            self.committed = max(self.committed, self.random.choice(ends))

    def _truncate(self) -> list[StorageEffect | Freeze]:
        ends = [batch.base_offset for batch in self.image.batches]
        ends = [end for end in ends if end >= self.committed]
        if not ends:
            return []
        # What follows comes from another leader, as ever after a truncation.
        self.epoch += 1
        self.token += 1
        return self._note([fx.TruncateLog(self.random.choice(ends), self.token)])

    def _freeze(self) -> list[StorageEffect | Freeze]:
        ends = [batch for batch in self.image.batches if batch.end_offset <= self.committed]
        if not ends:
            return []
        last = self.random.choice(ends)
        snapshot_id = SnapshotId(last.end_offset, last.epoch)
        if snapshot_id in self.image.snapshots:
            return []
        return self._note([Freeze(snapshot_id, snapshot_of(snapshot_id))])

    def _install(self) -> list[StorageEffect | Freeze]:
        """It may end before this log does, if that holds what another leader never had."""
        self.epoch += 1
        snapshot_id = SnapshotId(self.committed + self.random.randint(1, 9), self.epoch)
        self.committed = snapshot_id.end_offset
        data = snapshot_of(snapshot_id)
        cut = self.random.randrange(1, len(data))
        older = tuple(sorted(self.image.snapshots))
        self.token += 1
        return self._note(
            [
                fx.WriteSnapshotChunk(snapshot_id, 0, data[:cut]),
                fx.WriteSnapshotChunk(snapshot_id, cut, data[cut:]),
                fx.InstallSnapshot(snapshot_id, self.token),
                *([fx.DeleteSnapshots(older)] if older else []),
            ]
        )

    def _drop(self) -> list[StorageEffect | Freeze]:
        """A download that comes to nothing, sometimes without a word."""
        snapshot_id = SnapshotId(self.committed + 3, self.epoch + 1)
        chunk = fx.WriteSnapshotChunk(snapshot_id, 0, b"half a snapshot")
        return [chunk, fx.DropDownload(snapshot_id)] if self.random.randrange(2) else [chunk]
