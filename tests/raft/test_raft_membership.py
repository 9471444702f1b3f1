"""Changes of the voter set: KIP-853 and rule 3 of kraft.md section 20."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from raft_cluster import CLUSTER_ID, Cluster, directory, endpoint_of, key_of, voter_of
from test_raft_rules import batch_of, elected, leader_of

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema import k18_api_versions as api_versions
from kraftpy.protocol.schema import k55_describe_quorum as describe_quorum
from kraftpy.protocol.schema import k80_add_raft_voter as add_voter
from kraftpy.protocol.schema import k81_remove_raft_voter as remove_voter
from kraftpy.protocol.schema import k82_update_raft_voter as update_voter
from kraftpy.raft import effects as fx
from kraftpy.raft import inputs
from kraftpy.raft.describing import OBSERVER_FORGOTTEN_MS
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.memory_storage import MemoryStorage
from kraftpy.raft.roles import Follower, Leader, Resigned, RoleName
from kraftpy.raft.voters import ReplicaKey, VoterSet


def add(node_id: int, **changes: Any) -> add_voter.AddRaftVoterRequest:
    request = add_voter.AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        voter_id=node_id,
        voter_directory_id=directory(node_id),
        listeners=[
            add_voter.Listener(
                name="CONTROLLER", host=endpoint_of(node_id).host, port=endpoint_of(node_id).port
            )
        ],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def remove(node_id: int, directory_id: Uuid | None = None) -> remove_voter.RemoveRaftVoterRequest:
    return remove_voter.RemoveRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        voter_id=node_id,
        voter_directory_id=directory(node_id) if directory_id is None else directory_id,
    )


def outcome(cluster: Cluster, request: Any, node_id: int = 1) -> ErrorCode | None:
    """The error code of the answer once everything has settled; None if there is none yet."""
    cluster.ask(node_id, request)
    request_id = cluster.nodes[node_id].next_request_id
    cluster.settle()
    response = cluster.nodes[node_id].replies.get(request_id)
    return None if response is None else ErrorCode(response.error_code)


def voters(cluster: Cluster, node_id: int) -> tuple[int, ...]:
    return cluster[node_id].quorum.voters.latest.ids


def test_an_observer_that_keeps_up_becomes_a_voter() -> None:
    """KRF-76"""
    cluster = elected(3, 1)
    assert outcome(cluster, add(4)) is ErrorCode.NONE
    cluster.advance(10)
    assert all(voters(cluster, node_id) == (1, 2, 3, 4) for node_id in (1, 2, 3, 4))
    assert cluster[4].quorum.is_voter


def test_a_sole_voter_that_has_led_for_long_gets_a_second_one() -> None:
    """KRF-32, KRF-76: its check-quorum begins when there is somebody to wait for."""
    cluster = elected(1, 1)
    cluster.advance(60_000)
    assert outcome(cluster, add(2)) is ErrorCode.NONE
    cluster.advance(10_000)
    assert cluster.leader() == 1
    assert voters(cluster, 2) == (1, 2)


def test_the_second_voter_has_its_time_and_no_more() -> None:
    """KRF-32"""
    cluster = elected(1, 1)
    cluster.advance(60_000)
    outcome(cluster, add(2, ack_when_committed=False))
    cluster.crash(2)
    cluster.advance(1_000)
    assert isinstance(cluster[1].quorum.role, Leader)
    cluster.advance(2_000)
    assert not isinstance(cluster[1].quorum.role, Leader)


def test_the_answer_waits_for_the_majority_of_the_new_set() -> None:
    """KRF-76: 1 and 2 are a majority of three, not of four"""
    cluster = elected(3, 1)
    cluster.crash(3)
    cluster.cut = {(4, 1)}
    cluster.ask(1, add(4))
    cluster.cut = set()
    cluster.deliver()  # ApiVersions to the new voter
    cluster.cut = set()
    while not any("appends" in line for line in cluster.lines):
        cluster.deliver()
    cluster.cut = {(4, 1)}
    assert voters(cluster, 1) == (1, 2, 3, 4)
    request_id = cluster.nodes[1].next_request_id
    cluster.settle()
    assert request_id not in cluster.nodes[1].replies
    cluster.cut = set()
    cluster.now_ms += 1
    cluster[4].quorum.connections.forget()
    cluster.step(4, inputs.TimeAdvanced())
    cluster.settle()
    assert cluster.nodes[1].replies[request_id].error_code == 0


def test_an_answer_right_after_the_append() -> None:
    """KRF-76: v1 without waiting"""
    cluster = elected(3, 1)
    cluster.crash(3)
    cluster.cut = {(2, 1)}
    assert outcome(cluster, add(4, ack_when_committed=False)) is ErrorCode.NONE
    assert not cluster[1].describe()["changes_voters"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"voter_id": 2}, ErrorCode.DUPLICATE_VOTER),
        ({"voter_directory_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"listeners": []}, ErrorCode.INVALID_REQUEST),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": directory(4, 7)}, ErrorCode.REQUEST_TIMED_OUT),
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_additions_that_are_refused(changes: dict[str, Any], error: ErrorCode) -> None:
    """KRF-77"""
    cluster = elected(3, 1)
    assert outcome(cluster, add(4, **changes)) is error
    assert voters(cluster, 1) == (1, 2, 3)


def test_only_the_leader_adds() -> None:
    cluster = elected(3, 1)
    assert outcome(cluster, add(4), 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_unreachable_node_is_not_added() -> None:
    """KRF-77"""
    cluster = elected(3, 1)
    cluster.crash(4)
    assert outcome(cluster, add(4)) is ErrorCode.REQUEST_TIMED_OUT


def test_a_node_that_does_not_answer_is_given_up() -> None:
    """KRF-77: after the request timeout"""
    cluster = elected(3, 1)
    cluster.cut = {(4, 1)}
    assert outcome(cluster, add(4)) is None
    request_id = cluster.nodes[1].next_request_id
    cluster.advance(2_000)
    assert cluster.nodes[1].replies[request_id].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_node_of_another_version_is_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """KRF-77"""
    monkeypatch.setattr(
        "kraftpy.raft.core._supported_kraft_versions", api_versions.ApiVersionsResponse
    )
    assert outcome(elected(3, 1), add(4)) is ErrorCode.INVALID_REQUEST


def test_static_voters_do_not_change() -> None:
    """KRF-77: kraft.version 0"""
    assert outcome(elected(3, 1, dynamic=False), add(4)) is ErrorCode.UNSUPPORTED_VERSION


def test_rule_3_one_change_at_a_time() -> None:
    """KRF-77: a change that is not committed closes the gate"""
    cluster = elected()
    cluster.crash(2)
    cluster.crash(3)
    assert outcome(cluster, remove(2)) is None
    assert outcome(cluster, remove(3)) is ErrorCode.REQUEST_TIMED_OUT
    cluster.advance(2_000)
    # The first was answered by its timeout, but its record is still not committed.
    assert isinstance(cluster[1].quorum.role, Leader)
    assert outcome(cluster, remove(3)) is ErrorCode.REQUEST_TIMED_OUT


def test_rule_3_a_change_begins_with_its_first_question() -> None:
    """KRF-77: while the new voter is asked what it can do, no other change may begin"""
    cluster = elected(3, 1)
    cluster.cut = {(4, 1)}
    assert outcome(cluster, add(4)) is None
    assert outcome(cluster, remove(3)) is ErrorCode.REQUEST_TIMED_OUT
    assert voters(cluster, 1) == (1, 2, 3)


def test_no_change_before_the_leader_has_committed() -> None:
    """KRF-77: no high watermark"""
    cluster = elected(3, 1)
    _, role = leader_of(cluster)
    role.high_watermark = None
    assert outcome(cluster, remove(3)) is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (remove(3, directory(3, 1)), ErrorCode.VOTER_NOT_FOUND),
        (remove(9), ErrorCode.VOTER_NOT_FOUND),
        (remove(3, ZERO_UUID), ErrorCode.INVALID_REQUEST),
        (remove(3), ErrorCode.NONE),
    ],
)
def test_removals(request_: Any, error: ErrorCode) -> None:
    """KRF-78"""
    assert outcome(elected(), request_) is error


def test_the_last_voter_stays() -> None:
    """KRF-78"""
    assert outcome(elected(1), remove(1)) is ErrorCode.VOTER_NOT_FOUND


def test_rule_3_a_leader_that_removes_itself_commits_without_counting_itself() -> None:
    """KRF-79"""
    cluster = elected()
    cluster.cut = {(2, 1), (3, 1)}
    assert outcome(cluster, remove(1)) is None
    assert isinstance(cluster[1].quorum.role, Leader)
    assert not cluster[1].quorum.is_voter
    # Its own disk and one other are two of three, but one of the two that count.
    request_id = cluster.nodes[1].next_request_id
    cluster.cut = set()
    for node_id in (2, 3):
        cluster[node_id].quorum.connections.forget()
        cluster.step(node_id, inputs.TimeAdvanced())
    cluster.settle()
    assert cluster.nodes[1].replies[request_id].error_code == 0
    assert isinstance(cluster[1].quorum.role, Resigned) or cluster[1].quorum.epoch > 1
    cluster.advance(3_000)
    assert cluster.leader() in (2, 3)
    assert voters(cluster, cluster.leader()) == (2, 3)


def test_rule_3_truncation_takes_a_voter_set_back() -> None:
    """KRF-75"""
    cluster = elected()
    quorum = cluster[2].quorum
    quorum.append([batch_of(3, 1)])
    quorum.voters.add(4, VoterSet([voter_of(2)]))
    quorum.log.end_offset = 5
    assert quorum.voters.latest.ids == (2,)
    quorum.truncate(4)
    assert quorum.voters.latest.ids == (1, 2, 3)


def test_a_voter_removed_in_vain_can_still_campaign() -> None:
    """Its removal is in no other log, and its own log is the only one that can win."""
    cluster = elected(2)
    cluster.cut = {(1, 2), (2, 1)}
    leader_id, _ = leader_of(cluster)
    assert outcome(cluster, remove(leader_id), leader_id) is None
    cluster.step(leader_id, inputs.Resign(1))
    cluster.cut = set()
    cluster.advance(8_000)
    # Its log wins; the removal is committed by it, and the other leads.
    assert cluster.leader() == 3 - leader_id
    assert voters(cluster, 3 - leader_id) == (3 - leader_id,)


def update(node_id: int, **changes: Any) -> update_voter.UpdateRaftVoterRequest:
    request = update_voter.UpdateRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        current_leader_epoch=1,
        voter_id=node_id,
        voter_directory_id=directory(node_id),
        listeners=[update_voter.Listener(name="CONTROLLER", host="node9", port=1)],
        kraft_version_feature=update_voter.KRaftVersionFeature(max_supported_version=1),
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"voter_id": 9}, ErrorCode.VOTER_NOT_FOUND),
        ({"voter_directory_id": directory(2, 1)}, ErrorCode.VOTER_NOT_FOUND),
        ({"listeners": []}, ErrorCode.INVALID_REQUEST),
        ({"kraft_version_feature": update_voter.KRaftVersionFeature()}, ErrorCode.INVALID_REQUEST),
        ({"current_leader_epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_updates(changes: dict[str, Any], error: ErrorCode) -> None:
    """KRF-80"""
    cluster = elected()
    assert outcome(cluster, update(2, **changes)) is error
    voter = cluster[1].quorum.voters.latest.find(2)
    assert voter is not None
    assert (voter.endpoints[0].host == "node9") is (error is ErrorCode.NONE)


def test_a_follower_reports_its_new_endpoint() -> None:
    """KRF-80"""
    cluster = elected()
    cluster.crash(2)
    node = cluster.nodes[2]
    moved = replace(endpoint_of(2), port=9999)
    node.config = replace(node.config, endpoints=(moved,))
    cluster.start(2)
    cluster.advance(3_000)
    voter = cluster[1].quorum.voters.latest.find(2)
    assert voter is not None
    assert voter.endpoints == (moved,)
    cluster.lines.clear()
    cluster.advance(5_000)
    assert not any("UpdateRaftVoter" in line for line in cluster.lines)


def lose_disk(cluster: Cluster, node_id: int, *, auto_join: bool) -> None:
    cluster.crash(node_id)
    node = cluster.nodes[node_id]
    node.storage = MemoryStorage()
    node.config = replace(node.config, local=key_of(node_id, 1), auto_join=auto_join)
    cluster.start(node_id)


def test_a_lost_disk_makes_another_replica() -> None:
    """KRF-81"""
    cluster = elected()
    lose_disk(cluster, 3, auto_join=False)
    cluster.advance(5_000)
    quorum = cluster[3].quorum
    assert isinstance(quorum.role, Follower)
    assert not quorum.is_voter
    assert not cluster[1].quorum.voters.latest.contains(key_of(3, 1))
    # The leader tries to reach the voter that is no more, but not all the time.
    assert len([line for line in cluster.lines if "BeginQuorumEpoch" in line]) <= 2 * 6


def test_auto_join_replaces_its_stale_entry() -> None:
    """KRF-83: with controller.quorum.auto.join.enable"""
    cluster = elected()
    lose_disk(cluster, 3, auto_join=True)
    cluster.lines.clear()
    cluster.advance(6_500)
    asked = [line for line in cluster.lines if "3 -> 1" in line and line.endswith("RaftVoter")]
    assert asked == ["3 -> 1 RemoveRaftVoter", "3 -> 1 AddRaftVoter"]
    assert cluster[1].quorum.voters.latest.contains(key_of(3, 1))


def description() -> describe_quorum.DescribeQuorumRequest:
    part = describe_quorum.RequestPartitionData()
    topic = describe_quorum.RequestTopicData(topic_name="__cluster_metadata", partitions=[part])
    return describe_quorum.DescribeQuorumRequest(topics=[topic])


def test_describe_quorum_is_for_the_leader() -> None:
    """KRF-84"""
    cluster = elected(3, 1)
    request = description()
    said = cluster.ask(1, request).topics[0].partitions[0]
    assert (said.leader_id, said.leader_epoch, said.high_watermark) == (1, 1, 3)
    assert [each.replica_id for each in said.current_voters] == [1, 2, 3]
    assert [each.log_end_offset for each in said.current_voters] == [3, 3, 3]
    assert [each.replica_id for each in said.observers] == [4]
    assert said.observers[0].last_caught_up_timestamp >= 0
    refused = cluster.ask(2, request).topics[0].partitions[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    nobody = describe_quorum.DescribeQuorumRequest()
    assert cluster.ask(1, nobody).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.crash(4)
    cluster.advance(OBSERVER_FORGOTTEN_MS + 1_000)
    assert cluster.ask(1, request).topics[0].partitions[0].observers == []


def test_voters_of_the_log_override_static_ones() -> None:
    """KRF-74"""
    cluster = elected(3)
    cluster.crash(1)
    static = VoterSet([replace(voter_of(9), key=ReplicaKey(9))])
    cluster.nodes[1].config = replace(cluster.nodes[1].config, static_voters=static)
    cluster.start(1)
    assert voters(cluster, 1) == (1, 2, 3)
    assert cluster[1].quorum.role.name is RoleName.RESIGNED


# From kraft.version 0 to 1.


def upgrade(cluster: Cluster, kraft_version: int = 1, *, epoch: int | None = None) -> Any:
    """What the leader says: Proposed or ProposalRefused."""
    leader_id = cluster.leader()
    wanted = cluster[leader_id].quorum.epoch if epoch is None else epoch
    effects = cluster.step(leader_id, inputs.UpgradeKraftVersion(7, wanted, kraft_version))
    return next(each for each in effects if isinstance(each, fx.Proposed | fx.ProposalRefused))


def kraft_versions(cluster: Cluster) -> list[int]:
    return [node.core.quorum.kraft_versions.latest for node in cluster.nodes.values() if node.core]


def reported() -> Cluster:
    """Static voters, each of which has told its leader who it is."""
    cluster = elected(3, 1, dynamic=False)
    cluster.advance(3_000)
    return cluster


def test_kraft_version_rises_when_every_voter_has_reported() -> None:
    """KRF-82: one control batch with the version and the same voters, now with directories"""
    cluster = reported()
    assert cluster[1].upgrade_refusal(1) is None
    end_offset = cluster[1].quorum.log.end_offset
    assert upgrade(cluster) == fx.Proposed(7, end_offset + 1)
    append = next(
        each for each in reversed(cluster.nodes[1].effects) if isinstance(each, fx.AppendLog)
    )
    [batch] = append.batches
    assert (batch.base_offset, batch.end_offset, batch.is_control) == (
        end_offset,
        end_offset + 2,
        True,
    )
    cluster.advance(100)
    assert kraft_versions(cluster) == [1, 1, 1, 1]
    for node_id in cluster.nodes:
        assert cluster[node_id].quorum.voters.latest == VoterSet(map(voter_of, (1, 2, 3)))
    assert cluster[1].quorum.log.high_watermark == end_offset + 2
    # What it is for.
    assert outcome(cluster, add(4)) is ErrorCode.NONE


def test_an_upgrade_leaves_every_voter_its_progress() -> None:
    """KRF-82, KRF-84: under its new key, and no observer of the same name"""
    cluster = reported()
    cluster.cut = {(2, 1), (3, 1), (4, 1)}
    upgrade(cluster)
    said = cluster.ask(1, description()).topics[0].partitions[0]
    assert [each.replica_id for each in said.current_voters] == [1, 2, 3]
    assert min(each.log_end_offset for each in said.current_voters) > 0
    assert [each.replica_id for each in said.observers] == [4]


def test_kraft_version_waits_for_a_silent_voter() -> None:
    """KRF-82"""
    cluster = elected(3, dynamic=False)
    refused = upgrade(cluster)
    assert refused == fx.ProposalRefused(
        7, ErrorCode.INVALID_UPDATE_VERSION, "voters have not reported their directory: 2, 3"
    )
    cluster.crash(3)
    cluster.advance(3_000)
    assert upgrade(cluster).message.endswith(": 3")
    assert kraft_versions(cluster) == [0, 0]
    cluster.start(3)
    cluster.advance(3_000)
    assert isinstance(upgrade(cluster), fx.Proposed)


def test_kraft_version_waits_for_a_voter_that_does_not_know_it() -> None:
    """KRF-82"""
    cluster = reported()
    old = update_voter.KRaftVersionFeature(max_supported_version=0)
    assert outcome(cluster, update(2, kraft_version_feature=old)) is ErrorCode.NONE
    refused = upgrade(cluster)
    assert (refused.error, refused.message) == (
        ErrorCode.INVALID_UPDATE_VERSION,
        "voters don't support kraft.version 1: 2",
    )
    assert kraft_versions(cluster) == [0, 0, 0, 0]


def test_a_new_leader_asks_anew() -> None:
    """KRF-82: what was reported to one leader, another has not heard"""
    cluster = reported()
    cluster.step(1, inputs.Resign(cluster[1].quorum.epoch))
    cluster.settle()
    cluster.advance(500)
    assert cluster.leader() != 1
    assert "voters have not reported" in upgrade(cluster).message
    cluster.advance(3_000)
    assert isinstance(upgrade(cluster), fx.Proposed)


def test_a_leader_that_returns_asks_anew() -> None:
    """KRF-82: a voter may have another directory by then"""
    cluster = reported()
    while True:
        leader_id = cluster.leader()
        cluster.step(leader_id, inputs.Resign(cluster[leader_id].quorum.epoch))
        cluster.settle()
        cluster.advance(100)
        if cluster.leader() == 1:
            break
    assert "voters have not reported" in upgrade(cluster).message


def test_kraft_version_waits_for_the_first_commit() -> None:
    """KRF-82: a leader that has not committed in its epoch may not be one"""
    cluster = Cluster(1, dynamic=False)
    cluster.nodes[1].syncs = False
    cluster.start(1)
    assert upgrade(cluster).error is ErrorCode.REQUEST_TIMED_OUT
    cluster.sync(1)
    assert isinstance(upgrade(cluster), fx.Proposed)


def test_kraft_version_never_falls_and_goes_no_higher() -> None:
    """KRF-82"""
    cluster = reported()
    assert upgrade(cluster, 2).error is ErrorCode.INVALID_UPDATE_VERSION
    first = upgrade(cluster)
    # The version stands before the voters, in the same batch; nothing more is written.
    on_its_way = fx.Proposed(7, first.last_offset - 1)
    assert upgrade(cluster) == on_its_way
    cluster.advance(100)
    assert upgrade(cluster) == on_its_way
    refused = upgrade(cluster, 0)
    assert (refused.error, refused.message) == (
        ErrorCode.INVALID_UPDATE_VERSION,
        "kraft.version 1 can't be lowered",
    )
    assert kraft_versions(cluster) == [1, 1, 1, 1]


def test_only_the_leader_of_that_epoch_raises_kraft_version() -> None:
    """KRF-82"""
    cluster = reported()
    assert upgrade(cluster, epoch=0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    [refused] = cluster.step(2, inputs.UpgradeKraftVersion(8, 1, 1))
    assert refused == fx.ProposalRefused(
        8, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER.message
    )


def test_an_upgrade_that_is_truncated_never_was() -> None:
    """KRF-82, KRF-75"""
    cluster = reported()
    cluster.cut = {(a, b) for a in (1, 2, 3, 4) for b in (1, 2, 3, 4) if 1 in (a, b)}
    assert isinstance(upgrade(cluster), fx.Proposed)
    assert cluster[1].quorum.kraft_versions.latest == 1
    cluster.advance(5_000)
    assert cluster.leader() in (2, 3)
    cluster.propose(cluster.leader(), "another")
    cluster.cut = set()
    cluster.advance(3_000)
    assert kraft_versions(cluster) == [0, 0, 0, 0]
    assert cluster[1].quorum.voters.latest == cluster[2].quorum.voters.latest
    assert cluster[1].quorum.voters.latest.voters[0].key == ReplicaKey(1)


def test_an_upgraded_quorum_restarts() -> None:
    """KRF-82, KRF-37: from the log, and the promise is written in the new form"""
    cluster = reported()
    upgrade(cluster)
    cluster.advance(100)
    for node_id in (1, 2, 3):
        cluster.crash(node_id)
    cluster.start(1, 2, 3)
    cluster.advance(5_000)
    assert kraft_versions(cluster)[:3] == [1, 1, 1]
    leader_id = cluster.leader()
    promises = [
        each for each in cluster.nodes[leader_id].effects if isinstance(each, fx.PersistElection)
    ]
    assert promises[-1].kraft_version == 1
    assert cluster[leader_id].quorum.voters.latest == VoterSet(map(voter_of, (1, 2, 3)))


def test_an_own_vote_without_directory_is_gone_on_with() -> None:
    """KRF-3, KRF-37: at kraft.version 0 the file names the node alone"""
    cluster = Cluster(3, dynamic=False)
    cluster.nodes[1].storage.election = ElectionState(4, -1, ReplicaKey(1))
    cluster.start(1)
    assert cluster[1].quorum.role.name is RoleName.CANDIDATE
    assert cluster[1].quorum.epoch == 4
