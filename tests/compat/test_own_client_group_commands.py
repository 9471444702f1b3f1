"""`kraftpy groups` and `kraftpy consume --group`, as people call them."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from typing import Any

import pytest
from compat.data_cluster import DataCluster

from kraftpy.client.blocking_clients import BlockingConsumer, BlockingProducer
from kraftpy.client.settings import ConsumerSettings

pytestmark = pytest.mark.compat

NAMES = count(1)
POLL_MS = 100


def kraftpy(cluster: DataCluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kraftpy.cli.main", *words, "-b", cluster.bootstrap]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def facts(cluster: DataCluster, *words: str) -> Any:
    done = kraftpy(cluster, *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def topic_with(cluster: DataCluster, count: int) -> str:
    # Its records are from 1970: half a minute after the node's start retention would take them.
    topic = cluster.topic(2, retention_ms="-1")
    with BlockingProducer(list(cluster.addresses.values())) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % 2, timestamp_ms=1000 + number)
    return topic


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consume_goes_on_where_the_group_is(cluster: DataCluster, protocol: str) -> None:
    topic, group = topic_with(cluster, 10), f"commands-{next(NAMES)}"
    words = ["consume", topic, "--group", group, "--protocol", protocol, "--from-beginning"]
    first = kraftpy(cluster, *words, "-n", "4")
    assert first.returncode == 0, first.stderr
    second = kraftpy(cluster, *words, "-n", "6")
    lines = first.stdout.split() + second.stdout.split()
    assert sorted(lines, key=int) == [str(number) for number in range(10)]
    [described] = facts(cluster, "groups", "describe", group)
    assert described["members"] == []
    assert [each["lag"] for each in described["offsets"]] == [0, 0]
    assert {each["group"]: each["type"] for each in facts(cluster, "groups", "list")}[
        group
    ] == protocol


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member(one_node: DataCluster, protocol: str) -> None:
    topic, group = topic_with(one_node, 10), f"commands-{next(NAMES)}"
    settings = ConsumerSettings(
        group_id=group,
        group_protocol=protocol,  # type: ignore[arg-type]
        auto_offset_reset="earliest",
    )
    with BlockingConsumer(list(one_node.addresses.values()), settings) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment:
            consumer.poll(POLL_MS)

        def stay() -> None:
            """A member, however long each of the commands takes: it polls in between."""
            consumer.poll(POLL_MS)

        [described] = facts(one_node, "groups", "describe", group)
        [member] = described["members"]
        assert sorted(member["partitions"]) == [f"{topic}-0", f"{topic}-1"]
        assert {each["member"] for each in described["offsets"]} == {member["member"]}
        stay()
        shown = kraftpy(one_node, "groups", "describe", group).stdout
        assert f"{member['member']}  kraftpy at" in shown
        stay()
        refused = kraftpy(one_node, "groups", "delete", group)
        assert refused.returncode == 1
        assert "NON_EMPTY_GROUP" in refused.stderr
        words = ["groups", "reset-offsets", group, "--topic", topic, "--to-end", "--execute"]
        stay()
        refused = kraftpy(one_node, *words)
        assert refused.returncode == 1
        assert "stop them first" in refused.stderr


def test_offsets_are_reset(one_node: DataCluster) -> None:
    topic, group = topic_with(one_node, 10), f"commands-{next(NAMES)}"

    def reset(*words: str) -> list[int]:
        found = facts(one_node, "groups", "reset-offsets", group, *words)
        return [each["offset"] for each in found]

    def committed() -> list[int]:
        [described] = facts(one_node, "groups", "describe", group)
        return [each["offset"] for each in described["offsets"]]

    assert reset("--topic", topic, "--to-offset", "2", "--execute") == [2, 2]
    assert reset("--to-end") == [5, 5]
    assert committed() == [2, 2]
    assert reset("--topic", f"{topic}:1", "--shift-by", "-1", "--execute") == [1]
    assert committed() == [2, 1]
    assert reset("--shift-by", "99", "--execute") == [5, 5]
    assert reset("--shift-by", "-99", "--execute") == [0, 0]
    assert reset("--to-timestamp", "1004", "--execute") == [2, 2]
    assert reset("--to-timestamp", "9999") == [5, 5]
    assert reset("--to-beginning", "--execute") == [0, 0]
    shown = kraftpy(one_node, "groups", "reset-offsets", group, "--to-end").stdout
    assert shown.splitlines()[0] == f"{topic}-0: 0 -> 5"
    assert "--execute does it" in shown


def test_groups_are_deleted(one_node: DataCluster) -> None:
    topic, group = topic_with(one_node, 2), f"commands-{next(NAMES)}"
    facts(one_node, "groups", "reset-offsets", group, "--topic", topic, "--to-end", "--execute")
    assert kraftpy(one_node, "groups", "delete", group).stdout == f"{group}: deleted\n"
    gone = kraftpy(one_node, "groups", "describe", group)
    assert gone.returncode == 1
    assert "GROUP_ID_NOT_FOUND" in gone.stderr
    assert "`kraftpy groups list` shows what there is." in gone.stderr
    assert kraftpy(one_node, "groups", "delete", group).returncode == 1
    assert kraftpy(one_node, "groups", "delete", group, "--if-exists").returncode == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["consume", "t", "--protocol", "classic"], "--protocol needs --group"),
        (["consume", "t", "--group", "g", "--partition", "0"], "--partition is not for groups"),
        (["consume", "t", "--group", "g", "--exit-at-end"], "--exit-at-end is not for groups"),
        (["groups", "reset-offsets", "g", "--topic", "t"], "one of the arguments"),
        (["groups", "reset-offsets", "g", "--topic", "t:x", "--to-end"], "is not TOPIC"),
    ],
)
def test_contradictions_are_told(one_node: DataCluster, words: list[str], complaint: str) -> None:
    done = kraftpy(one_node, *words)
    assert done.returncode == 2
    assert complaint in done.stderr
