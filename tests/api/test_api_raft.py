"""The quorum's APIs on a controller's listener: every version of each is answered by the core."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from recording import Bench, RecordingAnswer, payload

from kraftpy.api.raft_handlers import raft_handlers
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_response
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema import k01_fetch as fetch
from kraftpy.protocol.schema import k52_vote as vote
from kraftpy.protocol.schema import k53_begin_quorum_epoch as begin
from kraftpy.protocol.schema import k54_end_quorum_epoch as end
from kraftpy.protocol.schema import k55_describe_quorum as describe_quorum
from kraftpy.protocol.schema import k59_fetch_snapshot as fetch_snapshot
from kraftpy.protocol.schema import k80_add_raft_voter as add_voter
from kraftpy.protocol.schema import k81_remove_raft_voter as remove_voter
from kraftpy.protocol.schema import k82_update_raft_voter as update_voter
from kraftpy.protocol.tables import Request
from kraftpy.raft import effects as fx
from kraftpy.raft import inputs
from kraftpy.raft.core import RaftCore
from kraftpy.raft.memory_storage import MemoryStorage
from kraftpy.raft.quorum import RaftConfig
from kraftpy.raft.rpc import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftpy.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet

CLUSTER = "the-cluster"
DIRECTORY = Uuid(bytes([7] * 16))
ENDPOINT = Endpoint("CONTROLLER", "node1", 9093)


class Member:
    """A real core on a disk that is never late, so that it answers when it is asked."""

    def __init__(self, *voter_ids: int) -> None:
        voters = VoterSet(Voter(ReplicaKey(each), (ENDPOINT,)) for each in voter_ids)
        config = RaftConfig(
            cluster_id=CLUSTER,
            local=ReplicaKey(1, DIRECTORY),
            endpoints=(ENDPOINT,),
            static_voters=voters,
        )
        self.storage = MemoryStorage()
        self.core = RaftCore(config, self.storage.recover(voters), Random(1))
        self.replies: dict[int, Callable[[inputs.RaftResponse], None]] = {}
        self.is_down = False
        self._carry_out(self.core.start(0))

    def submit(
        self, request: inputs.RaftRequest, reply: Callable[[inputs.RaftResponse], None]
    ) -> bool:
        if self.is_down:
            return False
        request_id = len(self.replies) + 1
        self.replies[request_id] = reply
        self.step(inputs.RequestReceived(request_id, request))
        return True

    def step(self, event: inputs.Input, now_ms: int = 0) -> None:
        self._carry_out(self.core.step(event, now_ms))

    def _carry_out(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.PersistElection | fx.AppendLog):
                self.storage.perform(effect)
        for effect in effects:
            if isinstance(effect, fx.Reply):
                self.replies[effect.request_id](effect.response)
        token = self.storage.last_token
        if self.storage.sync(token):
            self.step(inputs.Persisted(token))


def fetch_request(cluster_id: str | None = CLUSTER, **changes: Any) -> fetch.FetchRequest:
    asked = fetch.FetchPartition(
        current_leader_epoch=1, last_fetched_epoch=0, partition_max_bytes=1 << 20
    )
    for name, value in changes.items():
        setattr(asked, name, value)
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=5),
        max_wait_ms=500,
        max_bytes=1 << 20,
        topics=[
            fetch.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[asked])
        ],
    )


def old_fetch_request(cluster_id: str | None, version: int) -> fetch.FetchRequest:
    """Before version 15 the replica's id had another place; before 12 much could not be said."""
    request = fetch_request(cluster_id)
    if version < 12:
        request = fetch_request(None, current_leader_epoch=-1, last_fetched_epoch=-1)
    request.replica_state = fetch.ReplicaState()
    request.replica_id = 5
    return request


def voter_requests(cluster_id: str | None) -> dict[int, Request]:
    other = Uuid(bytes([2] * 16))
    return {
        80: add_voter.AddRaftVoterRequest(
            cluster_id=cluster_id,
            voter_id=2,
            voter_directory_id=other,
            timeout_ms=100,
            listeners=[add_voter.Listener(name="CONTROLLER", host="h", port=1)],
        ),
        81: remove_voter.RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=2, voter_directory_id=other
        ),
        82: update_voter.UpdateRaftVoterRequest(
            cluster_id=cluster_id,
            current_leader_epoch=1,
            voter_id=1,
            voter_directory_id=DIRECTORY,
            listeners=[update_voter.Listener(name="CONTROLLER", host="h", port=1)],
        ),
    }


def requests(cluster_id: str | None, version: int = 99) -> dict[int, Request]:
    """A fair request of each API, as a peer would send it to the leader of epoch 1."""
    return {
        1: fetch_request(cluster_id) if version >= 15 else old_fetch_request(cluster_id, version),
        52: vote.VoteRequest(
            cluster_id=cluster_id,
            topics=[
                vote.RequestTopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[vote.RequestPartitionData(replica_epoch=1, replica_id=2)],
                )
            ],
        ),
        53: begin.BeginQuorumEpochRequest(
            cluster_id=cluster_id,
            topics=[
                begin.RequestTopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[begin.RequestPartitionData(leader_id=1, leader_epoch=1)],
                )
            ],
        ),
        54: end.EndQuorumEpochRequest(
            cluster_id=cluster_id,
            topics=[
                end.RequestTopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[end.RequestPartitionData(leader_id=1, leader_epoch=1)],
                )
            ],
        ),
        55: describe_quorum.DescribeQuorumRequest(
            topics=[
                describe_quorum.RequestTopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[describe_quorum.RequestPartitionData()],
                )
            ]
        ),
        59: fetch_snapshot.FetchSnapshotRequest(
            cluster_id=cluster_id,
            topics=[
                fetch_snapshot.RequestTopicSnapshot(
                    name=METADATA_TOPIC,
                    partitions=[
                        fetch_snapshot.RequestPartitionSnapshot(
                            current_leader_epoch=1,
                            snapshot_id=fetch_snapshot.SnapshotId(end_offset=9, epoch=1),
                        )
                    ],
                )
            ],
        ),
        **voter_requests(cluster_id),
    }


