"""Topics and the ends of their logs, for workloads: our own admin client, in any World."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from kraftpy.client.admin import Admin, open_admin
from kraftpy.client.admin_core import Ask, Operation
from kraftpy.client.admin_groups import group_offsets, list_offsets
from kraftpy.client.admin_operations import (
    ConfigKind,
    NewTopic,
    alter_configs,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    require,
)
from kraftpy.client.calls import TopicPartition
from kraftpy.client.cluster import TopicInfo, topic_info
from kraftpy.client.errors import KafkaError, failure_of
from kraftpy.client.leader_questions import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kraftpy.client.settings import AdminSettings, ClientSettings, IsolationLevel
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import format_uuid
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataRequestTopic
from kraftpy.protocol.schema.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kraftpy.protocol.schema.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kraftpy.protocol.schema.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kraftpy.verify.workloads.own_client import client_error, translated
from kraftpy.verify.workloads.port import LogEnds, PartitionView, TopicView
from kraftpy.world import Address, World

__all__ = ["OwnAdmin", "open_own_admin"]

_REQUEST_TIMEOUT_MS = 2_000
_OPERATION_TIMEOUT_MS = 10_000


@asynccontextmanager
async def open_own_admin(world: World, bootstrap: Sequence[Address]) -> AsyncIterator[OwnAdmin]:
    client = ClientSettings(
        client_id="workload-admin",
        request_timeout_ms=_REQUEST_TIMEOUT_MS,
        socket_connection_setup_timeout_ms=_REQUEST_TIMEOUT_MS,
    )
    settings = AdminSettings(client=client, default_api_timeout_ms=_OPERATION_TIMEOUT_MS)
    async with open_admin(world, bootstrap, settings) as admin:
        yield OwnAdmin(admin)


class OwnAdmin:
    """A WorkloadAdmin. Made by `open_own_admin`."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> str:
        topic = NewTopic(name, partitions, replication_factor, configs)
        with translated():
            return await self._admin.run(_create(topic))

    async def topic_exists(self, name: str) -> bool:
        """As the controller has it: it is asked to create such a topic, and not to do it."""
        with translated():
            outcomes = await self._admin.run(create_topics([NewTopic(name)], validate_only=True))
        failure = outcomes[name]
        if failure is None or failure.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return failure is not None
        raise client_error(failure)

    async def delete_topic(self, name: str) -> None:
        with translated():
            require(await self._admin.run(delete_topics([name])))

    async def describe_topic(
        self, name: str, *, config_keys: Sequence[str] = (), via: int | None = None
    ) -> TopicView | None:
        with translated():
            return await self._admin.run(_describe(name, config_keys, via))

    async def set_config(self, topic: str, key: str, value: str) -> None:
        with translated():
            await self._admin.run(alter_configs(ConfigKind.TOPIC, topic, {key: value}))

    async def log_ends(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, LogEnds]:
        """Asked in the order in which they must not overtake each other: none of them ever goes
        back, so what is asked later may only be larger.
        """
        committed = IsolationLevel.READ_COMMITTED
        run = self._admin.run
        with translated():
            starts = await run(list_offsets(dict.fromkeys(wheres, EARLIEST_TIMESTAMP)))
            ends = dict.fromkeys(wheres, LATEST_TIMESTAMP)
            stable = await run(list_offsets(ends, isolation_level=committed))
            high = await run(list_offsets(ends))
        return {where: LogEnds(starts[where], stable[where], high[where]) for where in wheres}

    async def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        with translated():
            found = await self._admin.run(group_offsets(group_id))
        return {where: each.offset for where, each in found.items()}

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        with translated():
            for outcome in (await self._admin.run(delete_records(before))).values():
                if isinstance(outcome, KafkaError):
                    raise outcome

    async def reassign(self, where: TopicPartition, replicas: Sequence[int]) -> None:
        with translated():
            await self._admin.run(_reassign(where, replicas))

    async def broker_ids(self) -> list[int]:
        with translated():
            cluster = await self._admin.run(describe_cluster())
        return [broker.node_id for broker in cluster.brokers]

    async def addresses(self) -> dict[int, Address]:
        """Where the brokers listen."""
        with translated():
            cluster = await self._admin.run(describe_cluster())
        return {broker.node_id: broker.address for broker in cluster.brokers}


def _create(topic: NewTopic) -> Operation[str]:
    """As `create_topics`, of one topic, and its id."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[
                    CreatableTopicConfig(name=key, value=value)
                    for key, value in topic.configs.items()
                ],
            )
        ],
        timeout_ms=_OPERATION_TIMEOUT_MS,
    )
    answer = yield Ask(request, lambda answer: [each.error_code for each in answer.topics])
    [created] = answer.topics
    failure = failure_of(created.error_code, created.error_message)
    if failure is not None:
        raise failure
    return format_uuid(created.topic_id)


def _describe(
    name: str, config_keys: Sequence[str], via: int | None
) -> Operation[TopicView | None]:
    answer = yield Ask(
        MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False),
        lambda answer: (),
        via,
    )
    info = topic_info(name, answer.topics[0])
    if info.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if info.error != ErrorCode.NONE:
        raise KafkaError(info.error)
    if not config_keys:
        return _view(info, {})
    configs = yield from _configs(name, config_keys, via)
    again = yield from _describe(name, (), via)
    if configs is None or again is None or again.topic_id != format_uuid(info.topic_id):
        # It went, or another one came in its place, between the questions.
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"{name} changed while it was looked at")
    return _view(info, configs)


def _configs(
    name: str, config_keys: Sequence[str], via: int | None
) -> Operation[dict[str, str | None] | None]:
    resource = DescribeConfigsResource(
        resource_type=ConfigKind.TOPIC, resource_name=name, configuration_keys=list(config_keys)
    )
    answer = yield Ask(DescribeConfigsRequest(resources=[resource]), lambda answer: (), via)
    [result] = answer.results
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    failure = failure_of(result.error_code, result.error_message)
    if failure is not None:
        raise failure
    return {each.name: each.value for each in result.configs}


def _view(info: TopicInfo, configs: dict[str, str | None]) -> TopicView:
    partitions = {
        number: PartitionView(each.leader_id, each.leader_epoch, each.replicas, each.isr)
        for number, each in info.partitions.items()
    }
    return TopicView(format_uuid(info.topic_id), partitions, configs)


def _reassign(where: TopicPartition, replicas: Sequence[int]) -> Operation[None]:
    partition = ReassignablePartition(
        partition_index=where.partition, replicas=list(replicas) or None
    )
    topic = ReassignableTopic(name=where.topic, partitions=[partition])
    answer = yield Ask(
        AlterPartitionReassignmentsRequest(topics=[topic]), lambda answer: [answer.error_code]
    )
    codes = [answer.error_code] + [
        each.error_code for topic in answer.responses for each in topic.partitions
    ]
    for code in codes:
        failure = failure_of(code)
        if failure is not None:
            raise failure
