"""DeleteRecords, DescribeLogDirs, AlterReplicaLogDirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import trio
from api.data_rig import Asked, Broker, broker_on, followed, values
from broker.replica_rig import CLUSTER_ID, Rig, topic, topic_id

from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kraftpy.protocol.schema.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kraftpy.protocol.schema.k35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from kraftpy.records.builder import BatchBuilder


def batch(count: int = 1) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(None, b"v%d" % number, timestamp_ms=1_767_225_600_000)
    return bytes(builder.build())


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """Two data directories; `alone` is on broker 1 only, `t` is led by it for 2 and 3."""
    rig = Rig(directories=2)
    async with broker_on(rig) as broker:
        rig.logs.configure(
            LogManagerSettings(
                directories=rig.paths,
                cluster_id=CLUSTER_ID,
                node_id=rig.broker_id,
                cordoned_directories=("/data/b",),
            )
        )
        await rig.apply(
            *topic("t", 1, 2), *topic("alone", 1, replicas=(1,)), *topic("off", 2, replicas=(2, 3))
        )
        yield broker


# DeleteRecords.


def begin_deleting(broker: Broker, *parts: tuple[str, int, int], timeout_ms: int = 1000) -> Asked:
    request = DeleteRecordsRequest(
        timeout_ms=timeout_ms,
        topics=[
            DeleteRecordsTopic(
                name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
            )
            for name, index, offset in parts
        ],
    )
    return broker.begin(request, 2)


def outcomes(asked: Asked) -> list[tuple[str, int]]:
    return [
        (ErrorCode(each.error_code).name, each.low_watermark)
        for answered in asked.response.topics
        for each in answered.partitions
    ]


async def test_deleting_up_to_an_offset(broker: Broker) -> None:
    broker.produce("alone", batch(5))
    assert outcomes(begin_deleting(broker, ("alone", 0, 2))) == [("NONE", 2)]
    assert outcomes(begin_deleting(broker, ("alone", 0, 1))) == [("NONE", 2)]
    assert outcomes(begin_deleting(broker, ("alone", 0, 6))) == [("OFFSET_OUT_OF_RANGE", -1)]
    assert outcomes(begin_deleting(broker, ("alone", 0, -2))) == [("OFFSET_OUT_OF_RANGE", -1)]
    assert broker.fetch("alone", 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert outcomes(begin_deleting(broker, ("alone", 0, -1))) == [("NONE", 5)]
    assert broker.rig.partition("alone").log.log_start_offset == 5


async def test_deletions_fail_one_by_one(broker: Broker) -> None:
    broker.produce("alone", batch(5))
    await broker.rig.apply(*topic("__consumer_offsets", 1, replicas=(1,)))
    await broker.rig.apply(*topic("compacted", 1, replicas=(1,)))
    log = broker.rig.partition("compacted").log
    log.config = replace(log.config, is_compacted=True, is_deleted=False)  # type: ignore[misc]
    asked = begin_deleting(
        broker,
        ("nobody", 0, 0),
        ("t", 1, 0),
        ("off", 0, 0),
        ("__consumer_offsets", 0, 0),
        ("compacted", 0, 0),
        ("alone", 0, 3),
    )
    assert outcomes(asked) == [
        ("UNKNOWN_TOPIC_OR_PARTITION", -1),
        ("NOT_LEADER_OR_FOLLOWER", -1),
        ("NOT_LEADER_OR_FOLLOWER", -1),
        ("INVALID_TOPIC_EXCEPTION", -1),
        ("POLICY_VIOLATION", -1),
        ("NONE", 3),
    ]


async def test_deleting_waits_for_all_replicas(broker: Broker, autojump_clock: object) -> None:
    """PUR-57, REP-8: until each of them has said that its log begins there."""
    broker.produce("t", batch(5))
    for each in (2, 3):
        broker.fetch("t", followed(5), replica_id=each)
    asked = begin_deleting(broker, ("t", 0, 4), ("alone", 0, 0))
    assert not asked.is_answered
    broker.fetch("t", followed(5, log_start_offset=4), replica_id=2)
    broker.fetch("t", followed(5, log_start_offset=3), replica_id=3)
    assert not asked.is_answered
    late = begin_deleting(broker, ("t", 0, 5), ("alone", 0, 0), timeout_ms=300)
    broker.fetch("t", followed(5, log_start_offset=4), replica_id=3)
    assert outcomes(asked) == [("NONE", 4), ("NONE", 0)]
    await trio.sleep(0.31)
    assert outcomes(late) == [("REQUEST_TIMED_OUT", -1), ("NONE", 0)]


async def test_a_leader_that_follows_stops_waiting(broker: Broker) -> None:
    """PUR-57: errors come with a low watermark of -1."""
    broker.produce("t", batch(5))
    for each in (2, 3):
        broker.fetch("t", followed(5), replica_id=each)
    asked = begin_deleting(broker, ("t", 0, 4))
    broker.rig.metadata.change("t", 0, leader=2)
    await broker.rig.settle()
    assert outcomes(asked) == [("NOT_LEADER_OR_FOLLOWER", -1)]


# Directories.


async def describe(broker: Broker, *names: tuple[str, int], version: int = 5) -> Any:
    topics = None
    if names:
        topics = [DescribableLogDirTopic(topic=name, partitions=[index]) for name, index in names]
    asked = broker.begin(DescribeLogDirsRequest(topics=topics), version)
    await trio.sleep(0.01)
    return asked.response.results


@pytest.mark.parametrize("version", range(1, 6))
async def test_directories_are_described(
    broker: Broker, autojump_clock: object, version: int
) -> None:
    broker.produce("alone", batch(5))
    first, second = await describe(broker, version=version)
    assert (first.log_dir, second.log_dir) == ("/data/a", "/data/b")
    assert (first.is_cordoned, second.is_cordoned) == (False, version >= 5)
    assert (first.total_bytes > 0) == (version >= 4)
    assert (first.usable_bytes > 0) == (version >= 4)
    sizes = {
        (each.name, one.partition_index): (one.partition_size, one.offset_lag, one.is_future_key)
        for result in (first, second)
        for each in result.topics
        for one in each.partitions
    }
    assert sizes == {
        ("alone", 0): (len(batch(5)), 0, False),
        ("t", 0): (0, 0, False),
        ("t", 1): (0, 0, False),
    }


async def test_only_what_is_asked_for(broker: Broker, autojump_clock: object) -> None:
    results = await describe(broker, ("t", 1), ("nobody", 0))
    assert [
        (each.name, one.partition_index)
        for result in results
        for each in result.topics
        for one in each.partitions
    ] == [("t", 1)]


async def test_a_directory_that_has_failed(broker: Broker, autojump_clock: object) -> None:
    broker.rig.logs.directories[1].fail("a test")
    first, second = await describe(broker)
    assert (first.error_code, second.error_code) == (
        ErrorCode.NONE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
    assert (second.total_bytes, second.topics) == (-1, [])


def move(broker: Broker, path: str, name: str, index: int = 0) -> ErrorCode:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=[index])]
            )
        ]
    )
    [answered] = broker.ask(request, 2).results
    [result] = answered.partitions
    return ErrorCode(result.error_code)


async def test_a_replica_moves_while_it_works(broker: Broker, autojump_clock: object) -> None:
    """Nothing is lost, readers go on, and the controller hears where it is."""
    broker.produce("alone", batch(3))
    directory = broker.rig.logs.directory_of(("alone", 0))
    assert directory is not None
    paths = ["/data/a", "/data/b"]
    paths.remove(directory.path)
    assert move(broker, paths[0], "alone") is ErrorCode.NONE
    waiting = broker.begin_fetch({("alone", 0): 3}, max_wait_ms=5_000)
    await trio.sleep(1)
    now = broker.rig.logs.directory_of(("alone", 0))
    assert now is not None
    assert now.path == paths[0]
    assert broker.moves == [(topic_id("alone"), 0, now.directory_id)]
    assert broker.rig.partition("alone").log is broker.rig.logs.get(("alone", 0))
    assert broker.produce("alone", batch(1)).base_offset == 3
    assert waiting.is_answered
    assert values(broker.fetch("alone", 0)) == [b"v0", b"v1", b"v2", b"v0"]
    assert move(broker, paths[0], "alone") is ErrorCode.NONE


async def test_moves_that_are_refused(broker: Broker, autojump_clock: object) -> None:
    assert move(broker, "/data/c", "alone") is ErrorCode.LOG_DIR_NOT_FOUND
    assert move(broker, "/data/a", "nobody") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(broker, "/data/a", "off") is ErrorCode.REPLICA_NOT_AVAILABLE
    directory = broker.rig.logs.directory_of(("alone", 0))
    other = next(each for each in broker.rig.logs.directories if each is not directory)
    other.fail("a test")
    assert move(broker, other.path, "alone") is ErrorCode.KAFKA_STORAGE_ERROR
