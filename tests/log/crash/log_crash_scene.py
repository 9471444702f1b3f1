"""A log at work: its operations, recorded, each with what a crash in its midst may leave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from log_crash_model import Outcome, check, parsed, stored
from log_rig import NOW_MS, TINY, Rig, batch, batch_set, marker

from kraftpy.log.cleaner import Cleaner
from kraftpy.log.cleaner_settings import CleanerSettings
from kraftpy.log.log_config import LogConfig
from kraftpy.log.partition_log import PartitionLog
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.memory_disk import MemoryDisk, Recording
from kraftpy.world.memory_disk_effects import UnsyncedEffect

# Three batches to a segment.
CRASH = replace(TINY, segment_bytes=256, segment_index_bytes=96)
COMPACTED = replace(CRASH, is_compacted=True, is_deleted=False, min_cleanable_dirty_ratio=0.0)
CLEANER = CleanerSettings(map_bytes=100_000, buffer_bytes=300)


@dataclass(frozen=True)
class LogStep:
    """An operation: while it is under way, a crash may leave any of `outcomes`."""

    name: str
    outcomes: tuple[Outcome, ...]
    recovery_point: int
    log_starts: tuple[int, ...]
    effects_until: int
    is_closed: bool = False


class LogScene:
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
        self.is_closed = False
        self.steps: list[LogStep] = []
        self.recording: Recording
        self._sequences: dict[int, int] = {}

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
        self.recording = Recording(self.disk)
        self.steps.clear()

    @asynccontextmanager
    async def step(
        self, name: str, *outcomes: Outcome, log_start: int | None = None
    ) -> AsyncIterator[None]:
        """Around an operation. `log_start`: what it will make the start of the log."""
        known = self.log.log_start_offset
        log_starts = (self.log_start, known, known if log_start is None else log_start)
        step = LogStep(name, outcomes, self.flushed, log_starts, 0)
        yield
        self.steps.append(replace(step, effects_until=len(self.recording.effects)))
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

    # For the explorer.

    def all_steps(self) -> list[LogStep]:
        log_starts = (self.log_start, self.log.log_start_offset)
        count = len(self.recording.effects)
        last = LogStep("afterwards", (self.now(),), self.flushed, log_starts, count, self.is_closed)
        return [*self.steps, last]

    async def reload(self, disk: MemoryDisk, step: LogStep) -> object:
        log = await self._load(disk, step, recovery_point=step.recovery_point)
        return log.log_end_offset, log.epochs.entries

    async def reload_otherwise(self, disk: MemoryDisk, step: LogStep) -> None:
        """Without a recovery point, as after the loss of its checkpoint; and cleanly."""
        await self._load(disk.copy(), step, recovery_point=0)
        if step.is_closed:
            await self._load(disk.copy(), step, recovery_point=step.recovery_point, is_clean=True)

    async def _load(
        self, disk: MemoryDisk, step: LogStep, *, recovery_point: int, is_clean: bool = False
    ) -> PartitionLog:
        log = await Rig(disk, "/data", self.config).load(
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=step.log_starts[0],
        )
        check(log, step.outcomes, log_starts=step.log_starts)
        return log

    # Operations.

    async def append(self, *sets: bytearray, epoch: int = 0) -> None:
        for records in sets:
            data = stamped(records, self.end, epoch)
            end = parsed(data).last_offset + 1
            after = replace(self.now(), batches=(*self.batches, data), end=end)
            async with self.step(f"append at {self.end}", after):
                is_marker = parsed(data).is_control
                origin = AppendOrigin.COORDINATOR if is_marker else AppendOrigin.CLIENT
                self.log.append_as_leader(records, epoch, origin=origin, transaction_version=1)
                self.batches, self.end = after.batches, end

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
                        segment.append(batch_set(data))
                segment.make_inactive()
                new.append(segment)
            assert await self.log.replace_segments(
                new, old, truncation_count=self.log.truncation_count
            )
            self.batches, self.starts = after, new_outcome.starts
            self.dropped = new_outcome.dropped

    async def clean(self) -> None:
        """With the real cleaner, segment by segment: those behind may be as they were."""
        segments = list(self.log.segments)[:-1]
        before = [stored(segment) for segment in segments]
        self.log.update_high_watermark(self.end)
        cleaner = Cleaner(self.disk, self.rig.clock, CLEANER, logs=lambda: [self.log])
        await cleaner.open_directory("/data", [("t", 0)])
        old = self.now()
        dropped = self.batches
        tail = tuple(stored(self.log.active_segment))
        async with self.step("clean", old):
            assert await cleaner.clean_dirtiest()
            after = [stored(segment) for segment in self.log.segments][:-1]
            assert len(after) == len(before)
            outcomes = []
            for count in range(len(before) + 1):
                parts = [*after[:count], *before[count:]]
                batches = (*(data for part in parts for data in part), *tail)
                outcomes.append(replace(old, batches=batches, dropped=dropped))
            self.batches, self.dropped = outcomes[-1].batches, dropped
        self.steps[-1] = replace(self.steps[-1], outcomes=tuple(outcomes))

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
        step = LogStep("recovery", (outcome,), self.flushed, (self.log_start,) * 2, 0)
        await self.open()
        self.steps.append(replace(step, effects_until=len(self.recording.effects)))
        check(self.log, [outcome], log_starts=step.log_starts)
        self.end = self.log.log_end_offset
        self.batches = tuple(data for data in self.batches if _last(data) < self.end)

    async def close(self) -> None:
        step = LogStep("close", (self.now(),), self.flushed, (self.log_start,) * 2, 0)
        await self.log.close()
        self.steps.append(replace(step, effects_until=len(self.recording.effects)))
        self.flushed = self.end
        self.log_start = self.log.log_start_offset
        self.is_closed = True


def stamped(records: bytearray, offset: int, epoch: int) -> bytes:
    """A batch as a leader appends it."""
    return offset.to_bytes(8) + records[8:12] + epoch.to_bytes(4) + records[16:]


def _first(data: bytes) -> int:
    return parsed(data).base_offset


def _last(data: bytes) -> int:
    return parsed(data).last_offset
