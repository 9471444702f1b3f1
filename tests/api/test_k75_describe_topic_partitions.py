"""DescribeTopicPartitions: pages, cursors, and what isn't there."""

from __future__ import annotations

import pytest
from api.image_cluster import bench_of, broker, topic, topic_id, view_of

from kraftpy.api.k75_describe_topic_partitions import DescribeTopicPartitionsHandler
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata import records as r
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k75_describe_topic_partitions as k75

Page = list[tuple[str | None, list[int]]]


def ask(
    view: BrokerMetadata,
    *names: str,
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
    max_partitions: int = 2000,
) -> k75.DescribeTopicPartitionsResponse:
    request = k75.DescribeTopicPartitionsRequest(
        topics=[k75.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else k75.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    handler = DescribeTopicPartitionsHandler(view, lambda: max_partitions)
    response = bench_of(handler).ask(request, 0)
    assert isinstance(response, k75.DescribeTopicPartitionsResponse)
    return response


def page_of(response: k75.DescribeTopicPartitionsResponse) -> Page:
    return [
        (each.name, [partition.partition_index for partition in each.partitions])
        for each in response.topics
    ]


def cursor_of(response: k75.DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
def view() -> BrokerMetadata:
    return view_of(
        broker(1), *topic("c", (1,)), *topic("a", (1,), (1,), (1,)), *topic("b", (1,), (1,))
    )


@pytest.mark.parametrize("limit", range(1, 8))
def test_pages_put_together_are_the_whole(view: BrokerMetadata, limit: int) -> None:
    """Every partition once, in order, and no page above the limit."""
    seen: list[tuple[str | None, int]] = []
    cursor = None
    for _ in range(10):
        response = ask(view, limit=limit, cursor=cursor)
        page = [(name, number) for name, numbers in page_of(response) for number in numbers]
        assert 1 <= len(page) <= limit
        seen += page
        cursor = cursor_of(response)
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]


def test_a_page_that_ends_with_a_topic_points_to_the_next_one(view: BrokerMetadata) -> None:
    response = ask(view, limit=3)
    assert page_of(response) == [("a", [0, 1, 2])]
    assert cursor_of(response) == ("b", 0)
    assert cursor_of(ask(view, limit=6)) is None


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
def test_a_limit_below_one_is_one(view: BrokerMetadata, limit: int) -> None:
    assert page_of(ask(view, limit=limit)) == [("a", [0])]


def test_the_node_s_own_limit_is_the_lower_one(view: BrokerMetadata) -> None:
    response = ask(view, limit=2**31 - 1, max_partitions=2)
    assert page_of(response) == [("a", [0, 1])]
    assert cursor_of(response) == ("a", 2)


def test_topics_that_are_asked_for(view: BrokerMetadata) -> None:
    """Sorted, each once, and those that aren't there say so without taking room."""
    response = ask(view, "c", "nope", "a", "bad name", "a", limit=4)
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("a", ErrorCode.NONE),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("c", ErrorCode.NONE),
    ]
    assert cursor_of(response) == ("nope", 0)
    rest = ask(view, "c", "nope", "a", cursor=("nope", 0))
    assert [(each.name, each.error_code) for each in rest.topics] == [
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]


def test_a_cursor_at_a_topic_that_is_gone(view: BrokerMetadata) -> None:
    assert page_of(ask(view, cursor=("aa", 7))) == [("b", [0, 1]), ("c", [0])]
    assert page_of(ask(view, cursor=("z", 0))) == []


def test_a_cursor_beyond_the_partitions_of_its_topic(view: BrokerMetadata) -> None:
    assert page_of(ask(view, cursor=("a", 3))) == [("a", []), ("b", [0, 1]), ("c", [0])]
    assert page_of(ask(view, cursor=("c", 2**31 - 1))) == [("c", [])]


def test_a_negative_cursor_is_refused(view: BrokerMetadata) -> None:
    response = ask(view, "a", cursor=("a", -1))
    assert [each.error_code for each in response.topics] == [ErrorCode.INVALID_REQUEST]


def test_what_is_told_of_a_partition() -> None:
    records = [
        r.TopicRecord("t", topic_id("t")),
        r.PartitionRecord(
            0,
            topic_id("t"),
            (1, 2, 3),
            (1,),
            leader=1,
            leader_epoch=8,
            eligible_leader_replicas=(2,),
            last_known_elr=(3,),
        ),
    ]
    view = view_of(broker(1), broker(2), broker(3, fenced=True), *records)
    [found] = ask(view, "t").topics
    assert (found.topic_id, found.topic_authorized_operations) == (topic_id("t"), 0b1101_1111_1000)
    [partition] = found.partitions
    assert (partition.leader_id, partition.leader_epoch) == (1, 8)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1, 2, 3], [1])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([2], [3])
    assert partition.offline_replicas == [3]
    assert partition.error_code == ErrorCode.NONE
