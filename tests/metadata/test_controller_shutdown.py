"""Controlled shutdown: leaderships are handed over, all learn of it, then the broker stops."""

from __future__ import annotations

from broker_cluster import SESSION_MS, TOPIC, BrokerCluster

from kraftpy.metadata import records as r


def three_brokers() -> BrokerCluster:
    cluster = BrokerCluster()
    cluster.start(1, 2, 3)
    cluster.topic([1, 2, 3], [2, 1, 3], [3, 2], [1])
    return cluster


def test_leaderships_move_and_isrs_shrink() -> None:
    """CTL-76, CTL-77, CTL-79: the flag first, then the partitions."""
    cluster = three_brokers()
    result = cluster.ask_beat(1, want_shut_down=True)
    epoch = cluster.broker(1).broker_epoch
    assert result.records == (
        r.BrokerRegistrationChangeRecord(1, epoch, in_controlled_shutdown=True),
        r.PartitionChangeRecord(0, TOPIC, isr=(2, 3), leader=2),
        r.PartitionChangeRecord(1, TOPIC, isr=(2, 3)),
        r.PartitionChangeRecord(3, TOPIC, leader=-1),
    )
    answer = cluster.carry_out(result)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    assert cluster.leaders() == [2, 2, 3, -1]
    assert cluster.in_sync() == [(2, 3), (2, 3), (3, 2), (1,)]
    assert cluster.context.shutting_down_broker_ids == (1,)


def test_it_ends_when_all_others_have_replayed_the_last_record() -> None:
    """CTL-81, KRF-113: one of them one record short is not enough."""
    cluster = three_brokers()
    cluster.beat(1, want_shut_down=True)
    last = cluster.next_offset - 1
    cluster.happen(r.NoOpRecord())
    cluster.beat(2, last)
    cluster.beat(3, last - 1)
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.beat(3, last)
    result = cluster.ask_beat(1, want_shut_down=True)
    epoch = cluster.broker(1).broker_epoch
    assert result.records == (r.BrokerRegistrationChangeRecord(1, epoch, 1),)
    answer = cluster.carry_out(result)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert cluster.broker(1).fenced


def test_fenced_brokers_are_not_waited_for() -> None:
    """CTL-81: active are those who are neither."""
    cluster = three_brokers()
    cluster.beat(1, want_shut_down=True)
    cluster.beat(2, want_shut_down=True)
    assert cluster.context.live_broker_ids == (3,)
    cluster.happen(r.NoOpRecord())
    cluster.beat(3)
    assert cluster.beat(2, 0, want_shut_down=True).should_shut_down
    cluster.register(2, process=2)
    cluster.beat(3, 0, want_fence=True)
    assert cluster.beat(1, 0, want_shut_down=True).should_shut_down


def test_two_that_stop_do_not_wait_for_each_other() -> None:
    """CTL-81: neither has replayed the other's shutdown."""
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.topic([1], [2])
    assert not cluster.beat(1, 0, want_shut_down=True).should_shut_down
    assert not cluster.beat(2, 0, want_shut_down=True).should_shut_down
    assert cluster.beat(1, 0, want_shut_down=True).should_shut_down
    assert cluster.beat(2, 0, want_shut_down=True).should_shut_down


def test_who_leads_nothing_stops_at_once() -> None:
    """KRF-110: it leaves the ISRs that it is in, and is fenced."""
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.topic([2, 1])
    answer = cluster.beat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert cluster.in_sync() == [(2,)]


def test_the_last_broker_can_stop() -> None:
    """CTL-79: nobody takes over, and nobody has to know."""
    cluster = BrokerCluster()
    cluster.start(1)
    cluster.topic([1])
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    assert cluster.leaders() == [-1]
    assert cluster.beat(1, want_shut_down=True).should_shut_down
    assert cluster.in_sync() == [(1,)]


def test_the_next_process_need_not_wait() -> None:
    """A broker that was let go is restarted at once."""
    cluster = three_brokers()
    cluster.beat(1, want_shut_down=True)
    for broker_id in (2, 3):
        cluster.beat(broker_id)
    assert cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.register(1, process=2, previous_broker_epoch=cluster.broker(1).broker_epoch)
    assert not cluster.broker(1).in_controlled_shutdown
    cluster.beat(1)
    assert cluster.leaders() == [2, 2, 3, 1]


