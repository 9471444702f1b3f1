"""DescribeCluster (60): who makes up the cluster, for administrators.

A broker listener tells of brokers and a controller listener of controllers; the request says which
of the two its sender believes to be talking to, and is refused when that is wrong (KIP-919).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.broker.metadata_view import BrokerMetadata, NodeEndpoint
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kraftpy.security.acl_terms import AclOperation

__all__ = ["DescribeBrokersHandler", "DescribeControllersHandler"]

_BROKERS = 1
_CONTROLLERS = 2


class _DescribeClusterHandler(Handler):
    api_key = 60
    endpoint_type: ClassVar[int]

    def __init__(self, cluster: BrokerMetadata) -> None:
        self._cluster = cluster

    @abstractmethod
    def nodes(self, listener_name: str, *, with_fenced: bool) -> Sequence[NodeEndpoint]:
        """Those to tell of."""

    @abstractmethod
    def controller_id(self, nodes: Sequence[NodeEndpoint]) -> int:
        """The one to name as controller to those who are told of these nodes."""

    def handle(
        self, request: DescribeClusterRequest, context: RequestContext
    ) -> DescribeClusterResponse:
        if request.endpoint_type != self.endpoint_type:
            raise _wrong_endpoint(asked=request.endpoint_type, served=self.endpoint_type)
        nodes = self.nodes(
            context.channel.listener_name, with_fenced=request.include_fenced_brokers
        )
        answer = DescribeClusterResponse(
            endpoint_type=self.endpoint_type,
            cluster_id=self._cluster.cluster_id,
            controller_id=self.controller_id(nodes),
            brokers=[
                DescribeClusterBroker(
                    broker_id=node.node_id,
                    host=node.host,
                    port=node.port,
                    rack=node.rack,
                    is_fenced=node.is_fenced,
                )
                for node in nodes
            ],
        )
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = context.access.cluster_operations()
        return answer


class DescribeBrokersHandler(_DescribeClusterHandler):
    """DescribeCluster on a broker's listener."""

    endpoint_type = _BROKERS

    def nodes(self, listener_name: str, *, with_fenced: bool) -> Sequence[NodeEndpoint]:
        return self._cluster.brokers(listener_name, with_fenced=with_fenced)

    def controller_id(self, nodes: Sequence[NodeEndpoint]) -> int:
        return self._cluster.controller_for_clients(nodes)


class DescribeControllersHandler(_DescribeClusterHandler):
    """DescribeCluster on a controller's listener, where it is for administrators only."""

    cluster_operation = AclOperation.ALTER
    endpoint_type = _CONTROLLERS

    def nodes(self, listener_name: str, *, with_fenced: bool) -> Sequence[NodeEndpoint]:
        return self._cluster.controllers(listener_name)

    def controller_id(self, nodes: Sequence[NodeEndpoint]) -> int:
        return self._cluster.active_controller()


def _wrong_endpoint(*, asked: int, served: int) -> ApiError:
    if asked not in (_BROKERS, _CONTROLLERS):
        return ApiError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"no endpoint type {asked}")
    kinds = {_BROKERS: "broker", _CONTROLLERS: "controller"}
    return ApiError(
        ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        f"this is a {kinds[served]} listener, the request is for a {kinds[asked]}",
    )
