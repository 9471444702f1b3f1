"""Which segments have outlived a topic's retention (14).

Always a prefix of the log, never a segment that reaches above the high watermark, never an empty
active one. Time, size and log start are three rules, asked in this order; each begins where the one
before has ended. A topic that is compacted only is held to the log start alone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.log_writing import WritableLog
from kraftpy.log.pacing import Pace
from kraftpy.log.segment import Segment

__all__ = ["deletable_segments"]

_log = logging.getLogger(__name__)


async def deletable_segments(log: WritableLog, environment: LogEnvironment) -> list[Segment]:
    """The segments to delete now, oldest first."""
    config = log.config
    pace = environment.pace
    deletable: list[Segment] = []
    if config.is_deleted:
        if config.retention_ms >= 0:
            now_ms = environment.clock.wall_ms()

            async def has_expired(segment: Segment, following: Segment | None) -> bool:
                if segment.size_bytes == 0 and following is not None:
                    # The cleaner has left nothing in it, not even a time to go by.
                    return True
                largest_ms = await segment.largest_timestamp_ms(environment.disk)
                if largest_ms > now_ms:
                    _log.warning("%r has times in the future; they delay its deletion", segment)
                return now_ms - largest_ms > config.retention_ms

            await _extend(deletable, log, has_expired, f"older than {config.retention_ms} ms", pace)
        if config.retention_bytes >= 0:
            excess = log.size_bytes - sum(segment.size_bytes for segment in deletable)
            excess -= config.retention_bytes

            async def is_in_excess(segment: Segment, _: Segment | None) -> bool:
                nonlocal excess
                if excess < segment.size_bytes:
                    return False
                excess -= segment.size_bytes
                return True

            await _extend(
                deletable, log, is_in_excess, f"beyond {config.retention_bytes} bytes", pace
            )

    async def is_below_start(_: Segment, following: Segment | None) -> bool:
        return following is not None and following.base_offset <= log.log_start_offset

    await _extend(deletable, log, is_below_start, "below the log start", pace)
    return deletable


async def _extend(
    deletable: list[Segment],
    log: WritableLog,
    rule: Callable[[Segment, Segment | None], Awaitable[bool]],
    reason: str,
    pace: Pace,
) -> None:
    """Add the segments behind `deletable` as long as `rule` holds for them.

    The rule is given a segment and the next one.
    """
    segments = list(log.segments)
    for index in range(len(deletable), len(segments)):
        segment = segments[index]
        following = segments[index + 1] if index + 1 < len(segments) else None
        upper_bound = log.log_end_offset if following is None else following.base_offset
        try:
            if log.high_watermark < upper_bound or not await rule(segment, following):
                return
        finally:
            log.notice_damage(segment)
        if following is None and segment.size_bytes == 0:
            return
        await pace.rest(0)
        _log.info("%s: deleting segment %d, %s", log, segment.base_offset, reason)
        deletable.append(segment)
