"""ACLs, side by side with Apache Kafka and its StandardAuthorizer: the same verdicts.

Both nodes have a listener for clients, who are User:ANONYMOUS, and one for administrators, who are
super users; so is the node itself. Kafka knows them by a login, kraftpy by the listener.

Every API that a broker serves is asked for with the rights of test_access_table.py, and without
each one of them.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from api.access_rig import AUTHORIZER, acl_creation, codes_of, commit_request, rule
from api.test_access_table import CODES, ON_BROKERS, Made, request_of
from compat.test_bad_input import START_SECONDS, formatted_process
from support.kafka_jars import QUICK_JAVA, classpath
from support.ports import unused_ports

from kraftpy.client.blocking import BlockingConnection
from kraftpy.client.errors import ConnectionLost, NegotiationFailed
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema import k03_metadata as k03
from kraftpy.protocol.schema import k10_find_coordinator as k10
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k22_init_producer_id as k22
from kraftpy.protocol.schema import k31_delete_acls as k31
from kraftpy.protocol.schema import k60_describe_cluster as k60
from kraftpy.protocol.schema import k75_describe_topic_partitions as k75
from kraftpy.protocol.schema.k17_sasl_handshake import SaslHandshakeRequest
from kraftpy.protocol.schema.k30_create_acls import CreateAclsRequest
from kraftpy.protocol.schema.k36_sasl_authenticate import SaslAuthenticateRequest
from kraftpy.protocol.tables import Request
from kraftpy.security.acl_terms import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

pytestmark = [pytest.mark.compat, pytest.mark.java]

# How long a change may take to be in force on both sides of a node.
SETTLING_SECONDS = 60
PLAIN_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="s" user_admin="s";'
)
KAFKA_SETTINGS = (
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT,"
    "CONTROLLER:SASL_PLAINTEXT\n"
    "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n"
    "sasl.mechanism.controller.protocol=PLAIN\n"
    f"listener.name.admin.plain.sasl.jaas.config={PLAIN_LOGIN}\n"
    f"listener.name.controller.plain.sasl.jaas.config={PLAIN_LOGIN}\n"
)
OWN_SETTINGS = (
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
    "listener.name.admin.kraftpy.principal=User:admin\n"
    "listener.name.controller.kraftpy.principal=User:admin\n"
)
TOPIC, CLUSTER, NONE = ResourceType.TOPIC, ResourceType.CLUSTER, ErrorCode.NONE


@dataclass
class Side:
    """A node: what clients and what administrators may ask of it."""

    port: int
    admin: BlockingConnection
    topic_ids: dict[str, Uuid]

    def ask(self, request: Request, version: int | None = None) -> Any:
        """As a client, by a connection of its own."""
        with BlockingConnection(("127.0.0.1", self.port)) as client:
            return client.request(request, max_version=version)

    def only_allow(self, rules: Sequence[AclEntry]) -> None:
        every = k31.DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=AclPermission.ANY,
        )
        [deleted] = self.admin.request(k31.DeleteAclsRequest(filters=[every])).filter_results
        assert deleted.error_code == ErrorCode.NONE, deleted.error_message
        created = self.admin.request(CreateAclsRequest(creations=list(map(acl_creation, rules))))
        assert all(each.error_code == ErrorCode.NONE for each in created.results)

    def code_of(self, request: Request, name: str) -> int:
        """Of one topic in the answer to a client."""
        topics = {each.name: each for each in self.ask(request).topics}
        code: int = topics[name].error_code
        return code


@contextmanager
def side(
    folder: Path, formatting: Sequence[str], running: Sequence[str], settings: str
) -> Iterator[Side]:
    port = unused_ports(3)
    config = (
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{port + 2}\n"
        "controller.listener.names=CONTROLLER\ninter.broker.listener.name=ADMIN\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},ADMIN://127.0.0.1:{port + 1},"
        f"CONTROLLER://127.0.0.1:{port + 2}\n"
        f"log.dirs={folder}/data\n"
        f"authorizer.class.name={AUTHORIZER}\nsuper.users=User:admin\n"
        "offsets.topic.num.partitions=1\noffsets.topic.replication.factor=1\n"
        "transaction.state.log.num.partitions=1\ntransaction.state.log.replication.factor=1\n"
        "transaction.state.log.min.isr=1\n"
        f"{settings}"
    )
    has_login = "SASL" in settings
    with (
        formatted_process(folder, formatting, running, config) as process,
        connected(port + 1, process, has_login=has_login) as admin,
    ):
        created = admin.request(
            k19.CreateTopicsRequest(
                topics=[
                    k19.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                    for name in ("t", "secret", "seen")
                ],
                timeout_ms=30_000,
            )
        )
        topic_ids = {each.name: each.topic_id for each in created.topics}
        for key, key_type in (("g", 0), ("x", 1)):
            until(lambda key=key, key_type=key_type: found(admin, key, key_type))  # type: ignore[misc]
        until(
            lambda: set(codes_of(admin.request(commit_request("g", "t"), max_version=9))) == set()
        )
        yield Side(port, admin, topic_ids)


def connected(
    port: int, process: subprocess.Popen[bytes], *, has_login: bool
) -> BlockingConnection:
    """Of an administrator, when the node serves."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, "it did not start"
        assert time.monotonic() < deadline, "it did not become ready"
        try:
            connection = BlockingConnection(("127.0.0.1", port))
            if has_login:
                shaken = connection.request(SaslHandshakeRequest(mechanism="PLAIN"))
                assert shaken.error_code == ErrorCode.NONE
                login = connection.request(SaslAuthenticateRequest(auth_bytes=b"\0admin\0s"))
                assert login.error_code == ErrorCode.NONE
            nodes = connection.request(k60.DescribeClusterRequest()).brokers
            if nodes:
                return connection
        except (ConnectionLost, NegotiationFailed):
            pass
        time.sleep(0.2)


