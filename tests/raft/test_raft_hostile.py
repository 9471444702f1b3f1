"""What a peer that lies, or is none, can do to a core: nothing (design, decision 11)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from driver_rig import setting
from raft_cluster import CLUSTER_ID, Cluster, directory, endpoint_of
from test_raft_membership import description
from test_raft_rules import elected, fetch_request, fetched
from test_raft_snapshot_keeper import running
from test_raft_snapshots import chunk_request, take
from test_raft_votes import request as vote_request

from kraftpy.metadata.snapshot_policy import SnapshotSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k01_fetch as fetch
from kraftpy.protocol.schema import k53_begin_quorum_epoch as begin
from kraftpy.protocol.schema import k54_end_quorum_epoch as end
from kraftpy.protocol.schema import k82_update_raft_voter as update_voter
from kraftpy.raft import effects as fx
from kraftpy.raft import inputs, replication
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.memory_storage import MemoryStorage
from kraftpy.raft.roles import Follower, Leader, RoleName
from kraftpy.raft.rpc import METADATA_TOPIC
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.real import real_world


def begin_request(leader_id: int, epoch: int) -> begin.BeginQuorumEpochRequest:
    asked = begin.RequestPartitionData(leader_id=leader_id, leader_epoch=epoch)
    topic = begin.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[asked])
    listener = begin.LeaderEndpoint(name="CONTROLLER", host=f"node{leader_id}", port=9093)
    return begin.BeginQuorumEpochRequest(topics=[topic], leader_endpoints=[listener])


def end_request(leader_id: int, epoch: int) -> end.EndQuorumEpochRequest:
    asked = end.RequestPartitionData(leader_id=leader_id, leader_epoch=epoch)
    topic = end.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[asked])
    return end.EndQuorumEpochRequest(topics=[topic])


def faults(cluster: Cluster, node_id: int) -> list[fx.PeerFault]:
    return [each for each in cluster.nodes[node_id].effects if isinstance(each, fx.PeerFault)]


@pytest.mark.parametrize("make", [begin_request, end_request])
@pytest.mark.parametrize(
    ("receiver", "leader_id", "later"),
    [(2, 3, 0), (1, 3, 0), (2, 2, 0), (2, 2, 1), (1, 1, 1)],
    ids=["second", "second, to the leader", "itself", "itself, later", "leader itself, later"],
)
def test_a_request_that_names_a_wrong_leader_is_refused(
    make: Any, receiver: int, leader_id: int, later: int
) -> None:
    """KRF-35: the request is refused with one line in the log, and nothing else happens."""
    cluster = elected()
    before = cluster.election(receiver)
    for _ in range(3):
        response = cluster.ask(receiver, make(leader_id, before.epoch + later))
        assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
    assert cluster.election(receiver) == before
    assert [fault.node_id for fault in faults(cluster, receiver)] == [leader_id]
    cluster.advance(10_000)
    assert cluster.leader() == 1
    assert cluster.election(1) == replace(before, voted=cluster.election(1).voted)


def test_a_leader_whose_epoch_was_given_away_leads_on() -> None:
    """A voter that was told a lie refuses the true leader, which does not mind."""
    cluster = Cluster(3, 1)
    cluster.start(1, 2)
    cluster.advance(3_000)
    cluster.start(3)
    cluster.ask(3, begin_request(4, cluster.election(1).epoch))
    before = cluster.election(1)
    cluster.advance(5_000)
    assert cluster.leader() == 1
    assert cluster.election(1) == before
    assert cluster.election(3).leader_id == 4
    assert [fault.node_id for fault in faults(cluster, 1)] == [3]
    cluster.crash(1)
    cluster.advance(10_000)
    assert cluster.election(3).leader_id == cluster.leader()


def answered(cluster: Cluster, node_id: int, response: Any) -> None:
    """Let `response` be the answer to a Fetch of this node that is under way."""
    sends = [each for each in cluster.nodes[node_id].effects if isinstance(each, fx.Send)]
    send = next(each for each in reversed(sends) if isinstance(each.request, fetch.FetchRequest))
    event = inputs.ResponseReceived(send.node_id, send.correlation_id, response)
    cluster.step(node_id, event)


def fetch_answer(error: int, leader_id: int = 1, epoch: int = 1) -> fetch.FetchResponse:
    data = fetch.PartitionData(
        error_code=error,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
    )
    topic = fetch.FetchableTopicResponse(topic=METADATA_TOPIC, partitions=[data])
    return fetch.FetchResponse(responses=[topic])


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (fetch_answer(0, leader_id=3), "raft-two-leaders"),
        (fetch_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=3), "raft-two-leaders"),
        (fetch_answer(ErrorCode.FENCED_LEADER_EPOCH, leader_id=2, epoch=5), "raft-two-leaders"),
        (fetch_answer(ErrorCode.INVALID_REQUEST), "raft-refused"),
        (fetch.FetchResponse(error_code=ErrorCode.INVALID_REQUEST), "raft-refused"),
        (fetch.FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "raft-refused"),
        (fetch.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID), "raft-refused"),
        (fetch_answer(12_345), ""),
        (fetch.FetchResponse(error_code=12_345), ""),
        (fetch.FetchResponse(), ""),
    ],
)
def test_an_answer_that_makes_no_sense_is_not_believed(response: Any, code: str) -> None:
    """KRF-35; an error code of a later release is no more than an error."""
    cluster = elected()
    before = cluster.election(2)
    cluster.advance(600)
    answered(cluster, 2, response)
    assert cluster.election(2) == before
    assert isinstance(cluster[2].quorum.role, Follower)
    assert [fault.reason.partition(":")[0] for fault in faults(cluster, 2)] == [code] * bool(code)
    cluster.advance(5_000)
    assert cluster.leader() == 1
    assert isinstance(cluster[2].quorum.role, Follower)


def test_a_wrong_bootstrap_server_stops_nobody() -> None:
    """An observer that asks a server of something else goes on asking the others."""
    cluster = Cluster(3, 1)
    cluster.start(4)
    answered(cluster, 4, fetch.FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
    cluster.messages.clear()
    cluster.start(1, 2, 3)
    cluster.advance(3_000)
    assert cluster[4].quorum.role.name is RoleName.FOLLOWER


def test_a_fetch_gets_no_more_than_the_leader_gives() -> None:
    """controller.quorum.fetch.max.bytes bounds what a leader reads in place, whoever asks."""
    cluster = elected(1)
    for _ in range(40):
        cluster.propose(1, "x" * 100_000)
    cluster.settle()
    request = fetch_request(7, 3, 1)
    for max_bytes, low, high in ((2**31 - 1, 900_000, 2**20), (-5, 1, 110_000), (0, 1, 110_000)):
        request.max_bytes = max_bytes
        records = fetched(cluster, request).records
        assert records is not None
        assert low <= len(records) <= high


def test_observers_with_made_up_names_take_no_more_than_their_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that have been silent longest are forgotten; voters never are."""
    monkeypatch.setattr(replication, "MAX_OBSERVERS", 10)
    cluster = elected(3)
    role = cluster[1].quorum.role
    assert isinstance(role, Leader)
    voters = [key for key in role.progress if key.node_id in (2, 3)]
    end_offset = cluster[1].quorum.log.end_offset
    for number in range(100):
        request = fetch_request(50 + number % 2, end_offset, 1)
        request.topics[0].partitions[0].replica_directory_id = Uuid(number.to_bytes(16))
        fetched(cluster, request)
    assert len(role.progress) <= 13
    assert all(key in role.progress for key in voters)
    assert [key.directory_id for key in role.progress][-1] == Uuid((99).to_bytes(16))


