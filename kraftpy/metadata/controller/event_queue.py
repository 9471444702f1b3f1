"""The controller's one queue: what happens, in which order, and at most once.

Everybody only puts events in; one owner takes them out, one at a time, and nothing else reads or
writes the controller's state. So a handler needs no lock and sees no half of another's work.

- Ordinary events come out in the order in which they were put in. The one exception is the
  activation of a new controller, which goes before whoever waits already.
- A deferred event has a tag and a time. There is one for each tag, which can be moved earlier or
  cancelled. When its time has come it goes before all ordinary ones: a busy queue delays neither
  fencing nor the sign of life in the log.
- An operation that is done in parts goes on before everything else, deferred events too.
- An event may have a deadline. Taken out too late, it is refused and not run.
- `clear_and_put` refuses everything that waits, in one step, in favour of a single event.

Invariants: an event runs or is refused, one of them, once; after `close` nothing runs any more.

The table below is the one that operators know from Kafka's metrics: what an event is about, and the
state that the controller is in while it handles it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from kraftpy.metadata.controller.result import ControllerError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import quickly_made

__all__ = [
    "ControllerState",
    "Event",
    "EventKind",
    "EventQueue",
    "QueuedEvent",
]


class ControllerState(IntEnum):
    """What the controller is doing; the number is the metric ControllerState."""

    IDLE = 0
    CONTROLLER_CHANGE = 1
    BROKER_CHANGE = 2
    TOPIC_CHANGE = 3
    TOPIC_DELETION = 4
    ALTER_PARTITION_REASSIGNMENT = 5
    AUTO_LEADER_BALANCE = 6
    MANUAL_LEADER_BALANCE = 7
    CONTROLLED_SHUTDOWN = 8
    ISR_CHANGE = 9
    LEADER_AND_ISR_RESPONSE_RECEIVED = 10
    LOG_DIR_CHANGE = 11
    CONTROLLER_SHUTDOWN = 12
    UNCLEAN_LEADER_ELECTION_ENABLE = 13
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 14
    LIST_PARTITION_REASSIGNMENT = 15
    UPDATE_METADATA_RESPONSE_RECEIVED = 16

    @property
    def timer_name(self) -> str | None:
        """The metric that times events of this state; None if they are not timed."""
        if self in _UNTIMED:
            return None
        if self in _OTHER_TIMERS:
            return _OTHER_TIMERS[self]
        return self.name.title().replace("_", "") + "RateAndTimeMs"


_UNTIMED: Final = (ControllerState.IDLE, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED)
_OTHER_TIMERS: Final = {
    ControllerState.BROKER_CHANGE: "LeaderElectionRateAndTimeMs",
    ControllerState.ALTER_PARTITION_REASSIGNMENT: "PartitionReassignmentRateAndTimeMs",
}


class EventKind(Enum):
    """Kafka's 25 events, each with its state. Some can't happen without ZooKeeper."""

    def __init__(self, number: int, state: ControllerState) -> None:
        self.number = number
        self.state = state

    STARTUP = 1, ControllerState.CONTROLLER_CHANGE
    CONTROLLER_CHANGE = 2, ControllerState.CONTROLLER_CHANGE
    REELECT = 3, ControllerState.CONTROLLER_CHANGE
    REGISTER_BROKER_AND_REELECT = 4, ControllerState.CONTROLLER_CHANGE
    EXPIRE = 5, ControllerState.CONTROLLER_CHANGE
    BROKER_CHANGE = 6, ControllerState.BROKER_CHANGE
    BROKER_MODIFICATIONS = 7, ControllerState.BROKER_CHANGE
    TOPIC_CHANGE = 8, ControllerState.TOPIC_CHANGE
    PARTITION_MODIFICATIONS = 9, ControllerState.TOPIC_CHANGE
    TOPIC_DELETION = 10, ControllerState.TOPIC_DELETION
    TOPIC_DELETION_STOP_REPLICA_RESPONSE_RECEIVED = 11, ControllerState.TOPIC_DELETION
    ZK_PARTITION_REASSIGNMENT = 12, ControllerState.ALTER_PARTITION_REASSIGNMENT
    API_PARTITION_REASSIGNMENT = 13, ControllerState.ALTER_PARTITION_REASSIGNMENT
    PARTITION_REASSIGNMENT_ISR_CHANGE = 14, ControllerState.ALTER_PARTITION_REASSIGNMENT
    AUTO_PREFERRED_REPLICA_LEADER_ELECTION = 15, ControllerState.AUTO_LEADER_BALANCE
    REPLICA_LEADER_ELECTION = 16, ControllerState.MANUAL_LEADER_BALANCE
    CONTROLLED_SHUTDOWN = 17, ControllerState.CONTROLLED_SHUTDOWN
    ISR_CHANGE_NOTIFICATION = 18, ControllerState.ISR_CHANGE
    LEADER_AND_ISR_RESPONSE_RECEIVED = 19, ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED
    LOG_DIR_EVENT_NOTIFICATION = 20, ControllerState.LOG_DIR_CHANGE
    SHUTDOWN_EVENT_THREAD = 21, ControllerState.CONTROLLER_SHUTDOWN
    UNCLEAN_LEADER_ELECTION_ENABLE = 22, ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = 23, ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
    LIST_PARTITION_REASSIGNMENTS = 24, ControllerState.LIST_PARTITION_REASSIGNMENT
    UPDATE_METADATA_RESPONSE_RECEIVED = 25, ControllerState.UPDATE_METADATA_RESPONSE_RECEIVED


def _drop(error: ControllerError) -> None:
    """Nobody waits for this event."""


def _ignore(now_ms: int) -> None:
    """Nothing is done with this event when it is late."""


@quickly_made
@dataclass(frozen=True, slots=True)
class Event:
    """Something to be done, and what to tell the asker if it won't be.

    The kind is None for what Kafka's table doesn't have, such as settings: the state stays idle.
    """

    name: str
    kind: EventKind | None
    run: Callable[[int], None]
    refuse: Callable[[ControllerError], None] = _drop
    # What is still done if its turn comes behind its deadline, before it is refused.
    run_late: Callable[[int], None] = _ignore
    # Whether a refusal by what is run is a failure, which costs the leadership like any other.
    must_succeed: bool = False

    @property
    def state(self) -> ControllerState:
        return ControllerState.IDLE if self.kind is None else self.kind.state


class QueuedEvent:
    """An event in the queue, or just out of it."""

    __slots__ = ("deadline_ms", "enqueued_ms", "event", "has_started", "is_spent")

    def __init__(self, event: Event, enqueued_ms: int, deadline_ms: int | None) -> None:
        self.event = event
        # When it could have run first: for a deferred event, the time that it was deferred to.
        self.enqueued_ms = enqueued_ms
        self.deadline_ms = deadline_ms
        self.has_started = False
        self.is_spent = False

    def is_late(self, now_ms: int) -> bool:
        return self.deadline_ms is not None and now_ms >= self.deadline_ms

    def process(self, now_ms: int) -> None:
        """Run it, unless it has run or was refused."""
        if self.is_spent:
            return
        self.is_spent = True
        self.has_started = True
        self.event.run(now_ms)

    def preempt(self, error: ControllerError) -> None:
        """Refuse it, unless it has run or was refused."""
        if self.is_spent:
            return
        self.is_spent = True
        self.event.refuse(error)


class EventQueue:
    """Ordinary events in order, and deferred ones by tag. Time is an argument."""

    __slots__ = ("_deferred", "_is_closed", "_ordinary", "_unfinished")

    def __init__(self) -> None:
        # The next part of the operation that was taken last.
        self._unfinished: QueuedEvent | None = None
        self._ordinary: deque[QueuedEvent] = deque()
        self._deferred: dict[str, QueuedEvent] = {}
        self._is_closed = False

    @property
    def size(self) -> int:
        """How many events wait for their turn; deferred ones wait for their time instead."""
        return len(self._ordinary)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of deferred events."""
        return tuple(self._deferred)

    def append(self, event: Event, now_ms: int, deadline_ms: int | None = None) -> QueuedEvent:
        queued = QueuedEvent(event, now_ms, deadline_ms)
        if self._is_closed:
            queued.preempt(_shutting_down())
        else:
            self._ordinary.append(queued)
        return queued

    def prepend(self, event: Event, now_ms: int) -> QueuedEvent:
        """Put it before all that wait: only for what must happen before anybody is served."""
        queued = QueuedEvent(event, now_ms, None)
        if self._is_closed:
            queued.preempt(_shutting_down())
        else:
            self._ordinary.appendleft(queued)
        return queued

    def go_on_with(self, event: Event, now_ms: int) -> None:
        """Let this be taken next, whatever else there is: the event taken last is not done yet."""
        self._unfinished = QueuedEvent(event, now_ms, None)

    def defer(self, tag: str, event: Event, due_ms: int) -> None:
        """Have it run at that time, instead of what the tag has, unless that is due earlier."""
        waiting = self._deferred.get(tag)
        if self._is_closed or (waiting is not None and waiting.enqueued_ms <= due_ms):
            return
        self._deferred[tag] = QueuedEvent(event, due_ms, None)

    def cancel(self, tag: str) -> None:
        """An unknown tag is fine."""
        self._deferred.pop(tag, None)

    def clear_and_put(self, event: Event, now_ms: int, error: ControllerError) -> QueuedEvent:
        """Refuse everything that waits, cancel what is deferred, and let this be the only event."""
        self._clear(error)
        return self.append(event, now_ms)

    def close(self) -> None:
        """Refuse everything that waits, and all that comes. Idempotent."""
        self._is_closed = True
        self._clear(_shutting_down())

    def take(self, now_ms: int) -> QueuedEvent | None:
        """The event whose turn it is; None if there is nothing to do now."""
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is not None:
            return unfinished
        due_tag = self._next_tag()
        if due_tag is not None and self._deferred[due_tag].enqueued_ms <= now_ms:
            return self._deferred.pop(due_tag)
        return self._ordinary.popleft() if self._ordinary else None

    def next_due_ms(self) -> int | None:
        """When there is something to take: in the past if there is already, None for never."""
        if self._unfinished is not None:
            return self._unfinished.enqueued_ms
        if self._ordinary:
            return self._ordinary[0].enqueued_ms
        tag = self._next_tag()
        return None if tag is None else self._deferred[tag].enqueued_ms

    def _next_tag(self) -> str | None:
        # There are as many tags as periodic tasks: a handful.
        first: str | None = None
        first_ms = 0
        for tag, queued in self._deferred.items():
            if first is None or queued.enqueued_ms < first_ms:
                first, first_ms = tag, queued.enqueued_ms
        return first

    def _clear(self, error: ControllerError) -> None:
        waiting = list(self._ordinary)
        if self._unfinished is not None:
            waiting.insert(0, self._unfinished)
            self._unfinished = None
        self._ordinary.clear()
        self._deferred.clear()
        for queued in waiting:
            queued.preempt(error)


def _shutting_down() -> ControllerError:
    return ControllerError(ErrorCode.REQUEST_TIMED_OUT, "The controller is shutting down.")
