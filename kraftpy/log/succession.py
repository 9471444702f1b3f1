"""Whether batches continue each other, told by what no CRC covers: base offsets and leader epochs.

Both only grow along a log. A batch without which its neighbours would be in order is the one that
is damaged, so each is held back until the one behind it was seen. What counts as a proof, and why,
is said in recovery.py.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

from kraftpy.log.epochs import LeaderEpochCache
from kraftpy.log.segment import RELATIVE_OFFSET_MAX, Segment
from kraftpy.records.batch import NO_EPOCH, RecordBatch
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.walker import AnyBatch

__all__ = ["OverlappingOffsets", "Succession"]


class OverlappingOffsets(CorruptRecord):
    """A batch begins at `first_offset`, which is not behind the one before it."""

    def __init__(self, message: str, first_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset


class Succession:
    """The batches of one segment. What is returned was borne out by what is behind it.

    CorruptRecord is about the batch that was held back: the segment ends before it.
    """

    __slots__ = (
        "_base_offset",
        "_doubted_from",
        "_held",
        "_held_epoch",
        "_held_first",
        "_known_epochs",
        "has_gaps",
        "last_epoch",
        "next_offset",
        "size_bytes",
        "unproven_from",
    )

    def __init__(
        self,
        base_offset: int,
        *,
        last_epoch: int,
        known_epochs: LeaderEpochCache,
        doubted_from: int | None,
    ) -> None:
        """`known_epochs` are the checkpoint's. `doubted_from`: the recovery point, behind which the
        log may end sooner than it seems to; None if the segment is durable.
        """
        self._base_offset = base_offset
        self._known_epochs = known_epochs
        self._doubted_from = doubted_from
        self._held: AnyBatch | None = None
        self._held_first = base_offset
        self._held_epoch = NO_EPOCH
        # Of what was borne out.
        self.last_epoch = last_epoch
        self.next_offset = base_offset
        self.size_bytes = 0
        self.has_gaps = False
        # Where the last batch would begin, if it begins further on and nothing is behind it.
        self.unproven_from: int | None = None

    def follow(self, batch: AnyBatch) -> AnyBatch | None:
        """One more, with offsets behind those of the last one, which is returned.

        CorruptRecord if the epochs of both show that the last one's is damaged.
        """
        held = self._held
        if isinstance(batch, RecordBatch):
            first_offset, epoch = batch.base_offset, batch.leader_epoch
        else:
            first_offset, epoch = batch.last_offset, NO_EPOCH
        if held is not None:
            if not self.last_epoch == self._held_epoch == epoch:
                self._check_epoch(epoch)
            self._accept(held)
        self._held = batch
        self._held_first = first_offset
        self._held_epoch = epoch
        return held

    def end(self, following: Segment | None) -> AnyBatch | None:
        """The segment ends here, as it seems, and the log too unless a segment follows."""
        held = self._held
        if held is None or self._doubted_from is None:
            return self._release()
        if following is not None:
            self._check_before(following, held)
            return self._release()
        if self._reaches_too_far(held):
            self._refuse(f"offset {held.last_offset} behind {self.next_offset - 1}")
        return self._release_unproven(held)

    def stop(self, error: CorruptRecord) -> AnyBatch | None:
        """What follows is not sound. The last batch is returned unless it is not either."""
        held = self._held
        if held is None:
            return None
        if (
            isinstance(error, OverlappingOffsets)
            and self._leaves_gap(held)
            and error.first_offset >= self.next_offset
        ):
            # Between what is before it and what is behind it there is no room for it.
            return None
        if self._doubted_from is None:
            return self._release()
        return None if self._reaches_too_far(held) else self._release_unproven(held)

    def _release_unproven(self, held: AnyBatch) -> AnyBatch | None:
        """The last batch of the log."""
        if self._leaves_gap(held):
            self.unproven_from = self.next_offset
        return self._release()

    def _release(self) -> AnyBatch | None:
        held, self._held = self._held, None
        if held is not None:
            self._accept(held)
        return held

    def _accept(self, batch: AnyBatch) -> None:
        if self._held_first != self.next_offset:
            self.has_gaps = True
        if self._held_epoch >= 0:
            self.last_epoch = self._held_epoch
        self.next_offset = batch.last_offset + 1
        self.size_bytes += batch.size

    def _leaves_gap(self, batch: AnyBatch) -> bool:
        return isinstance(batch, RecordBatch) and batch.base_offset > self.next_offset

    def _reaches_too_far(self, batch: AnyBatch) -> bool:
        """A segment that is written to has no room for such offsets."""
        reach = batch.last_offset - self._base_offset
        return self._leaves_gap(batch) and reach > RELATIVE_OFFSET_MAX

    def _check_before(self, following: Segment, held: AnyBatch) -> None:
        """The last batch of a segment, against the next one."""
        if held.last_offset >= following.base_offset and self._leaves_gap(held):
            self._refuse(
                f"offset {self._held_first} to {held.last_offset} behind "
                f"{self.next_offset - 1}, and before the segment {following.base_offset}"
            )
        if self._held_epoch != self.last_epoch:
            first = None
            with suppress(CorruptRecord):
                first = next(following.headers(), None)
            if first is not None:
                self._check_epoch(first.leader_epoch)

    def _check_epoch(self, following: int) -> None:
        epoch, offset = self._held_epoch, self._held_first
        if epoch == NO_EPOCH or self._doubted_from is None or offset < self._doubted_from:
            return
        known = self._known_epochs.epoch_for_offset(offset)
        if known is None:
            return
        preceding = known if self.last_epoch == NO_EPOCH else self.last_epoch
        if preceding <= known <= following and not preceding <= epoch <= following:
            self._refuse(
                f"leader epoch {epoch} at offset {offset}, between {preceding} and {following}"
            )

    def _refuse(self, message: str) -> NoReturn:
        self._held = None
        raise CorruptRecord(message)
