"""What all of Raft's requests and answers have in common (section 6).

A request names one topic with one partition. An answer shows the local epoch and the leader of it,
whatever else it says, and everybody who reads one looks at that first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k01_fetch as fetch
from kraftpy.protocol.schema import k52_vote as vote
from kraftpy.protocol.schema import k53_begin_quorum_epoch as begin
from kraftpy.protocol.schema import k54_end_quorum_epoch as end
from kraftpy.protocol.schema import k59_fetch_snapshot as fetch_snapshot
from kraftpy.protocol.schema import k82_update_raft_voter as update_voter
from kraftpy.raft.election_state import NO_LEADER
from kraftpy.raft.roles import Leader
from kraftpy.raft.voters import Endpoint

if TYPE_CHECKING:
    from kraftpy.raft.inputs import RaftResponse
    from kraftpy.raft.quorum import Quorum

__all__ = [
    "METADATA_PARTITION",
    "METADATA_TOPIC",
    "METADATA_TOPIC_ID",
    "Outcome",
    "check_leadership_request",
    "check_request_to_leader",
    "has_wrong_cluster",
    "leader_address",
    "outcome_of",
    "single_partition",
]

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
METADATA_PARTITION = 0

P = TypeVar("P")

_index_of = attrgetter("partition_index")


def single_partition(
    topics: Sequence[tuple[str | Uuid, Sequence[P]]], index_of: Callable[[P], int] = _index_of
) -> P | None:
    """The one partition of the one topic, if it is the metadata log's; topics by name or id."""
    if len(topics) != 1 or topics[0][0] not in (METADATA_TOPIC, METADATA_TOPIC_ID):
        return None
    partitions = topics[0][1]
    if len(partitions) != 1 or index_of(partitions[0]) != METADATA_PARTITION:
        return None
    return partitions[0]


def has_wrong_cluster(quorum: Quorum, cluster_id: str | None) -> bool:
    """A cluster id that is left out is anybody's."""
    return cluster_id is not None and cluster_id != quorum.config.cluster_id


def check_leadership_request(quorum: Quorum, *, epoch: int, sender_id: int) -> ErrorCode:
    """For Vote, BeginQuorumEpoch, EndQuorumEpoch."""
    if sender_id < 0:
        return ErrorCode.INVALID_REQUEST
    if epoch < quorum.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.NONE


def check_request_to_leader(quorum: Quorum, *, epoch: int) -> ErrorCode:
    """For Fetch, FetchSnapshot, UpdateRaftVoter, and with the own epoch the other voter changes."""
    if quorum.shutdown_deadline_ms is not None:
        return ErrorCode.BROKER_NOT_AVAILABLE
    own_epoch = quorum.election.epoch
    if epoch < own_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > own_epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(quorum.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def leader_address(quorum: Quorum) -> Endpoint | None:
    """Where answers send others to, if the leader's place is known."""
    if not quorum.election.has_leader:
        return None
    return quorum.address(quorum.leader_endpoints())


class Outcome(NamedTuple):
    """What every answer says: whether it went well, and who leads which epoch."""

    error: ErrorCode
    epoch: int
    leader_id: int
    leader_host: str = ""
    leader_port: int = 0

    def leader_endpoints(self, listener: str) -> tuple[Endpoint, ...]:
        if not self.leader_host:
            return ()
        return (Endpoint(listener, self.leader_host, self.leader_port),)


class _Node(Protocol):
    node_id: int
    host: str
    port: int


def _error(code: int) -> ErrorCode:
    """What the code means; one of a later release is as good as none at all."""
    if code == 0:
        return ErrorCode.NONE
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _with_endpoint(
    error: int, epoch: int, leader_id: int, nodes: Sequence[_Node], own_epoch: int
) -> Outcome:
    # An error at the top comes without epoch; it says nothing about the quorum.
    epoch = own_epoch if epoch < 0 else epoch
    for node in nodes:
        if node.node_id == leader_id:
            return Outcome(_error(error), epoch, leader_id, node.host, node.port)
    return Outcome(_error(error), epoch, leader_id)


def outcome_of(response: RaftResponse, own_epoch: int) -> Outcome | None:
    """What the answer says about the quorum; None if it is no Raft answer or has no partition."""
    if isinstance(response, fetch.FetchResponse):
        if response.error_code:
            return Outcome(_error(response.error_code), own_epoch, NO_LEADER)
        data = single_partition(
            [(each.topic or each.topic_id, each.partitions) for each in response.responses]
        )
        if data is None:
            return None
        leader = data.current_leader
        nodes = response.node_endpoints
        return _with_endpoint(
            data.error_code, leader.leader_epoch, leader.leader_id, nodes, own_epoch
        )
    if isinstance(response, fetch_snapshot.FetchSnapshotResponse):
        if response.error_code:
            return Outcome(_error(response.error_code), own_epoch, NO_LEADER)
        snapshot = single_partition(
            [(each.name, each.partitions) for each in response.topics],
            lambda answer: answer.index,
        )
        if snapshot is None:
            return None
        current = snapshot.current_leader
        return _with_endpoint(
            snapshot.error_code,
            current.leader_epoch,
            current.leader_id,
            response.node_endpoints,
            own_epoch,
        )
    if isinstance(response, update_voter.UpdateRaftVoterResponse):
        known = response.current_leader
        outcome = Outcome(_error(response.error_code), known.leader_epoch, known.leader_id)
        if known.leader_epoch < 0:
            return outcome._replace(epoch=own_epoch, leader_id=NO_LEADER)
        return outcome._replace(leader_host=known.host, leader_port=known.port)
    if isinstance(
        response, vote.VoteResponse | begin.BeginQuorumEpochResponse | end.EndQuorumEpochResponse
    ):
        return _election_outcome(response, own_epoch)
    return None


def _election_outcome(
    response: vote.VoteResponse | begin.BeginQuorumEpochResponse | end.EndQuorumEpochResponse,
    own_epoch: int,
) -> Outcome | None:
    if response.error_code:
        return Outcome(_error(response.error_code), own_epoch, NO_LEADER)
    topics: Sequence[vote.ResponseTopicData | begin.ResponseTopicData | end.ResponseTopicData] = (
        response.topics
    )
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC:
        return None
    partitions: Sequence[
        vote.ResponsePartitionData | begin.ResponsePartitionData | end.ResponsePartitionData
    ] = topics[0].partitions
    if len(partitions) != 1:
        return None
    answer = partitions[0]
    return _with_endpoint(
        answer.error_code,
        answer.leader_epoch,
        answer.leader_id,
        response.node_endpoints,
        own_epoch,
    )
