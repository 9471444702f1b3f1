"""Vote (52): a voter asks for this node's vote, or whether it would get it (KIP-595, 996)."""

from __future__ import annotations

from kraftpy.api.raft_handler import PartitionRaftHandler

__all__ = ["VoteHandler"]


class VoteHandler(PartitionRaftHandler):
    api_key = 52
