"""A million timers: what adding, cancelling and expiring one costs, beside `heapq`.

Timers are spread over five minutes, as sessions, fetches and produce requests are. The wheel's cost
is printed for 10,000, 100,000 and 1,000,000 pending ones; beyond the processor's caches it should
not depend on that. A heap is C where the wheel is Python. Cancelling in a heap is to mark, and the
dead stay until their time comes: that is why memory is measured after half were cancelled. The
collector is off while the clock runs, for both, and the better of two rounds counts.

Then the reaper: how often it wakes with nothing to do, and how long it keeps the loop while a
million operations come down the levels and expire together.
"""

from __future__ import annotations

import gc
import heapq
import random
import time
import tracemalloc
from collections.abc import Callable

import trio
import trio.testing

from kraftpy.observe.metrics import MetricRegistry
from kraftpy.purgatory.operation import DelayedOperation
from kraftpy.purgatory.purgatory import Purgatory
from kraftpy.purgatory.timer import Timer
from kraftpy.purgatory.wheel import TimerEntry, TimingWheel
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.real_clock import RealClock

COUNTS = (10_000, 100_000, 1_000_000)
SPREAD_MS = 300_000
ROUNDS = 2
SEED = 4711


def main() -> None:
    print(f"   timers over {SPREAD_MS // 1000} s, nanoseconds each (seed {SEED})")
    for count in COUNTS:
        deadlines = random.Random(SEED).choices(range(1, SPREAD_MS), k=count)
        report(count, best(WheelTimers, deadlines), best(HeapTimers, deadlines))
    for timers in (WheelTimers, HeapTimers):
        print(f"   {timers.name}: {pending_bytes(timers):.0f} bytes for each pending timer")
    trio.run(idle, clock=trio.testing.MockClock(autojump_threshold=0))
    measure_events(100_000)
    trio.run(expire_together, 1_000_000)


class WheelTimers:
    name = "wheel"

    def __init__(self) -> None:
        self.wheel: TimingWheel[TimerEntry] = TimingWheel(0)
        self.entries: list[TimerEntry] = []

    def add(self, deadlines: list[int]) -> None:
        add, entries = self.wheel.add, self.entries
        for deadline_ms in deadlines:
            entry = TimerEntry()
            entries.append(entry)
            add(entry, deadline_ms, 0)

    def cancel_half(self) -> None:
        cancel = self.wheel.cancel
        for entry in self.entries[::2]:
            cancel(entry)
        self.entries = self.entries[1::2]

    def expire(self) -> int:
        """One call for each bucket, as the reaper does it."""
        count = 0
        while (deadline_ms := self.wheel.next_deadline_ms()) is not None:
            for _ in self.wheel.advance(deadline_ms):
                count += 1
        return count


class HeapTimer:
    __slots__ = ("is_cancelled",)

    def __init__(self) -> None:
        self.is_cancelled = False


class HeapTimers:
    name = "heapq"

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, HeapTimer]] = []
        self.entries: list[HeapTimer] = []

    def add(self, deadlines: list[int]) -> None:
        heap, entries, push = self.heap, self.entries, heapq.heappush
        for number, deadline_ms in enumerate(deadlines):
            entry = HeapTimer()
            entries.append(entry)
            push(heap, (deadline_ms, number, entry))

    def cancel_half(self) -> None:
        for entry in self.entries[::2]:
            entry.is_cancelled = True
        self.entries = self.entries[1::2]

    def expire(self) -> int:
        heap, pop = self.heap, heapq.heappop
        count = 0
        while heap:
            count += not pop(heap)[2].is_cancelled
        return count


