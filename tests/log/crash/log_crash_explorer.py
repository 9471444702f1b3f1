"""Every crash that recorded work can meet: build the state, load it, check it, crash the loading.

At each effect boundary of a scene, for each of the `survivals`, the disk is what a loss of power
there would have left. The scene is loaded from it and judges what it finds, twice, since the second
loading must change nothing; and it is loaded from what a loss of power within the first loading
would have left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Generic, Protocol, TypeVar

from log_crash_states import Survival, files_on, fingerprint, survivals

from kraftpy.world.memory_disk import MemoryDisk, Recording
from kraftpy.world.memory_disk_effects import UnsyncedEffect

SEED = int(os.environ.get("KRAFTPY_CRASH_SEED", "4"))
EVERYTHING = os.environ.get("KRAFTPY_CRASH") == "all"


class Step(Protocol):
    """An operation of a scene; `effects_until`: how many had happened when it returned."""

    @property
    def name(self) -> str: ...

    @property
    def effects_until(self) -> int: ...


StepT = TypeVar("StepT", bound=Step)


class Scene(Protocol[StepT]):
    """Work that was recorded, and a judge of what a crash has left of it."""

    recording: Recording

    def all_steps(self) -> list[StepT]:
        """With a last one, in which nothing is under way any more."""
        ...

    async def reload(self, disk: MemoryDisk, step: StepT) -> object:
        """Load from a disk that was crashed in `step`, and raise AssertionError if it is not well.

        What is returned must be equal when it is done again.
        """
        ...

    async def reload_otherwise(self, disk: MemoryDisk, step: StepT) -> None:
        """Load from copies of that disk in whatever other ways there are."""
        ...


@dataclass
class Tally:
    states: int = 0


@dataclass
class Explorer(Generic[StepT]):
    """Crashes a scene.

    `budget` is how many states are drawn, about; None takes all. Beside them, at each point, those
    in which all or nothing has survived are taken, or that fraction of them.
    """

    scene: Scene[StepT]
    budget: int | None
    extremes: float = 1.0
    random: Random = field(default_factory=lambda: Random(SEED))
    tally: Tally = field(default_factory=Tally)
    _seen: set[tuple[int, bytes]] = field(default_factory=set)

    async def explore(self) -> Tally:
        steps = self.scene.all_steps()
        chances = self._chances()
        effects = self.scene.recording.effects
        disk = self.scene.recording.disk_after(0)
        for point in range(len(effects) + 1):
            if point:
                disk.perform(effects[point - 1])
            # An operation has returned with its last effect.
            number = next(
                (index for index, step in enumerate(steps) if point < step.effects_until),
                len(steps) - 1,
            )
            unsynced = disk.effects()
            for survival in survivals(unsynced, self.random):
                is_extreme = survival.is_plain and len(survival.survivors) in (0, len(unsynced))
                chance = max(chances[survival.is_plain], is_extreme * self.extremes)
                if self.random.random() < chance:
                    place = f"after effect {point} of {len(effects)}, in {steps[number].name!r}"
                    with _noted(place, survival):
                        await self._crash(disk, steps[number], number, survival)
        return self.tally

    def _chances(self) -> dict[bool, float]:
        """Of plain states and of the others: there are many more of those, so they share evenly."""
        if self.budget is None:
            return {True: 1.0, False: 1.0}
        counts = {True: 0, False: 0}
        disk = self.scene.recording.disk_after(0)
        for effect in self.scene.recording.effects:
            disk.perform(effect)
            for survival in survivals(disk.effects(), self.random):
                counts[survival.is_plain] += 1
        return {is_plain: self.budget / 2 / max(1, count) for is_plain, count in counts.items()}

    async def _crash(self, disk: MemoryDisk, step: StepT, number: int, survival: Survival) -> None:
        crashed = disk.copy()
        crashed.crash_keeping(survival.survivors)
        if not self._is_new(number, crashed):
            return
        if survival.is_plain:
            await self.scene.reload_otherwise(crashed, step)
        recording = Recording(crashed)
        found = await self.scene.reload(crashed, step)
        count = len(recording.effects)
        with _noted("second loading"):
            await self._load_again(crashed, step, found)
        is_deep = survival.is_plain and self.budget is None
        points = range(count) if is_deep else [self.random.randrange(count)] if count else []
        for point in points:
            await self._crash_loading(recording.disk_after(point), step, number, is_deep=is_deep)

    def _is_new(self, number: int, disk: MemoryDisk) -> bool:
        """The same bytes need not be loaded twice, unless another step demands more of them."""
        key = (number, fingerprint(disk))
        if key in self._seen:
            return False
        self._seen.add(key)
        self.tally.states += 1
        return True

    async def _load_again(self, disk: MemoryDisk, step: StepT, found: object) -> None:
        before = files_on(disk)
        disk.crash_keeping(disk.effects())
        assert await self.scene.reload(disk, step) == found
        after = files_on(disk)
        changed = {
            name: (before.get(name), after.get(name))
            for name in sorted(before.keys() | after.keys())
            if _without_room(name, before.get(name)) != _without_room(name, after.get(name))
        }
        assert not changed, f"it has changed {changed}"

    async def _crash_loading(
        self, disk: MemoryDisk, step: StepT, number: int, *, is_deep: bool
    ) -> None:
        effects = disk.effects()
        lists: list[Sequence[UnsyncedEffect]] = [
            [effect for effect in effects if self.random.random() < 0.7]
        ]
        if is_deep:
            lists += [effects, []]
        for survivors in lists:
            crashed = disk.copy()
            crashed.crash_keeping(survivors)
            if self._is_new(number, crashed):
                with _noted("crash while loading", Survival("some", tuple(survivors), True)):
                    await self.scene.reload(crashed, step)


@contextmanager
def _noted(what: str, survival: Survival | None = None) -> Iterator[None]:
    """Say in an error what led to it."""
    try:
        yield
    except Exception as error:
        error.add_note(what)
        if survival is not None:
            error.add_note(f"kept: {survival.label}")
            for effect in survival.survivors:
                error.add_note(f"  {effect}")
        raise


def _without_room(name: str, content: bytes | None) -> bytes | None:
    """A file's content; of an index without preallocated room, which a clean start leaves off."""
    if content is None or not name.endswith("index"):
        return content
    return content.rstrip(b"\0")
