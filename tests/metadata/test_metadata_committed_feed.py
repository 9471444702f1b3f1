"""The feed on a log in the test's hand: what it does when the log moves under it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing

from kraftpy.metadata.batches import build_batch
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.committed_feed import CommittedFeed
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import LoaderFault, Manifest, MetadataLoader
from kraftpy.metadata.records import ConfigRecord, ConfigResourceType
from kraftpy.raft.committed_log import SnapshotGoneError
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.snapshot_content import SnapshotHead
from kraftpy.records.batch import RecordBatch
from kraftpy.world import InternalInvariant
from kraftpy.world.real_clock import RealClock

NODE_ID = 1


def batch(offset: int, value: str) -> RecordBatch:
    record = ConfigRecord(ConfigResourceType.BROKER, "", "a", value)
    return RecordBatch(build_batch([record], base_offset=offset, epoch=1, timestamp_ms=5))


@dataclass
class HandLog:
    """A log of batches with one record each, and snapshots; both change when the test says so."""

    end_offset: int = 0
    start_offset: int = 0
    latest_snapshot: SnapshotId | None = None
    frozen: dict[SnapshotId, str] = field(default_factory=dict)
    # Called between two batches of a snapshot.
    meanwhile: list[object] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)

    def append(self, count: int) -> int:
        self.end_offset += count
        return self.end_offset

    def install(self, end_offset: int) -> SnapshotId:
        """The log begins anew behind a snapshot; the ones before are gone."""
        snapshot_id = SnapshotId(end_offset, 1)
        self.frozen = {snapshot_id: f"up to {end_offset}"}
        self.latest_snapshot = snapshot_id
        self.start_offset = self.end_offset = end_offset
        return snapshot_id

    def batches(self, start_offset: int, end_offset: int) -> Iterator[RecordBatch]:
        assert self.start_offset <= start_offset < end_offset <= self.end_offset
        self.reads.append(start_offset)
        # A few at a time, as a read has its limit.
        for offset in range(start_offset, min(end_offset, start_offset + 3)):
            yield batch(offset, str(offset))

    def snapshot_head(self, snapshot_id: SnapshotId) -> SnapshotHead:
        return SnapshotHead(None, 0, 5)

    def snapshot_batches(self, snapshot_id: SnapshotId) -> Iterator[RecordBatch]:
        for number in range(4):
            if snapshot_id not in self.frozen:
                raise SnapshotGoneError(str(snapshot_id))
            yield batch(number, self.frozen[snapshot_id])
            if self.meanwhile:
                self.meanwhile.pop(0)()  # type: ignore[operator]


class Rig:
    def __init__(self, log: HandLog) -> None:
        self.heard: list[str] = []
        self.name = "rig"
        self.log = log
        loader = MetadataLoader(_raise_fault, is_strict=True)
        loader.install(self)
        self.feed = CommittedFeed(
            log,  # type: ignore[arg-type]
            loader,
            self,
            node_id=NODE_ID,
            clock=RealClock(),
        )

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        ((_, values),) = image.configs.items()
        self.heard.append(f"{image.provenance.end_offset}: {values['a']}")

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        self.heard.append(f"leader of {epoch} is {leader_id}")

    def leadership_lost(self, epoch: int) -> None:
        self.heard.append(f"lost {epoch}")

    async def settle(self) -> list[str]:
        """Let the feed do all it can; what was heard meanwhile."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.feed.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        heard, self.heard = self.heard, []
        return heard


def _raise_fault(fault: LoaderFault) -> None:
    raise fault.error


async def test_publishers_never_get_more_at_once_than_they_can_take() -> None:
    """What was committed in one go is published in images of 200 records, once it has caught up."""
    log = HandLog()
    rig = Rig(log)
    rig.feed.committed(log.append(450))
    assert await rig.settle() == ["450: 449"]
    rig.feed.committed(log.append(450))
    assert await rig.settle() == ["650: 649", "850: 849", "900: 899"]


async def test_news_of_leaders_stand_where_they_happened() -> None:
    """KRF-61: behind what was committed before, and before what was committed after."""
    rig = Rig(HandLog())
    rig.feed.committed(rig.log.append(5))
    rig.feed.leader_changed(3, 2)
    rig.feed.committed(rig.log.append(1))
    rig.feed.committed(rig.log.append(1))
    rig.feed.leader_changed(4, NODE_ID)
    rig.feed.leadership_lost(4)
    rig.feed.committed(rig.log.append(3))
    assert await rig.settle() == [
        "5: 4",
        "leader of 3 is 2",
        "7: 6",
        "leader of 4 is 1",
        "lost 4",
        "10: 9",
    ]


