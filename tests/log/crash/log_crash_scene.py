"""A log at work, recorded effect by effect, and every crash that its work can meet.

A Scene carries out operations on a log, notes how many effects each had on the disk, and which
outcomes a crash in its midst may have. `explore` then builds the states that a loss of power can
leave at each effect boundary, loads the log from each of them, checks it, loads it again, and
crashes the loading too.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random

from log_crash_model import Outcome, check, parsed
from log_crash_states import Survival, files_below, fingerprint, survivals
from log_rig import NOW_MS, TINY, Rig, batch, marker

from kraftpy.log.log_config import LogConfig
from kraftpy.log.partition_log import PartitionLog
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.memory_disk import MemoryDisk, Recording
from kraftpy.world.memory_disk_effects import UnsyncedEffect

SEED = int(os.environ.get("KRAFTPY_CRASH_SEED", "4"))
EVERYTHING = os.environ.get("KRAFTPY_CRASH") == "all"
# Three batches to a segment.
CRASH = replace(TINY, segment_bytes=256, segment_index_bytes=96)


@dataclass(frozen=True)
class Step:
    """An operation: while it is under way, a crash may leave any of `outcomes`."""

    name: str
    outcomes: tuple[Outcome, ...]
    recovery_point: int
    log_starts: tuple[int, ...]
    effects_until: int
    is_closed: bool = False

    def is_under_way(self, point: int) -> bool:
        """When that many effects have happened. An operation has returned with its last one."""
        return point < self.effects_until or (self.is_closed and point == self.effects_until)


@dataclass
class Tally:
    states: int = 0
    loads: int = 0

    def __iadd__(self, other: Tally) -> Tally:
        self.states += other.states
        self.loads += other.loads
        return self


class Scene:
    """A log with what it holds, as far as the caller of its operations knows."""

    def __init__(self, config: LogConfig = CRASH) -> None:
        self.config = config
        self.disk = MemoryDisk()
        self.log: PartitionLog
        self.batches: tuple[bytes, ...] = ()
        self.dropped: tuple[bytes, ...] = ()
        self.end = 0
        self.flushed = 0
        self.starts = (0,)
        self.log_start = 0
        self.steps: list[Step] = []
        self._recording: Recording
        self._sequences: dict[int, int] = {}

    @property
    def recording(self) -> Recording:
        return self._recording

    async def open(self) -> None:
        """An empty log, or the one that is there after a crash."""
        self.rig = Rig(self.disk, "/data", self.config)
        self.log = await self.rig.load(recovery_point=self.flushed, log_start_offset=self.log_start)

    async def prepare(self) -> None:
        await self.disk.make_directory("/data")
        await self.disk.sync_directory("/")
        self.record()

    def record(self) -> None:
        """What was done so far is not explored."""
        self._recording = Recording(self.disk)
        self.steps.clear()

    @asynccontextmanager
    async def step(self, name: str, *outcomes: Outcome, log_start: int = 0) -> AsyncIterator[None]:
        """Around an operation. `log_start`: what it will make the start of the log."""
        log_starts = (self.log_start, self.log.log_start_offset, log_start)
        step = Step(name, outcomes, self.flushed, log_starts, 0)
        yield
        self.steps.append(replace(step, effects_until=len(self._recording.effects)))
        check(self.log, [self.now(floor=self.end)], log_starts=(self.log.log_start_offset,))

    def now(self, *, floor: int | None = None) -> Outcome:
        """The log as it is; what was not flushed may be lost."""
        return Outcome(
            self.batches,
            self.end,
            self.flushed if floor is None else floor,
            self.starts,
            self.dropped,
        )

    def last_step(self, *, is_closed: bool = False) -> Step:
        """Nothing is under way any more."""
        log_starts = (self.log_start, self.log.log_start_offset)
        count = len(self._recording.effects)
        return Step("afterwards", (self.now(),), self.flushed, log_starts, count, is_closed)

    # Operations.

    async def append(self, *sets: bytearray, epoch: int = 0) -> None:
        for records in sets:
            before = self.batches, self.end
            # Offsets and epoch are stamped in place, so the bytes are known afterwards only.
            trial = self._stamped(records, epoch)
            after = replace(self.now(), batches=(*before[0], trial), end=before[1] + _count(trial))
            async with self.step(f"append at {self.end}", after):
                origin = AppendOrigin.COORDINATOR if _is_control(records) else AppendOrigin.CLIENT
                self.log.append_as_leader(records, epoch, origin=origin, transaction_version=1)
                assert bytes(records) == trial
                self.batches, self.end = after.batches, after.end

    def _stamped(self, records: bytearray, epoch: int) -> bytes:
        copy = bytearray(records)
        copy[0:8] = self.end.to_bytes(8)
        copy[12:16] = epoch.to_bytes(4)
        return bytes(copy)

    async def fill(self, count: int, *, epoch: int = 0, letter: bytes = b"a") -> None:
        """Batches of one record, all of the same size."""
        for _ in range(count):
            value = b"%s%03d" % (letter, self.end)
            # Not always in the order of time.
            time_ms = NOW_MS + self.end - (3 if self.end % 4 == 3 else 0)
            await self.append(batch(value, timestamp_ms=time_ms), epoch=epoch)

    async def produce(
        self, producer_id: int, *, epoch: int = 0, transactional: bool = False
    ) -> None:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + 1
        records = batch(
            b"p%03d" % self.end,
            timestamp_ms=NOW_MS + self.end,
            producer_id=producer_id,
            producer_epoch=0,
            sequence=sequence,
            is_transactional=transactional,
        )
        await self.append(records, epoch=epoch)

    async def finish(self, producer_id: int, *, is_commit: bool, epoch: int = 0) -> None:
        await self.append(marker(producer_id, 0, is_commit=is_commit), epoch=epoch)

    async def work(self) -> None:
        """What the log has asked its owner for."""
        async with self.step("pending work", self.now()):
            await self.log.do_pending_work()
            self.flushed = self.log.recovery_point

    async def flush(self) -> None:
        async with self.step("flush", self.now()):
            await self.log.flush()
            assert self.log.recovery_point == self.end
            self.flushed = self.end

    async def truncate(self, offset: int) -> None:
        lower = replace(self.now(), floor=min(self.flushed, offset))
        async with self.step(f"truncate to {offset}", lower):
            await self.log.truncate_to(offset)
            self.batches = tuple(data for data in self.batches if _last(data) < offset)
            self.end, self.flushed = offset, min(self.flushed, offset)

    async def truncate_fully(self, offset: int) -> None:
        # Without any segment, a log begins where its checkpoint says.
        empty = [
            Outcome((), start, starts=(start,), dropped=self.batches)
            for start in (offset, self.log_start)
        ]
        async with self.step(f"start at {offset}", replace(self.now(), floor=0), *empty):
            await self.log.truncate_fully_and_start_at(offset)
            self.batches, self.end, self.flushed, self.starts = (), offset, offset, (offset,)
            self.log_start = min(self.log_start, offset)

    async def delete_records(self, offset: int) -> None:
        """With the checkpoint that the manager writes afterwards."""
        name = f"delete records before {offset}"
        async with self.step(name, self.now(), log_start=offset):
            self.log.update_high_watermark(self.end)
            self.log.raise_log_start(offset)
            await self.log.do_pending_work()
            self.flushed = self.log.recovery_point
        self.log_start = offset

    async def retain(self, segments: int) -> None:
        """Delete old segments; as many as expected."""
        bases = [segment.base_offset for segment in self.log.segments]
        following = (*bases, self.end)[segments]
        starts = tuple(base for base in (*bases, self.end) if base <= following)
        self.log.update_high_watermark(self.end)
        async with self.step("delete old segments", replace(self.now(), starts=starts)):
            assert await self.log.delete_old_segments() == segments
            self.starts = (following,)
            # A start above what is flushed needs no flush.
            self.flushed = max(self.flushed, following)

    async def replace_segments(
        self, count: int, *cleaned: tuple[int, Sequence[int]], also: Iterable[Outcome] = ()
    ) -> None:
        """Put cleaned segments (base offset, the offsets that stay) in place of the first ones."""
        old = list(self.log.segments)[:count]
        limit = list(self.log.segments)[count].base_offset
        gone = [data for data in self.batches if _first(data) < limit]
        kept = [data for data in gone if any(_first(data) in stays for _, stays in cleaned)]
        after = (*kept, *(data for data in self.batches if _first(data) >= limit))
        dropped = tuple(data for data in gone if data not in kept)
        new_outcome = replace(
            self.now(), batches=after, starts=(cleaned[0][0],), dropped=self.dropped + dropped
        )
        outcomes = [self.now(), new_outcome, *also]
        async with self.step(f"replace {count} segments", *outcomes):
            new = []
            for base_offset, stays in cleaned:
                segment = self.log.create_cleaned_segment(base_offset)
                for data in kept:
                    if _first(data) in stays:
                        segment.append(
                            [data],
                            len(data),
                            largest_offset=_last(data),
                            largest_timestamp_ms=parsed(data).max_timestamp_ms,
                            offset_of_max_timestamp=_last(data),
                        )
                segment.make_inactive()
                new.append(segment)
            assert await self.log.replace_segments(
                new, old, truncation_count=self.log.truncation_count
            )
            self.batches, self.starts = after, new_outcome.starts
            self.dropped = new_outcome.dropped

    async def unlink(self) -> None:
        """What has left the log goes, as it would after a minute."""
        async with self.step("unlink", self.now()):
            for paths, _ in self.rig.owner.unlinks:
                for path in paths:
                    with suppress(FileNotFoundError):
                        await self.disk.unlink(path)
            self.rig.owner.unlinks.clear()

    async def crash(self, survivors: Iterable[UnsyncedEffect]) -> None:
        """Lose power here, and go on with what is left."""
        outcome = self.now()
        self.disk.crash_keeping(survivors)
        step = Step("recovery", (outcome,), self.flushed, (self.log_start,) * 2, 0)
        await self.open()
        self.steps.append(replace(step, effects_until=len(self._recording.effects)))
        check(self.log, [outcome], log_starts=step.log_starts)
        self.end = self.log.log_end_offset
        self.batches = tuple(data for data in self.batches if _last(data) < self.end)

    async def close(self) -> None:
        step = Step("close", (self.now(),), self.flushed, (self.log_start,) * 2, 0)
        await self.log.close()
        self.steps.append(replace(step, effects_until=len(self._recording.effects)))
        self.flushed = self.end
        self.log_start = self.log.log_start_offset
        self.steps.append(self.last_step(is_closed=True))


def _first(data: bytes) -> int:
    return parsed(data).base_offset


def _last(data: bytes) -> int:
    return parsed(data).last_offset


def _count(data: bytes) -> int:
    return parsed(data).last_offset_delta + 1


def _is_control(records: bytearray) -> bool:
    return parsed(bytes(records)).is_control


# Exploring.


@dataclass
class Explorer:
    """Crashes a scene. `budget` bounds the states that are drawn; None takes them all."""

    scene: Scene
    budget: int | None
    random: Random = field(default_factory=lambda: Random(SEED))
    tally: Tally = field(default_factory=Tally)
    _seen: set[tuple[str, int, bytes]] = field(default_factory=set)

    async def explore(self) -> Tally:
        steps = [*self.scene.steps, self.scene.last_step()]
        chance = self._chance()
        disk = self.scene.recording.disk_after(0)
        effects = self.scene.recording.effects
        for point in range(len(effects) + 1):
            if point:
                disk.perform(effects[point - 1])
            step = next((each for each in steps if each.is_under_way(point)), steps[-1])
            unsynced = disk.effects()
            for survival in survivals(unsynced, self.random):
                is_extreme = len(survival.survivors) in (0, len(unsynced)) and survival.is_plain
                if is_extreme or self.random.random() < chance:
                    with _note(
                        f"after effect {point} of {len(effects)}, in {step.name!r}", survival
                    ):
                        await self._crash(disk, step, survival)
        return self.tally

    def _chance(self) -> float:
        if self.budget is None:
            return 1.0
        disk = self.scene.recording.disk_after(0)
        count = 0
        for effect in self.scene.recording.effects:
            disk.perform(effect)
            count += sum(1 for _ in survivals(disk.effects(), self.random))
        return self.budget / max(1, count)

    async def _crash(self, disk: MemoryDisk, step: Step, survival: Survival) -> None:
        crashed = disk.copy()
        crashed.crash_keeping(survival.survivors)
        if not self._is_new(step, crashed):
            return
        self.tally.states += 1
        recording = Recording(crashed)
        await self._load_twice(crashed, step)
        deeply = survival.is_plain if self.budget is None else False
        count = len(recording.effects)
        points = range(count) if deeply else [self.random.randrange(count)] if count else []
        await self._crash_recovery(recording, step, points, deeply=deeply)
        if step.is_closed:
            await self._load_clean(disk, step)

    def _is_new(self, step: Step, disk: MemoryDisk) -> bool:
        """The same bytes need not be loaded twice, unless another step demands more of them."""
        key = (step.name, step.effects_until, fingerprint(disk))
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    async def _load_twice(self, disk: MemoryDisk, step: Step) -> None:
        first = await self._load(disk, step)
        directory = first.directory
        before = files_below(disk, directory)
        disk.crash_keeping(disk.effects())
        with _note("second loading"):
            second = await self._load(disk, step)
            assert second.log_end_offset == first.log_end_offset
            assert second.epochs.entries == first.epochs.entries
            after = files_below(disk, directory)
            changed = {
                name: (before.get(name), after.get(name))
                for name in sorted(before.keys() | after.keys())
                if before.get(name) != after.get(name)
            }
            assert not changed, f"the second loading has changed {changed}"

    async def _crash_recovery(
        self, recording: Recording, step: Step, points: Iterable[int], *, deeply: bool
    ) -> None:
        for point in points:
            disk = recording.disk_after(point)
            effects = disk.effects()
            lists: list[Sequence[UnsyncedEffect]] = [effects, []]
            if not deeply:
                lists = [[effect for effect in effects if self.random.random() < 0.7]]
            for survivors in lists:
                crashed = disk.copy()
                crashed.crash_keeping(survivors)
                if self._is_new(step, crashed):
                    self.tally.states += 1
                    with _note(f"crash after effect {point} of recovery, keeping {survivors}"):
                        await self._load(crashed, step)

    async def _load(self, disk: MemoryDisk, step: Step) -> PartitionLog:
        self.tally.loads += 1
        rig = Rig(disk, "/data", self.scene.config)
        log = await rig.load(
            recovery_point=step.recovery_point, log_start_offset=step.log_starts[0]
        )
        check(log, step.outcomes, log_starts=step.log_starts)
        return log

    async def _load_clean(self, disk: MemoryDisk, step: Step) -> None:
        """After a close, a marker says that nothing need be recovered."""
        crashed = disk.copy()
        crashed.crash_keeping([])
        rig = Rig(crashed, "/data", self.scene.config)
        log = await rig.load(
            is_clean=True, recovery_point=step.recovery_point, log_start_offset=step.log_starts[0]
        )
        check(log, step.outcomes, log_starts=step.log_starts)


@contextmanager
def _note(what: str, survival: Survival | None = None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(what)
        if survival is not None:
            error.add_note(f"kept: {survival.label}")
            for effect in survival.survivors:
                error.add_note(f"  {effect}")
        raise
