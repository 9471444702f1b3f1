"""Rules that are easy to get wrong (kraft.md section 20), and what lies beside them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from raft_cluster import (
    CLUSTER_ID,
    Cluster,
    bootstrapped,
    config_of,
    directory,
    endpoint_of,
    key_of,
    voter_of,
)

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k01_fetch as fetch
from kraftpy.protocol.schema import k53_begin_quorum_epoch as begin
from kraftpy.protocol.schema import k54_end_quorum_epoch as end
from kraftpy.raft import effects as fx
from kraftpy.raft import inputs
from kraftpy.raft.core import RaftCore
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.elections import Elections
from kraftpy.raft.log_state import MAX_BATCH_BYTES, Batch, SnapshotId
from kraftpy.raft.memory_storage import MemoryStorage
from kraftpy.raft.replication import Replication
from kraftpy.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Progress,
    Prospective,
    Resigned,
    RoleName,
    Unattached,
)
from kraftpy.raft.voters import VoterSet
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import ControlType, control_type
from kraftpy.records.reader import read_records
from kraftpy.sim.quorum_nemesis import snapshot_bytes
from kraftpy.world import InternalInvariant


def elected(voters: int = 3, observers: int = 0, *, dynamic: bool = True) -> Cluster:
    cluster = Cluster(voters, observers, dynamic=dynamic)
    cluster.start()
    cluster.advance(200)
    cluster.lines.clear()
    for node in cluster.nodes.values():
        node.effects.clear()
    return cluster


def batch_of(base_offset: int, epoch: int, values: int = 1) -> Batch:
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch)
    for number in range(values):
        builder.append(None, b"%d" % number, timestamp_ms=0)
    data = bytes(builder.build())
    return Batch(base_offset, base_offset + values, epoch, data, is_control=False)


def leader_of(cluster: Cluster) -> tuple[int, Leader]:
    node_id = cluster.leader()
    role = cluster[node_id].quorum.role
    assert isinstance(role, Leader)
    return node_id, role


# 1. The commit rule.


def test_rule_1_the_first_record_of_an_epoch_names_the_leader() -> None:
    """KRF-38"""
    cluster = elected()
    batch = cluster.nodes[1].storage.log.batches[0]
    kinds = [
        control_type(record)
        for record in read_records(RecordBatch(batch.data), max_bytes=MAX_BATCH_BYTES)
    ]
    assert (batch.base_offset, batch.epoch) == (0, 1)
    # KRF-74: the first leader writes the bootstrap voters into the log.
    assert kinds == [
        ControlType.LEADER_CHANGE,
        ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS,
    ]


def test_a_candidate_with_a_majority_leads_and_promises_so_before_it_appends() -> None:
    """KRF-12"""
    cluster = Cluster()
    cluster.start(1, 2)
    node = cluster.nodes[1]
    while not isinstance(cluster[1].quorum.role, Leader):
        node.effects.clear()
        cluster.advance(1)
    promises = [
        place
        for place, effect in enumerate(node.effects)
        if isinstance(effect, fx.PersistElection)
        and effect.election == ElectionState(1, 1, key_of(1))
    ]
    appends = [
        place for place, effect in enumerate(node.effects) if isinstance(effect, fx.AppendLog)
    ]
    assert promises
    assert appends
    assert promises[0] < appends[0]
    promise, append = node.effects[promises[0]], node.effects[appends[0]]
    assert isinstance(promise, fx.PersistElection)
    assert isinstance(append, fx.AppendLog)
    assert promise.token < append.token


def test_rule_1_old_records_do_not_commit_by_counting() -> None:
    """KRF-39, KRF-40: figure 8 of the Raft paper"""
    storage = MemoryStorage(bootstrapped(VoterSet(voter_of(each) for each in (1, 2, 3))))
    storage.log.apply(fx.AppendLog((batch_of(0, 1), batch_of(1, 2)), 1))
    storage.election = ElectionState(2)
    core = RaftCore(config_of(1), storage.recover(VoterSet()), Random(1))
    core.start(0)
    quorum = core.quorum
    quorum.become_prospective()
    quorum.become_candidate()
    assert isinstance(quorum.role, Candidate)
    quorum.role.election.granted[2] = None
    core.step(inputs.TimeAdvanced(), 1)
    role = quorum.role
    assert isinstance(role, Leader)
    assert role.epoch_start_offset == 2
    replication = Replication(quorum)
    core.step(inputs.Persisted(quorum.token), 2)
    # All records of epochs 1 and 2 are on a majority.
    role.progress[key_of(2)] = Progress(key_of(2), end_offset=2)
    replication.update_high_watermark(role)
    assert role.high_watermark is None
    role.progress[key_of(2)].end_offset = 3
    replication.update_high_watermark(role)
    assert role.high_watermark == 3


# 2. A restarted leader.


def test_rule_2_a_restarted_leader_is_resigned() -> None:
    """KRF-2: and rejects real votes of its epoch"""
    cluster = elected()
    cluster.crash(1)
    cluster.start(1)
    quorum = cluster[1].quorum
    assert isinstance(quorum.role, Resigned)
    assert quorum.epoch == 1
    assert not Elections(quorum).grants_vote(key_of(2), up_to_date=True)
    cluster.now_ms += 2_000
    cluster.step(1, inputs.TimeAdvanced())
    assert quorum.epoch >= 2


def test_a_restarted_candidate_goes_on_in_its_epoch() -> None:
    """KRF-3"""
    cluster = Cluster()
    cluster.nodes[1].storage.election = ElectionState(4, -1, key_of(1))
    cluster.start(1)
    assert isinstance(cluster[1].quorum.role, Candidate)
    assert cluster[1].quorum.epoch == 4
    assert "1 -> 2 Vote epoch 4 log 0@0" in cluster.lines


def test_a_candidate_whose_log_has_its_epoch_starts_unattached() -> None:
    """The promise to lead was lost in the crash and the records were not: never campaign again."""
    cluster = Cluster()
    storage = cluster.nodes[1].storage
    storage.election = ElectionState(4, -1, key_of(1))
    storage.log.apply(fx.AppendLog((batch_of(0, 4),), 1))
    cluster.start(1)
    assert isinstance(cluster[1].quorum.role, Unattached)
    assert cluster[1].quorum.election.voted == key_of(1)


def test_a_promise_older_than_the_log_is_raised_to_it() -> None:
    """KRF-4"""
    cluster = Cluster()
    storage = cluster.nodes[1].storage
    storage.election = ElectionState(2, 3)
    storage.log.apply(fx.AppendLog((batch_of(0, 4),), 1))
    cluster.start(1)
    assert isinstance(cluster[1].quorum.role, Unattached)
    assert cluster[1].quorum.election == ElectionState(4)


def test_a_known_leader_without_endpoint() -> None:
    """KRF-5: id kept, real votes rejected, pre-votes granted"""
    cluster = Cluster()
    cluster.nodes[1].storage.election = ElectionState(4, 9)
    cluster.start(1)
    quorum = cluster[1].quorum
    assert isinstance(quorum.role, Unattached)
    assert quorum.election.leader_id == 9
    assert not Elections(quorum).grants_vote(key_of(2), up_to_date=True)
    assert Elections(quorum).grants_pre_vote(up_to_date=True)


def test_a_known_leader_is_followed_after_a_restart() -> None:
    cluster = elected()
    cluster.crash(2)
    cluster.start(2)
    assert isinstance(cluster[2].quorum.role, Follower)


# 4. Only valid, durable fetches count.


def fetch_request(
    replica: int, offset: int, last_epoch: int, *, epoch: int = 1, wait_ms: int = 0, hw: int = 0
) -> fetch.FetchRequest:
    asked = fetch.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        replica_directory_id=directory(replica) if replica >= 0 else directory(0),
        high_watermark=hw,
    )
    return fetch.FetchRequest(
        cluster_id=CLUSTER_ID,
        replica_state=fetch.ReplicaState(replica_id=replica),
        max_wait_ms=wait_ms,
        topics=[fetch.FetchTopic(topic="__cluster_metadata", partitions=[asked])],
    )


def fetched(cluster: Cluster, request: fetch.FetchRequest, node_id: int = 1) -> fetch.PartitionData:
    response = cluster.ask(node_id, request)
    assert isinstance(response, fetch.FetchResponse)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def test_rule_4_a_diverging_fetch_counts_for_nothing() -> None:
    """KRF-33, KRF-44"""
    cluster = elected()
    _, role = leader_of(cluster)
    before = role.progress[key_of(2)].end_offset
    role.fetched_since_check.clear()
    data = fetched(cluster, fetch_request(2, 9, 1))
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (1, 3)
    assert role.progress[key_of(2)].end_offset == before
    assert not role.fetched_since_check


def test_rule_4_a_voter_fetches_after_its_disk_has_what_it_claims() -> None:
    """KRF-55"""
    cluster = elected()
    cluster.nodes[2].syncs = False
    cluster.propose(1, "a")
    cluster.settle()
    assert cluster[2].quorum.log.end_offset == 4
    sends = [each for each in cluster.nodes[2].waiting if isinstance(each, fx.Send)]
    assert len(sends) == 1
    assert not any(line.startswith("2 -> 1 Fetch epoch 1 log 4") for line in cluster.lines)
    cluster.sync(2)
    assert any(line.startswith("2 -> 1 Fetch epoch 1 log 4") for line in cluster.lines)


@pytest.mark.parametrize("voters", [1, 2])
def test_rule_4_a_leader_counts_itself_after_its_own_sync(voters: int) -> None:
    """KRF-55: not before, although the only other voter has it already"""
    cluster = elected(voters)
    cluster.nodes[1].syncs = False
    cluster.propose(1, "a")
    cluster.settle()
    assert all(cluster[node_id].quorum.log.end_offset == 4 for node_id in cluster.nodes)
    assert cluster[1].quorum.log.high_watermark == 3
    cluster.sync(1)
    assert cluster[1].quorum.log.high_watermark == 4


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (9, [], 9),
        (9, [5], 5),
        (9, [5, 7], 7),
        (9, [2, 5, 7], 5),
        (9, [2, 5, 7, 8], 7),
        (None, [5, 7], 5),
        (None, [5, 7, 8], 7),
    ],
)
def test_the_watermark_is_the_middle_of_the_ends(
    own: int | None, others: list[int], expected: int
) -> None:
    """KRF-41, KRF-42: n = 1 to 5, leader in or out of the set; observers don't count"""
    cluster = elected()
    node_id, role = leader_of(cluster)
    quorum = cluster[node_id].quorum
    others_by_id = dict(enumerate(others, 2))
    members = [voter_of(each) for each in others_by_id]
    if own is not None:
        members.append(voter_of(1))
        quorum.log.durable_end_offset = own
    quorum.voters.add(99, VoterSet(members))
    quorum.log.end_offset = 9
    role.epoch_start_offset, role.high_watermark = 0, 0
    role.progress = {
        key_of(each): Progress(key_of(each), end_offset=offset)
        for each, offset in others_by_id.items()
    }
    role.progress[key_of(8)] = Progress(key_of(8), end_offset=9)
    Replication(quorum).update_high_watermark(role)
    assert role.high_watermark == expected
    role.progress = {}
    quorum.log.durable_end_offset = 1
    Replication(quorum).update_high_watermark(role)
    assert role.high_watermark == expected


