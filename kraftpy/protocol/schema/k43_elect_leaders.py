"""ElectLeaders: elect leaders now."""

from __future__ import annotations

from kraftpy.protocol.tables import (
    ALL,
    Request,
    Response,
    Struct,
    array,
    int8,
    int16,
    int32,
    string,
)


class TopicPartitions(Struct):
    topic: str = string(key=True)
    partitions: list[int] = array(int32)


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    """Elect preferred or, unclean, any leaders."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=ALL)
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    """What became of each partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
