"""ConsumerGroupHeartbeat: the consumer group protocol."""

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
    struct,
    uuid,
)


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    """KIP-848: life sign, subscription and owned partitions of a member."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable=ALL, default=None)
    rack_id: str | None = string(nullable=ALL, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable=ALL, default=None)
    subscribed_topic_regex: str | None = string("1+", nullable=ALL, default=None)
    server_assignor: str | None = string(nullable=ALL, default=None)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable=ALL, default=None
    )


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    """KIP-848: the member's epoch and target assignment."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL, default=None)
    member_id: str | None = string(nullable=ALL, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable=ALL, default=None)
