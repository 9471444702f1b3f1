"""One shard: a machine, its log, and those who wait for answers.

Everything that happens to a shard is an event, and events never overlap: one that comes while
another runs, be it from a reply or from the log itself, waits for its turn. Only news of the high
watermark goes first, since it makes nobody wait and answers many.

A write runs its operation against state that may not be committed yet, replays the records into
that state, and collects them in a batch. Writes share a batch until it is flushed: at the end of
the loop's present round with a linger of -1, after that many milliseconds, or at once with 0. When
the high watermark has passed the batch, its answers are given, in order. A write without records
waits for those before it, because it may have seen them.

What fails, fails the whole batch: its records are taken out of the state as if they had never been
(timeline.py), and every write in it gets the error. A write that is not committed in time is
answered too, with an error, but its records stay: they may still be committed.

A shard lives for one leadership of its partition: LOADING while the log is replayed, then ACTIVE,
until it is CLOSED. If the log ever contradicts the state, the shard is FAILED and must be loaded
again.

Invariants:
- A reply is called exactly once.
- Those of shard_writing.py, where records are collected, appended and committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Final, TypeVar

from kraftpy.coordinator.batch import Producer
from kraftpy.coordinator.failures import for_clients, for_leaders, not_coordinator, unexpected
from kraftpy.coordinator.outcome import CoordinatorError, Outcome, Reply
from kraftpy.coordinator.ports import Machine, ShardContext, ShardLog
from kraftpy.coordinator.replaying import replay_batches
from kraftpy.coordinator.shard_timers import ShardBackground, ShardTimer, ShardTimers
from kraftpy.coordinator.shard_writing import CollectingShard, ShardWorld
from kraftpy.coordinator.writes import Write
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.control import EndTransactionMarker, build_end_transaction
from kraftpy.records.errors import CorruptRecord
from kraftpy.world import Buffer, InternalInvariant

__all__ = ["Shard", "ShardState"]

log = logging.getLogger(__name__)

# Until a timer's operation that failed is tried again.
_RETRY_MS: Final = 500

_Machine = TypeVar("_Machine", bound=Machine)
_Answer = TypeVar("_Answer")


class ShardState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    CLOSED = auto()


class Shard(CollectingShard[_Machine]):
    """Made when this broker is elected for the partition."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        shard_log: ShardLog,
        world: ShardWorld,
        make_machine: Callable[[ShardContext], _Machine],
        *,
        image: MetadataImage,
        reload: Callable[[Shard[_Machine]], None],
    ) -> None:
        """`reload` is called when the shard was active and must be made anew from its log."""
        super().__init__(shard_log, world)
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self._image = image
        # Until the machine is told what has changed since.
        self._image_before: MetadataImage | None = image
        self._reload = reload
        self._timers = ShardTimers(
            world.timer, lambda timer: self._enqueue(partial(self._timer_over, timer))
        )
        self._background = ShardBackground(world.slow, self.submit)
        self._events: deque[Callable[[], None]] = deque()
        self._is_running = False
        self.machine = make_machine(
            ShardContext(
                partition,
                leader_epoch,
                self.timeline,
                self._timers,
                self._background,
                world.clock,
                lambda: self._image,
                self._next_offset,
                self.submit,
            )
        )

    def __repr__(self) -> str:
        return f"Shard({self.partition}, epoch {self.leader_epoch}, {self.state.name})"

    @property
    def is_loading(self) -> bool:
        return self.state is ShardState.LOADING

    # What others ask for.

    def write(
        self, operation: Callable[[_Machine], Outcome[_Answer]], reply: Reply[_Answer]
    ) -> None:
        """Carry an operation out and reply when its records are committed."""
        self._enqueue(partial(self._write, operation, reply))

    def write_transactional(
        self,
        operation: Callable[[_Machine], Outcome[_Answer]],
        reply: Reply[_Answer],
        producer: Producer,
    ) -> None:
        """The same within a producer's transaction: a batch of its own (CRT-13)."""
        self._enqueue(partial(self._write, operation, reply, producer))

    def complete_transaction(
        self,
        marker: EndTransactionMarker,
        reply: Reply[EndTransactionMarker],
        producer: Producer,
        transaction_version: int,
    ) -> None:
        """Write the marker that ends a producer's transaction, behind all that came before it."""
        self._enqueue(partial(self._complete, marker, reply, producer, transaction_version))

    def read(self, operation: Callable[[_Machine], _Answer]) -> _Answer:
        """What `operation` finds in committed state. Raises CoordinatorError."""
        self.check_active()
        return operation(self.machine)

    def submit(self, operation: Callable[[], Outcome[None]]) -> None:
        """An operation of the machine's own; nobody waits for it, or misses it when it is over."""
        if self.state is ShardState.ACTIVE:
            self.write(lambda machine: operation(), _report)

    def high_watermark_moved(self, high_watermark: int) -> None:
        self._events.appendleft(partial(self._commit, high_watermark))
        self._run()

    def metadata_changed(self, changes: ImageChanges, image: MetadataImage) -> None:
        self._enqueue(partial(self._take_image, changes, image))

    def check_active(self) -> None:
        """Raises CoordinatorError with the code for a shard that can't be asked (CRT-17)."""
        if self.state is ShardState.LOADING:
            raise CoordinatorError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if self.state is not ShardState.ACTIVE or not self.log.is_led:
            raise not_coordinator()

    # Loading and closing.

    def load(self, data: Buffer) -> Iterator[None]:
        """Replay batches of the log, of which only the last may be cut off; in pieces."""
        before = self.timeline.last_written
        pieces = replay_batches(
            data,
            self.machine,
            self.timeline,
            self._world.records,
            high_watermark=self.log.high_watermark,
        )
        for _ in pieces:
            yield
            if not self.is_loading:
                return  # Closed in the meantime: the machine must hear of nothing any more.
        if self.timeline.last_written == before:
            raise CorruptRecord(f"no batch can be read at offset {before}")

    def begin_loading(self, offset: int) -> None:
        """The log begins at `offset`; records before it are gone for good."""
        self.timeline.written(offset)
        self.timeline.committed(offset)

    def activate(self) -> None:
        """Everything up to the log's end is replayed."""
        self.state = ShardState.ACTIVE
        self._commit(self.log.high_watermark)  # It may have moved since the last batch was read.
        self._enqueue(self.machine.loaded)
        before, self._image_before = self._image_before, None
        if before is not None and before is not self._image:
            # While the log was read the machine heard of nothing: topics may have been deleted.
            self.metadata_changed(ImageChanges(before, self._image), self._image)

    def fail(self) -> None:
        """The state can't be trusted, or could not be made."""
        was_active = self.state is ShardState.ACTIVE
        if was_active or self.state is ShardState.LOADING:
            self.state = ShardState.FAILED
            self._end()
        if was_active:
            self._reload(self)

    def close(self) -> None:
        """This broker no longer leads the partition in this epoch (CRT-19)."""
        was_alive = self.state in (ShardState.LOADING, ShardState.ACTIVE)
        self.state = ShardState.CLOSED
        if was_alive:
            self._end()

    def _end(self) -> None:
        waiting = [write for _, write in self._deferred]
        self._deferred.clear()
        if self._batch is not None:
            waiting += self._batch.writes
            self._batch = None
        for write in waiting:
            write.failed(not_coordinator())
        self.machine.unloaded()
        # The last, since whoever hears that a write has failed may start one.
        self._timers.cancel_all()
        self._background.cancel_all()

    # Events.

    def _enqueue(self, event: Callable[[], None]) -> None:
        self._events.append(event)
        self._run()

    def _run(self) -> None:
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._events:
                self._events.popleft()()
        finally:
            self._is_running = False

    def _write(
        self,
        operation: Callable[[_Machine], Outcome[_Answer]],
        reply: Reply[_Answer],
        producer: Producer | None = None,
    ) -> None:
        try:
            self.check_active()
            outcome = operation(self.machine)
        except InternalInvariant:
            raise
        except CoordinatorError as error:
            reply(error)
            return
        except Exception as error:
            reply(unexpected(error))
            return
        write = Write(reply, outcome, self._world.timer)
        if outcome.records:
            self._collect(write, outcome, producer)
        else:
            self._wait_for_others(write)

    def _complete(
        self,
        marker: EndTransactionMarker,
        reply: Reply[EndTransactionMarker],
        producer: Producer,
        transaction_version: int,
    ) -> None:
        try:
            self.check_active()
        except CoordinatorError as error:
            # And nothing is reverted: of a log that is loaded, half a batch may be in the state.
            reply(for_leaders(error))
            return
        try:
            if (lost := self._flush()) is not None:
                raise lost
            self.machine.replay_marker(producer.id, producer.epoch, is_commit=marker.is_commit)
        except InternalInvariant:
            raise
        except Exception as error:
            self.timeline.revert()
            reply(for_leaders(for_clients(error)))
            return
        batch = build_end_transaction(
            marker,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            timestamp_ms=self._world.clock.wall_ms(),
        )
        write = Write(
            lambda answer: reply(for_leaders(answer)), Outcome(answer=marker), self._world.timer
        )
        write.start_timeout(self._world.settings.write_timeout_ms)
        self._append(batch, 1, [write], transaction_version=transaction_version)

    def _timer_over(self, timer: ShardTimer) -> None:
        """An operation that fails is tried again, until it is no longer wanted (CRT-23)."""
        if not self._timers.take(timer):
            return

        def retry(error: CoordinatorError | None) -> None:
            is_wanted = self.state is ShardState.ACTIVE
            if error is not None and is_wanted and not self._timers.is_scheduled(timer.key):
                self._timers.schedule(timer.key, _RETRY_MS, timer.operation)

        def operation(machine: _Machine) -> Outcome[None]:
            outcome = timer.operation()
            inner = outcome.settled

            def settled(error: CoordinatorError | None) -> None:
                if inner is not None:
                    inner(error)
                retry(error)

            return outcome._replace(settled=settled)

        self._write(operation, retry)

    def _take_image(self, changes: ImageChanges, image: MetadataImage) -> None:
        self._image = image
        if self.state is ShardState.ACTIVE:
            self.machine.metadata_changed(changes, image)


def _report(answer: object) -> None:
    if isinstance(answer, CoordinatorError):
        log.warning("an operation of the coordinator's own failed: %s", answer)
