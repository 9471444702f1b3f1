"""How far a follower has come, as its leader knows it from the follower's fetches.

A fetch at offset n says that the follower has everything below n, on the terms on which it takes
records: so progress is always one fetch old. "Caught up" is not "has just fetched": a follower that
fetches all the time and never reaches the end would hold the high watermark back for ever, and
lose much if it were elected. It counts as caught up at a moment at which it had everything that
the leader had: now, if it asks for the end of the log; at its previous fetch, if it asks for what
was the end of the log then.
"""

from __future__ import annotations

from kraftpy.log.offsets import UNKNOWN, OffsetMetadata

__all__ = ["FollowerProgress"]

_NOWHERE = OffsetMetadata(UNKNOWN)
# Longer ago than any lag that is allowed, on a clock that may have begun a moment ago.
_NEVER_MS = -(1 << 62)


class FollowerProgress:
    __slots__ = (
        "_last_fetch_ms",
        "_leader_end_at_last_fetch",
        "broker_epoch",
        "broker_id",
        "end",
        "last_caught_up_ms",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        # Where the follower's log ends, with the place in the leader's files if known.
        self.end = _NOWHERE
        self.log_start_offset = UNKNOWN
        self.last_caught_up_ms = _NEVER_MS
        # The incarnation that fetched last; -1 if it did not say, or has not fetched.
        self.broker_epoch = UNKNOWN
        self._last_fetch_ms = _NEVER_MS
        self._leader_end_at_last_fetch = UNKNOWN

    def begin_epoch(self, now_ms: int, leader_end_offset: int, *, is_in_sync: bool) -> None:
        """Who is in the ISR gets the benefit of the doubt, and the time to fetch."""
        self._last_fetch_ms = now_ms
        self._leader_end_at_last_fetch = leader_end_offset
        self.last_caught_up_ms = now_ms if is_in_sync else _NEVER_MS

    def fetched(
        self,
        end: OffsetMetadata,
        *,
        log_start_offset: int,
        leader_end_offset: int,
        broker_epoch: int,
        now_ms: int,
    ) -> None:
        """It asked for `end` when the leader's log ended at `leader_end_offset`."""
        offset = end.offset
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self._leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.end = end
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._last_fetch_ms = now_ms
        self._leader_end_at_last_fetch = leader_end_offset

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whoever has everything is in sync, however long ago it said so."""
        return (
            self.end.offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )
