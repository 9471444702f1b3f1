"""The quorum's timings: each is changed, and the core behaves accordingly.

That each key reaches its field is seen in tests/raft/test_raft_settings.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from raft.raft_cluster import Cluster

from kraftpy.protocol.schema import k54_end_quorum_epoch as end
from kraftpy.raft.elections import Elections
from kraftpy.raft.roles import Follower, Leader


def cluster_with(**changes: Any) -> Cluster:
    cluster = Cluster()
    for node in cluster.nodes.values():
        node.config = replace(node.config, **changes)
    cluster.start()
    return cluster


def elected_with(**changes: Any) -> Cluster:
    cluster = cluster_with(**changes)
    cluster.advance(30_000)
    assert isinstance(cluster[cluster.leader()].quorum.role, Leader)
    return cluster


def silenced(cluster: Cluster) -> int:
    """The leader hangs: nothing comes from it, and nothing is refused either."""
    leader = cluster.leader()
    for other in cluster.nodes:
        cluster.cut |= {(leader, other), (other, leader)}
    return leader


@pytest.mark.parametrize(("timeout_ms", "has_moved"), [(2_000, True), (60_000, False)])
def test_fetch_timeout(timeout_ms: int, has_moved: bool) -> None:
    """controller.quorum.fetch.timeout.ms: how long followers believe in a silent leader."""
    cluster = elected_with(fetch_timeout_ms=timeout_ms)
    leader = silenced(cluster)
    cluster.advance(15_000)
    others = [each for each in cluster.nodes if each != leader]
    leads = any(isinstance(cluster[each].quorum.role, Leader) for each in others)
    assert leads is has_moved


@pytest.mark.parametrize("timeout_ms", [1_000, 50_000])
def test_election_timeout(timeout_ms: int) -> None:
    """controller.quorum.election.timeout.ms: a voter that reaches nobody waits from one to two of
    them before it asks for votes.
    """
    cluster = Cluster()
    node = cluster.nodes[1]
    node.config = replace(node.config, election_timeout_ms=timeout_ms)
    cluster.cut = {(1, 2), (1, 3), (2, 1), (3, 1)}
    cluster.start(1)
    cluster.advance(timeout_ms - 1)
    assert not any("Vote" in line for line in cluster.lines)
    cluster.advance(timeout_ms + 1)
    assert any("1 -> 2 PreVote" in line for line in cluster.lines)


@pytest.mark.parametrize("longest_ms", [1_000, 8_000])
def test_election_backoff(longest_ms: int) -> None:
    """controller.quorum.election.backoff.max.ms: who is not among the successors of a leader that
    resigns lets them try for that long.
    """
    cluster = elected_with(election_backoff_max_ms=longest_ms)
    leader = cluster.leader()
    follower = next(each for each in cluster.nodes if each != leader)
    quorum = cluster[follower].quorum
    asked = end.RequestPartitionData(
        leader_id=leader, leader_epoch=quorum.epoch, preferred_successors=[98, 99]
    )
    topic = end.RequestTopicData(topic_name="__cluster_metadata", partitions=[asked])
    Elections(quorum).on_end_request(end.EndQuorumEpochRequest(topics=[topic]))
    assert isinstance(quorum.role, Follower)
    assert quorum.role.fetch_deadline_ms - quorum.now_ms == longest_ms


def test_request_timeout() -> None:
    """controller.quorum.request.timeout.ms: a question without an answer is asked again then."""
    asked = {}
    for timeout_ms in (500, 4_000):
        cluster = elected_with(request_timeout_ms=timeout_ms, fetch_timeout_ms=60_000)
        leader = silenced(cluster)
        follower = next(each for each in cluster.nodes if each != leader)
        cluster.lines.clear()
        cluster.advance(10_000)
        asked[timeout_ms] = sum(f"{follower} -> " in line for line in cluster.lines)
    assert asked[500] > 2 * asked[4_000] > 0


def test_retry_backoff() -> None:
    """controller.quorum.retry.backoff.ms: the pause after a question that failed."""
    asked = {}
    for backoff_ms in (20, 2_000):
        cluster = elected_with(retry_backoff_ms=backoff_ms, fetch_timeout_ms=60_000)
        leader = cluster.leader()
        follower = next(each for each in cluster.nodes if each != leader)
        # No connection to it breaks, so nobody takes it for dead; it only refuses to answer.
        cluster.nodes[leader].core = None
        cluster.lines.clear()
        cluster.advance(5_000)
        asked[backoff_ms] = sum(f"{follower} -> {leader}" in line for line in cluster.lines)
    assert asked[20] > 3 * asked[2_000] > 0
