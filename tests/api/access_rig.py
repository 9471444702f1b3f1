"""A whole node with an authorizer, on the memory twins, and clients of it who may do this or that.

It has three listeners. Clients come by PLAINTEXT, and by SECOND, which is a controller's listener;
they are User:ANONYMOUS. Who comes by CONTROLLER, as the node itself does, is a super user.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import trio
from support.simulated_nodes import SimulatedNodes, run_nodes

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftpy.protocol.schema.k10_find_coordinator import FindCoordinatorRequest
from kraftpy.protocol.schema.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kraftpy.protocol.schema.k30_create_acls import AclCreation, CreateAclsRequest
from kraftpy.protocol.schema.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kraftpy.protocol.tables import Request, Struct
from kraftpy.security.acl_terms import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

BROKER_PORT, NODE_PORT, SECOND_PORT = 9092, 9093, 9094
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT,SECOND:PLAINTEXT"
ACCESS_SETTINGS = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:node",
    "listener.name.controller.kraftpy.principal": "User:node",
    "listener.security.protocol.map": PROTOCOLS,
}
ONE_NODE = {
    **ACCESS_SETTINGS,
    "listeners": (
        f"PLAINTEXT://n1:{BROKER_PORT},CONTROLLER://n1:{NODE_PORT},SECOND://n1:{SECOND_PORT}"
    ),
    "controller.listener.names": "CONTROLLER,SECOND",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "true",
}


def rule(
    operation: AclOperation,
    kind: ResourceType,
    name: str = CLUSTER_NAME,
    *,
    permission: AclPermission = AclPermission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:ANONYMOUS",
    host: str = "*",
) -> AclEntry:
    return AclEntry(kind, name, pattern, principal, host, operation, permission)


# What passes by itself.
LOADING = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class AccessRig:
    def __init__(self, nodes: SimulatedNodes) -> None:
        self.nodes = nodes
        self.topic_ids: dict[str, Uuid] = {}

    async def ask(
        self, request: Request, version: int | None = None, *, port: int = BROKER_PORT
    ) -> Any:
        return await self.nodes.ask(request, port=port, max_version=version)

    async def as_super_user(self, request: Request) -> Any:
        return await self.ask(request, port=NODE_PORT)

    async def create(self, *names: str) -> None:
        """Topics of one partition, which the broker knows when this returns."""
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
        ]
        created = await self.as_super_user(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        for topic in created.topics:
            assert topic.error_code == ErrorCode.NONE, topic.error_message
            self.topic_ids[topic.name] = topic.topic_id
        await self.settle()

    async def only_allow(self, *rules: AclEntry) -> None:
        """These are all the rules there are."""
        every = DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=AclPermission.ANY,
        )
        await self.as_super_user(DeleteAclsRequest(filters=[every]))
        answer = await self.as_super_user(
            CreateAclsRequest(creations=list(map(acl_creation, rules)))
        )
        assert all(each.error_code == ErrorCode.NONE for each in answer.results)
        await self.settle()

    async def coordinator(self, key: str, key_type: int = 0) -> None:
        """Wait until there is one; the sender must have the right to know of it."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        for _ in range(100):
            [found] = (await self.ask(request)).coordinators
            if found.error_code == ErrorCode.NONE:
                return
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await trio.sleep(0.1)
        raise AssertionError(f"no coordinator of {key}")

    async def commit(self, group: str, *topics: str) -> list[int]:
        """What becomes of an offset for each topic, when the group's coordinator has loaded."""
        for _ in range(100):
            answer = await self.ask(commit_request(group, *topics), 9)
            codes = [topic.partitions[0].error_code for topic in answer.topics]
            if not set(codes) & set(LOADING):
                return codes
            await trio.sleep(0.1)
        raise AssertionError(f"{group} is not loaded")

    async def settle(self) -> None:
        """What is committed has reached the broker, too."""
        await trio.sleep(0.1)


def commit_request(group: str, *topics: str) -> OffsetCommitRequest:
    """Of one who is no member; up to version 9."""
    partition = OffsetCommitRequestPartition(committed_offset=1, committed_metadata="")
    return OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in topics],
    )


def acl_creation(entry: AclEntry) -> AclCreation:
    fields = entry._asdict()
    fields["resource_pattern_type"] = fields.pop("pattern_type")
    return AclCreation(**fields)


def run_access(
    scenario: Callable[[AccessRig], Awaitable[None]], settings: dict[str, str] | None = None
) -> None:
    async def system(nodes: SimulatedNodes) -> None:
        await nodes.start("n1", settings={**ONE_NODE, **(settings or {})})
        await scenario(AccessRig(nodes))

    run_nodes(system)


def codes_of(answer: Struct) -> Iterator[ErrorCode]:
    """All codes of errors in an answer, wherever they stand; NONE is no error."""
    for name in type(answer).__annotations__:
        value = getattr(answer, name, None)
        if name.endswith("error_code") and value != ErrorCode.NONE:
            assert isinstance(value, int)
            yield ErrorCode(value)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from codes_of(each)
