"""Vote: Raft elections."""

from __future__ import annotations

from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.tables import (
    ALL,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class RequestPartitionData(Struct):
    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: Uuid = uuid("1+", ignorable=True)
    voter_directory_id: Uuid = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean("2+")


class RequestTopicData(Struct):
    topic_name: str = string()
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


class VoteRequest(Request, key=52, versions="0-2", flexible="0+"):
    """Raft: ask for a vote, or for a pre-vote."""

    cluster_id: str | None = string(nullable=ALL, default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[RequestTopicData] = array(RequestTopicData)


class ResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


class ResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32(key=True)
    host: str = string()
    port: int = uint16()


class VoteResponse(Response, key=52, versions="0-2", flexible="0+"):
    """Raft: the vote, and the leader if there is one."""

    error_code: int = int16()
    topics: list[ResponseTopicData] = array(ResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
