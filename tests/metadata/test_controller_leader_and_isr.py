"""What partitions become when brokers and their disks come and go, on a real timeline."""

from __future__ import annotations

import pytest
from partition_cluster import Cluster, changes_needed, directory, placed, topic_id

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.partition_states import PartitionState

UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"


def shape(partition: r.PartitionRecord) -> tuple[int, tuple[int, ...], int, int]:
    return partition.leader, partition.isr, partition.leader_epoch, partition.partition_epoch


def test_a_dead_broker_leaves_every_isr_and_its_partitions_get_leaders() -> None:
    """CTL-66, CTL-114, CTL-125: AR 0,1,2 with ISR 0,2,1 is led by 1, not by 2."""
    cluster = Cluster()
    cluster.topic(
        "orders",
        [
            placed((0, 1, 2), (0, 2, 1)),
            placed((1, 0, 2), leader=1),
            placed((1, 2, 0), (1, 2)),
            placed((3, 4, 5)),
        ],
    )
    changes = cluster.fence(0)
    identity = topic_id("orders")
    assert changes == (
        r.PartitionChangeRecord(0, identity, isr=(2, 1), leader=1),
        r.PartitionChangeRecord(1, identity, isr=(1, 2)),
    )
    assert shape(cluster.partition("orders", 0)) == (1, (2, 1), 6, 1)
    assert shape(cluster.partition("orders", 1)) == (1, (1, 2), 5, 1)
    assert cluster.partition("orders", 3).partition_epoch == 0


def test_changes_come_in_the_order_of_topics_and_partitions() -> None:
    cluster = Cluster()
    for name in ("b", "c", "a"):
        cluster.topic(name, [placed((0, 1)), placed((1, 0)), placed((0, 2))])
    order = [(change.topic_id, change.partition_id) for change in cluster.fence(0)]
    assert order == [(topic_id(name), number) for name in "abc" for number in range(3)]


@pytest.mark.parametrize("elr", [False, True])
def test_the_only_member_dies_and_comes_back(elr: bool) -> None:
    """CTL-69, CTL-115, KRF-117, CTL-14: nobody leads meanwhile, and nobody else may."""
    cluster = Cluster(elr=elr)
    cluster.topic("orders", [placed((0, 1), (0,))])
    cluster.fence(0)
    partition = cluster.partition("orders")
    assert shape(partition) == (-1, () if elr else (0,), 6, 1)
    assert partition.eligible_leader_replicas == ((0,) if elr else ())
    assert cluster.context.partition_states.state(topic_id("orders"), 0) is PartitionState.OFFLINE
    assert cluster.unfence(1) == ()
    cluster.unfence(0)
    assert shape(cluster.partition("orders")) == (0, (0,), 7, 2)


@pytest.mark.parametrize("first", [0, 1])
def test_both_brokers_stop_one_after_the_other(first: int) -> None:
    """CTL-14: whoever stops last has everything, and is the one to wait for."""
    cluster = Cluster(elr=False)
    cluster.topic("orders", [placed((0, 1))])
    last = 1 - first
    cluster.fence(first)
    cluster.fence(last)
    assert shape(cluster.partition("orders"))[:2] == (-1, (last,))
    assert cluster.unfence(first) == ()
    cluster.unfence(last)
    assert shape(cluster.partition("orders"))[:2] == (last, (last,))


def test_a_topic_may_prefer_to_lose_records() -> None:
    """CTL-126, CTL-127, CTL-128: its own setting counts more than everybody's."""
    cluster = Cluster()
    for name in ("careful", "hasty", "plain"):
        cluster.topic(name, [placed((0, 1), (0,))])
    cluster.configure("", UNCLEAN, "true")
    cluster.configure("careful", UNCLEAN, "false")
    cluster.configure("hasty", UNCLEAN, "true")
    cluster.fence(0)
    leaders = {name: cluster.partition(name).leader for name in ("careful", "hasty", "plain")}
    assert leaders == {"careful": -1, "hasty": 1, "plain": 1}
    hasty = cluster.partition("hasty")
    assert (hasty.isr, hasty.leader_recovery_state) == ((1,), r.RECOVERING)
    assert cluster.context.partition_states.unclean_election_count == 2


