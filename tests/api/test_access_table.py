"""What each API asks of its senders: every API that is served stands in one of these tables.

For each, in all its versions: with the rights that the table names there is no word of rights in
the answer, and without any one of them there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from api.access_rig import (
    BROKER_PORT,
    SECOND_PORT,
    AccessRig,
    acl_creation,
    codes_of,
    rule,
    run_access,
)

from kraftpy.api.api_keys import BROKER_LISTENER_APIS, CONTROLLER_LISTENER_APIS
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema import k00_produce as k00
from kraftpy.protocol.schema import k01_fetch as k01
from kraftpy.protocol.schema import k02_list_offsets as k02
from kraftpy.protocol.schema import k03_metadata as k03
from kraftpy.protocol.schema import k08_offset_commit as k08
from kraftpy.protocol.schema import k09_offset_fetch as k09
from kraftpy.protocol.schema import k10_find_coordinator as k10
from kraftpy.protocol.schema import k11_join_group as k11
from kraftpy.protocol.schema import k12_heartbeat as k12
from kraftpy.protocol.schema import k13_leave_group as k13
from kraftpy.protocol.schema import k14_sync_group as k14
from kraftpy.protocol.schema import k15_describe_groups as k15
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k21_delete_records as k21
from kraftpy.protocol.schema import k22_init_producer_id as k22
from kraftpy.protocol.schema import k23_offset_for_leader_epoch as k23
from kraftpy.protocol.schema import k24_add_partitions_to_txn as k24
from kraftpy.protocol.schema import k25_add_offsets_to_txn as k25
from kraftpy.protocol.schema import k26_end_txn as k26
from kraftpy.protocol.schema import k27_write_txn_markers as k27
from kraftpy.protocol.schema import k28_txn_offset_commit as k28
from kraftpy.protocol.schema import k29_describe_acls as k29
from kraftpy.protocol.schema import k30_create_acls as k30
from kraftpy.protocol.schema import k31_delete_acls as k31
from kraftpy.protocol.schema import k32_describe_configs as k32
from kraftpy.protocol.schema import k33_alter_configs as k33
from kraftpy.protocol.schema import k34_alter_replica_log_dirs as k34
from kraftpy.protocol.schema import k37_create_partitions as k37
from kraftpy.protocol.schema import k42_delete_groups as k42
from kraftpy.protocol.schema import k43_elect_leaders as k43
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.protocol.schema import k45_alter_partition_reassignments as k45
from kraftpy.protocol.schema import k47_offset_delete as k47
from kraftpy.protocol.schema import k49_alter_client_quotas as k49
from kraftpy.protocol.schema import k51_alter_user_scram_credentials as k51
from kraftpy.protocol.schema import k55_describe_quorum as k55
from kraftpy.protocol.schema import k60_describe_cluster as k60
from kraftpy.protocol.schema import k61_describe_producers as k61
from kraftpy.protocol.schema import k65_describe_transactions as k65
from kraftpy.protocol.schema import k68_consumer_group_heartbeat as k68
from kraftpy.protocol.schema import k69_consumer_group_describe as k69
from kraftpy.protocol.schema import k75_describe_topic_partitions as k75
from kraftpy.protocol.tables import Request
from kraftpy.records.builder import BatchBuilder
from kraftpy.security.acl_terms import AclEntry, AclOperation, ResourceType

READ, WRITE, CREATE, DELETE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
)
ALTER, DESCRIBE, ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION = ResourceType.TRANSACTIONAL_ID
CODES = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True)
class Rule:
    """`make` a request of a version; `needs` are the rights that it takes, of that version."""

    make: Callable[[Made], Request]
    needs: Callable[[int], Sequence[AclEntry]]


@dataclass(frozen=True)
class Made:
    version: int
    topic_id: Any


def on_cluster(operation: AclOperation, make: Callable[[Made], Request] | None = None) -> Rule:
    return Rule(make or _plain, lambda _: [rule(operation, CLUSTER)])


def needing(make: Callable[[Made], Request], *needs: AclEntry) -> Rule:
    return Rule(make, lambda _: needs)


def _plain(made: Made) -> Request:
    raise AssertionError("replaced by the API's own request")


def _transactional_batch() -> bytes:
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(b"k", b"v", timestamp_ms=1)
    return bytes(builder.build())


def _produce(made: Made) -> Request:
    return k00.ProduceRequest(
        transactional_id="x",
        acks=1,
        timeout_ms=100,
        topic_data=[
            k00.TopicProduceData(
                name="t",
                topic_id=made.topic_id,
                partition_data=[k00.PartitionProduceData(index=0, records=_transactional_batch())],
            )
        ],
    )


def _fetch(made: Made) -> Request:
    partition = k01.FetchPartition(partition=0, partition_max_bytes=100)
    topic = k01.FetchTopic(topic="t", topic_id=made.topic_id, partitions=[partition])
    return k01.FetchRequest(topics=[topic])


def _configs(module: Any, request_class: type[Any]) -> Callable[[Made], Request]:
    return lambda _: request_class(
        resources=[
            module.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
            for kind, name in ((2, "t"), (4, ""), (32, "g"))
        ],
        validate_only=True,
    )


def _delete_topics(made: Made) -> Request:
    if made.version < 6:
        return k20.DeleteTopicsRequest(topic_names=["none"], timeout_ms=1000)
    return k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name="none")], timeout_ms=1000)


def _offset_fetch(made: Made) -> Request:
    if made.version < 8:
        topics = [k09.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        return k09.OffsetFetchRequest(group_id="g", topics=topics)
    group = k09.OffsetFetchRequestGroup(
        group_id="g",
        topics=[
            k09.OffsetFetchRequestTopics(name="t", topic_id=made.topic_id, partition_indexes=[0])
        ],
    )
    return k09.OffsetFetchRequest(groups=[group])


def _find_coordinator(made: Made) -> Request:
    if made.version < 4:
        return k10.FindCoordinatorRequest(key="g")
    return k10.FindCoordinatorRequest(coordinator_keys=["g"])


def _leave(made: Made) -> Request:
    if made.version < 3:
        return k13.LeaveGroupRequest(group_id="g", member_id="m")
    return k13.LeaveGroupRequest(group_id="g", members=[k13.MemberIdentity(member_id="m")])


def _add_partitions(made: Made) -> Request:
    topics = [k24.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    if made.version < 4:
        return k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_topics=topics
        )
    return k24.AddPartitionsToTxnRequest(
        transactions=[k24.AddPartitionsToTxnTransaction(transactional_id="x", topics=topics)]
    )


def _commit(made: Made) -> Request:
    partition = k08.OffsetCommitRequestPartition(committed_offset=1, committed_metadata="")
    topic = k08.OffsetCommitRequestTopic(name="t", topic_id=made.topic_id, partitions=[partition])
    return k08.OffsetCommitRequest(group_id="g", topics=[topic])


def _metadata(made: Made) -> Request:
    topics = [k03.MetadataRequestTopic(name="t")]
    if made.version < 4:
        return k03.MetadataRequest(topics=topics)
    return k03.MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _txn_commit(made: Made) -> Request:
    partition = k28.TxnOffsetCommitRequestPartition(committed_offset=1, committed_metadata="")
    return k28.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        topics=[k28.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


def _filter(filter_class: type[Any]) -> Any:
    return filter_class(
        resource_type_filter=1,
        resource_name_filter="none",
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


# What clients ask for and the controller decides: the same on both kinds of listeners.
FORWARDED: Mapping[int, Rule] = {
    19: needing(
        lambda _: k19.CreateTopicsRequest(
            topics=[k19.CreatableTopic(name="new", num_partitions=1, replication_factor=1)],
            validate_only=True,
        ),
        rule(CREATE, TOPIC, "new"),
        rule(DESCRIBE_CONFIGS, TOPIC, "new"),
    ),
    20: needing(_delete_topics, rule(DELETE, TOPIC, "none")),
    30: on_cluster(
        ALTER,
        lambda _: k30.CreateAclsRequest(
            creations=[acl_creation(rule(READ, TOPIC, "t", principal="User:ann"))]
        ),
    ),
    31: on_cluster(ALTER, lambda _: k31.DeleteAclsRequest(filters=[_filter(k31.DeleteAclsFilter)])),
    33: needing(
        _configs(k33, k33.AlterConfigsRequest),
        rule(ALTER_CONFIGS, TOPIC, "t"),
        rule(ALTER_CONFIGS, CLUSTER),
        rule(ALTER_CONFIGS, GROUP, "g"),
    ),
    37: needing(
        lambda _: k37.CreatePartitionsRequest(
            topics=[k37.CreatePartitionsTopic(name="t", count=9, assignments=None)],
            validate_only=True,
            timeout_ms=1000,
        ),
        rule(ALTER, TOPIC, "t"),
    ),
    43: on_cluster(
        ALTER,
        lambda _: k43.ElectLeadersRequest(
            topic_partitions=[k43.TopicPartitions(topic="t", partitions=[0])], timeout_ms=1000
        ),
    ),
    44: needing(
        _configs(k44, k44.IncrementalAlterConfigsRequest),
        rule(ALTER_CONFIGS, TOPIC, "t"),
        rule(ALTER_CONFIGS, CLUSTER),
        rule(ALTER_CONFIGS, GROUP, "g"),
    ),
    45: on_cluster(
        ALTER,
        lambda _: k45.AlterPartitionReassignmentsRequest(
            topics=[
                k45.ReassignableTopic(name="t", partitions=[k45.ReassignablePartition()]),
            ]
        ),
    ),
    46: on_cluster(DESCRIBE),
    49: on_cluster(
        ALTER_CONFIGS,
        lambda _: k49.AlterClientQuotasRequest(
            entries=[
                k49.RequestEntryData(entity=[k49.EntityData(entity_type="user", entity_name="ann")])
            ],
            validate_only=True,
        ),
    ),
    51: on_cluster(
        ALTER,
        lambda _: k51.AlterUserScramCredentialsRequest(
            deletions=[k51.ScramCredentialDeletion(name="ann", mechanism=1)]
        ),
    ),
    55: on_cluster(
        DESCRIBE,
        lambda _: k55.DescribeQuorumRequest(
            topics=[
                k55.RequestTopicData(
                    topic_name="__cluster_metadata", partitions=[k55.RequestPartitionData()]
                )
            ]
        ),
    ),
    57: on_cluster(ALTER),
    64: on_cluster(ALTER, lambda _: API[64].request_class(broker_id=99)),
    80: on_cluster(ALTER, lambda _: API[80].request_class(cluster_id="other")),
    81: on_cluster(ALTER, lambda _: API[81].request_class(cluster_id="other")),
}

ON_BOTH: Mapping[int, Rule] = {
    **FORWARDED,
    29: on_cluster(DESCRIBE, lambda _: _filter(k29.DescribeAclsRequest)),
    32: needing(
        lambda _: k32.DescribeConfigsRequest(
            resources=[
                k32.DescribeConfigsResource(resource_type=kind, resource_name=name)
                for kind, name in ((2, "t"), (4, "1"), (8, "1"), (16, "m"), (32, "g"))
            ]
        ),
        rule(DESCRIBE_CONFIGS, TOPIC, "t"),
        rule(DESCRIBE_CONFIGS, CLUSTER),
        rule(DESCRIBE_CONFIGS, GROUP, "g"),
    ),
}

ON_BROKERS: Mapping[int, Rule] = {
    **ON_BOTH,
    0: needing(_produce, rule(WRITE, TRANSACTION, "x"), rule(WRITE, TOPIC, "t")),
    1: needing(_fetch, rule(READ, TOPIC, "t")),
    2: needing(
        lambda _: k02.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                k02.ListOffsetsTopic(name="t", partitions=[k02.ListOffsetsPartition(timestamp=-1)])
            ],
        ),
        rule(DESCRIBE, TOPIC, "t"),
    ),
    3: needing(_metadata, rule(DESCRIBE, TOPIC, "t")),
    8: needing(_commit, rule(READ, GROUP, "g"), rule(READ, TOPIC, "t")),
    9: needing(_offset_fetch, rule(DESCRIBE, GROUP, "g"), rule(DESCRIBE, TOPIC, "t")),
    10: needing(_find_coordinator, rule(DESCRIBE, GROUP, "g")),
    11: needing(lambda _: k11.JoinGroupRequest(group_id="g"), rule(READ, GROUP, "g")),
    12: needing(lambda _: k12.HeartbeatRequest(group_id="g"), rule(READ, GROUP, "g")),
    13: needing(_leave, rule(READ, GROUP, "g")),
    14: needing(
        lambda _: k14.SyncGroupRequest(group_id="g", protocol_type="c", protocol_name="p"),
        rule(READ, GROUP, "g"),
    ),
    15: needing(lambda _: k15.DescribeGroupsRequest(groups=["g"]), rule(DESCRIBE, GROUP, "g")),
    # What may not be seen is left out: test_access.py.
    16: Rule(_plain, lambda _: []),
    18: Rule(_plain, lambda _: []),
    21: needing(
        lambda _: k21.DeleteRecordsRequest(
            topics=[k21.DeleteRecordsTopic(name="t", partitions=[k21.DeleteRecordsPartition()])],
            timeout_ms=100,
        ),
        rule(DELETE, TOPIC, "t"),
    ),
    22: needing(
        lambda _: k22.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
        rule(WRITE, TRANSACTION, "x"),
    ),
    23: needing(
        lambda _: k23.OffsetForLeaderEpochRequest(
            topics=[
                k23.OffsetForLeaderTopic(topic="t", partitions=[k23.OffsetForLeaderPartition()])
            ]
        ),
        rule(DESCRIBE, TOPIC, "t"),
    ),
    24: Rule(
        _add_partitions,
        lambda version: (
            [rule(ACTION, CLUSTER)]
            if version >= 4
            else [rule(WRITE, TRANSACTION, "x"), rule(WRITE, TOPIC, "t")]
        ),
    ),
    25: needing(
        lambda _: k25.AddOffsetsToTxnRequest(transactional_id="x", group_id="g"),
        rule(WRITE, TRANSACTION, "x"),
        rule(READ, GROUP, "g"),
    ),
    26: needing(lambda _: k26.EndTxnRequest(transactional_id="x"), rule(WRITE, TRANSACTION, "x")),
    27: on_cluster(
        ACTION,
        lambda _: k27.WriteTxnMarkersRequest(
            markers=[
                k27.WritableTxnMarker(
                    topics=[k27.WritableTxnMarkerTopic(name="t", partition_indexes=[3])]
                )
            ]
        ),
    ),
    28: needing(
        _txn_commit,
        rule(WRITE, TRANSACTION, "x"),
        rule(READ, GROUP, "g"),
        rule(READ, TOPIC, "t"),
    ),
    34: on_cluster(
        ALTER,
        lambda _: k34.AlterReplicaLogDirsRequest(
            dirs=[
                k34.AlterReplicaLogDir(
                    path="/none",
                    topics=[k34.AlterReplicaLogDirTopic(name="t", partitions=[0])],
                )
            ]
        ),
    ),
    35: on_cluster(DESCRIBE),
    42: needing(lambda _: k42.DeleteGroupsRequest(groups_names=["h"]), rule(DELETE, GROUP, "h")),
    47: needing(
        lambda _: k47.OffsetDeleteRequest(
            group_id="g",
            topics=[
                k47.OffsetDeleteRequestTopic(
                    name="t", partitions=[k47.OffsetDeleteRequestPartition()]
                )
            ],
        ),
        rule(DELETE, GROUP, "g"),
        rule(READ, TOPIC, "t"),
    ),
    48: on_cluster(DESCRIBE_CONFIGS),
    50: on_cluster(DESCRIBE),
    60: Rule(_plain, lambda _: []),
    61: needing(
        lambda _: k61.DescribeProducersRequest(
            topics=[k61.TopicRequest(name="t", partition_indexes=[0])]
        ),
        rule(READ, TOPIC, "t"),
    ),
    65: needing(
        lambda _: k65.DescribeTransactionsRequest(transactional_ids=["x"]),
        rule(DESCRIBE, TRANSACTION, "x"),
    ),
    # As 16.
    66: Rule(_plain, lambda _: []),
    68: needing(
        lambda _: k68.ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=["t"]),
        rule(READ, GROUP, "g"),
        rule(DESCRIBE, TOPIC, "t"),
    ),
    69: needing(
        lambda _: k69.ConsumerGroupDescribeRequest(group_ids=["g"]), rule(DESCRIBE, GROUP, "g")
    ),
    74: on_cluster(DESCRIBE_CONFIGS),
    75: needing(
        lambda _: k75.DescribeTopicPartitionsRequest(topics=[k75.TopicRequest(name="t")]),
        rule(DESCRIBE, TOPIC, "t"),
    ),
}

ON_CONTROLLERS: Mapping[int, Rule] = {
    **ON_BOTH,
    # NET-71: what nodes ask of each other.
    **{
        key: on_cluster(ACTION, lambda _, key=key: API[key].request_class(cluster_id="other"))  # type: ignore[misc]
        for key in (52, 53, 54, 59, 62, 82)
    },
    1: on_cluster(
        ACTION,
        lambda made: k01.FetchRequest(**({"cluster_id": "other"} if made.version >= 12 else {})),
    ),
    **{
        key: on_cluster(ACTION, lambda _, key=key: API[key].request_class(broker_id=99))  # type: ignore[misc]
        for key in (56, 63, 67, 73)
    },
    58: on_cluster(ACTION),
    60: on_cluster(
        ALTER,
        lambda made: k60.DescribeClusterRequest(
            **({"endpoint_type": 2} if made.version >= 1 else {})
        ),
    ),
    70: on_cluster(ACTION, lambda _: API[70].request_class(controller_id=99)),
}

LISTENERS = {
    "brokers": (BROKER_PORT, BROKER_LISTENER_APIS, ON_BROKERS),
    "controllers": (SECOND_PORT, CONTROLLER_LISTENER_APIS, ON_CONTROLLERS),
}


@pytest.mark.parametrize("listener", LISTENERS)
def test_every_api_has_a_rule(listener: str) -> None:
    """NET-69: one that is served and is not here would let everybody in."""
    _, served, rules = LISTENERS[listener]
    assert sorted(rules) == sorted(set(served))


def request_of(key: int, wanted: Rule, made: Made) -> Request:
    return API[key].request_class() if wanted.make is _plain else wanted.make(made)


async def check(rig: AccessRig, port: int, key: int, wanted: Rule) -> None:
    spec = API[key]

    async def refusals(version: int) -> set[ErrorCode]:
        made = Made(version, rig.topic_ids["t"])
        answer = await rig.ask(request_of(key, wanted, made), version, port=port)
        codes = set(codes_of(answer))
        # Which would say nothing of rights.
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes, (spec.name, version)
        return codes & set(CODES.values())

    low, high = spec.min_version, spec.max_version
    by_needs: dict[tuple[AclEntry, ...], list[int]] = {}
    for version in range(low, high + 1):
        by_needs.setdefault(tuple(wanted.needs(version)), []).append(version)
    for needs, versions in by_needs.items():
        await rig.only_allow(*needs)
        for version in versions:
            assert await refusals(version) == set(), (spec.name, version, "with all rights")
        for missing in needs:
            await rig.only_allow(*(each for each in needs if each != missing))
            for version in versions:
                expected = {CODES[ResourceType(missing.resource_type)]}
                if hides(key, version, missing):
                    expected = set()
                assert await refusals(version) == expected, (spec.name, version, missing)


def hides(key: int, version: int, missing: AclEntry) -> bool:
    """Whether an answer has no place for the refusal, and is just empty: settings of new topics,
    directories, and a fetch of the metadata log, of which nodes use version 12 and above.
    """
    if key == 19:
        return version < 5 and missing.operation == DESCRIBE_CONFIGS
    if key == 35:
        return version < 3
    return key == 1 and version < 7 and missing.resource_type == CLUSTER


@pytest.mark.parametrize("listener", LISTENERS)
def test_each_right_is_needed_and_all_together_are_enough(listener: str) -> None:
    """NET-70, NET-71, NET-76, TXN-42."""
    port, _, rules = LISTENERS[listener]

    async def scenario(rig: AccessRig) -> None:
        await rig.create("t")
        await rig.only_allow(
            rule(READ, GROUP, "g"), rule(DESCRIBE, TRANSACTION, "x"), rule(READ, TOPIC, "t")
        )
        await rig.coordinator("g")
        assert await rig.commit("g", "t") == [ErrorCode.NONE]
        await rig.coordinator("x", key_type=1)
        for key in sorted(rules):
            await check(rig, port, key, rules[key])

    run_access(scenario)
