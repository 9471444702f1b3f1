"""The facts that all parts of the core share, and the only way to change the role.

The promise (`election`) and the role change together in `_change`, which checks the table of
transitions, writes the promise before anything else is wanted, and forgets every outstanding
request. Nothing else assigns either of them but `vote_for`, which keeps the role.

Tokens order everything that must become durable. Two of them matter to messages: answers wait for
the promise (`promise_token`), because they show epoch, leader and vote; requests wait for the log
as well (`token`), because a Fetch and a Vote state the end of the log as a fact that a crash can't
take back. An answer of the leader does not wait for its log, so that its followers' disks work at
the same time as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kraftpy.log.epochs import EpochEntry
from kraftpy.protocol.schema.control_records import KRaftVersionRecord, VotersRecord
from kraftpy.raft.connections import Connections
from kraftpy.raft.effects import (
    AppendLog,
    DropDownload,
    Effect,
    HighWatermarkAdvanced,
    LeaderChanged,
    LeadershipLost,
    PeerFault,
    PersistElection,
    Reply,
    Send,
    TruncateLog,
)
from kraftpy.raft.election_state import NO_LEADER, ElectionState
from kraftpy.raft.log_state import MAX_BATCH_BYTES, Batch, LogState, LogView, SnapshotId
from kraftpy.raft.roles import (
    TRANSITIONS,
    Candidate,
    Election,
    EpochChange,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from kraftpy.raft.voters import Endpoint, History, ReplicaKey, VoterSet
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import read_control_record
from kraftpy.records.reader import read_records
from kraftpy.world import InternalInvariant, assert_always

if TYPE_CHECKING:
    from kraftpy.raft.inputs import RaftRequest, RaftResponse
    from kraftpy.world import Buffer
    from kraftpy.world.ports import Random

__all__ = [
    "InconsistentLeaderError",
    "Quorum",
    "RaftConfig",
    "RecoveredState",
    "learn_control_records",
]

T = TypeVar("T")

_LEGAL = frozenset((each.origin, each.target, each.epoch) for each in TRANSITIONS)


class InconsistentLeaderError(Exception):
    """A message names a second leader of an epoch, or this node as one that it is not."""


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Who this node is, and Kafka's controller.quorum.* settings."""

    cluster_id: str
    local: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    listener: str = "CONTROLLER"
    is_controller: bool = True
    bootstrap_servers: tuple[Endpoint, ...] = ()
    static_voters: VoterSet = field(default_factory=VoterSet)
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1024 * 1024
    fetch_snapshot_max_bytes: int = 1024 * 1024
    auto_join: bool = False
    # Wall time less the time that `step` gets, for the timestamps that others see.
    wall_offset_ms: int = 0
    # How far apart the survivors of a dead leader start their elections (decision 14).
    evidence_step_ms: int = 50

    @property
    def yield_ms(self) -> int:
        """How long a voter that could stand leaves that to one of lower rank."""
        return self.election_timeout_ms // 4


@dataclass(frozen=True, slots=True)
class RecoveredState:
    """What the storage found at the start: all of it is durable."""

    view: LogView
    election: ElectionState = field(default_factory=ElectionState)
    start_offset: int = 0
    end_offset: int = 0
    epochs: tuple[EpochEntry, ...] = ()
    snapshots: tuple[SnapshotId, ...] = ()
    # By offset, as snapshot and log told them; empty if neither did.
    voters: tuple[tuple[int, VoterSet], ...] = ()
    kraft_versions: tuple[tuple[int, int], ...] = ()


