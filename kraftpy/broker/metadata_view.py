"""The cluster as a node knows it now, for those who answer clients: a view of the newest image.

The image is swapped whole when a new one is published. Whoever needs several facts that fit
together takes `image` once and asks that; the methods here each look at one image.

A broker is live when it is registered and not fenced. Clients are told of live brokers only, and of
each with the address of the listener that they came in on (NET-80). Who the real controller is they
never learn: a random live broker is named, which forwards what it is sent (KRF-130).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.features import KRAFT_VERSION, supported_features
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.metadata.records import Endpoint, FeatureRange, RegisterBrokerRecord
from kraftpy.world import Random

__all__ = ["BrokerMetadata", "NodeEndpoint", "endpoint_of", "reachable_brokers"]


@dataclass(frozen=True, slots=True)
class NodeEndpoint:
    """Where one node is reached by those who came in on a given listener."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


class BrokerMetadata:
    """A Publisher that keeps the image, on brokers and on controllers alike."""

    def __init__(
        self,
        *,
        cluster_id: str,
        random: Random,
        leader_id: Callable[[], int] = lambda: -1,
        kraft_version: Callable[[], int] = lambda: 0,
        suspected: Callable[[], Sequence[int]] = tuple,
        image: MetadataImage = EMPTY_IMAGE,
    ) -> None:
        """`leader_id` is the quorum's leader, -1 while there is none."""
        self.cluster_id = cluster_id
        self.image = image
        self._random = random
        self._leader_id = leader_id
        self._kraft_version = kraft_version
        # Brokers that clients should not be sent to just now (suspects.py).
        self.suspected = suspected

    @property
    def name(self) -> str:
        return "BrokerMetadata"

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        self.image = image

    # Nodes.

    def brokers(self, listener_name: str, *, with_fenced: bool = False) -> list[NodeEndpoint]:
        """Live brokers that have this listener, and the fenced ones if they are asked for."""
        found = []
        for broker in self.image.brokers.values():
            endpoint = endpoint_of(broker.end_points, listener_name)
            if endpoint is not None and (with_fenced or not broker.fenced):
                found.append(
                    NodeEndpoint(
                        broker.broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced
                    )
                )
        return found

    def controllers(self, listener_name: str) -> list[NodeEndpoint]:
        """Registered controllers that have this listener."""
        return [
            NodeEndpoint(controller.controller_id, endpoint.host, endpoint.port, None)
            for controller in self.image.controllers.values()
            if (endpoint := endpoint_of(controller.end_points, listener_name)) is not None
        ]

    def controller_for_clients(self, brokers: Sequence[NodeEndpoint]) -> int:
        """Whom to name as controller to clients that are told of these brokers; -1 for nobody."""
        live = [broker.node_id for broker in brokers if not broker.is_fenced]
        return self._random.choice(live) if live else -1

    def active_controller(self) -> int:
        """The quorum's leader; -1 when there is none."""
        return self._leader_id()

    # Features.

    def supported_features(self) -> Sequence[FeatureRange]:
        return supported_features()

    def finalized_features(self) -> Iterable[tuple[str, int]]:
        """Name and level of each feature that the cluster has agreed on, Raft's among them."""
        yield from self.image.features.items()
        kraft_version = self._kraft_version()
        if kraft_version > 0:
            yield KRAFT_VERSION, kraft_version

    def finalized_features_epoch(self) -> int:
        """The offset of the metadata at which that is so; -1 before there is any."""
        return self.image.provenance.last_offset


def endpoint_of(endpoints: Sequence[Endpoint], listener_name: str) -> Endpoint | None:
    """Where a node is reached on this listener; None if it hasn't got it."""
    return next((each for each in endpoints if each.name == listener_name), None)


def reachable_brokers(image: MetadataImage, listener_name: str) -> dict[int, RegisterBrokerRecord]:
    """The live brokers that have this listener, by their ids."""
    return {
        broker.broker_id: broker
        for broker in image.brokers.values()
        if not broker.fenced and endpoint_of(broker.end_points, listener_name) is not None
    }
