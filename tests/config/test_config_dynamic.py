"""Changes at run time, and what DescribeConfigs reports of them."""

from __future__ import annotations

import pytest
from config_cases import GOOD_NODE

from kraftpy.config import (
    ConfigurationError,
    Description,
    DynamicConfig,
    NodeConfig,
    Source,
    Synonym,
    TopicConfig,
    check_topic_settings,
    describe_node,
    describe_topic,
    from_mapping,
)
from kraftpy.config.describe import describe_cluster_defaults
from kraftpy.config.topic_config import check_group_settings


def dynamic() -> DynamicConfig:
    return DynamicConfig(NodeConfig(from_mapping(GOOD_NODE, "test")))


def with_file(properties: dict[str, str]) -> DynamicConfig:
    return DynamicConfig(NodeConfig(from_mapping(GOOD_NODE | properties, "test")))


def named(descriptions: list[Description], name: str) -> Description:
    (found,) = [each for each in descriptions if each.name == name]
    return found


def test_the_broker_wins_over_the_cluster_and_the_cluster_over_the_file() -> None:
    """NET-25, config side."""
    node = with_file({"max.connections": "1"})
    seen = [node.current["max.connections"]]
    node.update(cluster={"max.connections": "2"})
    seen.append(node.current["max.connections"])
    node.update(per_broker={"max.connections": "3"})
    seen.append(node.current["max.connections"])
    node.update(per_broker={})
    seen.append(node.current["max.connections"])
    node.update(cluster={})
    seen.append(node.current["max.connections"])
    assert seen == [1, 2, 3, 2, 1]


def test_subscribers_hear_of_keys_whose_values_differ_until_they_leave() -> None:
    """NET-25, config side."""
    node = with_file({"max.connections": "5"})
    heard: list[tuple[object, tuple[str, ...]]] = []
    leave = node.subscribe(lambda config, keys: heard.append((config["max.connections"], keys)))
    node.update(cluster={"max.connections": "5", "max.connections.per.ip": "7"})
    node.update(cluster={"max.connections": "6", "max.connections.per.ip": "7"})
    node.update(cluster={"max.connections": "6", "max.connections.per.ip": "7"})
    node.update(per_broker={"listener.name.plaintext.max.connections": "2"})
    leave()
    node.update(cluster={})
    assert heard == [
        (5, ("max.connections.per.ip",)),
        (6, ("max.connections",)),
        (6, ("listener.name.plaintext.max.connections",)),
    ]


@pytest.mark.parametrize(
    ("settings", "per_broker", "reason"),
    [
        ({"node.id": "2"}, True, "node.id=2: can't be changed while the broker runs"),
        ({"node.id": "2"}, False, "can't be changed while the broker runs"),
        ({"listeners": "PLAINTEXT://:1"}, False, "for single brokers only"),
        ({"listener.name.x.ssl.keystore.type": "PEM"}, False, "for single brokers only"),
        ({"ssl.keystore.password": "hunter2"}, True, "listener.name.<name>.ssl.keystore.password"),
        ({"num.io.threads": "0"}, False, "num.io.threads=0"),
        ({"max.connections.per.ip": "0"}, False, "can be 0 only with exceptions"),
        ({"log.roll.ms": "0"}, True, "log.roll.ms=0"),
    ],
)
def test_refused_changes(settings: dict[str, str], per_broker: bool, reason: str) -> None:
    node = dynamic()
    with pytest.raises(ConfigurationError) as raised:
        node.check(settings, per_broker=per_broker)
    assert reason in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_checking_changes_nothing() -> None:
    node = dynamic()
    node.check({"max.connections": "1"}, per_broker=False)
    assert node.current["max.connections"] == 2**31 - 1


def test_a_recorded_value_that_cannot_be_used_is_left_out_and_the_rest_holds() -> None:
    node = dynamic()
    problems = node.update(
        cluster={"max.connections": "many", "max.connections.per.ip": "9", "node.id": "3"},
        per_broker={"log.roll.ms": "0", "log.retention.ms": "5"},
    )
    assert sorted(problem.key for problem in problems) == [
        "log.roll.ms",
        "max.connections",
        "node.id",
    ]
    assert node.current["max.connections.per.ip"] == 9
    assert node.current.log_retention_ms == 5
    assert node.current.node_id == 1


def test_a_recorded_value_that_clashes_with_the_file_is_left_out() -> None:
    """The rule names a key of the file; the dynamic one is what goes."""
    node = with_file({"group.consumer.max.assignment.interval.ms": "2000"})
    problems = node.update(cluster={"group.consumer.assignment.interval.ms": "3000"})
    assert [problem.key for problem in problems] == ["group.consumer.assignment.interval.ms"]
    assert node.current["group.consumer.assignment.interval.ms"] == 1000


