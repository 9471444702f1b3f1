"""Which APIs are served, on which kind of listener: the table that grows with the product.

ApiVersions is nowhere in it: each dispatcher adds it for its own table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftpy.api.controller_handler import CONTROLLER_APIS, ControllerHandler, ControllerMember
from kraftpy.api.forwarding import ForwardingHandler
from kraftpy.api.handler import Handler
from kraftpy.api.k03_metadata import MetadataHandler
from kraftpy.api.k18_api_versions import API_VERSIONS_KEY
from kraftpy.api.k29_describe_acls import DescribeAclsHandler
from kraftpy.api.k32_describe_configs import DescribeConfigsHandler
from kraftpy.api.k48_describe_client_quotas import DescribeClientQuotasHandler
from kraftpy.api.k50_describe_user_scram_credentials import DescribeUserScramCredentialsHandler
from kraftpy.api.k58_envelope import EnvelopeHandler
from kraftpy.api.k60_describe_cluster import DescribeBrokersHandler, DescribeControllersHandler
from kraftpy.api.k63_broker_heartbeat import BrokerHeartbeatHandler
from kraftpy.api.k75_describe_topic_partitions import DescribeTopicPartitionsHandler
from kraftpy.api.raft_handler import QuorumMember
from kraftpy.api.raft_handlers import raft_handlers
from kraftpy.broker.envelope import FORWARDABLE_APIS
from kraftpy.broker.forwarder import Forwarder
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.topic_creation import AutoTopicCreation
from kraftpy.config.dynamic import DynamicConfig
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.protocol.registry import API
from kraftpy.world import Clock

__all__ = [
    "CONTROLLER_LISTENER_APIS",
    "KAFKA_RELEASE",
    "METADATA_APIS",
    "controller_listener_handlers",
    "metadata_handlers",
    "served_ranges",
]

KAFKA_RELEASE: Final = "4.3"

METADATA_APIS: Final = (3, 29, 32, 48, 50, 60, 75, *FORWARDABLE_APIS)
"""A broker's share in metadata."""

_RAFT_APIS: Final = (1, 52, 53, 54, 55, 59, 80, 81, 82)
CONTROLLER_LISTENER_APIS: Final = (29, 32, 58, 60, 63, *CONTROLLER_APIS, *_RAFT_APIS)
"""Everything on a controller's listener."""


def metadata_handlers(
    cluster: BrokerMetadata,
    *,
    config: DynamicConfig,
    forwarder: Forwarder,
    creation: AutoTopicCreation | None,
) -> list[Handler]:
    """A broker's share in metadata: what it answers from its image, and what it forwards."""
    return [
        MetadataHandler(cluster, creation),
        DescribeAclsHandler(cluster),
        DescribeConfigsHandler(cluster, config),
        DescribeClientQuotasHandler(cluster),
        DescribeUserScramCredentialsHandler(cluster),
        DescribeBrokersHandler(cluster),
        DescribeTopicPartitionsHandler(
            cluster, lambda: config.current.get_int("max.request.partition.size.limit")
        ),
        *(ForwardingHandler(key, forwarder) for key in FORWARDABLE_APIS),
    ]


def controller_listener_handlers(
    cluster: BrokerMetadata,
    *,
    config: DynamicConfig,
    controller: ControllerMember,
    member: QuorumMember,
    metrics: RequestMetrics,
    clock: Clock,
) -> list[Handler]:
    """Everything on a controller's listener; `metrics` are those of its dispatcher."""
    handlers: list[Handler] = [
        DescribeAclsHandler(cluster),
        DescribeConfigsHandler(cluster, config),
        DescribeControllersHandler(cluster),
        BrokerHeartbeatHandler(controller, clock),
        *(ControllerHandler(key, controller, clock) for key in CONTROLLER_APIS),
        *raft_handlers(member),
    ]
    return [*handlers, EnvelopeHandler(handlers, metrics=metrics, clock=clock)]


def served_ranges() -> Iterable[tuple[str, int, int]]:
    """Name, lowest and highest version of every API that some listener serves."""
    for key in sorted({API_VERSIONS_KEY, *METADATA_APIS, *CONTROLLER_LISTENER_APIS}):
        yield API[key].name, API[key].min_version, API[key].max_version
