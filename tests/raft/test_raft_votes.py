"""Granting votes: every cell of the table in kraft.md 5.4, and the checks before it."""

from __future__ import annotations

import pytest
from raft_cluster import CLUSTER_ID, Cluster, directory, endpoint_of, key_of
from test_raft_roles import EPOCH, quorum_in

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema import k52_vote as vote
from kraftpy.raft import inputs
from kraftpy.raft.effects import LeaderChanged, PersistElection
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.elections import Elections
from kraftpy.raft.quorum import Quorum
from kraftpy.raft.roles import Candidate, Follower, RoleName, Unattached
from kraftpy.raft.voters import ReplicaKey


def request(
    *,
    epoch: int = EPOCH,
    candidate: int = 3,
    generation: int = 0,
    offset: int = 0,
    last_epoch: int = 0,
    pre_vote: bool = False,
    voter_id: int = 1,
    voter_directory: Uuid = ZERO_UUID,
    cluster_id: str | None = CLUSTER_ID,
) -> vote.VoteRequest:
    asked = vote.RequestPartitionData(
        replica_epoch=epoch,
        replica_id=candidate,
        replica_directory_id=directory(candidate, generation),
        voter_directory_id=voter_directory,
        last_offset=offset,
        last_offset_epoch=last_epoch,
        pre_vote=pre_vote,
    )
    topic = vote.RequestTopicData(topic_name="__cluster_metadata", partitions=[asked])
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=[topic])


def answer(quorum: Quorum, asked: vote.VoteRequest) -> vote.ResponsePartitionData:
    response = Elections(quorum).on_vote_request(asked)
    assert response.error_code == 0
    return response.topics[0].partitions[0]


def in_role(name: RoleName, *, case: str = "") -> Quorum:
    quorum = quorum_in(name)
    if case == "knows leader":
        quorum.election = ElectionState(EPOCH, 2)
    elif case == "voted for it":
        quorum.election = ElectionState(EPOCH, -1, key_of(3))
    elif case == "voted for another":
        quorum.election = ElectionState(EPOCH, -1, key_of(2))
    elif case == "has fetched":
        assert isinstance(quorum.role, Follower)
        quorum.role.has_fetched = True
    elif case == "leader is dead":
        assert isinstance(quorum.role, Follower)
        quorum.role.has_fetched = quorum.role.leader_is_dead = True
    return quorum


U, P, C = RoleName.UNATTACHED, RoleName.PROSPECTIVE, RoleName.CANDIDATE
F, L, R = RoleName.FOLLOWER, RoleName.LEADER, RoleName.RESIGNED

# role, case, pre-vote granted, real vote granted; for a candidate whose log is up to date
TABLE = [
    (U, "", True, True),
    (U, "knows leader", True, False),
    (U, "voted for it", True, True),
    (U, "voted for another", True, False),
    (P, "", True, True),
    (P, "knows leader", True, False),
    (P, "voted for it", True, True),
    (P, "voted for another", True, False),
    (F, "", True, False),
    (F, "has fetched", False, False),
    (F, "leader is dead", True, False),
    (C, "", True, False),
    (R, "", True, False),
    (L, "", False, False),
]


@pytest.mark.parametrize(("role", "case", "pre_vote", "real_vote"), TABLE)
def test_the_vote_table(role: RoleName, case: str, pre_vote: bool, real_vote: bool) -> None:
    """KRF-14, KRF-15; the row with the dead leader is decision 14"""
    quorum = in_role(role, case=case)
    before = quorum.election
    assert answer(quorum, request(pre_vote=True)).vote_granted is pre_vote
    assert quorum.election == before
    assert not quorum.effects
    assert answer(quorum, request()).vote_granted is real_vote
    assert (quorum.election.voted == key_of(3)) is real_vote


