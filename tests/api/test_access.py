"""What an authorizer makes of requests: where one right stands for another, what is not revealed,
and by whose rights a request is judged.
"""

from __future__ import annotations

from typing import Any

import trio
from api.access_rig import (
    ACCESS_SETTINGS,
    BROKER_PORT,
    NODE_PORT,
    ONE_NODE,
    SECOND_PORT,
    AccessRig,
    acl_creation,
    rule,
    run_access,
)
from support.simulated_nodes import SimulatedNodes, run_nodes

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.protocol.schema import k00_produce as k00
from kraftpy.protocol.schema import k01_fetch as k01
from kraftpy.protocol.schema import k03_metadata as k03
from kraftpy.protocol.schema import k09_offset_fetch as k09
from kraftpy.protocol.schema import k15_describe_groups as k15
from kraftpy.protocol.schema import k16_list_groups as k16
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k22_init_producer_id as k22
from kraftpy.protocol.schema import k23_offset_for_leader_epoch as k23
from kraftpy.protocol.schema import k27_write_txn_markers as k27
from kraftpy.protocol.schema import k29_describe_acls as k29
from kraftpy.protocol.schema import k30_create_acls as k30
from kraftpy.protocol.schema import k31_delete_acls as k31
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.protocol.schema import k60_describe_cluster as k60
from kraftpy.protocol.schema import k66_list_transactions as k66
from kraftpy.protocol.schema import k68_consumer_group_heartbeat as k68
from kraftpy.protocol.schema import k69_consumer_group_describe as k69
from kraftpy.protocol.schema import k75_describe_topic_partitions as k75
from kraftpy.security.acl_terms import AclOperation, AclPermission, PatternType, ResourceType

READ, WRITE, CREATE, DELETE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
)
ALTER, DESCRIBE, ALL = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.ALL
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION = ResourceType.TRANSACTIONAL_ID
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NONE = ErrorCode.NONE
NOT_TOLD = -(2**31)
INSIDE_PORT = 9095


def creation(*names: str, validate_only: bool = False) -> k19.CreateTopicsRequest:
    return k19.CreateTopicsRequest(
        topics=[
            k19.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
        ],
        timeout_ms=10_000,
        validate_only=validate_only,
    )


def metadata_of(*names: str, **options: Any) -> k03.MetadataRequest:
    return k03.MetadataRequest(
        topics=[k03.MetadataRequestTopic(name=name) for name in names], **options
    )


# Topics.


def test_who_may_create_in_the_cluster_may_create_each_topic() -> None:
    """NET-72: otherwise the topic itself must be allowed. NET-73: twice is an error of its own."""

    async def scenario(rig: AccessRig) -> None:
        request = creation("a", "b", "c", "c", validate_only=True)

        async def codes() -> dict[str, tuple[int, str | None]]:
            found = (await rig.ask(request)).topics
            return {each.name: (each.error_code, each.error_message or None) for each in found}

        twice = (ErrorCode.INVALID_REQUEST, "the request names the topic twice")
        refused = (DENIED, "Authorization failed.")
        await rig.only_allow()
        assert await codes() == {"a": refused, "b": refused, "c": twice}
        await rig.only_allow(rule(CREATE, TOPIC, "b"))
        assert await codes() == {"a": refused, "b": (NONE, None), "c": twice}
        await rig.only_allow(rule(CREATE, CLUSTER))
        assert await codes() == {"a": (NONE, None), "b": (NONE, None), "c": twice}

    run_access(scenario)


def test_a_topic_is_created_for_one_who_may_not_see_its_settings() -> None:
    """NET-74."""

    async def scenario(rig: AccessRig) -> None:
        await rig.only_allow(rule(CREATE, CLUSTER), rule(AclOperation.DESCRIBE_CONFIGS, TOPIC, "b"))
        hidden, shown = (await rig.ask(creation("a", "b"))).topics
        assert (hidden.error_code, hidden.topic_config_error_code) == (NONE, DENIED)
        assert (hidden.num_partitions, hidden.replication_factor, hidden.configs) == (-1, -1, [])
        assert hidden.topic_id != ZERO_UUID
        assert (shown.error_code, shown.topic_config_error_code) == (NONE, NONE)
        assert shown.num_partitions == 1
        assert shown.configs

    run_access(scenario)


