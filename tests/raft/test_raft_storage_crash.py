"""Power loss at every effect on the disk: what was reported is there, and no more than was asked.

A random life is recorded once. For every moment of it the disk as it was then loses power, by a
policy drawn from the seed, and is opened: the promise and the log must each be one that the core
had asked for, no older than what had been reported as durable.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from random import Random

import pytest
from storage_rig import (
    DiskSubject,
    Freeze,
    Life,
    contents,
    data_batch,
    open_at,
    promise_of,
    snapshot_of,
)

from kraftpy.log.epochs import EpochEntry, LeaderEpochCache
from kraftpy.log.errors import StorageError
from kraftpy.raft import effects as fx
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.log_state import LogState, SnapshotId
from kraftpy.raft.memory_storage import LogImage, StorageEffect
from kraftpy.raft.quorum import RecoveredState
from kraftpy.world.memory_disk import MemoryDisk, Recording
from kraftpy.world.memory_disk_crash import CrashPolicy, draw_crash_policy
from kraftpy.world.memory_disk_faults import SyncError


async def new_subject(disk: MemoryDisk) -> DiskSubject:
    await disk.make_directory("/meta")
    await disk.sync_directory("/")
    storage, _ = await open_at(disk, "/meta")
    return DiskSubject(disk, "/meta", storage)


@dataclass
class History:
    """States in the order in which they were asked for, with the disk's effects before each."""

    asked_at: list[int] = field(default_factory=list)
    promises: list[ElectionState] = field(default_factory=list)
    images: list[LogImage] = field(default_factory=list)
    # Of each sync: the disk's effects before its return, and the last state it covers.
    reported: list[tuple[int, int]] = field(default_factory=list)

    def add(self, count: int, promise: ElectionState, image: LogImage) -> None:
        self.asked_at.append(count)
        self.promises.append(promise)
        self.images.append(image)


def steps_of(image: LogImage, effect: StorageEffect, download: bytes) -> list[LogImage]:
    """The states that one effect goes through: a batch after the other comes, or goes."""
    images = []
    if isinstance(effect, fx.AppendLog):
        for batch in effect.batches:
            image = image.copy()
            image.apply(fx.AppendLog((batch,), effect.token))
            images.append(image)
        return images
    if isinstance(effect, fx.TruncateLog):
        for batch in reversed(image.batches):
            if batch.base_offset > effect.end_offset:
                image = image.copy()
                image.apply(fx.TruncateLog(batch.base_offset, effect.token))
                images.append(image)
    image = image.copy()
    image.apply(effect, download)
    return [*images, image]


async def live(random: Random, disk: MemoryDisk, step_count: int) -> tuple[Recording, History]:
    subject = await new_subject(disk)
    recording = Recording(disk)
    history = History()
    promise, image, download = ElectionState(), LogImage(), b""
    history.add(0, promise, image)
    history.reported.append((0, 0))
    life = Life(random)
    for _ in range(step_count):
        for effect in life.step():
            # Before it is performed: some of it may be on the disk when that returns.
            count = len(recording.effects)
            if isinstance(effect, Freeze):
                image = image.copy()
                image.snapshots[effect.snapshot_id] = effect.data
                history.add(count, promise, image)
                if random.randrange(2):
                    await subject.sync()
                await subject.freeze(effect.snapshot_id, effect.data)
            elif isinstance(effect, fx.PersistElection):
                promise = effect.election
                history.add(count, promise, image)
                subject.perform(effect)
            else:
                if isinstance(effect, fx.WriteSnapshotChunk):
                    download = (download if effect.position else b"") + bytes(effect.data)
                for step in steps_of(image, effect, download):
                    history.add(count, promise, step)
                image = history.images[-1]
                subject.perform(effect)
        if random.randrange(3) == 0:
            await subject.sync()
            history.reported.append((len(recording.effects), len(history.images) - 1))
    return recording, history


def fits(recovered: RecoveredState, image: LogImage) -> bool:
    """Whether the log is this one, perhaps with a later start."""
    start_offset = recovered.start_offset
    if recovered.end_offset != image.end_offset or start_offset < image.start_offset:
        return False
    batches = [batch for batch in image.batches if batch.base_offset >= start_offset]
    epochs = LeaderEpochCache(
        EpochEntry(batch.epoch, batch.base_offset) for batch in batches
    ).entries
    found = contents(recovered.view, start_offset, recovered.end_offset)
    return found == [batch.data for batch in batches] and recovered.epochs == epochs


def check(recovered: RecoveredState, history: History, cut: int) -> None:
    asked = bisect_right(history.asked_at, cut)
    durable = max(covered for count, covered in history.reported if count <= cut)
    assert recovered.election in history.promises[durable:asked]
    # All that could be seen on the way: a crash can bring back what a truncation removed.
    possible = history.images[durable:asked]
    names = {each for image in possible for each in image.snapshots}
    assert not set(recovered.snapshots) - names
    for snapshot_id in recovered.snapshots:
        data = next(
            image.snapshots[snapshot_id] for image in possible if snapshot_id in image.snapshots
        )
        assert recovered.view.read_snapshot(snapshot_id, 0, 1 << 20) == data
    if not any(fits(recovered, image) for image in possible):
        # The log restarted behind a snapshot that it did not lead to.
        newest = recovered.snapshots[-1]
        assert recovered.start_offset == recovered.end_offset == newest.end_offset
        assert not all(image.leads_to(newest) for image in possible)
    LogState(
        recovered.view,
        start_offset=recovered.start_offset,
        end_offset=recovered.end_offset,
        epochs=recovered.epochs,
        snapshots=recovered.snapshots,
    )


