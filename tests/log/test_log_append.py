"""Appending as leader and as follower (LOG-75 to LOG-85) and rolling (LOG-93 to LOG-97)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from log_rig import APPEND_TIME, NOW_MS, TINY, Rig, batch, batches_in, legacy, marker, values_in

from kraftpy.log.errors import (
    LogClosedError,
    OffsetsOutOfOrderError,
    OutOfOrderSequenceError,
    RecordBatchTooLargeError,
    UnexpectedAppendOffsetError,
)
from kraftpy.log.log_files import LogFiles
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.segment import Segment
from kraftpy.observe.topic_metrics import BYTES_REJECTED, INVALID_CRC
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.batch import RecordBatch, TimestampType
from kraftpy.records.compression import Codec
from kraftpy.records.errors import CorruptRecord, InvalidRecord, InvalidTimestamp, RecordTooLarge
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import InternalInvariant


def state(log: PartitionLog) -> tuple[object, ...]:
    """What a refused append must not change."""
    return (
        log.log_end,
        log.log_start_offset,
        log.high_watermark,
        [(segment.base_offset, segment.size_bytes) for segment in log.segments],
        [segment.offset_index.entry_count for segment in log.segments],
        log.epochs.entries,
        dict(log.producers.producers),
    )


# As leader.


async def test_a_leader_assigns_offsets_and_its_epoch(rig: Rig) -> None:
    """LOG-75, LOG-67."""
    log = await rig.load()
    first = log.append_as_leader(batch(b"a", b"b"), 3)
    assert (first.first_offset, first.last_offset, first.batch_count) == (0, 1, 1)
    second = log.append_as_leader(batch(b"c"), 4)
    assert (second.first_offset, second.last_offset) == (2, 2)
    assert log.log_end_offset == 3
    stored = batches_in(log)
    assert [stored.last_offset for stored in stored] == [1, 2]
    assert [s.leader_epoch for s in stored if isinstance(s, RecordBatch)] == [3, 4]
    assert values_in(log) == {0: b"a", 1: b"b", 2: b"c"}


async def test_a_log_that_is_being_closed_takes_nothing_more(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes behind the last sync would not be durable, as a clean shutdown says that it is."""
    log = await rig.load()
    log.append_as_leader(batch(b"a"), 3)
    sync = LogFiles.sync
    refusals = []

    async def sync_and_try(self: LogFiles, segments: Sequence[Segment]) -> None:
        await sync(self, segments)
        with pytest.raises(LogClosedError):
            log.append_as_leader(batch(b"late"), 3)
        refusals.append(log.log_end_offset)

    monkeypatch.setattr(LogFiles, "sync", sync_and_try)
    await log.close()
    assert refusals == [1]
    assert log.recovery_point == 1


async def test_several_batches_at_once(rig: Rig) -> None:
    """LOG-75: of the coordinators' and of Raft's appends."""
    log = await rig.load()
    log.append_as_leader(batch(b"0"), 0)
    info = log.append_as_leader(
        batch(b"1", b"2") + batch(b"3", timestamp_ms=NOW_MS + 5) + batch(b"4"),
        0,
        origin=AppendOrigin.COORDINATOR,
    )
    assert (info.first_offset, info.last_offset, info.batch_count) == (1, 4, 3)
    assert (info.max_timestamp_ms, info.offset_of_max_timestamp) == (NOW_MS + 5, 3)
    assert values_in(log) == {offset: b"%d" % offset for offset in range(5)}


async def test_a_batch_cut_short_at_the_end_is_left_out(rig: Rig) -> None:
    """LOG-75: step 2."""
    log = await rig.load()
    whole = batch(b"a")
    info = log.append_as_leader(whole + batch(b"b")[:-1], 0)
    assert (info.batch_count, info.valid_bytes) == (1, len(whole))
    assert log.log_end_offset == 1


async def test_nothing_to_append(rig: Rig) -> None:
    """LOG-82."""
    log = await rig.load()
    log.append_as_leader(batch(b"a"), 0)
    before = state(log)
    for nothing in (b"", bytes(batch(b"x")[:-1])):
        info = log.append_as_leader(bytearray(nothing), 5)
        assert (info.first_offset, info.last_offset, info.batch_count) == (-1, -1, 0)
        assert log.append_as_follower(nothing, 5).batch_count == 0
    assert state(log) == before


def damaged(position: int) -> bytearray:
    data = batch(b"a")
    data[position] ^= 1
    return data


