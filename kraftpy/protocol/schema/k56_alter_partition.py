"""AlterPartition: change in-sync replicas."""

from __future__ import annotations

from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.tables import (
    Request,
    Response,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    uuid,
)


class BrokerState(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class RequestPartitionData(Struct):
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, "2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class RequestTopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


class AlterPartitionRequest(Request, key=56, versions="2-3", flexible="0+"):
    """A partition leader asks to change the in-sync replicas."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[RequestTopicData] = array(RequestTopicData)


class ResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class ResponseTopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


class AlterPartitionResponse(Response, key=56, versions="2-3", flexible="0+"):
    """The partition state that holds from now on."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[ResponseTopicData] = array(ResponseTopicData)