# 5. Pre-votes; more of them in test_raft_votes.py.


def test_rule_5_a_prospective_that_loses_returns_to_its_leader() -> None:
    """KRF-8"""
    cluster = elected()
    cluster.now_ms += 5_000
    quorum = cluster[2].quorum
    quorum.now_ms = cluster.now_ms
    quorum.become_prospective()
    elections = Elections(quorum)
    for node_id in (1, 3):
        elections.on_vote_response(node_id, elections._vote_response(ErrorCode.NONE, granted=False))
    assert isinstance(quorum.role, Follower)
    assert quorum.election.leader_id == 1


def test_a_prospective_without_leader_waits_on() -> None:
    """KRF-9"""
    cluster = Cluster()
    cluster.start(1)
    quorum = cluster[1].quorum
    quorum.become_prospective()
    elections = Elections(quorum)
    for node_id in (2, 3):
        elections.on_vote_response(node_id, elections._vote_response(ErrorCode.NONE, granted=False))
    assert isinstance(quorum.role, Unattached)
    assert quorum.epoch == 0
    assert quorum.role.election_deadline_ms >= 1_000


def test_a_voter_that_hears_nobody_campaigns_and_promises_nothing() -> None:
    """KRF-6"""
    cluster = Cluster()
    cluster.start(1)
    cluster.now_ms = 2_000
    effects = cluster.step(1, inputs.TimeAdvanced())
    assert cluster[1].quorum.role.name is RoleName.PROSPECTIVE
    assert not any(isinstance(each, fx.PersistElection) for each in effects)


