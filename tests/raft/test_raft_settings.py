"""From a node's configuration to its quorum (kraft.md 2)."""

from __future__ import annotations

import pytest
from raft_cluster import directory

from kraftpy.config import ConfigurationError, NodeConfig, from_mapping
from kraftpy.raft.quorum import RaftConfig
from kraftpy.raft.settings import metadata_log_settings, raft_config, static_voters
from kraftpy.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet

CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.listener.names": "C,D",
    "listeners": "C://:9093,D://127.0.0.1:9094",
    "listener.security.protocol.map": "C:PLAINTEXT,D:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "controller.quorum.voters": "1@a:9093,2@[::1]:9093",
}
ADDRESSES = {"D": ("127.0.0.1", 9094), "C": ("a", 9093)}


def config_of(**changes: str) -> NodeConfig:
    settings = CONTROLLER | {key.replace("_", "."): value for key, value in changes.items()}
    return NodeConfig(from_mapping(settings, "test"))


def raft_of(config: NodeConfig, addresses: dict[str, tuple[str, int]]) -> RaftConfig:
    return raft_config(
        config, cluster_id="c", directory_id=directory(1), controller_addresses=addresses
    )


def test_static_voters() -> None:
    """They stand for any directory, and have no bootstrap servers beside them."""
    config = raft_of(config_of(), ADDRESSES)
    assert config == RaftConfig(
        cluster_id="c",
        local=ReplicaKey(1, directory(1)),
        endpoints=(Endpoint("C", "a", 9093), Endpoint("D", "127.0.0.1", 9094)),
        listener="C",
        static_voters=VoterSet(
            [
                Voter(ReplicaKey(1), (Endpoint("C", "a", 9093),)),
                Voter(ReplicaKey(2), (Endpoint("C", "::1", 9093),)),
            ]
        ),
    )


def test_a_voter_named_twice() -> None:
    """Kafka takes the last one, silently; here there is a warning."""
    config = config_of(controller_quorum_voters="1@a:1,2@b:2,1@c:3")
    assert config.warnings == ("controller.quorum.voters names a voter twice; the last one counts",)
    assert static_voters(config).voters[0].endpoints == (Endpoint("C", "c", 3),)


def test_bootstrap_servers() -> None:
    changes = {"controller_quorum_voters": "", "controller_quorum_bootstrap_servers": "a:1,[::1]:2"}
    config = raft_of(config_of(**changes), ADDRESSES)
    assert config.static_voters == VoterSet()
    assert config.bootstrap_servers == (Endpoint("C", "a", 1), Endpoint("C", "::1", 2))


def test_a_broker_observes() -> None:
    node = config_of(
        process_roles="broker",
        node_id="7",
        listeners="PLAINTEXT://:9092",
    )
    config = raft_of(node, {})
    assert (config.is_controller, config.endpoints, config.listener) == (False, (), "C")
    assert static_voters(node).ids == (1, 2)


KEYS = {
    "controller.quorum.election.timeout.ms": "election_timeout_ms",
    "controller.quorum.fetch.timeout.ms": "fetch_timeout_ms",
    "controller.quorum.election.backoff.max.ms": "election_backoff_max_ms",
    "controller.quorum.request.timeout.ms": "request_timeout_ms",
    "controller.quorum.retry.backoff.ms": "retry_backoff_ms",
    "controller.quorum.fetch.max.bytes": "fetch_max_bytes",
    "controller.quorum.fetch.snapshot.max.bytes": "fetch_snapshot_max_bytes",
}


@pytest.mark.parametrize(("key", "field"), KEYS.items())
def test_each_key_reaches_its_field(key: str, field: str) -> None:
    config = raft_of(config_of(**{key: "4711"}), ADDRESSES)
    assert getattr(config, field) == 4711
    assert [name for name in KEYS.values() if getattr(config, name) == 4711] == [field]


def test_auto_join() -> None:
    config = config_of(**{"controller.quorum.auto.join.enable": "true"})
    assert raft_of(config, ADDRESSES).auto_join
    assert not raft_of(config_of(), ADDRESSES).auto_join


def test_the_metadata_log() -> None:
    log = metadata_log_settings(config_of())
    assert (log.segment_bytes, log.segment_ms, log.is_deleted) == (1 << 30, 604_800_000, False)
    changed = {"metadata.log.segment.bytes": "10000000", "metadata.log.segment.ms": "5"}
    log = metadata_log_settings(config_of(**changed))
    assert (log.segment_bytes, log.segment_ms) == (10_000_000, 5)
    internal = changed | {"internal.metadata.log.segment.bytes": "99"}
    assert metadata_log_settings(config_of(**internal)).segment_bytes == 99


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"controller_quorum_voters": ""}, "bootstrap.servers must say"),
        ({"controller_quorum_voters": "2@b:1"}, "must contain this controller"),
        (
            {"process_roles": "broker", "listeners": "PLAINTEXT://:9092"},
            "must not contain node 1",
        ),
        ({"listeners": "C://:9093"}, "names D, which is not in listeners"),
        (
            {"process_roles": "broker", "node_id": "7", "listeners": "PLAINTEXT://:1,C://:2"},
            "process.roles is broker; remove it",
        ),
        (
            {
                "process_roles": "broker",
                "node_id": "7",
                "listeners": "PLAINTEXT://:1",
                "controller.quorum.auto.join.enable": "true",
            },
            "is for controllers",
        ),
        ({"advertised_listeners": "C://0.0.0.0:9093"}, "0.0.0.0 is for listening"),
    ],
)
def test_the_rules_at_the_start(changes: dict[str, str], advice: str) -> None:
    """The validation rules of section 2, each with what to do."""
    with pytest.raises(ConfigurationError, match=advice):
        config_of(**changes)
