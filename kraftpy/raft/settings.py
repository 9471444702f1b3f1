"""A node's configuration as the quorum takes it: controller.quorum.* and metadata.log.*.

Who votes is either configured (`controller.quorum.voters`: kraft.version 0, ids without
directories) or stands in the log, which `storage format` began; bootstrap servers then say where to
ask for it. Voters in the log override configured ones as soon as there are any. That the keys fit
together has been checked by kraftpy.config.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftpy.config import NodeConfig
from kraftpy.config.checks import parse_host_port
from kraftpy.log.log_config import LogConfig
from kraftpy.protocol.ids import Uuid
from kraftpy.raft.quorum import RaftConfig
from kraftpy.raft.storage import metadata_log_config
from kraftpy.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from kraftpy.world import Address

__all__ = ["metadata_log_settings", "raft_config", "static_voters"]


def raft_config(
    config: NodeConfig,
    *,
    cluster_id: str,
    directory_id: Uuid,
    controller_addresses: Mapping[str, Address],
) -> RaftConfig:
    """`controller_addresses` are this node's, as others reach them, by listener name.

    A node without the controller role has none, and observes.
    """
    names = config.topology.controller_listener_names
    listener = names[0]
    endpoints = tuple(
        Endpoint(name, *controller_addresses[name])
        for name in names
        if name in controller_addresses
    )
    return RaftConfig(
        cluster_id=cluster_id,
        local=ReplicaKey(config.node_id, directory_id),
        endpoints=endpoints,
        listener=listener,
        is_controller=config.is_controller,
        bootstrap_servers=tuple(
            Endpoint(listener, *server)
            for text in config.get_list("controller.quorum.bootstrap.servers")
            if (server := parse_host_port(text)) is not None
        ),
        static_voters=static_voters(config),
        election_timeout_ms=config.get_int("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.get_int("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.get_int("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.get_int("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.get_int("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=config.get_int("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=config.get_int("controller.quorum.fetch.snapshot.max.bytes"),
        auto_join=config.get_bool("controller.quorum.auto.join.enable"),
    )


def static_voters(config: NodeConfig) -> VoterSet:
    """The configured voters. Their directories are not known, so each stands for any."""
    listener = config.topology.controller_listener_names[0]
    # Of two entries for one node the last counts, as in Kafka.
    by_id = {voter.node_id: voter for voter in config.topology.voters}
    return VoterSet(
        Voter(ReplicaKey(voter.node_id), (Endpoint(listener, voter.host, voter.port),))
        for voter in by_id.values()
    )


def metadata_log_settings(config: NodeConfig) -> LogConfig:
    """The metadata log's own; it shares nothing with topics."""
    segment_bytes = config["internal.metadata.log.segment.bytes"]
    if not isinstance(segment_bytes, int):
        segment_bytes = config.get_int("metadata.log.segment.bytes")
    return metadata_log_config(
        segment_bytes=segment_bytes, segment_ms=config.get_int("metadata.log.segment.ms")
    )
