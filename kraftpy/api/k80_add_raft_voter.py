"""AddRaftVoter (80): make an observer a voter (KIP-853)."""

from __future__ import annotations

from kraftpy.api.raft_handler import RaftHandler
from kraftpy.security.acl_terms import AclOperation

__all__ = ["AddRaftVoterHandler"]


class AddRaftVoterHandler(RaftHandler):
    api_key = 80
    cluster_operation = AclOperation.ALTER