def test_topics_that_may_not_be_described_are_not_revealed() -> None:
    async def scenario(rig: AccessRig) -> None:
        await rig.create("open", "secret")
        await rig.only_allow(rule(READ, TOPIC, "open"))
        everything = (await rig.ask(k03.MetadataRequest(topics=None))).topics
        assert [each.name for each in everything] == ["open"]
        named = (
            await rig.ask(metadata_of("open", "secret", "none", allow_auto_topic_creation=False))
        ).topics
        assert [(each.name, each.error_code, each.topic_id) for each in named] == [
            ("open", NONE, rig.topic_ids["open"]),
            ("secret", DENIED, ZERO_UUID),
            ("none", DENIED, ZERO_UUID),
        ]
        by_id = k03.MetadataRequest(
            topics=[k03.MetadataRequestTopic(name=None, topic_id=rig.topic_ids["secret"])]
        )
        [found] = (await rig.ask(by_id)).topics
        assert (found.name, found.error_code, found.partitions) == (None, DENIED, [])
        pages = await rig.ask(k75.DescribeTopicPartitionsRequest())
        assert [each.name for each in pages.topics] == ["open"]
        request = k75.DescribeTopicPartitionsRequest(
            topics=[k75.TopicRequest(name=name) for name in ("none", "open", "secret")]
        )
        page = (await rig.ask(request)).topics
        assert [(each.name, each.error_code, each.topic_id) for each in page] == [
            ("open", NONE, rig.topic_ids["open"]),
            ("none", DENIED, ZERO_UUID),
            ("secret", DENIED, ZERO_UUID),
        ]

    run_access(scenario)


def test_asking_for_a_topic_creates_it_only_for_those_who_may() -> None:
    async def scenario(rig: AccessRig) -> None:
        described = rule(DESCRIBE, TOPIC, "n", pattern=PatternType.PREFIXED)

        async def code(name: str) -> int:
            [topic] = (await rig.ask(metadata_of(name))).topics
            result: int = topic.error_code
            return result

        await rig.only_allow(described)
        assert await code("new") == DENIED
        await rig.settle()
        await rig.only_allow(described, rule(CREATE, TOPIC, "new"))
        assert await code("new") == ErrorCode.LEADER_NOT_AVAILABLE
        assert await code("new2") == DENIED
        await rig.only_allow(described, rule(CREATE, CLUSTER))
        assert await code("new2") == ErrorCode.LEADER_NOT_AVAILABLE
        await rig.settle()
        assert [await code("new"), await code("new2")] == [NONE, NONE]

    run_access(scenario)


def test_deletion_reveals_neither_names_nor_existence() -> None:
    async def scenario(rig: AccessRig) -> None:
        await rig.create("seen", "secret", "mine")
        ids = rig.topic_ids
        await rig.only_allow(
            rule(READ, TOPIC, "seen"), rule(DELETE, TOPIC, "mine"), rule(READ, TOPIC, "gone")
        )

        async def delete(*states: k20.DeleteTopicState) -> list[tuple[Any, ...]]:
            answer = await rig.ask(k20.DeleteTopicsRequest(topics=list(states), timeout_ms=1000))
            return sorted(
                ((each.name, each.topic_id, each.error_code) for each in answer.responses),
                key=str,
            )

        def named(name: str) -> k20.DeleteTopicState:
            return k20.DeleteTopicState(name=name)

        def identified(name: str) -> k20.DeleteTopicState:
            return k20.DeleteTopicState(name=None, topic_id=ids[name])

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await delete(*map(named, ("seen", "secret", "none", "gone"))) == [
            ("gone", ZERO_UUID, unknown),
            ("none", ZERO_UUID, DENIED),
            ("secret", ZERO_UUID, DENIED),
            ("seen", ZERO_UUID, DENIED),
        ]
        assert await delete(identified("seen"), identified("secret")) == sorted(
            [("seen", ids["seen"], DENIED), (None, ids["secret"], DENIED)], key=str
        )
        assert await delete(identified("mine")) == [("mine", ids["mine"], NONE)]
        assert await delete(k20.DeleteTopicState(name=None, topic_id=ids["mine"])) == [
            (None, ids["mine"], ErrorCode.UNKNOWN_TOPIC_ID)
        ]
        await rig.only_allow(rule(DELETE, CLUSTER))
        assert await delete(named("seen"), identified("secret")) == [
            ("secret", ids["secret"], NONE),
            ("seen", ids["seen"], NONE),
        ]

    run_access(scenario)


