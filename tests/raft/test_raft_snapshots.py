"""Snapshots: what may be made, what is served, downloads (kraft.md section 9 and rule 10 of 20)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from raft_cluster import CLUSTER_ID, Cluster, directory
from test_raft_rules import elected, fetch_request, fetched, leader_of

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k59_fetch_snapshot as fetch_snapshot
from kraftpy.raft import effects as fx
from kraftpy.raft import inputs
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT, SnapshotId
from kraftpy.raft.roles import Follower
from kraftpy.raft.snapshot_content import read_snapshot_head
from kraftpy.raft.snapshots import SnapshotRefusal
from kraftpy.records.errors import InvalidRecord
from kraftpy.sim.quorum_nemesis import snapshot_bytes
from kraftpy.world import InternalInvariant


def with_records() -> Cluster:
    """Batches 0..2, 3..4, 5..5, all committed on all."""
    cluster = elected()
    cluster.propose(1, "a", "b")
    cluster.settle()
    cluster.propose(1, "c")
    cluster.settle()
    return cluster


def take(cluster: Cluster, node_id: int, snapshot_id: SnapshotId, *, clean: bool = True) -> bytes:
    quorum = cluster[node_id].quorum
    data = snapshot_bytes(snapshot_id, quorum.voters.latest, 1)
    cluster.nodes[node_id].storage.freeze_snapshot(snapshot_id, data)
    cluster.step(node_id, inputs.SnapshotFrozen(snapshot_id))
    if clean:
        cluster.step(node_id, inputs.SnapshotsExpired(snapshot_id))
    return data


@pytest.mark.parametrize(
    ("snapshot_id", "refusal"),
    [
        (SnapshotId(5, 1), None),
        (SnapshotId(6, 1), None),
        (SnapshotId(7, 1), SnapshotRefusal.NOT_COMMITTED),
        (SnapshotId(5, 2), SnapshotRefusal.NOT_IN_LOG),
        (SnapshotId(5, 0), SnapshotRefusal.NOT_IN_LOG),
        (SnapshotId(4, 1), SnapshotRefusal.INSIDE_BATCH),
        (BOOTSTRAP_SNAPSHOT, SnapshotRefusal.EXISTS),
    ],
)
def test_rule_10_which_snapshots_may_be_made(
    snapshot_id: SnapshotId, refusal: SnapshotRefusal | None
) -> None:
    """KRF-66"""
    assert with_records()[1].snapshot_refusal(snapshot_id) is refusal


def test_a_snapshot_that_may_not_be_is_our_own_bug() -> None:
    cluster = with_records()
    with pytest.raises(InternalInvariant, match="raft-snapshot"):
        cluster.step(1, inputs.SnapshotFrozen(SnapshotId(7, 1)))


def test_a_snapshot_below_the_log_start_is_removed() -> None:
    """KRF-66"""
    cluster = with_records()
    take(cluster, 1, SnapshotId(6, 1))
    assert cluster[1].snapshot_refusal(SnapshotId(5, 1)) is SnapshotRefusal.BELOW_LOG_START
    effects = cluster.step(1, inputs.SnapshotFrozen(SnapshotId(5, 1)))
    assert effects == [fx.DeleteSnapshots((SnapshotId(5, 1),))]


def test_rule_10_the_log_starts_where_a_snapshot_ends() -> None:
    """KRF-71"""
    cluster = with_records()
    take(cluster, 1, SnapshotId(5, 1), clean=False)
    assert cluster[1].quorum.log.start_offset == 0
    take(cluster, 1, SnapshotId(6, 1), clean=False)
    effects = cluster.step(1, inputs.SnapshotsExpired(SnapshotId(5, 1)))
    assert effects == [fx.TrimLog(5), fx.DeleteSnapshots((BOOTSTRAP_SNAPSHOT,))]
    log = cluster[1].quorum.log
    assert (log.start_offset, log.snapshots) == (5, [SnapshotId(5, 1), SnapshotId(6, 1)])
    assert cluster.step(1, inputs.SnapshotsExpired(SnapshotId(9, 9))) == []


def test_a_log_that_starts_without_snapshot_does_not_start() -> None:
    """KRF-72"""
    cluster = with_records()
    take(cluster, 1, SnapshotId(5, 1))
    cluster.settle()
    cluster.crash(1)
    cluster.nodes[1].storage.log.snapshots.clear()
    with pytest.raises(InternalInvariant, match="raft-log-start-without-snapshot"):
        cluster.start(1)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "expected"),
    [(0, 0, 6), (3, 1, 6), (5, 0, 6), (5, 1, None), (6, 1, None)],
)
def test_rule_10_who_is_told_to_take_the_snapshot(
    offset: int, last_epoch: int, expected: int | None
) -> None:
    """KRF-46, KRF-47: below the start, at the start with another epoch; the latest one"""
    cluster = with_records()
    take(cluster, 1, SnapshotId(5, 1))
    take(cluster, 1, SnapshotId(6, 1), clean=False)
    data = fetched(cluster, fetch_request(2, offset, last_epoch))
    assert data.snapshot_id.end_offset == (-1 if expected is None else expected)


def test_the_bootstrap_snapshot_is_not_given_away() -> None:
    """KRF-46, KRF-69: with only 0-0 present a fetch gets records"""
    cluster = with_records()
    data = fetched(cluster, fetch_request(2, 0, 0))
    assert data.snapshot_id.end_offset == -1
    assert data.records
    assert chunk(cluster, BOOTSTRAP_SNAPSHOT, 0).error_code == ErrorCode.SNAPSHOT_NOT_FOUND


def chunk_request(
    snapshot_id: SnapshotId, position: int = 0, *, epoch: int = 1
) -> fetch_snapshot.FetchSnapshotRequest:
    asked = fetch_snapshot.RequestPartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(
            end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch
        ),
        position=position,
        replica_directory_id=directory(2),
    )
    topic = fetch_snapshot.RequestTopicSnapshot(name="__cluster_metadata", partitions=[asked])
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=CLUSTER_ID, replica_id=2, max_bytes=100, topics=[topic]
    )


def chunk(
    cluster: Cluster, snapshot_id: SnapshotId, position: int, *, epoch: int = 1
) -> fetch_snapshot.ResponsePartitionSnapshot:
    response = cluster.ask(1, chunk_request(snapshot_id, position, epoch=epoch))
    assert response.error_code == 0
    said: fetch_snapshot.ResponsePartitionSnapshot = response.topics[0].partitions[0]
    return said


def test_chunks_of_a_snapshot() -> None:
    """KRF-69"""
    cluster = with_records()
    data = take(cluster, 1, SnapshotId(5, 1))
    said = chunk(cluster, SnapshotId(5, 1), 0)
    assert (said.size, bytes(said.unaligned_records)) == (len(data), data[:100])  # type: ignore[arg-type]
    last = chunk(cluster, SnapshotId(5, 1), len(data) - 1)
    assert bytes(last.unaligned_records) == data[-1:]  # type: ignore[arg-type]
    for position in (-1, len(data)):
        said = chunk(cluster, SnapshotId(5, 1), position)
        assert said.error_code == ErrorCode.POSITION_OUT_OF_RANGE
    missing = chunk(cluster, SnapshotId(5, 2), 0)
    assert missing.error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert chunk(cluster, SnapshotId(5, 1), 0, epoch=2).error_code == (
        ErrorCode.UNKNOWN_LEADER_EPOCH
    )


def test_a_downloading_voter_counts_for_check_quorum() -> None:
    """KRF-33"""
    cluster = with_records()
    take(cluster, 1, SnapshotId(5, 1))
    _, role = leader_of(cluster)
    cluster.now_ms += 100
    before = role.check_quorum_deadline_ms
    assert chunk(cluster, SnapshotId(5, 2), 0).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    assert role.check_quorum_deadline_ms == before
    assert chunk(cluster, SnapshotId(5, 1), 0).error_code == 0
    assert role.check_quorum_deadline_ms > before


def far_behind(*, chunk_bytes: int) -> Cluster:
    """Node 3 was down while the others went on and cleaned their logs."""
    cluster = elected()
    cluster.crash(3)
    for value in "abcdef":
        cluster.propose(1, value)
        cluster.settle()
    take(cluster, 1, SnapshotId(9, 1))
    node = cluster.nodes[3]
    node.config = replace(node.config, fetch_snapshot_max_bytes=chunk_bytes)
    return cluster


def test_a_download_in_chunks() -> None:
    """KRF-67: of controller.quorum.fetch.snapshot.max.bytes each."""
    cluster = far_behind(chunk_bytes=70)
    cluster.start(3)
    cluster.lines.clear()
    cluster.settle()
    requests = [line for line in cluster.lines if line.startswith("3 -> 1 FetchSnapshot")]
    assert len(requests) > 3
    log = cluster[3].quorum.log
    assert (log.start_offset, log.high_watermark, log.last_epoch) == (9, 9, 1)
    assert cluster[3].quorum.voters.latest.ids == (1, 2, 3)
    cluster.propose(1, "g")
    cluster.settle()
    assert cluster[3].quorum.log.high_watermark == 10


def test_a_download_that_is_interrupted_begins_again() -> None:
    """KRF-68"""
    cluster = far_behind(chunk_bytes=70)
    cluster.start(3)
    while not any("FetchSnapshot 9-1 at 140" in line for line in cluster.lines):
        cluster.sync(3)
        cluster.deliver()
    quorum = cluster[3].quorum
    quorum.become_unattached(2)
    effects = cluster.step(3, inputs.TimeAdvanced())
    assert [each for each in effects if isinstance(each, fx.DropDownload)] == [
        fx.DropDownload(SnapshotId(9, 1))
    ]
    cluster.messages.clear()
    cluster.advance(4_000)
    assert cluster[3].quorum.log.high_watermark >= 9


def test_a_snapshot_that_is_gone_is_dropped() -> None:
    """KRF-69"""
    cluster = far_behind(chunk_bytes=70)
    cluster.start(3)
    while not any("FetchSnapshot 9-1 at 70" in line for line in cluster.lines):
        cluster.sync(3)
        cluster.deliver()
    cluster[1].quorum.log.snapshots.clear()
    while not any("SNAPSHOT_NOT_FOUND" in line for line in cluster.lines):
        cluster.deliver()
    cluster.deliver()
    role = cluster[3].quorum.role
    assert isinstance(role, Follower)
    assert role.download is None
    assert any(isinstance(each, fx.DropDownload) for each in cluster.nodes[3].effects)


def test_a_crash_between_freeze_and_truncation() -> None:
    """KRF-70: the log restarts at the snapshot"""
    cluster = far_behind(chunk_bytes=100_000)
    data = cluster.nodes[1].storage.log.snapshots[SnapshotId(9, 1)]
    cluster.nodes[3].storage.freeze_snapshot(SnapshotId(9, 1), data)
    cluster.start(3)
    log = cluster[3].quorum.log
    assert (log.start_offset, log.end_offset, log.high_watermark) == (9, 9, 9)


def test_a_snapshot_begins_with_its_header() -> None:
    """KRF-65"""
    cluster = with_records()
    data = take(cluster, 1, SnapshotId(5, 1))
    voters, kraft_version, _ = read_snapshot_head(data)
    assert voters == cluster[1].quorum.voters.latest
    assert kraft_version == 1
    leader_change = cluster.nodes[2].storage.log.batches[0]
    with pytest.raises(InvalidRecord, match="header"):
        read_snapshot_head(leader_change.data)
    with pytest.raises(InvalidRecord, match="control batch"):
        read_snapshot_head(data[:20])


@pytest.mark.parametrize("damage", ["head", "body", "foot", "cut"])
def test_a_damaged_snapshot_takes_the_place_of_nothing(damage: str) -> None:
    """The leader's disk rots; a follower that is behind keeps what it has, and says so once."""
    cluster = far_behind(chunk_bytes=70)
    snapshots = cluster.nodes[1].storage.log.snapshots
    sound = snapshots[SnapshotId(9, 1)]
    place = {"head": 30, "body": len(sound) // 2, "foot": len(sound) - 5, "cut": 0}[damage]
    bad = bytearray(sound)
    bad[place] ^= 1
    snapshots[SnapshotId(9, 1)] = sound[:-8] if damage == "cut" else bytes(bad)
    before = cluster.nodes[3].storage.log.copy()
    cluster.start(3)
    cluster.advance(7_000)
    assert cluster.nodes[3].storage.log == before
    faults = [each for each in cluster.nodes[3].effects if isinstance(each, fx.PeerFault)]
    assert [fault.reason.partition(":")[0] for fault in faults] == ["raft-snapshot-damaged"]
    downloads = [
        line for line in cluster.lines if "FetchSnapshot 9-1 at 0" in line and "3 ->" in line
    ]
    assert 3 <= len(downloads) <= 8
    assert cluster.leader() == 1
    snapshots[SnapshotId(9, 1)] = sound
    cluster.advance(2_000)
    assert cluster[3].quorum.log.high_watermark == 9
