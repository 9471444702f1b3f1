"""The controller's queue: order, deferral, deadlines, and at most once."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.metadata.controller.event_queue import (
    ControllerState,
    Event,
    EventKind,
    EventQueue,
    QueuedEvent,
)
from kraftpy.metadata.controller.result import ControllerError
from kraftpy.protocol.errors import ErrorCode

NOT_CONTROLLER = ControllerError(ErrorCode.NOT_CONTROLLER)


class Journal:
    """Makes events that write down what became of them."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.refused: list[tuple[str, ErrorCode]] = []

    def event(self, name: str) -> Event:
        return Event(name, None, partial(self._run, name), partial(self._refuse, name))

    def _run(self, name: str, now_ms: int) -> None:
        self.ran.append(name)

    def _refuse(self, name: str, error: ControllerError) -> None:
        self.refused.append((name, error.code))

    def drain(self, queue: EventQueue, now_ms: int) -> None:
        while (queued := queue.take(now_ms)) is not None:
            queued.process(now_ms)


def test_ordinary_events_come_in_order_and_an_empty_queue_wakes_nobody() -> None:
    """CTL-18."""
    journal, queue = Journal(), EventQueue()
    assert (queue.take(0), queue.next_due_ms(), queue.size) == (None, None, 0)
    for number in range(5):
        queue.append(journal.event(str(number)), number)
    assert (queue.size, queue.next_due_ms()) == (5, 0)
    journal.drain(queue, 9)
    assert journal.ran == ["0", "1", "2", "3", "4"]
    assert queue.next_due_ms() is None


def test_a_prepended_event_goes_first() -> None:
    """KRF-102: the activation runs before whoever waits."""
    journal, queue = Journal(), EventQueue()
    queue.append(journal.event("request"), 0)
    queue.prepend(journal.event("activation"), 1)
    journal.drain(queue, 2)
    assert journal.ran == ["activation", "request"]


def test_processing_or_refusing_twice_does_nothing() -> None:
    """CTL-19."""
    journal = Journal()
    queued = QueuedEvent(journal.event("once"), 0, None)
    queued.process(0)
    queued.process(0)
    queued.preempt(NOT_CONTROLLER)
    assert (journal.ran, journal.refused) == (["once"], [])
    queued = QueuedEvent(journal.event("never"), 0, None)
    queued.preempt(NOT_CONTROLLER)
    queued.preempt(NOT_CONTROLLER)
    queued.process(0)
    assert (journal.ran, journal.refused) == (["once"], [("never", ErrorCode.NOT_CONTROLLER)])


def test_processing_has_started_when_the_handler_begins() -> None:
    """CTL-20: the sign is there during the handler, and never for a refused event."""
    seen: list[bool] = []
    queued = QueuedEvent(Event("x", None, lambda _: seen.append(queued.has_started)), 0, None)
    assert not queued.has_started
    queued.process(0)
    assert seen == [True]
    refused = QueuedEvent(Journal().event("y"), 0, None)
    refused.preempt(NOT_CONTROLLER)
    assert not refused.has_started


def test_a_due_deferred_event_goes_before_ordinary_ones_and_not_a_moment_earlier() -> None:
    journal, queue = Journal(), EventQueue()
    queue.defer("b", journal.event("later"), 20)
    queue.defer("a", journal.event("sooner"), 10)
    assert queue.next_due_ms() == 10
    queue.append(journal.event("ordinary"), 5)
    first = queue.take(9)
    assert first is not None
    assert first.event.name == "ordinary"
    assert queue.take(9) is None
    queue.append(journal.event("ordinary"), 10)
    journal.drain(queue, 30)
    assert journal.ran == ["sooner", "later", "ordinary"]


def test_there_is_one_deferred_event_for_each_tag() -> None:
    """It can be moved earlier, never later, and cancelled."""
    journal, queue = Journal(), EventQueue()
    queue.defer("tag", journal.event("first"), 10)
    queue.defer("tag", journal.event("second"), 5)
    queue.defer("tag", journal.event("third"), 7)
    queue.defer("tag", journal.event("fourth"), 5)
    queue.defer("other", journal.event("other"), 3)
    queue.cancel("other")
    queue.cancel("unknown")
    assert queue.tags == ("tag",)
    journal.drain(queue, 100)
    assert journal.ran == ["second"]


def test_a_deferred_event_has_waited_since_its_time() -> None:
    """CTL-29: queue time counts from when it could have run."""
    queue = EventQueue()
    queue.defer("tag", Journal().event("x"), 50)
    queued = queue.take(80)
    assert queued is not None
    assert queued.enqueued_ms == 50


@pytest.mark.parametrize(("now_ms", "is_late"), [(9, False), (10, True), (11, True)])
def test_a_deadline_is_passed_when_it_is_reached(now_ms: int, is_late: bool) -> None:
    """KRF-106, the edge."""
    queue = EventQueue()
    assert queue.append(Journal().event("x"), 0, deadline_ms=10).is_late(now_ms) is is_late
    assert not queue.append(Journal().event("y"), 0).is_late(now_ms)


def test_clear_and_put_refuses_everything_in_favour_of_one() -> None:
    """CTL-21: ordinary events hear of it in their order; timers go without a word."""
    journal, queue = Journal(), EventQueue()
    queue.append(journal.event("a"), 0)
    queue.append(journal.event("b"), 0)
    queue.defer("tag", journal.event("timer"), 0)
    queue.clear_and_put(journal.event("expire"), 1, NOT_CONTROLLER)
    assert journal.refused == [(name, ErrorCode.NOT_CONTROLLER) for name in ("a", "b")]
    journal.drain(queue, 10)
    assert journal.ran == ["expire"]


