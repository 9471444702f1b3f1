"""EndQuorumEpoch (54): the leader resigns, and names its successors (KIP-595)."""

from __future__ import annotations

from kraftpy.api.raft_handler import PartitionRaftHandler

__all__ = ["EndQuorumEpochHandler"]


class EndQuorumEpochHandler(PartitionRaftHandler):
    api_key = 54
