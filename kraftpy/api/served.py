"""Which APIs are served, on which kind of listener: the table that grows with the product."""

from __future__ import annotations

from collections.abc import Iterable

from kraftpy.api.cluster import ClusterView, LoneNode
from kraftpy.api.handler import Handler
from kraftpy.api.k03_metadata import MetadataHandler
from kraftpy.api.k18_api_versions import API_VERSIONS_KEY
from kraftpy.api.k60_describe_cluster import DescribeBrokersHandler, DescribeControllersHandler
from kraftpy.protocol.registry import API

__all__ = ["KAFKA_RELEASE", "broker_handlers", "controller_handlers", "served_ranges"]

KAFKA_RELEASE = "4.3"


def broker_handlers(cluster: ClusterView) -> list[Handler]:
    """Everything but ApiVersions, which each dispatcher adds for its own table."""
    return [MetadataHandler(cluster), DescribeBrokersHandler(cluster)]


def controller_handlers(cluster: ClusterView) -> list[Handler]:
    return [DescribeControllersHandler(cluster)]


def served_ranges() -> Iterable[tuple[str, int, int]]:
    """Name, lowest and highest version of every API that some listener serves."""
    nobody = LoneNode(
        cluster_id="", node_id=0, rack=None, broker_endpoints={}, controller_endpoints={}
    )
    handlers = [*broker_handlers(nobody), *controller_handlers(nobody)]
    keys = {API_VERSIONS_KEY, *(handler.api_key for handler in handlers)}
    for key in sorted(keys):
        yield API[key].name, API[key].min_version, API[key].max_version