def test_what_a_refused_event_puts_in_is_kept() -> None:
    """CTL-21, re-entry: the answer to a refusal may be the next request."""
    journal, queue = Journal(), EventQueue()
    again = Event("again", None, lambda _: None, lambda _: retry())

    def retry() -> None:
        queue.append(journal.event("retry"), 1)

    queue.append(again, 0)
    queue.clear_and_put(journal.event("expire"), 1, NOT_CONTROLLER)
    journal.drain(queue, 1)
    assert sorted(journal.ran) == ["expire", "retry"]


def test_a_closed_queue_refuses_what_waits_and_what_comes() -> None:
    journal, queue = Journal(), EventQueue()
    queue.append(journal.event("a"), 0)
    queue.defer("tag", journal.event("timer"), 0)
    queue.close()
    queue.close()
    queue.append(journal.event("b"), 0)
    queue.prepend(journal.event("c"), 0)
    queue.defer("tag", journal.event("timer"), 0)
    assert journal.refused == [(name, ErrorCode.REQUEST_TIMED_OUT) for name in ("a", "b", "c")]
    assert queue.take(100) is None
    assert journal.ran == []


STATES = {
    ControllerState.CONTROLLER_CHANGE: {1, 2, 3, 4, 5},
    ControllerState.BROKER_CHANGE: {6, 7},
    ControllerState.TOPIC_CHANGE: {8, 9},
    ControllerState.TOPIC_DELETION: {10, 11},
    ControllerState.ALTER_PARTITION_REASSIGNMENT: {12, 13, 14},
    ControllerState.AUTO_LEADER_BALANCE: {15},
    ControllerState.MANUAL_LEADER_BALANCE: {16},
    ControllerState.CONTROLLED_SHUTDOWN: {17},
    ControllerState.ISR_CHANGE: {18},
    ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED: {19},
    ControllerState.LOG_DIR_CHANGE: {20},
    ControllerState.CONTROLLER_SHUTDOWN: {21},
    ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE: {22},
    ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE: {23},
    ControllerState.LIST_PARTITION_REASSIGNMENT: {24},
    ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED: {25},
}


def test_every_event_has_the_state_of_the_table() -> None:
    """CTL-27: 25 events, 17 states with the values 0 to 16."""
    assert [kind.number for kind in EventKind] == list(range(1, 26))
    for state, numbers in STATES.items():
        assert {kind.number for kind in EventKind if kind.state is state} == numbers
    assert [state.value for state in ControllerState] == list(range(17))
    assert Event("settings", None, lambda _: None).state is ControllerState.IDLE


def test_timers_of_states_have_kafkas_names() -> None:
    """CTL-28, with the exceptions."""
    names = {state.value: state.timer_name for state in ControllerState}
    assert names[0] is None
    assert names[16] is None
    assert names[1] == "ControllerChangeRateAndTimeMs"
    assert names[2] == "LeaderElectionRateAndTimeMs"
    assert names[5] == "PartitionReassignmentRateAndTimeMs"
    assert names[9] == "IsrChangeRateAndTimeMs"
    assert names[14] == "TopicUncleanLeaderElectionEnableRateAndTimeMs"
    assert len({name for name in names.values() if name}) == 15


@given(
    st.lists(
        st.one_of(
            st.just(("append",)),
            st.tuples(st.just("defer"), st.sampled_from("ab"), st.integers(0, 9)),
            st.tuples(st.just("cancel"), st.sampled_from("ab")),
            st.tuples(st.just("take"), st.integers(0, 3)),
            st.just(("clear",)),
        ),
        min_size=10,
        max_size=60,
    )
)
def test_every_event_ends_once_in_the_order_of_a_plain_model(
    steps: list[tuple[object, ...]],
) -> None:
    """CTL-18, CTL-19, CTL-21 against two plain lists."""
    journal, queue = Journal(), EventQueue()
    ordinary: list[str] = []
    deferred: dict[str, tuple[int, str]] = {}
    ran: list[str] = []
    refused: list[str] = []
    now_ms = 0
    for number, step in enumerate(steps):
        name = str(number)
        match step:
            case ("append",):
                queue.append(journal.event(name), now_ms)
                ordinary.append(name)
            case ("defer", str(tag), int(delay_ms)):
                queue.defer(tag, journal.event(name), now_ms + delay_ms)
                if tag not in deferred or deferred[tag][0] > now_ms + delay_ms:
                    deferred[tag] = (now_ms + delay_ms, name)
            case ("cancel", str(tag)):
                queue.cancel(tag)
                deferred.pop(tag, None)
            case ("take", int(passed_ms)):
                now_ms += passed_ms
                if (queued := queue.take(now_ms)) is not None:
                    queued.process(now_ms)
                due = sorted((due, tag) for tag, (due, _) in deferred.items() if due <= now_ms)
                if due and len({when for when, _ in due}) == len(due):
                    ran.append(deferred.pop(due[0][1])[1])
                elif due:
                    # Two are due at one moment: either may be first.
                    tag = next(tag for _, tag in due if deferred[tag][1] == journal.ran[-1])
                    ran.append(deferred.pop(tag)[1])
                elif ordinary:
                    ran.append(ordinary.pop(0))
            case _:
                queue.clear_and_put(journal.event(name), now_ms, NOT_CONTROLLER)
                refused += ordinary
                ordinary = [name]
                deferred = {}
        assert journal.ran == ran
        assert [name for name, _ in journal.refused] == refused
        assert queue.size == len(ordinary)