def found(admin: BlockingConnection, key: str, key_type: int) -> bool:
    request = k10.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    [coordinator] = admin.request(request).coordinators
    return bool(coordinator.error_code == ErrorCode.NONE)


def has_committed(admin: BlockingConnection) -> bool:
    """The group g, an offset of t."""
    return not set(codes_of(admin.request(commit_request("g", "t"), max_version=9)))


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLING_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Kafka, and kraftpy."""
    root = tmp_path_factory.mktemp("access")
    java = [*QUICK_JAVA, "-Xmx512m", "-cp", classpath()]
    own = [sys.executable, "-m", "kraftpy.cli.main"]
    storage = [*java, "kafka.tools.StorageTool", "format"]
    with (
        side(root / "kafka", storage, [*java, "kafka.Kafka"], KAFKA_SETTINGS) as kafka,
        side(root / "kraftpy", [*own, "storage", "format"], [*own, "node"], OWN_SETTINGS) as ours,
    ):
        yield kafka, ours


def come_to(sides: tuple[Side, Side], verdict: Callable[[Side], Any], expected: Any) -> None:
    """Both say this, if not at once then when the last change has come everywhere."""
    deadline = time.monotonic() + SETTLING_SECONDS
    while (said := [verdict(each) for each in sides]) != [expected, expected]:
        assert time.monotonic() < deadline, f"Kafka and kraftpy say {said}, and not {expected}"
        time.sleep(0.05)


@pytest.mark.parametrize("key", sorted(ON_BROKERS), ids=lambda key: API[key].name)
def test_the_same_rights_are_needed(sides: tuple[Side, Side], key: int) -> None:
    """NET-69 to NET-72, NET-74, NET-76, TXN-42."""
    spec = API[key]
    version = spec.max_version
    if key == 22:
        version = 5

    def refusals(each: Side) -> set[ErrorCode]:
        made = Made(version, each.topic_ids["t"])
        answer = each.ask(request_of(key, ON_BROKERS[key], made), version)
        return set(codes_of(answer)) & set(CODES.values())

    needs = ON_BROKERS[key].needs(version)
    for missing in (None, *needs):
        for each in sides:
            each.only_allow([need for need in needs if need != missing])
        expected = set() if missing is None else {CODES[ResourceType(missing.resource_type)]}
        come_to(sides, refusals, expected)


PROBES: dict[str, Callable[[Side], Request]] = {
    "metadata of all": lambda _: k03.MetadataRequest(topics=None),
    "metadata by name": lambda _: k03.MetadataRequest(
        topics=[k03.MetadataRequestTopic(name=name) for name in ("t", "secret", "seen", "none")]
    ),
    "metadata by id": lambda each: k03.MetadataRequest(
        topics=[
            k03.MetadataRequestTopic(name=None, topic_id=topic_id)
            for topic_id in each.topic_ids.values()
        ]
    ),
    "pages": lambda _: k75.DescribeTopicPartitionsRequest(),
    "pages by name": lambda _: k75.DescribeTopicPartitionsRequest(
        topics=[k75.TopicRequest(name=name) for name in ("t", "secret", "seen", "none")]
    ),
    "create": lambda _: k19.CreateTopicsRequest(
        topics=[
            k19.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            for name in ("made", "secret", "none", "twice", "twice")
        ],
        validate_only=True,
    ),
    "delete by name": lambda _: k20.DeleteTopicsRequest(
        topics=[k20.DeleteTopicState(name=name) for name in ("secret", "seen", "none", "void")]
    ),
    "delete by id": lambda each: k20.DeleteTopicsRequest(
        topics=[
            k20.DeleteTopicState(name=None, topic_id=each.topic_ids[name])
            for name in ("secret", "seen")
        ]
    ),
    "idempotent": lambda _: k22.InitProducerIdRequest(transactional_id=None),
    "operations": lambda _: k60.DescribeClusterRequest(include_cluster_authorized_operations=True),
}
RULES = [
    rule(AclOperation.READ, TOPIC, "t"),
    rule(AclOperation.ALL, TOPIC, "secret", permission=AclPermission.DENY),
    rule(AclOperation.DESCRIBE, TOPIC, "s", pattern=PatternType.PREFIXED),
    rule(AclOperation.READ, TOPIC, "seen", permission=AclPermission.DENY),
    rule(AclOperation.WRITE, TOPIC, "void"),
    rule(AclOperation.CREATE, TOPIC, "made", host="127.0.0.1"),
    rule(AclOperation.CREATE, TOPIC, "secret", host="127.0.0.2"),
    rule(AclOperation.ALL, TOPIC, "none", principal="User:somebody"),
    rule(AclOperation.ALTER, CLUSTER, principal="User:*"),
]


@pytest.mark.parametrize("name", PROBES)
def test_the_same_is_shown_and_hidden(sides: tuple[Side, Side], name: str) -> None:
    """What is told of topics that one may see, may not see, or that are not there."""
    for each in sides:
        each.only_allow(RULES)
    # In force on the broker, and on the controller.
    come_to(sides, lambda each: each.code_of(PROBES["metadata by name"](each), "t"), NONE)
    come_to(sides, lambda each: each.code_of(PROBES["create"](each), "made"), NONE)

    def shown(each: Side) -> list[Any]:
        names = {topic_id: known for known, topic_id in each.topic_ids.items()}
        answer = each.ask(PROBES[name](each))
        told = [
            (
                getattr(item, "name", None),
                names.get(getattr(item, "topic_id", None), ""),  # type: ignore[arg-type]
                item.error_code,
                getattr(item, "topic_authorized_operations", None),
                getattr(item, "topic_config_error_code", None),
            )
            for item in getattr(answer, "topics", None) or getattr(answer, "responses", None) or ()
        ]
        operations = getattr(answer, "cluster_authorized_operations", None)
        return [sorted(told, key=str), getattr(answer, "error_code", None), operations]

    kafka, ours = sides
    assert shown(ours) == shown(kafka)
