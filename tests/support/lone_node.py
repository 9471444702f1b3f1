"""A cluster of one node, for tests that need some cluster to be asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kraftpy.api.handler import Handler
from kraftpy.api.k03_metadata import MetadataHandler
from kraftpy.api.k60_describe_cluster import DescribeBrokersHandler
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.metadata.records import (
    Endpoint,
    FeatureRange,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.world import Random


def broker_handlers(cluster: BrokerMetadata) -> list[Handler]:
    """What can be served without a log and without a controller."""
    return [MetadataHandler(cluster), DescribeBrokersHandler(cluster)]


class LoneNode(BrokerMetadata):
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
        delta = MetadataDelta(EMPTY_IMAGE)
        if broker_endpoints:
            endpoints = _endpoints(broker_endpoints)
            broker = RegisterBrokerRecord(node_id, ZERO_UUID, 0, endpoints, rack=rack, fenced=False)
            delta.replay(broker)
        if controller_endpoints:
            endpoints = _endpoints(controller_endpoints)
            delta.replay(RegisterControllerRecord(node_id, ZERO_UUID, endpoints))
        super().__init__(
            cluster_id=cluster_id,
            random=Random(node_id),
            leader_id=lambda: node_id if controller_endpoints else -1,
            image=delta.apply(EMPTY_IMAGE.provenance),
        )

    def supported_features(self) -> Sequence[FeatureRange]:
        return ()

    def finalized_features(self) -> Iterable[tuple[str, int]]:
        return ()


def _endpoints(addresses: Mapping[str, tuple[str, int]]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(name, host, port, 0) for name, (host, port) in addresses.items())
