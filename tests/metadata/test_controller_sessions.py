"""The heartbeat table: sessions by contact, offsets, and evidence of death."""

from __future__ import annotations

from broker_cluster import CALLER, SESSION_MS, BrokerCluster, registration

from kraftpy.metadata.controller.heartbeat_table import HeartbeatTable
from kraftpy.metadata.controller.suspicions import Suspicions
from kraftpy.protocol.schema.k62_broker_registration import Listener


def table_with(*broker_ids: int) -> HeartbeatTable:
    table = HeartbeatTable(SESSION_MS, 300)
    for broker_id in broker_ids:
        table.register(broker_id, 50 + broker_id, 60 + broker_id, 1_000)
    return table


def test_a_session_ends_after_its_timeout_and_not_before() -> None:
    """CTL-55: silence of the whole timeout is still in time, a millisecond more isn't."""
    table = table_with(1)
    assert table.has_session(1, 1_000 + SESSION_MS)
    assert table.oldest_expired(1_000 + SESSION_MS) is None
    assert not table.has_session(1, 1_001 + SESSION_MS)
    assert table.oldest_expired(1_001 + SESSION_MS) == 1
    assert table.next_expiry_ms() == 1_001 + SESSION_MS


def test_who_asks_when_told_to_hears_of_an_end_in_its_millisecond() -> None:
    """PUR-1: sessions are timers on a wheel, which may ring before, a few times, but never late."""
    table = table_with(1, 2)
    for contact_ms in range(2_000, 60_000, 1_777):
        table.touch(1, 51, contact_ms)
        table.touch(2, 52, contact_ms + 1)
    ends = []
    ring_count = 0
    while (now_ms := table.next_expiry_ms()) is not None:
        ring_count += 1
        assert ring_count < 20
        if (broker_id := table.oldest_expired(now_ms)) is not None:
            ends.append((broker_id, now_ms - contact_ms))
            table.end_session(broker_id)
    assert ends == [(1, SESSION_MS + 1), (2, SESSION_MS + 2)]


def test_a_registration_anew_leaves_no_timer_of_the_old_one() -> None:
    table = table_with(1)
    table.register(1, 99, 100, 5_000)
    assert table.oldest_expired(5_000 + SESSION_MS) is None
    assert table.oldest_expired(5_001 + SESSION_MS) == 1
    table.remove(1)
    assert table.oldest_expired(6_000 + SESSION_MS) is None
    assert table.next_expiry_ms() is None


def test_who_is_heard_after_the_end_of_its_session_has_one_again() -> None:
    table = table_with(1)
    assert table.oldest_expired(1_001 + SESSION_MS) == 1
    table.touch(1, 51, 1_002 + SESSION_MS)
    assert table.oldest_expired(1_002 + SESSION_MS) is None
    assert table.has_session(1, 1_002 + 2 * SESSION_MS)


def test_the_broker_that_was_silent_for_longest_comes_first() -> None:
    """CTL-56"""
    table = table_with(1, 2, 3)
    table.touch(1, 51, 2_000)
    table.touch(3, 53, 3_000)
    late = 4_000 + SESSION_MS
    order = []
    while (broker_id := table.oldest_expired(late)) is not None:
        order.append(broker_id)
        table.end_session(broker_id)
    assert order == [2, 1, 3]
    assert table.next_expiry_ms() is None


def test_only_the_registered_process_keeps_the_session_alive() -> None:
    """CTL-54: a heartbeat with another epoch is somebody else's."""
    table = table_with(1)
    table.touch(1, 50, 5_000)
    table.touch(1, 52, 5_000)
    table.touch(2, 52, 5_000)
    assert not table.has_session(1, 5_000 + SESSION_MS)
    assert not table.has_session(2, 5_000)
    table.touch(1, 51, 5_000)
    assert table.has_session(1, 5_000 + SESSION_MS)


def test_replayed_offsets_never_go_back_but_begin_anew_with_a_process() -> None:
    table = table_with(1)
    table.acknowledge(1, 60)
    assert not table.is_caught_up(1)
    table.acknowledge(1, 61)
    table.acknowledge(1, 5)
    assert table.is_caught_up(1)
    table.register(1, 51, 70, 1_000)
    assert table.metadata_offset(1) == 61
    assert not table.is_caught_up(1)
    table.register(1, 80, 80, 1_000)
    assert table.metadata_offset(1) == -1


def test_a_new_leadership_gives_everybody_a_fresh_session() -> None:
    """CTL-57, KRF-112: whoever was silent before, nobody is fenced right after a failover."""
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.register(3)
    cluster.now_ms += 10 * SESSION_MS
    cluster.fail_over()
    assert all(cluster.table.has_session(each, cluster.now_ms) for each in (1, 2, 3))
    cluster.now_ms += SESSION_MS
    assert cluster.control.fence_stale(cluster.now_ms).records == ()
    assert not cluster.broker(1).fenced
    cluster.now_ms += 1
    assert cluster.carry_out(cluster.control.fence_stale(cluster.now_ms))
    assert cluster.broker(1).fenced


# Evidence: decision 14.


def test_a_broken_connection_alone_proves_nothing() -> None:
    """It makes the broker be looked for, at once."""
    table = table_with(1, 2)
    assert table.to_probe(1_500) == []
    table.note_disconnected(1, 1_500)
    assert table.next_probe_ms() == 1_500
    assert table.to_probe(1_500) == [1]
    assert not table.is_dead(1)
    assert table.has_session(1, 1_500)


