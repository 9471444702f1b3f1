"""What jobs ask a cluster besides Spark."""

from __future__ import annotations

import pytest
from kraftpy_spark.jobs.cluster_view import ClusterView, find_topics
from spark.spark_brokers import SparkBroker

from kraftpy.client.blocking import BlockingConnection


def test_offsets_of_topics_and_no_connection_stays(
    kraftpy_nodes: SparkBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kraftpy_nodes.topic(2)
    kraftpy_nodes.produce(topic, [b"a", b"b", b"c"], partition=1, timestamp_ms=5_000)
    made: list[BlockingConnection] = []
    connect = BlockingConnection.__init__

    def note(connection: BlockingConnection, *arguments: object) -> None:
        made.append(connection)
        connect(connection, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(BlockingConnection, "__init__", note)
    view = ClusterView({"kafka.bootstrap.servers": kraftpy_nodes.bootstrap, "subscribe": topic})
    view.check()
    topics = find_topics(view.topics(), [topic], None)
    found = [view.beginnings(topics), view.ends(topics), view.at_time(topics, 1_000)]
    assert [[*each.values()] for each in found] == [[0, 0], [0, 3], [0, 0]]
    assert len(made) > 3
    assert [each for each in made if each.is_open] == []