# Data.


def produce(rig: AccessRig, *names: str, acks: int = 1) -> k00.ProduceRequest:
    return k00.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            k00.TopicProduceData(
                name=name,
                partition_data=[k00.PartitionProduceData(index=0, records=rig.nodes.batch(b"v"))],
            )
            for name in names
        ],
    )


def fetch(name: str, replica_id: int = -1) -> k01.FetchRequest:
    partition = k01.FetchPartition(partition=0, partition_max_bytes=1000)
    return k01.FetchRequest(
        replica_id=replica_id, topics=[k01.FetchTopic(topic=name, partitions=[partition])]
    )


def test_records_go_where_they_may_and_come_from_where_they_may() -> None:
    async def scenario(rig: AccessRig) -> None:
        await rig.create("a", "b")
        await rig.only_allow(rule(WRITE, TOPIC, "a"), rule(READ, TOPIC, "b"))
        produced = (await rig.ask(produce(rig, "a", "b", "none"), 12)).responses
        codes = {each.name: each.partition_responses[0].error_code for each in produced}
        assert codes == {"a": NONE, "b": DENIED, "none": DENIED}
        for name, expected in (("a", DENIED), ("b", NONE), ("none", DENIED)):
            [topic] = (await rig.ask(fetch(name), 12)).responses
            [data] = topic.partitions
            assert (data.error_code, bytes(data.records or b"")) == (expected, b"")
        await rig.only_allow(rule(READ, TOPIC, "*"))
        [topic] = (await rig.ask(fetch("a"), 12)).responses
        assert topic.partitions[0].error_code == NONE
        assert len(topic.partitions[0].records) > 0

    run_access(scenario)


def test_only_nodes_fetch_as_followers() -> None:
    """NET-71: whoever says that it is a replica needs the right of a node, and no other."""

    async def scenario(rig: AccessRig) -> None:
        await rig.create("a")

        async def code() -> int:
            [topic] = (await rig.ask(fetch("a", replica_id=1), 12)).responses
            found: int = topic.partitions[0].error_code
            return found

        await rig.only_allow(rule(ALL, TOPIC, "*"))
        assert await code() == DENIED
        await rig.only_allow(rule(AclOperation.CLUSTER_ACTION, CLUSTER))
        assert await code() != DENIED

    run_access(scenario)


def test_a_session_is_told_of_a_right_that_is_taken_away_and_given_back() -> None:
    async def scenario(rig: AccessRig) -> None:
        await rig.create("a")
        allowed = (rule(READ, TOPIC, "a"), rule(WRITE, TOPIC, "a"))
        await rig.only_allow(*allowed)
        first = fetch("a")
        first.session_epoch = 0
        session_id = (await rig.ask(first, 12)).session_id
        assert session_id > 0
        await rig.ask(produce(rig, "a"), 12)

        async def go_on(epoch: int) -> tuple[int, int]:
            request = k01.FetchRequest(session_id=session_id, session_epoch=epoch)
            [topic] = (await rig.ask(request, 12)).responses
            [data] = topic.partitions
            return data.error_code, len(data.records or b"")

        await rig.only_allow()
        assert await go_on(1) == (DENIED, 0)
        assert await go_on(2) == (DENIED, 0)
        await rig.only_allow(*allowed)
        code, size = await go_on(3)
        assert (code, size > 0) == (NONE, True)

    run_access(scenario)


