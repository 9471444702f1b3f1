"""Promises as files, voter sets, histories; errors that all requests share."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raft_cluster import directory, key_of, voter_of
from test_raft_rules import elected, fetch_request
from test_raft_votes import request as vote_request

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k01_fetch as fetch
from kraftpy.protocol.schema import k52_vote as vote
from kraftpy.protocol.schema import k53_begin_quorum_epoch as begin
from kraftpy.protocol.schema import k54_end_quorum_epoch as end
from kraftpy.protocol.schema import k59_fetch_snapshot as fetch_snapshot
from kraftpy.raft.election_state import ElectionState, QuorumStateError, decode_quorum_state
from kraftpy.raft.voters import BOOTSTRAP_OFFSET, History, ReplicaKey, VoterSet
from kraftpy.world import InternalInvariant


@pytest.mark.parametrize(
    "state", [ElectionState(), ElectionState(7, 2), ElectionState(7, -1, key_of(3))]
)
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_a_promise_survives_its_file(state: ElectionState, kraft_version: int) -> None:
    """KRF-37: data_version 0 has no directory"""
    data = state.encode(kraft_version, [1, 2, 3])
    fields = json.loads(data)
    assert b"\n" not in data
    assert fields["data_version"] == kraft_version
    if kraft_version == 0:
        assert fields["currentVoters"] == [{"voterId": 1}, {"voterId": 2}, {"voterId": 3}]
        assert (fields["clusterId"], fields["appliedOffset"]) == ("", 0)
        voted = None if state.voted is None else ReplicaKey(state.voted.node_id)
        state = ElectionState(state.epoch, state.leader_id, voted)
    assert decode_quorum_state(data) == state


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"data_version":2,"leaderId":1,"leaderEpoch":1,"votedId":-1}',
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1}',
        b'{"data_version":1,"leaderId":1,"leaderEpoch":-1,"votedId":-1}',
        b'{"data_version":1,"leaderId":"1","leaderEpoch":1,"votedId":-1}',
        b'{"data_version":1,"leaderId":1,"leaderEpoch":1,"votedId":true}',
        b'{"data_version":1,"leaderId":1,"leaderEpoch":1,"votedId":2,"votedDirectoryId":"x"}',
    ],
)
def test_a_damaged_promise_is_never_taken_for_none(data: bytes) -> None:
    with pytest.raises(QuorumStateError):
        decode_quorum_state(data)


def test_a_stored_key_without_directory_stands_for_any() -> None:
    assert ReplicaKey(1).stands_for(key_of(1))
    assert key_of(1).stands_for(key_of(1))
    assert not key_of(1).stands_for(key_of(1, 1))
    assert not ReplicaKey(2).stands_for(key_of(1))


def test_a_voter_set_survives_its_record() -> None:
    voters = VoterSet([voter_of(3), voter_of(1)])
    assert voters.ids == (1, 3)
    assert VoterSet.from_record(voters.to_record()) == voters
    assert [
        VoterSet(voter_of(each) for each in range(count)).majority for count in range(1, 6)
    ] == [
        1,
        2,
        2,
        3,
        3,
    ]
    with pytest.raises(InternalInvariant):
        VoterSet([voter_of(1), voter_of(1, 1)])


@given(
    st.lists(st.integers(0, 60), unique=True, max_size=8).map(sorted),
    st.lists(st.tuples(st.sampled_from(["truncate", "forget"]), st.integers(0, 70)), max_size=4),
    st.integers(0, 70),
)
def test_a_history_is_the_log_read_again(
    offsets: list[int], cuts: list[tuple[str, int]], end_offset: int
) -> None:
    """Against a list of everything that was said."""
    history = History("first")
    model = [(BOOTSTRAP_OFFSET, "first")]
    for offset in offsets:
        history.add(offset, f"at {offset}")
        model.append((offset, f"at {offset}"))
    lowest = 0
    for kind, offset in cuts:
        if kind == "truncate" and offset >= lowest:
            history.truncate(offset)
            model = [model[0], *(each for each in model[1:] if each[0] < offset)]
        elif kind == "forget":
            history.forget_before(offset)
            lowest = max(lowest, offset)
    assert history.latest == model[-1][1]
    if end_offset >= lowest:
        assert history.at_end(end_offset) == [each for each in model if each[0] < end_offset][-1][1]


def requests(cluster_id: str | None) -> list[Any]:
    fetched = fetch_request(2, 0, 0)
    fetched.cluster_id = cluster_id
    return [
        vote_request(cluster_id=cluster_id, epoch=1),
        begin.BeginQuorumEpochRequest(cluster_id=cluster_id, topics=[]),
        end.EndQuorumEpochRequest(cluster_id=cluster_id, topics=[]),
        fetched,
        fetch_snapshot.FetchSnapshotRequest(cluster_id=cluster_id, topics=[]),
    ]


@pytest.mark.parametrize("number", range(5))
def test_another_clusters_requests_are_refused(number: int) -> None:
    """KRF-23; null is accepted"""
    response = elected().ask(1, requests("other")[number])
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    response = elected().ask(1, requests(None)[number])
    assert response.error_code != ErrorCode.INCONSISTENT_CLUSTER_ID


def two_topics(request: Any) -> Any:
    request.topics = [*request.topics, *request.topics]
    return request


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote.VoteRequest(), ErrorCode.INVALID_REQUEST),
        (two_topics(vote_request()), ErrorCode.INVALID_REQUEST),
        (
            vote.VoteRequest(topics=[vote.RequestTopicData(topic_name="other")]),
            ErrorCode.INVALID_REQUEST,
        ),
        (begin.BeginQuorumEpochRequest(), ErrorCode.INVALID_REQUEST),
        (end.EndQuorumEpochRequest(), ErrorCode.INVALID_REQUEST),
        (fetch.FetchRequest(), ErrorCode.INVALID_REQUEST),
        (two_topics(fetch_request(2, 0, 0)), ErrorCode.INVALID_REQUEST),
        (fetch_snapshot.FetchSnapshotRequest(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_requests_that_do_not_name_the_one_partition(request_: Any, error: ErrorCode) -> None:
    assert elected().ask(1, request_).error_code == error


@pytest.mark.parametrize(("epoch", "leader", "error"), [(0, 2, 74), (1, -1, 42), (1, 1, 0)])
def test_begin_and_end_are_checked_alike(epoch: int, leader: int, error: int) -> None:
    """KRF-24"""
    begun = begin.RequestPartitionData(leader_id=leader, leader_epoch=epoch)
    begin_topic = begin.RequestTopicData(topic_name="__cluster_metadata", partitions=[begun])
    ended = end.RequestPartitionData(leader_id=leader, leader_epoch=epoch)
    end_topic = end.RequestTopicData(topic_name="__cluster_metadata", partitions=[ended])
    cluster = elected()
    for request in (
        begin.BeginQuorumEpochRequest(topics=[begin_topic]),
        end.EndQuorumEpochRequest(topics=[end_topic]),
    ):
        said = cluster.ask(2, request).topics[0].partitions[0]
        assert (said.error_code, said.leader_id, said.leader_epoch) == (error, 1, 1)


def test_begin_meant_for_another_voter() -> None:
    part = begin.RequestPartitionData(leader_id=1, leader_epoch=1, voter_directory_id=directory(3))
    topic = begin.RequestTopicData(topic_name="__cluster_metadata", partitions=[part])
    said = elected().ask(2, begin.BeginQuorumEpochRequest(voter_id=3, topics=[topic]))
    assert said.topics[0].partitions[0].error_code == ErrorCode.INVALID_VOTER_KEY
