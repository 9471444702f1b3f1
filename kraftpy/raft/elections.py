"""Elections: Vote, BeginQuorumEpoch, EndQuorumEpoch, from both sides (sections 5.4 and 7)."""

from __future__ import annotations

from collections.abc import Sequence

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k52_vote as vote
from kraftpy.protocol.schema import k53_begin_quorum_epoch as begin
from kraftpy.protocol.schema import k54_end_quorum_epoch as end
from kraftpy.raft import rpc
from kraftpy.raft.quorum import InconsistentLeaderError, Quorum
from kraftpy.raft.roles import (
    Candidate,
    Election,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from kraftpy.raft.voters import Endpoint, ReplicaKey

__all__ = ["Elections"]


class Elections:
    __slots__ = ("_quorum",)

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # Vote.

    def on_vote_request(self, request: vote.VoteRequest) -> vote.VoteResponse:
        quorum = self._quorum
        if rpc.has_wrong_cluster(quorum, request.cluster_id):
            return vote.VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        asked = rpc.single_partition(
            [(each.topic_name, each.partitions) for each in request.topics]
        )
        if asked is None or not _has_possible_log(asked):
            return vote.VoteResponse(error_code=ErrorCode.INVALID_REQUEST)
        error = rpc.check_leadership_request(
            quorum, epoch=asked.replica_epoch, sender_id=asked.replica_id
        )
        if error is not ErrorCode.NONE:
            return self._vote_response(error, granted=False)
        if asked.replica_epoch > quorum.epoch:
            # For a pre-vote too: the sender really is in that epoch.
            quorum.become_unattached(asked.replica_epoch)
        addressed = ReplicaKey(request.voter_id, asked.voter_directory_id)
        if request.voter_id >= 0 and not addressed.stands_for(quorum.local):
            return self._vote_response(ErrorCode.INVALID_VOTER_KEY, granted=False)
        candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        up_to_date = quorum.log.is_covered_by(
            end_offset=asked.last_offset, epoch=asked.last_offset_epoch
        )
        if asked.pre_vote:
            granted = self.grants_pre_vote(up_to_date=up_to_date)
            if granted:
                self.yield_to(candidate)
            else:
                self.ask_again(candidate)
        else:
            granted = self.grants_vote(candidate, up_to_date=up_to_date)
            if granted:
                quorum.vote_for(candidate)
            else:
                self.retry_before(candidate)
        return self._vote_response(ErrorCode.NONE, granted=granted)

    def grants_pre_vote(self, *, up_to_date: bool) -> bool:
        """Whether a vote would be given; nothing is promised."""
        role = self._quorum.role
        if isinstance(role, Leader):
            return False
        if isinstance(role, Follower) and role.has_fetched and not role.leader_is_dead:
            return False
        return up_to_date

    def yield_to(self, candidate: ReplicaKey) -> None:
        """Let a voter of lower rank stand first if both are about to, but not for ever.

        One commit reaches all followers of a leader at once, and so their fetch timeouts end at
        once when it falls silent. Two that have each other's pre-vote would both stand, each with
        its own vote, and both sit a whole election timeout out. The other has to hear of its
        majority, to write its own vote down and to ask, on a machine that may be busy.
        """
        quorum = self._quorum
        role = quorum.role
        if (
            isinstance(role, Prospective)
            and role.yields_until_ms is None
            and candidate.node_id < quorum.local.node_id
            and quorum.voters.latest.contains(candidate)
        ):
            role.yields_until_ms = quorum.now_ms + quorum.config.yield_ms

    def ask_again(self, candidate: ReplicaKey) -> None:
        """Who wants a pre-vote has given its leader up, and would give one now, whatever it said.

        A voter that notices the leader's death late has refused this one before, and with a shorter
        log it is refused in turn. Neither has lost, because the dead leader may still answer, and
        both would sit their election timeouts out.
        """
        role = self._quorum.role
        if isinstance(role, Prospective):
            role.election.rejected.pop(candidate.node_id, None)

    def retry_before(self, rival: ReplicaKey) -> None:
        """The votes of this epoch are split: the candidate of lowest rank asks for the next one.

        The others wait their time out, as all would in Kafka; by then there is a leader. Once more
        a pre-vote decides whether anybody is disturbed, and the rival itself may give it.
        """
        quorum = self._quorum
        role = quorum.role
        if (
            isinstance(role, Candidate)
            and quorum.local.node_id < rival.node_id
            and quorum.voters.latest.contains(rival)
        ):
            role.election_deadline_ms = min(
                role.election_deadline_ms, quorum.now_ms + quorum.config.evidence_step_ms
            )

    def grants_vote(self, candidate: ReplicaKey, *, up_to_date: bool) -> bool:
        """Whether the vote of this epoch is still, or already, the candidate's."""
        quorum = self._quorum
        if not isinstance(quorum.role, Unattached | Prospective):
            return False
        if candidate.node_id == quorum.local.node_id:
            return False
        voted = quorum.election.voted
        if voted is not None:
            # At kraft.version 0 the file that a restart read has no directory.
            return voted.stands_for(candidate)
        return not quorum.election.has_leader and up_to_date

    def _vote_response(self, error: ErrorCode, *, granted: bool) -> vote.VoteResponse:
        election = self._quorum.election
        answer = vote.ResponsePartitionData(
            partition_index=rpc.METADATA_PARTITION,
            error_code=error,
            leader_id=election.leader_id,
            leader_epoch=election.epoch,
            vote_granted=granted,
        )
        response = vote.VoteResponse(
            topics=[vote.ResponseTopicData(topic_name=rpc.METADATA_TOPIC, partitions=[answer])]
        )
        address = rpc.leader_address(self._quorum)
        if address is not None:
            response.node_endpoints = [
                vote.NodeEndpoint(node_id=election.leader_id, host=address.host, port=address.port)
            ]
        return response

    def on_vote_response(self, node_id: int, response: vote.VoteResponse) -> None:
        role = self._quorum.role
        if not isinstance(role, Prospective | Candidate):
            return
        election = role.election
        if response.topics[0].partitions[0].vote_granted:
            election.granted[node_id] = None
            election.rejected.pop(node_id, None)
        elif node_id not in election.granted or isinstance(role, Prospective):
            election.rejected[node_id] = None
            election.granted.pop(node_id, None)
        if isinstance(role, Prospective) and election.is_lost:
            self.give_up()

    def on_vote_unsupported(self) -> None:
        """A voter does not know pre-votes; it will judge a real one."""
        if isinstance(self._quorum.role, Prospective):
            self._quorum.become_candidate()

    def give_up(self) -> None:
        """A pre-vote that can't be won: back to the leader if there is one."""
        quorum = self._quorum
        role = quorum.role
        if isinstance(role, Prospective) and role.leader_endpoints:
            endpoints = role.leader_endpoints
            quorum.become_follower(quorum.epoch, quorum.election.leader_id, endpoints)
        else:
            quorum.become_unattached(quorum.epoch)

    def campaign(self, role: Prospective | Candidate) -> None:
        """Go on with an election: count, ask who has not answered, or give up in time."""
        quorum = self._quorum
        if role.election.is_won:
            if isinstance(role, Candidate):
                quorum.become_leader()
            elif quorum.now_ms >= (role.yields_until_ms or 0):
                quorum.become_candidate()
        elif quorum.now_ms >= role.election_deadline_ms:
            if isinstance(role, Prospective):
                self.give_up()
            else:
                quorum.become_prospective()
        elif not role.election.is_lost:
            self._ask(role.election, pre_vote=isinstance(role, Prospective))

    def _ask(self, election: Election, *, pre_vote: bool) -> None:
        quorum = self._quorum
        for node_id in election.unanswered():
            if not quorum.connections.is_ready(node_id, quorum.now_ms):
                continue
            voter = election.voters.find(node_id)
            address = voter.endpoint(quorum.config.listener) if voter is not None else None
            if voter is None or address is None:
                continue
            asked = vote.RequestPartitionData(
                partition_index=rpc.METADATA_PARTITION,
                replica_epoch=quorum.epoch,
                replica_id=quorum.local.node_id,
                replica_directory_id=quorum.local.directory_id,
                voter_directory_id=voter.key.directory_id,
                last_offset_epoch=quorum.log.last_epoch,
                last_offset=quorum.log.end_offset,
                pre_vote=pre_vote,
            )
            topic = vote.RequestTopicData(topic_name=rpc.METADATA_TOPIC, partitions=[asked])
            request = vote.VoteRequest(
                cluster_id=quorum.config.cluster_id, voter_id=node_id, topics=[topic]
            )
            quorum.send(node_id, address, request, is_fetch=False)

    def _believe(
        self,
        asked: begin.RequestPartitionData | end.RequestPartitionData,
        leader_endpoints: Sequence[begin.LeaderEndpoint] | Sequence[end.LeaderEndpoint],
    ) -> ErrorCode:
        """The sender says that it leads; why that can't be, or NONE."""
        quorum = self._quorum
        endpoints = tuple(Endpoint(each.name, each.host, each.port) for each in leader_endpoints)
        try:
            quorum.adopt(asked.leader_epoch, asked.leader_id, endpoints)
        except InconsistentLeaderError as error:
            quorum.blame(asked.leader_id, str(error))
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    # BeginQuorumEpoch.

    def on_begin_request(
        self, request: begin.BeginQuorumEpochRequest
    ) -> begin.BeginQuorumEpochResponse:
        quorum = self._quorum
        if rpc.has_wrong_cluster(quorum, request.cluster_id):
            return begin.BeginQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        asked = rpc.single_partition(
            [(each.topic_name, each.partitions) for each in request.topics]
        )
        if asked is None:
            return begin.BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        error = rpc.check_leadership_request(
            quorum, epoch=asked.leader_epoch, sender_id=asked.leader_id
        )
        if error is ErrorCode.NONE:
            error = self._believe(asked, request.leader_endpoints)
        if error is ErrorCode.NONE:
            addressed = ReplicaKey(request.voter_id, asked.voter_directory_id)
            if request.voter_id >= 0 and not addressed.stands_for(quorum.local):
                error = ErrorCode.INVALID_VOTER_KEY
        return self._begin_response(error)

    def _begin_response(self, error: ErrorCode) -> begin.BeginQuorumEpochResponse:
        election = self._quorum.election
        answer = begin.ResponsePartitionData(
            partition_index=rpc.METADATA_PARTITION,
            error_code=error,
            leader_id=election.leader_id,
            leader_epoch=election.epoch,
        )
        topic = begin.ResponseTopicData(topic_name=rpc.METADATA_TOPIC, partitions=[answer])
        response = begin.BeginQuorumEpochResponse(topics=[topic])
        address = rpc.leader_address(self._quorum)
        if address is not None:
            response.node_endpoints = [
                begin.NodeEndpoint(node_id=election.leader_id, host=address.host, port=address.port)
            ]
        return response

    def on_begin_response(self, node_id: int) -> None:
        role = self._quorum.role
        if isinstance(role, Leader):
            role.acknowledged[node_id] = None

    def announce_epoch(self, role: Leader) -> None:
        """Make the epoch known: to all voters at first, later to those that don't fetch."""
        quorum = self._quorum
        period_ms = quorum.config.fetch_timeout_ms // 2
        if quorum.now_ms >= role.begin_epoch_deadline_ms:
            role.begin_epoch_deadline_ms = quorum.now_ms + period_ms
            role.acknowledged.clear()
        for voter in quorum.voters.latest.voters:
            node_id = voter.key.node_id
            if node_id == quorum.local.node_id or node_id in role.acknowledged:
                continue
            progress = role.progress.get(voter.key)
            if (
                progress is not None
                and progress.last_fetch_ms >= 0
                and quorum.now_ms - progress.last_fetch_ms < period_ms
            ):
                # A Fetch from a voter says as much as an acknowledgement.
                continue
            address = voter.endpoint(quorum.config.listener)
            if address is not None and quorum.connections.is_ready(node_id, quorum.now_ms):
                request = self._begin_request(voter.key)
                quorum.send(node_id, address, request, is_fetch=False)

    def _begin_request(self, key: ReplicaKey) -> begin.BeginQuorumEpochRequest:
        quorum = self._quorum
        asked = begin.RequestPartitionData(
            partition_index=rpc.METADATA_PARTITION,
            voter_directory_id=key.directory_id,
            leader_id=quorum.local.node_id,
            leader_epoch=quorum.epoch,
        )
        return begin.BeginQuorumEpochRequest(
            cluster_id=quorum.config.cluster_id,
            voter_id=key.node_id,
            topics=[begin.RequestTopicData(topic_name=rpc.METADATA_TOPIC, partitions=[asked])],
            leader_endpoints=[
                begin.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
                for each in quorum.config.endpoints
            ],
        )

    # EndQuorumEpoch.

    def on_end_request(self, request: end.EndQuorumEpochRequest) -> end.EndQuorumEpochResponse:
        quorum = self._quorum
        if rpc.has_wrong_cluster(quorum, request.cluster_id):
            return end.EndQuorumEpochResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        asked = rpc.single_partition(
            [(each.topic_name, each.partitions) for each in request.topics]
        )
        if asked is None:
            return end.EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST)
        error = rpc.check_leadership_request(
            quorum, epoch=asked.leader_epoch, sender_id=asked.leader_id
        )
        if error is ErrorCode.NONE:
            error = self._believe(asked, request.leader_endpoints)
        if error is ErrorCode.NONE:
            role = quorum.role
            if isinstance(role, Follower) and quorum.election.leader_id == asked.leader_id:
                role.fetch_deadline_ms = quorum.now_ms + self._succession_backoff(asked)
        return self._end_response(error)

    def _succession_backoff(self, asked: end.RequestPartitionData) -> int:
        """How long to let better successors try first."""
        quorum = self._quorum
        longest_ms = quorum.config.election_backoff_max_ms
        if asked.preferred_candidates:
            keys = [
                ReplicaKey(each.candidate_id, each.candidate_directory_id)
                for each in asked.preferred_candidates
            ]
        else:
            keys = [ReplicaKey(node_id) for node_id in asked.preferred_successors]
        for place, key in enumerate(keys):
            if key.stands_for(quorum.local):
                if place == 0:
                    return 0
                return min(longest_ms, (longest_ms >> (len(keys) - 1)) << (place - 1))
        return longest_ms

    def _end_response(self, error: ErrorCode) -> end.EndQuorumEpochResponse:
        election = self._quorum.election
        answer = end.ResponsePartitionData(
            partition_index=rpc.METADATA_PARTITION,
            error_code=error,
            leader_id=election.leader_id,
            leader_epoch=election.epoch,
        )
        topic = end.ResponseTopicData(topic_name=rpc.METADATA_TOPIC, partitions=[answer])
        return end.EndQuorumEpochResponse(topics=[topic])

    def on_end_response(self, node_id: int) -> None:
        role = self._quorum.role
        if isinstance(role, Resigned):
            role.acknowledged[node_id] = None

    def say_farewell(self, role: Resigned) -> None:
        """Tell the voters to elect somebody, and leave the epoch when the timeout has passed."""
        quorum = self._quorum
        if quorum.now_ms >= role.election_deadline_ms and quorum.shutdown_deadline_ms is None:
            quorum.become_unattached(quorum.epoch + 1)
            return
        for key in role.successors:
            node_id = key.node_id
            if node_id in role.acknowledged:
                continue
            voter = quorum.voters.latest.find(node_id)
            address = voter.endpoint(quorum.config.listener) if voter is not None else None
            if address is not None and quorum.connections.is_ready(node_id, quorum.now_ms):
                quorum.send(node_id, address, self._end_request(role), is_fetch=False)

    def _end_request(self, role: Resigned) -> end.EndQuorumEpochRequest:
        quorum = self._quorum
        asked = end.RequestPartitionData(
            partition_index=rpc.METADATA_PARTITION,
            leader_id=quorum.local.node_id,
            leader_epoch=quorum.epoch,
            preferred_successors=[key.node_id for key in role.successors],
            preferred_candidates=[
                end.ReplicaInfo(candidate_id=key.node_id, candidate_directory_id=key.directory_id)
                for key in role.successors
            ],
        )
        return end.EndQuorumEpochRequest(
            cluster_id=quorum.config.cluster_id,
            topics=[end.RequestTopicData(topic_name=rpc.METADATA_TOPIC, partitions=[asked])],
            leader_endpoints=[
                end.LeaderEndpoint(name=each.name, host=each.host, port=each.port)
                for each in quorum.config.endpoints
            ],
        )


def _has_possible_log(asked: vote.RequestPartitionData) -> bool:
    """A candidate's last record is older than its new epoch; a pre-vote is asked in the old one."""
    if asked.last_offset < 0 or asked.last_offset_epoch < 0:
        return False
    if asked.pre_vote:
        return asked.last_offset_epoch <= asked.replica_epoch
    return asked.last_offset_epoch < asked.replica_epoch