def test_a_producer_is_idempotent_if_there_is_anything_it_may_write() -> None:
    async def scenario(rig: AccessRig) -> None:
        async def code() -> int:
            request = k22.InitProducerIdRequest(transactional_id=None)
            found: int = (await rig.ask(request)).error_code
            return found

        await rig.only_allow(rule(READ, TOPIC, "*"))
        assert await code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await rig.only_allow(rule(AclOperation.IDEMPOTENT_WRITE, CLUSTER))
        assert await code() == NONE
        await rig.only_allow(rule(WRITE, TOPIC, "a", pattern=PatternType.PREFIXED))
        assert await code() == NONE
        await rig.only_allow(
            rule(WRITE, TOPIC, "ab"),
            rule(WRITE, TOPIC, "a", pattern=PatternType.PREFIXED, permission=AclPermission.DENY),
        )
        assert await code() == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run_access(scenario)


def test_one_right_of_nodes_or_of_administrators() -> None:
    async def scenario(rig: AccessRig) -> None:
        await rig.create("a")
        epochs = k23.OffsetForLeaderEpochRequest(
            topics=[
                k23.OffsetForLeaderTopic(topic="a", partitions=[k23.OffsetForLeaderPartition()])
            ]
        )
        marker = k27.WritableTxnMarker(
            topics=[k27.WritableTxnMarkerTopic(name="a", partition_indexes=[7])]
        )
        await rig.only_allow(rule(AclOperation.CLUSTER_ACTION, CLUSTER))
        [topic] = (await rig.ask(epochs)).topics
        assert topic.partitions[0].error_code == NONE
        await rig.only_allow(rule(ALTER, CLUSTER))
        [marked] = (await rig.ask(k27.WriteTxnMarkersRequest(markers=[marker]))).markers
        code = marked.topics[0].partitions[0].error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run_access(scenario)


# Groups and transactions.


ALL_GROUPS = (rule(ALL, GROUP, "*"), rule(READ, TOPIC, "*"))


def test_a_client_without_the_right_to_create_finds_its_coordinator() -> None:
    """The broker creates the internal topic, not the client."""

    async def scenario(rig: AccessRig) -> None:
        await rig.only_allow(rule(DESCRIBE, GROUP, "g"), rule(DESCRIBE, TRANSACTION, "x"))
        await rig.coordinator("g")
        await rig.coordinator("x", key_type=1)

    run_access(scenario)


def test_offsets_of_a_group_are_about_topics_that_may_be_read() -> None:
    """NET-76: the group's refusal stands at each partition, a topic's at its own."""

    async def scenario(rig: AccessRig) -> None:
        await rig.create("a", "b")
        await rig.only_allow(*ALL_GROUPS)
        await rig.coordinator("g")
        assert await rig.commit("g", "a", "b") == [NONE, NONE]
        await rig.only_allow(rule(READ, TOPIC, "*"))
        assert await rig.commit("g", "a", "b") == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2
        await rig.only_allow(rule(ALL, GROUP, "*"), rule(READ, TOPIC, "a"))
        assert await rig.commit("g", "a", "b", "none") == [NONE, DENIED, DENIED]
        everything = k09.OffsetFetchRequest(
            groups=[k09.OffsetFetchRequestGroup(group_id="g", topics=None)]
        )
        [group] = (await rig.ask(everything, 9)).groups
        assert [topic.name for topic in group.topics] == ["a"]

    run_access(scenario)


def test_groups_are_listed_to_those_who_may_describe_them() -> None:
    """NET-75, GRP-46: all of them to those who may describe the cluster; never an error."""

    async def scenario(rig: AccessRig) -> None:
        await rig.create("a")
        await rig.only_allow(*ALL_GROUPS)
        for group in ("g1", "g2"):
            await rig.coordinator(group)
            assert await rig.commit(group, "a") == [NONE]

        async def listed() -> list[str]:
            answer = await rig.ask(k16.ListGroupsRequest())
            assert answer.error_code == NONE
            return sorted(each.group_id for each in answer.groups)

        await rig.only_allow()
        assert await listed() == []
        await rig.only_allow(rule(READ, GROUP, "g2"))
        assert await listed() == ["g2"]
        await rig.only_allow(rule(DESCRIBE, CLUSTER))
        assert await listed() == ["g1", "g2"]

    run_access(scenario)