def test_settings_are_those_of_each_topic() -> None:
    """Topics are visited in a row, with and without settings of their own."""
    cluster = Cluster(elr=True)
    minimum = {"a": 1, "b": 3, "c": 1, "d": 3, "e": 1}
    for name, value in minimum.items():
        cluster.topic(name, [placed((1, 0, 2))])
        if value != 1:
            cluster.configure(name, MIN_ISR, str(value))
    cluster.fence(0)
    eligible = {name: cluster.partition(name).eligible_leader_replicas for name in minimum}
    assert eligible == {name: (0,) if value == 3 else () for name, value in minimum.items()}


def test_a_stopping_broker_is_nobodys_leader() -> None:
    """CTL-131, CTL-78: brokers in controlled shutdown are passed over, and leave the ISR."""
    cluster = Cluster()
    cluster.topic("orders", [placed((0, 1, 2))])
    context = cluster.context
    for broker_id in (1, 0):
        changes = changes_needed(
            context,
            removing=broker_id,
            partitions=context.partitions.with_isr_member(broker_id),
        )
        cluster.happen(cluster.change_broker(broker_id, in_controlled_shutdown=True), *changes)
    assert shape(cluster.partition("orders"))[:2] == (2, (2,))
    cluster.configure("orders", UNCLEAN, "true")
    cluster.fence(2)
    assert shape(cluster.partition("orders"))[:2] == (-1, (2,))


def test_a_broker_that_stopped_uncleanly_has_nothing() -> None:
    """KRF-119: it leaves ISR and ELR, and is no leader even where anybody would do."""
    cluster = Cluster(elr=True)
    cluster.configure("", MIN_ISR, "3")
    cluster.topic("follows", [placed((1, 0, 2))])
    cluster.topic("leads", [placed((0, 1, 2))])
    cluster.topic("was-alone", [placed((0, 3))])
    for broker_id in (3, 0):
        cluster.fence(broker_id)
    assert cluster.partition("follows").eligible_leader_replicas == (0,)
    assert cluster.partition("was-alone").eligible_leader_replicas == (0, 3)
    context = cluster.context
    changes = changes_needed(
        context, uncleanly_stopped=0, partitions=context.partitions.partitions_on(0)
    )
    cluster.happen(*changes)
    for name, eligible in (("follows", ()), ("leads", ()), ("was-alone", (3,))):
        assert cluster.partition(name).eligible_leader_replicas == eligible
        assert 0 not in cluster.partition(name).isr
    assert cluster.partition("was-alone").last_known_elr == (0,)
    # Somebody else may have everything, so that the last leader doesn't come back by itself.
    assert cluster.unfence(0) == ()
    cluster.unfence(3)
    assert cluster.partition("was-alone").leader == 3


def test_a_restarted_broker_is_judged_by_what_it_lost() -> None:
    """An unfenced broker that stopped uncleanly is neither in sync nor elected in its place."""
    cluster = Cluster(elr=True)
    cluster.topic("orders", [placed((0, 1))])
    context = cluster.context
    changes = changes_needed(
        context, uncleanly_stopped=0, partitions=context.partitions.partitions_on(0)
    )
    assert changes == (r.PartitionChangeRecord(0, topic_id("orders"), isr=(1,), leader=1),)


def test_a_failed_directory_takes_only_its_partitions() -> None:
    """KRF-115, CTL-71: leaders move off it, followers leave the ISR, the rest stays."""
    cluster = Cluster(3, directories=2)
    cluster.topic("orders", [placed((0, 1)), placed((1, 0)), placed((0, 1))])
    bad, good = directory(0, 0), directory(0, 1)
    for number, where in enumerate((bad, bad, good)):
        replicas = cluster.partition("orders", number).replicas
        cluster.happen(
            r.PartitionChangeRecord(
                number,
                topic_id("orders"),
                directories=tuple(where if each == 0 else directory(each) for each in replicas),
            )
        )
    context = cluster.context
    on_bad = [
        (topic, partition)
        for topic, partition in context.partitions.partitions_on(0)
        if partition.directory_of(0) == bad
    ]
    changes = changes_needed(context, removing=0, partitions=on_bad)
    cluster.happen(*changes, cluster.change_broker(0, log_dirs=(good,)))
    assert [cluster.partition("orders", n).leader for n in range(3)] == [1, 1, 0]
    assert [cluster.partition("orders", n).isr for n in range(3)] == [(1,), (1,), (0, 1)]
    # Nor does it come back when others go, though the broker is alive.
    cluster.configure("orders", UNCLEAN, "true")
    cluster.fence(1)
    assert [cluster.partition("orders", n).leader for n in range(3)] == [-1, -1, 0]


def test_a_newcomer_leads_only_from_a_good_directory() -> None:
    """15.1: LOST isn't online, and neither is a directory that the broker no longer has."""
    cluster = Cluster(3, directories=2)
    cluster.topic("orders", [placed((0,)), placed((0,)), placed((0,)), placed((0,))])
    places = (r.DIRECTORY_LOST, directory(0, 7), r.DIRECTORY_UNASSIGNED, directory(0, 1))
    for number, where in enumerate(places):
        cluster.happen(r.PartitionChangeRecord(number, topic_id("orders"), directories=(where,)))
    cluster.fence(0)
    changed = [change.partition_id for change in cluster.unfence(0)]
    assert changed == [2, 3]


def test_a_partition_that_never_led_is_initialised() -> None:
    """CTL-119, CTL-120: whoever is there begins, in the order of the replicas; nobody: it waits."""
    cluster = Cluster(4)
    for broker_id in (0, 1, 2, 3):
        cluster.fence(broker_id)
    never = r.PartitionRecord(0, topic_id("orders"), (0, 1, 2), (0,))
    cluster.happen(r.TopicRecord("orders", topic_id("orders")), never)
    states = cluster.context.partition_states
    assert states.state(topic_id("orders"), 0) is PartitionState.NEW
    assert cluster.unfence(3) == ()
    assert states.state(topic_id("orders"), 0) is PartitionState.NEW
    cluster.happen(cluster.change_broker(2, fenced=-1))
    assert cluster.unfence(1) == (
        r.PartitionChangeRecord(0, topic_id("orders"), isr=(1, 2), leader=1),
    )
    assert states.state(topic_id("orders"), 0) is PartitionState.ONLINE
    # What it has already is not written again.
    alone = r.PartitionRecord(0, topic_id("alone"), (1, 0), (1,))
    cluster.happen(r.TopicRecord("alone", topic_id("alone")), alone)
    waiting = cluster.context.partition_states.to_bring_online()
    assert changes_needed(cluster.context, partitions=waiting) == (
        r.PartitionChangeRecord(0, topic_id("alone"), leader=1),
    )


def test_a_reassignment_goes_on_when_a_broker_dies() -> None:
    """CTL-137: the changes that a death makes can end a move, as any other change."""
    cluster = Cluster()
    cluster.topic("orders", [placed((0, 1, 2), (0, 1))])
    moving = r.PartitionChangeRecord(
        0, topic_id("orders"), replicas=(0, 1, 2), removing_replicas=(2,)
    )
    cluster.happen(moving)
    cluster.topic("other", [placed((2, 0))])
    cluster.happen(
        r.PartitionChangeRecord(
            0,
            topic_id("other"),
            replicas=(0, 3, 2),
            isr=(2, 0, 3),
            adding_replicas=(3,),
            removing_replicas=(2,),
        )
    )
    cluster.fence(2)
    assert cluster.partition("orders").replicas == (0, 1, 2)
    moved = cluster.partition("other")
    assert (moved.replicas, moved.isr, moved.leader) == ((0, 3), (0, 3), 0)
    assert (moved.adding_replicas, moved.removing_replicas) == ((), ())


def test_going_back_undoes_an_election() -> None:
    """KRF-100, CTL-36: what was not committed is decided anew, from what was."""
    cluster = Cluster()
    cluster.topic("orders", [placed((0, 1, 2))])
    context = cluster.context

    def changes_without(broker_id: int) -> tuple[r.PartitionChangeRecord, ...]:
        partitions = context.partitions.with_isr_member(broker_id)
        return changes_needed(context, removing=broker_id, partitions=partitions)

    first = changes_without(0)
    cluster.append(*first, cluster.change_broker(0, fenced=1))
    assert [change.leader for change in changes_without(1)] == [2]
    context.revert()
    assert [change.leader for change in changes_without(1)] == [r.LEADER_UNCHANGED]
    assert changes_without(0) == first