@pytest.mark.parametrize(("role", "case"), [(row[0], row[1]) for row in TABLE])
def test_a_shorter_log_gets_nothing(role: RoleName, case: str) -> None:
    """KRF-14: but for the vote that it has already"""
    quorum = in_role(role, case=case)
    quorum.log.end_offset, quorum.log.last_epoch = 7, 2
    for offset, last_epoch in ((6, 2), (9, 1)):
        asked = {"offset": offset, "last_epoch": last_epoch}
        assert not answer(quorum, request(pre_vote=True, **asked)).vote_granted
        again = answer(quorum, request(**asked)).vote_granted
        assert again is (case == "voted for it")


@pytest.mark.parametrize(("offset", "last_epoch"), [(7, 2), (8, 2), (3, 3)])
def test_a_log_at_least_as_long_gets_the_vote(offset: int, last_epoch: int) -> None:
    quorum = in_role(U)
    quorum.log.end_offset, quorum.log.last_epoch = 7, 2
    assert answer(quorum, request(offset=offset, last_epoch=last_epoch)).vote_granted


def test_a_vote_is_written_before_it_is_said() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.nodes[1].syncs = False
    assert cluster.ask(1, request(epoch=1)) is None
    node = cluster.nodes[1]
    assert node.storage.election.voted == key_of(3)
    assert node.storage.durable_election.voted is None
    cluster.sync(1)
    response = node.replies[node.next_request_id]
    assert response.topics[0].partitions[0].vote_granted


def test_a_given_vote_starts_the_timeout_anew() -> None:
    quorum = in_role(U)
    quorum.now_ms = 8_999
    answer(quorum, request())
    assert isinstance(quorum.role, Unattached)
    assert quorum.role.election_deadline_ms >= 8_999 + 1_000


def test_the_same_id_with_another_directory_is_another_candidate() -> None:
    """KRF-17"""
    quorum = in_role(U)
    assert answer(quorum, request()).vote_granted
    assert answer(quorum, request()).vote_granted
    assert not answer(quorum, request(generation=1)).vote_granted


def test_one_vote_for_each_epoch_across_a_restart() -> None:
    """KRF-16"""
    cluster = Cluster()
    cluster.start(1)
    cluster.ask(1, request(epoch=1))
    cluster.settle()
    cluster.crash(1, keep=False)
    cluster.start(1)
    response = cluster.ask(1, request(epoch=1, candidate=2))
    assert not response.topics[0].partitions[0].vote_granted


@pytest.mark.parametrize("pre_vote", [False, True])
@pytest.mark.parametrize("role", list(RoleName))
def test_a_higher_epoch_is_adopted(role: RoleName, pre_vote: bool) -> None:
    """KRF-18: also from a pre-vote"""
    quorum = in_role(role)
    said = answer(quorum, request(epoch=EPOCH + 1, pre_vote=pre_vote))
    assert said.vote_granted
    assert said.leader_epoch == EPOCH + 1
    assert quorum.role.name is U
    assert any(isinstance(each, PersistElection) for each in quorum.effects)


