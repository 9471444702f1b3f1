"""No key that has an effect is without a test which changes it and sees the effect."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from effects.coordinator_effects import (
    COORDINATOR_DYNAMIC_EFFECTS,
    COORDINATOR_STATIC_EFFECTS,
    SHARD_EFFECTS,
)
from effects.node_effects import DYNAMIC_EFFECTS, STATIC_EFFECTS
from effects.throttle_effects import THROTTLE_DYNAMIC_EFFECTS, THROTTLE_STATIC_EFFECTS
from effects.topic_effects import TOPIC_EFFECTS

from kraftpy.config.definition import Effect
from kraftpy.config.definitions import NODE, TOPIC

TESTS = Path(__file__).parents[1]

# Keys whose effect is seen by a test of the room that has it. The test names the key.
SEEN_ELSEWHERE = {
    "add.partitions.to.txn.retry.backoff.max.ms": (
        "api/test_transaction_peers.py::test_how_often_a_busy_coordinator_is_asked"
    ),
    "add.partitions.to.txn.retry.backoff.ms": (
        "api/test_transaction_peers.py::test_how_often_a_busy_coordinator_is_asked"
    ),
    "advertised.listeners": "node/test_node.py::test_advertised_address_wins",
    "allow.everyone.if.no.acl.found": (
        "api/test_access.py::test_open_where_no_rule_is_if_the_node_is_told_so"
    ),
    "authorizer.class.name": (
        "api/test_access.py::test_nodes_with_an_authorizer_replicate_elect_and_serve"
    ),
    "broker.id": "config/test_config_node.py::test_node_id_and_broker_id_are_one",
    "controlled.shutdown.enable": (
        "broker/test_lifecycle_core.py::test_stops_without_asking_if_told_so"
    ),
    "controller.listener.names": (
        "node/test_node.py::test_controllers_listener_serves_controllers_apis"
    ),
    "controller.quorum.auto.join.enable": (
        "raft/test_raft_membership.py::test_auto_join_replaces_its_stale_entry"
    ),
    "controller.quorum.election.backoff.max.ms": (
        "effects/test_quorum_effects.py::test_election_backoff"
    ),
    "controller.quorum.election.timeout.ms": (
        "effects/test_quorum_effects.py::test_election_timeout"
    ),
    "controller.quorum.fetch.max.bytes": (
        "raft/test_raft_hostile.py::test_a_fetch_gets_no_more_than_the_leader_gives"
    ),
    "controller.quorum.fetch.snapshot.max.bytes": (
        "raft/test_raft_snapshots.py::test_a_download_in_chunks"
    ),
    "controller.quorum.fetch.timeout.ms": "effects/test_quorum_effects.py::test_fetch_timeout",
    "controller.quorum.request.timeout.ms": (
        "effects/test_quorum_effects.py::test_request_timeout"
    ),
    "controller.quorum.retry.backoff.ms": "effects/test_quorum_effects.py::test_retry_backoff",
    "delete.records.purgatory.purge.interval.requests": (
        "broker/test_broker_keys.py::test_purgatories_are_purged"
    ),
    "fetch.purgatory.purge.interval.requests": (
        "broker/test_broker_keys.py::test_purgatories_are_purged"
    ),
    "initial.broker.registration.timeout.ms": (
        "broker/test_lifecycle_core.py::test_gives_up_when_nobody_registers_it"
    ),
    "inter.broker.listener.name": ("node/test_node.py::test_listeners_come_from_the_configuration"),
    "kraftpy.http.host": "node/test_node.py::test_health_and_metrics_over_http",
    "kraftpy.http.port": "node/test_node.py::test_health_and_metrics_over_http",
    "kraftpy.principal": (
        "api/test_access.py::test_nodes_with_an_authorizer_replicate_elect_and_serve"
    ),
    "listener.security.protocol.map": "node/test_node.py::test_ports_are_told_as_they_are",
    "listeners": "node/test_node.py::test_ports_are_told_as_they_are",
    "log.cleaner.dedupe.buffer.size": "log/test_log_keys.py::test_the_cleaners_memory",
    "log.cleaner.io.buffer.load.factor": "log/test_log_keys.py::test_the_cleaners_memory",
    "log.cleaner.io.buffer.size": "log/test_log_keys.py::test_the_cleaners_memory",
    "log.cleaner.threads": (
        "log/test_log_cleaner_manager.py::test_the_number_of_tasks_follows_the_settings"
    ),
    "log.dir.failure.timeout.ms": (
        "broker/test_lifecycle_core.py::test_stops_if_it_can_not_tell_of_a_failed_directory"
    ),
    "max.connections.per.ip.overrides": (
        "net/test_net_server.py::test_an_override_lets_an_address_have_more"
    ),
    "metadata.log.segment.bytes": "raft/test_raft_settings.py::test_the_metadata_log",
    "metadata.max.retention.bytes": "metadata/test_metadata_keys.py::test_old_snapshots_go",
    "metadata.max.retention.ms": "metadata/test_metadata_keys.py::test_old_snapshots_go",
    "min.insync.replicas": "effects/test_node_effects.py::test_min_insync_replicas",
    "num.recovery.threads.per.data.dir": (
        "log/test_log_keys.py::test_logs_are_loaded_side_by_side"
    ),
    "producer.purgatory.purge.interval.requests": (
        "broker/test_broker_keys.py::test_purgatories_are_purged"
    ),
    "queued.max.request.bytes": "net/test_net_server.py::test_large_frames_wait_for_memory",
    "replica.fetch.backoff.ms": "broker/test_broker_keys.py::test_what_a_follower_asks_for",
    "replica.fetch.max.bytes": "broker/test_broker_keys.py::test_what_a_follower_asks_for",
    "replica.fetch.response.max.bytes": (
        "broker/test_broker_keys.py::test_what_a_follower_asks_for"
    ),
    "request.timeout.ms": (
        "api/test_transactions.py::test_a_marker_that_is_not_replicated_in_time"
    ),
    "security.inter.broker.protocol": ("broker/test_broker_keys.py::test_the_brokers_own_protocol"),
    "socket.listen.backlog.size": "node/test_node.py::test_listeners_come_from_the_configuration",
    "socket.receive.buffer.bytes": "net/test_net_server.py::test_accepted_sockets_are_tuned",
    "socket.send.buffer.bytes": "net/test_net_server.py::test_accepted_sockets_are_tuned",
    "super.users": "api/test_access.py::test_open_where_no_rule_is_if_the_node_is_told_so",
    "unclean.leader.election.enable": (
        "effects/test_node_effects.py::test_unclean_leader_election"
    ),
    "unclean.leader.election.interval.ms": (
        "effects/test_node_effects.py::test_unclean_leader_election"
    ),
}
# Those of topics, by tests in test_node_effects.py.
SEEN_OF_TOPICS = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)


def seen_keys_of_nodes() -> set[str]:
    seen = {*STATIC_EFFECTS, *DYNAMIC_EFFECTS, *SEEN_ELSEWHERE}
    seen |= {*SHARD_EFFECTS, *COORDINATOR_STATIC_EFFECTS, *COORDINATOR_DYNAMIC_EFFECTS}
    seen |= {*THROTTLE_STATIC_EFFECTS, *THROTTLE_DYNAMIC_EFFECTS}
    for effect in TOPIC_EFFECTS.values():
        seen |= {*effect.dynamic, *effect.static}
    return seen


def test_every_key_of_a_node() -> None:
    """Those that say that they have an effect, and no others."""
    said = {name for name, each in NODE.items() if each.effect is Effect.YES}
    assert sorted(said - seen_keys_of_nodes()) == []
    assert sorted(seen_keys_of_nodes() - said) == []


def test_every_key_of_a_topic() -> None:
    said = {name for name, each in TOPIC.items() if each.effect is Effect.YES}
    seen = {*TOPIC_EFFECTS, *SEEN_OF_TOPICS}
    assert sorted(said - seen) == []
    assert sorted(seen - said) == []


def test_every_dynamic_key_is_changed_at_run_time() -> None:
    """Not by two nodes. Logs are loaded once in a life, and listeners stay as they are."""
    at_run_time = {*DYNAMIC_EFFECTS, *COORDINATOR_DYNAMIC_EFFECTS, *THROTTLE_DYNAMIC_EFFECTS}
    for effect in TOPIC_EFFECTS.values():
        at_run_time |= {*effect.dynamic}
    missing = [
        name
        for name, each in NODE.items()
        if each.effect is Effect.YES and each.mode.value != "read-only" and name not in at_run_time
    ]
    assert missing == [
        "listeners",
        "listener.security.protocol.map",
        "max.connections.per.ip.overrides",
        "unclean.leader.election.enable",
        "log.cleaner.threads",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "num.recovery.threads.per.data.dir",
        "min.insync.replicas",
    ]


@pytest.mark.parametrize("key", SEEN_ELSEWHERE)
def test_the_tests_elsewhere_are_there(key: str) -> None:
    """And are about the key."""
    path, _, name = SEEN_ELSEWHERE[key].partition("::")
    text = (TESTS / path).read_text()
    found = [
        ast.get_source_segment(text, node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
    assert len(found) == 1
    assert key in str(found[0])
