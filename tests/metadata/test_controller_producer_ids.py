"""Blocks of producer ids."""

from __future__ import annotations

import pytest
from small_cluster import CALLER, SmallCluster

from kraftpy.metadata.controller.producer_ids import BLOCK_SIZE, ProducerIdControl
from kraftpy.metadata.controller.result import ControllerError
from kraftpy.metadata.records import ProducerIdsRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


def allocate(cluster: SmallCluster, broker: int, epoch: int) -> AllocateProducerIdsResponse:
    request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
    return cluster.carry_out(
        ProducerIdControl(cluster.context).allocate_producer_ids(request, CALLER)
    )


def test_every_block_is_new() -> None:
    cluster = SmallCluster()
    starts = [allocate(cluster, broker, 1000 + broker) for broker in (1, 2, 1, 3)]
    assert [each.producer_id_start for each in starts] == [0, 1000, 2000, 3000]
    assert {each.producer_id_len for each in starts} == {BLOCK_SIZE} == {1000}
    assert cluster.image.producer_ids == ProducerIdsRecord(3, 1003, 4000)


@pytest.mark.parametrize(("broker", "epoch"), [(1, 1000), (1, 1002), (1, -1), (9, 1009)])
def test_only_the_present_incarnation_of_a_broker_gets_one(broker: int, epoch: int) -> None:
    cluster = SmallCluster()
    with pytest.raises(ControllerError) as caught:
        allocate(cluster, broker, epoch)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert cluster.image.producer_ids is None


def test_ids_end_with_the_64_bits() -> None:
    cluster = SmallCluster()
    last = (1 << 63) - 1
    cluster.apply([ProducerIdsRecord(1, 1001, last - BLOCK_SIZE)])
    assert allocate(cluster, 1, 1001).producer_id_start == last - BLOCK_SIZE
    with pytest.raises(ControllerError) as caught:
        allocate(cluster, 1, 1001)
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