def test_an_observer_waits_for_ever() -> None:
    """KRF-26"""
    cluster = Cluster(3, 1)
    cluster.start(4)
    cluster.advance(60_000)
    assert isinstance(cluster[4].quorum.role, Unattached)


# Leaders.


def test_a_leader_that_nobody_fetches_from_resigns() -> None:
    """KRF-32, KRF-50"""
    cluster = elected()
    cluster.crash(2)
    cluster.crash(3)
    _, role = leader_of(cluster)
    cluster.advance(role.check_quorum_deadline_ms - cluster.now_ms - 1)
    assert cluster[1].quorum.role is role
    cluster.advance(1)
    assert not isinstance(cluster[1].quorum.role, Leader)
    assert any(isinstance(each, fx.LeadershipLost) for each in cluster.nodes[1].effects)


def test_a_sole_voter_never_resigns() -> None:
    """KRF-1, KRF-32"""
    cluster = Cluster(1)
    cluster.start()
    assert isinstance(cluster[1].quorum.role, Leader)
    assert cluster[1].quorum.epoch == 1
    cluster.advance(30_000)
    assert isinstance(cluster[1].quorum.role, Leader)


def test_begin_quorum_epoch_goes_to_those_that_are_silent() -> None:
    """KRF-27"""
    cluster = elected()
    cluster.crash(3)
    cluster.lines.clear()
    cluster.advance(2_500)
    assert any(line.startswith("1 -> 3 BeginQuorumEpoch") for line in cluster.lines)
    assert not any(line.startswith("1 -> 2 BeginQuorumEpoch") for line in cluster.lines)