def test_description_of_a_node() -> None:
    node = with_file(
        {"max.connections": "1", "ssl.keystore.password": "hunter2", "my.own.key": "hunter2"}
    )
    node.update(cluster={"max.connections": "2"}, per_broker={"max.connections": "3"})
    described = describe_node(node)
    connections = named(described, "max.connections")
    assert (connections.value, connections.source) == ("3", Source.BROKER)
    assert connections.synonyms == (
        Synonym("max.connections", "3", Source.BROKER),
        Synonym("max.connections", "2", Source.CLUSTER),
        Synonym("max.connections", "1", Source.STATIC),
        Synonym("max.connections", "2147483647", Source.DEFAULT),
    )
    assert not connections.read_only
    assert named(described, "node.id").read_only
    assert named(described, "ssl.keystore.password").sensitive
    assert named(described, "my.own.key").sensitive
    assert "hunter2" not in str(described)
    assert [each.name for each in described if each.name == "log.initial.task.delay.ms"] == []


def test_description_of_the_clusters_defaults() -> None:
    node = dynamic()
    node.update(cluster={"max.connections": "2"}, per_broker={"max.connections": "3"})
    (only,) = describe_cluster_defaults(node)
    assert (only.name, only.value, only.source) == ("max.connections", "2", Source.CLUSTER)
    assert only.synonyms == (Synonym("max.connections", "2", Source.CLUSTER),)


def test_a_listeners_key_has_the_nodes_as_synonym() -> None:
    node = with_file({"listener.name.plaintext.max.connections": "4", "max.connections": "9"})
    described = named(describe_node(node), "listener.name.plaintext.max.connections")
    assert [(each.name, each.value) for each in described.synonyms] == [
        ("listener.name.plaintext.max.connections", "4"),
        ("max.connections", "9"),
        ("max.connections", "2147483647"),
    ]


def test_a_topic_inherits_and_overrides() -> None:
    node = with_file({"log.retention.hours": "1", "log.segment.bytes": "2000000"})
    node.update(cluster={"message.max.bytes": "77"})
    topic = TopicConfig({"segment.bytes": "3000000", "cleanup.policy": "compact"}, node.current)
    assert topic["retention.ms"] == 3_600_000
    assert topic["max.message.bytes"] == 77
    assert topic.segment_bytes == 3_000_000
    assert topic.is_compacted
    assert topic["segment.ms"] == 604_800_000
    assert topic["flush.ms"] == 2**63 - 1
    described = describe_topic(topic, node)
    assert named(described, "segment.bytes").synonyms == (
        Synonym("segment.bytes", "3000000", Source.TOPIC),
        Synonym("log.segment.bytes", "2000000", Source.STATIC),
        Synonym("log.segment.bytes", "1073741824", Source.DEFAULT),
    )
    assert named(described, "max.message.bytes").source is Source.CLUSTER
    # As in Kafka, a retention given in hours has no synonym under the name of milliseconds.
    retention = named(described, "retention.ms")
    assert (retention.value, retention.source, retention.synonyms) == (
        "3600000",
        Source.DEFAULT,
        (),
    )


def test_tests_may_use_tiny_segments() -> None:
    topic = TopicConfig({"internal.segment.bytes": "100"}, dynamic().current)
    assert topic.segment_bytes == 100


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"retention.msec": "1"}, "retention.msec=1: is no key of a topic"),
        ({"segment.bytes": "1048575"}, "segment.bytes=1048575: must be at least 1048576"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "max.compaction.lag.ms=1"),
        ({"remote.storage.enable": "true"}, "there is no tiered storage"),
    ],
)
def test_refused_topic_settings(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_topic_settings(settings, dynamic().current)
    assert reason in str(raised.value)


def test_accepted_topic_settings() -> None:
    check_topic_settings({"segment.bytes": "1048576", "cleanup.policy": ""}, dynamic().current)


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"consumer.session.timeout.ms": "44999"}, True),
        ({"consumer.session.timeout.ms": "45000"}, False),
        ({"consumer.session.timeout.ms": "60001"}, True),
        ({"consumer.heartbeat.interval.ms": "15000"}, False),
        ({"consumer.heartbeat.interval.ms": "15001"}, True),
        ({"streams.num.standby.replicas": "2"}, False),
        ({"streams.num.standby.replicas": "3"}, True),
        ({"share.auto.offset.reset": "earliest"}, False),
        ({"no.such.key": "1"}, True),
    ],
)
def test_group_settings_stay_in_the_brokers_bounds(
    settings: dict[str, str], *, refused: bool
) -> None:
    if refused:
        with pytest.raises(ConfigurationError):
            check_group_settings(settings, dynamic().current)
    else:
        check_group_settings(settings, dynamic().current)


def test_a_groups_heartbeat_stays_below_its_session() -> None:
    node = with_file(
        {
            "group.consumer.max.heartbeat.interval.ms": "60000",
            "group.consumer.max.session.timeout.ms": "60000",
        }
    ).current
    settings = {"consumer.heartbeat.interval.ms": "50000"}
    with pytest.raises(ConfigurationError, match="must be less than"):
        check_group_settings(settings, node)
    check_group_settings(settings | {"consumer.session.timeout.ms": "50001"}, node)