class Quorum:
    __slots__ = (
        "_announced",
        "_last_faults",
        "_leadership_watchers",
        "config",
        "connections",
        "effects",
        "election",
        "has_campaigned",
        "kraft_versions",
        "local",
        "log",
        "now_ms",
        "promise_token",
        "random",
        "role",
        "shutdown_deadline_ms",
        "token",
        "voters",
    )

    def __init__(self, config: RaftConfig, recovered: RecoveredState, random: Random) -> None:
        self.config = config
        self.local = config.local
        self.random = random
        self.now_ms = 0
        self.election = recovered.election
        self.log = LogState(
            recovered.view,
            start_offset=recovered.start_offset,
            end_offset=recovered.end_offset,
            epochs=recovered.epochs,
            snapshots=recovered.snapshots,
        )
        self.voters = _history(recovered.voters, config.static_voters)
        self.kraft_versions = _history(recovered.kraft_versions, 0)
        self.connections = Connections(
            timeout_ms=config.request_timeout_ms, backoff_ms=config.retry_backoff_ms
        )
        self.role: Role = Unattached(0)
        self.effects: list[Effect] = []
        self.token = 0
        self.promise_token = 0
        self.has_campaigned = False
        self.shutdown_deadline_ms: int | None = None
        self._announced = ElectionState()
        # What each peer was last blamed for.
        self._last_faults: dict[int, str] = {}
        self._leadership_watchers: list[Callable[[], None]] = []

    # What everybody asks.

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def wall_ms(self) -> int:
        return self.now_ms + self.config.wall_offset_ms

    @property
    def is_voter(self) -> bool:
        return self.voters.latest.contains(self.local)

    @property
    def may_campaign(self) -> bool:
        """Whether this node may stand for election: a voter, or one whose removal may fail yet.

        A voter that has its own removal in its log, uncommitted, may be the only one with a log
        that can win; the others could wait for it for ever. It does not count itself.
        """
        voters = self.voters
        if voters.latest.contains(self.local):
            return True
        return voters.latest_offset >= self.log.high_watermark and voters.previous.contains(
            self.local
        )

    def election_timeout(self) -> int:
        """A draw from [T, 2T)."""
        base = self.config.election_timeout_ms
        return base + self.random.randrange(base) if base else 0

    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the leader of this epoch listens, as far as that is known."""
        role = self.role
        if isinstance(role, (Leader, Resigned)):
            return self.config.endpoints
        if isinstance(role, (Follower, Prospective)) and role.leader_endpoints:
            return role.leader_endpoints
        return self._voter_endpoints(self.election.leader_id)

    def _voter_endpoints(self, node_id: int) -> tuple[Endpoint, ...]:
        voter = self.voters.latest.find(node_id)
        return voter.endpoints if voter is not None else ()

    def address(self, endpoints: tuple[Endpoint, ...]) -> Endpoint | None:
        """The one of `endpoints` that the quorum talks on."""
        for endpoint in endpoints:
            if endpoint.name == self.config.listener:
                return endpoint
        return None

    # What leaves.

    def send(
        self, node_id: int, address: Endpoint, request: RaftRequest, *, is_fetch: bool
    ) -> None:
        correlation_id = self.connections.sent(node_id, self.now_ms, is_fetch=is_fetch)
        self.effects.append(Send(node_id, address, correlation_id, request, self.token))

    def reply(self, request_id: int, response: RaftResponse) -> None:
        self.effects.append(Reply(request_id, response, self.promise_token))

    def blame(self, node_id: int, reason: str) -> None:
        """Tell of a peer's fault, but not again and again of the same."""
        if self._last_faults.get(node_id) != reason:
            self._last_faults[node_id] = reason
            self.effects.append(PeerFault(node_id, reason))

    def announce(self) -> None:
        """Tell the state machine who leads, if that is news that it may know."""
        election = self.election
        announced = self._announced
        if election.epoch == announced.epoch and election.leader_id == announced.leader_id:
            return
        role = self.role
        leader_id = election.leader_id
        if isinstance(role, Resigned):
            return
        if isinstance(role, Leader) and role.high_watermark is None:
            if election.epoch == announced.epoch:
                return
            leader_id = NO_LEADER
        self._announced = ElectionState(election.epoch, leader_id)
        self.effects.append(LeaderChanged(election.epoch, leader_id))

    def watch_leadership(self, lost: Callable[[], None]) -> None:
        """`lost` is called whenever this node stops leading, in its new role."""
        self._leadership_watchers.append(lost)

    # The promise and the role.

    def start(self) -> None:
        """The role that the promise leaves open after a restart (section 5.1)."""
        election = self.election
        if election.epoch < self.log.last_epoch:
            self._promise(ElectionState(self.log.last_epoch))
            self.role = self._unattached(self.election_timeout())
        elif election.leader_id == self.local.node_id:
            # Records of this epoch may be gone, and (epoch, offset) must stay unique.
            self.role = Resigned(self.now_ms + self.election_timeout(), ())
        elif self._may_go_on_as_candidate():
            self.role = self._candidate()
        elif election.has_leader and self._voter_endpoints(election.leader_id):
            self.role = self._follower(self._voter_endpoints(election.leader_id))
        else:
            self.role = self._unattached(self.election_timeout())

    def _may_go_on_as_candidate(self) -> bool:
        """Its own vote is all that is known of this epoch: no leader, no record."""
        election = self.election
        return (
            self.may_campaign
            and election.voted is not None
            # At kraft.version 0 the file has no directory, and lies in this one.
            and election.voted.stands_for(self.local)
            and not election.has_leader
            and self.log.last_epoch < election.epoch
        )

    def _promise(self, election: ElectionState) -> None:
        """Have a new promise written; whatever is said from now on waits for it."""
        if election == self.election:
            return
        assert_always(election.epoch >= self.election.epoch, "raft-epoch-falls", new=election)
        self.election = election
        self.token += 1
        self.promise_token = self.token
        self.effects.append(
            PersistElection(
                election, self.kraft_versions.latest, self.voters.latest.ids, self.token
            )
        )

    def vote_for(self, key: ReplicaKey) -> None:
        """Promise this epoch's only vote to another node; the role stays, its timer is fresh."""
        role = self.role
        election = self.election
        if not isinstance(role, Unattached | Prospective) or key.node_id == self.local.node_id:
            raise InternalInvariant(f"raft-vote-illegal: {role.name} for {key}")
        first = election.voted is None or election.voted.stands_for(key)
        assert_always(first, "raft-second-vote", new=key)
        self._promise(ElectionState(election.epoch, election.leader_id, key))
        role.election_deadline_ms = self.now_ms + self.election_timeout()

    def _change(self, role: Role, election: ElectionState) -> None:
        origin = self.role
        change = EpochChange.HIGHER if election.epoch > self.epoch else EpochChange.SAME
        if (origin.name, role.name, change) not in _LEGAL or election.epoch < self.epoch:
            raise InternalInvariant(
                f"raft-transition: {origin.name} to {role.name}, {self.election} to {election}"
            )
        if isinstance(role, Prospective | Candidate | Leader) and not self.may_campaign:
            raise InternalInvariant(f"raft-observer-campaigns: to {role.name}")
        old_epoch = self.epoch
        self._promise(election)
        self.role = role
        self.connections.forget()
        if isinstance(origin, Follower) and origin.download is not None:
            self.effects.append(DropDownload(origin.download.snapshot_id))
        if isinstance(origin, Leader):
            self.effects.append(LeadershipLost(old_epoch))
            for lost in self._leadership_watchers:
                lost()

    def become_unattached(self, epoch: int, *, leader_id: int = NO_LEADER) -> None:
        """Into a higher epoch; or, from Prospective, to go on waiting in this one."""
        if epoch == self.epoch:
            # The promise of this epoch stays, or the node could vote twice in it.
            self._change(self._unattached(self.election_timeout()), self.election)
            return
        left_ms = self.election_timeout()
        if isinstance(self.role, Unattached | Prospective | Candidate | Resigned):
            left_ms = max(self.role.election_deadline_ms - self.now_ms, 0)
        self._change(self._unattached(left_ms), ElectionState(epoch, leader_id))

    def become_prospective(self) -> None:
        self.has_campaigned = True
        endpoints = self.leader_endpoints() if self.election.has_leader else ()
        deadline_ms = self.now_ms + self.election_timeout()
        self._change(Prospective(self._election(), deadline_ms, endpoints), self.election)

    def become_candidate(self) -> None:
        election = ElectionState(self.epoch + 1, NO_LEADER, self.local)
        self._change(self._candidate(), election)

    def become_leader(self) -> None:
        role = self.role
        if not isinstance(role, Candidate) or not role.election.is_won:
            raise InternalInvariant(f"raft-leader-without-majority: {role.name}")
        leader = Leader(
            epoch_start_offset=self.log.end_offset,
            granting=tuple(sorted(role.election.granted)),
            check_quorum_deadline_ms=self.now_ms + self.config.fetch_timeout_ms * 3 // 2,
            begin_epoch_deadline_ms=self.now_ms,
        )
        election = ElectionState(self.epoch, self.local.node_id, self.election.voted)
        self._change(leader, election)

    def become_follower(self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...]) -> None:
        if leader_id == self.local.node_id:
            raise InternalInvariant(f"raft-follows-itself: epoch {epoch}")
        voted = self.election.voted if epoch == self.epoch else None
        self._change(self._follower(endpoints), ElectionState(epoch, leader_id, voted))

    def become_resigned(self) -> None:
        """Stop leading; the best informed voters come first among the successors."""
        role = self.role
        if not isinstance(role, Leader):
            raise InternalInvariant(f"raft-resigns-as: {role.name}")
        ends = {key: progress.end_offset for key, progress in role.progress.items()}
        others = [
            voter.key
            for voter in self.voters.latest.voters
            if voter.key.node_id != self.local.node_id
        ]
        others.sort(key=lambda key: (-ends.get(key, -1), key))
        deadline_ms = self.now_ms + self.election_timeout()
        self._change(Resigned(deadline_ms, tuple(others)), self.election)

    def adopt(self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...]) -> None:
        """A message shows this epoch, and perhaps who leads it.

        Raises InconsistentLeaderError, with nothing changed.
        """
        own_epoch = self.election.epoch
        if epoch < own_epoch:
            return
        if leader_id == NO_LEADER:
            if epoch > own_epoch:
                self.become_unattached(epoch)
            return
        self._check_consistent_leader(epoch, leader_id)
        if leader_id == self.local.node_id:
            return
        endpoints = endpoints or self._voter_endpoints(leader_id)
        if not endpoints:
            if epoch > own_epoch:
                self.become_unattached(epoch, leader_id=leader_id)
            return
        role = self.role
        if isinstance(role, Follower):
            follows = len(endpoints) > len(role.leader_endpoints)
        elif isinstance(role, Prospective):
            knows_place = self.election.has_leader and bool(role.leader_endpoints)
            follows = not knows_place
        else:
            follows = isinstance(role, Unattached | Candidate)
        if follows or epoch > own_epoch:
            self.become_follower(epoch, leader_id, endpoints)

    def _check_consistent_leader(self, epoch: int, leader_id: int) -> None:
        """Two leaders in one epoch, or one that does not know it: whoever says so is wrong.

        Kafka's node ends here. That would help nobody: started again, it would follow the leader
        that it has promised to follow, and one request, forged or not, could stop any node.
        """
        mine = self.election.leader_id
        if epoch > self.election.epoch:
            consistent = leader_id != self.local.node_id
        else:
            consistent = leader_id == mine or (
                mine == NO_LEADER and leader_id != self.local.node_id
            )
        if not consistent:
            raise InconsistentLeaderError(
                f"raft-two-leaders: epoch {epoch} has leader {leader_id}, known {self.election}"
            )

    def _unattached(self, timeout_ms: int) -> Unattached:
        return Unattached(self.now_ms + timeout_ms)

    def _candidate(self) -> Candidate:
        return Candidate(self._election(), self.now_ms + self.election_timeout())

    def _election(self) -> Election:
        """A new count, with the own vote if this node has one."""
        voters = self.voters.latest
        return Election(voters, {self.local.node_id: None} if self.is_voter else {})

    def _follower(self, endpoints: tuple[Endpoint, ...]) -> Follower:
        timeout_ms = self.config.fetch_timeout_ms
        return Follower(endpoints, self.now_ms + timeout_ms, self.now_ms + timeout_ms)

    # The log.

    def append(self, batches: Sequence[Batch]) -> None:
        """Append batches that continue the log, and believe what control records say."""
        self.token += 1
        for batch in batches:
            self.log.append(batch, self.token)
            if batch.is_control:
                learn_control_records(batch.data, self.voters, self.kraft_versions)
        self.effects.append(AppendLog(tuple(batches), self.token))

    def truncate(self, end_offset: int) -> None:
        self.token += 1
        self.log.truncate(end_offset)
        self.voters.truncate(end_offset)
        self.kraft_versions.truncate(end_offset)
        self.effects.append(TruncateLog(end_offset, self.token))

    def advance_high_watermark(self, offset: int) -> None:
        if self.log.advance_high_watermark(offset):
            self.effects.append(HighWatermarkAdvanced(offset))


def _history(entries: Sequence[tuple[int, T]], first: T) -> History[T]:
    if not entries:
        return History(first)
    (offset, value), *rest = entries
    history = History(value, offset)
    for offset, value in rest:
        history.add(offset, value)
    return history


def learn_control_records(
    data: Buffer, voters: History[VoterSet], kraft_versions: History[int]
) -> None:
    """Take over voters and kraft.version from a control batch, committed or not."""
    for record in read_records(RecordBatch(data), max_bytes=MAX_BATCH_BYTES):
        message = read_control_record(record)
        if isinstance(message, VotersRecord):
            voters.add(record.offset, VoterSet.from_record(message))
        elif isinstance(message, KRaftVersionRecord):
            kraft_versions.add(record.offset, message.kraft_version)
