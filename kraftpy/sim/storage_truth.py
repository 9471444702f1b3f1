"""What the log of one partition must hold, whatever happened to its disk.

The truth is a list of the batches that were appended and not cut off again. From it follow all
rules: what every reader sees, up to where, and which transactions were aborted (invariant 20); what
a loss of power may not take; and that a compacted log ends in the same state as one that was not.
After a loss of power the log may have less than was appended, or batches again that were cut; what
it has is the truth from then on, once that is found sound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kraftpy.log.offsets import Isolation, ReadInfo
from kraftpy.log.partition_log import PartitionLog
from kraftpy.protocol.ids import Uuid
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.errors import RecordDataError
from kraftpy.records.walker import records_of, walk_batches
from kraftpy.sim.coordinator_rules import claim

__all__ = ["LogTruth", "Pair", "Written"]

_MAX_BYTES: Final = 1 << 20


class Pair(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None

    def __repr__(self) -> str:
        return (
            f"{self.offset}: {self.key!r}={self.value if self.value is None else self.value[:8]!r}"
        )


@dataclass(frozen=True, slots=True)
class Written:
    """A batch; its records if it holds data, and what it decides if it is a marker."""

    base: int
    last: int
    timestamp_ms: int
    pairs: tuple[Pair, ...]
    producer_id: int = -1
    is_transactional: bool = False
    is_commit: bool | None = None
    data: bytes = field(default=b"", compare=False, repr=False)


class LogTruth:
    def __init__(self, topic_id: Uuid, *, is_compacted: bool, retention_ms: int) -> None:
        self.topic_id = topic_id
        self.is_compacted = is_compacted
        self._retention_ms = retention_ms
        # By first offset, everything that was ever there, in each of its versions.
        self._written: dict[int, list[Written]] = {}
        self.present: list[Written] = []
        self.start = self.end = self.high_watermark = self.leader_epoch = 0
        # A log that is being made or deleted may be there or not after a loss of power.
        self.may_be_absent = True
        # What no loss of power may take, and what the next start must find.
        self.durable_end = self.kept_end = 0

    # What happens.

    def appended(self, written: Written) -> None:
        self.present.append(written)
        versions = self._written.setdefault(written.base, [])
        if written not in versions:
            versions.append(written)
        self.end = written.last + 1

    def truncated(self, offset: int) -> None:
        self.present = [each for each in self.present if each.last < offset]
        self.end = min(self.end, offset)
        self.durable_end = min(self.durable_end, offset)

    def flushed(self, recovery_point: int) -> None:
        # A cut may be under way; and below the log's start there is nothing to be durable.
        if recovery_point > self.start:
            self.durable_end = max(self.durable_end, min(recovery_point, self.end))

    def open_transactions(self) -> dict[int, Written]:
        """By producer, with the first batch of each."""
        found: dict[int, Written] = {}
        for each in self.present:
            if each.is_commit is not None:
                found.pop(each.producer_id, None)
            elif each.is_transactional:
                found.setdefault(each.producer_id, each)
        return found

    # Rules.

    def check_offsets(self, log: PartitionLog, wall_ms: int) -> None:
        """Invariant 14."""
        marks = (
            log.log_start_offset,
            log.last_stable_offset,
            log.high_watermark,
            log.log_end_offset,
        )
        claim(list(marks) == sorted(marks), "offsets-out-of-order", marks)
        claim(log.log_end_offset == self.end, "wrong-end", f"{log!r}, not {self.end}")
        claim(log.high_watermark == self.high_watermark, "wrong-high-watermark", log)
        self.check_start(log, wall_ms)

    def check_start(self, log: PartitionLog, wall_ms: int) -> None:
        """Nothing leaves the log before its time."""
        if log.log_start_offset == self.start:
            return
        claim(log.log_start_offset > self.start, "start-went-back", f"{log!r}, {self.start}")
        claim(not self.is_compacted, "compacted-and-deleted", log)
        for each in self.present:
            if self.start <= each.last < log.log_start_offset:
                age_ms = wall_ms - each.timestamp_ms
                claim(age_ms > self._retention_ms, "deleted-early", f"{each.base}: {age_ms} ms old")
        self.start = log.log_start_offset

    def check_content(self, log: PartitionLog) -> None:
        """Whoever reads all of it sees all of it, and nothing else."""
        found = _parsed(_batches(log, log.log_start_offset, Isolation.LOG_END))
        if self.is_compacted:
            self._check_known(found)
        else:
            present = [each for each in self.present if each.last >= self.start]
            claim(found == present, "content-differs", _first_difference(found, present))
        self._check_committed(log)

    def check_read(self, log: PartitionLog, offset: int) -> None:
        """A read begins with the batch that holds the offset, or with the one behind it."""
        first = next(_batches(log, offset, Isolation.LOG_END, max_bytes=1), None)
        following = next((each for each in self.present if each.last >= offset), None)
        if first is None:
            claim(following is None, "not-found", offset)
        elif self.is_compacted:
            claim(first.last_offset >= offset, "read-before", f"{first.last_offset} < {offset}")
        else:
            is_there = following is not None and first.base_offset == following.base
            claim(is_there, "read-elsewhere", f"{first.base_offset} for {offset}")

    def _check_committed(self, log: PartitionLog) -> None:
        """Invariants 14 and 20, as a consumer with read_committed sees them."""
        stable = log.last_stable_offset
        for each in self.open_transactions().values():
            claim(each.base >= stable or each.last < self.start, "unstable-shown", each.base)
        seen = [pair for pair in _committed(log) if pair.offset >= self.start]
        expected = [pair for pair in self._committed_pairs(stable) if pair.offset >= self.start]
        if self.is_compacted:
            claim(_state(seen) == _state(expected), "state-differs", f"{seen}, not {expected}")
        else:
            claim(seen == expected, "committed-differs", _first_difference(seen, expected))

    def _committed_pairs(self, end: int) -> list[Pair]:
        """In order, without those of aborted transactions."""
        aborted: set[int] = set()
        batches: dict[int, list[int]] = {}
        for each in self.present:
            if each.is_commit is not None:
                mine = batches.pop(each.producer_id, [])
                if not each.is_commit:
                    aborted.update(mine)
            elif each.is_transactional:
                batches.setdefault(each.producer_id, []).append(each.base)
        return [
            pair
            for each in self.present
            if each.last < end and each.base not in aborted
            for pair in each.pairs
        ]

    def _check_known(self, found: Sequence[Written]) -> None:
        """What is there was written, record by record; the cleaner may have taken some."""
        end = -1
        for each in found:
            claim(each.base > end, "batch-twice", each.base)
            end = each.last
            versions = self._written.get(each.base, [])
            is_known = any(_is_part(each, version) for version in versions)
            claim(is_known, "invented", each)

    # Starting anew.

    def recovered(self, log: PartitionLog) -> None:
        """After a start: nothing durable is lost, nothing is invented.

        What others have confirmed is fetched from them again, as it was.
        """
        found = _parsed(_batches(log, log.log_start_offset, Isolation.LOG_END))
        claim(log.log_start_offset <= self.start, "start-lost", log)
        claim(log.log_end_offset >= self.kept_end, "end-lost", f"{log!r}, {self.kept_end}")
        self._check_known(found)
        if self.is_compacted:
            self._check_kept(found)
        else:
            position = log.log_start_offset
            for each in found:
                claim(each.base <= position <= each.last, "gap", f"{each.base}, {position}")
                position = each.last + 1
            kept = [each for each in self.present if self.start <= each.last < self.kept_end]
            have = [each for each in found if self.start <= each.last < self.kept_end]
            claim(have == kept, "durable-lost", _first_difference(have, kept))
        self.start, self.end = log.log_start_offset, log.log_end_offset
        lost = [each for each in self.present if self.end <= each.base < self.high_watermark]
        self.present = found
        for each in lost:
            log.append_as_follower(each.data, self.leader_epoch)
            self.appended(each)
        self.high_watermark = log.update_high_watermark(min(self.high_watermark, self.end))
        self.leader_epoch += 1

    def _check_kept(self, found: Sequence[Written]) -> None:
        """Of each key the last durable value is there, or something later, or was deleted."""
        last = {pair.key: pair.offset for each in found for pair in each.pairs}
        deleted = {
            pair.key: pair.offset
            for each in self.present
            for pair in each.pairs
            if pair.value is None
        }
        for each in self.present:
            if each.last < self.kept_end and not each.is_transactional:
                for pair in each.pairs:
                    known = max(last.get(pair.key, -1), deleted.get(pair.key, -1))
                    claim(known >= pair.offset, "value-lost", pair)


def _batches(
    log: PartitionLog, offset: int, isolation: Isolation, max_bytes: int = _MAX_BYTES
) -> Iterator[RecordBatch]:
    while True:
        found = [
            batch
            for batch in walk_batches(_data(log.read(offset, max_bytes, isolation)))
            if isinstance(batch, RecordBatch)
        ]
        if not found:
            return
        yield from found
        claim(found[-1].last_offset >= offset, "read-goes-back", offset)
        offset = found[-1].last_offset + 1


def _data(read: ReadInfo) -> bytes:
    if read.records is None:
        return b""
    return read.records.file.pread(read.records.length, read.records.position)


def _parsed(batches: Iterable[RecordBatch]) -> list[Written]:
    return [_written(batch) for batch in batches]


def _written(batch: RecordBatch) -> Written:
    try:
        records = list(records_of(batch, max_bytes=_MAX_BYTES))
        marker = read_control_record(records[0]) if batch.is_control and records else None
    except (RecordDataError, ValueError) as error:
        claim(False, "unreadable", f"{batch.base_offset}: {error}")
        raise
    return Written(
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp_ms,
        ()
        if batch.is_control
        else tuple(Pair(record.offset, record.key, record.value) for record in records),
        batch.producer_id,
        batch.is_transactional,
        marker.is_commit if isinstance(marker, EndTransactionMarker) else None,
    )


def _committed(log: PartitionLog) -> Iterator[Pair]:
    """By the aborted transactions that a consumer is given with what it reads."""
    offset = log.log_start_offset
    while True:
        read = log.read(offset, 1, Isolation.COMMITTED)
        batches = [each for each in walk_batches(_data(read)) if isinstance(each, RecordBatch)]
        if not batches:
            return
        [batch] = batches
        is_aborted = any(
            each.producer_id == batch.producer_id
            and each.first_offset <= batch.base_offset <= each.last_offset
            for each in read.aborted_transactions or ()
        )
        if not (batch.is_transactional and is_aborted):
            yield from _written(batch).pairs
        offset = batch.last_offset + 1


def _is_part(found: Written, version: Written) -> bool:
    """Whether that is what is left of this."""
    is_same = (found.last, found.producer_id) == (version.last, version.producer_id)
    known = set(version.pairs)
    return is_same and all(pair in known for pair in found.pairs)


def _state(pairs: Iterable[Pair]) -> dict[bytes | None, bytes]:
    """What a reader from the start ends up with."""
    state: dict[bytes | None, bytes] = {}
    for pair in pairs:
        state.pop(pair.key, None)
        if pair.value is not None:
            state[pair.key] = pair.value
    return dict(sorted(state.items(), key=lambda item: item[0] or b""))


def _first_difference(found: Sequence[object], expected: Sequence[object]) -> str:
    for mine, other in zip(found, expected, strict=False):
        if mine != other:
            return f"{mine}, not {other}"
    return f"{len(found)} and not {len(expected)}"
