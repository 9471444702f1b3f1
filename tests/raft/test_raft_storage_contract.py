"""What a core may expect of its storage, in memory and on disk alike."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from storage_rig import (
    STATIC,
    DiskSubject,
    Freeze,
    Life,
    MemorySubject,
    Subject,
    contents,
    data_batch,
    open_at,
    promise_of,
    snapshot_of,
    voters_batch,
)

from kraftpy.raft import effects as fx
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT, LogState, SnapshotId
from kraftpy.raft.memory_storage import LogImage
from kraftpy.raft.quorum import RecoveredState
from kraftpy.raft.snapshot_content import read_snapshot_head
from kraftpy.world import Disk
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.real_disk import RealDisk


@pytest.fixture(params=["memory", "memory disk", "real disk"])
async def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    if request.param == "memory":
        return MemorySubject()
    disk: Disk = RealDisk() if request.param == "real disk" else MemoryDisk()
    directory = str(tmp_path) if request.param == "real disk" else "/meta"
    await disk.make_directory(directory)
    storage, _ = await open_at(disk, directory)
    return DiskSubject(disk, directory, storage)


def assert_recovered(recovered: RecoveredState, image: LogImage) -> None:
    """Everything but the promise is as `image` has it."""
    view = recovered.view
    assert (recovered.start_offset, recovered.end_offset) == (image.start_offset, image.end_offset)
    kept = [batch.data for batch in image.batches]
    assert contents(view, recovered.start_offset, recovered.end_offset) == kept
    epochs: list[tuple[int, int]] = []
    for batch in image.batches:
        if not epochs or epochs[-1][0] != batch.epoch:
            epochs.append((batch.epoch, batch.base_offset))
    assert recovered.epochs == tuple(epochs)
    assert recovered.snapshots == tuple(sorted(image.snapshots))
    for snapshot_id, data in image.snapshots.items():
        assert view.snapshot_size(snapshot_id) == len(data)
        assert view.read_snapshot(snapshot_id, 0, len(data) + 1) == data
    # The core takes it.
    LogState(
        view,
        start_offset=recovered.start_offset,
        end_offset=recovered.end_offset,
        epochs=recovered.epochs,
        snapshots=recovered.snapshots,
    )


async def test_nothing_is_there_at_first(subject: Subject) -> None:
    recovered = await subject.reopen()
    assert recovered.election == ElectionState()
    assert_recovered(recovered, LogImage())
    assert recovered.voters == ((-1, STATIC),)
    assert recovered.kraft_versions == ((-1, 0),)
    assert recovered.view.starts_batch(0)
    assert recovered.view.read(0, 10, 100) == b""


async def test_the_last_promise_stays(subject: Subject) -> None:
    """KRF-37"""
    for number in (4, 5):
        subject.perform(promise_of(number, number))
    assert await subject.sync() == 5
    assert (await subject.reopen()).election == promise_of(5, 5).election


async def test_batches_are_read_whole_below_an_end_and_within_a_size(subject: Subject) -> None:
    batches = (data_batch(0, 1, b"a", b"b"), data_batch(2, 1, b"c"), data_batch(3, 2, b"d" * 50))
    subject.perform(fx.AppendLog(batches, 1))
    view = subject.view
    first, second, third = (batch.data for batch in batches)
    assert view.read(0, 4, 1) == first
    assert view.read(0, 4, len(first) + len(second) - 1) == first
    assert view.read(0, 4, len(first) + len(second)) == first + second
    assert view.read(0, 3, 1000) == first + second
    assert view.read(0, 2, 1000) == first
    assert view.read(0, 1, 1000) == b""
    assert view.read(2, 4, 1000) == second + third
    assert view.read(4, 9, 1000) == b""
    assert [view.starts_batch(offset) for offset in range(6)] == [1, 0, 1, 1, 1, 0]


async def test_a_truncated_log_goes_on_elsewhere(subject: Subject) -> None:
    """What was cut off, and the epochs and voters in it, does not come back."""
    first = (data_batch(0, 1, b"a"), voters_batch(1, 1, 1, 2, 3))
    cut = (data_batch(3, 2, b"cut"), voters_batch(4, 2, 1, 2))
    other = (data_batch(3, 4, b"other"),)
    subject.perform(fx.AppendLog(first, 1))
    subject.perform(fx.AppendLog(cut, 2))
    subject.perform(fx.TruncateLog(3, 3))
    subject.perform(fx.AppendLog(other, 4))
    assert await subject.sync() == 4
    recovered = await subject.reopen()
    assert_recovered(recovered, LogImage(0, 4, [*first, *other]))
    assert [voters.ids for _, voters in recovered.voters] == [(9,), (1, 2, 3)]
    assert [offset for offset, _ in recovered.voters] == [-1, 2]
    assert recovered.kraft_versions == ((-1, 0), (1, 1))


async def test_a_download_takes_the_logs_place(subject: Subject) -> None:
    snapshot_id = SnapshotId(11, 3)
    data = snapshot_of(snapshot_id)
    old = SnapshotId(1, 1)
    subject.perform(fx.AppendLog((data_batch(0, 1, b"a"), data_batch(1, 1, b"b")), 1))
    await subject.freeze(old, snapshot_of(old))
    subject.perform(fx.WriteSnapshotChunk(SnapshotId(8, 2), 0, b"of another leader"))
    # Begun anew without a word about the last one.
    subject.perform(fx.WriteSnapshotChunk(snapshot_id, 0, b"half"))
    subject.perform(fx.WriteSnapshotChunk(snapshot_id, 0, data[:30]))
    subject.perform(fx.WriteSnapshotChunk(snapshot_id, 30, data[30:]))
    subject.perform(fx.InstallSnapshot(snapshot_id, 2))
    subject.perform(fx.DeleteSnapshots((old,)))
    behind = data_batch(11, 3, b"behind")
    subject.perform(fx.AppendLog((behind,), 3))
    assert await subject.sync() == 3
    assert subject.view.read_snapshot(snapshot_id, 5, 9) == data[5:14]
    recovered = await subject.reopen()
    assert_recovered(recovered, LogImage(11, 12, [behind], {snapshot_id: data}))
    voters, kraft_version, _ = read_snapshot_head(data)
    assert recovered.voters == ((10, voters),)
    assert recovered.kraft_versions == ((10, kraft_version),)


async def test_an_empty_log_behind_a_snapshot_has_no_epochs(subject: Subject) -> None:
    snapshot_id = SnapshotId(5, 3)
    data = snapshot_of(snapshot_id)
    subject.perform(fx.AppendLog((data_batch(0, 1, b"a"),), 1))
    subject.perform(fx.WriteSnapshotChunk(snapshot_id, 0, data))
    subject.perform(fx.InstallSnapshot(snapshot_id, 2))
    await subject.sync()
    assert_recovered(await subject.reopen(), LogImage(5, 5, [], {snapshot_id: data}))


async def test_the_log_begins_where_it_was_trimmed(subject: Subject) -> None:
    """Also where no segment begins; the epoch that covers the start begins there."""
    batches = [data_batch(offset, 1 + offset // 4, b"x" * 300) for offset in range(8)]
    for token, batch in enumerate(batches, start=1):
        subject.perform(fx.AppendLog((batch,), token))
    frozen = [SnapshotId(2, 1), SnapshotId(5, 2), SnapshotId(7, 2)]
    for snapshot_id in frozen:
        await subject.freeze(snapshot_id, snapshot_of(snapshot_id))
    subject.perform(fx.TrimLog(5))
    subject.perform(fx.DeleteSnapshots((frozen[0],)))
    assert await subject.sync() == 8
    kept = {snapshot_id: snapshot_of(snapshot_id) for snapshot_id in frozen[1:]}
    image = LogImage(5, 8, batches[5:], kept)
    assert contents(subject.view, 5, 8) == [batch.data for batch in batches[5:]]
    assert_recovered(await subject.reopen(), image)
    assert_recovered(await subject.reopen(), image)


async def test_the_first_voters_are_those_of_the_bootstrap_snapshot(subject: Subject) -> None:
    """They stand before the log, and its own snapshots do not hide them."""
    await subject.freeze(BOOTSTRAP_SNAPSHOT, snapshot_of(SnapshotId(1, 0)))
    subject.perform(fx.AppendLog((data_batch(0, 1, b"a"),), 1))
    await subject.freeze(SnapshotId(1, 1), snapshot_of(SnapshotId(1, 1)))
    await subject.sync()
    recovered = await subject.reopen()
    assert recovered.snapshots == (BOOTSTRAP_SNAPSHOT, (1, 1))
    assert [(offset, voters.ids) for offset, voters in recovered.voters] == [(-1, (2,))]
    assert recovered.kraft_versions == ((-1, 1),)


async def test_a_snapshot_that_the_log_does_not_reach_replaces_it(subject: Subject) -> None:
    subject.perform(fx.AppendLog((data_batch(0, 1, b"a"), data_batch(1, 1, b"b")), 1))
    await subject.sync()
    snapshot_id = SnapshotId(6, 2)
    await subject.freeze(snapshot_id, snapshot_of(snapshot_id))
    image = LogImage(6, 6, [], {snapshot_id: snapshot_of(snapshot_id)})
    assert_recovered(await subject.reopen(), image)


async def test_a_snapshot_of_another_history_replaces_the_log(subject: Subject) -> None:
    """The log reaches further, but with records that were never committed."""
    subject.perform(fx.AppendLog(tuple(data_batch(offset, 1, b"a") for offset in range(9)), 1))
    await subject.sync()
    snapshot_id = SnapshotId(6, 2)
    await subject.freeze(snapshot_id, snapshot_of(snapshot_id))
    image = LogImage(6, 6, [], {snapshot_id: snapshot_of(snapshot_id)})
    assert_recovered(await subject.reopen(), image)


@pytest.mark.parametrize("seed", range(12))
async def test_a_long_life(subject: Subject, seed: int) -> None:
    """Whatever a core asks for, the storage is what it should be, before and after a restart."""
    random = Random(seed)
    life = Life(random)
    election = ElectionState()
    for _ in range(60):
        for effect in life.step():
            if isinstance(effect, Freeze):
                await subject.freeze(effect.snapshot_id, effect.data)
                continue
            subject.perform(effect)
            if isinstance(effect, fx.PersistElection):
                election = effect.election
        image = life.image
        if random.randrange(3) == 0:
            assert await subject.sync() in (life.token, 0)
            assert contents(subject.view, image.start_offset, image.end_offset) == [
                batch.data for batch in image.batches
            ]
        if random.randrange(12) == 0:
            await subject.sync()
            recovered = await subject.reopen()
            assert recovered.election == election
            assert_recovered(recovered, image)
