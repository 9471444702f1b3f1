"""Fencing by silence and by evidence, across failovers, and what must hold of partitions always."""

from __future__ import annotations

import pytest
from broker_cluster import SESSION_MS, TOPIC, BrokerCluster, directory, registration
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.replica_states import ReplicaState
from kraftpy.metadata.controller.result import ControllerError


def test_one_broker_at_a_time_the_oldest_contact_first() -> None:
    """CTL-55, CTL-56, KRF-111: and the next one's partitions go to nobody who is fenced."""
    cluster = BrokerCluster()
    cluster.start(1, 2, 3)
    cluster.topic([1, 2, 3], [2, 3, 1])
    for broker_id in (2, 1, 3):
        cluster.now_ms += 10
        cluster.beat(broker_id)
    last_contact_ms = cluster.now_ms
    cluster.now_ms += SESSION_MS
    order = []
    while True:
        result = cluster.control.fence_stale(cluster.now_ms)
        if not result.records:
            break
        fence = result.records[-1]
        assert isinstance(fence, r.BrokerRegistrationChangeRecord)
        order.append(fence.broker_id)
        assert cluster.carry_out(result) is (len(order) == 1)
    assert order == [2, 1]
    assert cluster.leaders() == [3, 3]
    while cluster.table.oldest_expired(cluster.now_ms) is None:
        cluster.now_ms = cluster.table.next_expiry_ms() or 0
    assert cluster.now_ms == last_contact_ms + SESSION_MS + 1
    cluster.carry_out(cluster.control.fence_stale(cluster.now_ms))
    assert cluster.leaders() == [-1, -1]
    assert cluster.in_sync() == [(3,), (3,)]


def test_fenced_brokers_that_fall_silent_are_not_fenced_again() -> None:
    """Their sessions end, and do not hide those behind them."""
    cluster = BrokerCluster()
    for broker_id in (1, 2):
        cluster.register(broker_id)
    cluster.start(3)
    cluster.now_ms += SESSION_MS + 1
    result = cluster.control.fence_stale(cluster.now_ms)
    epoch = cluster.broker(3).broker_epoch
    assert result.records == (r.BrokerRegistrationChangeRecord(3, epoch, 1),)
    assert result.answer is False
    assert cluster.table.next_expiry_ms() is None


def test_contact_counts_on_arrival() -> None:
    """KRF-111: the heartbeat still queues when the session would have ended."""
    cluster = BrokerCluster()
    cluster.start(1)
    cluster.now_ms += SESSION_MS
    cluster.table.touch(1, cluster.broker(1).broker_epoch, cluster.now_ms)
    cluster.now_ms += 1
    assert cluster.control.fence_stale(cluster.now_ms).records == ()


def test_a_silent_follower_leaves_the_live_brokers_too() -> None:
    """CTL-68: although no leader changes."""
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.topic([2, 1])
    cluster.die(1)
    assert cluster.context.live_broker_ids == (2,)
    assert cluster.leaders() == [2]
    assert cluster.context.replica_states.state(TOPIC, 0, 1) is ReplicaState.OFFLINE


def test_fenced_and_back_without_registering_again() -> None:
    """Spec 5.9: a broker that lost its session goes on beating, and serves again."""
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.topic([1, 2])
    cluster.die(1)
    epoch = cluster.broker(1).broker_epoch
    assert not cluster.beat(1).is_fenced
    assert cluster.broker(1).broker_epoch == epoch
    assert cluster.leaders() == [2]
    assert cluster.in_sync() == [(2,)]


def test_the_incident_of_the_controller_on_the_last_broker() -> None:
    """Spec 5.11: A stops, then B with the controller on it; the next one finds B silent."""
    a, b = 1, 2
    for controller_dies_with_b in (False, True):
        cluster = BrokerCluster()
        cluster.start(a, b, 3)
        cluster.topic([a, b])
        cluster.die(a)
        assert cluster.leaders() == [b]
        if controller_dies_with_b:
            cluster.fail_over()
            cluster.now_ms += 300
            cluster.beat(3)
            assert cluster.table.to_probe(cluster.now_ms) == [a, b]
            cluster.table.probed(b, 1, cluster.now_ms)
            assert cluster.table.note_refused(b)
            cluster.carry_out(cluster.control.fence_dead(b))
        else:
            cluster.die(b)
        assert cluster.leaders() == [-1]
        assert cluster.in_sync() == [(b,)]
        cluster.beat(a)
        assert cluster.leaders() == [-1]
        cluster.beat(b)
        assert cluster.leaders() == [b]


def test_a_failover_between_the_batches_of_a_fence() -> None:
    """The broker is still there for the next controller, which fences it again."""
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.topic([1, 2], [1, 2])
    cluster.now_ms += SESSION_MS + 1
    cluster.beat(2)
    result = cluster.control.fence_stale(cluster.now_ms)
    cluster.happen(*result.records[:1])
    cluster.fail_over()
    assert cluster.leaders() == [2, 1]
    cluster.now_ms += SESSION_MS + 1
    cluster.beat(2)
    cluster.carry_out(cluster.control.fence_stale(cluster.now_ms))
    assert cluster.leaders() == [2, 2]
    assert cluster.broker(1).fenced


