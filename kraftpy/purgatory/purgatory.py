"""Operations that wait, by the keys whose events may complete them.

`try_complete_else_watch` looks, registers, looks again and arms the timer, in this order: an event
that came before the registration is seen by the second look, a later one finds the operation in
its lists. `check_and_complete` is what an event calls.

One dictionary holds the watch lists. Kafka spreads them over 512 shards, because each has a lock;
a loop has no locks, and the dictionary is hashed already.

Re-entry. While one call of `check_and_complete` walks, a further one, made by the code of an
operation that completes, only notes its key; the first call walks it afterwards. Nothing is missed,
and a chain of completions, however long, needs no stack.

Purge. An operation that ended by time or through one key stays in the lists of its other keys until
those have an event. To take it out at once would charge the append that completes a fetch with all
the partitions of that fetch. When more than `purge_interval` of them have piled up, the reaper
removes them, and them alone, in pieces; a key without events so keeps nothing for ever.

Invariants: an operation in the timer is not completed; a list is not empty; `purgatory_size` is the
number of places in all lists; at most `purge_interval` operations that have ended are in any list,
unless a purge is under way.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.purgatory.chain import Chain
from kraftpy.purgatory.operation import DelayedOperation, Watch
from kraftpy.purgatory.timer import Timer
from kraftpy.purgatory.wheel import WheelView
from kraftpy.world import InternalInvariant, assert_always

__all__ = ["DEFAULT_PURGE_INTERVAL", "Purgatory", "PurgatoryView", "reaper_name"]

log = logging.getLogger(__name__)

DEFAULT_PURGE_INTERVAL = 1000

_Operation = TypeVar("_Operation", bound=DelayedOperation)


def reaper_name(node_id: int, purgatory_name: str) -> str:
    return f"ExpirationReaper-{node_id}-{purgatory_name}"


class _Watchers(Chain[Watch]):
    """The watch list of one key, in order of registration."""

    __slots__ = ("is_noted", "key")

    def __init__(self, key: Hashable) -> None:
        super().__init__()
        self.key = key
        self.is_noted = False


class Purgatory(Generic[_Operation]):
    """One for each type of operation, each with a timer and a reaper of its own.

    Whoever makes it starts `timer.run`, and at the end calls `shutdown`.
    """

    __slots__ = (
        "_gauges",
        "_is_purging",
        "_is_shut_down",
        "_is_walking",
        "_lists",
        "_noted",
        "_purge_interval",
        "_registry",
        "_stale",
        "_uses_timer",
        "_watch_count",
        "name",
        "timer",
    )

    def __init__(
        self,
        name: str,
        timer: Timer,
        registry: MetricRegistry,
        *,
        purge_interval: int = DEFAULT_PURGE_INTERVAL,
        uses_timer: bool = True,
    ) -> None:
        self.name = name
        self.timer = timer
        self._registry = registry
        self._purge_interval = purge_interval
        self._uses_timer = uses_timer
        self._lists: dict[Hashable, _Watchers] = {}
        self._watch_count = 0
        self._is_walking = False
        self._noted: deque[_Watchers] = deque()
        # Operations that have ended and are still in lists, in the order of their end.
        self._stale: dict[DelayedOperation, None] = {}
        self._is_purging = False
        self._is_shut_down = False
        self._gauges = [
            (self._gauge_name("PurgatorySize"), lambda: self.purgatory_size),
            (self._gauge_name("NumDelayedOperations"), lambda: self.delayed_count),
        ]
        for gauge_name, read in self._gauges:
            registry.gauge(gauge_name, read)

    def _gauge_name(self, name: str) -> MetricName:
        tags = (("delayedOperation", self.name),)
        return MetricName("kafka.server", "DelayedOperationPurgatory", name, tags)

    @property
    def purgatory_size(self) -> int:
        """Places in watch lists: an operation counts once a key, an ended one until the purge."""
        return self._watch_count

    @property
    def delayed_count(self) -> int:
        """Operations in the timer."""
        return self.timer.size

    def try_complete_else_watch(
        self, operation: _Operation, keys: Sequence[Hashable], *, has_looked: bool = False
    ) -> bool:
        """Complete `operation` now, or let it wait for events of `keys` and for its timeout.

        True if this call completed it. After `shutdown` nothing waits: it expires at once. A caller
        that `has_looked` by its own means a moment ago saves the first look; the one behind the
        registration is always made.
        """
        assert_always(keys, "purgatory.no-keys", purgatory=self.name)
        assert_always(operation.keeper is None, "purgatory.watched-before", purgatory=self.name)
        if not has_looked and operation.try_complete():
            return True
        if self._is_shut_down:
            operation.run()
            return False
        operation.keeper = self
        try:
            for key in keys:
                if operation.is_completed:
                    return False
                self._watch(operation, key)
            if operation.try_complete():
                return True
        except BaseException:
            # The caller answers for it; without a timer it must not stay.
            operation.abandon()
            raise
        # Arming calls nobody, so it can't be completed between this look and its end.
        if self._uses_timer and not operation.is_completed:
            self.timer.add(operation, operation.delay_ms)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Look at everything that watches `key`; returns how many this call completed.

        Called by the code of an operation that another call is completing, it returns 0, and that
        other call looks at `key` before it returns.
        """
        watchers = self._lists.get(key)
        if watchers is None:
            return 0
        if not watchers.is_noted:
            watchers.is_noted = True
            self._noted.append(watchers)
        if self._is_walking:
            return 0
        count = 0
        self._is_walking = True
        try:
            while self._noted:
                count += self._walk(self._noted.popleft())
        finally:
            self._is_walking = False
        if log.isEnabledFor(logging.DEBUG):
            log.debug("purgatory=%s key=%s completed=%d", self.name, key, count)
        return count

    def cancel_for_key(self, key: Hashable) -> list[_Operation]:
        """Drop the key and stop the timers of what waits there; nothing of it is completed.

        What also watches other keys still does, without a limit of time.
        """
        cancelled = []
        for watch in tuple(self._lists.get(key, ())):
            operation = watch.operation
            self._unwatch(watch)
            if not operation.is_completed:
                self.timer.cancel(operation)
                cancelled.append(cast("_Operation", operation))
        return cancelled

    def shutdown(self) -> list[_Operation]:
        """Remove the gauges and give up whatever waits; its owner answers it. Idempotent."""
        self._is_shut_down = True
        for gauge_name, _ in self._gauges:
            self._registry.remove(gauge_name)
        waiting: dict[_Operation, None] = {}
        for key in tuple(self._lists):
            waiting.update(dict.fromkeys(self.cancel_for_key(key)))
        return list(waiting)

    def release(self, operation: DelayedOperation) -> None:
        """An operation has ended (see Keeper)."""
        self.timer.cancel(operation)
        if operation.watch_count == 0:
            return
        self._stale[operation] = None
        if len(self._stale) > self._purge_interval and not self._is_purging:
            self._is_purging = True
            self.timer.defer(self._purge())

    def _watch(self, operation: DelayedOperation, key: Hashable) -> None:
        watchers = self._lists.get(key)
        if watchers is None:
            watchers = self._lists[key] = _Watchers(key)
        watch = Watch(operation)
        watchers.append(watch)
        operation.watches.append(watch)
        operation.watch_count += 1
        self._watch_count += 1

    def _unwatch(self, watch: Watch) -> None:
        watchers = watch.chain
        assert isinstance(watchers, _Watchers)
        watchers.remove(watch)
        self._watch_count -= 1
        if watchers.first is None:
            # Who comes later gets a new list; nobody is ever added to one that was let go.
            del self._lists[watchers.key]
        operation = watch.operation
        operation.watch_count -= 1
        if operation.watch_count == 0:
            self._stale.pop(operation, None)
            # Places refer to their operation: without this, only the collector could free both.
            operation.watches.clear()

    def _walk(self, watchers: _Watchers) -> int:
        watchers.is_noted = False
        completed_count = 0
        for watch in tuple(watchers):
            operation = watch.operation
            # The code of those before may have completed this one, or taken it out.
            if watch.chain is not None and not operation.is_completed:
                self._try_complete(operation)
                completed_count += operation.is_completed
            if watch.chain is not None and operation.is_completed:
                self._unwatch(watch)
        return completed_count

    def _try_complete(self, operation: DelayedOperation) -> None:
        """One operation's failure is not the others', nor that of whoever brought the event."""
        try:
            operation.try_complete()
        except InternalInvariant:
            raise
        except Exception:
            log.exception("purgatory=%s operation failed: %r", self.name, operation)

    def _purge(self) -> Iterator[None]:
        while self._stale:
            operation, _ = self._stale.popitem()
            for watch in operation.watches:
                if watch.chain is not None:
                    self._unwatch(watch)
                    yield
        self._is_purging = False

    def inspect(self) -> PurgatoryView:
        """What is really there, counted by walking over it."""
        watches = [watch for watchers in self._lists.values() for watch in watchers]
        ended = {watch.operation: None for watch in watches if watch.operation.is_completed}
        return PurgatoryView(
            timer=self.timer.inspect(),
            purgatory_size=self.purgatory_size,
            watch_count=len(watches),
            key_count=len(self._lists),
            empty_list_count=sum(watchers.first is None for watchers in self._lists.values()),
            ended_count=len(ended),
            ended_limit=None if self._is_purging else max(0, self._purge_interval),
        )


@dataclass(frozen=True, slots=True)
class PurgatoryView:
    timer: WheelView
    purgatory_size: int
    watch_count: int
    key_count: int
    empty_list_count: int
    # Operations that have ended and are still in lists, and how many there may be; None: a purge
    # is under way.
    ended_count: int
    ended_limit: int | None

    def problems(self, now_ms: int) -> list[str]:
        """What breaks invariant 24 of the simulation."""
        problems = self.timer.problems(now_ms)
        if self.purgatory_size != self.watch_count:
            problems.append(f"PurgatorySize {self.purgatory_size}, but {self.watch_count} places")
        if self.empty_list_count:
            problems.append(f"{self.empty_list_count} empty watch lists")
        if self.ended_limit is not None and self.ended_count > self.ended_limit:
            problems.append(
                f"{self.ended_count} ended operations watch, at most {self.ended_limit}"
            )
        for placement in self.timer.placements:
            entry = placement.entry
            if isinstance(entry, DelayedOperation) and entry.is_completed:
                problems.append(f"a completed operation is in the timer: {entry!r}")
        return problems
