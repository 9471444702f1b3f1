"""The table of transitions is the truth: what it lists works, everything else raises (KRF-25)."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from raft_cluster import config_of, endpoint_of, key_of, voter_of

from kraftpy.raft.effects import LeadershipLost, PersistElection
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.memory_storage import MemoryStorage
from kraftpy.raft.quorum import InconsistentLeaderError, Quorum, RaftConfig
from kraftpy.raft.roles import (
    TRANSITIONS,
    Candidate,
    Election,
    EpochChange,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    RoleName,
    Unattached,
)
from kraftpy.raft.voters import VoterSet
from kraftpy.world import InternalInvariant

VOTERS = VoterSet(voter_of(node_id) for node_id in (1, 2, 3))
LEGAL = {(each.origin, each.target, each.epoch) for each in TRANSITIONS}
EPOCH = 5


def role_named(name: RoleName) -> Role:
    election = Election(VOTERS, {1: None, 2: None})
    return {
        RoleName.UNATTACHED: Unattached(9_000),
        RoleName.PROSPECTIVE: Prospective(election, 9_000, ()),
        RoleName.CANDIDATE: Candidate(election, 9_000),
        RoleName.LEADER: Leader(0, (1, 2), 9_000, 9_000),
        RoleName.FOLLOWER: Follower((endpoint_of(2),), 9_000, 9_000),
        RoleName.RESIGNED: Resigned(9_000, ()),
    }[name]


def quorum_in(name: RoleName, config: RaftConfig | None = None) -> Quorum:
    config = config or config_of(1, static_voters=VOTERS)
    quorum = Quorum(config, MemoryStorage().recover(config.static_voters), Random(1))
    leader = {RoleName.LEADER: 1, RoleName.RESIGNED: 1, RoleName.FOLLOWER: 2}.get(name, -1)
    voted = key_of(1) if name in (RoleName.CANDIDATE, RoleName.LEADER) else None
    quorum.election = ElectionState(EPOCH, leader, voted)
    quorum.role = role_named(name)
    return quorum


@pytest.mark.parametrize(
    ("origin", "target", "change"), list(product(RoleName, RoleName, EpochChange))
)
def test_a_transition_is_legal_if_the_table_says_so(
    origin: RoleName, target: RoleName, change: EpochChange
) -> None:
    quorum = quorum_in(origin)
    epoch = EPOCH + (change is EpochChange.HIGHER)
    new = ElectionState(epoch, quorum.election.leader_id, quorum.election.voted)
    if (origin, target, change) in LEGAL:
        quorum._change(role_named(target), new)
        assert quorum.role.name is target
        written = [each for each in quorum.effects if isinstance(each, PersistElection)]
        assert bool(written) is (change is EpochChange.HIGHER)
        lost = any(isinstance(each, LeadershipLost) for each in quorum.effects)
        assert lost is (origin is RoleName.LEADER)
    else:
        with pytest.raises(InternalInvariant, match="raft-transition"):
            quorum._change(role_named(target), new)


# Written out once more by hand, from kraft.md 5.2, because the table could be wrong itself.
ILLEGAL = [
    (RoleName.LEADER, RoleName.PROSPECTIVE, EpochChange.SAME),
    (RoleName.PROSPECTIVE, RoleName.PROSPECTIVE, EpochChange.SAME),
    (RoleName.UNATTACHED, RoleName.CANDIDATE, EpochChange.HIGHER),
    (RoleName.FOLLOWER, RoleName.CANDIDATE, EpochChange.HIGHER),
    (RoleName.CANDIDATE, RoleName.CANDIDATE, EpochChange.HIGHER),
    (RoleName.PROSPECTIVE, RoleName.LEADER, EpochChange.SAME),
    (RoleName.FOLLOWER, RoleName.LEADER, EpochChange.SAME),
    (RoleName.LEADER, RoleName.FOLLOWER, EpochChange.SAME),
    (RoleName.FOLLOWER, RoleName.UNATTACHED, EpochChange.SAME),
    (RoleName.UNATTACHED, RoleName.UNATTACHED, EpochChange.SAME),
    (RoleName.RESIGNED, RoleName.FOLLOWER, EpochChange.SAME),
    (RoleName.RESIGNED, RoleName.LEADER, EpochChange.SAME),
    (RoleName.LEADER, RoleName.RESIGNED, EpochChange.HIGHER),
]


@pytest.mark.parametrize("transition", ILLEGAL)
def test_the_table_does_not_allow(
    transition: tuple[RoleName, RoleName, EpochChange],
) -> None:
    assert transition not in LEGAL


@pytest.mark.parametrize("name", list(RoleName))
def test_an_epoch_never_falls(name: RoleName) -> None:
    quorum = quorum_in(name)
    with pytest.raises(InternalInvariant):
        quorum._change(role_named(RoleName.UNATTACHED), ElectionState(EPOCH - 1))


@pytest.mark.parametrize("name", [RoleName.UNATTACHED, RoleName.FOLLOWER])
def test_an_observer_does_not_campaign(name: RoleName) -> None:
    """KRF-26"""
    quorum = quorum_in(name, config_of(4, static_voters=VOTERS))
    with pytest.raises(InternalInvariant, match="raft-observer-campaigns"):
        quorum.become_prospective()


def test_nobody_follows_itself() -> None:
    quorum = quorum_in(RoleName.UNATTACHED)
    with pytest.raises(InternalInvariant, match="raft-follows-itself"):
        quorum.become_follower(EPOCH + 1, 1, (endpoint_of(1),))


def test_a_second_leader_of_an_epoch_is_a_broken_protocol() -> None:
    """KRF-35"""
    quorum = quorum_in(RoleName.FOLLOWER)
    with pytest.raises(InconsistentLeaderError, match="raft-two-leaders"):
        quorum.adopt(EPOCH, 3, (endpoint_of(3),))


def test_a_node_that_does_not_lead_is_not_told_that_it_does() -> None:
    """KRF-35"""
    quorum = quorum_in(RoleName.UNATTACHED)
    with pytest.raises(InconsistentLeaderError, match="raft-two-leaders"):
        quorum.adopt(EPOCH, 1, (endpoint_of(1),))


def test_nobody_votes_for_itself_by_granting() -> None:
    quorum = quorum_in(RoleName.UNATTACHED)
    with pytest.raises(InternalInvariant, match="raft-vote-illegal"):
        quorum.vote_for(key_of(1))


def test_a_candidate_leads_only_with_a_majority() -> None:
    quorum = quorum_in(RoleName.CANDIDATE)
    assert isinstance(quorum.role, Candidate)
    quorum.role.election.granted.pop(2)
    with pytest.raises(InternalInvariant, match="raft-leader-without-majority"):
        quorum.become_leader()


def test_the_vote_survives_within_its_epoch_and_not_beyond() -> None:
    """5.2: kept over a same-epoch transition, dropped with a higher epoch."""
    quorum = quorum_in(RoleName.UNATTACHED)
    quorum.vote_for(key_of(3))
    quorum.become_prospective()
    quorum.become_unattached(EPOCH)
    assert quorum.election.voted == key_of(3)
    quorum.become_follower(EPOCH, 3, (endpoint_of(3),))
    assert quorum.election == ElectionState(EPOCH, 3, key_of(3))
    quorum.become_unattached(EPOCH + 1)
    assert quorum.election == ElectionState(EPOCH + 1)


def test_timeouts_are_drawn_from_t_to_2t() -> None:
    """KRF-13"""
    quorum = quorum_in(RoleName.UNATTACHED)
    draws = [quorum.election_timeout() for _ in range(2_000)]
    assert min(draws) >= 1_000
    assert max(draws) < 2_000
    assert len(set(draws)) > 100
    assert max(draws) > 1_950
