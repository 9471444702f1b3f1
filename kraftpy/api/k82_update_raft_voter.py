"""UpdateRaftVoter (82): a voter tells where it listens and what it supports (KIP-853)."""

from __future__ import annotations

from kraftpy.api.raft_handler import RaftHandler

__all__ = ["UpdateRaftVoterHandler"]


class UpdateRaftVoterHandler(RaftHandler):
    api_key = 82
