"""Invariant 23: the offsets that a coordinator holds are those of the last records in its log.

Folded here, from the committed bytes of `__consumer_offsets`, by other code than the product's.
What belongs to a transaction counts from its marker on, and only then if no later record has come.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.protocol.coordinator_records import GROUP_RECORDS
from kraftpy.protocol.schema.group_records import (
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kraftpy.records.batch import RecordBatch
from kraftpy.records.walker import records_of
from kraftpy.sim.coordinator_rules import claim
from kraftpy.sim.whole.transaction_rules import marker_of

__all__ = ["OffsetKey", "OffsetTruth"]

_MAX_BYTES: Final = 1 << 24


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class _Stored(NamedTuple):
    position: int
    offset: int


class OffsetTruth:
    """Of one partition."""

    def __init__(self) -> None:
        self.end = 0
        self.offsets: dict[OffsetKey, _Stored] = {}
        self._pending: dict[int, dict[OffsetKey, _Stored]] = {}

    def committed(self, batch: RecordBatch) -> None:
        self.end = batch.next_offset
        marker = marker_of(batch)
        if marker is not None:
            self._end_transaction(marker.producer_id, is_commit=marker.is_commit)
        if batch.is_control:
            return
        for record in records_of(batch, max_bytes=_MAX_BYTES):
            key = GROUP_RECORDS.decode_key(record.key or b"")
            if not isinstance(key, OffsetCommitKey):
                continue
            name = OffsetKey(key.group, key.topic, key.partition)
            if record.value is None:
                self.offsets.pop(name, None)
                for pending in self._pending.values():
                    pending.pop(name, None)
                continue
            value, _ = GROUP_RECORDS.decode_value(key, record.value)
            assert isinstance(value, (OffsetCommitValue, LegacyOffsetCommitValue))
            stored = _Stored(record.offset, value.offset)
            if batch.is_transactional:
                self._pending.setdefault(batch.producer_id, {})[name] = stored
            else:
                self.offsets[name] = stored

    def _end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        for name, stored in self._pending.pop(producer_id, {}).items():
            present = self.offsets.get(name)
            if is_commit and (present is None or present.position < stored.position):
                self.offsets[name] = stored

    def check(self, machine: GroupMachine) -> None:
        """What an active coordinator holds, which has replayed and committed as much."""
        committed = machine.offsets.state.committed
        for name, stored in self.offsets.items():
            found = committed.committed_get(name.group, (name.topic, name.partition))
            held = None if found is None else _Stored(found.record_offset, found.offset)
            claim(held == stored, "offset-differs", f"{name}: {held}, not {stored}")
        for group_id in committed.group_ids():
            for (topic, partition), found in committed.committed_of_group(group_id):
                name = OffsetKey(group_id, topic, partition)
                claim(name in self.offsets, "offset-too-many", f"{name}: {found}")
