"""BeginQuorumEpoch (53): a voter says that it leads the epoch (KIP-595)."""

from __future__ import annotations

from kraftpy.api.raft_handler import PartitionRaftHandler

__all__ = ["BeginQuorumEpochHandler"]


class BeginQuorumEpochHandler(PartitionRaftHandler):
    api_key = 53
