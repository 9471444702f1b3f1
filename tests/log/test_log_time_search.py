"""Looking for a time takes slices, waits for nothing on the loop, and outlives what happens to the
log meanwhile (LOG-92; decision 1 of the design).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio
from log_rig import NOW_MS, TINY, Owner, Rig, batch, by_time

from kraftpy.log.errors import LogClosedError
from kraftpy.log.offsets import FoundOffset
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.time_search import TimeSearch
from kraftpy.records.builder import BatchBuilder
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_faults import ColdCache


class OneStep(Pace):
    """Every slice is over after one step."""

    @property
    def is_over(self) -> bool:
        return True


def times_in(rig_log: PartitionLog, count: int, *, epoch: int = 0) -> None:
    for index in range(count):
        rig_log.append_as_leader(batch(b"v", timestamp_ms=NOW_MS + index), epoch)


def stepped(log: PartitionLog, timestamp_ms: int | None, steps: int) -> TimeSearch:
    """A search that has made some steps and is not done."""
    search = TimeSearch(log, timestamp_ms)
    pace = OneStep(MemoryClock())
    for _ in range(steps):
        search.run_warm(pace)
    assert not search.is_done
    return search


async def steps_of(log: PartitionLog, timestamp_ms: int | None) -> int:
    search = TimeSearch(log, timestamp_ms)
    pace = OneStep(MemoryClock())
    for count in range(10_000):
        if search.is_done:
            return count
        search.run_warm(pace)
    raise AssertionError("no end")


async def test_a_search_in_a_warm_log_is_done_at_once(rig: Rig) -> None:
    log = await rig.load()
    times_in(log, 60)
    search = TimeSearch(log, NOW_MS + 40)
    search.run_warm(Pace(MemoryClock()))
    assert search.is_done
    assert search.found == FoundOffset(40, NOW_MS + 40, 0)


async def test_every_segment_that_is_not_known_yet_is_a_step(rig: Rig) -> None:
    log = await rig.load()
    times_in(log, 200)
    again = await rig.reload(log)
    count = len(again.segments)
    assert count > 10
    assert await steps_of(again, NOW_MS + 199) >= count - 1
    # They are known now.
    assert await steps_of(again, NOW_MS + 199) < 5


async def test_cold_files_are_not_read_on_the_loop() -> None:
    disk = MemoryDisk()
    rig = Rig(disk, "/data")
    log = await rig.load()
    times_in(log, 100)
    again = await rig.reload(log)
    disk.inject(ColdCache())
    search = TimeSearch(again, NOW_MS + 90)
    for _ in range(3):
        search.run_warm(Pace(MemoryClock()))
        assert search.is_cold
    assert not again.segments.first.knows_largest
    assert await search.run(Pace(MemoryClock())) == FoundOffset(90, NOW_MS + 90, 0)
    # What is known is not asked for again, but the place itself is.
    cold = TimeSearch(again, NOW_MS + 90)
    cold.run_warm(Pace(MemoryClock()))
    assert cold.is_cold


async def test_others_run_between_the_steps(rig: Rig) -> None:
    log = await rig.load()
    times_in(log, 300)
    again = await rig.reload(log)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)

        class Slow(MemoryClock):
            """Every look at it takes a millisecond."""

            seconds = 0.0

            def monotonic(self) -> float:
                Slow.seconds += 0.001
                return Slow.seconds

        found = await TimeSearch(again, None).run(Pace(Slow()))
        nursery.cancel_scope.cancel()
    assert found == FoundOffset(299, NOW_MS + 299, 0)
    assert turns >= len(again.segments) / 3


async def test_a_long_way_to_the_record_is_walked_in_steps() -> None:
    """Times that go back leave the time index with nothing to say for a long stretch."""
    rig = Rig(
        MemoryDisk(), "/data", replace(TINY, segment_bytes=1 << 20, segment_index_bytes=1 << 20)
    )
    log = await rig.load()
    for time in [10, *[5] * 300, 20]:
        log.append_as_leader(batch(b"v", timestamp_ms=NOW_MS + time), 0)
    assert by_time(log, NOW_MS + 15) == FoundOffset(301, NOW_MS + 20, 0)
    assert await steps_of(log, NOW_MS + 15) >= 300


async def test_a_batch_of_many_records_is_looked_through_in_steps() -> None:
    rig = Rig(MemoryDisk(), "/data", replace(TINY, segment_bytes=1 << 20))
    log = await rig.load()
    builder = BatchBuilder()
    for index in range(5_000):
        builder.append(None, None, timestamp_ms=NOW_MS + index)
    log.append_as_leader(builder.build(), 0)
    assert by_time(log, NOW_MS + 4_999) == FoundOffset(4_999, NOW_MS + 4_999, 0)
    assert await steps_of(log, NOW_MS + 4_999) >= 5_000 // 256


# What happens meanwhile.


async def _truncated(log: PartitionLog) -> FoundOffset | None:
    await log.truncate_to(30)
    for index in range(70):
        log.append_as_leader(batch(b"other", timestamp_ms=NOW_MS + 1_000 + index), 1)
    return FoundOffset(30, NOW_MS + 1_000, 1)


async def _truncated_for_good(log: PartitionLog) -> FoundOffset | None:
    await log.truncate_fully_and_start_at(500)
    return None


async def _partly_deleted(log: PartitionLog) -> FoundOffset | None:
    log.update_high_watermark(100)
    log.raise_log_start(95)
    assert await log.delete_old_segments() > 0
    # And their files are gone.
    environment = log._environment
    assert isinstance(environment.owner, Owner)
    for paths, _ in environment.owner.unlinks:
        environment.pool.close_paths(paths)
        for path in paths:
            await environment.disk.unlink(path)
    return FoundOffset(95, NOW_MS + 95, 0)


async def _grown(log: PartitionLog) -> FoundOffset | None:
    times_in(log, 50, epoch=1)
    return FoundOffset(90, NOW_MS + 90, 0)


@pytest.mark.parametrize("event", [_truncated, _truncated_for_good, _partly_deleted, _grown])
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 13, 17, 24])
async def test_a_change_at_any_step(
    rig: Rig, steps: int, event: Callable[[PartitionLog], Awaitable[FoundOffset | None]]
) -> None:
    log = await rig.load()
    times_in(log, 100)
    again = await rig.reload(log)
    search = TimeSearch(again, NOW_MS + 90)
    pace = OneStep(MemoryClock())
    for _ in range(steps):
        search.run_warm(pace)
    was_done, before = search.is_done, search.found
    expected = await event(again)
    found = await search.run(Pace(MemoryClock()))
    assert found == (before if was_done else expected)
    assert rig.owner.failures == []


@pytest.mark.parametrize("steps", [1, 60, 140, 160, 290])
async def test_a_truncation_within_the_segment_that_is_walked(steps: int) -> None:
    """What follows is of another size, so that nothing lies where it lay."""
    config = replace(TINY, segment_bytes=1 << 20, segment_index_bytes=1 << 20)
    rig = Rig(MemoryDisk(), "/data", config)
    log = await rig.load()
    for time in [10, *[5] * 300, 20]:
        log.append_as_leader(batch(b"v", timestamp_ms=NOW_MS + time), 0)
    search = stepped(log, NOW_MS + 15, steps)
    await log.truncate_to(150)
    for time in [*[6] * 200, 30]:
        log.append_as_leader(batch(b"longer", timestamp_ms=NOW_MS + time), 1)
    found = await search.run(Pace(MemoryClock()))
    assert found == FoundOffset(350, NOW_MS + 30, 1)


async def test_a_log_that_closes_ends_the_search(rig: Rig) -> None:
    log = await rig.load()
    times_in(log, 100)
    again = await rig.reload(log)
    search = stepped(again, NOW_MS + 90, 3)
    await again.close()
    with pytest.raises(LogClosedError):
        await search.run(Pace(MemoryClock()))
    assert rig.owner.failures == []


async def test_a_file_that_closes_while_it_is_warmed_harms_nobody() -> None:
    disk = MemoryDisk()
    rig = Rig(disk, "/data")
    log = await rig.load()
    times_in(log, 100)
    again = await rig.reload(log)
    disk.inject(ColdCache())
    search = TimeSearch(again, NOW_MS + 90)
    search.run_warm(Pace(MemoryClock()))
    assert search.is_cold
    await again.close()
    with pytest.raises(LogClosedError):
        await search.run(Pace(MemoryClock()))
    assert rig.owner.failures == []