VERSIONS = [
    (key, version)
    for key in requests(None)
    for version in range(API[key].min_version, API[key].max_version + 1)
]


def error_of(key: int, response: Any) -> ErrorCode:
    """The error of the partition, or of the whole answer."""
    if response.error_code or key >= 80:
        return ErrorCode(response.error_code)
    topics = response.responses if key == 1 else response.topics
    return ErrorCode(topics[0].partitions[0].error_code)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_version_is_answered_by_the_core(key: int, version: int) -> None:
    """KRF section 6: what can't be granted has its own error, never UNKNOWN_SERVER_ERROR."""
    bench = Bench(raft_handlers(Member(1)))
    expected = {
        59: ErrorCode.SNAPSHOT_NOT_FOUND,
        80: ErrorCode.UNSUPPORTED_VERSION,
        81: ErrorCode.UNSUPPORTED_VERSION,
    }
    if version < 12:
        expected[1] = ErrorCode.INVALID_REQUEST
    response = bench.ask(requests(None, version)[key], version)
    assert error_of(key, response) is expected.get(key, ErrorCode.NONE)


@pytest.mark.parametrize(
    ("key", "version"), [each for each in VERSIONS if each[0] != 55 and each[0] != 1]
)
def test_another_clusters_member_is_refused(key: int, version: int) -> None:
    """KRF-23: by each API that carries a cluster id."""
    bench = Bench(raft_handlers(Member(1)))
    response = bench.ask(requests("another")[key], version)
    assert error_of(key, response) is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("version", range(12, 19))
def test_a_fetch_from_another_cluster_is_refused(version: int) -> None:
    """KRF-23: the versions of Fetch that carry a cluster id."""
    bench = Bench(raft_handlers(Member(1)))
    response = bench.ask(requests("another", version)[1], version)
    assert error_of(1, response) is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("key", [1, 55, 59])
def test_who_does_not_lead_says_so(key: int) -> None:
    """KRF-51: with epoch and leader as it knows them."""
    bench = Bench(raft_handlers(Member(1, 2, 3)))
    request = requests(None)[key]
    if key == 1:
        request = fetch_request(current_leader_epoch=0)
    elif isinstance(request, fetch_snapshot.FetchSnapshotRequest):
        request.topics[0].partitions[0].current_leader_epoch = 0
    response: Any = bench.ask(request, API[key].max_version)
    assert error_of(key, response) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    if key == 1:
        leader = response.responses[0].partitions[0].current_leader
        assert (leader.leader_id, leader.leader_epoch) == (-1, 0)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (1, ErrorCode.INVALID_REQUEST),
        (52, ErrorCode.INVALID_REQUEST),
        (53, ErrorCode.INVALID_REQUEST),
        (54, ErrorCode.INVALID_REQUEST),
        (55, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (59, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_other_topics_are_not_served(key: int, error: ErrorCode) -> None:
    bench = Bench(raft_handlers(Member(1)))
    request: Any = requests(None)[key]
    request.topics = []
    assert error_of(key, bench.ask(request, API[key].max_version)) is error


def test_a_fetch_that_waits_outlives_its_frame() -> None:
    """KRF-48: it is answered when there is something new, long after its bytes are overwritten."""
    member = Member(1)
    bench = Bench(raft_handlers(member))
    frame = bytearray(
        payload(fetch_request(fetch_offset=1, last_fetched_epoch=1, high_watermark=1), 18)
    )
    answer = RecordingAnswer()
    bench.dispatcher.serve(bench.channel, memoryview(frame), answer)
    assert not answer.outcome
    frame[:] = b"\xff" * len(frame)
    member.step(inputs.Propose(1, 1, (b"news",)))
    assert answer.outcome == "sent"
    _, response = decode_response(fetch.FetchResponse, 18, answer.sent[4:])
    data = response.responses[0].partitions[0]
    assert b"news" in bytes(data.records)  # type: ignore[arg-type]
    quorum = member.core.quorum
    assert [key.node_id for key in quorum.role.progress] == [5]  # type: ignore[union-attr]


def test_the_quorum_is_described() -> None:
    """KRF-84: voters, and the observer that has just fetched."""
    bench = Bench(raft_handlers(Member(1)))
    bench.serve(payload(fetch_request(fetch_offset=0), 18))
    response: Any = bench.ask(requests(None)[55], 2)
    described = response.topics[0].partitions[0]
    assert (described.leader_id, described.leader_epoch) == (1, 1)
    assert [each.replica_id for each in described.current_voters] == [1]
    assert [each.replica_id for each in described.observers] == [5]
    assert [each.node_id for each in response.nodes] == [1]


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_member_that_has_left_says_so(key: int, version: int) -> None:
    member = Member(1)
    member.is_down = True
    response: Any = Bench(raft_handlers(member)).ask(requests(None, version)[key], version)
    if (key, version) < (1, 7):
        # These versions of Fetch have no place for it.
        assert response.responses == []
    else:
        assert response.error_code == ErrorCode.BROKER_NOT_AVAILABLE