@pytest.mark.parametrize("seed", range(6))
async def test_power_is_lost_at_every_effect(seed: int) -> None:
    random = Random(seed)
    recording, history = await live(random, MemoryDisk(), 30)
    assert len(recording.effects) > 100
    for cut in range(len(recording.effects) + 1):
        disk = recording.disk_after(cut)
        policy = draw_crash_policy(random)
        disk.crash(policy, random)
        try:
            _, recovered = await open_at(disk, "/meta")
            check(recovered, history, cut)
        except BaseException as error:
            error.add_note(f"seed {seed}, effect {cut} of {len(recording.effects)}, {policy}")
            raise


@pytest.mark.parametrize("seed", range(3))
async def test_what_a_start_has_told_survives_the_next_power_loss(seed: int) -> None:
    """After the mere end of a process the core is told of what was only in the page cache."""
    random = Random(seed)
    recording, _ = await live(random, MemoryDisk(), 25)
    for cut in range(0, len(recording.effects) + 1, 3):
        # As it was, unsynced effects and all.
        disk = recording.disk_after(cut)
        _, first = await open_at(disk, "/meta")
        seen = facts(first)
        disk.crash(CrashPolicy.DROP_ALL, random)
        _, second = await open_at(disk, "/meta")
        assert facts(second) == seen, f"seed {seed}, effect {cut}"


def facts(recovered: RecoveredState) -> tuple[object, ...]:
    return (
        recovered.election,
        recovered.epochs,
        recovered.snapshots,
        recovered.voters,
        recovered.kraft_versions,
        recovered.start_offset,
        contents(recovered.view, recovered.start_offset, recovered.end_offset),
    )


async def test_an_unsynced_promise_was_never_reported() -> None:
    disk = MemoryDisk()
    subject = await new_subject(disk)
    subject.perform(promise_of(4, 1))
    assert await subject.sync() == 1
    subject.perform(promise_of(5, 2))
    subject.perform(fx.AppendLog((data_batch(0, 5, b"a"),), 3))
    assert subject.view.durable_token == 1
    assert subject.view.has_work
    disk.crash(CrashPolicy.DROP_ALL, Random(0))
    recovered = await subject.reopen()
    assert recovered.election == promise_of(4, 1).election
    assert recovered.end_offset == 0


async def test_a_frozen_snapshot_stays() -> None:
    """Without a sync of the storage: the state machine reports it at once."""
    disk = MemoryDisk()
    subject = await new_subject(disk)
    snapshot_id = SnapshotId(3, 1)
    await subject.freeze(snapshot_id, snapshot_of(snapshot_id))
    disk.crash(CrashPolicy.DROP_ALL, Random(0))
    recovered = await subject.reopen()
    assert recovered.snapshots == (snapshot_id,)
    assert recovered.view.read_snapshot(snapshot_id, 0, 9999) == snapshot_of(snapshot_id)


async def test_one_sync_covers_all_tokens_before_it() -> None:
    """Group commit: a hundred appends, as many syncs of the medium as for one."""
    sync_counts = []
    for append_count in (1, 100):
        disk = MemoryDisk()
        subject = await new_subject(disk)
        recording = Recording(disk)
        for offset in range(append_count):
            subject.perform(fx.AppendLog((data_batch(offset, 0, b""),), offset + 1))
        written = len(recording.effects)
        assert written >= append_count, "an append is in the page cache when perform returns"
        assert await subject.sync() == append_count
        assert not subject.view.has_work
        segment_count = sum(
            name.endswith(".log") for name in await disk.list_directory(subject.view._log.directory)
        )
        sync_counts.append((len(recording.effects) - written) // segment_count)
        disk.crash(CrashPolicy.DROP_ALL, Random(0))
        assert (await subject.reopen()).end_offset == append_count
    assert sync_counts[1] <= 2 * sync_counts[0]


@pytest.mark.parametrize("paths", ["*.log", "*quorum-state.tmp", "*/__cluster_metadata-0"])
async def test_a_failed_sync_is_the_end(paths: str) -> None:
    """Nothing is reported, and nothing believed any more."""
    disk = MemoryDisk()
    subject = await new_subject(disk)
    subject.perform(promise_of(1, 1))
    subject.perform(fx.AppendLog((data_batch(0, 1, b"a"),), 2))
    disk.inject(SyncError(paths=paths))
    with pytest.raises(StorageError, match="__cluster_metadata-0"):
        await subject.sync()
    disk.heal()
    assert subject.view.durable_token == 0
    for attempt in (promise_of(2, 3), fx.AppendLog((data_batch(1, 1, b"b"),), 4)):
        with pytest.raises(StorageError, match="no more use"):
            subject.perform(attempt)
    with pytest.raises(StorageError, match="no more use"):
        await subject.sync()
    await subject.view.close()


async def test_an_interrupted_installation_is_finished() -> None:
    """The snapshot is frozen, and the log before it still there, longer and of other epochs."""
    disk = MemoryDisk()
    subject = await new_subject(disk)
    subject.perform(fx.AppendLog(tuple(data_batch(each, 1, b"a") for each in range(9)), 1))
    await subject.sync()
    await subject.freeze(SnapshotId(6, 3), snapshot_of(SnapshotId(6, 3)))
    _, recovered = await open_at(disk, "/meta")
    assert (recovered.start_offset, recovered.end_offset) == (6, 6)
    assert recovered.epochs == ()
