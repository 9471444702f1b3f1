"""Everything that can happen to a Raft core.

The shell reports facts, in the order in which they happened, and never asks a question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k01_fetch import FetchRequest, FetchResponse
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftpy.protocol.schema.k52_vote import VoteRequest, VoteResponse
from kraftpy.protocol.schema.k53_begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from kraftpy.protocol.schema.k54_end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from kraftpy.protocol.schema.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from kraftpy.protocol.schema.k59_fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftpy.protocol.schema.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kraftpy.protocol.schema.k81_remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from kraftpy.protocol.schema.k82_update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from kraftpy.raft.log_state import SnapshotId
from kraftpy.world import quickly_made

__all__ = [
    "Input",
    "PeerUnreachable",
    "Persisted",
    "Propose",
    "RaftRequest",
    "RaftResponse",
    "RequestFailed",
    "RequestReceived",
    "Resign",
    "ResponseReceived",
    "ShutDown",
    "SnapshotFrozen",
    "SnapshotsExpired",
    "TimeAdvanced",
    "UpgradeKraftVersion",
]

RaftRequest: TypeAlias = (
    FetchRequest
    | VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | DescribeQuorumRequest
    | FetchSnapshotRequest
    | AddRaftVoterRequest
    | RemoveRaftVoterRequest
    | UpdateRaftVoterRequest
    | ApiVersionsRequest
)
RaftResponse: TypeAlias = (
    FetchResponse
    | VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | DescribeQuorumResponse
    | FetchSnapshotResponse
    | AddRaftVoterResponse
    | RemoveRaftVoterResponse
    | UpdateRaftVoterResponse
    | ApiVersionsResponse
)


@quickly_made
@dataclass(frozen=True, slots=True)
class RequestReceived:
    """Somebody asks; exactly one Reply with this id will follow, perhaps much later."""

    request_id: int
    request: RaftRequest


@quickly_made
@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The answer to the Send with this correlation id."""

    node_id: int
    correlation_id: int
    response: RaftResponse


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """There will be no answer to the Send with this correlation id.

    BROKER_NOT_AVAILABLE for a lost connection, NETWORK_EXCEPTION for a failed authentication,
    UNSUPPORTED_VERSION when the peer does not speak a version that could carry the request.
    """

    node_id: int
    correlation_id: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class PeerUnreachable:
    """Evidence of a death: the connection broke and the node's port refuses a new one.

    Never to be reported for a slow peer, a time-out or a lost packet (design, decision 14).
    """

    node_id: int


@quickly_made
@dataclass(frozen=True, slots=True)
class Persisted:
    """Everything with this token or a lower one is on the disk to stay."""

    token: int


@dataclass(frozen=True, slots=True)
class TimeAdvanced:
    """Nothing happened but time."""


@quickly_made
@dataclass(frozen=True, slots=True)
class Propose:
    """The state machine wants these record values appended as one batch of `epoch`."""

    proposal_id: int
    epoch: int
    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class UpgradeKraftVersion:
    """An operator wants this kraft.version; answered as a proposal of `epoch` is."""

    proposal_id: int
    epoch: int
    kraft_version: int


@dataclass(frozen=True, slots=True)
class Resign:
    """The state machine can't lead in this epoch any longer."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ShutDown:
    """Leave in good order, until `deadline_ms` at the latest."""

    deadline_ms: int


@dataclass(frozen=True, slots=True)
class SnapshotFrozen:
    """The state machine's own snapshot is complete and durable."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotsExpired:
    """Snapshots older than this one, and the log below it, are not to be kept."""

    oldest_kept: SnapshotId


Input: TypeAlias = (
    RequestReceived
    | ResponseReceived
    | RequestFailed
    | PeerUnreachable
    | Persisted
    | TimeAdvanced
    | Propose
    | UpgradeKraftVersion
    | Resign
    | ShutDown
    | SnapshotFrozen
    | SnapshotsExpired
)
