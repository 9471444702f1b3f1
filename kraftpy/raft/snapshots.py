"""Snapshots: FetchSnapshot from both sides, and which of the own ones may exist (section 9).

A snapshot is named by the exclusive end offset and the epoch of the last record that it covers. Its
batches are the state machine's, but for the first: header, kraft.version and voters as of its end.
A download is checked as it comes, before it takes the place of the log. One that is interrupted, by
a new leader or a restart, begins again.
"""

from __future__ import annotations

from enum import Enum

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k59_fetch_snapshot as fetch_snapshot
from kraftpy.raft import rpc
from kraftpy.raft.effects import (
    DeleteSnapshots,
    DropDownload,
    HighWatermarkAdvanced,
    InstallSnapshot,
    TrimLog,
    WriteSnapshotChunk,
)
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT, SnapshotId
from kraftpy.raft.quorum import Quorum
from kraftpy.raft.replication import Replication
from kraftpy.raft.roles import Download, Follower, Leader
from kraftpy.raft.snapshot_content import SnapshotHead
from kraftpy.raft.voters import Endpoint, History, ReplicaKey
from kraftpy.records.errors import RecordDataError
from kraftpy.world import Buffer, FileSlice, InternalInvariant

__all__ = ["SNAPSHOT_GONE", "SnapshotRefusal", "Snapshots"]

# Answers to FetchSnapshot that end a download.
SNAPSHOT_GONE = frozenset({ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE})


class SnapshotRefusal(Enum):
    """Why a snapshot of local state is not to be made."""

    BELOW_LOG_START = "the log begins behind it"
    EXISTS = "it is there already"
    NOT_COMMITTED = "it covers records that are not committed"
    NOT_IN_LOG = "the log has another epoch at its end"
    INSIDE_BATCH = "it does not end where a batch does"


