"""Where a consumer stands in one partition.

Two places are kept apart: `position`, the next record that the user has not seen, and
`fetch_offset`, where the next fetch begins, which runs ahead of it by what is buffered. Each has
the epoch of the record before it, by which a cut log is noticed.

A partition without a position first looks one up (`reset_to`, a timestamp or one of the special
ones); one whose leader has changed first checks that the log it has read is the new leader's too
(`checked_epoch`). Both are questions under way, during which nothing is fetched. `generation` tells
answers about this position from those about an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftpy.client.calls import TopicPartition

__all__ = ["PartitionProgress", "PartitionState"]


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """What the last fetch said about the partition's log; -1 is unknown."""

    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1


class PartitionState:
    __slots__ = (
        "checked_epoch",
        "fetch_epoch",
        "fetch_offset",
        "generation",
        "is_asking",
        "is_held",
        "is_paused",
        "not_before_ms",
        "position",
        "position_epoch",
        "progress",
        "replica_id",
        "replica_until_ms",
        "reset_to",
        "where",
    )

    def __init__(self, where: TopicPartition, reset_to: int | None) -> None:
        self.where = where
        self.position: int | None = None
        self.position_epoch = -1
        self.fetch_offset = -1
        self.fetch_epoch = -1
        self.reset_to = reset_to
        # The leader's epoch under which the position was found to be good.
        self.checked_epoch = -1
        self.generation = 0
        self.is_asking = False
        # Somebody else is about to say where to begin.
        self.is_held = False
        self.is_paused = False
        self.not_before_ms = 0
        self.progress = PartitionProgress()
        # A replica nearer than the leader (KIP-392), as the leader has told.
        self.replica_id = -1
        self.replica_until_ms = 0

    def seek(self, offset: int, epoch: int) -> None:
        """Stand here from now on."""
        self.position = self.fetch_offset = offset
        self.position_epoch = self.fetch_epoch = epoch
        self.reset_to = None
        self._forget_questions()

    def reset(self, timestamp: int) -> None:
        """Stand where the leader says that this time is."""
        self.position = None
        self.reset_to = timestamp
        self._forget_questions()

    def rewind(self) -> None:
        """What was fetched but not taken is dropped: fetch it again."""
        if self.position is not None:
            self.fetch_offset = self.position
            self.fetch_epoch = self.position_epoch
            self.generation += 1

    def can_fetch(self, now_ms: int) -> bool:
        return (
            self.position is not None
            and not self.is_asking
            and not self.is_paused
            and self.not_before_ms <= now_ms
        )

    def must_check(self, leader_epoch: int) -> bool:
        """Has the leader changed since the position was found to be good?"""
        return self.fetch_epoch >= 0 and leader_epoch > self.checked_epoch >= 0

    def _forget_questions(self) -> None:
        self.generation += 1
        self.is_asking = False
        self.is_held = False
        self.not_before_ms = 0
        self.replica_id = -1
        # An epoch that came with the position was never compared with this leader's.
        self.checked_epoch = 0 if self.fetch_epoch >= 0 else -1
