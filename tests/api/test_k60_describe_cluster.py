"""DescribeCluster, on both kinds of listeners."""

from __future__ import annotations

import pytest
from api.recording import Bench, RecordingChannel, lone_node

from kraftpy.api.k60_describe_cluster import DescribeBrokersHandler, DescribeControllersHandler
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


def ask_broker(version: int, request: DescribeClusterRequest) -> DescribeClusterResponse:
    response = Bench([DescribeBrokersHandler(lone_node())]).ask(request, version)
    assert isinstance(response, DescribeClusterResponse)
    return response


def ask_controller(version: int, request: DescribeClusterRequest) -> DescribeClusterResponse:
    channel = RecordingChannel(listener_name="CONTROLLER")
    bench = Bench([DescribeControllersHandler(lone_node())], channel=channel)
    response = bench.ask(request, version)
    assert isinstance(response, DescribeClusterResponse)
    return response


@pytest.mark.parametrize("version", range(3))
def test_brokers(version: int) -> None:
    response = ask_broker(version, DescribeClusterRequest())
    assert response.error_code == ErrorCode.NONE
    assert (response.cluster_id, response.controller_id) == ("Iy1sbGZzVmVUc2VjcmV0IQ", 1)
    [broker] = response.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, "broker.test", 9092)
    assert broker.rack == "r1"
    assert not broker.is_fenced


@pytest.mark.parametrize("version", [1, 2])
def test_controllers(version: int) -> None:
    response = ask_controller(version, DescribeClusterRequest(endpoint_type=CONTROLLERS))
    assert response.error_code == ErrorCode.NONE
    assert response.endpoint_type == CONTROLLERS
    [controller] = response.brokers
    assert (controller.broker_id, controller.host) == (1, "controller.test")


def test_wrong_kind_of_listener() -> None:
    """KIP-919."""
    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    response = ask_broker(2, request)
    assert response.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert "this is a broker listener" in (response.error_message or "")
    assert ask_controller(0, DescribeClusterRequest()).error_code == response.error_code


def test_no_such_kind_of_listener() -> None:
    response = ask_broker(2, DescribeClusterRequest(endpoint_type=3))
    assert response.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_authorized_operations_when_asked_for() -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert ask_broker(2, request).cluster_authorized_operations == 0b1_1111_1010_0000
    assert ask_broker(2, DescribeClusterRequest()).cluster_authorized_operations == -(2**31)
