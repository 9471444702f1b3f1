"""Who serves the APIs, on which kind of listener: the table that grows with the product.

ApiVersions is nowhere in it: each dispatcher adds it for its own table.
"""

from __future__ import annotations

from kraftpy.api.api_keys import CONTROLLER_APIS, FORWARDABLE_APIS
from kraftpy.api.config_forwarding import CONFIG_APIS, ConfigForwardingHandler
from kraftpy.api.controller_handler import ControllerHandler, ControllerMember
from kraftpy.api.forwarding import ForwardingHandler
from kraftpy.api.handler import Handler
from kraftpy.api.k03_metadata import MetadataHandler
from kraftpy.api.k29_describe_acls import DescribeAclsHandler
from kraftpy.api.k32_describe_configs import DescribeConfigsHandler
from kraftpy.api.k43_elect_leaders import ElectLeadersHandler
from kraftpy.api.k44_incremental_alter_configs import IncrementalAlterConfigsHandler
from kraftpy.api.k48_describe_client_quotas import DescribeClientQuotasHandler
from kraftpy.api.k50_describe_user_scram_credentials import DescribeUserScramCredentialsHandler
from kraftpy.api.k58_envelope import EnvelopeHandler
from kraftpy.api.k60_describe_cluster import DescribeBrokersHandler, DescribeControllersHandler
from kraftpy.api.k63_broker_heartbeat import BrokerHeartbeatHandler
from kraftpy.api.k74_list_config_resources import ListConfigResourcesHandler
from kraftpy.api.k75_describe_topic_partitions import DescribeTopicPartitionsHandler
from kraftpy.api.raft_handler import QuorumMember
from kraftpy.api.raft_handlers import raft_handlers
from kraftpy.api.request_quotas import RequestQuotas
from kraftpy.broker.forwarder import Forwarder
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.topic_creation import AutoTopicCreation
from kraftpy.config.dynamic import DynamicConfig
from kraftpy.net.line import Spawn
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.purgatory.operation import DelayedOperation
from kraftpy.purgatory.purgatory import Purgatory
from kraftpy.world import Clock

__all__ = [
    "controller_listener_handlers",
    "metadata_handlers",
]


def metadata_handlers(
    cluster: BrokerMetadata,
    *,
    config: DynamicConfig,
    forwarder: Forwarder,
    creation: AutoTopicCreation | None,
    elections: Purgatory[DelayedOperation],
    spawn: Spawn,
) -> list[Handler]:
    """A broker's share in metadata: what it answers from its image, and what it forwards.

    `spawn` starts tasks that live as long as the broker.
    """
    elect_leaders = ElectLeadersHandler(forwarder, cluster, elections)
    return [
        MetadataHandler(cluster, creation, spawn=spawn),
        DescribeAclsHandler(cluster),
        DescribeConfigsHandler(cluster, config),
        DescribeClientQuotasHandler(cluster),
        DescribeUserScramCredentialsHandler(cluster),
        DescribeBrokersHandler(cluster),
        ListConfigResourcesHandler(cluster),
        DescribeTopicPartitionsHandler(
            cluster, lambda: config.current.get_int("max.request.partition.size.limit")
        ),
        *(
            ConfigForwardingHandler(key, forwarder, cluster, config)
            if key in CONFIG_APIS
            else ForwardingHandler(key, forwarder)
            for key in FORWARDABLE_APIS
            if key != elect_leaders.api_key
        ),
        elect_leaders,
    ]


def controller_listener_handlers(
    cluster: BrokerMetadata,
    *,
    config: DynamicConfig,
    controller: ControllerMember,
    member: QuorumMember,
    metrics: RequestMetrics,
    clock: Clock,
    quotas: RequestQuotas | None = None,
) -> list[Handler]:
    """Everything on a controller's listener; `metrics` and `quotas` are those of its dispatcher."""
    node_id = config.current.node_id
    alter_configs = IncrementalAlterConfigsHandler(controller, clock, cluster, node_id)
    handlers: list[Handler] = [
        DescribeAclsHandler(cluster),
        DescribeConfigsHandler(cluster, config),
        DescribeControllersHandler(cluster),
        BrokerHeartbeatHandler(controller, clock, cluster),
        *(
            ControllerHandler(key, controller, clock, cluster)
            for key in CONTROLLER_APIS
            if key != alter_configs.api_key
        ),
        alter_configs,
        *raft_handlers(member),
    ]
    return [*handlers, EnvelopeHandler(handlers, metrics=metrics, clock=clock, quotas=quotas)]
