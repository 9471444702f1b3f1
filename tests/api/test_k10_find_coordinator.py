"""FindCoordinator: the leader of the partition that a name is in, once there is one."""

from __future__ import annotations

from typing import Any

import pytest
from api.image_cluster import broker, topic, view_of
from api.recording import Bench, RecordingChannel

from kraftpy.api.k10_find_coordinator import (
    GROUP_KEY,
    TRANSACTION_KEY,
    FindCoordinatorHandler,
)
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.envelope import Sender
from kraftpy.broker.topic_creation import AutoTopicCreation, TopicTemplate
from kraftpy.coordinator.hashing import partition_for
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kraftpy.world.memory_clock import MemoryClock

VERSIONS = range(API[10].min_version, API[10].max_version + 1)
OFFSETS = "__consumer_offsets"
STATE = "__transaction_state"
MISSING = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Creation(AutoTopicCreation):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__(None, MemoryClock(), TopicTemplate(1, 1))  # type: ignore[arg-type]
        self.asked: list[tuple[str, Sender | None]] = []

    def create(self, names: Any, sender: Sender | None = None) -> dict[str, ErrorCode]:
        self.asked += [(name, sender) for name in names]
        return {}


def ask(
    version: int, *records: Any, key_type: int = GROUP_KEY, names: tuple[str, ...] = ("g", "h")
) -> tuple[list[tuple[str, int, int, str, int]], list[tuple[str, Sender | None]]]:
    """(key, error, node, host, port) for each name, and what was created."""
    cluster = view_of(*records)
    lookups = {
        GROUP_KEY: CoordinatorLookup(OFFSETS, cluster, 50),
        TRANSACTION_KEY: CoordinatorLookup(STATE, cluster, 50),
    }
    creation = Creation()
    bench = Bench(
        [FindCoordinatorHandler(lookups, creation)],
        channel=RecordingChannel(listener_name="PLAINTEXT"),
    )
    if version >= 4:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(names))
        answer = bench.ask(request, version)
        assert isinstance(answer, FindCoordinatorResponse)
        found = [
            (each.key, each.error_code, each.node_id, each.host, each.port)
            for each in answer.coordinators
        ]
        return found, creation.asked
    found = []
    for name in names:
        request = FindCoordinatorRequest(key=name)
        if version >= 1:
            request.key_type = key_type
        answer = bench.ask(request, version)
        assert isinstance(answer, FindCoordinatorResponse)
        found.append((name, answer.error_code, answer.node_id, answer.host, answer.port))
    return found, creation.asked


@pytest.mark.parametrize("version", VERSIONS)
def test_the_leader_of_a_names_partition_in_every_version(version: int) -> None:
    """GRP-1: by the partitions that the topic has, not by those it would be created with."""
    leaders = (1, 2, 3)
    found, created = ask(
        version,
        *(broker(number) for number in leaders),
        *topic(OFFSETS, *((number,) for number in leaders)),
    )
    for key, code, node, host, port in found:
        expected = leaders[partition_for(key, 3)]
        assert (code, node, host, port) == (
            ErrorCode.NONE,
            expected,
            f"plaintext{expected}",
            9000 + expected,
        )
    assert {node for _, _, node, _, _ in found} != {leaders[0]}
    assert created == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_question_has_the_topic_created(version: int) -> None:
    """GRP-3: by the broker itself, for clients need no right to create it."""
    found, created = ask(version, broker(1))
    assert [each[1:] for each in found] == [(MISSING, -1, "", -1)] * 2
    assert set(created) == {(OFFSETS, None)}


def test_transactions_have_a_topic_of_their_own() -> None:
    """TXN-10."""
    found, created = ask(6, broker(1), *topic(OFFSETS, (1,)), key_type=TRANSACTION_KEY)
    assert [each[1] for each in found] == [MISSING] * 2
    assert created[0][0] == STATE
    found, _ = ask(6, broker(1), *topic(STATE, (1,)), key_type=TRANSACTION_KEY)
    assert [each[1:3] for each in found] == [(ErrorCode.NONE, 1)] * 2


@pytest.mark.parametrize(
    "leader", [broker(1, fenced=True), broker(1, "OTHER")], ids=["fenced", "another listener"]
)
def test_a_leader_that_the_client_can_not_reach_is_no_coordinator(leader: Any) -> None:
    found, created = ask(6, leader, *topic(OFFSETS, (1,)))
    assert [each[1:3] for each in found] == [(MISSING, -1)] * 2
    assert created == []


def test_kinds_of_keys() -> None:
    """Share groups are known from version 6 on, but nobody coordinates them yet."""
    assert [each[1] for each in ask(3, key_type=7)[0]] == [ErrorCode.INVALID_REQUEST] * 2
    assert [each[1] for each in ask(6, key_type=7)[0]] == [ErrorCode.INVALID_REQUEST] * 2
    assert [each[1] for each in ask(5, key_type=2)[0]] == [ErrorCode.INVALID_REQUEST] * 2
    assert [each[1] for each in ask(6, key_type=2)[0]] == [MISSING] * 2


@pytest.mark.parametrize(
    ("name", "count", "partition"),
    [
        ("", 50, 0),
        ("g", 50, 3),
        ("testgroup", 50, 27),
        ("consumerGroupId", 50, 20),
        ("grüße 😀", 50, 34),
        ("zzzzzzz", 7, 4),
        ("polygenelubricants", 50, 0),
        ("a long name " * 20, 50, 20),
    ],
)
def test_names_are_in_the_partitions_that_kafka_would_put_them(
    name: str, count: int, partition: int
) -> None:
    """TXN-10, GRP-1, GRP-2: Java's hash, the lowest number for the last; values from a JVM."""
    assert partition_for(name, count) == partition