BROKERS = (1, 2, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("register"),
            st.sampled_from(BROKERS),
            st.tuples(st.integers(1, 3), st.sampled_from([(0, 1), (0, 1), (1,)])),
        ),
        st.tuples(
            st.just("beat"),
            st.sampled_from(BROKERS),
            st.tuples(st.sampled_from([False, False, True]), st.booleans(), st.integers(0, 2)),
        ),
        st.tuples(st.just("beat"), st.sampled_from(BROKERS), st.just((False, False, 0))),
        st.tuples(st.just("wait"), st.sampled_from([100, 4_000, 9_001]), st.none()),
        st.tuples(st.just("sleep"), st.just(9_001), st.none()),
        st.tuples(st.just("die"), st.sampled_from(BROKERS), st.none()),
        st.tuples(st.just("unregister"), st.sampled_from(BROKERS), st.none()),
        st.tuples(st.just("join"), st.sampled_from(BROKERS), st.none()),
        st.tuples(st.just("fail over"), st.none(), st.none()),
    ),
    max_size=40,
)


def check(cluster: BrokerCluster) -> None:
    image = cluster.context.image
    is_elr = cluster.context.is_elr_enabled
    for partition in cluster.context.partitions_for_topic("orders"):
        if partition.leader != r.NO_LEADER:
            leader = image.brokers.get(partition.leader)
            assert leader is not None, partition
            assert not leader.fenced, partition
            assert not leader.in_controlled_shutdown, partition
            assert partition.leader in partition.isr
            assert partition.directory_of(partition.leader) in leader.log_dirs
        for member in partition.isr:
            broker = image.brokers.get(member)
            is_there = broker is not None and not broker.fenced
            # The last one stays, as the only one who can come back with everything.
            assert is_there or (len(partition.isr) == 1 and partition.leader == r.NO_LEADER)
        assert partition.isr or is_elr
    for broker in image.brokers.values():
        # A contact, however long ago: else its silence would never be noticed.
        assert broker.fenced or cluster.table.has_session(broker.broker_id, now_ms=0)


def step(cluster: BrokerCluster, kind: str, what: int | None, how: object) -> None:
    brokers = cluster.context.image.brokers
    if kind == "fail over":
        cluster.fail_over()
    elif what is None:
        raise AssertionError(kind)
    elif kind == "sleep":
        # The controller gets round to nothing.
        cluster.now_ms += what
    elif kind == "wait":
        cluster.now_ms += what
        while cluster.carry_out(cluster.control.fence_stale(cluster.now_ms)):
            pass
    elif kind == "register":
        process, numbers = how  # type: ignore[misc]
        log_dirs = [directory(what, number) for number in numbers]
        request = registration(what, process, log_dirs=log_dirs)
        known = brokers.get(what)
        is_same = known is not None and known.incarnation_id == request.incarnation_id
        has_taken_over = known is not None and bool({*known.log_dirs} & {*log_dirs})
        is_free = is_same or has_taken_over
        if not is_free and cluster.table.has_session(what, cluster.now_ms):
            with pytest.raises(ControllerError, match="DUPLICATE_BROKER_REGISTRATION"):
                cluster.ask(request)
        else:
            cluster.carry_out(cluster.ask(request))
    elif what not in brokers:
        return
    elif kind == "beat":
        want_fence, want_shut_down, lost = how  # type: ignore[misc]
        offline = [directory(what, number) for number in range(lost)]
        answer = cluster.beat(
            what, want_fence=want_fence, want_shut_down=want_shut_down, offline_log_dirs=offline
        )
        assert answer.is_fenced is cluster.broker(what).fenced
        assert answer.is_fenced or not answer.should_shut_down
    elif kind == "die" and cluster.table.has_session(what, cluster.now_ms):
        cluster.die(what)
    elif kind == "unregister":
        cluster.unregister(what)
    elif kind == "join":
        # As AlterPartition does: a replica that has caught up joins the ISR.
        for partition in cluster.context.partitions_for_topic("orders"):
            broker = brokers[what]
            is_online = cluster.context.replica_states.is_online(partition, what)
            if is_online and not broker.fenced and partition.leader not in (r.NO_LEADER, what):
                isr = tuple(sorted({*partition.isr, what}))
                elr = tuple(each for each in partition.eligible_leader_replicas if each != what)
                cluster.happen(
                    r.PartitionChangeRecord(
                        partition.partition_id, TOPIC, isr=isr, eligible_leader_replicas=elr
                    )
                )


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, elr=st.booleans())
def test_no_fenced_broker_leads_or_is_in_sync(
    steps: list[tuple[str, int | None, object]], *, elr: bool
) -> None:
    """Whatever brokers say or don't say, die of or come back from: partitions stay in order."""
    cluster = BrokerCluster(elr=elr)
    cluster.start(1, log_dirs=[directory(1, 0), directory(1, 1)])
    cluster.start(2, log_dirs=[directory(2, 0), directory(2, 1)])
    cluster.start(3, log_dirs=[directory(3, 0), directory(3, 1)])
    cluster.happen(r.ConfigRecord(4, "", "min.insync.replicas", "2"))
    cluster.topic([1, 2, 3], [2, 3], [3], [2, 1])
    for kind, what, how in steps:
        step(cluster, kind, what, how)
        check(cluster)
    cluster.fail_over()
