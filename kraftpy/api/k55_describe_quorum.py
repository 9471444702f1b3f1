"""DescribeQuorum (55): who votes, who watches, and how far each has come (KIP-595, 836, 853)."""

from __future__ import annotations

from kraftpy.api.raft_handler import PartitionRaftHandler
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.protocol.schema.k55_describe_quorum import DescribeQuorumResponse
from kraftpy.security.acl_terms import AclOperation

__all__ = ["DescribeQuorumHandler"]

_FIRST_VERSION_WITH_DIRECTORIES = 2


class DescribeQuorumHandler(PartitionRaftHandler):
    api_key = 55
    cluster_operation = AclOperation.DESCRIBE

    def fit(self, response: DescribeQuorumResponse, version: int) -> None:
        if version >= _FIRST_VERSION_WITH_DIRECTORIES:
            return
        response.nodes = []
        for topic in response.topics:
            for partition in topic.partitions:
                for replica in (*partition.current_voters, *partition.observers):
                    replica.replica_directory_id = ZERO_UUID