async def initialized(rig: AccessRig, name: str) -> None:
    request = k22.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    for _ in range(100):
        if (await rig.ask(request)).error_code == NONE:
            return
        await trio.sleep(0.1)
    raise AssertionError("no producer id")


def test_transactions_are_listed_to_those_who_may_describe_them() -> None:
    """TXN-42."""

    async def scenario(rig: AccessRig) -> None:
        await rig.only_allow(rule(ALL, TRANSACTION, "*"))
        for name in ("x1", "x2"):
            await rig.coordinator(name, key_type=1)
            await initialized(rig, name)

        async def listed(**options: Any) -> list[str]:
            answer = await rig.ask(k66.ListTransactionsRequest(**options))
            assert answer.error_code == NONE
            return sorted(each.transactional_id for each in answer.transaction_states)

        assert await listed() == ["x1", "x2"]
        await rig.only_allow(rule(WRITE, TRANSACTION, "x2"))
        assert await listed() == ["x2"]
        assert await listed(transactional_id_pattern="x.*") == ["x2"]
        await rig.only_allow()
        assert await listed() == []

    run_access(scenario)


async def joined(rig: AccessRig, **subscription: Any) -> None:
    """A member of the consumer group g has got what there is to get."""
    member_id, epoch = "m" * 22, 0
    for _ in range(20):
        request = k68.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            topic_partitions=[],
            **subscription,
        )
        if epoch > 0:
            request = k68.ConsumerGroupHeartbeatRequest(
                group_id="g", member_id=member_id, member_epoch=epoch
            )
        answer = await rig.ask(request)
        if answer.error_code == NONE:
            epoch = answer.member_epoch
        await trio.sleep(0.5)
    assert epoch > 0


async def described(rig: AccessRig) -> Any:
    request = k69.ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    [group] = (await rig.ask(request)).groups
    return group


def test_a_pattern_finds_what_the_member_may_describe() -> None:
    """CGP-44."""

    async def scenario(rig: AccessRig) -> None:
        await rig.create("t1", "t2")
        await rig.only_allow(rule(ALL, GROUP, "g"), rule(DESCRIBE, TOPIC, "t1"))
        await rig.coordinator("g")
        await joined(rig, subscribed_topic_regex="t.*")
        await rig.only_allow(rule(ALL, GROUP, "g"), rule(DESCRIBE, TOPIC, "*"))
        group = await described(rig)
        assert group.error_code == NONE
        [member] = group.members
        assigned = [each.topic_name for each in member.target_assignment.topic_partitions]
        assert assigned == ["t1"]

    run_access(scenario)


def test_a_group_is_not_described_by_topics_that_may_not_be() -> None:
    """CGP-57."""

    async def scenario(rig: AccessRig) -> None:
        await rig.create("t1")
        await rig.only_allow(rule(ALL, GROUP, "g"), rule(DESCRIBE, TOPIC, "t1"))
        await rig.coordinator("g")
        await joined(rig, subscribed_topic_names=["t1"])
        group = await described(rig)
        assert group.error_code == NONE
        assert len(group.members) == 1
        await rig.only_allow(rule(READ, GROUP, "g"))
        group = await described(rig)
        assert (group.error_code, group.members) == (DENIED, [])

    run_access(scenario)


# What is told of rights.


def bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


