"""Creating, growing and deleting topics: every error in the order of checks; what is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from small_cluster import CALLER, SmallCluster, directory_of, registration
from timeline_rig import finished

from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.controller.partition_states import PartitionState
from kraftpy.metadata.controller.result import (
    MAX_RECORDS_PER_REQUEST,
    Caller,
    ControllerError,
    Outcome,
    Part,
)
from kraftpy.metadata.controller.topic_names import TopicNames, wrong_name
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.metadata.records import (
    DIRECTORY_UNASSIGNED,
    ConfigRecord,
    ConfigResourceType,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid, format_uuid, random_uuid
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k37_create_partitions as k37


def topic(
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    *,
    configs: Mapping[str, str | None] | None = None,
    assignments: dict[int, list[int]] | list[tuple[int, list[int]]] | None = None,
) -> k19.CreatableTopic:
    pairs = assignments.items() if isinstance(assignments, dict) else assignments or []
    return k19.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            k19.CreatableTopicConfig(name=key, value=value)
            for key, value in (configs or {}).items()
        ],
        assignments=[
            k19.CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in pairs
        ],
    )


def create(
    cluster: SmallCluster, *topics: k19.CreatableTopic, validate_only: bool = False
) -> dict[str, k19.CreatableTopicResult]:
    request = k19.CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    answer = cluster.carry_out(cluster.topics.create_topics(request, CALLER))
    assert encode_bytes(answer, 7)
    return {result.name: result for result in answer.topics}


def error_of(cluster: SmallCluster, wanted: k19.CreatableTopic) -> ErrorCode:
    """What creating just this topic is answered; nothing may have been written on an error."""
    before = cluster.image
    result = create(cluster, wanted)[wanted.name]
    if result.error_code:
        assert cluster.image is before
        assert result.error_message
        assert result.topic_id == ZERO_UUID
    return ErrorCode(result.error_code)


BAD_CONFIG = {"retention.ms": "much"}

# Each topic is wrong in its own way and in all the ways below it, so that a check which is left out
# or comes too late shows.
CREATE_ERRORS = [
    (topic("", 0, 0, configs=BAD_CONFIG), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic(".", 0, 0, configs=BAD_CONFIG), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("..", 0, 0, configs=BAD_CONFIG), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("x" * 250, 0, 0, configs=BAD_CONFIG), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("café", 0, 0, configs=BAD_CONFIG), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("a b", 0, 0, configs=BAD_CONFIG), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("new\n", 0, 0, configs=BAD_CONFIG), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("is_there", 0, 0, configs=BAD_CONFIG), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("is.there", 0, 0, configs=BAD_CONFIG), ErrorCode.TOPIC_ALREADY_EXISTS),
    (topic("__cluster_metadata", 0, 0, configs=BAD_CONFIG), ErrorCode.INVALID_REQUEST),
    (topic("new", 0, 0, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
    (topic("new", 0, 0, configs=BAD_CONFIG), ErrorCode.INVALID_CONFIG),
    (topic("new", 0, 0, configs={"no.such.key": "1"}), ErrorCode.INVALID_CONFIG),
    (
        topic("new", 0, 0, configs={"leader.replication.throttled.replicas": "1:1," * 9000}),
        ErrorCode.INVALID_CONFIG,
    ),
    (topic("new", 0, 0, configs={"retention.ms": "9" * 32_767}), ErrorCode.INVALID_CONFIG),
    (topic("n" * 32_767, 0, 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("new", 1, -1, assignments={0: [99]}), ErrorCode.INVALID_REQUEST),
    (topic("new", -1, 1, assignments={0: [99]}), ErrorCode.INVALID_REQUEST),
    (topic("new", assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (topic("new", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (topic("new", assignments={0: [1, 99]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (topic("new", assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (topic("new", assignments={0: [1, 2], 1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (topic("new", assignments={0: [4, 5]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (topic("new", assignments={0: [1], 2: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (topic("new", assignments={-1: [1], 0: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (topic("new", 0, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (topic("new", 0, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
    (topic("new", 0, 1), ErrorCode.INVALID_PARTITIONS),
    (topic("new", -2, 1), ErrorCode.INVALID_PARTITIONS),
    (topic("new", 1, 5), ErrorCode.INVALID_REPLICATION_FACTOR),
    (topic("new", 1, 4), ErrorCode.NONE),
    (topic("x" * 249, 1, 1), ErrorCode.NONE),
    (topic("new", assignments={0: [4, 1], 1: [5, 2]}), ErrorCode.NONE),
]


@pytest.fixture
def cluster() -> SmallCluster:
    """Brokers 1 to 3 are live, 4 is fenced, 5 shuts down; there is a topic `is.there`."""
    cluster = SmallCluster(
        [
            *(registration(number) for number in (1, 2, 3)),
            registration(4, fenced=True),
            registration(5, shutting_down=True),
        ]
    )
    assert not create(cluster, topic("is.there", 2, 2))["is.there"].error_code
    return cluster


@pytest.mark.parametrize(("wanted", "code"), CREATE_ERRORS)
def test_each_error_of_creation(
    cluster: SmallCluster, wanted: k19.CreatableTopic, code: ErrorCode
) -> None:
    """KRF-123, CTL-87, CTL-90: the checks in their order; a refused topic writes nothing."""
    assert error_of(cluster, wanted) is code
    if code is ErrorCode.NONE:
        assert error_of(cluster, wanted) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_new_partitions_are_online_at_once(cluster: SmallCluster) -> None:
    """CTL-86: leader and ISR are the live replicas in their order, epochs 0."""
    create(cluster, topic("new", assignments={0: [4, 2, 1], 1: [5, 3, 4]}))
    first, second = cluster.image.topics["new"].partitions
    assert (first.replicas, first.isr, first.leader) == ((4, 2, 1), (2, 1), 2)
    assert (second.replicas, second.isr, second.leader) == ((5, 3, 4), (3,), 3)
    for partition in (first, second):
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == tuple(map(directory_of, partition.replicas))
        state = cluster.context.partition_states.state(partition.topic_id, partition.partition_id)
        assert state is PartitionState.ONLINE


def test_one_batch_in_the_order_topic_configs_partitions(cluster: SmallCluster) -> None:
    """CTL-89, KRF-123: every topic of a request in one atomic batch."""
    request = k19.CreateTopicsRequest(
        topics=[
            topic("one", 2, 1, configs={"retention.ms": "5", "segment.ms": "6"}),
            topic("bad", 0, 1),
            topic("two", 1, 1),
        ]
    )
    result = cluster.topics.create_topics(request, CALLER)
    assert result.is_atomic
    kinds = [type(record) for record in result.records]
    partition = PartitionRecord
    assert kinds == [
        *(TopicRecord, ConfigRecord, ConfigRecord, partition, partition),
        *(TopicRecord, partition),
    ]
    cluster.carry_out(result)
    assert cluster.image.config(ConfigResourceType.TOPIC, "one") == {
        "retention.ms": "5",
        "segment.ms": "6",
    }
    assert "bad" not in cluster.image.topics


def test_validation_only_writes_nothing(cluster: SmallCluster) -> None:
    """CTL-89."""
    before = cluster.image
    results = create(cluster, topic("new", 3, 2), topic("bad", 0, 1), validate_only=True)
    assert cluster.image is before
    assert results["new"].error_code == 0
    assert results["new"].num_partitions == 3
    assert results["bad"].error_code == ErrorCode.INVALID_PARTITIONS


def test_the_answer_describes_the_topic(cluster: SmallCluster) -> None:
    cluster.with_settings(num_partitions=4, default_replication_factor=2)
    result = create(cluster, topic("new", configs={"retention.ms": "77"}))["new"]
    assert (result.num_partitions, result.replication_factor) == (4, 2)
    assert result.topic_id == cluster.image.topics["new"].topic_id
    configs = {each.name: each for each in result.configs or []}
    assert list(configs) == sorted(configs)
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("77", 1)
    assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("604800000", 5)
    answer = k19.CreateTopicsResponse(topics=[result])
    for version in range(2, 8):
        assert encode_bytes(answer, version)


def test_the_answer_follows_the_nodes_configuration(cluster: SmallCluster) -> None:
    def retention() -> str | None:
        result = create(cluster, topic("new", 1, 1), validate_only=True)["new"]
        return {each.name: each.value for each in result.configs or []}["retention.ms"]

    assert retention() == "604800000"
    cluster.node.update(cluster={"log.retention.ms": "5000"})
    assert retention() == "5000"


def test_a_name_twice_in_a_request_is_refused_and_the_rest_goes_on(cluster: SmallCluster) -> None:
    """KRF-123."""
    results = create(cluster, topic("twice", 1, 1), topic("other", 1, 1), topic("twice", 1, 1))
    assert results["twice"].error_code == ErrorCode.INVALID_REQUEST
    assert results["other"].error_code == 0
    assert "twice" not in cluster.image.topics


def test_names_of_one_request_may_not_collide(cluster: SmallCluster) -> None:
    results = create(cluster, topic("p.q_r", 1, 1), topic("p_q.r", 1, 1), topic("p-q-r", 1, 1))
    codes = [result.error_code for result in results.values()]
    assert codes == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0]


def test_a_name_is_free_again_when_its_topic_is_gone(cluster: SmallCluster) -> None:
    """CTL-104: the new topic has an id of its own; a name that collided is free as well."""
    old = cluster.image.topics["is.there"].topic_id
    delete_by_name(cluster, "is.there")
    assert error_of(cluster, topic("is.there", 1, 1)) is ErrorCode.NONE
    assert cluster.image.topics["is.there"].topic_id != old
    delete_by_name(cluster, "is.there")
    assert error_of(cluster, topic("is_there", 1, 1)) is ErrorCode.NONE


@pytest.mark.parametrize("fenced", [True, False])
def test_without_an_active_broker_nothing_is_created(fenced: bool) -> None:
    """CTL-88."""
    cluster = SmallCluster([registration(1, fenced=fenced, shutting_down=not fenced)])
    assert error_of(cluster, topic("new", 1, 1)) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_too_many_partitions_are_refused_before_any_is_made(cluster: SmallCluster) -> None:
    """KRF-103: the whole request, however its partitions are spread over topics."""
    half = MAX_RECORDS_PER_REQUEST // 2
    for topics in (
        [topic("big", 2**31 - 1, 1)],
        [topic("a", half, 1), topic("b", half, 1), topic("c")],
        [topic("a", MAX_RECORDS_PER_REQUEST, 1), topic("b", assignments={0: [1]})],
    ):
        request = k19.CreateTopicsRequest(topics=topics)
        with pytest.raises(ControllerError) as caught:
            cluster.topics.create_topics(request, CALLER)
        assert caught.value.code is ErrorCode.POLICY_VIOLATION
    at_the_limit = k19.CreateTopicsRequest(topics=[topic("a", half, 1), topic("b", half, 1)])
    result = finished(cluster.topics.create_topics(at_the_limit, CALLER))
    assert len(result.records) == MAX_RECORDS_PER_REQUEST + 2


def rests(outcome: Outcome[object]) -> int:
    count = 0
    while isinstance(outcome, Part):
        assert outcome.records == ()
        outcome = outcome.proceed(0)
        count += 1
    return count


def test_many_small_topics_are_made_and_grown_with_rests(cluster: SmallCluster) -> None:
    """20 partitions and 5 for the topic itself, 150 at a time."""
    names = [f"small-{number}" for number in range(20)]
    request = k19.CreateTopicsRequest(topics=[topic(name, 20, 1) for name in names])
    assert rests(cluster.topics.create_topics(request, CALLER)) == 3
    cluster.carry_out(cluster.topics.create_topics(request, CALLER))
    wanted = [k37.CreatePartitionsTopic(name=name, count=40, assignments=None) for name in names]
    growth = k37.CreatePartitionsRequest(topics=wanted)
    assert rests(cluster.topics.create_partitions(growth, CALLER)) == 3


def test_replicas_go_to_a_brokers_only_directory_or_wherever_it_likes() -> None:
    several = replace(registration(2), log_dirs=(directory_of(20), directory_of(21)))
    cluster = SmallCluster([registration(1), several])
    create(cluster, topic("new", assignments={0: [1, 2]}))
    directories = cluster.image.topics["new"].partitions[0].directories
    assert directories == (directory_of(1), DIRECTORY_UNASSIGNED)


def test_directories_wait_for_their_metadata_version() -> None:
    cluster = SmallCluster(metadata_version=16)
    create(cluster, topic("new", 1, 3))
    assert cluster.image.topics["new"].partitions[0].directories == ()


def test_topic_ids_are_version_4_and_never_look_like_an_option() -> None:
    random = Random(5)
    for _ in range(1000):
        uuid = random_uuid(random)
        assert (uuid[6] >> 4, uuid[8] >> 6) == (4, 2)
        assert not format_uuid(uuid).startswith("-")


def test_the_random_source_decides_everything() -> None:
    def made(seed: int) -> object:
        cluster = SmallCluster(seed=seed)
        create(cluster, topic("new", 5, 2))
        return cluster.image.topics["new"]

    assert made(1) == made(1)
    assert made(1) != made(2)


def test_names_index_goes_back_with_the_image(cluster: SmallCluster) -> None:
    """The index is a function of the image, whichever way the image goes."""
    fresh = TopicNames()
    before = cluster.image
    create(cluster, topic("x.y", 1, 1))
    fresh.update(ImageChanges(EMPTY_IMAGE, cluster.image))
    assert fresh.colliding("x_y") == "x.y"
    fresh.update(ImageChanges(cluster.image, before))
    assert fresh.colliding("x_y") is None
    assert fresh.colliding("is_there") == "is.there"


def test_legal_names() -> None:
    for name in ("a", "...", "A-Z_0.9", "x" * 249, "__consumer_offsets"):
        assert wrong_name(name) is None


# Growing.


def grow(
    cluster: SmallCluster,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    validate_only: bool = False,
) -> ErrorCode:
    wanted = None
    if assignments is not None:
        wanted = [k37.CreatePartitionsAssignment(broker_ids=each) for each in assignments]
    request = k37.CreatePartitionsRequest(
        topics=[k37.CreatePartitionsTopic(name=name, count=count, assignments=wanted)],
        validate_only=validate_only,
    )
    before = cluster.image
    answer = cluster.carry_out(cluster.topics.create_partitions(request, CALLER))
    code = ErrorCode(answer.results[0].error_code)
    if code is not ErrorCode.NONE or validate_only:
        assert cluster.image is before
    return code


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("unknown", 0, [[99]], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("is.there", 2, [[99]], ErrorCode.INVALID_PARTITIONS),
        ("is.there", 1, [[99]], ErrorCode.INVALID_PARTITIONS),
        ("is.there", -1, [[99]], ErrorCode.INVALID_PARTITIONS),
        ("is.there", 4, [[99]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("is.there", 3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("is.there", 3, [[1, 99]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("is.there", 3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("is.there", 3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("is.there", 3, [[1, 2, 3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("is.there", 3, [[4, 5]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("is.there", 3, [[4, 1]], ErrorCode.NONE),
        ("is.there", 3, None, ErrorCode.NONE),
    ],
)
def test_each_error_of_growing(
    cluster: SmallCluster,
    name: str,
    count: int,
    assignments: list[list[int]] | None,
    code: ErrorCode,
) -> None:
    """KRF-123."""
    assert grow(cluster, name, count, assignments, validate_only=True) is code
    assert grow(cluster, name, count, assignments) is code
    if code is ErrorCode.NONE:
        assert grow(cluster, name, count, assignments) is ErrorCode.INVALID_PARTITIONS


def test_growing_adds_only_the_new_partitions(cluster: SmallCluster) -> None:
    """CTL-91."""
    before = cluster.image.topics["is.there"]
    grow(cluster, "is.there", 4)
    after = cluster.image.topics["is.there"]
    assert after.topic_id == before.topic_id
    assert after.partitions[:2] == before.partitions
    assert [each.partition_id for each in after.partitions] == [0, 1, 2, 3]
    for partition in after.partitions[2:]:
        assert len(partition.replicas) == 2
        assert partition.leader == partition.replicas[0] == partition.isr[0]


def test_growing_a_deleted_topic_is_refused(cluster: SmallCluster) -> None:
    """CTL-92."""
    delete_by_name(cluster, "is.there")
    assert len(cluster.image.pending_deletions) == 1
    assert grow(cluster, "is.there", 5) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_growing_without_enough_brokers(cluster: SmallCluster) -> None:
    for number in (1, 2, 3):
        cluster.apply([registration(number, fenced=True)])
    assert grow(cluster, "is.there", 3) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_growing_beyond_one_batch_and_twice_in_a_request(cluster: SmallCluster) -> None:
    """KRF-103."""
    with pytest.raises(ControllerError) as caught:
        grow(cluster, "is.there", MAX_RECORDS_PER_REQUEST + 3)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    entry = k37.CreatePartitionsTopic(name="is.there", count=3, assignments=None)
    request = k37.CreatePartitionsRequest(topics=[entry, entry])
    result = cluster.topics.create_partitions(request, CALLER)
    assert result.records == ()
    assert [each.error_code for each in result.answer.results] == [ErrorCode.INVALID_REQUEST]


# Deleting.


def delete(
    cluster: SmallCluster, request: k20.DeleteTopicsRequest, version: int = 6
) -> list[tuple[str | None, Uuid, int]]:
    result = cluster.topics.delete_topics(request, Caller(api_version=version))
    answer = cluster.carry_out(result)
    assert encode_bytes(answer, 6)
    return [(each.name, each.topic_id, each.error_code) for each in answer.responses]


def delete_by_name(cluster: SmallCluster, *names: str) -> list[tuple[str | None, Uuid, int]]:
    return delete(cluster, k20.DeleteTopicsRequest(topic_names=list(names)))


def test_deleting_by_name_and_by_id(cluster: SmallCluster) -> None:
    create(cluster, topic("other", 1, 1, configs={"retention.ms": "5"}))
    first = cluster.image.topics["is.there"].topic_id
    second = cluster.image.topics["other"].topic_id
    request = k20.DeleteTopicsRequest(
        topics=[
            k20.DeleteTopicState(name="is.there"),
            k20.DeleteTopicState(topic_id=second),
        ]
    )
    result = cluster.topics.delete_topics(request, CALLER)
    assert result.is_atomic
    assert sorted(result.records, key=str) == sorted(
        [RemoveTopicRecord(first), RemoveTopicRecord(second)], key=str
    )
    assert sorted(delete(cluster, request), key=str) == sorted(
        [("is.there", first, 0), ("other", second, 0)], key=str
    )
    assert len(cluster.image.topics) == 0
    assert cluster.image.config(ConfigResourceType.TOPIC, "other") == {}
    assert sorted(delete(cluster, request), key=str) == sorted(
        [
            ("is.there", ZERO_UUID, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
            (None, second, int(ErrorCode.UNKNOWN_TOPIC_ID)),
        ],
        key=str,
    )


def test_deleting_an_unknown_topic_leaves_nothing_behind(cluster: SmallCluster) -> None:
    """CTL-96."""
    before = cluster.image
    answer = delete_by_name(cluster, "unknown")
    assert answer == [("unknown", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert cluster.image is before


def test_what_is_named_twice_stays(cluster: SmallCluster) -> None:
    """KRF-123."""
    topic_id = cluster.image.topics["is.there"].topic_id
    by_name, by_id = k20.DeleteTopicState(name="is.there"), k20.DeleteTopicState(topic_id=topic_id)
    both = k20.DeleteTopicState(name="is.there", topic_id=topic_id)
    before = cluster.image
    for states in (
        [by_name, by_name],
        [by_id, by_id],
        [by_name, by_id],
        [by_id, by_id, by_name],
        [both],
        [k20.DeleteTopicState()],
    ):
        answers = delete(cluster, k20.DeleteTopicsRequest(topics=states))
        assert {code for _, _, code in answers} == {ErrorCode.INVALID_REQUEST}
    assert cluster.image is before


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deleting_can_be_disabled(cluster: SmallCluster, version: int, code: ErrorCode) -> None:
    """CTL-97."""
    cluster.with_settings(delete_topic_enable=False)
    with pytest.raises(ControllerError) as caught:
        delete(cluster, k20.DeleteTopicsRequest(topic_names=["is.there"]), version)
    assert caught.value.code is code
    assert "is.there" in cluster.image.topics


def test_a_reassignment_goes_with_its_topic(cluster: SmallCluster) -> None:
    """CTL-107: the topic is not held back and is never half deleted."""
    topic_id = cluster.image.topics["is.there"].topic_id
    cluster.apply(
        [
            PartitionChangeRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=(1, 2, 3),
                adding_replicas=(3,),
                removing_replicas=(1,),
                directories=tuple(map(directory_of, (1, 2, 3))),
            )
        ]
    )
    assert delete_by_name(cluster, "is.there") == [("is.there", topic_id, 0)]
    assert "is.there" not in cluster.image.topics
    pending = cluster.image.pending_deletions[topic_id]
    assert {replica.broker_id for replica in pending.replicas if replica.partition_id == 0} == {
        1,
        2,
        3,
    }
