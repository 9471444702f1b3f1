"""Administrators' clients change a cluster: librdkafka's, and Kafka's own command line tools."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from compat.node_process import NodeProcess, complaints_in, running_node
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from support.kafka_jars import run_java

pytestmark = pytest.mark.compat

SECONDS = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with running_node(
        tmp_path_factory.mktemp("admin"),
        *("--set", f"authorizer.class.name={authorizer}"),
        *("--set", "super.users=User:ANONYMOUS"),
    ) as process:
        yield process
        assert process.stop() == 0, process.log()
        assert complaints_in(process.log()) == []


@pytest.fixture
def admin(node: NodeProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap})


def only(futures: dict[Any, Future[Any]]) -> Any:
    [future] = futures.values()
    return future.result(SECONDS)


def create(admin: AdminClient, name: str, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    only(admin.create_topics([NewTopic(name, 3, 1, config=settings)]))
    eventually(lambda: name in admin.list_topics(timeout=SECONDS).topics, True)


def eventually(ask: Callable[[], Any], expected: Any) -> None:
    """Brokers hear of a change later than whoever asked the controller for it."""
    deadline = time.monotonic() + SECONDS
    while (found := ask()) != expected:
        assert time.monotonic() < deadline, found


def test_the_life_of_a_topic(admin: AdminClient) -> None:
    """KRF-130: all of it through a broker, which forwards it."""
    create(admin, "orders")
    found = admin.list_topics(timeout=SECONDS).topics["orders"]
    assert [each.leader for each in found.partitions.values()] == [1, 1, 1]
    with pytest.raises(KafkaException) as refused:
        create(admin, "orders")
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    only(admin.create_partitions([NewPartitions("orders", 5)]))
    orders = TopicCollection(["orders"])
    eventually(lambda: len(only(admin.describe_topics(orders)).partitions), 5)
    only(admin.delete_topics(["orders"]))
    eventually(lambda: "orders" in admin.list_topics(timeout=SECONDS).topics, False)


def test_settings_of_topics_and_brokers(admin: AdminClient) -> None:
    create(admin, "settings", retention_ms="1000")
    topic = ConfigResource(ConfigResource.Type.TOPIC, "settings")
    assert only(admin.describe_configs([topic]))["retention.ms"].value == "1000"
    change = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    altered = ConfigResource(ConfigResource.Type.TOPIC, "settings", incremental_configs=[change])
    only(admin.incremental_alter_configs([altered]))
    eventually(lambda: only(admin.describe_configs([topic]))["retention.ms"].value, "5000")
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    assert only(admin.describe_configs([broker]))["node.id"].value == "1"


def test_access_control_entries(admin: AdminClient) -> None:
    entry = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:ann",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    only(admin.create_acls([entry]))
    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    eventually(lambda: admin.describe_acls(every).result(SECONDS), [entry])
    assert only(admin.delete_acls([every])) == [entry]
    eventually(lambda: admin.describe_acls(every).result(SECONDS), [])


def test_a_topic_that_is_asked_for_comes_into_being(admin: AdminClient) -> None:
    """NET-77: the client may be told to wait, and asks again by itself or when it is made to."""
    deadline = time.monotonic() + SECONDS
    found = admin.list_topics("wanted", timeout=SECONDS).topics["wanted"]
    while found.error is not None and time.monotonic() < deadline:
        assert found.error.code() == KafkaError.LEADER_NOT_AVAILABLE
        found = admin.list_topics("wanted", timeout=SECONDS).topics["wanted"]
    assert {each.leader for each in found.partitions.values()} == {1}


@pytest.mark.java
@pytest.mark.parametrize(
    ("tool", "arguments", "shown"),
    [
        ("org.apache.kafka.tools.TopicCommand", "--describe --topic java", "PartitionCount: 3"),
        (
            "kafka.admin.ConfigCommand",
            "--entity-type brokers --entity-name 1 --alter --add-config log.cleaner.threads=2",
            "Completed updating config for broker 1.",
        ),
        ("org.apache.kafka.tools.MetadataQuorumCommand", "describe --status", "LeaderId:"),
        ("org.apache.kafka.tools.FeatureCommand", "describe", "metadata.version"),
        (
            "org.apache.kafka.tools.AclCommand",
            "--add --allow-principal User:ann --operation Read --topic java",
            "(principal=User:ann, host=*, operation=READ, permissionType=ALLOW)",
        ),
        (
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            "--list",
            "No partition reassignments found.",
        ),
    ],
)
def test_kafka_s_own_tools(
    node: NodeProcess, admin: AdminClient, tool: str, arguments: str, shown: str
) -> None:
    if "java" not in admin.list_topics(timeout=SECONDS).topics:
        create(admin, "java")
    done = run_java(tool, "--bootstrap-server", node.bootstrap, *arguments.split())
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