class Snapshots:
    __slots__ = ("_quorum", "_replication")

    def __init__(self, quorum: Quorum, replication: Replication) -> None:
        self._quorum = quorum
        self._replication = replication

    # The node's own.

    def refusal(self, snapshot_id: SnapshotId) -> SnapshotRefusal | None:
        """Whether a snapshot of local state may be made; the first two reasons are no errors."""
        log = self._quorum.log
        if snapshot_id.end_offset < log.start_offset:
            return SnapshotRefusal.BELOW_LOG_START
        if snapshot_id in log.snapshots:
            return SnapshotRefusal.EXISTS
        if snapshot_id.end_offset > log.high_watermark:
            return SnapshotRefusal.NOT_COMMITTED
        common = log.end_of_epoch(snapshot_id.epoch)
        last_epoch = log.epochs.epoch_for_offset(snapshot_id.end_offset - 1)
        if common.epoch != snapshot_id.epoch or last_epoch != snapshot_id.epoch:
            return SnapshotRefusal.NOT_IN_LOG
        if not log.starts_batch(snapshot_id.end_offset):
            return SnapshotRefusal.INSIDE_BATCH
        return None

    def on_frozen(self, snapshot_id: SnapshotId) -> None:
        """The state machine has made one; what a download overtook meanwhile is useless."""
        refusal = self.refusal(snapshot_id)
        if refusal is SnapshotRefusal.BELOW_LOG_START:
            self._quorum.effects.append(DeleteSnapshots((snapshot_id,)))
        elif refusal is None:
            self._quorum.log.snapshots.append(snapshot_id)
            self._quorum.log.snapshots.sort()
        elif refusal is not SnapshotRefusal.EXISTS:
            raise InternalInvariant(f"raft-snapshot: {snapshot_id}: {refusal.value}")

    def on_expired(self, oldest_kept: SnapshotId) -> None:
        """Begin the log where this snapshot ends; the newest snapshot always stays."""
        quorum = self._quorum
        if oldest_kept not in quorum.log.snapshots:
            return
        removed = quorum.log.trim(oldest_kept)
        if removed or oldest_kept.end_offset:
            quorum.voters.forget_before(oldest_kept.end_offset)
            quorum.kraft_versions.forget_before(oldest_kept.end_offset)
            quorum.effects.append(TrimLog(oldest_kept.end_offset))
        if removed:
            quorum.effects.append(DeleteSnapshots(removed))

    # FetchSnapshot, as the leader.

    def on_request(
        self, request: fetch_snapshot.FetchSnapshotRequest
    ) -> fetch_snapshot.FetchSnapshotResponse:
        quorum = self._quorum
        response = fetch_snapshot.FetchSnapshotResponse
        if rpc.has_wrong_cluster(quorum, request.cluster_id):
            return response(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        asked = rpc.single_partition(
            [(each.name, each.partitions) for each in request.topics],
            lambda partition: partition.partition,
        )
        if asked is None:
            return response(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = rpc.check_request_to_leader(quorum, epoch=asked.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return self._response(asked, error)
        snapshot_id = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        if snapshot_id not in quorum.log.snapshots or snapshot_id == BOOTSTRAP_SNAPSHOT:
            return self._response(asked, ErrorCode.SNAPSHOT_NOT_FOUND)
        size = quorum.log.snapshot_size(snapshot_id)
        if not 0 <= asked.position < size:
            return self._response(asked, ErrorCode.POSITION_OUT_OF_RANGE)
        role = quorum.role
        if isinstance(role, Leader):
            replica = ReplicaKey(request.replica_id, asked.replica_directory_id)
            self._replication.note_contact(role, replica)
        max_bytes = max(1, min(request.max_bytes, quorum.config.fetch_snapshot_max_bytes))
        data = quorum.log.read_snapshot(snapshot_id, asked.position, max_bytes)
        return self._response(asked, ErrorCode.NONE, size=size, data=data)

    def _response(
        self,
        asked: fetch_snapshot.RequestPartitionSnapshot,
        error: ErrorCode,
        *,
        size: int = 0,
        data: Buffer = b"",
    ) -> fetch_snapshot.FetchSnapshotResponse:
        election = self._quorum.election
        answer = fetch_snapshot.ResponsePartitionSnapshot(
            index=rpc.METADATA_PARTITION,
            error_code=error,
            snapshot_id=asked.snapshot_id,
            current_leader=fetch_snapshot.LeaderIdAndEpoch(
                leader_id=election.leader_id, leader_epoch=election.epoch
            ),
            size=size,
            position=asked.position,
            unaligned_records=data,
        )
        topic = fetch_snapshot.ResponseTopicSnapshot(name=rpc.METADATA_TOPIC, partitions=[answer])
        response = fetch_snapshot.FetchSnapshotResponse(topics=[topic])
        address = rpc.leader_address(self._quorum)
        if address is not None:
            response.node_endpoints = [
                fetch_snapshot.NodeEndpoint(
                    node_id=election.leader_id, host=address.host, port=address.port
                )
            ]
        return response

    # FetchSnapshot, as a follower.

    def send_request(self, node_id: int, address: Endpoint, download: Download) -> None:
        quorum = self._quorum
        asked = fetch_snapshot.RequestPartitionSnapshot(
            partition=rpc.METADATA_PARTITION,
            current_leader_epoch=quorum.epoch,
            snapshot_id=fetch_snapshot.SnapshotId(
                end_offset=download.snapshot_id.end_offset, epoch=download.snapshot_id.epoch
            ),
            position=download.position,
            replica_directory_id=quorum.local.directory_id,
        )
        topic = fetch_snapshot.RequestTopicSnapshot(name=rpc.METADATA_TOPIC, partitions=[asked])
        request = fetch_snapshot.FetchSnapshotRequest(
            cluster_id=quorum.config.cluster_id,
            replica_id=quorum.local.node_id,
            max_bytes=quorum.config.fetch_snapshot_max_bytes,
            topics=[topic],
        )
        quorum.send(node_id, address, request, is_fetch=True)

    def on_response(self, role: Follower, response: fetch_snapshot.FetchSnapshotResponse) -> None:
        """A chunk from the leader, or the news that the snapshot is gone."""
        quorum = self._quorum
        answer = response.topics[0].partitions[0]
        download = role.download
        if download is None:
            return
        if answer.error_code in SNAPSHOT_GONE:
            self._drop(role)
            return
        received = SnapshotId(answer.snapshot_id.end_offset, answer.snapshot_id.epoch)
        data = answer.unaligned_records
        if (
            received != download.snapshot_id
            or answer.position != download.position
            or isinstance(data, FileSlice)
            or len(data) == 0
        ):
            return
        is_last = download.position + len(data) >= answer.size
        try:
            download.content.take(data)
            head = download.content.finish() if is_last else None
        except RecordDataError as error:
            self._refuse(role, f"raft-snapshot-damaged: {received}: {error}")
            return
        quorum.effects.append(WriteSnapshotChunk(received, download.position, data))
        download.position += len(data)
        role.fetch_deadline_ms = quorum.now_ms + quorum.config.fetch_timeout_ms
        if head is not None:
            role.download = None
            self._install(received, head)

    def _refuse(self, role: Follower, reason: str) -> None:
        """Better no snapshot than this one. The leader may have another soon; it isn't stormed."""
        quorum = self._quorum
        leader_id = quorum.election.leader_id
        quorum.blame(leader_id, reason)
        self._drop(role)
        role.fetch_deadline_ms = quorum.now_ms + quorum.config.fetch_timeout_ms
        quorum.connections.back_off(
            leader_id, quorum.now_ms, backoff_ms=quorum.config.fetch_timeout_ms // 2
        )

    def _drop(self, role: Follower) -> None:
        if role.download is not None:
            self._quorum.effects.append(DropDownload(role.download.snapshot_id))
            role.download = None

    def _install(self, snapshot_id: SnapshotId, head: SnapshotHead) -> None:
        quorum = self._quorum
        quorum.token += 1
        older = quorum.log.install(snapshot_id, quorum.token)
        last_offset = snapshot_id.end_offset - 1
        if head.voters is not None:
            quorum.voters = History(head.voters, last_offset)
        else:
            quorum.voters = History(quorum.config.static_voters)
        quorum.kraft_versions = History(head.kraft_version, last_offset)
        quorum.effects.append(InstallSnapshot(snapshot_id, quorum.token))
        quorum.effects.append(HighWatermarkAdvanced(snapshot_id.end_offset))
        if older:
            quorum.effects.append(DeleteSnapshots(older))
