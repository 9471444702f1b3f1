"""Retention by time, size and log start (LOG-100 to LOG-106)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from log_rig import NOW_MS, TINY, Rig, batch, data_of, legacy, values_in

from kraftpy.log.log_config import LogConfig
from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog

DAY_MS = 86_400_000
SIZE = len(batch(b"a"))
# Three batches in a segment.
THREES = replace(TINY, segment_bytes=3 * SIZE)


async def filled(rig: Rig, config: LogConfig, *, ages_days: list[int]) -> PartitionLog:
    """A segment for each age, all replicated; the last one is active."""
    rig.config = config
    log = await rig.load()
    for age in ages_days:
        for _ in range(3):
            log.append_as_leader(batch(b"a", timestamp_ms=NOW_MS - age * DAY_MS), 0)
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) == len(ages_days)
    return log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


async def test_by_time(rig: Rig) -> None:
    """LOG-100: seven days by default, by the largest time in the segment."""
    config = replace(THREES, segment_ms=10**15)
    log = await filled(rig, config, ages_days=[9, 8, 7, 1])
    assert await log.delete_old_segments() == 2
    assert bases(log) == [6, 9]
    assert log.log_start_offset == 6
    rig.clock.now_ms += 1
    assert await log.delete_old_segments() == 1
    assert bases(log) == [9]


async def test_one_young_record_keeps_a_segment(rig: Rig) -> None:
    """LOG-100, LOG-104: and all that follow."""
    config = replace(THREES, segment_ms=10**15)
    log = await filled(rig, config, ages_days=[9, 1, 9, 1])
    assert await log.delete_old_segments() == 1
    assert bases(log) == [3, 6, 9]


async def test_no_limit_by_time(rig: Rig) -> None:
    log = await filled(rig, replace(THREES, retention_ms=-1), ages_days=[900, 900, 1])
    assert await log.delete_old_segments() == 0


async def test_without_times_the_file_counts(rig: Rig) -> None:
    """LOG-100, LOG-37."""
    rig.config = THREES
    log = await rig.load()
    for offset in range(3):
        log.append_as_follower(legacy(offset, magic=0), 0)
    log.roll()
    log.update_high_watermark(3)
    modified_ms = (await rig.disk.stat(log.segments.first.log_file.path)).modified_ms
    rig.clock.now_ms = modified_ms + 7 * DAY_MS
    assert await log.delete_old_segments() == 0
    rig.clock.now_ms += 1
    assert await log.delete_old_segments() == 1


@pytest.mark.parametrize(
    ("limit_bytes", "left"),
    [
        (-1, [0, 3, 6, 9]),
        (12 * SIZE, [0, 3, 6, 9]),
        (9 * SIZE + 1, [0, 3, 6, 9]),
        (9 * SIZE, [3, 6, 9]),
        (6 * SIZE + 1, [3, 6, 9]),
        (6 * SIZE, [6, 9]),
        (1, [9]),
        (0, [12]),
    ],
)
async def test_by_size(rig: Rig, limit_bytes: int, left: list[int]) -> None:
    """LOG-101: while the excess covers a whole segment."""
    log = await filled(rig, replace(THREES, retention_bytes=limit_bytes), ages_days=[0] * 4)
    await log.delete_old_segments()
    assert bases(log) == left


async def test_by_log_start(rig: Rig) -> None:
    """LOG-102: start 25, bases 0, 11, 23."""
    log = await rig.load()
    for base in (11, 23):
        log.append_as_follower(batch(b"a", base_offset=base - 1), 0)
        log.roll()
    log.append_as_follower(batch(b"a", base_offset=30), 0)
    assert bases(log) == [0, 11, 23]
    log.update_high_watermark(31)
    log.raise_log_start(25)
    assert await log.delete_old_segments() == 2
    assert bases(log) == [23]
    assert log.log_start_offset == 25


async def test_compacted_topics_keep_to_the_log_start(rig: Rig) -> None:
    """LOG-103."""
    config = replace(THREES, is_compacted=True, is_deleted=False, retention_bytes=1)
    log = await filled(rig, config, ages_days=[9, 9, 9])
    assert await log.delete_old_segments() == 0
    log.raise_log_start(4)
    assert await log.delete_old_segments() == 1


async def test_both_policies(rig: Rig) -> None:
    """LOG-116: its part."""
    config = replace(THREES, is_compacted=True, is_deleted=True, segment_ms=10**15)
    log = await filled(rig, config, ages_days=[9, 9, 1])
    assert await log.delete_old_segments() == 2


@pytest.mark.parametrize(("high_watermark", "left"), [(5, [3, 6]), (6, [6]), (2, [0, 3, 6])])
async def test_nothing_above_the_high_watermark(
    rig: Rig, high_watermark: int, left: list[int]
) -> None:
    """LOG-104."""
    config = replace(THREES, segment_ms=10**15)
    log = await filled(rig, config, ages_days=[9, 9, 9])
    log.update_high_watermark(high_watermark)
    await log.delete_old_segments()
    assert bases(log) == left


async def test_everything_expires(rig: Rig) -> None:
    """LOG-105, LOG-64: a new segment first; LOG-104: an empty one is left alone."""
    config = replace(THREES, segment_ms=10**15)
    log = await filled(rig, config, ages_days=[9, 9])
    assert await log.delete_old_segments() == 2
    assert bases(log) == [6]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (6, 6, 6)
    assert await log.delete_old_segments() == 0
    log.append_as_leader(batch(b"new"), 0)
    assert values_in(log) == {6: b"new"}
    again = await rig.reload(log)
    assert (again.log_start_offset, again.log_end_offset) == (6, 7)


async def test_deleted_files_stay_for_a_while(rig: Rig) -> None:
    """LOG-106: renamed, readable for who is reading, and to be removed after a minute."""
    config = replace(THREES, segment_ms=10**15)
    log = await filled(rig, config, ages_days=[9, 1])
    await log.flush()
    read = log.read(0, 1 << 20, Isolation.LOG_END)
    content = data_of(read)
    assert await log.delete_old_segments() == 1
    deleted = [
        f"{rig.directory}/00000000000000000000{kind}.deleted"
        for kind in (".log", ".index", ".timeindex")
    ]
    assert rig.owner.unlinks == [(deleted, 60_000)]
    assert await rig.names("00000000000000000000.log") == ["00000000000000000000.log.deleted"]
    assert data_of(read) == content


async def test_snapshots_go_with_their_segments(rig: Rig) -> None:
    config = replace(THREES, segment_ms=10**15)
    log = await filled(rig, config, ages_days=[9, 9, 1])
    await log.do_pending_work()
    assert await rig.names(".snapshot") == [
        "00000000000000000003.snapshot",
        "00000000000000000006.snapshot",
    ]
    await log.delete_old_segments()
    assert await rig.names(".snapshot") == ["00000000000000000006.snapshot"]


async def test_what_is_appended_while_retention_looks_is_not_old(rig: Rig) -> None:
    """LOG-100: by the file's time, which is asked for in another thread."""
    rig.config = replace(TINY, retention_ms=1_000)
    log = await rig.load()
    log.append_as_leader(batch(b"old", timestamp_ms=-1), 0)
    log.update_high_watermark(1)
    modified = await rig.disk.stat(log.active_segment.log_file.path)
    rig.clock.now_ms = modified.modified_ms + 2_000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.delete_old_segments)
        while not log._turn.locked():
            await trio.lowlevel.checkpoint()
        log.append_as_leader(batch(b"new", timestamp_ms=-1), 0)
    assert values_in(log)[1] == b"new"