@pytest.mark.parametrize(
    ("count", "host", "error"),
    [
        (64, "h" * 255, ErrorCode.NONE),
        (65, "h", ErrorCode.INVALID_REQUEST),
        (1, "h" * 256, ErrorCode.INVALID_REQUEST),
        (60_000, "h" * 200, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_voter_can_not_fill_the_log_with_its_listeners(
    count: int, host: str, error: ErrorCode
) -> None:
    cluster = elected()
    names = ["CONTROLLER", *(f"L{number}" for number in range(1, count))]
    request = update_voter.UpdateRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        current_leader_epoch=1,
        voter_id=2,
        voter_directory_id=directory(2),
        listeners=[update_voter.Listener(name=name, host=host, port=1) for name in names],
        kraft_version_feature=update_voter.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=1
        ),
    )
    assert cluster.ask(1, request).error_code == error
    voter = cluster[1].quorum.voters.latest.find(2)
    assert voter is not None
    assert len(voter.endpoints) == (count if error is ErrorCode.NONE else 1)


def test_a_prospective_follows_a_leader_whose_place_it_learns() -> None:
    """KRF-28: it knew who leads and not where."""
    cluster = Cluster()
    cluster.start(1)
    quorum = cluster[1].quorum
    quorum.become_unattached(4, leader_id=9)
    quorum.become_prospective()
    cluster.ask(1, begin_request(9, 4))
    role = quorum.role
    assert isinstance(role, Follower)
    assert role.leader_endpoints == (endpoint_of(9),)


def test_dead_bootstrap_servers_do_not_hide_voters_that_are_known() -> None:
    """An observer that was given one controller finds the others when that one is gone."""
    cluster = elected(3, 1)
    node = cluster.nodes[4]
    cluster.crash(4)
    node.config = replace(node.config, bootstrap_servers=(endpoint_of(1),))
    cluster.start(4)
    cluster.advance(1_000)
    assert cluster.election(4).leader_id == 1
    cluster.crash(1)
    cluster.advance(20_000)
    assert cluster.election(4).leader_id == cluster.leader()


async def test_a_forged_request_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """KRF-35: of a whole node, which goes on."""
    world = replace(real_world(), disk=MemoryDisk())
    async with running(world, "/meta", SnapshotSettings()) as lone:
        answers: list[Any] = []
        for _ in range(3):
            request = begin_request(7, lone.driver.election.epoch)
            assert lone.driver.submit(request, answers.append)
        await lone.propose(setting("a", "1"))
        errors = [answer.topics[0].partitions[0].error_code for answer in answers]
        assert errors == [ErrorCode.INVALID_REQUEST] * 3
    (line,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert line.getMessage().startswith("node 7: raft-two-leaders")


@pytest.mark.parametrize("partition", [1, -1])
def test_the_metadata_log_has_one_partition(partition: int) -> None:
    """Kraft.md 6: whatever names another is refused before it is looked at."""
    cluster = elected()
    take(cluster, 1, SnapshotId(3, 1))
    before = cluster.election(1)
    asked: list[tuple[Any, str, ErrorCode]] = [
        (fetch_request(2, 3, 1), "partition", ErrorCode.INVALID_REQUEST),
        (vote_request(epoch=9), "partition_index", ErrorCode.INVALID_REQUEST),
        (begin_request(2, 9), "partition_index", ErrorCode.INVALID_REQUEST),
        (end_request(2, 9), "partition_index", ErrorCode.INVALID_REQUEST),
        (description(), "partition_index", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (chunk_request(SnapshotId(3, 1)), "partition", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for request, field, error in asked:
        setattr(request.topics[0].partitions[0], field, partition)
        assert cluster.ask(1, request).error_code == error
    assert cluster.election(1) == before


def test_a_leader_that_was_away_is_asked_again() -> None:
    """An observer knows of it from its only server, which is not the leader and never will be."""
    cluster = elected(3, 1)
    node = cluster.nodes[4]
    cluster.crash(4)
    node.storage = MemoryStorage()
    node.config = replace(node.config, bootstrap_servers=(endpoint_of(2),))
    cluster.cut = {(4, 1)}
    cluster.start(4)
    cluster.advance(10_000)
    assert cluster.election(4).leader_id == 1
    assert cluster[4].quorum.log.end_offset == 0
    cluster.cut.clear()
    cluster.advance(3_000)
    assert cluster[4].quorum.log.end_offset == cluster[1].quorum.log.end_offset