def test_refusal_alone_proves_nothing() -> None:
    """Nobody asked: the broker's connection is whole."""
    table = table_with(1)
    assert not table.note_refused(1)
    table.note_disconnected(1, 1_500)
    assert not table.note_refused(1)
    assert not table.is_dead(1)


def test_a_broken_connection_and_a_refusal_are_a_death() -> None:
    table = table_with(1)
    table.note_disconnected(1, 1_500)
    table.probed(1, 1, 1_500)
    assert table.note_refused(1)
    assert table.is_dead(1)
    assert not table.note_refused(1)
    assert table.is_dead(1)


def test_the_end_of_a_session_is_the_end_of_its_suspicions() -> None:
    """The next process is not taken for dead because the last one was."""
    table = table_with(1)
    table.note_disconnected(1, 1_500)
    table.probed(1, 1, 1_500)
    assert table.note_refused(1)
    table.end_session(1)
    assert not table.is_dead(1)
    assert table.to_probe(10**9) == []


def test_every_listener_must_refuse() -> None:
    """An address meant for clients may be nobody's where the controller is."""
    table = table_with(1)
    table.note_disconnected(1, 1_500)
    table.probed(1, 2, 1_500)
    assert not table.note_refused(1)
    assert not table.is_dead(1)
    table.probed(1, 2, 1_800)
    assert not table.note_refused(1)
    assert table.note_refused(1)


def test_a_broker_without_listeners_is_judged_by_its_session() -> None:
    table = table_with(1)
    table.note_disconnected(1, 1_500)
    table.probed(1, 0, 1_500)
    assert not table.note_refused(1)


def test_a_contact_takes_all_suspicion_away() -> None:
    """Also from a broker that was found dead and not yet fenced."""
    table = table_with(1)
    table.note_disconnected(1, 1_500)
    table.probed(1, 1, 1_500)
    table.touch(1, 51, 1_600)
    assert not table.note_refused(1)
    table.note_disconnected(1, 1_700)
    table.probed(1, 1, 1_700)
    assert table.note_refused(1)
    table.touch(1, 51, 1_800)
    assert not table.is_dead(1)
    assert table.to_probe(10**9) == []


def test_a_suspect_is_tried_again_after_twice_as_long_each_time() -> None:
    """A dying process may accept connections after its own have broken."""
    suspicions = Suspicions(300)
    suspicions.suspect(1, 1_000)
    times = []
    for now_ms in range(1_000, 10_000):
        for broker_id in suspicions.due(now_ms):
            suspicions.probed(broker_id, 1, now_ms)
            times.append(now_ms)
    assert times == [1_000, 1_300, 1_900, 3_100, 5_500]


def test_a_broker_without_a_session_is_not_looked_for() -> None:
    table = table_with(1)
    table.end_session(1)
    table.note_disconnected(1, 2_000)
    table.note_disconnected(7, 2_000)
    assert table.to_probe(2_000) == []
    assert table.next_probe_ms() is None
    assert table.next_expiry_ms() is None


def test_a_new_controller_looks_for_the_silent_after_300_ms() -> None:
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.fail_over()
    assert cluster.table.to_probe(cluster.now_ms + 299) == []
    assert cluster.table.next_probe_ms() == cluster.now_ms + 300
    cluster.now_ms += 299
    cluster.beat(2)
    cluster.now_ms += 1
    assert cluster.table.to_probe(cluster.now_ms) == [1]


def test_a_dead_broker_is_fenced_and_its_next_process_registers_at_once() -> None:
    """CTL-50: nobody waits for the end of a session whose process is known to be gone."""
    cluster = BrokerCluster()
    listeners = [Listener(name=name, host="h", port=9092) for name in ("A", "B")]
    cluster.start(1, listeners=listeners)
    cluster.start(2)
    cluster.topic([1, 2], [2, 1])
    cluster.die(1)
    assert cluster.broker(1).fenced
    assert cluster.leaders() == [2, 2]
    assert cluster.in_sync() == [(2,), (2,)]
    old = cluster.broker(1).broker_epoch
    assert cluster.register(1, process=2) > old
    assert not cluster.beat(1).is_fenced


def test_a_broker_that_speaks_again_before_it_is_fenced_stays() -> None:
    cluster = BrokerCluster()
    cluster.start(1)
    cluster.table.note_disconnected(1, cluster.now_ms)
    cluster.table.probed(1, 1, cluster.now_ms)
    assert cluster.table.note_refused(1)
    cluster.table.touch(1, cluster.broker(1).broker_epoch, cluster.now_ms)
    assert cluster.control.fence_dead(1).records == ()
    assert cluster.table.has_session(1, cluster.now_ms)


def test_a_heartbeat_in_the_queue_does_not_hide_a_death_behind_it() -> None:
    """It was heard on arrival; the connection broke after that, while it waited."""
    cluster = BrokerCluster()
    cluster.start(1)
    request = cluster.request(1)
    cluster.table.touch(1, request.broker_epoch, cluster.now_ms)
    cluster.table.note_disconnected(1, cluster.now_ms)
    cluster.control.heartbeat(request, CALLER, cluster.now_ms, cluster.next_offset)
    assert cluster.table.to_probe(cluster.now_ms) == [1]


def test_a_dead_fenced_broker_only_loses_its_session() -> None:
    cluster = BrokerCluster()
    cluster.register(1)
    log = list(cluster.log)
    cluster.die(1)
    assert cluster.log == log
    cluster.ask(registration(1, process=2))
