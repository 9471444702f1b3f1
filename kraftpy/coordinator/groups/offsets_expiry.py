"""What becomes of offsets that nobody needs: they expire, or go with their topic.

Both mean to look at every offset of the shard, which may be many. It is done group by group, so
many at a time that others hardly notice, each part an operation with its own tombstones. What does
not expire because the shard moves, or because a write fails, does so in the next round. There is no
next round for deleted topics: they are begun anew when a write fails.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from kraftpy.coordinator.groups.directory import GroupDirectory
from kraftpy.coordinator.groups.group import Group
from kraftpy.coordinator.groups.metrics import GroupMetrics
from kraftpy.coordinator.groups.offsets import Offsets, offset_tombstone
from kraftpy.coordinator.groups.offsets_state import StoredOffset
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorError, CoordinatorRecord, Outcome
from kraftpy.coordinator.ports import ShardContext
from kraftpy.protocol.schema.group_records import OffsetCommitKey

__all__ = ["OffsetsExpiry"]

log = logging.getLogger(__name__)

_EXPIRY_KEY: Final = "expire-offsets"
_DELETION_KEY: Final = "delete-offsets-of-topics"
_RETRY_MS: Final = 500
# Offsets that are looked at in one go: about a millisecond.
_SLICE: Final = 500


class OffsetsExpiry:
    __slots__ = ("_context", "_deleted", "_directory", "_metrics", "_offsets", "_settings")

    def __init__(
        self,
        context: ShardContext,
        directory: GroupDirectory,
        offsets: Offsets,
        settings: GroupSettings,
        metrics: GroupMetrics,
    ) -> None:
        self._context = context
        self._directory = directory
        self._offsets = offsets
        self._settings = settings
        # Topics whose offsets are being deleted, and where the records ended when they went.
        self._deleted: dict[str, int] = {}
        self._metrics = metrics

    # Expiry.

    def start(self) -> None:
        """Look after the usual time, and again and again."""
        interval_ms = self._settings.offsets_retention_check_interval_ms
        self._context.timers.schedule(_EXPIRY_KEY, interval_ms, self._begin_round)

    def _begin_round(self) -> Outcome[None]:
        group_ids = deque(group.group_id for group in self._directory.all())
        return self._expire(group_ids, 0, self._context.clock.monotonic_ms())

    def _expire(self, group_ids: deque[str], count: int, started_ms: int) -> Outcome[None]:
        records = self._slice(group_ids, self._expired_of)
        expired = sum(isinstance(record.key, OffsetCommitKey) for record in records)
        self._metrics.offset_expirations(expired)
        count += expired
        if group_ids:
            rest = partial(self._expire, group_ids, count, started_ms)
            self._context.timers.schedule(_EXPIRY_KEY, 0, rest)
        else:
            self.start()
            log.info(
                "removed %d expired offsets in %d ms",
                count,
                self._context.clock.monotonic_ms() - started_ms,
            )
        return Outcome(records, is_atomic=False)

    def _expired_of(self, group_id: str) -> tuple[list[CoordinatorRecord], int]:
        """Tombstones for what has expired in a group, and for the group itself if that was all."""
        group = self._directory.get(group_id)
        if group is None:
            return [], 0
        now_ms = self._context.clock.wall_ms()
        state = self._offsets.state
        stored_offsets = state.committed.of_group(group_id)
        records = [
            offset_tombstone(group_id, partition)
            for partition, stored in stored_offsets
            if not group.is_subscribed_to(partition[0])
            and self._has_expired(group, stored, now_ms)
            and not state.is_pending(group_id, partition)
        ]
        is_bare = len(records) == len(stored_offsets) and not state.has_pending(group_id)
        if is_bare and group.is_empty:
            records += group.tombstones()
        return records, len(stored_offsets)

    def _has_expired(self, group: Group, stored: StoredOffset, now_ms: int) -> bool:
        base_ms = group.offset_retention_base_ms(stored.commit_timestamp_ms)
        if base_ms is None:
            return False
        if stored.expire_timestamp_ms >= 0:
            return now_ms >= stored.expire_timestamp_ms
        return now_ms - base_ms >= self._settings.offsets_retention_ms

    # Deleted topics.

    def topics_deleted(self, names: Iterable[str]) -> None:
        """Delete their offsets; not those that come for another topic of the same name."""
        for name in names:
            self._deleted[name] = self._context.next_offset()
        if self._deleted:
            self._start_deletion(0)

    def _start_deletion(self, delay_ms: int) -> None:
        group_ids = deque(self._offsets.state.group_ids())
        self._context.timers.schedule(_DELETION_KEY, delay_ms, partial(self._delete, group_ids))

    def _delete(self, group_ids: deque[str]) -> Outcome[None]:
        deleted = dict(self._deleted)
        records = self._slice(group_ids, self._deleted_of)
        if group_ids:
            self._context.timers.schedule(_DELETION_KEY, 0, partial(self._delete, group_ids))
        else:
            log.info("offsets of deleted topics are removed: %s", ", ".join(self._deleted))
            self._deleted.clear()

        def settled(error: CoordinatorError | None) -> None:
            if error is not None:
                self._deleted = {**deleted, **self._deleted}
                self._start_deletion(_RETRY_MS)

        return Outcome(records, settled=settled, is_atomic=False)

    def _deleted_of(self, group_id: str) -> tuple[list[CoordinatorRecord], int]:
        partitions = self._offsets.state.partitions_of(group_id)
        records = [
            offset_tombstone(group_id, partition)
            for partition in partitions
            if partition[0] in self._deleted
            and self._offsets.state.newest_record_offset(group_id, partition)
            < self._deleted[partition[0]]
        ]
        return records, len(partitions)

    @staticmethod
    def _slice(
        group_ids: deque[str], look_at: Callable[[str], tuple[list[CoordinatorRecord], int]]
    ) -> list[CoordinatorRecord]:
        """Take groups from the list until enough offsets are looked at."""
        records: list[CoordinatorRecord] = []
        looked_at = 0
        while group_ids and looked_at < _SLICE:
            found, count = look_at(group_ids.popleft())
            records += found
            # A group without offsets is work, too.
            looked_at += count + 1
        return records