def test_what_may_be_done_is_told_to_those_who_ask() -> None:
    async def scenario(rig: AccessRig) -> None:
        await rig.create("a")
        await rig.only_allow(rule(WRITE, TOPIC, "a"), rule(DELETE, GROUP, "g"), rule(READ, CLUSTER))
        on_topic = bits(WRITE, DESCRIBE)
        request = metadata_of("a", include_topic_authorized_operations=True)
        [topic] = (await rig.ask(request)).topics
        assert topic.topic_authorized_operations == on_topic
        [topic] = (await rig.ask(metadata_of("a"))).topics
        assert topic.topic_authorized_operations == NOT_TOLD
        pages = k75.DescribeTopicPartitionsRequest(topics=[k75.TopicRequest(name="a")])
        [topic] = (await rig.ask(pages)).topics
        assert topic.topic_authorized_operations == on_topic
        # The group is not there; Kafka says nothing of rights then.
        groups = k15.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        [group] = (await rig.ask(groups)).groups
        assert group.error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED
        cluster = k60.DescribeClusterRequest(include_cluster_authorized_operations=True)
        # READ means nothing for a cluster but that it may be described.
        assert (await rig.ask(cluster)).cluster_authorized_operations == bits(DESCRIBE)
        await rig.only_allow()
        assert (await rig.ask(cluster)).cluster_authorized_operations == 0
        await rig.only_allow(rule(ALL, CLUSTER))
        everything = bits(
            CREATE,
            ALTER,
            DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        )
        assert (await rig.ask(cluster)).cluster_authorized_operations == everything
        old = metadata_of("a", include_cluster_authorized_operations=True)
        assert (await rig.ask(old, 10)).cluster_authorized_operations == everything

    run_access(scenario)


# By whose rights.


def test_hosts_and_denials_count_on_brokers_and_through_them() -> None:
    """A forwarded request is judged by the client's principal and address, not by the broker's."""

    async def scenario(rig: AccessRig) -> None:
        await rig.only_allow(rule(ALL, CLUSTER))
        assert (await rig.ask(creation("a"))).topics[0].error_code == NONE
        [entry] = (await rig.as_super_user(every_acl())).resources[0].acls
        assert entry.principal == "User:ANONYMOUS"
        await rig.only_allow(rule(ALL, CLUSTER, host="192.0.2.99"))
        assert (await rig.ask(creation("b"))).topics[0].error_code == DENIED
        await rig.only_allow(
            rule(ALL, CLUSTER), rule(CREATE, CLUSTER, permission=AclPermission.DENY)
        )
        assert (await rig.ask(creation("b"))).topics[0].error_code == DENIED
        assert (await rig.as_super_user(creation("b"))).topics[0].error_code == NONE

    run_access(scenario)


def every_acl() -> k29.DescribeAclsRequest:
    return k29.DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def test_loggers_are_changed_by_those_who_may() -> None:
    async def scenario(rig: AccessRig) -> None:
        change = k44.AlterableConfig(name="kraftpy.api.access", config_operation=0, value="INFO")
        request = k44.IncrementalAlterConfigsRequest(
            resources=[
                k44.AlterConfigsResource(resource_type=8, resource_name="1", configs=[change])
            ],
            validate_only=True,
        )

        async def code(port: int) -> int:
            [result] = (await rig.ask(request, port=port)).responses
            found: int = result.error_code
            return found

        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await rig.only_allow(rule(AclOperation.ALTER_CONFIGS, CLUSTER))
        assert await code(BROKER_PORT) != refused
        assert await code(SECOND_PORT) == refused
        await rig.only_allow(rule(AclOperation.CLUSTER_ACTION, CLUSTER))
        assert await code(BROKER_PORT) == refused
        assert await code(SECOND_PORT) != refused

    run_access(scenario)


def test_without_an_authorizer_there_are_no_entries_to_ask_for() -> None:
    async def scenario(nodes: SimulatedNodes) -> None:
        await nodes.start("n1")
        disabled = ErrorCode.SECURITY_DISABLED
        for port in (BROKER_PORT, NODE_PORT):
            assert (await nodes.ask(every_acl(), port=port)).error_code == disabled
            created = await nodes.ask(
                k30.CreateAclsRequest(creations=[k30.AclCreation()]), port=port
            )
            assert [each.error_code for each in created.results] == [disabled]
            deleted = await nodes.ask(
                k31.DeleteAclsRequest(filters=[k31.DeleteAclsFilter()]), port=port
            )
            assert [each.error_code for each in deleted.filter_results] == [disabled]

    run_nodes(scenario)


