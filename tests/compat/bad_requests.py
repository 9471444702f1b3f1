"""Requests in which something is wrong, and beside it something that is right.

Each is made for a cluster of one node, on which `good` has three partitions with a record each, and
`compacted` one. `codes_in` takes an answer apart: which item got which error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema import k00_produce as k00
from kraftpy.protocol.schema import k01_fetch as k01
from kraftpy.protocol.schema import k02_list_offsets as k02
from kraftpy.protocol.schema import k03_metadata as k03
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k21_delete_records as k21
from kraftpy.protocol.schema import k23_offset_for_leader_epoch as k23
from kraftpy.protocol.schema import k32_describe_configs as k32
from kraftpy.protocol.schema import k33_alter_configs as k33
from kraftpy.protocol.schema import k34_alter_replica_log_dirs as k34
from kraftpy.protocol.schema import k37_create_partitions as k37
from kraftpy.protocol.schema import k43_elect_leaders as k43
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.protocol.schema import k45_alter_partition_reassignments as k45
from kraftpy.protocol.schema import k46_list_partition_reassignments as k46
from kraftpy.protocol.schema import k60_describe_cluster as k60
from kraftpy.protocol.schema import k61_describe_producers as k61
from kraftpy.protocol.schema import k75_describe_topic_partitions as k75
from kraftpy.protocol.tables import Request, Struct
from kraftpy.records.batch import crc32c
from kraftpy.records.builder import BatchBuilder

__all__ = ["CASES", "CREATION", "FILLING", "codes_in"]

NOWHERE = Uuid(b"\x77" * 16)
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
BY_NAME = 12
LONG_NAME = "x" * 250


def batch(*values: bytes | None, key: bytes | None = b"k", **fields: Any) -> bytes:
    builder = BatchBuilder(**fields)
    for value in values or (b"v",):
        builder.append(key, value, timestamp_ms=1)
    return bytes(builder.build())


def altered(position: int, form: str, value: int) -> bytes:
    """A batch of three with one field of its header changed, and its CRC made right."""
    data = bytearray(batch(b"a", b"b", b"c"))
    struct.pack_into(form, data, position, value)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


GOOD = batch()
FLIPPED = GOOD[:-1] + bytes([GOOD[-1] ^ 1])

CREATION = k19.CreateTopicsRequest(
    topics=[
        k19.CreatableTopic(
            name="good",
            num_partitions=3,
            replication_factor=1,
            configs=[k19.CreatableTopicConfig(name="retention.ms", value="-1")],
        ),
        k19.CreatableTopic(
            name="compacted",
            num_partitions=1,
            replication_factor=1,
            configs=[k19.CreatableTopicConfig(name="cleanup.policy", value="compact")],
        ),
    ],
    timeout_ms=10_000,
)


def produce(
    *items: tuple[str, int, bytes | None], acks: int = -1, transactional_id: str | None = None
) -> k00.ProduceRequest:
    return k00.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            k00.TopicProduceData(
                name=name, partition_data=[k00.PartitionProduceData(index=index, records=records)]
            )
            for name, index, records in items
        ],
    )


FILLING = produce(*(("good", index, GOOD) for index in range(3)))


def bad_batch(records: bytes | None, topic: str = "good", **options: Any) -> k00.ProduceRequest:
    return produce((topic, 0, records), ("good", 1, GOOD), **options)


def fetch(*items: k01.FetchPartition, topic: str = "good", **options: Any) -> k01.FetchRequest:
    topics = [k01.FetchTopic(topic=topic, partitions=list(items))]
    topics.append(k01.FetchTopic(topic="compacted", partitions=[fetched(0, 0)]))
    return k01.FetchRequest(max_wait_ms=0, max_bytes=2**20, topics=topics, **options)


def fetched(partition: int, offset: int, **options: Any) -> k01.FetchPartition:
    return k01.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=2**20, **options
    )


def list_offsets(name: str, partition: int, timestamp: int, epoch: int = -1) -> Request:
    bad = k02.ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
    )
    good = k02.ListOffsetsPartition(partition_index=1, timestamp=-1)
    return k02.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            k02.ListOffsetsTopic(name=name, partitions=[bad]),
            k02.ListOffsetsTopic(name="good", partitions=[good]),
        ],
    )


def create(**fields: Any) -> k19.CreateTopicsRequest:
    bad = k19.CreatableTopic(
        **({"name": "new", "num_partitions": 1, "replication_factor": 1} | fields)
    )
    good = k19.CreatableTopic(name="fine", num_partitions=1, replication_factor=1)
    return k19.CreateTopicsRequest(topics=[bad, good], timeout_ms=5_000, validate_only=True)


def config(name: str, value: str | None) -> list[k19.CreatableTopicConfig]:
    return [k19.CreatableTopicConfig(name=name, value=value)]


def assigned(*replicas: list[int]) -> dict[str, Any]:
    assignments = [
        k19.CreatableReplicaAssignment(partition_index=index, broker_ids=each)
        for index, each in enumerate(replicas)
    ]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": assignments}


def alter(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Request:
    bad = k44.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            k44.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    fine = k44.AlterableConfig(name="retention.ms", config_operation=SET, value="1000000")
    good = k44.AlterConfigsResource(resource_type=TOPIC, resource_name="compacted", configs=[fine])
    return k44.IncrementalAlterConfigsRequest(resources=[bad, good], validate_only=True)


def replace_configs(kind: int, name: str, **changes: str | None) -> Request:
    configs = [
        k33.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in changes.items()
    ]
    bad = k33.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return k33.AlterConfigsRequest(resources=[bad], validate_only=True)


def describe(*resources: tuple[int, str]) -> Request:
    return k32.DescribeConfigsRequest(
        resources=[
            k32.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=["none.such"]
            )
            for kind, name in resources
        ]
    )


def grow(name: str, count: int, *assignments: list[int]) -> Request:
    placed = [k37.CreatePartitionsAssignment(broker_ids=each) for each in assignments] or None
    bad = k37.CreatePartitionsTopic(name=name, count=count, assignments=placed)
    good = k37.CreatePartitionsTopic(name="compacted", count=2, assignments=None)
    return k37.CreatePartitionsRequest(topics=[bad, good], timeout_ms=5_000, validate_only=True)


def reassign(name: str, partition: int, replicas: list[int] | None) -> Request:
    moved = k45.ReassignablePartition(partition_index=partition, replicas=replicas)
    kept = k45.ReassignablePartition(partition_index=1, replicas=[1])
    return k45.AlterPartitionReassignmentsRequest(
        timeout_ms=5_000,
        topics=[
            k45.ReassignableTopic(name=name, partitions=[moved]),
            k45.ReassignableTopic(name="good", partitions=[kept]),
        ],
    )


def elect(election_type: int, name: str, partition: int) -> Request:
    return k43.ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=[k43.TopicPartitions(topic=name, partitions=[partition])],
        timeout_ms=5_000,
    )


def delete_records(name: str, partition: int, offset: int) -> Request:
    bad = k21.DeleteRecordsPartition(partition_index=partition, offset=offset)
    good = k21.DeleteRecordsPartition(partition_index=1, offset=0)
    return k21.DeleteRecordsRequest(
        topics=[
            k21.DeleteRecordsTopic(name=name, partitions=[bad]),
            k21.DeleteRecordsTopic(name="good", partitions=[good]),
        ],
        timeout_ms=5_000,
    )


def epoch_end(name: str, partition: int, current: int, epoch: int) -> Request:
    asked = k23.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    topic = k23.OffsetForLeaderTopic(topic=name, partitions=[asked])
    return k23.OffsetForLeaderEpochRequest(replica_id=-2, topics=[topic])


def metadata(**fields: Any) -> Request:
    asked = k03.MetadataRequestTopic(**fields)
    good = k03.MetadataRequestTopic(name="good")
    if fields.get("topic_id", ZERO_UUID) != ZERO_UUID:
        return k03.MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
    return k03.MetadataRequest(topics=[asked, good], allow_auto_topic_creation=False)


Case = tuple[Request, int | None]
"""What is sent, and the highest version in which it is."""


def _produce_cases() -> Iterator[tuple[str, Case]]:
    records: dict[str, bytes | None] = {
        "null": None,
        "empty": b"",
        "cut short": GOOD[:-1],
        "only a header": GOOD[:61],
        "two batches": GOOD + GOOD,
        "flipped bit": FLIPPED,
        "too large": batch(bytes(2 * 1024 * 1024)),
        "control": batch(is_control=True),
        "unknown codec": altered(21, ">h", 7),
        "unknown attribute": altered(21, ">h", 0x4000),
        "negative count": altered(57, ">i", -1),
        "too many by the header": altered(57, ">i", 4),
        "wrong last offset delta": altered(23, ">i", 7),
        "no length": altered(8, ">i", 0),
        "magic 5": GOOD[:16] + b"\x05" + GOOD[17:],
        "producer without sequence": batch(producer_id=7, producer_epoch=0, base_sequence=-1),
        "out of sequence": batch(producer_id=8, producer_epoch=0, base_sequence=5),
        "transactional without id": batch(
            producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
        ),
    }
    for name, data in records.items():
        yield f"produce: {name}", (bad_batch(data), BY_NAME)
    keyless = batch(b"v", key=None)
    yield "produce: no key in a compacted topic", (bad_batch(keyless, "compacted"), BY_NAME)
    yield "produce: unknown topic", (produce(("none", 0, GOOD), ("good", 1, GOOD)), BY_NAME)
    yield "produce: bad name", (produce(("a b", 0, GOOD), ("good", 1, GOOD)), BY_NAME)
    for index in (99, -1):
        yield f"produce: partition {index}", (produce(("good", index, GOOD)), BY_NAME)
    for acks in (2, -2):
        yield f"produce: acks {acks}", (bad_batch(GOOD, acks=acks), BY_NAME)
    unknown = k00.TopicProduceData(
        topic_id=NOWHERE, partition_data=[k00.PartitionProduceData(index=0, records=GOOD)]
    )
    yield (
        "produce: unknown id",
        (k00.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[unknown]), None),
    )


def _fetch_cases() -> Iterator[tuple[str, Case]]:
    yield "fetch: unknown topic", (fetch(fetched(0, 0), topic="none"), BY_NAME)
    yield "fetch: unknown partition", (fetch(fetched(99, 0)), BY_NAME)
    for offset in (99, -5):
        yield f"fetch: offset {offset}", (fetch(fetched(0, offset)), BY_NAME)
    for epoch in (99, -7):
        item = fetched(0, 0, current_leader_epoch=epoch)
        yield f"fetch: leader epoch {epoch}", (fetch(item), BY_NAME)
    yield "fetch: unknown session", (fetch(session_id=77, session_epoch=5), BY_NAME)
    yield "fetch: a session's epoch", (fetch(fetched(0, 0), session_epoch=5), BY_NAME)
    topic = k01.FetchTopic(topic_id=NOWHERE, partitions=[fetched(0, 0)])
    yield "fetch: unknown id", (k01.FetchRequest(max_wait_ms=0, topics=[topic]), None)


def _lookup_cases() -> Iterator[tuple[str, Case]]:
    yield "offsets: unknown topic", (list_offsets("none", 0, -1), None)
    yield "offsets: unknown partition", (list_offsets("good", 99, -1), None)
    yield "offsets: leader epoch", (list_offsets("good", 0, -1, 99), None)
    for timestamp in (-3, -4, -5, -6, -99):
        yield f"offsets: time {timestamp}", (list_offsets("good", 0, timestamp), None)
    yield "offsets: an old version", (list_offsets("good", 0, -4), 7)
    for name, partition, current, epoch in (
        ("none", 0, -1, 0),
        ("good", 99, -1, 0),
        ("good", 0, 99, 0),
        ("good", 0, -1, 99),
        ("good", 0, -1, -1),
    ):
        label = f"epoch end: {name} {partition} {current} {epoch}"
        yield label, (epoch_end(name, partition, current, epoch), None)
    yield "metadata: unknown topic", (metadata(name="none"), None)
    yield "metadata: bad name", (metadata(name="a b"), None)
    yield "metadata: empty name", (metadata(name=""), None)
    yield "metadata: unknown id", (metadata(name=None, topic_id=NOWHERE), None)
    for name, partition in (("none", 0), ("good", 99)):
        topic = k61.TopicRequest(name=name, partition_indexes=[partition, 0])
        yield f"producers: {name} {partition}", (k61.DescribeProducersRequest(topics=[topic]), None)
    for name in ("none", "a b"):
        topics = [k75.TopicRequest(name=each) for each in (name, "good")]
        yield f"partitions: {name}", (k75.DescribeTopicPartitionsRequest(topics=topics), None)
    yield "cluster: controllers", (k60.DescribeClusterRequest(endpoint_type=2), None)


def _topic_cases() -> Iterator[tuple[str, Case]]:
    for name in ("good", "a b", "", ".", "..", LONG_NAME, "a/b", "ü"):
        yield f"create: name {name[:20]!r}", (create(name=name), None)
    for count in (0, -5):
        yield f"create: {count} partitions", (create(num_partitions=count), None)
    yield "create: too many partitions", (create(num_partitions=200_000), None)
    for factor in (0, -5, 5):
        yield f"create: {factor} replicas", (create(replication_factor=factor), None)
    for key, value in (
        ("none.such", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", None),
        ("cleanup.policy", "burn"),
        ("segment.bytes", "1"),
        ("min.insync.replicas", "0"),
    ):
        yield f"create: {key}={value}", (create(configs=config(key, value)), None)
    for replicas in ([], [1, 1], [7], [-1]):
        yield f"create: on {replicas}", (create(**assigned(replicas)), None)
    yield "create: uneven", (create(**assigned([1], [])), None)
    yield "create: count and place", (create(**assigned([1]) | {"num_partitions": 1}), None)
    yield "create: twice", (create(name="fine"), None)
    for state in ({"name": "none"}, {"name": None, "topic_id": NOWHERE}, {"name": "a b"}):
        topics = [k20.DeleteTopicState(**state)]
        yield f"delete: {state}", (k20.DeleteTopicsRequest(topics=topics, timeout_ms=5_000), None)
    for name, count, *places in (
        ("none", 5),
        ("good", 3),
        ("good", 1),
        ("good", -1),
        ("good", 4, [7]),
        ("good", 4, [1, 1]),
        ("good", 4, [1], [1]),
        ("good", 4, []),
        ("compacted", 3),
    ):
        label = f"grow: {name} {count} {places}"
        yield label, (grow(str(name), int(str(count)), *[list(each) for each in places]), None)  # type: ignore[call-overload]


def _partition_cases() -> Iterator[tuple[str, Case]]:
    for name, partition, offset in (
        ("none", 0, 0),
        ("good", 99, 0),
        ("good", 0, 99),
        ("good", 0, -5),
        ("compacted", 0, 0),
    ):
        label = f"delete records: {name} {partition} {offset}"
        yield label, (delete_records(name, partition, offset), None)
    for name, partition, replicas in (
        ("none", 0, [1]),
        ("good", 99, [1]),
        ("good", 0, [7]),
        ("good", 0, [1, 1]),
        ("good", 0, []),
        ("good", 0, [-1]),
        ("good", 0, None),
    ):
        label = f"reassign: {name} {partition} {replicas}"
        yield label, (reassign(name, partition, replicas), None)
    topic = k46.ListPartitionReassignmentsTopics(name="none", partition_indexes=[0])
    yield "reassignments: unknown", (k46.ListPartitionReassignmentsRequest(topics=[topic]), None)
    for kind, name, partition in (
        (0, "none", 0),
        (0, "good", 99),
        (0, "good", 0),
        (1, "good", 0),
        (5, "good", 0),
    ):
        yield f"elect: {kind} {name} {partition}", (elect(kind, name, partition), None)
    topics34 = [k34.AlterReplicaLogDirTopic(name="good", partitions=[0, 99])]
    for path in ("/nowhere", "relative"):
        request = k34.AlterReplicaLogDirsRequest(
            dirs=[k34.AlterReplicaLogDir(path=path, topics=topics34)]
        )
        yield f"move to {path}", (request, None)


def _config_cases() -> Iterator[tuple[str, Case]]:
    for kind, name in ((TOPIC, "none"), (TOPIC, "a b"), (BROKER, "99"), (BROKER, "x"), (77, "x")):
        yield f"describe configs: {kind} {name}", (describe((kind, name), (TOPIC, "good")), None)
        change = ("retention.ms", SET, "1000")
        yield f"alter: {kind} {name}", (alter(kind, name, change), None)
    for key, operation, value in (
        ("none.such", SET, "1"),
        ("retention.ms", SET, "soon"),
        ("retention.ms", SET, None),
        ("retention.ms", APPEND, "1"),
        ("retention.ms", 9, "1"),
        ("cleanup.policy", APPEND, "burn"),
        ("cleanup.policy", SUBTRACT, "delete"),
        ("segment.bytes", SET, "1"),
    ):
        yield (
            f"alter: {key} {operation} {value}",
            (alter(TOPIC, "good", (key, operation, value)), None),
        )
    twice = [("retention.ms", SET, "1000"), ("retention.ms", DELETE, None)]
    yield "alter: a key twice", (alter(TOPIC, "good", *twice), None)
    for node, name, operation, level in (
        ("1", "root", SET, "DEBUG"),
        ("1", "root", SET, "LOUD"),
        ("1", "root", SET, None),
        ("1", "root", DELETE, None),
        ("1", "root", APPEND, "INFO"),
        ("1", "root", SUBTRACT, "INFO"),
        ("1", "none.such", SET, "INFO"),
        ("1", "none.such", DELETE, None),
        ("2", "root", SET, "INFO"),
        ("", "root", SET, "INFO"),
    ):
        yield (
            f"logger: {node} {name} {operation} {level}",
            (alter(LOGGER, node, (name, operation, level)), None),
        )
    both = [("root", SET, "INFO"), ("root", SET, "DEBUG")]
    yield "logger: named twice", (alter(LOGGER, "1", *both), None)
    yield "logger: replaced", (replace_configs(LOGGER, "1", root="INFO"), None)
    for key, value in (
        ("node.id", "9"),
        ("listeners", "PLAINTEXT://:1"),
        ("log.cleaner.threads", "0"),
        ("log.cleaner.threads", "many"),
        ("none.such", "1"),
    ):
        yield f"alter a broker: {key}={value}", (alter(BROKER, "1", (key, SET, value)), None)
        yield f"alter all brokers: {key}={value}", (alter(BROKER, "", (key, SET, value)), None)
    yield "replace: unknown", (replace_configs(TOPIC, "none", retention_ms="1"), None)
    yield "replace: bad value", (replace_configs(TOPIC, "good", retention_ms="soon"), None)
    yield "replace: unknown key", (replace_configs(TOPIC, "good", none_such="1"), None)


def _all_cases() -> dict[str, Case]:
    makers: list[Callable[[], Iterator[tuple[str, Case]]]] = [
        _produce_cases,
        _fetch_cases,
        _lookup_cases,
        _topic_cases,
        _partition_cases,
        _config_cases,
    ]
    return {name: case for make in makers for name, case in make()}


CASES = _all_cases()

_NAMES = ("name", "topic", "topic_name", "resource_name", "log_dir")
_INDEXES = ("partition_index", "index", "partition", "partition_id", "resource_type")


def codes_in(answer: Any, place: str = "") -> Iterator[tuple[str, str, bool]]:
    """Of each part of an answer that has an error code: where it is, the code, and whether words
    come with it.
    """
    for name in (*_NAMES, *_INDEXES):
        value = getattr(answer, name, None)
        if isinstance(value, str | int) and not isinstance(value, bool):
            place = f"{place}/{value}"
    code = getattr(answer, "error_code", None)
    if code is not None:
        known = code in [each.value for each in ErrorCode]
        message = getattr(answer, "error_message", None)
        yield place, ErrorCode(code).name if known else str(code), bool(message)
    for name in type(answer).__annotations__:
        value = getattr(answer, name, None)
        if isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from codes_in(each, place)
