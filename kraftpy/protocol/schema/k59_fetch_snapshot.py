"""FetchSnapshot: read a metadata snapshot."""

from __future__ import annotations

from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.tables import (
    ALL,
    Part,
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
    uint16,
    uuid,
)


class SnapshotId(Struct):
    end_offset: int = int64()
    epoch: int = int32()


class RequestPartitionSnapshot(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: Uuid = uuid("1+", tag=0, ignorable=True)


class RequestTopicSnapshot(Struct):
    name: str = string()
    partitions: list[RequestPartitionSnapshot] = array(RequestPartitionSnapshot)


class FetchSnapshotRequest(Request, key=59, versions="0-1", flexible="0+"):
    """Raft: read a chunk of a metadata snapshot."""

    cluster_id: str | None = string(nullable=ALL, tag=0, default=None)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2147483647)
    topics: list[RequestTopicSnapshot] = array(RequestTopicSnapshot)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class ResponsePartitionSnapshot(Struct):
    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Part = record_data()


class ResponseTopicSnapshot(Struct):
    name: str = string()
    partitions: list[ResponsePartitionSnapshot] = array(ResponsePartitionSnapshot)


class NodeEndpoint(Struct):
    node_id: int = int32(key=True)
    host: str = string()
    port: int = uint16()


class FetchSnapshotResponse(Response, key=59, versions="0-1", flexible="0+"):
    """Raft: the chunk."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[ResponseTopicSnapshot] = array(ResponseTopicSnapshot)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