@pytest.mark.parametrize("role", [RoleName.UNATTACHED, RoleName.PROSPECTIVE, RoleName.CANDIDATE])
def test_begin_quorum_epoch_makes_followers(role: RoleName) -> None:
    """KRF-28"""
    cluster = Cluster()
    cluster.start(1)
    quorum = cluster[1].quorum
    if role is not RoleName.UNATTACHED:
        quorum.become_prospective()
    if role is RoleName.CANDIDATE:
        quorum.become_candidate()
    asked = begin.RequestPartitionData(leader_id=2, leader_epoch=quorum.epoch or 1)
    topic = begin.RequestTopicData(topic_name="__cluster_metadata", partitions=[asked])
    cluster.ask(1, begin.BeginQuorumEpochRequest(topics=[topic]))
    assert isinstance(quorum.role, Follower)
    assert quorum.election.leader_id == 2


@pytest.mark.parametrize(
    ("successors", "backoff_ms"),
    [([2, 3], 0), ([3, 2], 500), ([3, 4, 2], 500), ([3, 4, 5, 2], 500), ([3, 4], 1_000)],
)
def test_successors_take_their_turns(successors: list[int], backoff_ms: int) -> None:
    """KRF-29: (max >> (n-1)) << (p-1)"""
    cluster = elected()
    quorum = cluster[2].quorum
    asked = end.RequestPartitionData(leader_id=1, leader_epoch=1, preferred_successors=successors)
    topic = end.RequestTopicData(topic_name="__cluster_metadata", partitions=[asked])
    Elections(quorum).on_end_request(end.EndQuorumEpochRequest(topics=[topic]))
    assert isinstance(quorum.role, Follower)
    assert quorum.role.fetch_deadline_ms - quorum.now_ms == backoff_ms


def test_a_resigned_leader_asks_only_those_that_have_not_answered() -> None:
    """KRF-30"""
    cluster = elected()
    cluster.crash(3)
    cluster.cut = {(2, 1)}
    cluster.step(1, inputs.Resign(1))
    cluster.settle()
    quorum = cluster[1].quorum
    assert isinstance(quorum.role, Resigned)
    quorum.role.acknowledged[2] = None
    cluster.lines.clear()
    cluster.advance(100)
    assert any(line.startswith("1 -> 3 EndQuorumEpoch") for line in cluster.lines)
    assert not any(line.startswith("1 -> 2 EndQuorumEpoch") for line in cluster.lines)


def test_successors_are_ranked_by_the_progress_of_the_voters() -> None:
    """KRF-29: an observer with the id of a voter, from another disk, says nothing of it."""
    cluster = elected()
    quorum = cluster[1].quorum
    role = quorum.role
    assert isinstance(role, Leader)
    ends = ((key_of(2), 10), (key_of(3), 20), (key_of(2, 1), 99))
    role.progress = {key: Progress(key, end_offset=end_offset) for key, end_offset in ends}
    cluster.step(1, inputs.Resign(1))
    resigned = quorum.role
    assert isinstance(resigned, Resigned)
    assert [key.node_id for key in resigned.successors] == [3, 2]


@pytest.mark.parametrize(("fetching", "leads"), [((2, 3), True), ((2, 5), False)])
def test_a_voter_that_was_removed_keeps_nobody_in_office(
    fetching: tuple[int, int], leads: bool
) -> None:
    """KRF-32: 5 had fetched, and is no voter any more when 2 fetches."""
    cluster = elected(5)
    quorum = cluster[1].quorum
    role = quorum.role
    assert isinstance(role, Leader)
    replication = Replication(quorum)
    role.fetched_since_check.clear()
    deadline_ms = role.check_quorum_deadline_ms
    quorum.now_ms += 100
    replication.note_contact(role, key_of(fetching[1]))
    quorum.voters.add(100, quorum.voters.latest.removing(5).adding(voter_of(6)))
    replication.note_contact(role, key_of(fetching[0]))
    assert (role.check_quorum_deadline_ms > deadline_ms) is leads