@pytest.mark.parametrize(
    ("epoch", "last_epoch", "pre_vote", "valid"),
    [(6, 5, False, True), (6, 6, False, False), (6, 6, True, True), (6, 7, True, False)],
)
def test_a_log_from_the_future_is_invalid(
    epoch: int, last_epoch: int, pre_vote: bool, valid: bool
) -> None:
    """KRF-19"""
    quorum = in_role(U)
    asked = request(epoch=epoch, last_epoch=last_epoch, offset=9, pre_vote=pre_vote)
    response = Elections(quorum).on_vote_request(asked)
    assert response.error_code == (0 if valid else ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize(("offset", "last_epoch"), [(-1, 0), (0, -1)])
def test_a_negative_log_end_is_invalid(offset: int, last_epoch: int) -> None:
    asked = request(offset=offset, last_epoch=last_epoch)
    response = Elections(in_role(U)).on_vote_request(asked)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_a_vote_meant_for_another_voter() -> None:
    """KRF-20: not granted, but its epoch is adopted"""
    quorum = in_role(U)
    said = answer(quorum, request(epoch=6, voter_id=2))
    assert (said.error_code, said.vote_granted) == (ErrorCode.INVALID_VOTER_KEY, False)
    assert quorum.epoch == 6
    said = answer(quorum, request(epoch=6, voter_directory=directory(1, 1)))
    assert said.error_code == ErrorCode.INVALID_VOTER_KEY
    assert answer(quorum, request(epoch=6, voter_directory=directory(1))).vote_granted


def test_a_stranger_is_judged_like_any_other() -> None:
    """KRF-21"""
    assert answer(in_role(U), request(candidate=9)).vote_granted


def test_votes_are_given_during_shutdown() -> None:
    """KRF-22"""
    quorum = in_role(U)
    quorum.shutdown_deadline_ms = 5_000
    assert answer(quorum, request()).vote_granted


def test_a_lower_epoch_is_fenced_and_told_who_leads() -> None:
    """KRF-24"""
    quorum = in_role(F)
    response = Elections(quorum).on_vote_request(request(epoch=EPOCH - 1))
    said = response.topics[0].partitions[0]
    assert said.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (said.leader_id, said.leader_epoch) == (2, EPOCH)
    assert response.node_endpoints[0].host == endpoint_of(2).host


def test_a_negative_candidate_is_invalid() -> None:
    quorum = in_role(U)
    asked = request()
    asked.topics[0].partitions[0].replica_id = -1
    assert answer(quorum, asked).error_code == ErrorCode.INVALID_REQUEST


def test_a_candidate_that_lost_sits_its_timeout_out() -> None:
    """KRF-11: a majority of five has rejected it, one has not answered"""
    cluster = Cluster(5)
    cluster.start()
    quorum = cluster[1].quorum
    quorum.become_prospective()
    quorum.become_candidate()
    role = quorum.role
    elections = Elections(quorum)
    for node_id in (2, 3, 4):
        response = elections._vote_response(ErrorCode.NONE, granted=False)
        elections.on_vote_response(node_id, response)
    quorum.effects.clear()
    cluster.messages.clear()
    assert cluster.step(1, inputs.TimeAdvanced()) == [LeaderChanged(1, -1)]
    assert quorum.role is role
    cluster.now_ms = role.election_deadline_ms  # type: ignore[union-attr]
    cluster.step(1, inputs.TimeAdvanced())
    assert quorum.role.name is P
    assert quorum.epoch == 1


def test_a_voter_that_knows_no_pre_votes_gets_a_real_one() -> None:
    """KRF-10"""
    cluster = Cluster()
    cluster.start(1)
    cluster.now_ms = 2_100
    cluster.step(1, inputs.TimeAdvanced())
    assert cluster[1].quorum.role.name is P
    asked = cluster.messages[-1][2]
    failed = inputs.RequestFailed(
        asked.node_id, asked.correlation_id, ErrorCode.UNSUPPORTED_VERSION
    )
    cluster.step(1, failed)
    assert cluster[1].quorum.role.name is C
    assert cluster[1].quorum.epoch == 1


def test_a_vote_kept_without_a_directory_is_still_that_node_s() -> None:
    """KRF-17: at kraft.version 0 the file that a restart reads has no directory of the vote."""
    quorum = quorum_in(RoleName.UNATTACHED)
    quorum.election = ElectionState(EPOCH, -1, ReplicaKey(3))
    assert not answer(quorum, request(candidate=2)).vote_granted
    assert answer(quorum, request(candidate=3)).vote_granted
    assert not answer(quorum, request(candidate=3, generation=1)).vote_granted
    assert quorum.election.voted == key_of(3)


@pytest.mark.parametrize(
    ("rival", "generation", "hurries"), [(3, 0, True), (3, 1, False), (9, 0, False)]
)
def test_only_a_voter_makes_another_candidate_hurry(
    rival: int, generation: int, hurries: bool
) -> None:
    """A replica with another directory than the voter's is none, and nor is a stranger."""
    quorum = in_role(RoleName.CANDIDATE)
    role = quorum.role
    assert isinstance(role, Candidate)
    waits_until_ms = role.election_deadline_ms
    assert waits_until_ms > quorum.now_ms + 50
    assert not answer(quorum, request(candidate=rival, generation=generation)).vote_granted
    expected_ms = quorum.now_ms + 50 if hurries else waits_until_ms
    assert role.election_deadline_ms == expected_ms
