"""Snapshots of a running node: made from its image, on its disk, and expiring."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing
from driver_rig import config_at, setting, settings_of

from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.committed_feed import CommittedFeed
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.metadata.publisher import LoaderFault, Manifest, MetadataLoader
from kraftpy.metadata.record_format import encode_record
from kraftpy.metadata.records import BeginTransactionRecord
from kraftpy.metadata.snapshot import load_snapshot, snapshot_batches
from kraftpy.metadata.snapshot_keeper import SnapshotKeeper
from kraftpy.metadata.snapshot_policy import SnapshotSettings
from kraftpy.raft.driver import RaftDriver, open_driver
from kraftpy.raft.effects import ProposalRefused
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.snapshots import SnapshotRefusal
from kraftpy.raft.storage import metadata_log_config
from kraftpy.world import Buffer, World
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_faults import WriteError
from kraftpy.world.real import real_world
from kraftpy.world.real_clock import RealClock

DAY_MS = 86_400_000


class ShiftedClock(RealClock):
    """Days can pass."""

    days = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.days * DAY_MS


class WatchedHome:
    """The driver, with a sign when a snapshot is done."""

    def __init__(self, driver: RaftDriver) -> None:
        self.driver = driver
        self.done = trio.Event()
        self.gate: trio.Event | None = None
        self.count = 0

    async def freeze_snapshot(
        self,
        snapshot_id: SnapshotId,
        batches: Callable[[int], Iterable[Buffer]],
        *,
        timestamp_ms: int,
    ) -> SnapshotRefusal | None:
        self.count += 1
        if self.gate is not None:
            await self.gate.wait()
        try:
            return await self.driver.freeze_snapshot(
                snapshot_id, batches, timestamp_ms=timestamp_ms
            )
        finally:
            self.done.set()

    def expire_snapshots(self, oldest_kept: SnapshotId) -> None:
        self.driver.expire_snapshots(oldest_kept)


def _raise_fault(fault: LoaderFault) -> None:
    raise fault.error


class Lone:
    """A sole voter with everything that its snapshots need."""

    def __init__(self, world: World, driver: RaftDriver, settings: SnapshotSettings) -> None:
        self.clock = world.clock
        self.driver = driver
        self.loader = MetadataLoader(_raise_fault, is_strict=True)
        self.home = WatchedHome(driver)
        self.keeper = SnapshotKeeper(
            world.clock, self.home, driver.log, settings, lambda: self.loader.may_snapshot
        )
        self.loader.install(self.keeper)
        self.feed = CommittedFeed(
            driver.log, self.loader, self, node_id=driver.node_id, clock=world.clock
        )
        self.leads = trio.Event()
        # Set, and replaced by a new one, with every image.
        self.replayed = trio.Event()
        self.loader.install(self)
        driver.listen(self.feed)

    name = "lone"

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        self.replayed.set()
        self.replayed = trio.Event()

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        if leader_id == self.driver.node_id:
            self.leads.set()

    def leadership_lost(self, epoch: int) -> None:
        pass

    async def propose(self, *values: bytes) -> None:
        """Until it has been published."""
        offset = self.driver.propose(self.driver.election.epoch, values)
        assert not isinstance(offset, ProposalRefused)
        while self.loader.end_offset <= offset:
            await self.replayed.wait()

    async def snapshot_made(self) -> None:
        with trio.fail_after(30):
            await self.home.done.wait()
        self.home.done = trio.Event()

    @property
    def snapshots(self) -> list[int]:
        return [each.snapshot_id.end_offset for each in self.driver.log.stored_snapshots()]


@asynccontextmanager
async def running(world: World, directory: str, settings: SnapshotSettings) -> AsyncIterator[Lone]:
    config = config_at(1, {1: ("127.0.0.1", 1)})
    log_config = replace(metadata_log_config(segment_bytes=2_048), segment_index_bytes=1_200)
    driver = await open_driver(world, config, directory, log_config)
    lone = Lone(world, driver, settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lone.feed.run)
        nursery.start_soon(lone.keeper.run)
        await nursery.start(driver.run)
        with trio.fail_after(30):
            await lone.leads.wait()
        yield lone
        await driver.shut_down(1_000)
        nursery.cancel_scope.cancel()


@pytest.fixture(params=["memory", "real"])
def world(request: pytest.FixtureRequest) -> World:
    disk = MemoryDisk() if request.param == "memory" else real_world().disk
    return replace(real_world(), disk=disk, clock=ShiftedClock())


async def test_a_snapshot_after_so_many_bytes(world: World, tmp_path: Path) -> None:
    """KRF-73, KRF-65: made in the background, and reloading it gives the same state."""
    settings = SnapshotSettings(bytes_between=2_000)
    async with running(world, str(tmp_path), settings) as lone:
        await lone.propose(setting("small", "1"))
        assert lone.snapshots == []
        for number in range(30):
            await lone.propose(setting(f"key{number}", "x" * 100))
        await lone.snapshot_made()
        latest = lone.driver.log.latest_snapshot
        assert latest is not None
        image = load_snapshot(lone.driver.log.snapshot_batches(latest), EMPTY_IMAGE.provenance)
        shown = settings_of(image)
        assert shown["small"] == "1"
        assert len(shown) > 10
        assert set(shown.items()) <= set(settings_of(lone.loader.image).items())
    async with running(world, str(tmp_path), settings) as again:
        assert again.driver.log.latest_snapshot == latest
        await again.propose(setting("more", "1"))
        assert len(settings_of(again.loader.image)) == 32


async def test_one_at_a_time(world: World, tmp_path: Path) -> None:
    """KRF-73: what is published meanwhile counts towards the next."""
    async with running(world, str(tmp_path), SnapshotSettings(bytes_between=100)) as lone:
        lone.home.gate = trio.Event()
        for number in range(5):
            await lone.propose(setting(f"key{number}", "x" * 100))
        assert lone.home.count == 1
        lone.home.gate.set()
        await lone.snapshot_made()
        await lone.propose(setting("next", "x"))
        await lone.snapshot_made()
        assert lone.home.count == 2


async def test_none_within_a_transaction(world: World, tmp_path: Path) -> None:
    """KRF-73: the image before a transaction that begins within a batch is no batch's end."""
    async with running(world, str(tmp_path), SnapshotSettings(bytes_between=1)) as lone:
        await lone.propose(setting("a", "1"))
        await lone.snapshot_made()
        begin = encode_record(BeginTransactionRecord("t"))
        await lone.propose(setting("b", "2"), begin, setting("c", "3"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not lone.loader.image.provenance.is_batch_aligned
        assert lone.home.count == 1


async def test_old_snapshots_expire(world: World, tmp_path: Path) -> None:
    """KRF-71: the log begins where the oldest one left ends, here and after a restart."""
    settings = SnapshotSettings(retention_ms=7 * DAY_MS)
    async with running(world, str(tmp_path), settings) as lone:
        for number in range(100):
            await lone.propose(setting(f"key{number}", "x" * 100))
            if number % 30 == 29:
                await lone.keeper.write(lone.loader.image)
        offsets = lone.snapshots
        assert len(offsets) == 3
        lone.keeper.clean()
        assert lone.snapshots == offsets
        assert isinstance(world.clock, ShiftedClock)
        world.clock.days = 8
        before = lone.driver.log.log_bytes_from(0)
        lone.keeper.clean()
        assert lone.driver.log.start_offset == offsets[-1]
        await lone.propose(setting("last", "1"))
        assert lone.snapshots == offsets[-1:]
        assert lone.driver.log.log_bytes_from(0) < before
    async with running(world, str(tmp_path), settings) as again:
        assert again.snapshots == offsets[-1:]
        assert again.driver.log.start_offset == offsets[-1]
        await again.propose(setting("more", "1"))
        assert len(settings_of(again.loader.image)) == 102


async def test_a_disk_without_space(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The snapshot is given up, its `.part` is gone, and the next one is made."""
    disk = MemoryDisk()
    world = replace(real_world(), disk=disk)
    async with running(world, "/meta", SnapshotSettings(bytes_between=1)) as lone:
        disk.inject(WriteError(paths="*.part", error=errno.ENOSPC))
        await lone.propose(setting("a", "1"))
        await lone.snapshot_made()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert "can't be written" in caplog.text
        names = await disk.list_directory("/meta/__cluster_metadata-0")
        assert not [name for name in names if "checkpoint.part" in name]
        disk.heal()
        await lone.propose(setting("b", "1"))
        await lone.snapshot_made()
        assert len(lone.snapshots) == 1


async def test_a_snapshot_that_is_cancelled_leaves_no_open_file() -> None:
    """What it has written is removed by the next start."""
    disk = MemoryDisk()
    world = replace(real_world(), disk=disk)
    async with running(world, "/meta", SnapshotSettings()) as lone:
        await lone.propose(setting("a", "1"))
        image = lone.loader.image
        (batch,) = snapshot_batches(image)
        snapshot_id = SnapshotId(image.provenance.end_offset, image.provenance.epoch)
        with trio.CancelScope() as scope:

            def endless(base_offset: int) -> Iterable[Buffer]:
                scope.cancel()
                while True:
                    yield batch

            await lone.driver.freeze_snapshot(snapshot_id, endless, timestamp_ms=0)
        assert scope.cancelled_caught
        files = {path: inode.handles for path, inode in disk.image.files()}
        assert [handles for path, handles in files.items() if path.endswith(".part")] == [0]
        assert lone.snapshots == []