@pytest.mark.parametrize(
    ("records", "error", "code"),
    [
        # LOG-76
        (batch(b"a", base_offset=1), InvalidRecord, ErrorCode.INVALID_RECORD),
        # LOG-77
        (batch(b"a" * 600), RecordTooLarge, ErrorCode.MESSAGE_TOO_LARGE),
        # LOG-78
        (damaged(65), CorruptRecord, ErrorCode.CORRUPT_MESSAGE),
        (damaged(30), CorruptRecord, ErrorCode.CORRUPT_MESSAGE),
        (damaged(16), CorruptRecord, ErrorCode.CORRUPT_MESSAGE),
        (
            batch(b"a", timestamp_ms=NOW_MS + 3_600_001),
            InvalidTimestamp,
            ErrorCode.INVALID_TIMESTAMP,
        ),
        (marker(5, 0, is_commit=True), InvalidRecord, ErrorCode.INVALID_RECORD),
        (legacy(0), InvalidRecord, ErrorCode.INVALID_RECORD),
        # The second of two batches.
        (batch(b"fine") + damaged(65), CorruptRecord, ErrorCode.CORRUPT_MESSAGE),
    ],
)
async def test_a_refused_append_changes_nothing(
    rig: Rig, records: bytearray, error: type[CorruptRecord], code: ErrorCode
) -> None:
    """LOG-76, LOG-77, LOG-78, LOG-82."""
    rig.config = replace(TINY, max_message_bytes=500)
    log = await rig.load()
    log.append_as_leader(batch(b"a"), 0)
    before = state(log)
    with pytest.raises(error) as caught:
        log.append_as_leader(bytearray(records), 9)
    assert caught.value.error_code == code
    assert state(log) == before
    assert values_in(log) == {0: b"a"}


async def test_refused_batches_are_counted(rig: Rig) -> None:
    """LOG-77: bytes by topic and in all; LOG-78: in all; nothing for what is appended."""
    rig.config = replace(TINY, max_message_bytes=500)
    log = await rig.load()
    log.append_as_leader(batch(b"a"), 0)
    large = batch(b"a" * 600)
    with pytest.raises(RecordTooLarge):
        log.append_as_leader(large, 0)
    with pytest.raises(CorruptRecord):
        log.append_as_leader(damaged(65), 0)
    with pytest.raises(CorruptRecord):
        log.append_as_follower(damaged(65), 0)
    assert rig.metric_count(BYTES_REJECTED) == len(large)
    assert rig.metric_count(BYTES_REJECTED, "t") == len(large)
    assert rig.metric_count(INVALID_CRC) == 2


async def test_the_size_is_checked_again_after_recompression(rig: Rig) -> None:
    """LOG-77, LOG-22."""
    packed = batch(b"a" * 4000, codec=Codec.GZIP)
    rig.config = replace(TINY, max_message_bytes=500, codec=Codec.NONE, segment_bytes=100_000)
    log = await rig.load()
    assert len(packed) < 500
    with pytest.raises(RecordTooLarge):
        log.append_as_leader(packed, 0)
    assert log.log_end_offset == 0


async def test_a_topic_with_a_codec_of_its_own(rig: Rig) -> None:
    """LOG-22: what is stored has it."""
    rig.config = replace(TINY, codec=Codec.LZ4)
    log = await rig.load()
    log.append_as_leader(batch(b"a", b"b", codec=Codec.GZIP), 0)
    (stored,) = batches_in(log)
    assert stored.codec is Codec.LZ4
    assert values_in(log) == {0: b"a", 1: b"b"}


@pytest.mark.parametrize(("excess", "fits"), [(0, True), (1, False)])
async def test_a_set_must_fit_into_a_segment(rig: Rig, excess: int, fits: bool) -> None:
    """LOG-79."""
    records = batch(b"a" * 300) + batch(b"b" * 300)
    rig.config = replace(TINY, segment_bytes=len(records) - excess)
    log = await rig.load()
    if fits:
        log.append_as_leader(records, 0)
        return
    with pytest.raises(RecordBatchTooLargeError) as caught:
        log.append_as_leader(records, 0)
    assert caught.value.error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


async def test_log_append_time(rig: Rig) -> None:
    """LOG-81."""
    rig.config = replace(TINY, timestamp_type=APPEND_TIME)
    log = await rig.load()
    info = log.append_as_leader(batch(b"a", timestamp_ms=5), 0)
    assert info.log_append_time_ms == info.max_timestamp_ms == NOW_MS
    (stored,) = batches_in(log)
    assert stored.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert stored.max_timestamp_ms == NOW_MS


