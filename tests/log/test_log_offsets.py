"""The offsets of a log and the order between them (LOG-67 to LOG-74)."""

from __future__ import annotations

import pytest
from log_rig import Rig, batch, marker

from kraftpy.log.errors import OffsetOutOfRangeError
from kraftpy.log.offsets import Isolation, OffsetMetadata
from kraftpy.log.partition_log import PartitionLog
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import InternalInvariant


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        log.append_as_leader(batch(b"a"), 0)


async def test_the_log_end_is_the_next_offset(rig: Rig) -> None:
    """LOG-67."""
    log = await rig.load()
    assert log.log_end == OffsetMetadata(0, 0, 0)
    fill(log, 3)
    assert log.log_end == OffsetMetadata(3, 0, log.size_bytes)
    log.roll()
    assert log.log_end == OffsetMetadata(3, 3, 0)
    await log.truncate_to(1)
    assert log.log_end == OffsetMetadata(1, 0, log.size_bytes)
    assert (await rig.reload(log)).log_end == log.log_end


async def test_the_log_end_pulls_the_others_down(rig: Rig) -> None:
    """LOG-68."""
    log = await rig.load()
    fill(log, 10)
    await log.flush()
    log.update_high_watermark(8)
    await log.truncate_to(5)
    assert log.high_watermark == 5
    assert log.recovery_point == 5


async def test_the_high_watermark_begins_at_the_log_start(rig: Rig) -> None:
    """LOG-69."""
    log = await rig.load(log_start_offset=40)
    assert log.high_watermark == 40
    assert log.log_end_offset == 40
    with pytest.raises(ValueError, match="-1"):
        log.update_high_watermark(-1)
    with pytest.raises(ValueError, match="-1"):
        log.increment_high_watermark(OffsetMetadata(-1))


async def test_a_followers_high_watermark_is_clamped(rig: Rig) -> None:
    """LOG-70."""
    log = await rig.load(log_start_offset=40)
    fill(log, 10)
    assert log.update_high_watermark(45) == 45
    assert log.update_high_watermark(7) == 40
    assert log.update_high_watermark(1000) == 50
    assert log.high_watermark == 50


async def test_a_leaders_high_watermark_only_grows(rig: Rig) -> None:
    """LOG-71."""
    log = await rig.load()
    fill(log, 4)
    end = log.log_end
    assert log.increment_high_watermark(OffsetMetadata(2, 0, 100)) == OffsetMetadata(0)
    assert log.increment_high_watermark(OffsetMetadata(1, 0, 50)) is None
    assert log.increment_high_watermark(OffsetMetadata(2, 0, 100)) is None
    assert log.high_watermark == 2
    assert log.increment_high_watermark(end) == OffsetMetadata(2, 0, 100)
    with pytest.raises(ValueError, match="log end 4"):
        log.increment_high_watermark(OffsetMetadata(5))
    # The same offset on a newer segment is news.
    log._watermarks.high_watermark = end
    log.roll()
    log._watermarks.high_watermark = end
    assert log.increment_high_watermark(log.log_end) == end
    assert log.high_watermark_metadata() == OffsetMetadata(4, 4, 0)


async def test_a_roll_at_the_high_watermark_refreshes_its_place(rig: Rig) -> None:
    """LOG-68, LOG-71, LOG-89."""
    log = await rig.load()
    fill(log, 4)
    log.increment_high_watermark(log.log_end)
    log.roll()
    assert log.high_watermark_metadata() == OffsetMetadata(4, 4, 0)


async def test_the_place_of_a_high_watermark_is_looked_up(rig: Rig) -> None:
    """LOG-72."""
    log = await rig.load()
    fill(log, 6)
    size = len(batch(b"a"))
    log.update_high_watermark(4)
    assert log._watermarks.high_watermark.is_offset_only
    assert log.high_watermark_metadata() == OffsetMetadata(4, 0, 4 * size)
    assert not log._watermarks.high_watermark.is_offset_only


async def test_places_that_are_not_known_are_not_compared() -> None:
    """LOG-72."""
    known, unknown = OffsetMetadata(4, 0, 100), OffsetMetadata(4)
    for left, right in ((known, unknown), (unknown, known)):
        with pytest.raises(InternalInvariant):
            left.is_on_older_segment(right)
        with pytest.raises(InternalInvariant):
            left.is_on_same_segment(right)
        with pytest.raises(InternalInvariant):
            left.bytes_since(right)
    assert OffsetMetadata(9, 0, 250).bytes_since(known) == 150
    with pytest.raises(InternalInvariant):
        OffsetMetadata(9, 8, 250).bytes_since(known)
    assert known.is_on_older_segment(OffsetMetadata(9, 8, 250))


async def test_the_log_start_is_raised_to_the_high_watermark_at_most(rig: Rig) -> None:
    """LOG-73."""
    log = await rig.load()
    fill(log, 10)
    log.update_high_watermark(6)
    assert log.raise_log_start(4)
    assert log.log_start_offset == 4
    assert not log.raise_log_start(4)
    assert not log.raise_log_start(2)
    assert log.log_start_offset == 4
    with pytest.raises(OffsetOutOfRangeError) as caught:
        log.raise_log_start(7)
    assert caught.value.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.raise_log_start(6)
    assert log.epochs.entries == ((0, 6),)
    with pytest.raises(OffsetOutOfRangeError):
        log.read(5, 100)


async def test_the_last_stable_offset(rig: Rig) -> None:
    """TXN-33, LOG-74: it waits for the marker to be replicated."""
    log = await rig.load()
    fill(log, 2)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2
    sequence = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True}
    log.append_as_leader(batch(b"t", sequence=0, **sequence), 0)
    assert log.last_stable_offset == 2
    fill(log, 2)
    log.update_high_watermark(5)
    assert log.last_stable_offset == 2
    assert log.last_stable_metadata() == OffsetMetadata(2, 0, 2 * len(batch(b"a")))
    log.append_as_leader(
        marker(5, 0, is_commit=True), 0, origin=AppendOrigin.COORDINATOR, transaction_version=1
    )
    assert log.log_end_offset == 6
    assert log.last_stable_offset == 2
    log.update_high_watermark(6)
    assert log.last_stable_offset == 6
    snapshot = log.offset_snapshot()
    assert snapshot.last_stable == snapshot.high_watermark == snapshot.log_end
    assert snapshot.log_start_offset == 0
    assert log.latest_offset(Isolation.COMMITTED).offset == 6


async def test_a_transaction_below_the_log_start_does_not_hold_it_back(rig: Rig) -> None:
    """LOG-74: log start <= last stable offset."""
    log = await rig.load()
    log.append_as_leader(
        batch(b"t", producer_id=5, producer_epoch=0, sequence=0, is_transactional=True), 0
    )
    fill(log, 3)
    log.update_high_watermark(4)
    log.raise_log_start(2)
    assert log.last_stable_offset == 2


async def test_what_is_deleted_does_not_count_as_flushed(rig: Rig) -> None:
    """After a loss of power its segments may be there again, without what was not synced."""
    log = await rig.load()
    fill(log, 3)
    await log.flush()
    fill(log, 2)
    log.update_high_watermark(5)
    log.raise_log_start(5)
    assert log.recovery_point == 3
    await log.flush()
    assert log.recovery_point == 5
