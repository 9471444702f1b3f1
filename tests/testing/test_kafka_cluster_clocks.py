"""Wrong clocks, slow disks and lost power, as a user's test sees them."""

from __future__ import annotations

import time
from itertools import islice

import pytest
from testkit import LEADERS_STAY, SECONDS, create_topic, eventually, polled, producer, read, send

from kraftpy.testing.cluster import KafkaCluster

pytestmark = pytest.mark.compat

HOUR_MS = 3_600_000


def times_of(cluster: KafkaCluster, topic: str, count: int) -> list[int]:
    """When the broker says that it got the first records."""
    found = [message.timestamp()[1] for message in islice(polled(cluster, topic), count)]
    assert len(found) == count
    return found


def test_a_clock_jumps_and_strobes_until_it_is_healed(kafka_cluster_session: KafkaCluster) -> None:
    """N5, N6: a broker's clock is in the records of a topic with LogAppendTime."""
    cluster = kafka_cluster_session
    create_topic(cluster, "timed", replicas=[2], message_timestamp_type="LogAppendTime")
    sender = producer(cluster, acks=1)
    assert send(sender, "timed", b"right") == 0
    cluster.clock_jump(2, 10 * HOUR_MS)
    assert send(sender, "timed", b"tomorrow") == 1
    cluster.heal()
    assert send(sender, "timed", b"right again") == 2
    cluster.clock_strobe(2, -10 * HOUR_MS, period_ms=1)
    seen = 3

    def has_been_wrong() -> bool:
        nonlocal seen
        assert send(sender, "timed", b"who knows") == seen
        seen += 1
        return times_of(cluster, "timed", seen)[-1] < times_of(cluster, "timed", 1)[0]

    eventually(has_been_wrong)
    first, ahead, third = times_of(cluster, "timed", 3)
    assert ahead - first >= 10 * HOUR_MS
    assert third < ahead - 9 * HOUR_MS


def test_a_slow_disk_is_waited_for(kafka_cluster_session: KafkaCluster) -> None:
    """N15: what the controllers write has to be on a majority of disks."""
    cluster = kafka_cluster_session
    create_topic(cluster, "quick-disk")
    for node in cluster.nodes:
        cluster.slow_disk(node, 200)
    begun = time.monotonic()
    create_topic(cluster, "slow-disk")
    assert time.monotonic() - begun >= 0.2


def test_a_node_that_lost_its_power_has_everything_again(
    kafka_cluster_session: KafkaCluster,
) -> None:
    """N8, JEP-97: what it had not synced comes from the others."""
    cluster = kafka_cluster_session
    create_topic(cluster, "powered", replicas=[1, 2, 3])
    sender = producer(cluster)
    for number in range(20):
        assert send(sender, "powered", b"%d" % number) == number
    cluster.power_loss(1)
    assert cluster.running == (2, 3)
    assert send(sender, "powered", b"20") == 20
    cluster.heal()
    assert cluster.running == (1, 2, 3)
    assert read(cluster, "powered", 21) == [b"%d" % number for number in range(21)]


def test_a_held_fetch_keeps_a_follower_away(kafka_cluster_session: KafkaCluster) -> None:
    """N22, N23: acks=all waits for the request that is on its way; a reset does no harm."""
    cluster = kafka_cluster_session
    create_topic(cluster, "held", replicas=[1, 2], min_insync_replicas="2")
    sender = producer(cluster)
    assert send(sender, "held", b"before") == 0
    cluster.reset(1, (2, 3))
    assert send(sender, "held", b"reset") == 1
    # As many as there are connections: each is held up by the first.
    cluster.hold(1, "Fetch", times=10)
    with pytest.raises(TimeoutError):
        send(sender, "held", b"held", seconds=1.0)
    cluster.heal()
    assert sender.flush(SECONDS) == 0
    assert read(cluster, "held", 3) == [b"before", b"reset", b"held"]


def test_what_can_not_happen_here_is_refused(kafka_cluster_session: KafkaCluster) -> None:
    cluster = kafka_cluster_session
    with pytest.raises(ValueError, match="cut-clients does not happen in a cluster for tests"):
        cluster.apply("cut-clients nodes=1")
    with pytest.raises(ValueError, match="there is no node 9"):
        cluster.clock_jump(9, 1)


@pytest.mark.kafka_cluster(nodes=2, settings=LEADERS_STAY)
def test_processes_have_wrong_clocks_and_lose_power_too(kafka_cluster: KafkaCluster) -> None:
    """N3, N5, N8"""
    cluster = kafka_cluster
    create_topic(cluster, "timed", replicas=[2, 1], message_timestamp_type="LogAppendTime")
    sender = producer(cluster)
    assert send(sender, "timed", b"right") == 0
    cluster.clock_jump(2, 10 * HOUR_MS)
    assert send(sender, "timed", b"tomorrow") == 1
    first, ahead = times_of(cluster, "timed", 2)
    assert ahead - first >= 10 * HOUR_MS
    cluster.power_loss(2)
    assert cluster.running == (1,)
    cluster.heal()
    cluster.rolling_restart()
    assert cluster.running == (1, 2)
    assert read(cluster, "timed", 2) == [b"right", b"tomorrow"]