def test_a_resigned_leader_leaves_its_epoch_by_the_next_one() -> None:
    """KRF-31"""
    cluster = elected()
    cluster.crash(2)
    cluster.crash(3)
    cluster.step(1, inputs.Resign(1))
    resigned_ms = cluster.now_ms
    quorum = cluster[1].quorum
    role = quorum.role
    assert isinstance(role, Resigned)
    assert 1_000 <= role.election_deadline_ms - resigned_ms < 2_000
    cluster.advance(role.election_deadline_ms - resigned_ms - 1)
    assert quorum.role is role
    assert quorum.election == ElectionState(1, 1, key_of(1))
    cluster.advance(1)
    assert quorum.election == ElectionState(2)


def test_resignation_is_for_the_epoch_that_was_meant() -> None:
    cluster = elected()
    cluster.step(1, inputs.Resign(0))
    assert isinstance(cluster[1].quorum.role, Leader)


def test_a_graceful_shutdown_finds_a_successor_at_once() -> None:
    """KRF-64"""
    cluster = elected()
    began_ms = cluster.now_ms
    cluster.step(1, inputs.ShutDown(began_ms + 5_000))
    cluster.advance(200)
    assert cluster.leader() in (2, 3)
    assert any(isinstance(each, fx.ShutdownFinished) for each in cluster.nodes[1].effects)
    data = fetched(cluster, fetch_request(2, 0, 0, epoch=2))
    assert data.error_code == ErrorCode.BROKER_NOT_AVAILABLE


def test_shutdown_ends_at_its_deadline() -> None:
    cluster = elected()
    cluster.crash(2)
    cluster.crash(3)
    cluster.step(1, inputs.ShutDown(cluster.now_ms + 5_000))
    cluster.advance(4_900)
    assert not any(isinstance(each, fx.ShutdownFinished) for each in cluster.nodes[1].effects)
    cluster.advance(200)
    finished = [each for each in cluster.nodes[1].effects if isinstance(each, fx.ShutdownFinished)]
    assert len(finished) == 1


# Fetches.


def test_a_fetch_is_parked_until_there_is_something_new() -> None:
    """KRF-48"""
    cluster = elected(1)
    request = fetch_request(-1, 3, 1, wait_ms=500, hw=3)
    assert cluster.ask(1, request) is None
    request_id = cluster.nodes[1].next_request_id
    cluster.propose(1, "a")
    response = cluster.nodes[1].replies[request_id]
    assert len(response.responses[0].partitions[0].records) > 0


def test_a_parked_fetch_is_answered_empty_in_the_end() -> None:
    """KRF-48"""
    cluster = elected(1)
    assert cluster.ask(1, fetch_request(-1, 3, 1, wait_ms=500, hw=3)) is None
    request_id = cluster.nodes[1].next_request_id
    cluster.advance(499)
    assert request_id not in cluster.nodes[1].replies
    cluster.advance(1)
    data = cluster.nodes[1].replies[request_id].responses[0].partitions[0]
    assert (data.error_code, data.records) == (0, b"")


def test_an_old_watermark_is_news() -> None:
    """KRF-49"""
    cluster = elected(1)
    assert fetched(cluster, fetch_request(-1, 3, 1, wait_ms=500, hw=2)).high_watermark == 3


