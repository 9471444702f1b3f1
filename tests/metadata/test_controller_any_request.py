"""Whatever a client asks for: an answer that can be sent, records that replay, nothing else.

Requests are filled at random from words that the operations know and from some that they don't, so
that most are wrong somewhere and some are right. An operation may refuse with a ControllerError.
Any other exception would cost the controller its role.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from small_cluster import SmallCluster, registration
from timeline_rig import finished

from kraftpy.metadata.controller.acls import AclControl
from kraftpy.metadata.controller.features import FeatureControl
from kraftpy.metadata.controller.producer_ids import ProducerIdControl
from kraftpy.metadata.controller.quotas import QuotaControl
from kraftpy.metadata.controller.result import Caller, ControllerError
from kraftpy.metadata.controller.scram import ScramControl
from kraftpy.metadata.describing import (
    describe_acls,
    describe_client_quotas,
    describe_user_scram_credentials,
)
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.ids import ZERO_UUID, random_uuid
from kraftpy.protocol.schema.k19_create_topics import CreateTopicsRequest
from kraftpy.protocol.schema.k20_delete_topics import DeleteTopicsRequest
from kraftpy.protocol.schema.k29_describe_acls import DescribeAclsRequest
from kraftpy.protocol.schema.k30_create_acls import CreateAclsRequest
from kraftpy.protocol.schema.k31_delete_acls import DeleteAclsRequest
from kraftpy.protocol.schema.k33_alter_configs import AlterConfigsRequest
from kraftpy.protocol.schema.k37_create_partitions import CreatePartitionsRequest
from kraftpy.protocol.schema.k44_incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftpy.protocol.schema.k48_describe_client_quotas import DescribeClientQuotasRequest
from kraftpy.protocol.schema.k49_alter_client_quotas import AlterClientQuotasRequest
from kraftpy.protocol.schema.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from kraftpy.protocol.schema.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)
from kraftpy.protocol.schema.k57_update_features import UpdateFeaturesRequest
from kraftpy.protocol.schema.k67_allocate_producer_ids import AllocateProducerIdsRequest
from kraftpy.protocol.tables import Message, Struct, version_bounds

WORDS = (
    *(
        "",
        "a",
        "a.b",
        "a_b",
        "b",
        "1",
        "2",
        "100",
        "-1",
        "x" * 300,
        "ü",
        "*",
        "User:ann",
        "10.0.0.1",
    ),
    *("retention.ms", "min.insync.replicas", "cleanup.policy", "compact", "true", "5"),
    *("num.io.threads", "ssl.keystore.password", "interval.ms", "consumer.session.timeout.ms"),
    *("metadata.version", "group.version", "eligible.leader.replicas.version", "kraft.version"),
    *("user", "client-id", "ip", "producer_byte_rate", "connection_creation_rate"),
)
# What makes sense in a field, by its name; everything else is left to chance.
SENSIBLE: dict[str, tuple[Any, ...]] = {
    "num_partitions": (-1, 1, 3),
    "replication_factor": (-1, 1, 2),
    "partition_index": (0, 1),
    "broker_ids": (1, 2, 3),
    "broker_id": (1, 2),
    "broker_epoch": (1001, 1002),
    "count": (2, 4, 8),
    "name": ("a", "a.b", "b", "retention.ms", "min.insync.replicas"),
    "resource_type_filter": (1, 2),
    "resource_name_filter": (None, "a"),
    "principal_filter": (None, "User:ann"),
    "host_filter": (None, "*"),
    "host": ("*",),
    "resource_type": (2, 4),
    "resource_name": ("a", "a.b", "1", ""),
    "resource_pattern_type": (3, 4),
    "pattern_type_filter": (1, 2, 3, 4),
    "operation": (1, 2, 3, 4),
    "permission_type": (1, 2, 3),
    "principal": ("User:ann", "User:bob"),
    "config_operation": (0, 0, 1, 2, 3),
    "entity_type": ("user", "user", "client-id", "ip"),
    "entity_name": (None, "a", "10.0.0.1"),
    "key": ("producer_byte_rate", "request_percentage"),
    "mechanism": (1, 2),
    "iterations": (4096, 16384),
    "match_type": (0, 1, 2),
    "feature": ("metadata.version", "group.version", "eligible.leader.replicas.version"),
    "max_version_level": (0, 1, 30),
    "upgrade_type": (1, 2),
    "validate_only": (False, False, True),
}
NUMBERS = (-2, -1, 0, 1, 1, 2, 3, 4, 8, 16, 29, 30, 100, 4096, 1001, 2**31 - 1)
REALS = (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 1e300, float("inf"), float("nan"))


class Quorum:
    kraft_version = 1
    voter_ids = (100,)

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        raise AssertionError(f"nobody may ask for {level}, {validate_only}")


def filled(random: Random, struct: type[Struct], cluster: SmallCluster) -> Any:
    message = struct()
    for field in struct.FIELDS:
        setattr(message, field.name, value_for(random, field, cluster))
    return message


def value_for(random: Random, field: Any, cluster: SmallCluster) -> Any:
    if field.nullable and random.random() < 0.2:
        return None
    if field.name == "assignments" and random.random() < 0.7:
        return random.choice(([], None)) if field.nullable else []
    if field.is_array:
        return [item_for(random, field, cluster) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    return item_for(random, field, cluster)


def item_for(random: Random, field: Any, cluster: SmallCluster) -> Any:
    if field.struct is not None:
        return filled(random, field.struct, cluster)
    if field.name in SENSIBLE and random.random() < 0.9:
        return random.choice(SENSIBLE[field.name])
    match field.kind.name:
        case "string":
            return random.choice(("1", "2") if field.name == "value" else WORDS)
        case "bool":
            return random.random() < 0.3
        case "uuid":
            known = list(cluster.image.topic_names) or [ZERO_UUID]
            return random.choice((ZERO_UUID, ZERO_UUID, random.choice(known), random_uuid(random)))
        case "float64":
            return random.choice(REALS)
        case "bytes":
            return random.randbytes(random.choice((0, 16, 5000)))
        case "int8":
            return random.choice([each for each in NUMBERS if -128 <= each < 128])
        case "int16":
            return random.choice([each for each in NUMBERS if each < 1 << 15])
        case _:
            return random.choice(NUMBERS)


def check_partitions(cluster: SmallCluster) -> None:
    """CTL-86: whatever was created is online, on distinct brokers that exist."""
    for topic in cluster.image.topics.values():
        assert topic.partitions
        for partition in topic.partitions:
            assert partition.leader == partition.isr[0]
            assert len(set(partition.replicas)) == len(partition.replicas)
            assert len(partition.directories) == len(partition.replicas)
            assert all(broker in cluster.image.brokers for broker in partition.replicas)


@pytest.mark.parametrize("seed", range(6))
def test_every_request_gets_an_answer(seed: int) -> None:
    """KRF-123 and the rules of kraft.md section 16, against any input."""
    random = Random(seed)
    brokers = [registration(1), registration(2, rack="r"), registration(3, fenced=True)]
    cluster = SmallCluster(brokers, seed=seed)
    acls = AclControl(cluster.context, random)
    scram, quotas = ScramControl(cluster.context), QuotaControl(cluster.context)
    features, producer_ids = (
        FeatureControl(cluster.context, Quorum()),
        ProducerIdControl(cluster.context),
    )
    writes: dict[type[Message], Any] = {
        CreateTopicsRequest: cluster.topics.create_topics,
        DeleteTopicsRequest: cluster.topics.delete_topics,
        CreatePartitionsRequest: cluster.topics.create_partitions,
        AlterConfigsRequest: cluster.configs.alter_configs,
        IncrementalAlterConfigsRequest: cluster.configs.incremental_alter_configs,
        CreateAclsRequest: acls.create_acls,
        DeleteAclsRequest: acls.delete_acls,
        AlterUserScramCredentialsRequest: scram.alter_user_scram_credentials,
        AlterClientQuotasRequest: quotas.alter_client_quotas,
        UpdateFeaturesRequest: features.update_features,
        AllocateProducerIdsRequest: producer_ids.allocate_producer_ids,
    }
    reads: dict[type[Message], Any] = {
        DescribeAclsRequest: describe_acls,
        DescribeClientQuotasRequest: describe_client_quotas,
        DescribeUserScramCredentialsRequest: describe_user_scram_credentials,
    }
    accepted: Counter[type[Message]] = Counter()
    for _ in range(2500):
        kind = random.choice((*writes, *reads))
        request = filled(random, kind, cluster)
        _, version = version_bounds(kind.VERSIONS)
        before = cluster.image
        if kind in reads:
            assert encode_bytes(reads[kind](cluster.image, request), version)
            continue
        try:
            result = finished(writes[kind](request, Caller(api_version=version)))
        except ControllerError:
            continue
        finally:
            assert cluster.image is before
        assert encode_bytes(result.answer, version)
        cluster.apply(result.records)
        accepted[kind] += bool(result.records)
    check_partitions(cluster)
    assert all(accepted[kind] for kind in writes), accepted
