"""EndQuorumEpoch: a Raft leader resigns."""

from __future__ import annotations

from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.tables import (
    ALL,
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    string,
    uint16,
    uuid,
)


class ReplicaInfo(Struct):
    candidate_id: int = int32()
    candidate_directory_id: Uuid = uuid()


class RequestPartitionData(Struct):
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array(int32, "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", ignorable=True)


class RequestTopicData(Struct):
    topic_name: str = string()
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


class LeaderEndpoint(Struct):
    name: str = string(key=True)
    host: str = string()
    port: int = uint16()


class EndQuorumEpochRequest(Request, key=54, versions="0-1", flexible="1+"):
    """Raft: a leader resigns and names successors."""

    cluster_id: str | None = string(nullable=ALL, default=None)
    topics: list[RequestTopicData] = array(RequestTopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


class ResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class ResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32(key=True)
    host: str = string()
    port: int = uint16()


class EndQuorumEpochResponse(Response, key=54, versions="0-1", flexible="1+"):
    """Raft: the receiver's view of leader and epoch."""

    error_code: int = int16()
    topics: list[ResponseTopicData] = array(ResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
