"""What handlers ask about the cluster, and the answer of a node that is all there is of it.

ClusterView is the seam for the replicated metadata: handlers see only this, so they don't change
when an image of a real cluster takes the place of LoneNode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kraftpy.api.k18_api_versions import FeatureRange, FeatureView

__all__ = ["CLUSTER_OPERATIONS", "ClusterView", "LoneNode", "NodeEndpoint"]

# What may be done to a cluster, as the bit field of the protocol: create, alter, describe,
# cluster action, describe configs, alter configs, idempotent write. Without an authorizer everybody
# may do all of it.
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


@dataclass(frozen=True, slots=True)
class NodeEndpoint:
    """Where one node is reached by those who came in on a given listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterView(FeatureView, Protocol):
    """The cluster as this node knows it now."""

    @property
    def cluster_id(self) -> str: ...

    def brokers(self, listener_name: str) -> Sequence[NodeEndpoint]:
        """Live brokers that have this listener."""
        ...

    def controllers(self, listener_name: str) -> Sequence[NodeEndpoint]: ...

    def controller_for_clients(self) -> int:
        """The node that clients should send administrative requests to; -1 when there is none.

        Brokers forward such requests, so for clients this is a live broker, not the controller.
        """
        ...

    def active_controller(self) -> int:
        """The node id of the quorum's leader; -1 when there is none."""
        ...


class LoneNode:
    """A cluster of one node, without topics and without agreed features."""

    def __init__(
        self,
        *,
        cluster_id: str,
        node_id: int,
        rack: str | None,
        broker_endpoints: Mapping[str, tuple[str, int]],
        controller_endpoints: Mapping[str, tuple[str, int]],
    ) -> None:
        """Endpoints are host and port by listener name, as advertised; empty without that role."""
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._brokers = {
            name: [NodeEndpoint(node_id, host, port, rack)]
            for name, (host, port) in broker_endpoints.items()
        }
        self._controllers = {
            name: [NodeEndpoint(node_id, host, port, rack)]
            for name, (host, port) in controller_endpoints.items()
        }

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    def brokers(self, listener_name: str) -> Sequence[NodeEndpoint]:
        return self._brokers.get(listener_name, ())

    def controllers(self, listener_name: str) -> Sequence[NodeEndpoint]:
        return self._controllers.get(listener_name, ())

    def controller_for_clients(self) -> int:
        return self._node_id if self._brokers else -1

    def active_controller(self) -> int:
        return self._node_id if self._controllers else -1

    def supported_features(self) -> Sequence[FeatureRange]:
        return ()

    def finalized_features(self) -> Sequence[tuple[str, int]]:
        return ()

    def finalized_features_epoch(self) -> int:
        return -1
