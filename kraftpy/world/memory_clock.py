"""A node's clock in a world whose true time is trio's clock (virtual in simulation).

The facade may run fast or slow, its wall time may jump, and it may be paused together with its
node: a paused clock goes on ticking, as a stopped process's does, but wakes nobody until it is
resumed; then whatever is overdue fires at once.

Deadlines are converted to true time when they are set. A change of rate moves later ones only;
a sleeper that wakes too early because the clock was slowed sleeps on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from math import inf, nextafter
from weakref import WeakValueDictionary

import trio

from kraftpy.world.alarms import TRIO_TIME, Alarm, TrueTime
from kraftpy.world.invariants import assert_always

__all__ = ["MemoryClock"]

# The wall time at true time zero, 2026-01-01: simulated records look like records.
_WALL_START_MS = 1_767_225_600_000
# So that 8.094 seconds are 8094 milliseconds, and not a hair less. Who has slept until then, and
# hears that it is not time yet, sleeps for ever where no time passes between two readings.
_ROUNDING_MS = 1e-6


class _MemoryBell:
    __slots__ = ("_clock", "alarm", "is_rung")

    def __init__(self, clock: MemoryClock) -> None:
        self._clock = clock
        self.alarm = Alarm()
        self.is_rung = False

    def ring(self) -> None:
        # Nobody waits at one that is rung.
        if not self.is_rung:
            self.is_rung = True
            self.alarm.ring()

    def clear(self) -> None:
        self.is_rung = False

    async def wait_until(self, deadline: float) -> None:
        was_rung = self.is_rung
        if was_rung:
            await trio.lowlevel.checkpoint()
            return
        clock = self._clock
        await self.alarm.wait_until(clock._true_time(deadline))
        if not self.is_rung and (clock.is_paused or clock.monotonic() < deadline):
            await clock._wait_on(self, deadline)


class MemoryClock:
    __slots__ = (
        "_anchor_local",
        "_anchor_true",
        "_late_bells",
        "_rate",
        "_resumed",
        "_scope_count",
        "_scopes",
        "_stopped_deadlines",
        "_true",
        "_wall_offset_ms",
    )

    def __init__(
        self,
        *,
        rate: float = 1.0,
        offset_seconds: float = 0.0,
        wall_offset_ms: int = 0,
        true_time: TrueTime = TRIO_TIME,
    ) -> None:
        """`rate` is the local seconds that pass in a true one."""
        assert_always(rate > 0, "clock-rate-not-positive", rate=rate)
        self._rate = rate
        self._true = true_time
        self._anchor_true = 0.0
        self._anchor_local = offset_seconds
        self._wall_offset_ms = _WALL_START_MS + wall_offset_ms - round(offset_seconds * 1000)
        self._resumed: trio.Event | None = None
        # Whose time came while the clock was paused.
        self._late_bells: dict[_MemoryBell, None] = {}
        self._scope_count = 0
        # Scopes handed out and still in use. Weak, because trio tells nobody when one is left.
        self._scopes: WeakValueDictionary[int, trio.CancelScope] = WeakValueDictionary()
        self._stopped_deadlines: dict[int, float] = {}

    @property
    def is_paused(self) -> bool:
        return self._resumed is not None

    def monotonic(self) -> float:
        return self._anchor_local + (self._true.now - self._anchor_true) * self._rate

    def monotonic_ms(self) -> int:
        # As `monotonic`, without the call: nodes ask for little else.
        local = self._anchor_local + (self._true.now - self._anchor_true) * self._rate
        return int(local * 1000 + _ROUNDING_MS)

    def wall_ms(self) -> int:
        return self.monotonic_ms() + self._wall_offset_ms

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until(self.monotonic() + seconds)

    async def sleep_until(self, deadline: float) -> None:
        alarm = Alarm()
        await alarm.wait_until(self._true_time(deadline))
        while self._resumed is not None or self.monotonic() < deadline:
            if self._resumed is not None:
                await self._resumed.wait()
            else:
                # Rounding may leave us a hair early; true time must advance all the same.
                soonest = nextafter(self._true.now, inf)
                await alarm.wait_until(max(soonest, self._true_time(deadline)))

    def bell(self) -> _MemoryBell:
        return _MemoryBell(self)

    async def _wait_on(self, bell: _MemoryBell, deadline: float) -> None:
        """It was woken, and neither has it rung nor has its time come."""
        while not bell.is_rung and (self._resumed is not None or self.monotonic() < deadline):
            if self._resumed is not None:
                # It is resumed, or somebody rings.
                self._late_bells[bell] = None
                try:
                    await bell.alarm.wait_until(inf)
                finally:
                    self._late_bells.pop(bell, None)
            else:
                soonest = nextafter(self._true.now, inf)
                await bell.alarm.wait_until(max(soonest, self._true_time(deadline)))

    def move_on_after(self, seconds: float) -> trio.CancelScope:
        true_seconds = max(0.0, seconds) / self._rate
        number = self._scope_count
        self._scope_count += 1
        if self._resumed is None:
            scope = trio.move_on_after(true_seconds)
        else:
            scope = trio.CancelScope()
            self._stopped_deadlines[number] = self._true.now + true_seconds
        self._scopes[number] = scope
        return scope

    def fail_after(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        return self._fail_after(seconds)

    @contextmanager
    def _fail_after(self, seconds: float) -> Iterator[trio.CancelScope]:
        with self.move_on_after(seconds) as scope:
            yield scope
        if scope.cancelled_caught:
            raise trio.TooSlowError

    def _true_time(self, local: float) -> float:
        return self._anchor_true + (local - self._anchor_local) / self._rate

    # What only a simulation does.

    def set_rate(self, rate: float) -> None:
        """Drift from now on; the time shown does not jump."""
        assert_always(rate > 0, "clock-rate-not-positive", rate=rate)
        self._anchor_local, self._anchor_true = self.monotonic(), self._true.now
        self._rate = rate

    def jump_wall(self, milliseconds: int) -> None:
        self._wall_offset_ms += milliseconds

    def pause(self) -> None:
        """Wake nobody until `resume`. Idempotent."""
        if self._resumed is not None:
            return
        self._resumed = trio.Event()
        for number, scope in sorted(self._scopes.items()):
            if scope.deadline != inf:
                self._stopped_deadlines[number] = scope.deadline
                scope.deadline = inf

    def resume(self) -> None:
        """Idempotent."""
        if self._resumed is None:
            return
        self._resumed.set()
        self._resumed = None
        for bell in self._late_bells:
            bell.alarm.ring()
        for number, deadline in self._stopped_deadlines.items():
            scope = self._scopes.get(number)
            # A scope whose holder set a new deadline meanwhile keeps that one.
            if scope is not None and scope.deadline == inf:
                scope.deadline = deadline
        self._stopped_deadlines.clear()