async def test_create_time(rig: Rig) -> None:
    """LOG-81."""
    log = await rig.load()
    info = log.append_as_leader(batch(b"a", timestamp_ms=5), 0)
    assert info.log_append_time_ms == -1
    assert info.max_timestamp_ms == 5


async def test_a_repeated_batch_is_not_written_again(rig: Rig) -> None:
    """LOG-83."""
    log = await rig.load()
    for sequence in range(3):
        log.append_as_leader(
            batch(b"%d" % sequence, producer_id=7, producer_epoch=0, sequence=sequence), 0
        )
    before = state(log)
    info = log.append_as_leader(batch(b"1", producer_id=7, producer_epoch=0, sequence=1), 0)
    assert info.is_duplicate
    assert (info.first_offset, info.last_offset) == (1, 1)
    assert info.log_append_time_ms == NOW_MS
    assert state(log) == before
    with pytest.raises(OutOfOrderSequenceError):
        log.append_as_leader(batch(b"x", producer_id=7, producer_epoch=0, sequence=4), 0)
    assert state(log) == before


async def test_epochs_of_what_is_appended(rig: Rig) -> None:
    """LOG-84, LOG-99."""
    log = await rig.load()
    for epoch in (0, 0, 2, 5):
        log.append_as_leader(batch(b"a"), epoch)
    assert log.epochs.entries == ((0, 0), (2, 2), (5, 3))
    assert log.end_offset_for_epoch(5) == (5, 4)
    assert log.end_offset_for_epoch(2) == (2, 3)
    assert log.end_offset_for_epoch(1) == (0, 2)
    log.append_as_follower(legacy(4), 5)
    assert log.epochs.entries == ()
    await log.do_pending_work()
    assert rig.get("leader-epoch-checkpoint") == b"0\n0\n"


@pytest.mark.parametrize(("count", "flushes"), [(2, False), (3, True)])
async def test_flush_when_enough_is_unflushed(rig: Rig, count: int, flushes: bool) -> None:
    """LOG-85."""
    rig.config = replace(TINY, flush_messages=3)
    log = await rig.load()
    infos = [log.append_as_leader(batch(b"a"), 0) for _ in range(count)]
    assert [info.must_flush for info in infos] == [False, False, True][:count]
    await log.do_pending_work()
    assert log.recovery_point == (3 if flushes else 0)
    assert not log.append_as_leader(batch(b"a"), 0).must_flush or not flushes


# As follower.


async def test_a_follower_keeps_the_bytes(rig: Rig) -> None:
    """LOG-80."""
    log = await rig.load()
    first = batch(b"a", b"b", base_offset=0, leader_epoch=3)
    second = batch(b"c", base_offset=7, leader_epoch=4)
    info = log.append_as_follower(first + second, 4)
    assert (info.first_offset, info.last_offset) == (0, 7)
    assert rig.get("00000000000000000000.log") == first + second
    assert log.log_end_offset == 8
    assert log.epochs.entries == ((3, 0), (4, 7))


async def test_a_follower_refuses_what_does_not_grow(rig: Rig) -> None:
    """LOG-80, LOG-82."""
    log = await rig.load()
    log.append_as_follower(batch(b"a", base_offset=5, leader_epoch=0), 0)
    before = state(log)
    with pytest.raises(OffsetsOutOfOrderError):
        log.append_as_follower(batch(b"a", base_offset=7) + batch(b"b", base_offset=7), 0)
    with pytest.raises(OffsetsOutOfOrderError):
        log.append_as_follower(batch(b"a", b"b", base_offset=7) + batch(b"c", base_offset=8), 0)
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        log.append_as_follower(batch(b"a", base_offset=5) + batch(b"b", base_offset=6), 0)
    assert (caught.value.first_offset, caught.value.last_offset) == (5, 6)
    with pytest.raises(CorruptRecord):
        log.append_as_follower(damaged(65), 0)
    assert state(log) == before


async def test_a_follower_leaves_later_epochs_out(rig: Rig) -> None:
    """What a newer leader has written comes again when its epoch is known here."""
    log = await rig.load()
    old = batch(b"a", base_offset=0, leader_epoch=3)
    info = log.append_as_follower(
        old
        + batch(b"b", base_offset=1, leader_epoch=4)
        + batch(b"c", base_offset=2, leader_epoch=3),
        3,
    )
    assert (info.last_offset, info.batch_count, info.valid_bytes) == (0, 1, len(old))
    assert log.log_end_offset == 1