def test_who_is_stopping_gets_no_leadership() -> None:
    """CTL-78: not even what it could take over as the last one."""
    cluster = three_brokers()
    cluster.beat(1, want_shut_down=True)
    cluster.die(2)
    cluster.die(3)
    assert cluster.leaders() == [-1, -1, -1, -1]
    cluster.beat(1, want_shut_down=False, offset=0)
    assert cluster.leaders() == [-1, -1, -1, -1]


def test_unfencing_does_not_end_a_shutdown() -> None:
    """CTL-78: a broker that lost its session on the way, and then beats without wishes."""
    cluster = three_brokers()
    cluster.beat(1, want_shut_down=True)
    cluster.die(1)
    assert cluster.context.shutting_down_broker_ids == ()  # CTL-67
    result = cluster.ask_beat(1)
    epoch = cluster.broker(1).broker_epoch
    assert result.records == (r.BrokerRegistrationChangeRecord(1, epoch, -1),)
    cluster.carry_out(result)
    assert cluster.broker(1).in_controlled_shutdown
    assert cluster.leaders() == [2, 2, 3, -1]


def test_a_broker_that_dies_while_it_stops() -> None:
    """CTL-67: it is fenced like any other."""
    cluster = three_brokers()
    cluster.beat(1, want_shut_down=True)
    cluster.now_ms += SESSION_MS + 1
    for broker_id in (2, 3):
        cluster.beat(broker_id)
    cluster.carry_out(cluster.control.fence_stale(cluster.now_ms))
    assert cluster.broker(1).fenced
    assert cluster.context.shutting_down_broker_ids == ()
    assert cluster.beat(1, want_shut_down=True).should_shut_down


def test_a_failover_on_the_way() -> None:
    """CTL-81: the next controller does not know who has replayed what, and waits for all again."""
    cluster = three_brokers()
    cluster.beat(1, want_shut_down=True)
    cluster.fail_over()
    for _ in range(3):
        assert not cluster.beat(1, want_shut_down=True).should_shut_down
        cluster.beat(2)
    cluster.beat(3, cluster.next_offset - 2)
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.beat(3)
    assert cluster.beat(1, want_shut_down=True).should_shut_down


def test_a_failover_in_the_middle_of_the_records() -> None:
    """CTL-80: what was not moved yet is moved by the next controller, and must be known, too."""
    cluster = three_brokers()
    result = cluster.ask_beat(1, want_shut_down=True)
    assert not result.is_atomic
    cluster.happen(*result.records[:2])
    cluster.fail_over()
    assert cluster.leaders() == [2, 2, 3, 1]
    for broker_id in (2, 3):
        cluster.beat(broker_id)
    result = cluster.ask_beat(1, want_shut_down=True)
    assert r.PartitionChangeRecord(3, TOPIC, leader=-1) in result.records
    assert not cluster.carry_out(result).should_shut_down
    assert cluster.leaders() == [2, 2, 3, -1]
    last = cluster.next_offset - 1
    cluster.beat(2, last)
    assert not cluster.beat(1, want_shut_down=True).should_shut_down
    cluster.beat(3, last)
    assert cluster.beat(1, want_shut_down=True).should_shut_down


def test_the_controllers_own_broker_stops_like_any_other() -> None:
    """CTL-82: the controller's node id means nothing to it."""
    cluster = BrokerCluster()
    cluster.start(100, 2)
    cluster.topic([100, 2])
    assert not cluster.beat(100, want_shut_down=True).should_shut_down
    cluster.beat(2)
    assert cluster.beat(100, want_shut_down=True).should_shut_down
    assert cluster.leaders() == [2]


def test_a_stopping_broker_is_told_every_time_until_it_stops() -> None:
    """CTL-84: an answer that is lost is given again; a forced stop is an expired session."""
    cluster = BrokerCluster()
    cluster.start(1)
    for _ in range(3):
        assert cluster.beat(1, want_shut_down=True).should_shut_down
    assert cluster.log.count(cluster.log[-1]) == 1
