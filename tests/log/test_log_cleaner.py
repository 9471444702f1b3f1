"""The cleaner at work: checkpoints, interruptions, trouble, speed limit, slices."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
import trio
from cleaning_rig import COMPACTED, SETTINGS, CompactedRig, keyed, records_in, state_of
from log_place import Place
from log_rig import NOW_MS, batches_in

from kraftpy.log.checkpoints import CLEANER_OFFSET_CHECKPOINT
from kraftpy.log.cleaner import Cleaner
from kraftpy.log.cleaner_settings import CleanerSettings
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.segment import Segment
from kraftpy.log.throttle import Throttle
from kraftpy.records.batch import HEADER_SIZE, RecordBatch, crc32c
from kraftpy.records.compression import Codec
from kraftpy.records.legacy import build_message_set
from kraftpy.records.reader import Record
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_disk_faults import DiskFault, ReadError, SyncError, WriteError

T0 = ("t", 0)


@pytest.fixture
async def rig(place: Place) -> CompactedRig:
    rig = CompactedRig(place.disk, place.directory)
    await rig.start()
    return rig


def fill(rig: CompactedRig, count: int = 60, keys: int = 5) -> None:
    for number in range(count):
        rig.put(b"k%d" % (number % keys), b"v%d" % number)


async def leftovers(rig: CompactedRig) -> list[str]:
    return [*await rig.names(".cleaned"), *await rig.names(".swap")]


# Checkpoints.


async def test_the_checkpoint_advances_and_survives(rig: CompactedRig) -> None:
    """LOG-110."""
    assert rig.cleaner.clean_until(rig.log) is None
    fill(rig, 10)
    assert await rig.clean()
    assert rig.cleaner.clean_until(rig.log) == 10
    rig.put(b"x", b"1")
    await rig.log.close()
    await rig.start(is_clean=True)
    assert rig.cleaner.clean_until(rig.log) == 10
    assert await rig.clean()
    assert rig.cleaner.last_report is not None
    assert rig.cleaner.last_report.first_dirty_offset == 10
    assert rig.cleaner.clean_until(rig.log) == 11
    assert not await rig.clean(), "nothing is dirty"


async def test_the_checkpoint_file_is_kafkas(rig: CompactedRig) -> None:
    """LOG-110, LOG-5: one file in the data directory, for all its logs."""
    fill(rig, 10)
    assert await rig.clean()
    file = rig.disk.open(f"{rig.root}/{CLEANER_OFFSET_CHECKPOINT}")
    assert file.pread(100, 0) == b"0\n1\nt 0 10\n"
    file.close()


async def test_a_damaged_checkpoint_costs_a_cleaning_and_no_more(
    rig: CompactedRig, caplog: pytest.LogCaptureFixture
) -> None:
    fill(rig, 10)
    assert await rig.clean()
    before = records_in(rig.log)
    file = rig.disk.open(f"{rig.root}/{CLEANER_OFFSET_CHECKPOINT}", write=True)
    file.pwrite([b"x"], 0)
    file.close()
    await rig.start(is_clean=True)
    assert "cleaned from their start" in caplog.text
    assert rig.cleaner.clean_until(rig.log) is None
    assert await rig.clean()
    assert records_in(rig.log) == before


async def test_an_impossible_checkpoint_is_mended_before_the_log_outgrows_it(
    rig: CompactedRig,
) -> None:
    """LOG-110: in the file as well."""
    fill(rig, 10)
    assert await rig.clean()
    await rig.cleaner._set_checkpoint(rig.log, 1_000)
    assert await rig.cleaner.clean_dirtiest()
    await rig.cleaner._set_checkpoint(rig.log, 1_000)
    rig.log.config = replace(COMPACTED, min_cleanable_dirty_ratio=1.0)
    assert not await rig.cleaner.clean_dirtiest()
    again = Cleaner(rig.disk, rig.clock, SETTINGS, logs=list)
    await again.open_directory(rig.root, [T0])
    assert again.clean_until(rig.log) == 0


async def test_truncation_lowers_the_checkpoint(rig: CompactedRig) -> None:
    """LOG-110: what is appended behind the cut is dirty, after a restart too."""
    fill(rig, 10)
    assert await rig.clean()
    await rig.cleaner.lower_checkpoint(rig.log, 20)
    assert rig.cleaner.clean_until(rig.log) == 10
    await rig.cleaner.lower_checkpoint(rig.log, 4)
    await rig.cleaner.open_directory(rig.root, [T0])
    assert rig.cleaner.clean_until(rig.log) == 4


async def test_a_deleted_log_leaves_no_checkpoint(rig: CompactedRig) -> None:
    fill(rig, 10)
    assert await rig.clean()
    await rig.cleaner.forget(rig.log)
    await rig.cleaner.open_directory(rig.root, [T0])
    assert rig.cleaner.clean_until(rig.log) is None


async def test_entries_of_logs_that_are_not_there_are_dropped_for_good(rig: CompactedRig) -> None:
    """A crash may have come between a deletion and its entry's."""
    fill(rig, 10)
    assert await rig.clean()
    await rig.cleaner.open_directory(rig.root, [("other", 0)])
    await rig.cleaner.open_directory(rig.root, [T0])
    assert rig.cleaner.clean_until(rig.log) is None


# What is cleaned, and when.


async def test_only_compacted_logs_are_cleaned(rig: CompactedRig) -> None:
    fill(rig)
    rig.log.config = replace(COMPACTED, is_compacted=False)
    assert not await rig.clean()
    rig.log.config = replace(COMPACTED, is_compacted=True)
    assert await rig.clean()


async def test_below_the_ratio_a_log_is_left_alone(rig: CompactedRig) -> None:
    """LOG-109."""
    rig.log.config = replace(COMPACTED, min_cleanable_dirty_ratio=0.5)
    rig.put(b"a", b"x" * 500)
    assert await rig.clean()
    rig.put(b"b", b"x" * 100)
    assert not await rig.clean()
    assert 0 < rig.cleaner.max_dirty_ratio < 0.5
    rig.put(b"c", b"x" * 600)
    assert await rig.clean()


async def test_what_must_be_compacted_in_time_does_not_stay_active(rig: CompactedRig) -> None:
    """max.compaction.lag.ms: a segment rolls by it, however long segment.ms; then it is due."""
    rig.log.config = replace(COMPACTED, max_compaction_lag_ms=1_000, min_cleanable_dirty_ratio=1.0)
    rig.put(b"a", b"1")
    rig.put(b"a", b"2", NOW_MS + 1_000)
    assert len(rig.log.segments) == 1
    rig.put(b"a", b"3", NOW_MS + 1_001)
    assert len(rig.log.segments) == 2
    rig.clock.now_ms += 1_000
    assert not await rig.cleaner.clean_dirtiest()
    rig.clock.now_ms += 1
    assert await rig.cleaner.clean_dirtiest()
    assert [record.value for record in records_in(rig.log)] == [b"2", b"3"]
    rig.log.config = replace(rig.log.config, is_compacted=False)
    rig.put(b"a", b"4", NOW_MS + 5_000)
    assert len(rig.log.segments) == 2


async def test_compact_and_delete_together(rig: CompactedRig) -> None:
    """LOG-116, LOG-103: retention takes old segments, compaction old values of the others."""
    rig.log.config = replace(COMPACTED, is_deleted=True, retention_ms=1_000)
    rig.put(b"old", b"1", NOW_MS - 5_000)
    rig.log.roll()
    rig.put(b"a", b"1")
    rig.put(b"a", b"2")
    assert await rig.log.delete_old_segments() == 1
    assert await rig.clean()
    assert [(record.key, record.value) for record in records_in(rig.log)] == [(b"a", b"2")]
    assert rig.log.log_start_offset == 1
    rig.put(b"b", b"3")
    assert await rig.clean()
    rig.clock.now_ms += 5_000
    assert await rig.log.delete_old_segments() > 0, "what was cleaned grows old as well"
    rig.put(b"c", b"4", NOW_MS + 5_000)
    assert await rig.clean()
    assert [record.key for record in records_in(rig.log)] == [b"c"]
    assert rig.cleaner.clean_until(rig.log) == rig.log.log_end_offset == 5


async def test_an_emptied_segment_does_not_hold_up_retention(rig: CompactedRig) -> None:
    """LOG-116: it has no times, and its files are new; what is behind it is old all the same."""
    rig.log.config = replace(COMPACTED, is_deleted=True, retention_ms=1_000)
    fill(rig, count=30, keys=1)
    assert await rig.clean()
    assert rig.log.segments.first.size_bytes == 0
    rig.clock.now_ms += 5_000
    rig.put(b"young", b"1", rig.clock.now_ms)
    assert await rig.log.delete_old_segments() > 1
    assert [record.key for record in records_in(rig.log)] == [b"young"]
    assert rig.log.log_start_offset == 30


async def test_a_full_map_ends_the_first_pass_early(place: Place) -> None:
    """LOG-111, LOG-110: the checkpoint stops there too, and the next cleaning goes on."""
    rig = CompactedRig(place.disk, place.directory)
    rig.settings = replace(SETTINGS, map_bytes=11 * 24)
    await rig.start()
    for number in range(50):
        rig.append(keyed((b"a%d" % number, b"1"), (b"b%d" % number, b"2")))
    rig.append(keyed((b"a0", b"3"), (b"b49", b"4")))
    before = state_of(records_in(rig.log))
    ends: list[int] = []
    while len(ends) < 102 and await rig.clean():
        report = rig.cleaner.last_report
        assert report is not None
        assert report.key_count <= 9
        assert report.map_bytes <= 11 * 24
        ends.append(report.end_offset)
        assert state_of(records_in(rig.log)) == before
    assert len(ends) > 10
    assert ends == sorted(set(ends)), "every cleaning goes further"
    assert ends[-1] == 102
    assert len(records_in(rig.log)) == 100


async def test_a_batch_with_more_keys_than_the_map_holds(place: Place) -> None:
    """LOG-111: it is cleaned piece by piece; the log is not stuck."""
    rig = CompactedRig(place.disk, place.directory)
    rig.settings = replace(SETTINGS, map_bytes=1)
    await rig.start()
    rig.append(keyed((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2"), (b"a", b"3")))
    rounds = 0
    while rounds < 6 and await rig.clean():
        rounds += 1
    assert rounds == 5
    assert [(r.key, r.value) for r in records_in(rig.log)] == [(b"b", b"2"), (b"a", b"3")]


async def test_batches_larger_than_the_buffer(place: Place) -> None:
    rig = CompactedRig(place.disk, place.directory, replace(COMPACTED, segment_bytes=100_000))
    rig.settings = replace(SETTINGS, buffer_bytes=100)
    await rig.start()
    for number in range(5):
        rig.put(b"a", b"%d" % number * 5_000)
    assert await rig.clean()
    assert [record.value for record in records_in(rig.log)] == [b"4" * 5_000]


async def test_data_below_the_log_start_does_not_come_back(rig: CompactedRig) -> None:
    rig.put(b"a", b"1")
    rig.put(b"b", b"2")
    rig.log.raise_log_start(1)
    assert await rig.clean()
    assert [record.key for record in records_in(rig.log)] == [b"b"]


# Interruptions.


class Gate:
    """Holds up a cleaning where it reads its first bytes of the second pass or before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.reached = trio.Event()
        self.opened = trio.Event()
        self.calls = 0
        original = Throttle.pay

        async def pay(throttle: Throttle, size_bytes: int) -> None:
            self.calls += 1
            if self.calls == at:
                self.reached.set()
                await self.opened.wait()
            await original(throttle, size_bytes)

        monkeypatch.setattr(Throttle, "pay", pay)

    async def wait(self) -> None:
        with trio.fail_after(60):
            await self.reached.wait()


# A call for each batch read: the first pass makes 60, the second 60 and one for each write.
POINTS = [1, 30, 61, 90, 118]


@pytest.mark.parametrize("at", POINTS)
async def test_a_pause_ends_the_cleaning_and_removes_what_it_wrote(
    rig: CompactedRig, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Interruptible at any place; the body of the pause finds a log at rest."""
    fill(rig)
    rig.log.roll()
    gate = Gate(monkeypatch, at)
    results: list[bool] = []

    async def clean() -> None:
        results.append(await rig.cleaner.clean_dirtiest())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(clean)
        await gate.wait()
        async with rig.cleaner.paused(T0):
            assert results == [False] or not rig.cleaner._current
            assert await leftovers(rig) == []
            assert not await rig.cleaner.clean_dirtiest(), "paused logs are passed over"
    assert results == [False]
    assert rig.cleaner.clean_until(rig.log) is None
    assert await rig.cleaner.clean_dirtiest(), "and then it can be done again"
    assert len(records_in(rig.log)) == 5


async def test_pauses_may_overlap(rig: CompactedRig) -> None:
    fill(rig)
    rig.log.roll()
    async with rig.cleaner.paused(T0):
        async with rig.cleaner.paused(T0):
            pass
        assert not await rig.cleaner.clean_dirtiest()
    assert await rig.cleaner.clean_dirtiest()


async def test_a_pause_of_another_partition_does_not_matter(
    rig: CompactedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(rig)
    rig.log.roll()
    gate = Gate(monkeypatch, 70)
    results: list[bool] = []

    async def clean() -> None:
        results.append(await rig.cleaner.clean_dirtiest())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(clean)
        await gate.wait()
        async with rig.cleaner.paused(("t", 1)):
            pass
        gate.opened.set()
    assert results == [True]


@pytest.mark.parametrize("at", POINTS)
async def test_a_truncation_without_a_pause_is_noticed(
    rig: CompactedRig, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """LOG-98: what was read may have been cut since; nothing of it comes back.

    The segment that is cut stays in the log, and grows again to what it was, with other records.
    """
    fill(rig)
    rig.log.roll()
    gate = Gate(monkeypatch, at)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.cleaner.clean_dirtiest)
        await gate.wait()
        truncated = min(segment.base_offset for segment in rig.log.segments) + 4
        await rig.cleaner.lower_checkpoint(rig.log, truncated)
        await rig.log.truncate_to(truncated)
        while rig.log.log_end_offset < 60:
            rig.put(b"k1", b"n%d" % rig.log.log_end_offset)
        expected = state_of(records_in(rig.log))
        assert expected[b"k1"] == b"n59"
        gate.opened.set()
    assert rig.owner.failures == []
    assert rig.cleaner.uncleanable == {}
    assert await leftovers(rig) == []
    assert state_of(records_in(rig.log)) == expected
    assert await rig.clean()
    assert state_of(records_in(rig.log)) == expected


@pytest.mark.parametrize("at", POINTS)
async def test_retention_during_a_cleaning_is_noticed(
    rig: CompactedRig, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """LOG-116: also when the files are unlinked at once and no handle is left open."""
    config = replace(COMPACTED, is_deleted=True, retention_ms=1_000, file_delete_delay_ms=0)
    rig.log.config = config
    fill(rig)
    rig.log.roll()
    rig.pool._limit = 1
    gate = Gate(monkeypatch, at)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.cleaner.clean_dirtiest)
        await gate.wait()
        rig.clock.now_ms += 5_000
        assert await rig.log.delete_old_segments() > 0
        for paths, _ in rig.owner.unlinks:
            for path in paths:
                with suppress(FileNotFoundError):
                    await rig.disk.unlink(path)
        gate.opened.set()
    assert rig.owner.failures == []
    assert rig.cleaner.uncleanable == {}
    assert await leftovers(rig) == []
    assert records_in(rig.log) == []
    assert rig.log.log_start_offset == 60


async def test_appends_and_reads_go_on_meanwhile(
    rig: CompactedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOG-115: the log is in use between any two slices."""
    fill(rig)
    rig.log.roll()
    original = Throttle.pay
    seen: list[int] = []

    async def pay(throttle: Throttle, size_bytes: int) -> None:
        rig.put(b"meanwhile", b"%d" % len(seen))
        state = state_of(records_in(rig.log))
        assert [state.get(b"k%d" % key) for key in range(5)] == [
            b"v%d" % number for number in range(55, 60)
        ]
        assert state[b"meanwhile"] == b"%d" % len(seen)
        seen.append(size_bytes)
        await original(throttle, size_bytes)

    monkeypatch.setattr(Throttle, "pay", pay)
    assert await rig.cleaner.clean_dirtiest()
    assert len(seen) > 100


async def test_cancelled_from_outside_it_leaves_nothing(
    rig: CompactedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(rig)
    rig.log.roll()
    gate = Gate(monkeypatch, 80)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.cleaner.run)
        await gate.wait()
        nursery.cancel_scope.cancel()
    assert await leftovers(rig) == []


async def test_the_task_sleeps_when_nothing_is_dirty(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    await disk.make_directory("/data")
    rig = CompactedRig(disk, "/data")
    await rig.start()
    with trio.move_on_after(100) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.cleaner.run)
            await trio.sleep(40)
            fill(rig)
            rig.log.roll()
            await trio.sleep(4)
            assert rig.cleaner.clean_until(rig.log) is None
            await trio.sleep(2)
            assert rig.cleaner.clean_until(rig.log) == 60
            rig.cleaner.configure(replace(SETTINGS, is_enabled=False))
            fill(rig)
            rig.log.roll()
            await trio.sleep(40)
            assert rig.cleaner.clean_until(rig.log) == 60
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught


# Trouble.


def damage(log: PartitionLog, segment: Segment, position: int, *, fix_crc: bool) -> None:
    """Flip a byte of the first batch; with a right CRC over it, it is a lie."""
    file = segment.log_file
    data = bytearray(file.pread(segment.size_bytes, 0))
    size = RecordBatch(data).size
    data[position] ^= 0x11
    if fix_crc:
        data[17:21] = crc32c(data[21:size]).to_bytes(4, "big")
    file.pwrite([data], 0)


@pytest.mark.parametrize("position", [HEADER_SIZE + 8, 8, 16, 57, HEADER_SIZE])
@pytest.mark.parametrize("fix_crc", [False, True])
@pytest.mark.parametrize("which", [0, 2])
async def test_bad_data_makes_a_log_uncleanable(
    rig: CompactedRig,
    caplog: pytest.LogCaptureFixture,
    position: int,
    fix_crc: bool,
    which: int,
) -> None:
    """One line, the log as it was, and the cleaner goes on with others."""
    fill(rig)
    rig.log.roll()
    segments = list(rig.log.segments)
    damage(rig.log, segments[which], position, fix_crc=fix_crc)
    bytes_before = {name: rig.get(name) for name in await rig.names(".log")}
    cleaned = await rig.cleaner.clean_dirtiest()
    if fix_crc and position == HEADER_SIZE + 8:
        assert cleaned, "another key is no lie"
        return
    assert not cleaned
    assert list(rig.cleaner.uncleanable) == [T0]
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert {name: rig.get(name) for name in await rig.names(".log")} == bytes_before
    assert rig.owner.failures == []
    assert not await rig.cleaner.clean_dirtiest()
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    other = CompactedRig(rig.disk, f"{rig.root}/other")
    await rig.disk.make_directory(other.root)
    await other.start()
    fill(other)
    other.log.roll()
    other.log.topic_partition = ("other", 0)
    await rig.cleaner.open_directory(other.root, [])
    rig.cleaner._logs = lambda: [rig.log, other.log]
    assert await rig.cleaner.clean_dirtiest()


@pytest.mark.parametrize("offsets", [(0, 2, 1, 3), (0, 1, 4, 3), (0, 1, 1, 3), (-5, 1, 2, 3)])
async def test_old_messages_that_lie_about_offsets(
    rig: CompactedRig, offsets: tuple[int, ...]
) -> None:
    """Nothing of them is written again: the log would end there at its next recovery."""
    records = [Record(offset, NOW_MS, b"k%d" % offset, b"v") for offset in offsets]
    rig.log.append_as_follower(build_message_set(records, magic=0, codec=Codec.GZIP), 0)
    rig.put(b"k0", b"so that something goes")
    assert not await rig.clean()
    assert list(rig.cleaner.uncleanable) == [T0]
    assert await leftovers(rig) == []


async def test_damage_that_a_truncation_cuts_off_is_forgiven(rig: CompactedRig) -> None:
    fill(rig)
    rig.log.roll()
    damage(rig.log, list(rig.log.segments)[1], HEADER_SIZE + 8, fix_crc=False)
    assert not await rig.cleaner.clean_dirtiest()
    await rig.cleaner.lower_checkpoint(rig.log, 3)
    await rig.log.truncate_to(3)
    assert await rig.clean()


async def memory_rig() -> tuple[CompactedRig, MemoryDisk]:
    disk = MemoryDisk()
    await disk.make_directory("/data")
    rig = CompactedRig(disk, "/data")
    await rig.start()
    fill(rig)
    rig.log.roll()
    await rig.log.flush()
    return rig, disk


async def test_a_full_disk_is_no_failure() -> None:
    """The log goes on, and the cleaning is done when there is room again."""
    rig, disk = await memory_rig()
    before = state_of(records_in(rig.log))
    disk.capacity_bytes = disk.image.used_bytes() + 300
    assert not await rig.cleaner.clean_dirtiest()
    assert rig.owner.failures == []
    assert rig.cleaner.uncleanable == {}
    assert await leftovers(rig) == []
    assert state_of(records_in(rig.log)) == before
    disk.capacity_bytes = None
    assert await rig.cleaner.clean_dirtiest()


@pytest.mark.parametrize(
    "fault",
    [
        ReadError(paths="*.log", after=5),
        ReadError(paths="*.log", after=20),
        WriteError(paths="*.log.cleaned", error=errno.EIO),
        WriteError(paths="*.index.cleaned", error=errno.EIO),
        SyncError(paths="*.log.cleaned"),
        SyncError(paths="*/t-0", count=1),
        SyncError(paths="*/t-0", after=1, count=1),
        SyncError(paths="*/t-0", after=2, count=1),
        SyncError(paths="*cleaner-offset-checkpoint.tmp"),
    ],
    ids=str,
)
async def test_an_error_of_the_disk_takes_the_directory_offline(fault: DiskFault) -> None:
    """LOG-119: and nothing is lost, whatever was under way. The cleaner itself lives on."""
    rig, disk = await memory_rig()
    before = state_of(records_in(rig.log))
    disk.inject(fault)
    assert not await rig.cleaner.clean_dirtiest()
    assert len(rig.owner.failures) == 1
    assert rig.cleaner.uncleanable == {}
    assert not await rig.cleaner.clean_dirtiest(), "a log that refuses everything"
    disk.heal()
    rig.pool.close()
    again = CompactedRig(disk, "/data")
    await again.start()
    assert state_of(records_in(again.log)) == before
    assert await leftovers(again) == []


async def test_a_failed_sync_of_the_directory_at_every_step_of_the_swap() -> None:
    """LOG-114, LOG-119: what was announced stays for the next start, which knows what it is worth.

    In every group: those at the end have the records that must not be lost.
    """
    for after in range(100):
        rig, disk = await memory_rig()
        before = state_of(records_in(rig.log))
        disk.inject(SyncError(paths="*/t-0", after=after, count=1))
        if await rig.cleaner.clean_dirtiest():
            assert after > 10
            break
        assert len(rig.owner.failures) == 1
        disk.heal()
        rig.pool.close()
        again = CompactedRig(disk, "/data")
        await again.start()
        assert state_of(records_in(again.log)) == before
        assert await leftovers(again) == []
    else:
        pytest.fail("the cleaning never got through")


async def test_a_directory_that_went_offline_is_no_surprise() -> None:
    rig, _ = await memory_rig()
    rig.cleaner.close_directory("/data")
    assert not await rig.cleaner.clean_dirtiest()


# Speed and slices.


async def test_the_throttle_holds_the_speed(autojump_clock: trio.testing.MockClock) -> None:
    """log.cleaner.io.max.bytes.per.second, of reading and writing together."""
    disk = MemoryDisk()
    await disk.make_directory("/data")
    rig = CompactedRig(disk, "/data")
    rig.settings = replace(SETTINGS, max_bytes_per_second=1_000.0)
    await rig.start()
    fill(rig)
    rig.log.roll()
    started = trio.current_time()
    assert await rig.cleaner.clean_dirtiest()
    report = rig.cleaner.last_report
    assert report is not None
    moved = report.read_bytes + report.new_bytes
    elapsed = trio.current_time() - started
    assert moved / 1_000 - 0.2 <= elapsed <= moved / 1_000 + 0.2


async def test_a_throttle_carries_small_debts_and_saves_nothing_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    throttle = Throttle(MemoryClock(), 1_000.0)
    started = trio.current_time()
    await throttle.pay(49)
    assert trio.current_time() == started
    await throttle.pay(51)
    assert trio.current_time() - started == pytest.approx(0.1)
    await trio.sleep(60)
    started = trio.current_time()
    await throttle.pay(500)
    assert trio.current_time() - started == pytest.approx(0.5)
    throttle.bytes_per_second = float("inf")
    await throttle.pay(10**12)
    assert trio.current_time() - started == pytest.approx(0.5)


async def test_a_new_speed_limit_holds_at_once(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryDisk()
    await disk.make_directory("/data")
    rig = CompactedRig(disk, "/data")
    rig.settings = replace(SETTINGS, max_bytes_per_second=1.0)
    await rig.start()
    fill(rig)
    rig.log.roll()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.cleaner.clean_dirtiest)
        await trio.sleep(100)
        rig.cleaner.configure(replace(SETTINGS, max_bytes_per_second=float("inf")))
    assert trio.current_time() < 400
    assert rig.cleaner.clean_until(rig.log) == 60


async def test_the_loop_stays_free_within_a_large_batch(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 1: a batch of many records is worked on in slices, in all three loops over them."""
    rig = CompactedRig(place.disk, place.directory, replace(COMPACTED, segment_bytes=1 << 22))
    rig.settings = replace(SETTINGS, map_bytes=1_000_000)
    await rig.start()
    count = 20_000
    pairs: list[tuple[bytes | None, bytes | None]] = [
        (b"%d" % number, None) for number in range(count)
    ]
    rig.append(keyed(*pairs))
    rig.log.roll()
    turns = rests = 0
    original = Pace.rest

    async def rest(pace: Pace, done_bytes: int) -> None:
        nonlocal rests
        rests += 1
        await original(pace, done_bytes)

    monkeypatch.setattr(Pace, "rest", rest)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        assert await rig.cleaner.clean_dirtiest()
        nursery.cancel_scope.cancel()
    # Noting the keys, sifting, and writing anew with a delete horizon.
    assert rests >= 3 * count // 100
    # Each takes some 20 ms at the very least, in slices of 2 ms.
    assert turns > 20
    (batch,) = batches_in(rig.log)
    assert isinstance(batch, RecordBatch)
    assert batch.records_count == count


async def test_memory_is_taken_for_the_log_at_hand(rig: CompactedRig) -> None:
    """LOG-111: a small log gets a small map, whatever the limit."""
    rig.cleaner.configure(replace(SETTINGS, map_bytes=134_217_728))
    fill(rig)
    assert await rig.clean()
    report = rig.cleaner.last_report
    assert report is not None
    assert report.map_bytes < 10_000


def test_settings_are_kafkas() -> None:
    """LOG-111: log.cleaner.*."""
    assert CleanerSettings() == CleanerSettings(
        is_enabled=True,
        map_bytes=128 * 1024 * 1024,
        map_load_factor=0.9,
        buffer_bytes=512 * 1024,
        max_bytes_per_second=float("inf"),
        backoff_ms=15_000,
    )


async def test_epochs_are_durable_before_their_first_batches_go() -> None:
    """Recovery makes them from batches, and would find them to begin later than they did."""
    disk = MemoryDisk()
    await disk.make_directory("/data")
    await disk.sync_directory("/")
    rig = CompactedRig(disk, "/data")
    log = await rig.start()
    for key, epoch in ((b"a", 0), (b"b", 0), (b"a", 3), (b"c", 3), (b"a", 3)):
        log.append_as_leader(keyed((key, b"v")), epoch)
    log.update_high_watermark(log.log_end_offset)
    assert await rig.clean()
    assert [batch.base_offset for batch in batches_in(log)] == [1, 3, 4]
    disk.crash(CrashPolicy.DROP_ALL, Random(1))
    again = await CompactedRig(disk, "/data").start()
    assert again.epochs.entries == ((0, 0), (3, 2))


async def test_a_reader_of_what_was_replaced_twice_gets_no_other_bytes(place: Place) -> None:
    """LOG-115: the second to leave under a name takes it from the first."""
    rig = CompactedRig(place.disk, place.directory)
    log = await rig.start()
    for turn in range(3):
        rig.put(b"a", b"x" * (turn + 1))
        rig.put(b"b%d" % turn, b"y")
    old = log.read(0, 1 << 20)
    assert old.records is not None
    data = old.records.file.pread(old.records.length, 0)
    assert await rig.clean()
    rig.pool._evict(0)
    assert old.records.file.pread(old.records.length, 0) == data, "by its new name"
    rig.put(b"a", b"z")
    assert await rig.clean()
    rig.pool._evict(0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        old.records.file.pread(old.records.length, 0)
    assert rig.owner.failures == []
