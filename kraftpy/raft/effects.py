"""Everything that a Raft core can want. The shell carries effects out in the order of the list.

Durability is in the types. An effect that must become durable has a `token`; tokens grow by one.
An effect that leaves the node has `after`: it must not leave before `Persisted(after)`, or a
higher token, was reported back. Zero waits for nothing. Whatever depends on a promise (the epoch,
a vote, the end of the log) therefore can't be said before the promise is on the disk, and the
shell may still collect many tokens under one fsync.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kraftpy.protocol.errors import ErrorCode
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.inputs import RaftRequest, RaftResponse
from kraftpy.raft.log_state import Batch, SnapshotId
from kraftpy.raft.voters import Endpoint
from kraftpy.world import Buffer, quickly_made

__all__ = [
    "AppendLog",
    "DeleteSnapshots",
    "DropDownload",
    "Effect",
    "HighWatermarkAdvanced",
    "InstallSnapshot",
    "LeaderChanged",
    "LeadershipLost",
    "PeerFault",
    "PersistElection",
    "ProposalRefused",
    "Proposed",
    "Reply",
    "Send",
    "ShutdownFinished",
    "TrimLog",
    "TruncateLog",
    "WriteSnapshotChunk",
]


@quickly_made
@dataclass(frozen=True, slots=True)
class Send:
    """Ask a node; its answer, or the failure, is reported with the correlation id."""

    node_id: int
    address: Endpoint
    correlation_id: int
    request: RaftRequest
    after: int


@quickly_made
@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a request that was received."""

    request_id: int
    response: RaftResponse
    after: int


@quickly_made
@dataclass(frozen=True, slots=True)
class PersistElection:
    """Write `quorum-state`."""

    election: ElectionState
    kraft_version: int
    voter_ids: tuple[int, ...]
    token: int


@quickly_made
@dataclass(frozen=True, slots=True)
class AppendLog:
    """Append these batches behind the log's end."""

    batches: tuple[Batch, ...]
    token: int


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Remove everything at or behind this offset."""

    end_offset: int
    token: int


@dataclass(frozen=True, slots=True)
class TrimLog:
    """The log begins here now; whole segments below may go."""

    start_offset: int


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Write a part of a snapshot that is being downloaded; position 0 begins it anew."""

    snapshot_id: SnapshotId
    position: int
    data: Buffer


@dataclass(frozen=True, slots=True)
class DropDownload:
    """Remove the unfinished download."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The download is complete: freeze it, empty the log and restart it at the snapshot's end.

    The state machine loads the snapshot, and goes on with what is committed behind it.
    """

    snapshot_id: SnapshotId
    token: int


@dataclass(frozen=True, slots=True)
class DeleteSnapshots:
    """Remove these frozen snapshots."""

    snapshot_ids: tuple[SnapshotId, ...]


@quickly_made
@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Everything below this offset is committed; hand it to the state machine."""

    offset: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Tell the state machine who leads.

    For each epoch at most one call without a leader and one with; this node's own leadership only
    when everything before its epoch is committed, hence after the HighWatermarkAdvanced for that.
    """

    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """This node no longer leads; what it appended and did not see committed is in doubt."""

    epoch: int


@quickly_made
@dataclass(frozen=True, slots=True)
class Proposed:
    """The proposal is in the leader's log and ends at this offset; commit will tell the rest."""

    proposal_id: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class ProposalRefused:
    """Nothing was appended. The message is for the one who asked, if there is more to say."""

    proposal_id: int
    error: ErrorCode
    message: str = ""


@dataclass(frozen=True, slots=True)
class PeerFault:
    """A peer said what no sound one says; for the log. It was not believed, and all goes on."""

    node_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class ShutdownFinished:
    """Nobody needs this node any longer."""


Effect: TypeAlias = (
    Send
    | Reply
    | PersistElection
    | AppendLog
    | TruncateLog
    | TrimLog
    | WriteSnapshotChunk
    | DropDownload
    | InstallSnapshot
    | DeleteSnapshots
    | HighWatermarkAdvanced
    | LeaderChanged
    | LeadershipLost
    | Proposed
    | ProposalRefused
    | PeerFault
    | ShutdownFinished
)
