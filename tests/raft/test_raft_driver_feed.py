"""What state machines hear of a quorum: commits, snapshots and leaders in one order."""

from __future__ import annotations

import pytest
import trio
from driver_rig import Member, setting
from driver_simulation import Quorum, machine, simulate

from kraftpy.log.errors import StorageError
from kraftpy.raft.committed_log import SnapshotGoneError
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.snapshot_files import snapshot_name
from kraftpy.raft.snapshots import SnapshotRefusal


async def fill_and_snapshot(quorum: Quorum, leader: Member, first: int, count: int) -> None:
    """Commit, make a snapshot of it on the leader, and let its log begin there."""
    for number in range(first, first + count):
        leader.propose(setting(f"key{number}", "x" * 100))
    await quorum.committed(f"key{first + count - 1}", "x" * 100, leader.driver.node_id)
    assert await leader.snapshot() is None
    assert leader.image is not None
    provenance = leader.image.provenance
    leader.driver.expire_snapshots(SnapshotId(provenance.end_offset, provenance.epoch))
    assert leader.driver.log.start_offset == provenance.end_offset


async def join_late(quorum: Quorum) -> list[str]:
    quorum.changes = {"fetch_snapshot_max_bytes": 1_000}
    quorum.start(1, 2)
    leader = await quorum.leader()
    await fill_and_snapshot(quorum, leader, 0, 50)
    leader.propose(setting("last", "1"))
    quorum.start(3)
    await quorum.committed("last", "1")
    assert quorum.members[3].settings == leader.settings
    assert quorum.members[3].driver.log.start_offset == leader.driver.log.start_offset
    return quorum.members[3].heard


def test_who_joins_late_is_caught_up_from_snapshot_and_log() -> None:
    """KRF-63, KRF-67: in chunks of 1000 bytes, then from the snapshot's end on."""
    images = [each for each in simulate(join_late).value if each.startswith("image")]
    assert images[0].endswith("from snapshot")
    assert images[-1].endswith("from log")


async def fall_behind(quorum: Quorum) -> list[str]:
    """A member that runs is cut off until the log has gone on without it."""
    quorum.start()
    leader = await quorum.leader()
    leader.propose(setting("first", "1"))
    await quorum.committed("first", "1")
    behind = next(each for each in quorum.members if each != leader.driver.node_id)
    others = [machine(each) for each in quorum.members if each != behind]
    for other in others:
        quorum.simulation.fabric.cut(machine(behind), other)
        quorum.simulation.fabric.cut(other, machine(behind))
    await fill_and_snapshot(quorum, leader, 0, 50)
    quorum.simulation.fabric.heal_all()
    leader = await quorum.leader()
    await quorum.until(lambda: quorum.members[behind].settings == leader.settings)
    return quorum.members[behind].heard


def test_a_member_that_fell_behind_jumps_to_the_snapshot() -> None:
    """KRF-47, KRF-63: its feed is past the log's beginning no more, and loads what is there."""
    images = [each for each in simulate(fall_behind).value if each.startswith("image")]
    assert images[0].endswith("from log")
    assert any(each.endswith("from snapshot") for each in images[1:])


async def restart_with_snapshot(quorum: Quorum) -> tuple[list[str], str]:
    quorum.start()
    leader = await quorum.leader()
    await fill_and_snapshot(quorum, leader, 0, 20)
    assert await leader.snapshot() is SnapshotRefusal.EXISTS
    leader.propose(setting("behind", "1"))
    await quorum.committed("behind", "1")
    node_id = leader.driver.node_id
    expected = dict(leader.settings)
    quorum.vanish(node_id)
    await trio.sleep(1)
    quorum.start(node_id)
    member = quorum.members[node_id]
    await quorum.until(lambda: member.settings == expected)
    return member.heard, str(member.driver.log.latest_snapshot)


def test_a_restart_loads_the_newest_snapshot_and_the_log_behind_it() -> None:
    """KRF-65: header, footer and all, written by `freeze_snapshot` and read back."""
    heard, latest = simulate(restart_with_snapshot).value
    (first, *_) = [each for each in heard if each.startswith("image")]
    assert first.endswith("from snapshot")
    assert latest == str(SnapshotId(21, 1))


