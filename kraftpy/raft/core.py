"""The Raft core: one state machine, driven from outside, that performs no I/O.

`step(input, now_ms)` takes one fact and returns what is to be done about it, in order. It never
waits and never raises for a peer's nonsense: a request is answered, an answer is not believed, and
both are told in the log (`PeerFault`). It raises InternalInvariant when this code is broken or
committed records would have to go, which ends the node. After every input the current role gets
its turn (`_poll`): who is overdue is asked again, who has waited long enough is answered, whoever
has lost its leader campaigns. `next_deadline_ms` says when the role wants its next turn.

Same configuration, same recovered state, same `Random`, same inputs: same effects, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k01_fetch as fetch
from kraftpy.protocol.schema import k18_api_versions as api_versions
from kraftpy.protocol.schema import k52_vote as vote
from kraftpy.protocol.schema import k53_begin_quorum_epoch as begin
from kraftpy.protocol.schema import k54_end_quorum_epoch as end
from kraftpy.protocol.schema import k55_describe_quorum as describe_quorum
from kraftpy.protocol.schema import k59_fetch_snapshot as fetch_snapshot
from kraftpy.protocol.schema import k80_add_raft_voter as add_voter
from kraftpy.protocol.schema import k81_remove_raft_voter as remove_voter
from kraftpy.protocol.schema import k82_update_raft_voter as update_voter
from kraftpy.raft import inputs, rpc
from kraftpy.raft.describing import answer_describe_quorum
from kraftpy.raft.discovery import Discovery
from kraftpy.raft.effects import Effect, ProposalRefused, Proposed, ShutdownFinished
from kraftpy.raft.elections import Elections
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.membership import KRAFT_VERSION_FEATURE, Membership, UpgradeRefusal
from kraftpy.raft.quorum import InconsistentLeaderError, Quorum, RaftConfig, RecoveredState
from kraftpy.raft.replication import Replication
from kraftpy.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kraftpy.raft.snapshots import SNAPSHOT_GONE, SnapshotRefusal, Snapshots

if TYPE_CHECKING:
    from kraftpy.world.ports import Random

__all__ = ["RaftCore"]

# What a sound peer never answers, or only to a node that is set up wrongly.
_REFUSALS = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REQUEST,
    }
)
_FETCHED = (fetch.FetchResponse, fetch_snapshot.FetchSnapshotResponse)
_ADOPTING_ERRORS = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class RaftCore:
    """A voter or observer of the quorum. Deterministic; performs no I/O."""

    __slots__ = (
        "_discovery",
        "_elections",
        "_is_down",
        "_membership",
        "_replication",
        "_snapshots",
        "quorum",
    )

    def __init__(self, config: RaftConfig, recovered: RecoveredState, random: Random) -> None:
        self.quorum = Quorum(config, recovered, random)
        self._elections = Elections(self.quorum)
        self._replication = Replication(self.quorum)
        self._snapshots = Snapshots(self.quorum, self._replication)
        self._membership = Membership(self.quorum, self._replication)
        self._discovery = Discovery(self.quorum)
        self._is_down = False

    def start(self, now_ms: int) -> list[Effect]:
        """Take up the role that the promise leaves open; a sole voter leads at once."""
        quorum = self.quorum
        quorum.now_ms = now_ms
        quorum.start()
        role = quorum.role
        if quorum.is_voter and len(quorum.voters.latest) == 1:
            if isinstance(role, Unattached | Resigned):
                role.election_deadline_ms = now_ms
        elif isinstance(role, Resigned):
            # It led before it went down, so nobody follows it: it need not sit its time out. Any
            # other leader there may be by now has a higher epoch than the one it leaves.
            role.election_deadline_ms = now_ms + quorum.config.evidence_step_ms
        self._poll()
        return self._take_effects()

    def step(self, event: inputs.Input, now_ms: int) -> list[Effect]:
        """One fact in, everything that follows from it out."""
        quorum = self.quorum
        # Time that seems to go back is time that stands still.
        quorum.now_ms = max(quorum.now_ms, now_ms)
        match event:
            case inputs.RequestReceived():
                self._on_request(event.request_id, event.request)
            case inputs.ResponseReceived():
                self._on_response(event)
            case inputs.RequestFailed():
                self._on_failure(event)
            case inputs.PeerUnreachable():
                self._discovery.note_dead(event.node_id)
            case inputs.Persisted():
                self._on_persisted(event.token)
            case inputs.TimeAdvanced():
                pass
            case inputs.Propose():
                self._on_proposal(event)
            case inputs.UpgradeKraftVersion():
                self._on_upgrade(event)
            case inputs.Resign():
                if isinstance(quorum.role, Leader) and event.epoch == quorum.epoch:
                    quorum.become_resigned()
            case inputs.ShutDown():
                self._on_shutdown(event)
            case inputs.SnapshotFrozen():
                self._snapshots.on_frozen(event.snapshot_id)
            case inputs.SnapshotsExpired():
                self._snapshots.on_expired(event.oldest_kept)
            case _:
                assert_never(event)
        self._poll()
        return self._take_effects()

    def _take_effects(self) -> list[Effect]:
        quorum = self.quorum
        quorum.announce()
        effects, quorum.effects = quorum.effects, []
        return effects

    def snapshot_refusal(self, snapshot_id: SnapshotId) -> SnapshotRefusal | None:
        """Why the state machine should not make this snapshot; None if it may."""
        return self._snapshots.refusal(snapshot_id)

    def upgrade_refusal(self, kraft_version: int) -> UpgradeRefusal | None:
        """Why kraft.version can't become this one now; None if it can, or is it already."""
        return self._membership.upgrade_refusal(kraft_version)

    def describe(self) -> dict[str, object]:
        """Plain values for metrics, journals and dumps."""
        quorum = self.quorum
        role = quorum.role
        election = quorum.election
        name = str(role.name)
        if isinstance(role, Unattached) and election.voted is not None:
            name = "voted"
        return {
            "node_id": quorum.local.node_id,
            "role": name if quorum.is_voter else f"{name} (observer)",
            "epoch": election.epoch,
            "leader_id": election.leader_id,
            "voted_id": -1 if election.voted is None else election.voted.node_id,
            "log_start_offset": quorum.log.start_offset,
            "high_watermark": quorum.log.high_watermark,
            "log_end_offset": quorum.log.end_offset,
            "last_epoch": quorum.log.last_epoch,
            "voters": quorum.voters.latest.ids,
            "changes_voters": self._membership.is_busy,
        }

    # Inputs.

    def _on_request(self, request_id: int, request: inputs.RaftRequest) -> None:
        quorum = self.quorum
        match request:
            case fetch.FetchRequest():
                self._discovery.note_contact(request.replica_state.replica_id)
                self._replication.on_fetch_request(request_id, request)
            case vote.VoteRequest():
                quorum.reply(request_id, self._elections.on_vote_request(request))
            case begin.BeginQuorumEpochRequest():
                quorum.reply(request_id, self._elections.on_begin_request(request))
            case end.EndQuorumEpochRequest():
                quorum.reply(request_id, self._elections.on_end_request(request))
            case fetch_snapshot.FetchSnapshotRequest():
                quorum.reply(request_id, self._snapshots.on_request(request))
            case describe_quorum.DescribeQuorumRequest():
                quorum.reply(request_id, answer_describe_quorum(quorum, request))
            case add_voter.AddRaftVoterRequest():
                self._membership.on_add(request_id, request)
            case remove_voter.RemoveRaftVoterRequest():
                self._membership.on_remove(request_id, request)
            case update_voter.UpdateRaftVoterRequest():
                quorum.reply(request_id, self._membership.on_update(request))
            case api_versions.ApiVersionsRequest():
                quorum.reply(request_id, _supported_kraft_versions())
            case _:
                assert_never(request)

    def _on_response(self, event: inputs.ResponseReceived) -> None:
        quorum = self.quorum
        node_id = event.node_id
        if not quorum.connections.expects(node_id, event.correlation_id):
            return
        response = event.response
        self._discovery.note_contact(node_id)
        quorum.connections.answered(node_id, quorum.now_ms)
        if isinstance(response, api_versions.ApiVersionsResponse):
            self._membership.on_api_versions(node_id, response)
            return
        outcome = rpc.outcome_of(response, quorum.epoch)
        if outcome is None:
            return
        try:
            if self._on_outcome(node_id, outcome, response):
                return
        except InconsistentLeaderError as error:
            quorum.blame(node_id, str(error))
            quorum.connections.back_off(node_id, quorum.now_ms)
            return
        role = quorum.role
        if isinstance(response, vote.VoteResponse):
            self._elections.on_vote_response(node_id, response)
        elif isinstance(response, begin.BeginQuorumEpochResponse):
            self._elections.on_begin_response(node_id)
        elif isinstance(response, end.EndQuorumEpochResponse):
            self._elections.on_end_response(node_id)
        elif isinstance(role, Follower):
            if isinstance(response, fetch.FetchResponse):
                self._replication.on_fetch_response(role, response)
            elif isinstance(response, fetch_snapshot.FetchSnapshotResponse):
                self._snapshots.on_response(role, response)
            elif isinstance(response, update_voter.UpdateRaftVoterResponse):
                self._membership.on_update_response(role)

    def _on_outcome(
        self, node_id: int, outcome: rpc.Outcome, response: inputs.RaftResponse
    ) -> bool:
        """Learn from what every answer says; whether that was all there is to it."""
        quorum = self.quorum
        error = outcome.error
        own_epoch = quorum.election.epoch
        if outcome.epoch < own_epoch or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            quorum.connections.back_off(node_id, quorum.now_ms)
            return True
        endpoints = outcome.leader_endpoints(quorum.config.listener)
        if outcome.epoch > own_epoch or error in _ADOPTING_ERRORS:
            role = quorum.role
            quorum.adopt(outcome.epoch, outcome.leader_id, endpoints)
            if quorum.role is role:
                # Who could not tell more is not asked again at once.
                quorum.connections.back_off(node_id, quorum.now_ms)
            return True
        if not quorum.election.has_leader or isinstance(response, _FETCHED):
            # Nothing is taken from who follows another leader of this epoch; its vote counts.
            quorum.adopt(outcome.epoch, outcome.leader_id, endpoints)
        if error in (ErrorCode.NONE, ErrorCode.INVALID_VOTER_KEY):
            # A replica with another directory than the voter's has said all that it ever will.
            return False
        if error in _REFUSALS:
            quorum.blame(node_id, f"raft-refused: {error.name} to a request of this node")
        if error in SNAPSHOT_GONE:
            return False
        if error is ErrorCode.UNSUPPORTED_VERSION and isinstance(response, vote.VoteResponse):
            self._elections.on_vote_unsupported()
        else:
            quorum.connections.back_off(node_id, quorum.now_ms)
        return True

    def _on_failure(self, event: inputs.RequestFailed) -> None:
        quorum = self.quorum
        if not quorum.connections.expects(event.node_id, event.correlation_id):
            return
        if event.error is ErrorCode.UNSUPPORTED_VERSION:
            self._elections.on_vote_unsupported()
        if isinstance(quorum.role, Leader):
            self._membership.on_api_versions_failed(event.node_id)
        quorum.connections.back_off(event.node_id, quorum.now_ms)

    def _on_persisted(self, token: int) -> None:
        quorum = self.quorum
        if quorum.log.persisted(token) and isinstance(quorum.role, Leader):
            self._replication.update_high_watermark(quorum.role)

    def _on_proposal(self, event: inputs.Propose) -> None:
        error, last_offset = self._replication.propose(event.epoch, event.values)
        if error is ErrorCode.NONE:
            self.quorum.effects.append(Proposed(event.proposal_id, last_offset))
        else:
            self.quorum.effects.append(ProposalRefused(event.proposal_id, error))

    def _on_upgrade(self, event: inputs.UpgradeKraftVersion) -> None:
        effects = self.quorum.effects
        refusal = self._membership.upgrade_refusal(event.kraft_version)
        if event.epoch != self.quorum.epoch:
            effects.append(ProposalRefused(event.proposal_id, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif refusal is not None:
            effects.append(ProposalRefused(event.proposal_id, refusal.error, refusal.message))
        else:
            offset = self._membership.upgrade(event.kraft_version)
            effects.append(Proposed(event.proposal_id, offset))

    def _on_shutdown(self, event: inputs.ShutDown) -> None:
        quorum = self.quorum
        quorum.shutdown_deadline_ms = event.deadline_ms
        if isinstance(quorum.role, Leader):
            quorum.become_resigned()

    # The role's turn.

    def _poll(self) -> None:
        quorum = self.quorum
        quorum.connections.expire(quorum.now_ms)
        while True:
            role = quorum.role
            self._poll_role()
            if quorum.role is role:
                break
        if quorum.shutdown_deadline_ms is not None and not self._is_down:
            self._poll_shutdown(quorum.shutdown_deadline_ms)

    def _poll_role(self) -> None:
        quorum = self.quorum
        role = quorum.role
        match role:
            case Follower():
                self._poll_follower(role)
            case Leader():
                self._poll_leader(role)
            case Unattached():
                if quorum.now_ms >= role.election_deadline_ms and quorum.may_campaign:
                    quorum.become_prospective()
                else:
                    self._find_leader()
            case Prospective() | Candidate():
                self._elections.campaign(role)
            case Resigned():
                self._elections.say_farewell(role)
            case _:
                assert_never(role)

    def _poll_follower(self, role: Follower) -> None:
        quorum = self.quorum
        now_ms = quorum.now_ms
        if now_ms >= role.fetch_deadline_ms and quorum.may_campaign:
            quorum.become_prospective()
            return
        if quorum.connections.fetches_anywhere(now_ms):
            return
        leader_id = quorum.election.leader_id
        address = quorum.address(role.leader_endpoints)
        lost = now_ms >= role.fetch_deadline_ms or address is None
        if lost or quorum.connections.is_backing_off(leader_id, now_ms):
            self._find_leader()
        elif address is not None and quorum.connections.is_ready(leader_id, now_ms):
            if self._membership.send_update(role, leader_id, address):
                return
            if self._membership.send_auto_join(role, leader_id, address):
                return
            if role.download is not None:
                self._snapshots.send_request(leader_id, address, role.download)
            else:
                self._replication.send_fetch(leader_id, address)

    def _find_leader(self) -> None:
        peer = self._discovery.next_peer()
        if peer is not None:
            self._replication.send_fetch(*peer)

    def _poll_leader(self, role: Leader) -> None:
        quorum = self.quorum
        if quorum.log.end_offset == role.epoch_start_offset:
            self._replication.begin_epoch(role)
        if self._replication.check_quorum_expired(role):
            quorum.become_resigned()
            return
        self._elections.announce_epoch(role)
        self._membership.poll(role)
        self._replication.release()

    def _poll_shutdown(self, deadline_ms: int) -> None:
        """A node that nobody waits for may go."""
        quorum = self.quorum
        election = quorum.election
        follows = election.has_leader and election.leader_id != quorum.local.node_id
        alone = len(quorum.voters.latest) == 1
        if follows or alone or not quorum.is_voter or quorum.now_ms >= deadline_ms:
            self._is_down = True
            quorum.effects.append(ShutdownFinished())

    def next_deadline_ms(self) -> int | None:
        """When time alone will change something; None if it never will."""
        quorum = self.quorum
        role = quorum.role
        deadlines = [quorum.connections.next_deadline_ms()]
        if quorum.shutdown_deadline_ms is not None and not self._is_down:
            deadlines.append(quorum.shutdown_deadline_ms)
        match role:
            case Follower():
                if quorum.now_ms < role.fetch_deadline_ms or quorum.may_campaign:
                    deadlines.append(role.fetch_deadline_ms)
                deadlines.append(self._discovery.next_deadline_ms())
            case Leader():
                deadlines += (
                    role.begin_epoch_deadline_ms,
                    self._replication.next_deadline_ms(),
                    self._membership.next_deadline_ms(),
                )
                if len(quorum.voters.latest.ids) > 1 or not quorum.is_voter:
                    deadlines.append(role.check_quorum_deadline_ms)
            case Unattached():
                if quorum.may_campaign:
                    deadlines.append(role.election_deadline_ms)
                deadlines.append(self._discovery.next_deadline_ms())
            case Resigned():
                # A node that shuts down has no use for the epoch after its own.
                if quorum.shutdown_deadline_ms is None:
                    deadlines.append(role.election_deadline_ms)
            case Prospective() if role.election.is_won:
                deadlines.append(role.yields_until_ms)
            case _:
                deadlines.append(role.election_deadline_ms)
        earliest: int | None = None
        for deadline_ms in deadlines:
            if deadline_ms is not None and (earliest is None or deadline_ms < earliest):
                earliest = deadline_ms
        return earliest


def _supported_kraft_versions() -> api_versions.ApiVersionsResponse:
    """What a leader asks before it adds a voter; clients get the listener's own answer."""
    return api_versions.ApiVersionsResponse(
        supported_features=[
            api_versions.SupportedFeatureKey(
                name=KRAFT_VERSION_FEATURE, min_version=0, max_version=1
            )
        ]
    )