# Rolling.


async def test_roll_by_size(rig: Rig) -> None:
    """LOG-93: a segment that would become larger than segment.bytes."""
    size = len(batch(b"a"))
    rig.config = replace(TINY, segment_bytes=3 * size)
    log = await rig.load()
    for _ in range(3):
        log.append_as_leader(batch(b"a"), 0)
    assert len(log.segments) == 1
    log.append_as_leader(batch(b"a"), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 3]


async def test_roll_by_age(rig: Rig) -> None:
    """LOG-94: of the first batch, by the times in the records, with jitter."""
    rig.config = replace(TINY, segment_ms=1000)
    log = await rig.load()
    log.append_as_leader(batch(b"a", timestamp_ms=NOW_MS - 50_000), 0)
    assert len(log.segments) == 1
    log.append_as_leader(batch(b"a", timestamp_ms=NOW_MS - 49_000), 0)
    assert len(log.segments) == 1
    log.append_as_leader(batch(b"a", timestamp_ms=NOW_MS - 48_999), 0)
    assert len(log.segments) == 2
    # An empty segment is not rolled, however old.
    await log.truncate_to(2)
    rig.clock.now_ms += 1_000_000
    log.append_as_leader(batch(b"a", timestamp_ms=NOW_MS), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


async def test_jitter_brings_a_roll_forward(rig: Rig) -> None:
    """LOG-94: by less than the jitter, and no more than segment.ms."""
    rig.config = replace(TINY, segment_ms=1000, segment_jitter_ms=500)
    log = await rig.load()
    jitters = []
    for _ in range(40):
        jitters.append(log.roll(log.log_end_offset)._roll_jitter_ms)
        log.append_as_leader(batch(b"a"), 0)
    assert all(0 <= jitter < 500 for jitter in jitters)
    assert len(set(jitters)) > 10


async def test_roll_when_an_index_is_full(rig: Rig) -> None:
    """LOG-95: three slots of 12 bytes, one of them kept, are four of 8."""
    rig.config = replace(TINY, segment_index_bytes=36)
    log = await rig.load()
    for index in range(12):
        log.append_as_leader(batch(b"a", timestamp_ms=NOW_MS + index), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]


async def test_roll_when_the_offset_does_not_fit(rig: Rig) -> None:
    """LOG-95: the new segment begins with the set that leaves the gap."""
    log = await rig.load()
    log.append_as_follower(batch(b"a", base_offset=0), 0)
    log.append_as_follower(batch(b"b", base_offset=2**31 - 1), 0)
    assert len(log.segments) == 1
    log.append_as_follower(batch(b"c", base_offset=2**40), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2**40]
    assert values_in(log) == {0: b"a", 2**31 - 1: b"b", 2**40: b"c"}


async def test_a_roll_leaves_the_end_where_it_is(rig: Rig) -> None:
    """LOG-96, LOG-7."""
    log = await rig.load()
    log.append_as_leader(batch(b"a", b"b"), 0)
    size = log.size_bytes
    segment = log.roll()
    assert segment.base_offset == 2
    assert log.log_end_offset == 2
    assert (log.log_end.segment_base_offset, log.log_end.position) == (2, 0)
    assert log.size_bytes == size
    # Once more at the same offset: it is empty, there is nothing to roll.
    assert log.roll() is segment
    assert len(rig.get("00000000000000000000.index")) == 0
    assert len(rig.get("00000000000000000002.index")) == 1200
    assert log.recovery_point == 0
    await log.do_pending_work()
    assert log.recovery_point == 2


async def test_files_in_the_way_of_a_roll(rig: Rig) -> None:
    """LOG-97: they are emptied."""
    log = await rig.load()
    log.append_as_leader(batch(b"a"), 0)
    for name in (".log", ".index", ".timeindex"):
        await rig.put(f"00000000000000000001{name}", b"garbage" * 40)
    log.roll()
    log.append_as_leader(batch(b"b"), 0)
    assert values_in(log) == {0: b"a", 1: b"b"}
    assert rig.get("00000000000000000001.index").count(0) == 1200


async def test_nobody_appends_during_a_truncation(rig: Rig) -> None:
    log = await rig.load()
    log.append_as_leader(batch(b"a"), 0)
    log._is_truncating = True
    with pytest.raises(InternalInvariant):
        log.append_as_leader(batch(b"b"), 0)