async def refuse_snapshots(quorum: Quorum) -> list[SnapshotRefusal | None]:
    quorum.start()
    leader = await quorum.leader()
    leader.propose(setting("a", "1"), setting("b", "1"))
    await quorum.committed("b", "1")
    driver = leader.driver
    return [
        driver.snapshot_refusal(each)
        for each in (SnapshotId(9, 1), SnapshotId(2, 1), SnapshotId(3, 2), SnapshotId(3, 1))
    ]


def test_snapshots_that_may_not_be() -> None:
    """KRF-66."""
    assert simulate(refuse_snapshots).value == [
        SnapshotRefusal.NOT_COMMITTED,
        SnapshotRefusal.INSIDE_BATCH,
        SnapshotRefusal.NOT_IN_LOG,
        None,
    ]


async def fail_over(quorum: Quorum) -> tuple[int, list[str], int]:
    quorum.start()
    leader = await quorum.leader()
    last = -1
    for number in range(30):
        last = leader.propose(setting("a", str(number)))
    await quorum.committed("a", "29", leader.driver.node_id)
    quorum.kill(leader.driver.node_id)
    successor = await quorum.leader()
    return last, successor.heard, successor.driver.node_id


def test_a_new_leader_has_seen_everything_committed_before_it_hears_that_it_leads() -> None:
    """KRF-61, KRF-62: and epochs grow, with at most two words about each."""
    last, heard, node_id = simulate(fail_over).value
    news = [each.split() for each in heard if each.startswith("leader")]
    place = heard.index(f"leader of {news[-1][2]} is {node_id}")
    images = [int(each.split()[1]) for each in heard[:place] if each.startswith("image")]
    assert max(images) > last
    epochs = [int(each[2]) for each in news]
    assert epochs == sorted(epochs)
    assert max(epochs.count(each) for each in epochs) <= 2


LOG_FILE = "/data/__cluster_metadata-0/00000000000000000000.log"


async def read_log(quorum: Quorum) -> None:
    quorum.start()
    leader = await quorum.leader()
    for number in range(5):
        leader.propose(setting("a", str(number)))
    await quorum.committed("a", "4")
    log = leader.driver.log
    assert [each.base_offset for each in log.batches(1, 4)] == [1, 2, 3]
    file = quorum.disk(1).open(LOG_FILE)
    assert quorum.disk(1).rot(LOG_FILE, file.size() - 1, 1)
    assert [each.base_offset for each in log.batches(1, 5)] == [1, 2, 3, 4]
    with pytest.raises(StorageError):
        list(log.batches(1, 6))


def test_nothing_is_read_that_is_not_committed_or_not_what_was_written() -> None:
    simulate(read_log, count=1)


async def read_snapshot(quorum: Quorum) -> None:
    quorum.start()
    leader = await quorum.leader()
    await fill_and_snapshot(quorum, leader, 0, 3)
    log = leader.driver.log
    old = log.latest_snapshot
    assert old is not None
    assert len(list(log.snapshot_batches(old))) == 1
    await fill_and_snapshot(quorum, leader, 3, 3)
    await trio.sleep(1)
    with pytest.raises(SnapshotGoneError):
        list(log.snapshot_batches(old))
    new = log.latest_snapshot
    assert new is not None
    path = f"/data/__cluster_metadata-0/{snapshot_name(new)}"
    size = quorum.disk(1).open(path).size()
    assert quorum.disk(1).rot(path, size // 2, 1)
    with pytest.raises(StorageError):
        list(log.snapshot_batches(new))
    quorum.disk(1).open(path, write=True).truncate(size - 5)
    with pytest.raises(StorageError):
        list(log.snapshot_batches(new))


def test_a_snapshot_is_read_whole_and_sound_or_not_at_all() -> None:
    """KRF-65: and one that is gone says so, since a newer one has come."""
    simulate(read_snapshot, count=1)