def test_parked_fetches_fail_with_the_leader() -> None:
    """KRF-34, KRF-50"""
    cluster = elected(1)
    assert cluster.ask(1, fetch_request(-1, 3, 1, wait_ms=500, hw=3)) is None
    request_id = cluster.nodes[1].next_request_id
    cluster.step(1, inputs.Resign(1))
    data = cluster.nodes[1].replies[request_id].responses[0].partitions[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_parked_fetches_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftpy.raft.replication.MAX_PARKED_FETCHES", 2)
    cluster = elected(1)
    for _ in range(3):
        assert cluster.ask(1, fetch_request(-1, 3, 1, wait_ms=500, hw=3)) is None
    assert len(cluster.nodes[1].replies) == 1


@pytest.mark.parametrize(
    ("epoch", "node_id", "error"),
    [
        (2, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, 1, ErrorCode.FENCED_LEADER_EPOCH),
        (1, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_fetches_that_the_wrong_node_gets(epoch: int, node_id: int, error: ErrorCode) -> None:
    """KRF-51: with a hint at the leader"""
    cluster = elected()
    data = fetched(cluster, fetch_request(3, 0, 0, epoch=epoch), node_id)
    assert data.error_code == error
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (1, 1)
    assert data.records is None


@pytest.mark.parametrize(
    ("offset", "last_epoch", "wait_ms"), [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (3, 2, 0)]
)
def test_impossible_fetches_are_invalid(offset: int, last_epoch: int, wait_ms: int) -> None:
    cluster = elected()
    data = fetched(cluster, fetch_request(2, offset, last_epoch, wait_ms=wait_ms))
    assert data.error_code == ErrorCode.INVALID_REQUEST


def test_one_fetch_is_under_way_over_all_nodes() -> None:
    """KRF-52"""
    cluster = Cluster(3, 1)
    cluster.start(4)
    for _ in range(5):
        cluster.now_ms += 100
        cluster.step(4, inputs.TimeAdvanced())
    assert len([line for line in cluster.lines if "Fetch" in line]) == 1
    cluster.now_ms += 1_500
    cluster.step(4, inputs.TimeAdvanced())
    assert len([line for line in cluster.lines if "Fetch" in line]) == 2


def test_an_answer_to_an_old_question_changes_nothing() -> None:
    """KRF-54"""
    cluster = elected()
    cluster.propose(1, "a")
    _, receiver, received = cluster.messages[0]
    assert isinstance(received, inputs.ResponseReceived)
    cluster.step(receiver, received)
    end_offset = cluster[receiver].quorum.log.end_offset
    assert end_offset == 4
    assert cluster.step(receiver, received) == []
    cluster[3].quorum.become_prospective()
    for _, receiver, received in list(cluster.messages):
        if receiver == 3:
            cluster.step(3, received)
    assert cluster[3].quorum.log.end_offset == 3


def test_a_follower_asks_others_when_its_leader_fails() -> None:
    """KRF-53"""
    cluster = elected(3, 1)
    cluster.crash(1)
    cluster.lines.clear()
    cluster.now_ms += 600
    outstanding = cluster[4].quorum.connections._outstanding
    ((node_id, request),) = outstanding.items()
    failed = inputs.RequestFailed(node_id, request.correlation_id, ErrorCode.BROKER_NOT_AVAILABLE)
    cluster.step(4, failed)
    assert any("4 ->" in line and "Fetch" in line for line in cluster.lines)


def damaged(cluster: Cluster, batches: list[Batch], spoil: int | None = None) -> int:
    """Hand batches to follower 2 as its leader's answer; its end afterwards."""
    quorum = cluster[2].quorum
    data = bytearray(b"".join(batch.data for batch in batches))
    if spoil is not None:
        data[spoil] ^= 1
    part = fetch.PartitionData(high_watermark=3, records=bytes(data))
    topic = fetch.FetchableTopicResponse(partitions=[part])
    assert isinstance(quorum.role, Follower)
    Replication(quorum).on_fetch_response(quorum.role, fetch.FetchResponse(responses=[topic]))
    return quorum.log.end_offset


def test_a_bad_checksum_ends_the_append() -> None:
    """KRF-56: what came before is kept"""
    batches = [batch_of(3, 1), batch_of(4, 1)]
    assert damaged(elected(), batches, len(batches[0].data) + 65) == 4
    assert damaged(elected(), batches) == 5


def test_a_batch_from_a_later_epoch_is_not_taken() -> None:
    """KRF-57"""
    assert damaged(elected(), [batch_of(3, 1), batch_of(4, 2)]) == 4


def test_batches_must_continue_the_log() -> None:
    assert damaged(elected(), [batch_of(4, 1)]) == 3
    assert damaged(elected(), [batch_of(2, 1)]) == 3


def test_a_followers_watermark_is_not_beyond_its_log() -> None:
    """KRF-43"""
    cluster = elected()
    quorum = cluster[2].quorum
    part = fetch.PartitionData(high_watermark=50, records=batch_of(3, 1).data)
    topic = fetch.FetchableTopicResponse(partitions=[part])
    assert isinstance(quorum.role, Follower)
    Replication(quorum).on_fetch_response(quorum.role, fetch.FetchResponse(responses=[topic]))
    assert quorum.log.high_watermark == 4


def test_truncation_below_the_watermark_is_fatal() -> None:
    """KRF-45"""
    cluster = elected()
    with pytest.raises(InternalInvariant, match="raft-truncate-committed"):
        cluster[2].quorum.truncate(2)


# Proposals.


def test_a_proposal_is_one_batch() -> None:
    """KRF-58"""
    cluster = elected()
    effects = cluster.propose(1, "a", "b", "c")
    (append,) = [each for each in effects if isinstance(each, fx.AppendLog)]
    assert [(each.base_offset, each.end_offset) for each in append.batches] == [(3, 6)]
    assert fx.Proposed(1, 5) in effects


def test_a_proposal_that_is_too_large_leaves_nothing() -> None:
    """KRF-58: one byte too many"""
    cluster = elected(1)
    fits = MAX_BATCH_BYTES - len(batch_of(0, 1).data) - 5
    effects = cluster.step(1, inputs.Propose(1, 1, (bytes(fits + 4),)))
    assert effects == [fx.ProposalRefused(1, ErrorCode.MESSAGE_TOO_LARGE)]
    assert cluster[1].quorum.log.end_offset == 3
    effects = cluster.step(1, inputs.Propose(2, 1, (bytes(fits - 4),)))
    assert fx.Proposed(2, 3) in effects


def test_a_proposal_for_an_old_epoch_or_to_a_follower_is_refused() -> None:
    """KRF-59"""
    cluster = elected()
    refused = [fx.ProposalRefused(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert cluster.step(1, inputs.Propose(1, 0, (b"a",))) == refused
    assert cluster.step(2, inputs.Propose(1, 1, (b"a",))) == refused
    with pytest.raises(InternalInvariant, match="raft-propose-epoch"):
        cluster.step(1, inputs.Propose(1, 2, (b"a",)))


def test_leadership_is_told_when_everything_before_it_is_committed() -> None:
    """KRF-61, KRF-62"""
    cluster = Cluster()
    cluster.start()
    cluster.advance(60)
    effects = cluster.nodes[1].effects
    told = [each for each in effects if isinstance(each, fx.LeaderChanged)]
    assert told == [fx.LeaderChanged(1, -1), fx.LeaderChanged(1, 1)]
    assert effects.index(fx.HighWatermarkAdvanced(3)) < effects.index(told[1])


# Evidence (decision 14).


def test_survivors_of_a_dead_leader_campaign_by_rank() -> None:
    cluster = elected(5)
    for node_id in (3, 5):
        cluster.step(node_id, inputs.PeerUnreachable(1))
    waits = {}
    for node_id in (3, 5):
        role = cluster[node_id].quorum.role
        assert isinstance(role, Follower)
        waits[node_id] = role.fetch_deadline_ms - cluster.now_ms
    assert waits == {3: 50, 5: 150}


def test_evidence_about_another_node_means_nothing() -> None:
    cluster = elected()
    cluster.step(3, inputs.PeerUnreachable(2))
    role = cluster[3].quorum.role
    assert isinstance(role, Follower)
    assert role.fetch_deadline_ms - cluster.now_ms > 1_000
    assert not Elections(cluster[3].quorum).grants_pre_vote(up_to_date=True)


def test_a_leader_that_speaks_again_is_not_dead() -> None:
    cluster = elected()
    cluster.step(3, inputs.PeerUnreachable(1))
    assert Elections(cluster[3].quorum).grants_pre_vote(up_to_date=True)
    cluster.propose(1, "a")
    while cluster.messages:
        cluster.deliver()
    assert not Elections(cluster[3].quorum).grants_pre_vote(up_to_date=True)


def test_a_voter_that_notices_late_and_is_behind_keeps_nobody_waiting() -> None:
    """It refuses a pre-vote while it believes in its leader, and is refused when it no longer does.

    The dead leader will never answer, so that neither has lost; but the other can have its
    pre-vote now.
    """
    cluster = elected()
    cluster.cut |= {(1, 2), (2, 1)}
    cluster.propose(1, "a")
    cluster.settle()
    ends = [cluster[node_id].quorum.log.end_offset for node_id in (2, 3)]
    assert ends[0] < ends[1]
    cluster.crash(1)
    cluster.step(3, inputs.PeerUnreachable(1))
    cluster.advance(50)
    role = cluster[3].quorum.role
    assert isinstance(role, Prospective)
    assert list(role.election.rejected) == [2]
    cluster.step(2, inputs.PeerUnreachable(1))
    cluster.advance(1)
    assert cluster.leader() == 3
    assert cluster[2].quorum.epoch == 2


def silenced(voters: int) -> Cluster:
    """Followers whose fetch timeouts end in the same millisecond, and who all stand then."""
    cluster = elected(voters)
    cluster.propose(1, "a")
    cluster.settle()
    for node_id in range(2, voters + 1):
        cluster.cut |= {(1, node_id), (node_id, 1)}
        role = cluster[node_id].quorum.role
        assert isinstance(role, Follower)
        cluster.now_ms = role.fetch_deadline_ms
    for node_id in range(2, voters + 1):
        cluster.step(node_id, inputs.TimeAdvanced())
        assert isinstance(cluster[node_id].quorum.role, Prospective)
    return cluster


@pytest.mark.parametrize("voters", [3, 5])
def test_followers_of_a_silent_leader_do_not_split_the_vote(voters: int) -> None:
    """All have each other's pre-vote; one stands, and the paused leader is replaced at once."""
    cluster = silenced(voters)
    cluster.settle()
    assert cluster.leader() == 2
    assert {cluster[node_id].quorum.epoch for node_id in range(2, voters + 1)} == {2}


def test_who_was_let_go_first_and_does_not_go_is_waited_for_a_little() -> None:
    cluster = silenced(3)
    while not isinstance(cluster[2].quorum.role, Candidate):
        cluster.deliver()
    cluster.crash(2)
    cluster.settle()
    role = cluster[3].quorum.role
    assert isinstance(role, Prospective)
    assert role.election.is_won
    assert cluster[3].next_deadline_ms() == cluster.now_ms + 250
    cluster.advance(250)
    assert cluster[3].quorum.role.name is RoleName.CANDIDATE


def stand(cluster: Cluster, *node_ids: int) -> None:
    """Let these be candidates of the same epoch who have not heard of each other."""
    for node_id in node_ids:
        cluster[node_id].quorum.become_candidate()
        cluster.step(node_id, inputs.TimeAdvanced())


def test_of_two_candidates_of_an_epoch_the_one_of_lower_rank_tries_again_soon() -> None:
    cluster = silenced(3)
    cluster.messages.clear()
    stand(cluster, 2, 3)
    waits_until = cluster[3].next_deadline_ms()
    cluster.settle()
    assert cluster[2].quorum.role.name is cluster[3].quorum.role.name is RoleName.CANDIDATE
    assert cluster[2].next_deadline_ms() == cluster.now_ms + 50
    assert cluster[3].next_deadline_ms() == waits_until
    cluster.advance(50)
    assert cluster.leader() == 2
    assert cluster.election(3).epoch == 3


def test_the_first_election_waits_for_a_majority_in_reach() -> None:
    cluster = Cluster()
    cluster.start(2)
    cluster.advance(900)
    assert isinstance(cluster[2].quorum.role, Unattached)
    cluster.start(3)
    cluster.advance(150)
    assert cluster.leader() in (2, 3)


def test_endpoints_of_the_leader_come_with_every_answer() -> None:
    cluster = elected()
    response = cluster.ask(2, fetch_request(3, 0, 0))
    assert response.node_endpoints[0].host == endpoint_of(1).host


def test_everything_passes_through_the_wire() -> None:
    """Election, replication, snapshot, voter change and resignation in encoded messages."""
    cluster = Cluster(3, 1)
    cluster.encodes = True
    cluster.nodes[4].config = replace(cluster.nodes[4].config, auto_join=True)
    cluster.start()
    cluster.advance(100)
    cluster.propose(1, "a", "b")
    cluster.advance(3_000)
    assert cluster[4].quorum.is_voter
    cluster.crash(3)
    cluster.propose(1, "c")
    cluster.settle()
    snapshot_id = SnapshotId(cluster[1].quorum.log.high_watermark, 1)
    data = snapshot_bytes(snapshot_id, cluster[1].quorum.voters.latest, 1)
    cluster.nodes[1].storage.freeze_snapshot(snapshot_id, data)
    cluster.step(1, inputs.SnapshotFrozen(snapshot_id))
    cluster.step(1, inputs.SnapshotsExpired(snapshot_id))
    cluster.start(3)
    cluster.advance(100)
    assert cluster[3].quorum.log.start_offset == snapshot_id.end_offset
    cluster.step(1, inputs.Resign(1))
    cluster.advance(500)
    assert cluster.leader() != 1
    ends = {cluster[node_id].quorum.log.high_watermark for node_id in cluster.nodes}
    assert ends == {snapshot_id.end_offset + 1}
    kinds = {line.split()[3] for line in cluster.lines if "->" in line}
    assert kinds >= {
        *("Fetch", "PreVote", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot"),
        *("AddRaftVoter", "ApiVersions"),
    }
