"""RemoveRaftVoter (81): let a voter go (KIP-853)."""

from __future__ import annotations

from kraftpy.api.raft_handler import RaftHandler
from kraftpy.security.acl_terms import AclOperation

__all__ = ["RemoveRaftVoterHandler"]


class RemoveRaftVoterHandler(RaftHandler):
    api_key = 81
    cluster_operation = AclOperation.ALTER
