"""Each fault, seen by a real client (confluent-kafka).

Most of them in a cluster of three nodes in one process, which is quick; processes are ended, paused
and started by signals, which is another way, so what depends on it is tried in both.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError
from testkit import (
    LEADERS_STAY,
    SECONDS,
    create_topic,
    eventually,
    first_error,
    producer,
    read,
    send,
)

from kraftpy.testing.cluster import KafkaCluster

pytestmark = pytest.mark.compat

# Longer than anything takes in a cluster that is well.
PATIENCE_SECONDS = 1.5


def test_a_cluster_serves_clients(kafka_cluster_session: KafkaCluster) -> None:
    cluster = kafka_cluster_session
    assert cluster.nodes == cluster.running == (1, 2, 3)
    create_topic(cluster, "served")
    assert [send(producer(cluster), "served", b"%d" % each) for each in range(3)] == [0, 1, 2]
    assert read(cluster, "served", 3) == [b"0", b"1", b"2"]


def test_requests_fail_as_often_as_was_asked(kafka_cluster_session: KafkaCluster) -> None:
    cluster = kafka_cluster_session
    create_topic(cluster, "failing", replicas=[2, 1, 3])
    sender = producer(cluster)
    assert send(sender, "failing", b"before") == 0
    cluster.fail_next("Produce", "MESSAGE_TOO_LARGE", 2, node=2)
    for _ in range(2):
        error = send(sender, "failing", b"refused")
        assert isinstance(error, KafkaError)
        assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert send(sender, "failing", b"after") == 1
    assert read(cluster, "failing", 2) == [b"before", b"after"]


def test_clients_try_again_after_errors_that_pass(kafka_cluster_session: KafkaCluster) -> None:
    cluster = kafka_cluster_session
    create_topic(cluster, "passing")
    cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER")
    cluster.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", 2)
    assert send(producer(cluster), "passing", b"once") == 0
    assert read(cluster, "passing", 1) == [b"once"]


def test_failing_fetches_are_those_of_clients(kafka_cluster_session: KafkaCluster) -> None:
    """Followers go on, so acks=all is answered, and the failure waits for a consumer."""
    cluster = kafka_cluster_session
    create_topic(cluster, "followed", replicas=[1, 2, 3])
    cluster.fail_next("Fetch", "TOPIC_AUTHORIZATION_FAILED", node=1)
    assert send(producer(cluster), "followed", b"copied") == 0
    assert first_error(cluster, "followed") == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_what_is_healed_does_not_fail(kafka_cluster_session: KafkaCluster) -> None:
    cluster = kafka_cluster_session
    create_topic(cluster, "healed")
    cluster.fail_next("Produce", "MESSAGE_TOO_LARGE", 100)
    cluster.heal()
    assert send(producer(cluster), "healed", b"fine") == 0


def test_a_partition_keeps_followers_away(kafka_cluster_session: KafkaCluster) -> None:
    """N1: the leader can't have its records copied by nodes that it is cut off from."""
    cluster = kafka_cluster_session
    create_topic(cluster, "cut", replicas=[1, 2], min_insync_replicas="2")
    sender = producer(cluster)
    assert send(sender, "cut", b"whole") == 0
    cluster.partition(1, 2)
    with pytest.raises(TimeoutError):
        send(sender, "cut", b"waits", PATIENCE_SECONDS)
    cluster.heal()
    assert sender.flush(SECONDS) == 0
    assert read(cluster, "cut", 2) == [b"whole", b"waits"]


@pytest.mark.parametrize("is_leader_silenced", [True, False])
def test_one_way_cuts_keep_followers_away(
    kafka_cluster_session: KafkaCluster, is_leader_silenced: bool
) -> None:
    """N1, one-way: a fetch that does not arrive, or its answer that doesn't."""
    cluster = kafka_cluster_session
    name = f"one-way-{is_leader_silenced}"
    create_topic(cluster, name, replicas=[1, 2], min_insync_replicas="2")
    sender = producer(cluster)
    assert send(sender, name, b"whole") == 0
    cluster.one_way(*((1, 2) if is_leader_silenced else (2, 1)))
    with pytest.raises(TimeoutError):
        send(sender, name, b"waits", PATIENCE_SECONDS)
    cluster.heal()
    assert sender.flush(SECONDS) == 0


