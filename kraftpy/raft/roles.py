"""What a node is at the moment, and what it may become.

A role object is made at a transition and thrown away at the next; it holds volatile facts only.
What must survive a crash (epoch, leader, vote) lies in the ElectionState beside it, so a role can't
contradict the disk. "Voted" is Unattached with a vote, "observer" is Unattached or Follower of a
node that is no voter.

TRANSITIONS is the whole truth about changes: `Quorum` refuses every other one, and the table in
docs/raft.md is made from it. Giving a vote changes the promise, not the role.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import ClassVar, NamedTuple, TypeAlias

from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.snapshot_content import IncomingSnapshot
from kraftpy.raft.voters import Endpoint, ReplicaKey, VoterSet

__all__ = [
    "TRANSITIONS",
    "Candidate",
    "Download",
    "Election",
    "EpochChange",
    "Follower",
    "Leader",
    "Progress",
    "Prospective",
    "Resigned",
    "Role",
    "RoleName",
    "Transition",
    "Unattached",
]


class RoleName(StrEnum):
    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


class EpochChange(Enum):
    SAME = "same epoch"
    HIGHER = "higher epoch"


class Transition(NamedTuple):
    origin: RoleName
    target: RoleName
    epoch: EpochChange
    when: str


_NEWER = "a message shows a higher epoch without a leader"
_NEW_LEADER = "a message shows the leader of a higher epoch"
_FIRST_LEADER = "a message names the leader of this epoch"

TRANSITIONS = (
    *(
        Transition(origin, RoleName.UNATTACHED, EpochChange.HIGHER, _NEWER)
        for origin in RoleName
        if origin is not RoleName.RESIGNED
    ),
    *(
        Transition(origin, RoleName.FOLLOWER, EpochChange.HIGHER, _NEW_LEADER)
        for origin in RoleName
    ),
    *(
        Transition(origin, RoleName.FOLLOWER, EpochChange.SAME, _FIRST_LEADER)
        for origin in (RoleName.UNATTACHED, RoleName.CANDIDATE)
    ),
    Transition(
        RoleName.UNATTACHED, RoleName.PROSPECTIVE, EpochChange.SAME, "the election timeout passed"
    ),
    Transition(
        RoleName.PROSPECTIVE, RoleName.CANDIDATE, EpochChange.HIGHER, "a majority would vote for it"
    ),
    Transition(
        RoleName.PROSPECTIVE,
        RoleName.FOLLOWER,
        EpochChange.SAME,
        "lost or timed out with a known leader, or a message names the leader",
    ),
    Transition(
        RoleName.PROSPECTIVE,
        RoleName.UNATTACHED,
        EpochChange.SAME,
        "lost or timed out without a leader",
    ),
    Transition(RoleName.CANDIDATE, RoleName.LEADER, EpochChange.SAME, "a majority voted for it"),
    Transition(
        RoleName.CANDIDATE,
        RoleName.PROSPECTIVE,
        EpochChange.SAME,
        "the election timeout passed, or a voter of higher rank stands in the same epoch",
    ),
    Transition(
        RoleName.FOLLOWER,
        RoleName.PROSPECTIVE,
        EpochChange.SAME,
        "the fetch timeout passed, or there is evidence that the leader is dead",
    ),
    Transition(
        RoleName.FOLLOWER,
        RoleName.FOLLOWER,
        EpochChange.SAME,
        "the leader's endpoints became known",
    ),
    Transition(
        RoleName.LEADER,
        RoleName.RESIGNED,
        EpochChange.SAME,
        "shutdown, asked to, no majority fetches, or removed from the voters",
    ),
    Transition(
        RoleName.RESIGNED,
        RoleName.UNATTACHED,
        EpochChange.HIGHER,
        "its election timeout passed, or " + _NEWER,
    ),
)


@dataclass(slots=True)
class Unattached:
    """Knows no leader that it could fetch from."""

    name: ClassVar = RoleName.UNATTACHED
    election_deadline_ms: int
    # Voters that answered since the start, in the order of their answers.
    reached: dict[int, None] = field(default_factory=dict)


@dataclass(slots=True)
class Election:
    """The count of one election, over the voters as they were when it began."""

    voters: VoterSet
    granted: dict[int, None] = field(default_factory=dict)
    rejected: dict[int, None] = field(default_factory=dict)

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    @property
    def is_lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < self.voters.majority

    def unanswered(self) -> list[int]:
        return [
            node_id
            for node_id in self.voters.ids
            if node_id not in self.granted and node_id not in self.rejected
        ]


@dataclass(slots=True)
class Prospective:
    """Asks whether an election could be won, before it disturbs anybody (KIP-996)."""

    name: ClassVar = RoleName.PROSPECTIVE
    election: Election
    election_deadline_ms: int
    # Where the last leader of this epoch was reached, to return to it.
    leader_endpoints: tuple[Endpoint, ...]
    # Until then a voter of lower rank, which asked at the same time, may go first.
    yields_until_ms: int | None = None


@dataclass(slots=True)
class Candidate:
    """Asks for votes in an epoch of its own."""

    name: ClassVar = RoleName.CANDIDATE
    election: Election
    election_deadline_ms: int


@dataclass(slots=True)
class Progress:
    """What a leader knows of a replica."""

    key: ReplicaKey
    end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    # The leader's end when this replica last fetched: reaching it later proves it kept up then.
    end_at_last_fetch: int = -1


@dataclass(slots=True)
class Leader:
    """Leads from `epoch_start_offset` on."""

    name: ClassVar = RoleName.LEADER
    epoch_start_offset: int
    granting: tuple[int, ...]
    check_quorum_deadline_ms: int
    begin_epoch_deadline_ms: int
    # None until a record of this epoch is on a majority: older ones never commit by counting.
    high_watermark: int | None = None
    progress: dict[ReplicaKey, Progress] = field(default_factory=dict)
    acknowledged: dict[int, None] = field(default_factory=dict)
    fetched_since_check: dict[int, None] = field(default_factory=dict)


@dataclass(slots=True)
class Download:
    """A snapshot on its way from the leader."""

    snapshot_id: SnapshotId
    position: int = 0
    content: IncomingSnapshot = field(default_factory=IncomingSnapshot)


@dataclass(slots=True)
class Follower:
    """Fetches from a leader."""

    name: ClassVar = RoleName.FOLLOWER
    leader_endpoints: tuple[Endpoint, ...]
    fetch_deadline_ms: int
    update_voter_deadline_ms: int
    has_fetched: bool = False
    leader_is_dead: bool = False
    has_updated_voter: bool = False
    download: Download | None = None


@dataclass(slots=True)
class Resigned:
    """Led this epoch and never will again; tells the others to look for a successor."""

    name: ClassVar = RoleName.RESIGNED
    election_deadline_ms: int
    successors: tuple[ReplicaKey, ...]
    acknowledged: dict[int, None] = field(default_factory=dict)


Role: TypeAlias = Unattached | Prospective | Candidate | Leader | Follower | Resigned
