"""A poll that is cancelled has either returned its records or not taken them."""

from __future__ import annotations

from typing import Any

import trio
from client.fake_cluster import FakeCluster
from client.fake_nodes import fake_nodes

from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer import open_consumer
from kraftpy.client.consumer_core import PartitionRecords
from kraftpy.client.settings import ConsumerSettings
from kraftpy.records.builder import BatchBuilder
from kraftpy.world.real import real_world

WHERE = TopicPartition("t", 0)


class CancelledAtOnce:
    """A core whose shell is cancelled in the moment in which it takes records."""

    def __init__(self, core: Any, scope: trio.CancelScope) -> None:
        self._core = core
        self._scope = scope

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def take(self, max_records: int) -> list[PartitionRecords]:
        records: list[PartitionRecords] = self._core.take(max_records)
        if records:
            self._scope.cancel()
        return records


async def test_records_that_were_taken_are_returned() -> None:
    cluster = FakeCluster()
    builder = BatchBuilder()
    builder.append(None, b"value", timestamp_ms=1)
    cluster.partitions[WHERE].append(builder.build())
    settings = ConsumerSettings(auto_offset_reset="earliest", fetch_max_wait_ms=20)
    with fake_nodes(cluster) as servers, trio.fail_after(30):
        async with open_consumer(real_world(), servers, settings) as consumer:
            consumer.assign([WHERE])
            polled: list[PartitionRecords] = []
            with trio.CancelScope() as scope:
                core = consumer._core
                consumer._core = CancelledAtOnce(core, scope)  # type: ignore[assignment]
                polled = await consumer.poll()
            assert [len(each.records) for each in polled] == [1]
            assert core.position(WHERE) == 1