def test_a_delay_is_felt_by_who_waits_for_replication(kafka_cluster_session: KafkaCluster) -> None:
    """N21: the record waits for the follower's next fetch, which tells that it has it."""
    cluster = kafka_cluster_session
    create_topic(cluster, "slow", replicas=[1, 2], min_insync_replicas="2")
    sender = producer(cluster)
    assert send(sender, "slow", b"quick") == 0
    cluster.delay(1, 2, milliseconds=300)
    send(sender, "slow", b"settles")
    begun_at = time.monotonic()
    assert send(sender, "slow", b"delayed") == 2
    assert time.monotonic() - begun_at > 0.3


def test_a_full_disk_ends_a_node_and_others_take_over(kafka_cluster_session: KafkaCluster) -> None:
    """N14: nothing that was acknowledged is lost."""
    cluster = kafka_cluster_session
    create_topic(cluster, "full", replicas=[3, 1, 2])
    sender = producer(cluster)
    assert send(sender, "full", b"fits") == 0
    cluster.disk_full(3)
    assert send(sender, "full", b"elsewhere") == 1
    eventually(lambda: cluster.running == (1, 2))
    cluster.heal()
    assert cluster.running == (1, 2, 3)
    assert read(cluster, "full", 2) == [b"fits", b"elsewhere"]


def test_a_torn_write_is_a_crash_that_heals(kafka_cluster_session: KafkaCluster) -> None:
    """N9"""
    cluster = kafka_cluster_session
    create_topic(cluster, "torn", replicas=[2, 1, 3])
    sender = producer(cluster)
    assert send(sender, "torn", b"whole") == 0
    cluster.torn_write(2)
    assert send(sender, "torn", b"torn") == 1
    eventually(lambda: 2 not in cluster.running)
    cluster.heal()
    assert read(cluster, "torn", 2) == [b"whole", b"torn"]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_disk_that_fails_ends_a_node_and_others_take_over(
    kafka_cluster_session: KafkaCluster, operation: str
) -> None:
    """N13: a failed sync is not tried again. The metadata's is the one that every node does."""
    cluster = kafka_cluster_session
    name = f"failed-{operation}"
    create_topic(cluster, name, replicas=[1, 2, 3])
    sender = producer(cluster)
    assert send(sender, name, b"before") == 0
    cluster.disk_error(1, operation)
    # Metadata changes, so that node 1 has something to sync.
    create_topic(cluster, f"{name}-too", replicas=[2, 3])
    eventually(lambda: cluster.running == (2, 3))
    assert send(sender, name, b"elsewhere") == 1
    cluster.heal()
    assert read(cluster, name, 2) == [b"before", b"elsewhere"]


def test_a_node_that_is_stopped_hands_over_what_it_leads(
    kafka_cluster_session: KafkaCluster,
) -> None:
    """N3: the next request already finds another leader; not every broker knows it by then."""
    cluster = kafka_cluster_session
    create_topic(cluster, "handed", replicas=[1, 2, 3])
    sender = producer(cluster)
    assert send(sender, "handed", b"before") == 0
    cluster.stop(1)
    assert cluster.running == (2, 3)
    assert send(sender, "handed", b"after") == 1
    eventually(lambda: cluster.leader_of("handed") != 1)
    cluster.restart(1)
    assert cluster.running == (1, 2, 3)


def crash_and_return(cluster: KafkaCluster) -> None:
    create_topic(cluster, "crash", replicas=[1, 2, 3])
    sender = producer(cluster)
    assert send(sender, "crash", b"before") == 0
    cluster.kill(1)
    assert cluster.running == (2, 3)
    assert send(sender, "crash", b"without") == 1
    eventually(lambda: cluster.leader_of("crash") != 1)
    cluster.restart(1)
    assert cluster.running == (1, 2, 3)
    assert read(cluster, "crash", 2) == [b"before", b"without"]