def test_rules_outlive_the_node() -> None:
    """They are in force before the first client is served again."""

    async def scenario(nodes: SimulatedNodes) -> None:
        await nodes.start("n1", settings=ONE_NODE)
        rig = AccessRig(nodes)
        await rig.create("a", "b")
        await rig.only_allow(rule(READ, TOPIC, "a"))
        await nodes.stop("n1")
        await nodes.start("n1", settings=ONE_NODE)
        topics = (await rig.ask(metadata_of("a", "b"))).topics
        assert [each.error_code for each in topics] == [NONE, DENIED]

    run_nodes(scenario)


def test_open_where_no_rule_is_if_the_node_is_told_so() -> None:
    """`allow.everyone.if.no.acl.found`, also for the node itself, which is no super user here."""

    async def scenario(rig: AccessRig) -> None:
        assert (await rig.ask(creation("a"))).topics[0].error_code == NONE
        await rig.settle()
        entry = acl_creation(rule(READ, TOPIC, "a", principal="User:ann"))
        created = await rig.ask(k30.CreateAclsRequest(creations=[entry]))
        assert created.results[0].error_code == NONE
        await rig.settle()
        topics = (await rig.ask(metadata_of("a", "b", allow_auto_topic_creation=False))).topics
        assert [each.error_code for each in topics] == [
            DENIED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    run_access(scenario, {"super.users": "", "allow.everyone.if.no.acl.found": "true"})


# Several nodes.


def test_nodes_with_an_authorizer_replicate_elect_and_serve() -> None:
    """Nodes are super users by their own listeners, clients are nobody by theirs; with
    `authorizer.class.name` that makes a difference.
    """

    async def scenario(nodes: SimulatedNodes) -> None:
        names = ("n1", "n2", "n3")
        async with trio.open_nursery() as starting:
            for name in names:
                settings = {
                    **ACCESS_SETTINGS,
                    "listeners": (
                        f"PLAINTEXT://{name}:{BROKER_PORT},INSIDE://{name}:{INSIDE_PORT},"
                        f"CONTROLLER://{name}:{NODE_PORT}"
                    ),
                    "inter.broker.listener.name": "INSIDE",
                    "listener.name.inside.kraftpy.principal": "User:node",
                }
                config = nodes.config(name, names, settings)
                starting.start_soon(nodes.start_with, name, config)
        request = creation("mine", "other")
        for topic in request.topics:
            topic.replication_factor = 3
        created = await nodes.ask(request, port=INSIDE_PORT)
        assert [each.error_code for each in created.topics] == [NONE, NONE]
        rules = [rule(WRITE, TOPIC, "mine"), rule(READ, TOPIC, "mine")]
        await nodes.ask(
            k30.CreateAclsRequest(creations=list(map(acl_creation, rules))), port=INSIDE_PORT
        )
        await trio.sleep(1)
        for name in names:
            assert (await nodes.describe("other", of=name)).error_code == DENIED
        [partition] = (await nodes.describe("mine")).partitions
        assert sorted(partition.isr_nodes) == [1, 2, 3]
        first = f"n{partition.leader_id}"
        produced = await nodes.produce("mine", nodes.batch(b"before"), of=first)
        assert (produced.error_code, produced.base_offset) == (NONE, 0)
        nodes.kill(first)
        survivor = next(name for name in names if name != first)
        leader_id = partition.leader_id
        for _ in range(100):
            await trio.sleep(0.5)
            [partition] = (await nodes.describe("mine", of=survivor)).partitions
            if partition.leader_id not in (-1, leader_id):
                break
        second = f"n{partition.leader_id}"
        assert second != first
        produced = await nodes.produce("mine", nodes.batch(b"after"), of=second)
        assert (produced.error_code, produced.base_offset) == (NONE, 1)
        fetched = await nodes.fetch("mine", of=second)
        assert (fetched.error_code, fetched.high_watermark) == (NONE, 2)
        refused = await nodes.produce("other", nodes.batch(b"no"), of=second)
        assert refused.error_code == DENIED

    run_nodes(scenario)
