"""Copying a log into another data directory while it is in use.

The copy, a future log, follows the current one as a follower does its leader: it reads from its own
log end, appends what it gets as it is, and before that cuts off what the two do not agree about.
For as long as leader epochs tell where they part (KIP-101), no truncation of the current log goes
unseen, however much was appended to it since.
"""

from __future__ import annotations

from typing import Final

from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog

__all__ = ["copy_step", "has_caught_up"]

_STEP_BYTES: Final = 1024 * 1024


def has_caught_up(current: PartitionLog, future: PartitionLog) -> bool:
    """Whether `future` has all that `current` has.

    Two logs with the same offset in the same epoch are the same up to there.
    """
    end_offset = current.log_end_offset
    if (
        future.log_end_offset < end_offset
        or future.unproven_from is not None
        or future.log_start_offset < current.log_start_offset
        or future.log_start_offset > end_offset
    ):
        return False
    epoch = current.epochs.epoch_for_offset(end_offset - 1)
    if epoch is None or end_offset == current.log_start_offset:
        # Nothing is there, or nothing that has epochs: the offsets are all there is to compare.
        return True
    known, epoch_end_offset = future.end_offset_for_epoch(epoch)
    return known == epoch and epoch_end_offset >= end_offset


async def copy_step(current: PartitionLog, future: PartitionLog) -> int:
    """Bring `future` a step nearer to `current`; how many bytes were copied.

    0 if there was nothing to copy, at that moment. Raises a StorageError or a RecordDataError.
    """
    if future.unproven_from is not None:
        await future.truncate_to(future.unproven_from)
    if future.log_end_offset < current.log_start_offset:
        await future.truncate_fully_and_start_at(current.log_start_offset)
    agreed = _agreed_offset(current, future)
    if agreed < future.log_end_offset:
        await future.truncate_to(agreed)
    future.update_high_watermark(current.high_watermark)
    if current.log_start_offset <= future.high_watermark:
        future.raise_log_start(current.log_start_offset)
    # From here to the append nothing waits but the read, which may be of cold bytes.
    start_offset = future.log_end_offset
    if start_offset >= current.log_end_offset:
        return 0
    max_bytes = min(_STEP_BYTES, future.config.segment_bytes)
    found = current.read(start_offset, max_bytes, Isolation.LOG_END)
    if found.records is None:
        return 0
    records = found.records
    with current.storage_guard("read"):
        data = bytearray(await records.file.read(records.length, records.position))
    if _agreed_offset(current, future) < start_offset or current.log_end_offset <= start_offset:
        # It was truncated meanwhile; what was read may be of no log any more.
        return 0
    epoch = current.epochs.latest_epoch
    info = future.append_as_follower(data, -1 if epoch is None else epoch)
    return info.valid_bytes


def _agreed_offset(current: PartitionLog, future: PartitionLog) -> int:
    """Up to where the future log certainly has what the current one has."""
    agreed = min(future.log_end_offset, current.log_end_offset)
    latest = future.epochs.latest_epoch
    if latest is None:
        return agreed
    known, end_offset = current.end_offset_for_epoch(latest)
    if known != latest:
        # The current log knows nothing of that epoch: what the future has of it is not its.
        ours = future.end_offset_for_epoch(known)[1] if known >= 0 else future.log_start_offset
        end_offset = ours if end_offset < 0 else min(ours, end_offset)
    return min(agreed, end_offset)
