"""Settings for clusters on one machine: laptops, CI, pytest.

Kafka's defaults are for a cluster of at least three machines. On one machine they make people wait
(for a rebalance that nobody joins, for 50 partitions of offsets) or fail (internal topics with more
replicas than brokers). These are what everybody sets there anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftpy.config.topology import Voter

__all__ = ["development_settings"]


def development_settings(
    *,
    node_id: int,
    voters: Sequence[Voter],
    host: str,
    port: int | None,
    data_dir: str,
    broker_count: int,
    roles: Sequence[str] = ("broker", "controller"),
) -> dict[str, str]:
    """Keys of one node; `voters` holds its controller's address too, and a broker has a `port`."""
    listeners = [] if port is None else [f"PLAINTEXT://{_bracketed(host)}:{port}"]
    if "controller" in roles:
        own = next(voter for voter in voters if voter.node_id == node_id)
        listeners.append(f"CONTROLLER://{_bracketed(own.host)}:{own.port}")
    replicas = str(min(3, broker_count))
    in_sync = str(min(2, broker_count))
    return {
        "process.roles": ",".join(roles),
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{voter.node_id}@{_bracketed(voter.host)}:{voter.port}" for voter in voters
        ),
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(listeners),
        "log.dirs": data_dir,
        "num.partitions": "4",
        "default.replication.factor": replicas,
        "min.insync.replicas": "1",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
    }


def _bracketed(host: str) -> str:
    """An IPv6 address has colons of its own."""
    return f"[{host}]" if ":" in host else host
