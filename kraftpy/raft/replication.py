"""Pull replication: Fetch from both sides, the high watermark, check-quorum (section 8).

A Fetch is three things at once. It asks for records. It states that everything below its offset is
durable on the replica, which is what the leader counts for the high watermark. And it proves
that the replica's log is a prefix of the leader's, because the leader answers a wrong last epoch
with the point where the logs part; only a valid Fetch counts for anything.
"""

from __future__ import annotations

from operator import attrgetter

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k01_fetch as fetch
from kraftpy.protocol.schema.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
)
from kraftpy.purgatory.wheel import TimerEntry, TimingWheel
from kraftpy.raft import rpc
from kraftpy.raft.log_state import MAX_BATCH_BYTES, Batch, OffsetAndEpoch, SnapshotId
from kraftpy.raft.quorum import Quorum
from kraftpy.raft.roles import Download, Follower, Leader, Progress
from kraftpy.raft.voters import BOOTSTRAP_OFFSET, Endpoint, ReplicaKey, Voter
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import ControlMessage, build_control_batch
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.walker import walk_batches
from kraftpy.world import FileSlice, InternalInvariant

__all__ = ["MAX_OBSERVERS", "MAX_PARKED_FETCHES", "Replication"]

MAX_PARKED_FETCHES = 1_000
_fetched_index = attrgetter("partition")
# Anybody can fetch under any name. Of so many observers the leader knows the progress.
MAX_OBSERVERS = 2_000


class _ParkedFetch(TimerEntry):
    """A Fetch, which is parked if it finds nothing new. The timer runs while it is."""

    __slots__ = ("asked", "max_bytes", "replica", "request_id")

    def __init__(
        self,
        request_id: int,
        asked: fetch.FetchPartition,
        replica: ReplicaKey,
        max_bytes: int,
        deadline_ms: int,
    ) -> None:
        super().__init__()
        self.request_id = request_id
        self.asked = asked
        self.replica = replica
        self.max_bytes = max_bytes
        self.deadline_ms = deadline_ms


