"""The hierarchical timing wheel: any number of timers, each at a constant cost.

A level is a ring of 20 buckets, each `tick_ms` wide: 1 ms on the finest level, 20 on the next, 400,
8,000 and so on, as many levels as the farthest deadline needs. A timer lies in the bucket of the
finest level that reaches to its deadline. When the clock comes to the start of a bucket, its timers
move to finer levels, or, from the finest, are due. A timer so moves at most once a level: adding,
cancelling and expiring cost the same with a million timers as with one.

Time does not tick. The buckets that hold something stand in a heap, ordered by their start; there
are at most 20 a level, however many timers they hold. `next_deadline_ms` is the start of the first,
and whoever drives the wheel sleeps until then.

Sans-I/O: `now_ms` is an argument. What is due waits in a chain of its own until it is taken, so
that one timer's code may still cancel the next, and a driver may stop for a while in between.

Invariants:
- The clock of a level is a multiple of its tick. No bucket in the heap starts before it, and none
  ends behind it by more than a turn; that is why a slot number tells a bucket without doubt.
- A bucket is in the heap exactly once while its `expiration_ms` is set. One that cancelling has
  emptied stays there until it comes to the head.
- Timers are due in the order of their deadlines; equal ones in an order that depends only on what
  was added and when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

from kraftpy.purgatory.chain import Chain, Linked
from kraftpy.world import InternalInvariant

__all__ = ["WHEEL_SIZE", "LevelView", "Placement", "TimerEntry", "TimingWheel", "WheelView"]

WHEEL_SIZE = 20
_FINEST_TICK_MS = 1
_NOT_QUEUED = -1
_UNBOUNDED = 1 << 62


class TimerEntry(Linked):
    """Something with a deadline. It is in one wheel at most, and there once."""

    __slots__ = ("deadline_ms",)

    deadline_ms: int

    @property
    def is_pending(self) -> bool:
        """Added, and neither cancelled nor taken as expired since."""
        return self.chain is not None


_Entry = TypeVar("_Entry", bound=TimerEntry)


class _Bucket(Chain[_Entry]):
    __slots__ = ("expiration_ms", "tick_ms", "wheel")

    def __init__(self, wheel: TimingWheel[_Entry], tick_ms: int) -> None:
        super().__init__()
        self.wheel = wheel
        self.tick_ms = tick_ms
        self.expiration_ms = _NOT_QUEUED


class _Level(Generic[_Entry]):
    __slots__ = ("buckets", "coarser", "current_ms", "end_ms", "interval_ms", "tick_ms")

    def __init__(self, wheel: TimingWheel[_Entry], tick_ms: int, start_ms: int) -> None:
        self.tick_ms = tick_ms
        self.interval_ms = tick_ms * WHEEL_SIZE
        self.buckets: list[_Bucket[_Entry]] = [_Bucket(wheel, tick_ms) for _ in range(WHEEL_SIZE)]
        self.coarser: _Level[_Entry] | None = None
        self.set_clock(start_ms)

    def set_clock(self, now_ms: int) -> None:
        self.current_ms = now_ms - now_ms % self.tick_ms
        self.end_ms = self.current_ms + self.interval_ms


class TimingWheel(Generic[_Entry]):
    __slots__ = ("_due", "_finest", "_queue", "_size")

    def __init__(self, start_ms: int) -> None:
        self._finest: _Level[_Entry] = _Level(self, _FINEST_TICK_MS, start_ms)
        # As wide as nothing: what is due and starts anew does not stay here.
        self._due: _Bucket[_Entry] = _Bucket(self, 0)
        # (start, minus the tick, bucket). Of two buckets that start together the coarser comes
        # first, because its timers were added first. No two are equal in both.
        self._queue: list[tuple[int, int, _Bucket[_Entry]]] = []
        self._size = 0

    @property
    def size(self) -> int:
        """How many timers are pending, the due ones that nobody has taken yet included."""
        return self._size

    def add(self, entry: _Entry, deadline_ms: int, now_ms: int) -> None:
        """Start a timer; one that is running starts anew. A deadline in the past is due at once."""
        if entry.chain is not None:
            bucket = self._own(entry.chain)
            if 0 <= deadline_ms - bucket.expiration_ms < bucket.tick_ms:
                # It belongs where it is, as a session does that is prolonged again soon.
                entry.deadline_ms = deadline_ms
                return
            self.cancel(entry)
        entry.deadline_ms = deadline_ms
        if now_ms > self._finest.current_ms:
            self._catch_up(now_ms)
        self._size += 1
        self._place(entry)

    def cancel(self, entry: _Entry) -> bool:
        """Stop a timer. False, and nothing else, if it is not running."""
        chain = entry.chain
        if chain is None:
            return False
        self._own(chain).remove(entry)
        self._size -= 1
        return True

    def _own(self, chain: Chain[_Entry]) -> _Bucket[_Entry]:
        if not isinstance(chain, _Bucket) or chain.wheel is not self:
            raise InternalInvariant("wheel.entry-of-another")
        return chain

    def advance(self, now_ms: int, *, max_moves: int = _UNBOUNDED) -> Iterator[_Entry]:
        """Move the clock on; the result takes out what is due, one by one and in order.

        What is not taken stays due. At most `max_moves` timers change their place; if that was not
        enough, `next_deadline_ms` is still not later than `now_ms`, and this is to be called again.
        """
        queue = self._queue
        while queue and queue[0][0] <= now_ms and max_moves > 0:
            expiration_ms, _, bucket = queue[0]
            self._set_clock(expiration_ms)
            while max_moves > 0 and (entry := bucket.first) is not None:
                bucket.remove(entry)
                self._place(entry)
                max_moves -= 1
            # Whatever was placed lies in buckets that start later, so this one is still the head.
            if bucket.first is None:
                heappop(queue)
                bucket.expiration_ms = _NOT_QUEUED
        self._catch_up(now_ms)
        return self._taken()

    def next_deadline_ms(self) -> int | None:
        """When to call `advance` next: no timer is due before. None: there is no timer.

        It is earlier than the first deadline while that timer lies on a coarse level.
        """
        if self._due.first is not None:
            return self._due.first.deadline_ms
        self._drop_empty_heads()
        return self._queue[0][0] if self._queue else None

    def _taken(self) -> Iterator[_Entry]:
        due = self._due
        while (entry := due.first) is not None:
            due.remove(entry)
            self._size -= 1
            yield entry

    def _place(self, entry: _Entry) -> None:
        deadline_ms = entry.deadline_ms
        level = self._finest
        if deadline_ms < level.current_ms + _FINEST_TICK_MS:
            self._due.append(entry)
            return
        while deadline_ms >= level.end_ms:
            level = level.coarser or self._add_level(level)
        turn = deadline_ms // level.tick_ms
        bucket = level.buckets[turn % WHEEL_SIZE]
        bucket.append(entry)
        expiration_ms = turn * level.tick_ms
        if bucket.expiration_ms != expiration_ms:
            if bucket.expiration_ms != _NOT_QUEUED:
                raise InternalInvariant("wheel.bucket-of-another-turn")
            bucket.expiration_ms = expiration_ms
            heappush(self._queue, (expiration_ms, -level.tick_ms, bucket))

    def _add_level(self, finer: _Level[_Entry]) -> _Level[_Entry]:
        finer.coarser = _Level(self, finer.interval_ms, finer.current_ms)
        return finer.coarser

    def _catch_up(self, now_ms: int) -> None:
        """Move the clock without expiring anything, if nothing stands before `now_ms`.

        A wheel that was idle so puts a new timer where it belongs, instead of on a coarse level
        from which it would have to come down at once.
        """
        self._drop_empty_heads()
        if not self._queue or self._queue[0][0] > now_ms:
            self._set_clock(now_ms)

    def _set_clock(self, now_ms: int) -> None:
        level: _Level[_Entry] | None = self._finest
        while level is not None and now_ms >= level.current_ms + level.tick_ms:
            level.set_clock(now_ms)
            level = level.coarser

    def _drop_empty_heads(self) -> None:
        queue = self._queue
        while queue and queue[0][2].first is None:
            heappop(queue)[2].expiration_ms = _NOT_QUEUED

    def inspect(self) -> WheelView:
        """What is really there, counted by walking over it."""
        levels: list[LevelView] = []
        placements = [Placement(0, 0, _NOT_QUEUED, entry) for entry in self._due]
        level: _Level[_Entry] | None = self._finest
        while level is not None:
            levels.append(LevelView(level.tick_ms, level.interval_ms, level.current_ms))
            placements.extend(
                Placement(len(levels), slot, bucket.expiration_ms, entry)
                for slot, bucket in enumerate(level.buckets)
                if bucket.first is not None
                for entry in bucket
            )
            level = level.coarser
        queued_ms = tuple(sorted(expiration_ms for expiration_ms, _, _ in self._queue))
        return WheelView(self._size, tuple(levels), tuple(placements), queued_ms)


@dataclass(frozen=True, slots=True)
class LevelView:
    tick_ms: int
    interval_ms: int
    current_ms: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a timer is: level 1 is the finest, level 0 holds what is due."""

    level: int
    slot: int
    expiration_ms: int
    entry: TimerEntry


@dataclass(frozen=True, slots=True)
class WheelView:
    size: int
    levels: tuple[LevelView, ...]
    placements: tuple[Placement, ...]
    queued_ms: tuple[int, ...]

    def problems(self, now_ms: int) -> list[str]:
        """What breaks invariant 24: wrong counts, timers that should have gone off."""
        problems = []
        if self.size != len(self.placements):
            problems.append(f"size {self.size}, but {len(self.placements)} timers")
        for placement in self.placements:
            overdue_ms = now_ms - placement.entry.deadline_ms
            if overdue_ms > _FINEST_TICK_MS:
                problems.append(f"a timer is {overdue_ms} ms overdue")
            if placement.level and placement.expiration_ms not in self.queued_ms:
                problems.append(f"bucket {placement.expiration_ms} is not queued")
        return problems
