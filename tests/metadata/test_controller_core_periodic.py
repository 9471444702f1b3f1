"""Periodic tasks, metrics, and what is known of brokers from their connections."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from controller_core_rig import BOOTSTRAP, Create, Fail, Look, Rig, Write, topic
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.effects import ProbeBroker
from kraftpy.metadata.controller.event_queue import ControllerState, EventKind
from kraftpy.metadata.controller.periodic import PeriodicTask
from kraftpy.metadata.controller.result import ControllerResult
from kraftpy.observe.metrics import Histogram, MetricName
from kraftpy.protocol.ids import Uuid
from kraftpy.world import InternalInvariant

START_MS = 1_000
EIGHT = (
    "OfflinePartitionsCount",
    "PreferredReplicaImbalanceCount",
    "GlobalTopicCount",
    "GlobalPartitionCount",
    "TopicsToDeleteCount",
    "ReplicasToDeleteCount",
    "TopicsIneligibleToDeleteCount",
    "ReplicasIneligibleToDeleteCount",
)


def task(
    run: Callable[[int], ControllerResult[bool]],
    interval_ms: int = 100,
    first_delay_ms: int = 50,
) -> PeriodicTask:
    kind = EventKind.AUTO_PREFERRED_REPLICA_LEADER_ELECTION
    return PeriodicTask("task", kind, run, interval_ms, first_delay_ms)


def lead(rig: Rig, epoch: int = 1) -> None:
    rig.lead(epoch)
    rig.run()
    rig.commit()


def broker(broker_id: int, *, fenced: bool = False, listeners: int = 1) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(
        broker_id,
        Uuid(bytes(15) + bytes([broker_id])),
        broker_epoch=10 + broker_id,
        end_points=tuple(
            r.Endpoint(f"L{number}", f"host{broker_id}", 9000 + number, 0)
            for number in range(listeners)
        ),
        fenced=fenced,
    )


# Tasks.


def test_a_task_runs_in_its_interval_while_active_and_never_after() -> None:
    """CTL-9, CTL-2, CTL-138 the timer."""
    times: list[int] = []

    def run(now_ms: int) -> ControllerResult[bool]:
        times.append(now_ms - START_MS)
        return ControllerResult((), False)

    rig = Rig((task(run),))
    rig.run_until(START_MS)
    assert times == []
    lead(rig)
    rig.run_until(START_MS + 400)
    assert times == [50, 150, 250, 350]
    rig.controller.leadership_lost(1, rig.now_ms)
    assert rig.controller.describe().timers == ()
    rig.run_until(START_MS + 1_000)
    assert len(times) == 4


def test_a_task_with_more_to_do_comes_again_soon() -> None:
    """CTL-56, CTL-139: after 10 ms, with others served in between."""
    names = ["1", "2", "3"]
    times: list[int] = []

    def run(now_ms: int) -> ControllerResult[bool]:
        times.append(now_ms - START_MS)
        return ControllerResult((topic(names.pop(0)),) if names else (), bool(names))

    rig = Rig((task(run),))
    lead(rig)
    rig.run_until(START_MS + 200)
    assert times == [50, 60, 70, 170]
    assert rig.names == ["1", "2", "3"]


def test_a_failing_task_is_tried_again_after_five_minutes_and_costs_no_leadership() -> None:
    """CTL-139, section 13 of kraft.md."""
    times: list[int] = []

    def run(now_ms: int) -> ControllerResult[bool]:
        times.append(now_ms - START_MS)
        raise ZeroDivisionError

    rig = Rig((task(run),))
    lead(rig)
    rig.run_until(START_MS + 300_050)
    assert times == [50, 300_050]
    assert rig.controller.is_active
    assert rig.metric("MetadataErrorCount") == 2
    rig.submit(1, Create(("a",)))
    rig.run()
    assert rig.names == ["a"]


def test_a_task_whose_records_contradict_the_image_stops_the_node() -> None:
    """KRF-104."""
    bad = r.RemoveTopicRecord(topic("unknown").topic_id)
    rig = Rig((task(lambda now_ms: ControllerResult((bad,), False)),))
    lead(rig)
    with pytest.raises(InternalInvariant):
        rig.run_until(START_MS + 50)


def test_a_due_task_goes_before_those_who_wait() -> None:
    order: list[str] = []

    def run(now_ms: int) -> ControllerResult[bool]:
        order.append("task")
        return ControllerResult((), False)

    rig = Rig((task(run),))
    lead(rig)
    rig.submit(1, Create(("a",)))
    rig.submit(2, Look())
    rig.now_ms += 50
    rig.poll()
    assert order == ["task"]
    assert rig.ran == []


# Metrics.


def test_counts_are_the_active_controllers_and_zero_after_it() -> None:
    """CTL-1, CTL-9, CTL-25: refreshed after each event, all eight gone on resignation."""
    rig = Rig()
    assert rig.metric("ActiveControllerCount") == 0
    lead(rig)
    rig.submit(
        1,
        Write(
            (
                broker(1),
                broker(2, fenced=True),
                topic("a"),
                r.PartitionRecord(0, topic("a").topic_id, (1, 2), (1,), leader=1),
                r.PartitionRecord(1, topic("a").topic_id, (2, 1), (1,), leader=1),
                r.PartitionRecord(2, topic("a").topic_id, (2,), (2,), leader=-1, leader_epoch=1),
            )
        ),
    )
    rig.submit(2, Write((topic("b"), r.PartitionRecord(0, topic("b").topic_id, (1,), (1,)))))
    rig.submit(3, Write((r.RemoveTopicRecord(topic("b").topic_id),)))
    rig.run()
    expected = {
        "ActiveControllerCount": 1,
        "OfflinePartitionsCount": 1,
        "PreferredReplicaImbalanceCount": 2,
        "GlobalTopicCount": 1,
        "GlobalPartitionCount": 3,
        "TopicsToDeleteCount": 1,
        "ReplicasToDeleteCount": 1,
        "ActiveBrokerCount": 1,
        "FencedBrokerCount": 1,
    }
    assert {name: rig.metric(name) for name in expected} == expected
    assert rig.metric("LastAppliedRecordOffset") == rig.end_offset - 1
    assert rig.metric("LastCommittedRecordOffset") < rig.end_offset - 1
    rig.commit()
    assert rig.metric("LastCommittedRecordOffset") == rig.end_offset - 1
    rig.controller.leadership_lost(1, rig.now_ms)
    zeroed = (*EIGHT, "ActiveControllerCount", "ActiveBrokerCount", "FencedBrokerCount")
    assert {rig.metric(name) for name in zeroed} == {0}
    assert rig.metric("NewActiveControllersCount") == 1


def test_a_standby_knows_how_old_its_newest_record_is() -> None:
    """CTL-150: and the active controller lags behind nobody."""
    rig = Rig()
    rig.append(1, *BOOTSTRAP)
    rig.commit()
    rig.wall_ms += 70
    assert rig.metric("LastAppliedRecordLagMs") == 70
    lead(rig, 2)
    rig.run()
    assert rig.metric("LastAppliedRecordLagMs") == 0


def test_metrics_are_refreshed_after_a_failure_too() -> None:
    """CTL-25."""
    rig = Rig()
    lead(rig)
    rig.submit(1, Fail())
    rig.run()
    assert rig.metric("MetadataErrorCount") == 1
    assert rig.metric("ActiveControllerCount") == 0


def test_the_state_is_the_events_while_it_runs_and_idle_otherwise() -> None:
    """CTL-26, with the number in the metric."""
    seen: list[tuple[ControllerState, float]] = []

    def run(now_ms: int) -> ControllerResult[bool]:
        seen.append((rig.controller.state, rig.metric("ControllerState")))
        return ControllerResult((), False)

    rig = Rig((task(run),))
    lead(rig)
    rig.run_until(START_MS + 50)
    assert seen == [(ControllerState.AUTO_LEADER_BALANCE, 6)]
    assert rig.controller.state is ControllerState.IDLE
    assert rig.metric("ControllerState") == 0


def test_queue_times_and_durations_are_measured() -> None:
    """CTL-29, CTL-150, CTL-28: from being put in to the beginning; each state has its timer."""
    rig = Rig()
    lead(rig)
    queue_time = rig.registry.get(
        MetricName("kafka.controller", "ControllerEventManager", "EventQueueTimeMs")
    )
    assert isinstance(queue_time, Histogram)
    rig.submit(1, Create(("a",)))
    rig.submit(2, Create(("b",)))
    rig.now_ms += 30
    count = queue_time.count
    rig.poll()
    assert rig.metric("EventQueueSize", "ControllerEventManager") == 1
    assert (queue_time.count, queue_time.maximum) == (count + 1, 30)
    timer = rig.registry.get(
        MetricName("kafka.controller", "ControllerStats", "TopicChangeRateAndTimeMs")
    )
    assert isinstance(timer, Histogram)
    before = timer.count
    rig.controller.note_duration(2.5)
    assert (timer.count, timer.maximum) == (before + 1, 2.5)
    rig.run()
    rig.poll()
    rig.controller.note_duration(99)  # Nothing was handled by the last poll.
    assert timer.maximum == 2.5


def test_every_timed_state_has_its_metric() -> None:
    """CTL-28."""
    rig = Rig()
    names = {name.name for name, _ in rig.registry if name.type == "ControllerStats"}
    wanted = {state.timer_name for state in ControllerState if state.timer_name}
    assert names == wanted | {"UncleanLeaderElectionsPerSec"}


def test_the_lag_of_each_broker_is_exported() -> None:
    """CTL-150: how far it is behind what is committed; gone with the broker, or the role."""
    rig = Rig()
    rig.append(1, *BOOTSTRAP, broker(1))
    lead(rig, 2)
    name = MetricName(
        "kafka.controller", "ControllerChannelManager", "QueueSize", (("broker-id", "1"),)
    )
    gauge = rig.registry.get(name)
    assert gauge is not None
    assert rig.context.heartbeats is not None
    rig.context.heartbeats.acknowledge(1, rig.end_offset - 3)
    assert gauge.read() == 2  # type: ignore[union-attr]
    rig.submit(1, Write((r.UnregisterBrokerRecord(1, 11),)))
    rig.run()
    assert rig.registry.get(name) is None


def test_unclean_elections_are_counted_by_the_controller_that_held_them() -> None:
    """CTL-126, the meter."""
    rig = Rig()
    lead(rig)
    meter = rig.registry.get(
        MetricName("kafka.controller", "ControllerStats", "UncleanLeaderElectionsPerSec")
    )
    partition = r.PartitionRecord(0, topic("a").topic_id, (1, 2), (1,), leader_epoch=1)
    rig.submit(1, Write((topic("a"), partition)))
    rig.submit(2, Write((r.PartitionChangeRecord(0, topic("a").topic_id, (2,), leader=2),)))
    rig.run()
    rig.commit()
    assert meter is not None
    assert meter.count == 1  # type: ignore[union-attr]


# Brokers' connections.


def test_contact_counts_when_the_heartbeat_arrives() -> None:
    """KRF-111: however long the queue is."""
    rig = Rig()
    rig.append(1, *BOOTSTRAP, broker(1))
    lead(rig, 2)
    heartbeats = rig.context.heartbeats
    assert heartbeats is not None
    rig.now_ms += 8_000
    rig.controller.note_contact(1, 11, rig.now_ms)
    assert heartbeats.has_session(1, rig.now_ms + 9_000)
    rig.controller.note_contact(1, 99, rig.now_ms + 5_000)  # Somebody else with its id.
    assert not heartbeats.has_session(1, rig.now_ms + 9_001)


def test_a_broker_that_stays_silent_after_a_failover_is_probed() -> None:
    """Decision 14: after 300 ms, at each listener; CTL-57: all had a fresh session before."""
    rig = Rig()
    rig.append(1, *BOOTSTRAP, broker(1, listeners=2), broker(2))
    lead(rig, 2)
    rig.controller.note_contact(2, 12, rig.now_ms + 100)
    rig.run_until(START_MS + 299)
    assert not any(isinstance(effect, ProbeBroker) for effect in rig.effects)
    rig.run_until(START_MS + 300)
    probes = [effect for effect in rig.effects if isinstance(effect, ProbeBroker)]
    assert probes == [ProbeBroker(1, "host1", 9000), ProbeBroker(1, "host1", 9001)]


def test_a_broken_connection_leads_to_a_probe_at_once_and_again() -> None:
    rig = Rig()
    rig.append(1, *BOOTSTRAP, broker(1))
    lead(rig, 2)
    rig.controller.note_contact(1, 11, rig.now_ms)
    rig.run_until(START_MS + 5_000)
    rig.controller.note_contact(1, 11, rig.now_ms)
    rig.controller.note_disconnected(1, rig.now_ms)
    assert ProbeBroker(1, "host1", 9000) in rig.run()
    rig.effects.clear()
    rig.run_until(START_MS + 6_000)
    assert rig.effects.count(ProbeBroker(1, "host1", 9000)) == 2


def test_a_broker_that_stays_silent_is_probed_ever_more_rarely() -> None:
    """Also behind the end of its session, should nobody fence it."""
    rig = Rig()
    rig.append(1, *BOOTSTRAP, broker(1))
    lead(rig, 2)
    counts = []
    for seconds in (1, 2, 4, 9, 10):
        rig.run_until(START_MS + seconds * 1_000)
        counts.append(rig.effects.count(ProbeBroker(1, "host1", 9000)))
    assert counts == [2, 3, 4, 5, 6]


def test_refusal_of_all_listeners_fences_and_one_word_of_the_broker_saves_it() -> None:
    """Decision 14: the two signs together are evidence."""
    fenced: list[int] = []

    def fence_dead(broker_id: int) -> ControllerResult[object]:
        assert rig.context.heartbeats is not None
        if rig.context.heartbeats.is_dead(broker_id):
            fenced.append(broker_id)
        return ControllerResult((), None)

    rig = Rig()
    object.__setattr__(rig.parts, "fence_dead", fence_dead)
    rig.append(1, *BOOTSTRAP, broker(1, listeners=2))
    lead(rig, 2)
    rig.controller.note_refused(1, rig.now_ms)  # Nobody has probed it.
    rig.run()
    rig.run_until(START_MS + 300)
    rig.controller.note_refused(1, rig.now_ms)
    rig.run()
    assert fenced == []
    rig.controller.note_refused(1, rig.now_ms)
    rig.controller.note_contact(1, 11, rig.now_ms)
    rig.run()
    assert fenced == []
    rig.controller.note_disconnected(1, rig.now_ms)
    rig.run()
    for _ in range(2):
        rig.controller.note_refused(1, rig.now_ms)
    rig.run()
    assert fenced == [1]


def test_evidence_is_nobodys_business_on_a_standby() -> None:
    rig = Rig()
    rig.append(1, *BOOTSTRAP, broker(1))
    rig.commit()
    rig.controller.note_contact(1, 11, rig.now_ms)
    rig.controller.note_disconnected(1, rig.now_ms)
    rig.controller.note_refused(1, rig.now_ms)
    rig.controller.note_reachable(1)
    assert rig.run() == []


# Any order of things.

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(0, 5)),
        st.just(("look",)),
        st.just(("poll",)),
        st.tuples(st.just("commit"), st.integers(1, 3)),
        st.just(("lose",)),
        st.just(("refuse",)),
        st.just(("fail",)),
        st.just(("lead",)),
        st.just(("other",)),
    ),
    min_size=15,
    max_size=60,
)


@given(STEPS)
def test_any_interleaving_keeps_memory_and_answers_true(steps: list[tuple[object, ...]]) -> None:
    """KRF-98, KRF-99, KRF-100, CTL-10, CTL-15, CTL-36.

    Without pending writes the image is the fold of the committed log; each request ends once;
    answers of writes come in the order of the log, and say only what is committed.
    """
    rig = Rig()
    epoch = 1
    rig.lead(epoch)
    submitted = 0
    for step in steps:
        match step:
            case ("create", int(number)):
                submitted += 1
                rig.submit(submitted, Create((f"t{number}",)))
            case ("look",):
                submitted += 1
                rig.submit(submitted, Look())
            case ("fail",):
                submitted += 1
                rig.submit(submitted, Fail())
            case ("poll",):
                _poll_and_check(rig)
            case ("commit", int(count)):
                rig.commit(count)
            case ("lose",):
                rig.controller.leadership_lost(epoch, rig.now_ms)
                assert rig.context.image == rig.context.stable == rig.fold()
            case ("refuse",):
                rig.refuses_appends = True
                _poll_and_check(rig)
                rig.refuses_appends = False
            case ("lead",):
                if not rig.controller.is_active:
                    epoch += 1
                    rig.lead(epoch)
            case _:
                # Another controller's record takes the place of what was not committed.
                epoch += 1
                rig.controller.leader_changed(epoch, 2, rig.now_ms)
                rig.truncate()
                rig.append(epoch, topic(f"other{epoch}"))
                rig.commit()
                assert rig.context.image == rig.fold()
    rig.run()
    rig.commit()
    rig.run()
    assert rig.context.image == rig.context.stable == rig.fold()
    ended = [*rig.answers, *rig.refusals]
    assert sorted(number for number, _ in ended) == list(range(1, submitted + 1))
    numbers = [number for number, _ in rig.answers]
    assert numbers == sorted(numbers)


def _poll_and_check(rig: Rig) -> None:
    """Whatever an answer says must be committed when it leaves."""
    before = len(rig.answers)
    rig.poll()
    for _, names in rig.answers[before:]:
        assert isinstance(names, tuple)
        assert set(names) <= set(rig.fold().topics)