def timed(action: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    action()
    duration = time.perf_counter() - start
    gc.enable()
    return duration


def best(kind: type[WheelTimers] | type[HeapTimers], deadlines: list[int]) -> list[float]:
    rounds = [measure(kind(), deadlines) for _ in range(ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def measure(timers: WheelTimers | HeapTimers, deadlines: list[int]) -> list[float]:
    """Seconds for adding, cancelling and expiring one timer."""
    half = len(deadlines) // 2
    adding = timed(lambda: timers.add(deadlines))
    cancelling = timed(timers.cancel_half)
    expired: list[int] = []
    expiring = timed(lambda: expired.append(timers.expire()))
    assert expired == [half]
    return [adding / len(deadlines), cancelling / half, expiring / half]


def report(count: int, wheel: list[float], heap: list[float]) -> None:
    parts = [
        f"{name} {ours * 1e9:,.0f} ({theirs * 1e9:,.0f})"
        for name, ours, theirs in zip(("add", "cancel", "expire"), wheel, heap, strict=True)
    ]
    print(f"   {count:>9,} pending: wheel (heapq): {', '.join(parts)}")


def pending_bytes(kind: type[WheelTimers] | type[HeapTimers]) -> float:
    deadlines = random.Random(SEED).choices(range(1, SPREAD_MS), k=100_000)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    timers = kind()
    timers.add(deadlines)
    timers.cancel_half()
    timers.entries.clear()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / (len(deadlines) // 2)


class Quiet(DelayedOperation):
    __slots__ = ("is_ready",)

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.is_ready = False

    def try_complete(self) -> bool:
        return self.is_ready and self.force_complete()

    def on_complete(self) -> None:
        pass


async def idle() -> None:
    purgatory: Purgatory[Quiet] = Purgatory("Idle", Timer("idle", MemoryClock()), MetricRegistry())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(purgatory.timer.run)
        await trio.sleep(86_400)
        print(f"   an idle purgatory: {purgatory.timer.wake_count} wake-ups in a day")
        nursery.cancel_scope.cancel()


def measure_events(count: int) -> None:
    """The usual life: an operation waits under two keys and an event completes it."""
    purgatory: Purgatory[Quiet] = Purgatory(
        "Events", Timer("events", RealClock()), MetricRegistry()
    )
    operations = [Quiet(30_000) for _ in range(count)]

    def watch() -> None:
        for number, operation in enumerate(operations):
            purgatory.try_complete_else_watch(operation, (number, number + 1))

    def complete() -> None:
        for number, operation in enumerate(operations):
            operation.is_ready = True
            purgatory.check_and_complete(number)

    watching, completing = timed(watch), timed(complete)
    assert purgatory.delayed_count == 0
    print(
        f"   an operation under two keys: {watching / count * 1e6:.1f} us to wait,"
        f" {completing / count * 1e6:.1f} us to be completed by an event"
    )


async def expire_together(count: int) -> None:
    """How long the loop is kept while they all expire, by somebody who wants to run."""
    purgatory: Purgatory[Quiet] = Purgatory(
        "Together", Timer("together", RealClock()), MetricRegistry()
    )
    timer = purgatory.timer
    start = time.perf_counter()
    for number in range(count):
        timer.add(Quiet(0), 1 + number % 1_000)
    adding = time.perf_counter() - start
    await trio.sleep(1)
    # The collector walks over a million objects for a while; that is not the reaper's doing.
    gc.collect()
    gc.freeze()
    longest = 0.0
    start = time.perf_counter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run)
        # Processor time, because others on this machine may keep it for longer than the reaper.
        before = time.thread_time()
        while timer.size:
            await trio.lowlevel.checkpoint()
            now = time.thread_time()
            longest, before = max(longest, now - before), now
        nursery.cancel_scope.cancel()
    gc.unfreeze()
    expiring = time.perf_counter() - start
    print(
        f"   {count:,} overdue at once: {adding / count * 1e6:.1f} us to add,"
        f" {expiring / count * 1e6:.1f} us to expire,"
        f" the loop kept for {longest * 1e3:.1f} ms at most"
    )


if __name__ == "__main__":
    main()