def pause_and_resume(cluster: KafkaCluster) -> None:
    """N4: connections stay, and nobody answers; the others go on without it."""
    create_topic(cluster, "pause", replicas=[2, 1, 3])
    sender = producer(cluster)
    assert send(sender, "pause", b"before") == 0
    cluster.pause(2)
    try:
        send(sender, "pause", b"waits", 0.5)
    except TimeoutError:
        eventually(lambda: cluster.leader_of("pause") != 2)
    else:
        # On a busy machine half a second may be longer than its session: another one has it.
        assert cluster.leader_of("pause") != 2
    cluster.resume(2)
    assert sender.flush(SECONDS) == 0
    assert cluster.running == (1, 2, 3)


def test_kill_and_restart_in_one_process(kafka_cluster_session: KafkaCluster) -> None:
    """N2"""
    crash_and_return(kafka_cluster_session)


def test_pause_and_resume_in_one_process(kafka_cluster_session: KafkaCluster) -> None:
    pause_and_resume(kafka_cluster_session)


@pytest.mark.kafka_cluster(nodes=3, settings=LEADERS_STAY)
def test_faults_of_processes(kafka_cluster: KafkaCluster) -> None:
    """N2, N4, N1 and N14: what reaches a node by a signal, by its connections and from inside."""
    crash_and_return(kafka_cluster)
    pause_and_resume(kafka_cluster)
    create_topic(kafka_cluster, "faults", replicas=[3, 2], min_insync_replicas="2")
    sender = producer(kafka_cluster)
    assert send(sender, "faults", b"whole") == 0
    kafka_cluster.fail_next("Produce", "MESSAGE_TOO_LARGE", node=3)
    assert isinstance(send(sender, "faults", b"refused"), KafkaError)
    kafka_cluster.partition(2, 3)
    with pytest.raises(TimeoutError):
        send(sender, "faults", b"waits", PATIENCE_SECONDS)
    kafka_cluster.heal()
    assert sender.flush(SECONDS) == 0
    kafka_cluster.disk_full(1)
    send(sender, "faults", b"fits elsewhere")
    eventually(lambda: kafka_cluster.running == (2, 3))
    kafka_cluster.heal()
    assert kafka_cluster.running == (1, 2, 3)


@pytest.mark.kafka_cluster(nodes=1, controllers=1, one_process=True)
def test_roles_are_split_and_settings_are_kept(kafka_cluster: KafkaCluster) -> None:
    assert kafka_cluster.nodes == (1, 2)
    assert list(kafka_cluster.brokers) == [1]
    assert send(producer(kafka_cluster), "any", b"value") == 0


def test_faults_that_make_no_sense_are_refused(kafka_cluster_session: KafkaCluster) -> None:
    cluster = kafka_cluster_session
    with pytest.raises(ValueError, match="there is no node 4"):
        cluster.partition(1, [2, 4])
    with pytest.raises(ValueError, match="is no API"):
        cluster.fail_next("Produced", "UNKNOWN_SERVER_ERROR")
    cluster.kill(3)
    with pytest.raises(ValueError, match="node 3 does not run"):
        cluster.pause(3)
    assert [text for _, text in cluster.journal] == ["kill node=3"]


def test_a_cluster_comes_back_from_the_death_of_all_nodes(
    kafka_cluster_session: KafkaCluster,
) -> None:
    """N2, `all`"""
    cluster = kafka_cluster_session
    create_topic(cluster, "all")
    assert send(producer(cluster), "all", b"kept") == 0
    for node in cluster.nodes:
        cluster.kill(node)
    assert cluster.running == ()
    with pytest.raises(LookupError, match="nobody leads all-0"):
        cluster.leader_of("all")
    cluster.heal()
    assert read(cluster, "all", 1) == [b"kept"]


def test_what_is_drawn_hangs_on_the_seed(kafka_cluster_session: KafkaCluster) -> None:
    cluster = kafka_cluster_session
    names = ["partition", "delay", "one-way", "fail-next"]
    cluster.begin("7")
    first = [cluster.strike(names) for _ in range(5)]
    cluster.begin("7")
    assert [cluster.strike(names) for _ in range(5)] == first