async def test_nothing_uncommitted_is_replayed() -> None:
    rig = Rig(HandLog())
    rig.log.append(10)
    rig.feed.committed(4)
    assert await rig.settle() == ["4: 3"]


async def test_the_newest_snapshot_is_loaded_at_the_start() -> None:
    """KRF-63: although the log goes back further; shown when the high watermark is reached."""
    log = HandLog()
    snapshot_id = log.install(6)
    log.start_offset = 0
    log.append(3)
    rig = Rig(log)
    assert await rig.settle() == []
    rig.feed.leader_changed(2, 3)
    rig.feed.committed(9)
    assert log.latest_snapshot == snapshot_id
    assert await rig.settle() == ["leader of 2 is 3", "9: 8"]
    assert log.reads == [6]


async def test_a_feed_that_is_behind_waits_for_the_snapshot_and_jumps() -> None:
    rig = Rig(HandLog())
    rig.feed.committed(rig.log.append(2))
    assert await rig.settle() == ["2: 1"]
    rig.feed.leader_changed(2, 3)
    snapshot_id = rig.log.install(20)
    # The file is not there yet.
    rig.log.latest_snapshot = None
    rig.feed.committed(20)
    assert await rig.settle() == []
    rig.log.latest_snapshot = snapshot_id
    rig.feed.snapshot_installed()
    assert await rig.settle() == ["20: up to 20", "leader of 2 is 3"]


async def test_a_snapshot_that_vanishes_while_it_is_read_gives_way_to_the_next() -> None:
    rig = Rig(HandLog())
    rig.log.install(5)
    rig.log.meanwhile = [lambda: rig.log.install(9)]
    rig.feed.committed(9)
    assert await rig.settle() == ["9: up to 9"]


async def test_a_leader_that_lost_hears_so_before_a_snapshot_is_loaded() -> None:
    """KRF-93: although it stood behind commits that are part of the snapshot now."""
    rig = Rig(HandLog())
    rig.feed.committed(rig.log.append(2))
    rig.feed.leader_changed(2, NODE_ID)
    assert await rig.settle() == ["2: 1", "leader of 2 is 1"]
    rig.feed.committed(rig.log.append(2))
    rig.feed.leadership_lost(2)
    rig.feed.leader_changed(3, 2)
    rig.log.install(9)
    rig.feed.committed(9)
    assert await rig.settle() == ["lost 2", "9: up to 9", "leader of 3 is 2"]


async def test_a_leader_never_loads_a_snapshot() -> None:
    """KRF-93."""
    rig = Rig(HandLog())
    rig.feed.committed(rig.log.append(2))
    rig.feed.leader_changed(2, NODE_ID)
    assert await rig.settle() == ["2: 1", "leader of 2 is 1"]
    rig.log.install(9)
    rig.feed.committed(9)
    with pytest.raises(ExceptionGroup) as failure:
        await rig.settle()
    assert failure.value.subgroup(InternalInvariant) is not None


async def test_a_long_log_leaves_the_loop_to_others() -> None:
    """Decision 1: replaying thousands of batches is done in slices."""
    rig = Rig(HandLog())
    rig.feed.committed(rig.log.append(5_000))
    turns = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.feed.run)
        while not rig.heard:
            await trio.lowlevel.checkpoint()
            turns += 1
        nursery.cancel_scope.cancel()
    assert rig.heard == ["5000: 4999"]
    assert turns > 10


class OneBatchLog(HandLog):
    """All records of the log are in one batch, as those of a large topic are."""

    def batches(self, start_offset: int, end_offset: int) -> Iterator[RecordBatch]:
        records = [
            ConfigRecord(ConfigResourceType.BROKER, "", "a", str(number))
            for number in range(start_offset, end_offset)
        ]
        data = build_batch(records, base_offset=start_offset, epoch=1, timestamp_ms=5)
        yield RecordBatch(data)


async def test_a_large_batch_leaves_the_loop_to_others() -> None:
    """Decision 1: a batch may hold 10,000 records. Nothing of it is seen before its end."""
    rig = Rig(OneBatchLog())
    rig.feed.committed(rig.log.append(9_000))
    turns = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.feed.run)
        while not rig.heard:
            await trio.lowlevel.checkpoint()
            turns += 1
        nursery.cancel_scope.cancel()
    assert rig.heard == ["9000: 8999"]
    assert turns > 3
