"""The APIs of the quorum, as every controller's listener serves them."""

from __future__ import annotations

from kraftpy.api.handler import Handler
from kraftpy.api.k01_fetch_metadata import FetchMetadataHandler
from kraftpy.api.k52_vote import VoteHandler
from kraftpy.api.k53_begin_quorum_epoch import BeginQuorumEpochHandler
from kraftpy.api.k54_end_quorum_epoch import EndQuorumEpochHandler
from kraftpy.api.k55_describe_quorum import DescribeQuorumHandler
from kraftpy.api.k59_fetch_snapshot import FetchSnapshotHandler
from kraftpy.api.k80_add_raft_voter import AddRaftVoterHandler
from kraftpy.api.k81_remove_raft_voter import RemoveRaftVoterHandler
from kraftpy.api.k82_update_raft_voter import UpdateRaftVoterHandler
from kraftpy.api.raft_handler import QuorumMember

__all__ = ["raft_handlers"]


def raft_handlers(member: QuorumMember) -> list[Handler]:
    return [
        FetchMetadataHandler(member),
        VoteHandler(member),
        BeginQuorumEpochHandler(member),
        EndQuorumEpochHandler(member),
        DescribeQuorumHandler(member),
        FetchSnapshotHandler(member),
        AddRaftVoterHandler(member),
        RemoveRaftVoterHandler(member),
        UpdateRaftVoterHandler(member),
    ]
