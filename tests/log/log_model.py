"""What a log should hold, as plain values, for the state machine of test_log_model.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.reader import Record, read_records


@dataclass(frozen=True)
class Entry:
    """A batch that should be in the log; the cleaner may have taken some of its records."""

    base: int
    last: int
    records: tuple[Record, ...]
    leader_epoch: int
    producer_id: int = -1
    sequence: int = -1
    is_transactional: bool = False
    is_marker: bool = False
    is_commit: bool | None = None
    """Of a marker that has its record still."""

    def header(self) -> Entry:
        """What the cleaner must not change."""
        return replace(self, records=(), is_commit=None)


@dataclass(frozen=True)
class Transaction:
    producer_id: int
    first: int
    # Of the data that is not deleted; the first is beyond the last if all of it is.
    first_left: int
    last_data: int
    marker: int | None = None
    is_aborted: bool = False


def entry_of(found: RecordBatch) -> Entry:
    records = tuple(read_records(found, max_bytes=1 << 20))
    is_commit = None
    if found.is_control and records:
        control = read_control_record(records[0])
        assert isinstance(control, EndTransactionMarker)
        is_commit = control.is_commit
    return Entry(
        base=found.base_offset,
        last=found.last_offset,
        records=() if found.is_control else records,
        leader_epoch=found.leader_epoch,
        producer_id=found.producer_id,
        sequence=found.base_sequence,
        is_transactional=found.is_transactional,
        is_marker=found.is_control,
        is_commit=is_commit,
    )


def transactions_of(entries: Sequence[Entry], start: int) -> list[Transaction]:
    """In the order of their markers, the open ones last. `start` is where the log begins."""
    opened: dict[int, Transaction] = {}
    ended = []
    for entry in entries:
        if not entry.is_transactional:
            continue
        known = opened.get(entry.producer_id)
        if not entry.is_marker:
            first = entry.base if known is None else known.first
            first_left = sys.maxsize if known is None else known.first_left
            if entry.last >= start:
                first_left = min(first_left, entry.base)
            opened[entry.producer_id] = Transaction(
                entry.producer_id, first, first_left, entry.last
            )
        elif known is not None and entry.is_commit is not None:
            is_aborted = not entry.is_commit
            ended.append(replace(known, marker=entry.base, is_aborted=is_aborted))
            del opened[entry.producer_id]
    return [*ended, *opened.values()]


def aborted_offsets(entries: Sequence[Entry]) -> set[int]:
    """Of the records in aborted transactions."""
    return {
        record.offset
        for transaction in transactions_of(entries, 0)
        if transaction.is_aborted and transaction.marker is not None
        for entry in entries
        if entry.is_transactional
        and entry.producer_id == transaction.producer_id
        and transaction.first <= entry.base < transaction.marker
        for record in entry.records
    }


def check_nothing_is_changed(before: Sequence[Entry], after: Sequence[Entry], end: int) -> None:
    """What a cleaning up to `end` leaves is a subsequence, with headers and records as they were.

    The marker of a transaction stays as long as a batch of it does.
    """
    kept = [entry.header() for entry in after]
    assert kept == [entry.header() for entry in before if entry.header() in kept]
    was = {record.offset: record for entry in before for record in entry.records}
    for entry in after:
        assert [was[record.offset] for record in entry.records] == list(entry.records)
    beyond = [offset for offset in was if offset >= end]
    assert [r.offset for entry in after for r in entry.records if r.offset >= end] == beyond
    assert [e for e in after if e.base >= end] == [e for e in before if e.base >= end]
    data = {entry.base for entry in after if not entry.is_marker}
    for transaction in transactions_of(before, 0):
        if transaction.first in data or transaction.last_data in data:
            assert transaction.marker is None or any(
                entry.base == transaction.marker and entry.is_commit is not None for entry in after
            )


def check_the_last_of_each_key_stays(
    before: Sequence[Entry],
    after: Sequence[Entry],
    end: int,
    horizons: dict[int, int],
    *,
    now_ms: int,
    retention_ms: int,
) -> None:
    """And of what is decided and below `end`, nothing but that.

    `horizons` has, for the base offset of each batch in which a cleaning has met a tombstone, the
    time when that may go; new ones are added.
    """
    aborted = aborted_offsets(before)
    last: dict[bytes | None, tuple[Record, int]] = {}
    for entry in before:
        for record in entry.records:
            if record.offset < end and record.offset not in aborted:
                last[record.key] = (record, entry.base)
    kept = [record for entry in after for record in entry.records if record.offset < end]
    assert all(last[record.key][0] == record for record in kept)
    new_horizons = {}
    for record, base in last.values():
        if record.value is not None or base not in horizons:
            assert record in kept
        else:
            assert (record in kept) == (now_ms < horizons[base])
        if record.value is None:
            new_horizons[base] = now_ms + retention_ms
    horizons.update({base: at for base, at in new_horizons.items() if base not in horizons})
