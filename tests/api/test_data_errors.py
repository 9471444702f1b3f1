"""A failure of our own in the data path: each API says so in each of its versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from api.data_rig import broker_on
from broker.replica_rig import Rig, topic

from kraftpy.api.api_keys import DATA_APIS
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftpy.protocol.schema.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from kraftpy.protocol.schema.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kraftpy.protocol.schema.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kraftpy.protocol.schema.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kraftpy.protocol.schema.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kraftpy.protocol.schema.k61_describe_producers import DescribeProducersRequest, TopicRequest
from kraftpy.protocol.tables import Request

REQUESTS: dict[int, Request] = {
    0: ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData()])]
    ),
    1: FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])]),
    2: ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])],
    ),
    21: DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition()])]
    ),
    23: OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition()])]
    ),
    34: AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path="/data/a", topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])]
            )
        ]
    ),
    61: DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])]),
}
# DescribeLogDirs asks no replica.
CASES = [
    (key, version)
    for key in DATA_APIS
    if key != 35
    for version in range(API[key].min_version, API[key].max_version + 1)
]


def codes_in(message: Any) -> Iterator[int]:
    """All error codes of an answer, wherever they are."""
    for field in type(message).FIELDS:
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield value
        elif isinstance(value, list):
            for each in value:
                if hasattr(type(each), "FIELDS"):
                    yield from codes_in(each)


@pytest.mark.parametrize(("key", "version"), CASES)
async def test_our_own_failures_are_reported(
    key: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NET-67: and whoever sent the request keeps the connection."""
    rig = Rig()
    async with broker_on(rig) as broker:
        await rig.apply(*topic("t", 1))

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(rig.replicas, "lookup", fail)
        monkeypatch.setattr(rig.replicas, "lookup_by_id", fail)
        response = broker.ask(REQUESTS[key], version)
        codes = list(codes_in(response))
        assert codes[-1] == ErrorCode.UNKNOWN_SERVER_ERROR
        handler = broker.handler(key)
        assert list(handler.error_codes(response)) == codes


def test_every_api_is_here() -> None:
    assert {*REQUESTS, 35} == {*DATA_APIS}
