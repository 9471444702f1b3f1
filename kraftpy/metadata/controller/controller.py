"""The controller: its queue, the life of a leadership, and the way of a write.

Sans-I/O. Whoever drives it reports facts (the methods), carries out effects at once and in order
(`poll`), and calls again at `next_deadline_ms`. As a publisher of the node's metadata loader it
gets every committed image, so that a standby is as ready as the active controller: failover reads
nothing.

A leadership. Raft names this node (`leader_changed`) when everything before its epoch is committed
and published. The controller remembers the epoch, gives every broker a fresh session, and puts the
activation before all that waits: records that an empty log begins with, a leader for every
partition that can have one, then the timers. It ends when Raft says so, when an append is refused,
or when an operation fails in a way that nobody has foreseen: whoever waits is told NOT_CONTROLLER,
memory goes back to what is committed, sessions and timers are gone. Giving up is always safe;
another takes over.

A write. The operation returns records; they happen in memory and are handed to Raft. One that
concerns many partitions comes in parts, so that nobody else on the loop waits for long; within the
controller it is one, since its parts go before all that waits. Records of an atomic one must be one
batch, hence they are written down, and happen, in steps instead. The answer is parked at the end
of what is pending and leaves when that is committed, also if this operation wrote nothing: it may
have read what is not committed yet.

Invariants: records are appended only within the epoch in which this controller leads; an answer
leaves after everything that it could have seen is committed, in the order of the log; each request
is answered or refused once; `append_refused` or a change of leaders is heard before any image of
another controller's records, and an image that comes nevertheless ends the leadership first.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.controller.activation import activation_records
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.description import ControllerDescription
from kraftpy.metadata.controller.effects import (
    Answer,
    AppendRecords,
    ControllerEffect,
    Refuse,
    ResignLeadership,
)
from kraftpy.metadata.controller.elections import to_elect_after
from kraftpy.metadata.controller.event_queue import (
    ControllerState,
    Event,
    EventKind,
    EventQueue,
    QueuedEvent,
)
from kraftpy.metadata.controller.heartbeat_table import HeartbeatTable
from kraftpy.metadata.controller.metrics import ControllerMetrics
from kraftpy.metadata.controller.operations import Operation, Turn
from kraftpy.metadata.controller.parts import ControllerParts
from kraftpy.metadata.controller.periodic import MORE_DELAY_MS, PeriodicTasks
from kraftpy.metadata.controller.probing import Probing
from kraftpy.metadata.controller.result import (
    MAX_RECORDS_PER_REQUEST,
    Caller,
    ControllerError,
    ControllerResult,
    Outcome,
    Part,
)
from kraftpy.metadata.controller.writing import TooManyRecordsError, encoded_batches
from kraftpy.metadata.image import MetadataImage, Provenance
from kraftpy.metadata.publisher import Manifest
from kraftpy.metadata.records import NO_LEADER, MetadataRecord
from kraftpy.metadata.replay_error import ReplayError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import InternalInvariant, assert_always

__all__ = ["Controller"]

log = logging.getLogger(__name__)

T = TypeVar("T")


_NO_EVENT = Event("none", None, lambda now_ms: None)
_DONE: Final = object()


class _Parked(NamedTuple):
    """An answer that waits until the log is committed up to this offset."""

    offset: int
    request_id: int
    answer: object


class Controller:
    """The controller of a node, active or standing by. One owner calls it, from one task."""

    name = "controller"

    __slots__ = (
        "_claimed_epoch",
        "_context",
        "_effects",
        "_end_offset",
        "_event",
        "_has_handled",
        "_leader_epoch",
        "_leader_id",
        "_metrics",
        "_now_ms",
        "_parked",
        "_parts",
        "_probing",
        "_queue",
        "_tasks",
        "_wall_ms",
        "on_work",
        "state",
    )

    def __init__(
        self, context: ControllerContext, parts: ControllerParts, metrics: ControllerMetrics
    ) -> None:
        self._context = context
        self._parts = parts
        self._metrics = metrics
        self._queue = EventQueue()
        self._tasks = PeriodicTasks(
            parts.tasks, self._queue, self._append, lambda: self._end_offset, metrics.count_fault
        )
        self._effects: list[ControllerEffect] = []
        self._probing = Probing(context, self._queue, self._effects.append)
        self._parked: deque[_Parked] = deque()
        # Raft's newest word on who leads.
        self._leader_epoch = 0
        self._leader_id = NO_LEADER
        # The newest epoch in which this node has been active: it becomes so once in each.
        self._claimed_epoch = 0
        # As of the newest report.
        self._now_ms = 0
        self._wall_ms = 0
        self._end_offset = 0
        self._has_handled = False
        # The one that is being processed, or was last.
        self._event = _NO_EVENT
        self.state = ControllerState.IDLE
        # Called when there may be something to poll for; whoever drives the controller sets it.
        self.on_work: Callable[[], None] = lambda: None

    # Facts from outside.

    @property
    def is_active(self) -> bool:
        return self._context.epoch != 0

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        """The loader has an image of what is committed."""
        context = self._context
        if self.is_active and image.provenance.epoch > context.epoch:
            self._give_up(EventKind.CONTROLLER_CHANGE, self._now_ms, must_resign=True)
        assert_always(
            image.provenance.last_offset >= context.stable.provenance.last_offset,
            "controller.image_order",
            offset=image.provenance.last_offset,
        )
        context.commit(image)
        committed = image.provenance.last_offset
        while self._parked and self._parked[0].offset <= committed:
            parked = self._parked.popleft()
            self._effects.append(Answer(parked.request_id, parked.answer))
        self._refresh_metrics()
        self.on_work()

    def leader_changed(self, epoch: int, leader_id: int, now_ms: int) -> None:
        """Raft names the leader of an epoch, or NO_LEADER."""
        self._now_ms = now_ms
        if epoch < self._leader_epoch:
            return
        self._leader_epoch, self._leader_id = epoch, leader_id
        is_ours = leader_id == self._context.settings.node_id
        if self.is_active and not (is_ours and epoch == self._context.epoch):
            self._give_up(EventKind.CONTROLLER_CHANGE, now_ms)
        if is_ours and epoch > self._claimed_epoch and not self._queue.is_closed:
            self._claim(epoch, now_ms)
        self.on_work()

    def leadership_lost(self, epoch: int, now_ms: int) -> None:
        """Raft doesn't lead in this epoch any more, whoever may do so instead."""
        self._now_ms = now_ms
        if self._leader_epoch == epoch and self._leader_id == self._context.settings.node_id:
            self._leader_id = NO_LEADER
        if self._context.epoch == epoch:
            self._give_up(EventKind.EXPIRE, now_ms)
        self.on_work()

    def append_refused(self, epoch: int, now_ms: int) -> None:
        """Raft did not take records of this epoch, or put them somewhere else."""
        self._now_ms = now_ms
        if self._context.epoch == epoch:
            self._give_up(EventKind.EXPIRE, now_ms, must_resign=True)
        self.on_work()

    def resign(self, now_ms: int) -> None:
        """An operator wants another controller."""
        self._now_ms = now_ms
        if self.is_active:
            self._give_up(EventKind.CONTROLLER_CHANGE, now_ms, must_resign=True)
        self.on_work()

    def close(self, now_ms: int) -> None:
        """Refuse whatever waits or comes; nothing runs any more. Idempotent."""
        if self.is_active:
            self._give_up(EventKind.SHUTDOWN_EVENT_THREAD, now_ms)
        self._queue.close()
        self.on_work()

    def submit(self, request_id: int, request: Any, caller: Caller, now_ms: int) -> None:
        """A request; exactly one Answer or Refuse with this id will follow."""
        refuse = partial(self._refuse, request_id)
        operation = self._parts.operations.get(type(request))
        if operation is None:
            refuse(ControllerError(ErrorCode.UNSUPPORTED_VERSION))
            self.on_work()
            return
        deadline_ms = caller.deadline_ms
        if operation.max_queue_ms is not None:
            latest_ms = now_ms + operation.max_queue_ms
            deadline_ms = latest_ms if deadline_ms is None else min(deadline_ms, latest_ms)
        run = partial(self._serve, request_id, operation, request, caller)
        run_late = partial(self._note_late, operation, request)
        event = Event(operation.name, operation.kind(request), run, refuse, run_late)
        self._queue.append(event, now_ms, deadline_ms)
        self.on_work()

    def note_contact(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A heartbeat has arrived: however long it will queue, the broker was alive just now."""
        heartbeats = self._context.heartbeats
        if heartbeats is not None:
            heartbeats.touch(broker_id, broker_epoch, now_ms)

    def note_silence(self, broker_id: int, since_ms: int, now_ms: int) -> None:
        """Nothing was heard of a node since then: its session as a broker began no later."""
        heartbeats = self._context.heartbeats
        if heartbeats is not None:
            heartbeats.backdate(broker_id, since_ms, now_ms)
            self.on_work()

    def note_disconnected(self, broker_id: int, now_ms: int) -> None:
        """The connection that a broker's heartbeats came by is broken."""
        heartbeats = self._context.heartbeats
        if heartbeats is not None:
            heartbeats.note_disconnected(broker_id, now_ms)
            self._probing.look_at(now_ms)
            self.on_work()

    def note_refused(self, broker_id: int, now_ms: int) -> None:
        """A listener of a broker that was probed refused: perhaps the last piece of evidence."""
        heartbeats = self._context.heartbeats
        if heartbeats is not None and heartbeats.note_refused(broker_id):
            run = partial(self._fence_dead, broker_id)
            self._queue.append(Event("fenceDeadBroker", EventKind.BROKER_CHANGE, run), now_ms)
            self.on_work()

    def note_reachable(self, broker_id: int) -> None:
        """Somebody listens there, which proves nothing: the session's end will tell."""

    # What comes of them.

    def poll(self, now_ms: int, wall_ms: int, log_end_offset: int) -> list[ControllerEffect]:
        """Handle one event at most, and say what is to be done.

        The next batch that is proposed to Raft will begin at `log_end_offset`.
        """
        self._now_ms, self._wall_ms, self._end_offset = now_ms, wall_ms, log_end_offset
        if self.is_active and log_end_offset < self._context.image.provenance.end_offset:
            # Raft has cut off what was appended here: another leads, and word of it is on its way.
            self._give_up(EventKind.CONTROLLER_CHANGE, now_ms, must_resign=True)
        queued = self._queue.take(now_ms)
        self._has_handled = queued is not None
        if queued is not None:
            self._process(queued, now_ms)
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    def note_duration(self, duration_ms: float) -> None:
        """The last poll took so long; only who drives the controller has a clock for that."""
        if self._has_handled:
            self._metrics.event_took(duration_ms)

    def next_deadline_ms(self) -> int | None:
        """When to poll: at once if it is in the past, at a report only if it is None."""
        return self._now_ms if self._effects else self._queue.next_due_ms()

    def describe(self) -> ControllerDescription:
        context = self._context
        return ControllerDescription(
            is_active=self.is_active,
            epoch=self._leader_epoch,
            leader_id=self._leader_id,
            state=self.state,
            queue_size=self._queue.size,
            parked_count=len(self._parked),
            committed_offset=context.stable.provenance.last_offset,
            applied_offset=context.image.provenance.last_offset,
            timers=self._queue.tags,
        )

    # Events.

    def _process(self, queued: QueuedEvent, now_ms: int) -> None:
        event = self._event = queued.event
        outer, self.state = self.state, event.state
        self._metrics.event_started(event.state, now_ms - queued.enqueued_ms)
        has_failed = False
        try:
            if queued.is_late(now_ms):
                self._metrics.count_timed_out()
                event.run_late(now_ms)
                queued.preempt(ControllerError(ErrorCode.REQUEST_TIMED_OUT))
            else:
                queued.process(now_ms)
        except InternalInvariant:
            raise
        except Exception as error:
            if isinstance(error, ControllerError) and not event.must_succeed:
                event.refuse(error)
            else:
                log.exception("%s failed; this controller gives up its role", event.name)
                self._metrics.count_fault()
                event.refuse(ControllerError(ErrorCode.UNKNOWN_SERVER_ERROR))
                has_failed = True
        finally:
            self.state = outer
            self._metrics.event_ended()
        if has_failed and self.is_active:
            self._give_up(EventKind.CONTROLLER_CHANGE, now_ms, must_resign=True)
        self._refresh_metrics()

    def _serve(
        self, request_id: int, operation: Operation, request: Any, caller: Caller, now_ms: int
    ) -> None:
        if not self.is_active:
            raise self._not_controller()
        outcome = operation.run(request, caller, Turn(now_ms, self._end_offset))
        done = partial(self._answer, request_id, operation.is_read)
        self._carry_out(outcome, done, now_ms, is_users=operation.is_users)

    def _carry_out(
        self,
        outcome: Outcome[T],
        done: Callable[[T, int], None],
        now_ms: int,
        *,
        is_users: bool = False,
    ) -> None:
        """Append what was decided; then go on with the rest of it, before anybody else, or end."""
        if is_users and len(outcome.records) > MAX_RECORDS_PER_REQUEST:
            raise _too_much()
        if isinstance(outcome, ControllerResult) and outcome.is_atomic:
            self._step(self._appending(outcome), outcome.answer, done, is_users, now_ms)
            return
        self._append(outcome)
        if isinstance(outcome, Part):
            self._next(partial(self._go_on, outcome.proceed, done, is_users), now_ms)
        else:
            done(outcome.answer, now_ms)

    def _next(self, run: Callable[[int], None], now_ms: int) -> None:
        """The event that is being processed is not done yet, and goes on with this."""
        self._queue.go_on_with(replace(self._event, run=run), now_ms)

    def _go_on(
        self,
        proceed: Callable[[int], Outcome[T]],
        done: Callable[[T, int], None],
        is_users: bool,
        now_ms: int,
    ) -> None:
        self._carry_out(proceed(self._end_offset), done, now_ms, is_users=is_users)

    def _step(
        self,
        work: Iterator[None],
        answer: T,
        done: Callable[[T, int], None],
        is_users: bool,
        now_ms: int,
    ) -> None:
        """Go on with appending what is one batch; then end."""
        try:
            is_done = next(work, _DONE) is _DONE
        except TooManyRecordsError as error:
            if is_users:
                raise _too_much() from error
            raise
        if is_done:
            done(answer, now_ms)
        else:
            self._next(partial(self._step, work, answer, done, is_users), now_ms)

    def _answer(self, request_id: int, is_read: bool, answer: object, now_ms: int) -> None:
        # Whatever a write read or wrote lies at or before what is pending now.
        offset = None if is_read else self._context.pending_offset
        if offset is None:
            self._effects.append(Answer(request_id, answer))
        else:
            self._parked.append(_Parked(offset, request_id, answer))

    def _append(self, result: Outcome[object]) -> None:
        """Let records happen, and have them appended. All or nothing if they can't be encoded."""
        if result.records:
            for _ in self._appending(result):
                pass

    def _appending(self, result: Outcome[object]) -> Iterator[None]:
        """The same, with a rest between steps; what others may see is there after the last."""
        context = self._context
        batches = yield from encoded_batches(result, context.settings.partitions_at_once)
        for records, values in batches:
            place = partial(self._hand_over, records, values)
            try:
                yield from context.appending(records, place)
            except ReplayError as error:
                raise InternalInvariant(f"controller.replay {error}") from error
            affected = to_elect_after(records)
            if affected is not None:
                self._bring_online_at(affected.topic_name, self._now_ms)

    def _hand_over(
        self, records: tuple[MetadataRecord, ...], values: tuple[bytes, ...]
    ) -> Provenance:
        """Have a batch appended, where the log ends by now."""
        epoch, base_offset = self._context.epoch, self._end_offset
        self._effects.append(AppendRecords(epoch, base_offset, records, values))
        provenance = Provenance(base_offset + len(records) - 1, epoch, self._wall_ms)
        self._end_offset = provenance.end_offset
        return provenance

    def _refuse(self, request_id: int, error: ControllerError) -> None:
        self._effects.append(Refuse(request_id, error.code, error.message))

    def _note_late(self, operation: Operation, request: Any, now_ms: int) -> None:
        if operation.on_late is not None:
            self._metrics.count_late_heartbeat()
            operation.on_late(request, Turn(now_ms, self._end_offset))

    # What is done in pieces, with everybody who waits served in between.

    def _bring_online(self, topic_name: str | None, now_ms: int) -> None:
        done = partial(self._brought_online, topic_name)
        self._carry_out(self._parts.bring_online(topic_name), done, now_ms)

    def _brought_online(self, topic_name: str | None, has_more: bool, now_ms: int) -> None:
        if has_more:
            self._bring_online_at(topic_name, now_ms + MORE_DELAY_MS)

    def _bring_online_at(self, topic_name: str | None, due_ms: int) -> None:
        kind, tag = EventKind.UNCLEAN_LEADER_ELECTION_ENABLE, "bringOnline"
        if topic_name is not None:
            kind = EventKind.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
            tag = f"bringOnline-{topic_name}"
        self._queue.defer(tag, Event(tag, kind, partial(self._bring_online, topic_name)), due_ms)

    # The life of a leadership.

    def _claim(self, epoch: int, now_ms: int) -> None:
        context = self._context
        held = self._parts.open_transaction()
        if held is not None:
            # What is before it was perhaps never published.
            context.commit(held)
        assert_always(context.pending_offset is None, "controller.claims_with_pending")
        context.epoch = self._claimed_epoch = epoch
        settings = context.settings
        context.heartbeats = HeartbeatTable.at_activation(
            context.image, settings.broker_session_timeout_ms, settings.probe_after_ms, now_ms
        )
        self._metrics.count_activation()
        run = partial(self._activate, has_open_transaction=held is not None)
        activate = Event("activate", EventKind.REELECT, run, must_succeed=True)
        self._queue.prepend(activate, now_ms)

    def _activate(self, now_ms: int, *, has_open_transaction: bool) -> None:
        context = self._context
        context.replica_states.forget_acknowledgements(self._end_offset)
        records = activation_records(
            context.image,
            self._parts.bootstrap,
            context.settings.static_configs,
            has_open_transaction=has_open_transaction,
        )
        self._append(ControllerResult(records, None))
        self._tasks.start(now_ms)
        self._probing.look_at(now_ms + context.settings.probe_after_ms)
        self._carry_out(
            self._parts.reevaluate(), lambda _, now_ms: self._bring_online(None, now_ms), now_ms
        )

    def _give_up(self, kind: EventKind, now_ms: int, *, must_resign: bool = False) -> None:
        """Stop being the controller, now: before any image of another one's records can come."""
        epoch = self._context.epoch
        if must_resign:
            self._effects.append(ResignLeadership(epoch))
        if self._leader_epoch == epoch and self._leader_id == self._context.settings.node_id:
            self._leader_id = NO_LEADER
        error = self._not_controller()
        parked, self._parked = self._parked, deque()
        for answer in parked:
            self._refuse(answer.request_id, error)
        renounce = Event("renounce", kind, self._renounce)
        self._process(self._queue.clear_and_put(renounce, now_ms, error), now_ms)

    def _renounce(self, now_ms: int) -> None:
        context = self._context
        context.epoch = 0
        context.heartbeats = None
        context.replica_states.forget_acknowledgements(None)
        context.revert()

    def _not_controller(self) -> ControllerError:
        if self._leader_id == NO_LEADER:
            return ControllerError(ErrorCode.NOT_CONTROLLER, "No controller is known here.")
        return ControllerError(
            ErrorCode.NOT_CONTROLLER, f"The active controller is node {self._leader_id}."
        )

    def _fence_dead(self, broker_id: int, now_ms: int) -> None:
        self._carry_out(self._parts.fence_dead(broker_id), lambda *_: None, now_ms)

    def _refresh_metrics(self) -> None:
        self._metrics.refresh(self._context, self._queue.size, self._now_ms)


def _too_much() -> ControllerError:
    return ControllerError(
        ErrorCode.POLICY_VIOLATION,
        f"A request may change at most {MAX_RECORDS_PER_REQUEST} things; split it.",
    )
