"""DescribeCluster (60): who makes up the cluster, for administrators.

A broker listener tells of brokers and a controller listener of controllers; the request says which
of the two its sender believes to be talking to, and is refused when that is wrong (KIP-919).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from kraftpy.api.cluster import CLUSTER_OPERATIONS, ClusterView, NodeEndpoint
from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

__all__ = ["DescribeBrokersHandler", "DescribeControllersHandler"]

_BROKERS = 1
_CONTROLLERS = 2


class _DescribeClusterHandler(Handler):
    api_key = 60
    endpoint_type: ClassVar[int]

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster

    @abstractmethod
    def nodes(self, listener_name: str) -> Sequence[NodeEndpoint]:
        """Those to tell of."""

    @abstractmethod
    def controller_id(self) -> int:
        """The one to name as controller."""

    def handle(
        self, request: DescribeClusterRequest, context: RequestContext
    ) -> DescribeClusterResponse:
        if request.endpoint_type != self.endpoint_type:
            raise _wrong_endpoint(asked=request.endpoint_type, served=self.endpoint_type)
        answer = DescribeClusterResponse(
            endpoint_type=self.endpoint_type,
            cluster_id=self._cluster.cluster_id,
            controller_id=self.controller_id(),
            brokers=[
                DescribeClusterBroker(
                    broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack
                )
                for node in self.nodes(context.channel.listener_name)
            ],
        )
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = CLUSTER_OPERATIONS
        return answer


class DescribeBrokersHandler(_DescribeClusterHandler):
    """DescribeCluster on a broker's listener."""

    endpoint_type = _BROKERS

    def nodes(self, listener_name: str) -> Sequence[NodeEndpoint]:
        return self._cluster.brokers(listener_name)

    def controller_id(self) -> int:
        return self._cluster.controller_for_clients()


class DescribeControllersHandler(_DescribeClusterHandler):
    """DescribeCluster on a controller's listener."""

    endpoint_type = _CONTROLLERS

    def nodes(self, listener_name: str) -> Sequence[NodeEndpoint]:
        return self._cluster.controllers(listener_name)

    def controller_id(self) -> int:
        return self._cluster.active_controller()


def _wrong_endpoint(*, asked: int, served: int) -> ApiError:
    if asked not in (_BROKERS, _CONTROLLERS):
        return ApiError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"no endpoint type {asked}")
    kinds = {_BROKERS: "broker", _CONTROLLERS: "controller"}
    return ApiError(
        ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        f"this is a {kinds[served]} listener, the request is for a {kinds[asked]}",
    )
