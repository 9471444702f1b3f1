"""What the tests of the purgatory wait with: a clock set by hand, operations that keep a diary."""

from __future__ import annotations

from collections.abc import Callable

from kraftpy.observe.metrics import MetricRegistry
from kraftpy.purgatory.operation import DelayedOperation
from kraftpy.purgatory.purgatory import Purgatory
from kraftpy.purgatory.timer import Timer, TimerTask
from kraftpy.purgatory.wheel import Placement, TimerEntry, TimingWheel
from kraftpy.world import Bell
from kraftpy.world.real_clock import RealClock


class HandClock:
    """The part of world.Clock that a timer without a reaper uses."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def bell(self) -> Bell:
        """At which nobody waits."""
        return RealClock().bell()


class Note(TimerTask):
    """A task that notes when it ran, and then does what it was given."""

    __slots__ = ("action", "diary", "name")

    def __init__(
        self, name: str, diary: list[str], action: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__()
        self.name = name
        self.diary = diary
        self.action = action

    def run(self) -> None:
        self.diary.append(self.name)
        self.action()


class Waiting(DelayedOperation):
    """Completes once `condition` holds. What happens to it is noted in `diary`."""

    __slots__ = ("condition", "diary", "name", "on_end")

    def __init__(
        self,
        name: str = "operation",
        condition: Callable[[], bool] = lambda: False,
        *,
        delay_ms: int = 30_000,
        diary: list[str] | None = None,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(delay_ms)
        self.name = name
        self.condition = condition
        self.diary = [] if diary is None else diary
        self.on_end = on_end

    def try_complete(self) -> bool:
        return self.condition() and self.force_complete()

    def on_complete(self) -> None:
        self.diary.append(f"{self.name} completed")
        self.on_end()

    def on_expiration(self) -> None:
        self.diary.append(f"{self.name} expired")


class Place:
    """A purgatory whose time is moved by hand."""

    def __init__(self, *, purge_interval: int = 1000, uses_timer: bool = True) -> None:
        self.clock = HandClock()
        self.registry = MetricRegistry()
        self.timer = Timer("timer", self.clock)
        self.purgatory: Purgatory[Waiting] = Purgatory(
            "Test",
            self.timer,
            self.registry,
            purge_interval=purge_interval,
            uses_timer=uses_timer,
        )

    def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.timer.advance()

    def problems(self) -> list[str]:
        return self.purgatory.inspect().problems(self.clock.now_ms)


def placement_of(wheel: TimingWheel[TimerEntry], entry: TimerEntry) -> Placement:
    (found,) = [place for place in wheel.inspect().placements if place.entry is entry]
    return found


def where(wheel: TimingWheel[TimerEntry], entry: TimerEntry) -> tuple[int, int, int]:
    """Level, slot, and start of the bucket."""
    found = placement_of(wheel, entry)
    return found.level, found.slot, found.expiration_ms
