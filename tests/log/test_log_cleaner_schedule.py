"""Which log is cleaned, how much of it, and which segments become one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from cleaning_rig import COMPACTED, CompactedRig, committed, keyed, state_of
from log_place import Place
from log_rig import NOW_MS, marker

from kraftpy.log.cleaner_schedule import (
    LogToClean,
    choose_dirtiest,
    group_segments,
    survey,
    valid_checkpoint,
)
from kraftpy.log.log_config import LogConfig
from kraftpy.log.pacing import Pace
from kraftpy.log.segment import Segment
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.memory_disk import MemoryDisk

GIB = 1 << 30


@dataclass
class Index:
    size_bytes: int


@dataclass
class Sized:
    """As much of a segment as grouping looks at."""

    base_offset: int
    size_bytes: int
    offset_index: Index
    time_index: Index


def sized(
    *sizes: int, step: int = 10, index_bytes: int = 0, time_index_bytes: int = 0
) -> list[Segment]:
    return [
        Sized(number * step, size, Index(index_bytes), Index(time_index_bytes))  # type: ignore[misc]
        for number, size in enumerate(sizes)
    ]


def shape(groups: list[list[Segment]]) -> list[list[int]]:
    return [[segment.size_bytes for segment in group] for group in groups]


def test_grouping_by_size() -> None:
    """LOG-113: the example of 15.6, in GiB: [0.4, 0.4] [0.3, 0.7] [0.3] [1]."""
    sizes = [int(size * GIB) for size in (0.4, 0.4, 0.3, 0.7, 0.3, 1)]
    groups = group_segments(sized(*sizes), 60, LogConfig())
    assert [[round(size / GIB, 1) for size in group] for group in shape(groups)] == [
        [0.4, 0.4],
        [0.3, 0.7],
        [0.3],
        [1.0],
    ]


def test_a_group_may_fill_a_segment_to_the_byte_and_no_more() -> None:
    config = LogConfig(segment_bytes=100)
    assert shape(group_segments(sized(50, 50), 20, config)) == [[50, 50]]
    assert shape(group_segments(sized(50, 51), 20, config)) == [[50], [51]]
    assert shape(group_segments(sized(101, 1), 20, config)) == [[101], [1]]


def test_grouping_by_index_size() -> None:
    """LOG-113: each index for itself keeps within segment.index.bytes (erratum 6)."""
    config = LogConfig(segment_index_bytes=100)
    assert shape(group_segments(sized(1, 1, 1, index_bytes=50), 30, config)) == [[1, 1], [1]]
    assert shape(group_segments(sized(1, 1, 1, index_bytes=51), 30, config)) == [[1], [1], [1]]
    assert shape(group_segments(sized(1, 1, 1, time_index_bytes=51), 30, config)) == [[1], [1], [1]]
    both = sized(1, 1, index_bytes=50, time_index_bytes=50)
    assert shape(group_segments(both, 20, config)) == [[1, 1]]


def test_grouping_by_offset_span() -> None:
    """LOG-113: what one segment holds is within 31 bits of its base; empty ones don't count."""
    half = 2**30
    assert shape(group_segments(sized(1, 1, step=half), 2 * half, LogConfig())) == [[1, 1]]
    assert shape(group_segments(sized(1, 1, step=half), 2 * half + 1, LogConfig())) == [[1], [1]]
    assert shape(group_segments(sized(1, 0, step=4 * half), 9 * half, LogConfig())) == [[1, 0]]


def test_every_segment_is_in_one_group_in_order() -> None:
    segments = sized(*(number % 7 for number in range(50)))
    groups = group_segments(segments, 500, LogConfig(segment_bytes=10))
    assert [segment for group in groups for segment in group] == segments


@pytest.fixture
async def compacted(place: Place) -> CompactedRig:
    rig = CompactedRig(place.disk, place.directory)
    await rig.start()
    return rig


def target_of(rig: CompactedRig, *, clean: int, dirty: int, overdue_ms: int = 0) -> LogToClean:
    return LogToClean(rig.log, 0, 1, clean, dirty, 0, overdue_ms)


async def rigs(*ratios: float) -> list[CompactedRig]:
    made = []
    for number, ratio in enumerate(ratios):
        disk = MemoryDisk()
        await disk.make_directory(f"/{number}")
        rig = CompactedRig(disk, f"/{number}", replace(COMPACTED, min_cleanable_dirty_ratio=ratio))
        await rig.start()
        made.append(rig)
    return made


async def test_the_dirtiest_log_is_chosen() -> None:
    """LOG-109."""
    logs = await rigs(0.5, 0.5, 0.5)
    targets = [
        target_of(rig, clean=clean, dirty=60) for rig, clean in zip(logs, (40, 10, 30), strict=True)
    ]
    assert choose_dirtiest(targets) is targets[1]
    assert choose_dirtiest([]) is None


async def test_a_log_must_be_dirtier_than_its_topic_says() -> None:
    """LOG-109: strictly, as in Kafka; the largest ratio that is too small, and one beyond."""
    strict, lenient = await rigs(0.5, 0.1)
    assert choose_dirtiest([target_of(strict, clean=50, dirty=50)]) is None
    assert choose_dirtiest([target_of(strict, clean=49, dirty=51)]) is not None
    picked = choose_dirtiest(
        [target_of(strict, clean=50, dirty=50), target_of(lenient, clean=80, dirty=20)]
    )
    assert picked is not None
    assert picked.log is lenient.log


async def test_what_is_overdue_is_cleaned_however_clean_the_log() -> None:
    """max.compaction.lag.ms, but not without anything dirty."""
    (rig,) = await rigs(0.5)
    assert choose_dirtiest([target_of(rig, clean=99, dirty=1, overdue_ms=1)]) is not None
    assert choose_dirtiest([target_of(rig, clean=99, dirty=1)]) is None
    assert choose_dirtiest([target_of(rig, clean=99, dirty=0, overdue_ms=1)]) is None


async def survey_now(rig: CompactedRig, first_dirty_offset: int = 0) -> LogToClean:
    return await survey(
        rig.log, first_dirty_offset, disk=rig.disk, pace=Pace(rig.clock), now_ms=rig.clock.wall_ms()
    )


async def test_the_active_segment_is_left_out(compacted: CompactedRig) -> None:
    """LOG-108: clean, dirty and active segments, counted by bytes."""
    for number in range(3):
        compacted.put(b"k", b"%d" % number)
        compacted.log.roll()
    compacted.put(b"k", b"active")
    size = compacted.log.segments.first.size_bytes
    found = await survey_now(compacted)
    assert (found.end_offset, found.clean_bytes, found.dirty_bytes) == (3, 0, 3 * size)
    found = await survey_now(compacted, 1)
    assert (found.end_offset, found.clean_bytes, found.dirty_bytes) == (3, size, 2 * size)
    assert found.dirty_ratio == pytest.approx(2 / 3)
    found = await survey_now(compacted, 3)
    assert (found.end_offset, found.clean_bytes, found.dirty_bytes) == (3, 3 * size, 0)
    assert not found.is_due


async def test_a_segment_that_is_dirty_in_part_counts_as_dirty(compacted: CompactedRig) -> None:
    compacted.append(keyed((b"a", b"1"), (b"b", b"2")))
    compacted.log.roll()
    found = await survey_now(compacted, 1)
    assert (found.clean_bytes, found.dirty_bytes) == (0, compacted.log.segments.first.size_bytes)


async def test_nothing_from_the_last_stable_offset_on_is_cleaned(compacted: CompactedRig) -> None:
    """LOG-108: a segment that reaches above it waits, whole."""
    compacted.put(b"k", b"0")
    compacted.log.roll()
    compacted.put(b"k", b"1")
    compacted.append(
        keyed((b"k", b"2"), producer_id=7, producer_epoch=0, sequence=0, is_transactional=True)
    )
    compacted.log.roll()
    compacted.put(b"k", b"3")
    compacted.log.roll()
    assert compacted.log.last_stable_offset == 2
    assert (await survey_now(compacted)).end_offset == 1
    compacted.append(marker(7, 0, is_commit=True), origin=AppendOrigin.COORDINATOR)
    compacted.log.roll()
    assert (await survey_now(compacted)).end_offset == 5


async def test_nothing_above_the_high_watermark_is_cleaned(compacted: CompactedRig) -> None:
    """LOG-108."""
    compacted.put(b"k", b"0")
    compacted.log.roll()
    compacted.append(keyed((b"k", b"1")), replicate=False)
    compacted.log.roll()
    assert (await survey_now(compacted)).end_offset == 1


async def test_young_records_are_left_out(compacted: CompactedRig) -> None:
    """LOG-108: min.compaction.lag.ms; a record just old enough, and one a millisecond younger."""
    compacted.log.config = replace(COMPACTED, min_compaction_lag_ms=1_000)
    for age_ms in (5_000, 1_000, 999, 5_000):
        compacted.put(b"k", b"v", NOW_MS - age_ms)
        compacted.log.roll()
    found = await survey_now(compacted)
    assert found.end_offset == 2
    # What is young is in the clean part already: that does not hold back what follows.
    assert (await survey_now(compacted, 3)).end_offset == 4


async def test_without_timestamps_the_age_is_the_files(compacted: CompactedRig) -> None:
    """LOG-108: as with retention, when the file was last changed."""
    compacted.log.config = replace(COMPACTED, min_compaction_lag_ms=1_000)
    compacted.put(b"k", b"v", -1)
    compacted.log.roll()
    changed_ms = (await compacted.disk.stat(compacted.log.segments.first.log_file.path)).modified_ms
    compacted.clock.now_ms = changed_ms + 999
    assert (await survey_now(compacted)).end_offset == 0
    compacted.clock.now_ms = changed_ms + 1_000
    assert (await survey_now(compacted)).end_offset == 1


async def test_overdue_by_the_first_batch_of_the_oldest_dirty_segment(
    compacted: CompactedRig,
) -> None:
    """max.compaction.lag.ms."""
    compacted.log.config = replace(COMPACTED, max_compaction_lag_ms=1_000)
    for age_ms in (9_000, 3_000, 100):
        compacted.put(b"k", b"v", NOW_MS - age_ms)
        compacted.log.roll()
    assert (await survey_now(compacted)).overdue_ms == 8_000
    assert (await survey_now(compacted, 1)).overdue_ms == 2_000
    assert (await survey_now(compacted, 2)).overdue_ms == 0


async def test_a_checkpoint_outside_of_the_log_makes_it_all_dirty(
    compacted: CompactedRig, caplog: pytest.LogCaptureFixture
) -> None:
    """LOG-110: beyond the end, or below the start; retention may pass it without a word."""
    log = compacted.log
    for number in range(10):
        compacted.put(b"k", b"%d" % number)
    log.raise_log_start(4)
    assert valid_checkpoint(log, None) == 4
    assert valid_checkpoint(log, 4) == 4
    assert valid_checkpoint(log, 10) == 10
    assert not caplog.records
    assert valid_checkpoint(log, 11) == 4
    assert valid_checkpoint(log, 3) == 4
    assert len(caplog.records) == 2
    log.config = replace(COMPACTED, is_deleted=True)
    assert valid_checkpoint(log, 3) == 4
    assert len(caplog.records) == 2


async def test_a_segment_with_something_undecided_is_left_even_if_its_start_is_deleted(
    compacted: CompactedRig,
) -> None:
    """LOG-108: or a record that is aborted later would have taken the last committed one along."""
    log = compacted.log
    compacted.put(b"a", b"old")
    compacted.put(b"k", b"committed")
    undecided = keyed(
        (b"k", b"undecided"), producer_id=1, producer_epoch=0, sequence=0, is_transactional=True
    )
    compacted.append(undecided)
    log.roll()
    log.raise_log_start(1)
    found = await survey(log, 1, disk=compacted.disk, pace=Pace(compacted.clock), now_ms=NOW_MS)
    assert (found.end_offset, found.dirty_bytes, found.is_due) == (1, 0, False)
    await compacted.cleaner.clean_dirtiest()
    compacted.append(marker(1, 0, is_commit=False), origin=AppendOrigin.COORDINATOR)
    await compacted.clean()
    assert state_of(committed(log)) == {b"k": b"committed"}
