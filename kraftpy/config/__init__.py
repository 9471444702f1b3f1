"""Configuration: every key of Kafka's brokers, topics and groups, and what a node makes of it.

    config = NodeConfig(
        from_properties(text, "server.properties"),
        from_environment(environment),
        from_assignments(["num.partitions=4"]),
    )
    config.get_int("num.partitions")

Sans-I/O: texts and mappings come in, ConfigurationError or a consistent NodeConfig comes out. The
keys themselves are tables, in the modules `keys_*`; docs/configuration.md is made from them.
"""

from kraftpy.config.describe import Description, Synonym, describe_node, describe_topic
from kraftpy.config.dynamic import DynamicConfig
from kraftpy.config.endpoint import EndPoint, SecurityProtocol
from kraftpy.config.layers import (
    Layer,
    Setting,
    Source,
    cluster_id,
    from_assignments,
    from_environment,
    from_mapping,
    from_properties,
)
from kraftpy.config.node_config import NodeConfig
from kraftpy.config.problems import ConfigurationError, Problem
from kraftpy.config.topic_config import TopicConfig, check_topic_settings
from kraftpy.config.topology import Topology, Voter

__all__ = [
    "ConfigurationError",
    "Description",
    "DynamicConfig",
    "EndPoint",
    "Layer",
    "NodeConfig",
    "Problem",
    "SecurityProtocol",
    "Setting",
    "Source",
    "Synonym",
    "TopicConfig",
    "Topology",
    "Voter",
    "check_topic_settings",
    "cluster_id",
    "describe_node",
    "describe_topic",
    "from_assignments",
    "from_environment",
    "from_mapping",
    "from_properties",
]