class Replication:
    __slots__ = ("_parked", "_quorum", "_timers")

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._parked: dict[int, _ParkedFetch] = {}
        # The wheel follows the times that it is told; whatever it begins with is in the past.
        self._timers: TimingWheel[_ParkedFetch] = TimingWheel(0)
        quorum.watch_leadership(self._release_without_leader)

    # The leader's log.

    def begin_epoch(self, role: Leader) -> None:
        """A leader's first records: itself, and the voters if the log does not have them yet."""
        quorum = self._quorum
        voters = quorum.voters.latest
        messages: list[ControlMessage] = [
            LeaderChangeMessage(
                version=1 if quorum.kraft_versions.latest else 0,
                leader_id=quorum.local.node_id,
                voters=[_change_voter(voter) for voter in voters.voters],
                granting_voters=[
                    _change_voter(voter)
                    for voter in voters.voters
                    if voter.key.node_id in role.granting
                ],
            )
        ]
        own = voters.find(quorum.local.node_id)
        stale = own is not None and own.endpoints != quorum.config.endpoints
        if quorum.kraft_versions.latest >= 1 and (
            quorum.voters.latest_offset == BOOTSTRAP_OFFSET or stale
        ):
            if own is not None and stale:
                voters = voters.updating(Voter(own.key, quorum.config.endpoints))
            messages.append(KRaftVersionRecord(kraft_version=quorum.kraft_versions.latest))
            messages.append(voters.to_record())
        self.append_control(messages)

    def append_control(self, messages: list[ControlMessage]) -> int:
        """Append one control batch; the offset of its last record."""
        quorum = self._quorum
        base_offset = quorum.log.end_offset
        data = build_control_batch(
            messages,
            base_offset=base_offset,
            leader_epoch=quorum.epoch,
            timestamp_ms=quorum.wall_ms,
        )
        end_offset = base_offset + len(messages)
        quorum.append([Batch(base_offset, end_offset, quorum.epoch, bytes(data), is_control=True)])
        return end_offset - 1

    def propose(self, epoch: int, values: tuple[bytes, ...]) -> tuple[ErrorCode, int]:
        """Append record values as one batch; the offset of the last, or why not."""
        quorum = self._quorum
        if epoch > quorum.epoch:
            raise InternalInvariant(f"raft-propose-epoch: {epoch}, current {quorum.epoch}")
        if epoch < quorum.epoch or not isinstance(quorum.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if not values:
            return ErrorCode.INVALID_REQUEST, -1
        base_offset = quorum.log.end_offset
        builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch)
        for value in values:
            builder.append(None, value, timestamp_ms=quorum.wall_ms)
        data = builder.build()
        if len(data) > MAX_BATCH_BYTES:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        end_offset = base_offset + len(values)
        quorum.append([Batch(base_offset, end_offset, epoch, bytes(data), is_control=False)])
        return ErrorCode.NONE, end_offset - 1

    def update_high_watermark(self, role: Leader) -> None:
        """Commit what a majority of the voters has, once that includes a record of this epoch."""
        quorum = self._quorum
        ends = []
        for voter in quorum.voters.latest.voters:
            if voter.key.node_id == quorum.local.node_id:
                ends.append(quorum.log.durable_end_offset)
            else:
                progress = role.progress.get(voter.key)
                ends.append(progress.end_offset if progress is not None else -1)
        ends.sort(reverse=True)
        candidate = ends[len(ends) // 2]
        if candidate <= role.epoch_start_offset:
            return
        if role.high_watermark is not None and candidate <= role.high_watermark:
            # A voter that has just joined may lag; what was committed stays committed.
            return
        role.high_watermark = candidate
        quorum.advance_high_watermark(candidate)

    def check_quorum_expired(self, role: Leader) -> bool:
        """Whether no majority has fetched for too long; a sole voter needs none."""
        quorum = self._quorum
        if quorum.voters.latest.majority == 1 and quorum.is_voter:
            # The time of a voter that is added later begins now, not at the election.
            self._restart_check_quorum(role)
        return quorum.now_ms >= role.check_quorum_deadline_ms

    def _restart_check_quorum(self, role: Leader) -> None:
        quorum = self._quorum
        role.fetched_since_check.clear()
        role.check_quorum_deadline_ms = quorum.now_ms + quorum.config.fetch_timeout_ms * 3 // 2

    def _needed_fetchers(self) -> int:
        voters = self._quorum.voters.latest
        return voters.majority - (1 if self._quorum.is_voter else 0)

    def note_contact(self, role: Leader, replica: ReplicaKey) -> None:
        """A voter keeps up with this leader, or is about to: it counts for check-quorum."""
        quorum = self._quorum
        if replica.node_id == quorum.local.node_id or not quorum.voters.latest.contains(replica):
            return
        role.fetched_since_check[replica.node_id] = None
        voters = quorum.voters.latest
        # One that was removed since then is nobody any more.
        fetchers = sum(1 for each in role.fetched_since_check if voters.find(each) is not None)
        if fetchers >= self._needed_fetchers():
            self._restart_check_quorum(role)

    # Fetch, as the leader.

    def on_fetch_request(self, request_id: int, request: fetch.FetchRequest) -> None:
        quorum = self._quorum
        if rpc.has_wrong_cluster(quorum, request.cluster_id):
            error = ErrorCode.INCONSISTENT_CLUSTER_ID
            quorum.reply(request_id, fetch.FetchResponse(error_code=error))
            return
        asked = rpc.single_partition(
            [(each.topic or each.topic_id, each.partitions) for each in request.topics],
            _fetched_index,
        )
        if asked is None:
            error = ErrorCode.INVALID_REQUEST
            quorum.reply(request_id, fetch.FetchResponse(error_code=error))
            return
        replica_id = request.replica_state.replica_id
        replica = ReplicaKey(
            request.replica_id if replica_id < 0 else replica_id, asked.replica_directory_id
        )
        error = _fetch_fault(request.max_wait_ms, asked)
        if error is ErrorCode.NONE:
            error = rpc.check_request_to_leader(quorum, epoch=asked.current_leader_epoch)
        if error is not ErrorCode.NONE:
            quorum.reply(request_id, self._fetch_response(self._partition_data(error)))
            return
        self._serve(
            _ParkedFetch(
                request_id,
                asked,
                replica,
                max(1, min(request.max_bytes, quorum.config.fetch_max_bytes)),
                quorum.now_ms + request.max_wait_ms,
            )
        )

    def _serve(self, waiting: _ParkedFetch) -> None:
        """Answer a Fetch, or park it if that would tell nothing."""
        quorum = self._quorum
        role = quorum.role
        if not isinstance(role, Leader):
            raise InternalInvariant(f"raft-serves-as: {role.name}")
        asked = waiting.asked
        data = self._partition_data(ErrorCode.NONE)
        if self._place(asked, data):
            if waiting.replica.node_id >= 0:
                self._record_fetch(role, waiting.replica, asked.fetch_offset)
            known = role.high_watermark
            data.high_watermark = -1 if known is None else known
            data.records = quorum.log.read(asked.fetch_offset, waiting.max_bytes)
            is_news = len(data.records) > 0 or asked.high_watermark < data.high_watermark
            if not is_news and quorum.now_ms < waiting.deadline_ms:
                self._park(waiting)
                return
        quorum.reply(waiting.request_id, self._fetch_response(data))

    def _place(self, asked: fetch.FetchPartition, data: fetch.PartitionData) -> bool:
        """Compare the replica's end with this log; fill in the way back unless it fits."""
        log = self._quorum.log
        latest = log.latest_snapshot
        offset, epoch = asked.fetch_offset, asked.last_fetched_epoch
        if offset == 0 and latest is not None:
            data.snapshot_id = fetch.SnapshotId(end_offset=latest.end_offset, epoch=latest.epoch)
            return False
        if offset == 0 and log.start_offset == 0:
            return True
        first = log.earliest_snapshot
        if latest is not None and first is not None and first.end_offset == log.start_offset:
            at_start = offset == log.start_offset and epoch != first.epoch
            if offset < log.start_offset or at_start or epoch < first.epoch:
                data.snapshot_id = fetch.SnapshotId(
                    end_offset=latest.end_offset, epoch=latest.epoch
                )
                return False
        common = log.end_of_epoch(epoch)
        if common.epoch != epoch or common.offset < offset:
            data.diverging_epoch = fetch.EpochEndOffset(
                epoch=common.epoch, end_offset=common.offset
            )
            return False
        return True

    def _record_fetch(self, role: Leader, replica: ReplicaKey, offset: int) -> None:
        quorum = self._quorum
        voter = quorum.voters.latest.find(replica.node_id)
        key = voter.key if voter is not None and voter.key.stands_for(replica) else replica
        # Kept in the order of the last fetches.
        progress = role.progress.pop(key, None) or Progress(key)
        role.progress[key] = progress
        if len(role.progress) > MAX_OBSERVERS + len(quorum.voters.latest):
            silent = next(each for each in role.progress if not quorum.voters.latest.contains(each))
            del role.progress[silent]
        now_ms = quorum.now_ms
        end_offset = quorum.log.end_offset
        if offset >= end_offset:
            progress.last_caught_up_ms = now_ms
        elif 0 <= progress.end_at_last_fetch <= offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
        progress.last_fetch_ms = now_ms
        progress.end_at_last_fetch = end_offset
        progress.end_offset = offset
        self.note_contact(role, replica)
        if voter is not None and key is voter.key:
            self.update_high_watermark(role)

    def _partition_data(self, error: ErrorCode) -> fetch.PartitionData:
        election = self._quorum.election
        return fetch.PartitionData(
            partition_index=rpc.METADATA_PARTITION,
            error_code=error,
            high_watermark=-1,
            log_start_offset=self._quorum.log.start_offset,
            current_leader=fetch.LeaderIdAndEpoch(
                leader_id=election.leader_id, leader_epoch=election.epoch
            ),
        )

    def _fetch_response(self, data: fetch.PartitionData) -> fetch.FetchResponse:
        response = fetch.FetchResponse(
            responses=[
                fetch.FetchableTopicResponse(
                    topic=rpc.METADATA_TOPIC, topic_id=rpc.METADATA_TOPIC_ID, partitions=[data]
                )
            ]
        )
        address = rpc.leader_address(self._quorum)
        if address is not None:
            leader_id = self._quorum.election.leader_id
            response.node_endpoints = [
                fetch.NodeEndpoint(node_id=leader_id, host=address.host, port=address.port)
            ]
        return response

    # Fetches that wait.

    def _park(self, waiting: _ParkedFetch) -> None:
        self._parked[waiting.request_id] = waiting
        self._timers.add(waiting, waiting.deadline_ms, self._quorum.now_ms)
        if len(self._parked) > MAX_PARKED_FETCHES:
            oldest = next(iter(self._parked.values()))
            self._unpark(oldest)
            self._answer_empty(oldest)

    def _unpark(self, waiting: _ParkedFetch) -> None:
        del self._parked[waiting.request_id]
        self._timers.cancel(waiting)

    def _answer_empty(self, waiting: _ParkedFetch) -> None:
        role = self._quorum.role
        data = self._partition_data(ErrorCode.NONE)
        if isinstance(role, Leader) and role.high_watermark is not None:
            data.high_watermark = role.high_watermark
        data.records = b""
        self._quorum.reply(waiting.request_id, self._fetch_response(data))

    def release(self) -> None:
        """Answer the parked fetches that have something to learn now, and the overdue ones."""
        quorum = self._quorum
        role = quorum.role
        if not self._parked or not isinstance(role, Leader):
            return
        end_offset = quorum.log.end_offset
        known = -1 if role.high_watermark is None else role.high_watermark
        for waiting in list(self._parked.values()):
            asked = waiting.asked
            if asked.fetch_offset < end_offset or asked.high_watermark < known:
                self._unpark(waiting)
                self._serve(waiting)
        for waiting in self._timers.advance(quorum.now_ms):
            self._unpark(waiting)
            self._answer_empty(waiting)

    def _release_without_leader(self) -> None:
        for waiting in list(self._parked.values()):
            self._unpark(waiting)
            data = self._partition_data(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._quorum.reply(waiting.request_id, self._fetch_response(data))

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    # Fetch, as a follower.

    def send_fetch(self, node_id: int, address: Endpoint) -> None:
        quorum = self._quorum
        config = quorum.config
        log = quorum.log
        asked = fetch.FetchPartition(
            partition=rpc.METADATA_PARTITION,
            current_leader_epoch=quorum.epoch,
            fetch_offset=log.end_offset,
            last_fetched_epoch=log.last_epoch,
            partition_max_bytes=config.fetch_max_bytes,
            replica_directory_id=quorum.local.directory_id,
            high_watermark=log.high_watermark,
        )
        request = fetch.FetchRequest(
            cluster_id=config.cluster_id,
            replica_state=fetch.ReplicaState(replica_id=quorum.local.node_id),
            max_wait_ms=config.fetch_max_wait_ms,
            max_bytes=config.fetch_max_bytes,
            topics=[
                fetch.FetchTopic(
                    topic=rpc.METADATA_TOPIC, topic_id=rpc.METADATA_TOPIC_ID, partitions=[asked]
                )
            ],
        )
        quorum.send(node_id, address, request, is_fetch=True)

    def on_fetch_response(self, role: Follower, response: fetch.FetchResponse) -> None:
        """A good answer from the leader: truncate, start a download, or append."""
        quorum = self._quorum
        data = response.responses[0].partitions[0]
        if data.diverging_epoch.epoch >= 0:
            leader_end = OffsetAndEpoch(data.diverging_epoch.end_offset, data.diverging_epoch.epoch)
            quorum.truncate(self._common_end(leader_end))
        elif data.snapshot_id.end_offset >= 0 and data.snapshot_id.epoch >= 0:
            snapshot_id = SnapshotId(data.snapshot_id.end_offset, data.snapshot_id.epoch)
            if snapshot_id.end_offset > quorum.log.high_watermark:
                role.download = Download(snapshot_id)
        else:
            self._append_fetched(data)
            quorum.advance_high_watermark(min(data.high_watermark, quorum.log.end_offset))
        role.has_fetched = True
        role.fetch_deadline_ms = quorum.now_ms + quorum.config.fetch_timeout_ms

    def _common_end(self, leader_end: OffsetAndEpoch) -> int:
        """Where this log and the leader's part, as far as one answer tells."""
        log = self._quorum.log
        if leader_end.epoch == 0:
            return min(leader_end.offset, log.end_offset)
        mine = log.end_of_epoch(leader_end.epoch)
        if mine.epoch == leader_end.epoch:
            return min(mine.offset, leader_end.offset)
        return mine.offset

    def _append_fetched(self, data: fetch.PartitionData) -> None:
        """Append the whole, sound batches that continue the log, up to the first that isn't one."""
        quorum = self._quorum
        records = data.records
        if records is None or isinstance(records, FileSlice) or len(records) == 0:
            return
        batches: list[Batch] = []
        next_offset = quorum.log.end_offset
        epoch = quorum.log.last_epoch
        own_epoch = quorum.epoch
        try:
            for view in walk_batches(records):
                if not isinstance(view, RecordBatch) or not view.is_valid:
                    break
                if view.base_offset != next_offset or view.last_offset_delta < 0:
                    break
                if not epoch <= view.leader_epoch <= own_epoch:
                    break
                next_offset, epoch = view.next_offset, view.leader_epoch
                batches.append(
                    Batch(view.base_offset, next_offset, epoch, bytes(view.data), view.is_control)
                )
        except CorruptRecord:
            # What came before is good; the rest will be fetched again.
            pass
        if batches:
            quorum.append(batches)


def _change_voter(voter: Voter) -> LeaderChangeMessageVoter:
    return LeaderChangeMessageVoter(
        voter_id=voter.key.node_id, voter_directory_id=voter.key.directory_id
    )


def _fetch_fault(max_wait_ms: int, asked: fetch.FetchPartition) -> ErrorCode:
    if (
        max_wait_ms < 0
        or asked.fetch_offset < 0
        or asked.last_fetched_epoch < 0
        or asked.current_leader_epoch < 0
        or asked.last_fetched_epoch > asked.current_leader_epoch
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE
