"""MemoryReplicaLog and PartitionLog are twins: one suite for both, and one life lived by both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from core_rig import StillClock, batch, batches_in, data_of, values_in
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.broker.memory_replica_log import MemoryReplicaLog
from kraftpy.broker.replica_log import ReplicaLog
from kraftpy.log.errors import OffsetOutOfRangeError, UnexpectedAppendOffsetError
from kraftpy.log.handles import HandlePool
from kraftpy.log.loading import load_log
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.log_reading import ReadableLog
from kraftpy.log.offsets import Isolation, OffsetMetadata
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.records.errors import CorruptRecord
from kraftpy.world import Disk
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.real_disk import RealDisk

# A big segment: where it rolls, a read of the real log ends, and the twin's doesn't.
CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=1, flush_messages=4)


class _Owner:
    def work_pending(self, log: ReadableLog) -> None: ...

    def unlink_later(self, paths: Sequence[str], delay_ms: int) -> None: ...

    def storage_failed(self, log: ReadableLog, error: OSError) -> None:
        raise error


class Twin:
    """Either of them, with truncation and flush awaited where they take time."""

    def __init__(self, log: MemoryReplicaLog | PartitionLog) -> None:
        self._log = log
        self.log: ReplicaLog = log

    async def truncate_to(self, offset: int) -> bool:
        done: Any = self._log.truncate_to(offset)
        return done if isinstance(done, bool) else await done

    async def restart_at(self, offset: int) -> None:
        if isinstance(self._log, MemoryReplicaLog):
            self._log.truncate_fully_and_start_at(offset)
        else:
            await self._log.truncate_fully_and_start_at(offset)

    async def flush(self) -> None:
        if isinstance(self._log, MemoryReplicaLog):
            self._log.flush()
        else:
            await self._log.flush()

    @property
    def producers(self) -> dict[int, int]:
        entries = self._log.producers.producers
        return {producer_id: entry.last_sequence for producer_id, entry in entries.items()}


async def real_log(disk: Disk, directory: str) -> PartitionLog:
    environment = LogEnvironment(
        disk=disk,
        pool=HandlePool(disk, limit=10),
        clock=StillClock(),
        pace=Pace(StillClock()),
        jitter=Random(4),
        owner=_Owner(),
        verify_transactions=False,
    )
    return await load_log(
        environment,
        f"{directory}/t-0",
        ("t", 0),
        CONFIG,
        is_clean=False,
        recovery_point=0,
        log_start_offset=0,
    )


@pytest.fixture(params=["memory twin", "memory disk", "real disk"])
async def twin(request: pytest.FixtureRequest, tmp_path: Path) -> Twin:
    if request.param == "memory twin":
        return Twin(MemoryReplicaLog(StillClock(), CONFIG))
    if request.param == "real disk":
        return Twin(await real_log(RealDisk(), str(tmp_path)))
    disk = MemoryDisk()
    await disk.make_directory("/data")
    return Twin(await real_log(disk, "/data"))


async def test_a_leaders_append(twin: Twin) -> None:
    """REP-1, REP-90: offsets from 0 on, stamped with the epoch; the end is the next offset."""
    log = twin.log
    for index in range(5):
        info = log.append_as_leader(batch(b"a", b"b"), 3)
        assert (info.first_offset, info.last_offset) == (2 * index, 2 * index + 1)
        assert info.must_flush == (index >= 1)
    assert log.log_end_offset == 10
    assert [each.leader_epoch for each in batches_in(log)] == [3] * 5
    assert log.epochs.entries == ((3, 0),)
    assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (0, 0, 0)


async def test_a_followers_append(twin: Twin) -> None:
    """REP-74: as it comes, gaps included; nothing below the end, nothing broken, no later epoch."""
    log = twin.log
    log.append_as_follower(batch(b"a", b"b", base_offset=4, leader_epoch=1), 2)
    assert values_in(log) == {4: (1, b"a"), 5: (1, b"b")}
    with pytest.raises(UnexpectedAppendOffsetError):
        log.append_as_follower(batch(b"x", base_offset=5, leader_epoch=2), 2)
    broken = batch(b"x", base_offset=6, leader_epoch=2)
    broken[-1] ^= 1
    with pytest.raises(CorruptRecord):
        log.append_as_follower(broken, 2)
    info = log.append_as_follower(batch(b"x", base_offset=6, leader_epoch=3), 2)
    assert (info.valid_bytes, log.log_end_offset) == (0, 6)
    assert log.epochs.entries == ((1, 4),)


async def test_who_sees_what(twin: Twin) -> None:
    """REP-4, REP-5, REP-6, REP-34: up to the high watermark, the last stable offset, the end."""
    log = twin.log
    log.append_as_leader(batch(b"a"), 0)
    log.append_as_leader(batch(b"b", producer_id=7, sequence=0, is_transactional=True), 0)
    log.append_as_leader(batch(b"c"), 0)
    assert log.last_stable_offset == 0
    log.update_high_watermark(2)
    assert list(values_in(log, Isolation.LOG_END)) == [0, 1, 2]
    assert list(values_in(log, Isolation.HIGH_WATERMARK)) == [0, 1]
    assert list(values_in(log, Isolation.COMMITTED)) == [0]
    assert log.last_stable_offset == 1
    assert data_of(log.read(3, 100, Isolation.LOG_END)) == b""
    for outside in (-1, 4):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(outside, 100, Isolation.LOG_END)


async def test_limits_of_a_read(twin: Twin) -> None:
    log = twin.log
    for _ in range(3):
        log.append_as_leader(batch(b"a", b"b"), 0)
    size = len(batch(b"a", b"b"))
    assert len(data_of(log.read(2, 2 * size, Isolation.LOG_END))) == 2 * size
    assert len(data_of(log.read(3, 2 * size - 1, Isolation.LOG_END))) == 2 * size - 1
    assert len(data_of(log.read(2, 1, Isolation.LOG_END))) == size
    assert len(data_of(log.read(2, 1, Isolation.LOG_END, min_one_batch=False))) == 1


async def test_watermarks(twin: Twin) -> None:
    """REP-2, REP-3, REP-40, REP-42."""
    log = twin.log
    for _ in range(4):
        log.append_as_leader(batch(b"a"), 0)
    assert log.update_high_watermark(9) == 4
    assert log.update_high_watermark(2) == 2
    with pytest.raises(ValueError, match="-1"):
        log.update_high_watermark(-1)
    with pytest.raises(ValueError, match="5"):
        log.increment_high_watermark(OffsetMetadata(5))
    assert log.increment_high_watermark(OffsetMetadata(3)) is not None
    assert log.increment_high_watermark(OffsetMetadata(2)) is None
    with pytest.raises(OffsetOutOfRangeError):
        log.raise_log_start(4)
    assert log.raise_log_start(3)
    assert not log.raise_log_start(2)
    assert log.update_high_watermark(1) == 3
    assert log.epochs.entries == ((0, 3),)


async def test_truncation(twin: Twin) -> None:
    """REP-2, REP-88: the end, the high watermark, epochs, producers; never an extension."""
    log = twin.log
    for index in range(6):
        log.append_as_leader(batch(b"%d" % index, producer_id=7, sequence=index), index // 2)
    log.update_high_watermark(5)
    await twin.flush()
    assert await twin.truncate_to(3)
    assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (3, 3, 3)
    assert log.epochs.entries == ((0, 0), (1, 2))
    assert twin.producers == {7: 2}
    assert not await twin.truncate_to(3)
    assert not await twin.truncate_to(30)
    assert list(values_in(log)) == [0, 1, 2]
    await twin.restart_at(50)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (50, 50, 50)
    assert (log.epochs.entries, twin.producers) == ((), {})
    assert await twin.truncate_to(40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)


async def test_a_leadership_without_records_leaves_with_a_truncation(twin: Twin) -> None:
    """REP-86, REP-88: else a new leader that does not know the epoch asks for ever."""
    log = twin.log
    log.append_as_leader(batch(b"a"), 0)
    log.begin_epoch(4)
    assert log.epochs.entries == ((0, 0), (4, 1))
    assert not await twin.truncate_to(1)
    assert log.epochs.entries == ((0, 0),)


async def test_where_epochs_end(twin: Twin) -> None:
    """REP-81, REP-82, REP-83: the end for the current, the next known for older, else undefined."""
    log = twin.log
    assert log.end_offset_for_epoch(0) == (-1, -1)
    for epoch in (1, 1, 4):
        log.append_as_leader(batch(b"a"), epoch)
    log.begin_epoch(6)
    log.append_as_leader(batch(b"a"), 6)
    assert [log.end_offset_for_epoch(epoch) for epoch in range(-1, 8)] == [
        (-1, -1),
        (0, 0),
        (1, 2),
        (1, 2),
        (1, 2),
        (4, 3),
        (4, 3),
        (6, 4),
        (-1, -1),
    ]


_OPERATIONS = st.one_of(
    st.tuples(st.just("lead"), st.integers(1, 3), st.integers(0, 2)),
    st.tuples(st.just("produce"), st.integers(7, 8), st.booleans()),
    st.tuples(st.just("replicate"), st.integers(1, 3), st.integers(0, 2)),
    st.tuples(st.just("begin"), st.integers(0, 2)),
    st.tuples(st.just("truncate"), st.integers(0, 12)),
    st.tuples(st.just("restart"), st.integers(0, 30)),
    st.tuples(st.just("watermark"), st.integers(0, 40)),
    st.tuples(st.just("start"), st.integers(0, 12)),
    st.tuples(st.just("flush")),
)


async def _do(twin: Twin, epochs: list[int], operation: tuple[Any, ...]) -> object:
    log = twin.log
    match operation:
        case ("lead", count, step):
            epochs[0] += step
            return log.append_as_leader(batch(*[b"v"] * count), epochs[0])
        case ("produce", producer, is_repeated):
            sequence = twin.producers.get(producer, -1)
            data = batch(b"p", producer_id=producer, sequence=max(sequence + (not is_repeated), 0))
            return log.append_as_leader(data, epochs[0])
        case ("replicate", count, gap):
            base = log.log_end_offset + gap
            data = batch(*[b"r"] * count, base_offset=base, leader_epoch=epochs[0])
            return log.append_as_follower(data, epochs[0])
        case ("begin", step):
            epochs[0] += step
            return log.begin_epoch(epochs[0])
        case ("truncate", back):
            return await twin.truncate_to(max(log.log_end_offset - back, 0))
        case ("restart", offset):
            return await twin.restart_at(offset)
        case ("watermark", offset):
            return log.update_high_watermark(offset)
        case ("start", further):
            return log.raise_log_start(min(log.log_start_offset + further, log.high_watermark))
        case _:
            return await twin.flush()


def _seen(twin: Twin) -> tuple[Any, ...]:
    log = twin.log
    return (
        log.log_start_offset,
        log.last_stable_offset,
        log.high_watermark,
        log.recovery_point,
        log.log_end_offset,
        log.epochs.entries,
        twin.producers,
        [bytes(each.data) for each in batches_in(log)],
        [len(data_of(log.read(log.log_start_offset, size))) for size in (1, 100, 1000)],
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(_OPERATIONS, max_size=25))
def test_twins_lead_the_same_life(operations: list[tuple[Any, ...]]) -> None:
    trio.run(partial(_live, operations))


async def _live(operations: list[tuple[Any, ...]]) -> None:
    disk = MemoryDisk()
    await disk.make_directory("/data")
    twins = [Twin(MemoryReplicaLog(StillClock(), CONFIG)), Twin(await real_log(disk, "/data"))]
    epochs = [[0], [0]]
    for operation in operations:
        answers = [
            await _do(twin, *args)
            for twin, args in zip(twins, ((e, operation) for e in epochs), strict=True)
        ]
        assert answers[0] == answers[1], operation
        assert _seen(twins[0]) == _seen(twins[1]), operation


def test_a_crash_keeps_what_was_flushed_and_a_prefix_of_the_rest() -> None:
    """REP-89: the high watermark is the checkpoint's; epochs without data are gone."""
    for kept, end in ((0, 2), (2, 2), (3, 2), (4, 4), (5, 4), (6, 6), (9, 6)):
        log = MemoryReplicaLog(StillClock(), CONFIG)
        log.append_as_leader(batch(b"a", b"b", producer_id=7, sequence=0), 0)
        log.update_high_watermark(1)
        log.checkpoint_high_watermark()
        log.flush()
        log.append_as_leader(batch(b"c", b"d", producer_id=7, sequence=2), 1)
        log.append_as_leader(batch(b"e", b"f"), 1)
        log.update_high_watermark(6)
        log.begin_epoch(2)
        log.crash(kept)
        assert log.log_end_offset == end, kept
        assert len(values_in(log)) == end
        assert log.high_watermark == 1
        assert log.epochs.latest_epoch == (0 if end == 2 else 1)
        assert log.producers.producers[7].last_sequence == (1 if end == 2 else 3)
        log.check()
