"""What a log may look like after a crash, and whether it does.

The model of a log is the list of its batches, byte by byte. An Outcome is such a list, of which a
crash may have taken everything behind the floor, but only from the end. Offsets, epochs, producers,
aborted transactions, indexes and lookups all follow from the batches that are left, and each is
computed here from them, in the plainest way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from log_rig import by_time, data_of

from kraftpy.log.batch_headers import header_at
from kraftpy.log.index import NO_TIMESTAMP
from kraftpy.log.log_reading import ReadableLog
from kraftpy.log.offsets import Isolation
from kraftpy.log.producer_entries import ProducerEntry
from kraftpy.log.segment import Segment
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.walker import records_of


@lru_cache(maxsize=4096)
def parsed(data: bytes) -> RecordBatch:
    return RecordBatch(data)


@lru_cache(maxsize=4096)
def record_times(data: bytes) -> tuple[tuple[int, int], ...]:
    """(offset, timestamp) of each record."""
    records = records_of(parsed(data), max_bytes=1 << 20)
    return tuple((record.offset, record.timestamp_ms) for record in records)


@dataclass(frozen=True)
class Outcome:
    """A log that a crash may leave: `batches` from one of `starts` on, less some behind `floor`."""

    batches: tuple[bytes, ...]
    end: int
    """Where the log ends if nothing was lost."""
    floor: int = 0
    """Offsets below were flushed."""
    starts: tuple[int, ...] = (0,)
    """Base offsets of the segments that may come first."""
    dropped: tuple[bytes, ...] = ()
    """Batches that compaction has taken; what is known of epochs comes from them too."""

    def matches(self, found: Sequence[bytes], first_base: int, end: int) -> bool:
        if first_base not in self.starts:
            return False
        candidates = [data for data in self.batches if parsed(data).base_offset >= first_base]
        if candidates[: len(found)] != list(found):
            return False
        lost = candidates[len(found) :]
        if lost and parsed(lost[0]).base_offset < self.floor:
            return False
        if not lost:
            return end == max(self.end, first_base)
        return end == (parsed(found[-1]).last_offset + 1 if found else first_base)

    def history(self, end: int) -> tuple[bytes, ...]:
        """What the log has held below `end`, with what has left it at its start."""
        ever = sorted({*self.batches, *self.dropped}, key=lambda data: parsed(data).base_offset)
        return tuple(data for data in ever if parsed(data).base_offset < end)


@dataclass
class Derived:
    """What follows from batches: computed by folding over them."""

    epochs: list[tuple[int, int]] = field(default_factory=list)
    # Epoch, coordinator's epoch, time, start of the open transaction, last batch (last sequence,
    # last offset, offset delta).
    producers: dict[int, tuple[int, int, int, int, tuple[int, int, int] | None]] = field(
        default_factory=dict
    )
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)


@lru_cache(maxsize=1024)
def derived(batches: tuple[bytes, ...]) -> Derived:
    state = Derived()
    for batch in map(parsed, batches):
        epoch = batch.leader_epoch
        if epoch >= 0 and (not state.epochs or epoch > state.epochs[-1][0]):
            state.epochs.append((epoch, batch.base_offset))
        if batch.producer_id >= 0:
            _fold_producer(state, batch)
    return state


def _fold_producer(state: Derived, batch: RecordBatch) -> None:
    producer_id, epoch, time_ms = batch.producer_id, batch.producer_epoch, batch.max_timestamp_ms
    old_epoch, coordinator_epoch, _, open_offset, last = state.producers.get(
        producer_id, (-1, -1, -1, -1, None)
    )
    if not batch.is_control:
        delta = batch.last_offset - batch.base_offset
        last = (batch.base_sequence + delta, batch.last_offset, delta)
        if batch.is_transactional and open_offset < 0:
            open_offset = batch.base_offset
        state.producers[producer_id] = (epoch, coordinator_epoch, time_ms, open_offset, last)
        return
    marker = read_control_record(next(iter(records_of(batch, max_bytes=1 << 20))))
    assert isinstance(marker, EndTransactionMarker)
    kept = last if epoch == old_epoch else None
    state.producers[producer_id] = (epoch, marker.coordinator_epoch, time_ms, -1, kept)
    if open_offset >= 0 and not marker.is_commit:
        others = [entry[3] for entry in state.producers.values() if entry[3] >= 0]
        stable = min(others, default=batch.base_offset + 1)
        state.aborted.append((producer_id, open_offset, batch.base_offset, stable))


def stored(segment: Segment) -> list[bytes]:
    """The batches in a segment's file, which holds nothing else up to its size."""
    data = segment.log_file.pread(segment.size_bytes, 0)
    assert len(data) == segment.size_bytes, f"{segment!r} is shorter than it says"
    found = []
    position = 0
    while position < len(data):
        size = header_at(data, position, position).size
        assert position + size <= len(data), f"{segment!r} ends within a batch"
        found.append(data[position : position + size])
        position += size
    return found


def check(log: ReadableLog, outcomes: Iterable[Outcome], *, log_starts: tuple[int, ...]) -> None:
    """Raise AssertionError unless the log is one of `outcomes`, whole and consistent.

    `log_starts`: what it was told of its start, and what it may have known of that before.
    """
    by_segment = [(segment, stored(segment)) for segment in log.segments]
    found = [data for _, batches in by_segment for data in batches]
    first_base = log.segments.first.base_offset
    end = log.log_end_offset
    outcome = next((each for each in outcomes if each.matches(found, first_base, end)), None)
    spans = [(parsed(data).base_offset, parsed(data).last_offset) for data in found]
    assert outcome is not None, (
        f"segments {[segment.base_offset for segment, _ in by_segment]} hold batches {spans}, "
        f"end {end}: not what may be left of\n"
        + "\n".join(_describe(each, found) for each in outcomes)
    )
    assert log.log_start_offset == max(log_starts[0], first_base)
    log._watermarks.check(log.last_stable_offset)
    for segment, batches in by_segment:
        _check_place(log, segment, batches)
        _check_indexes(segment, batches)
    _check_reads(log, found)
    _check_times(log, found)
    _check_derived(log, outcome.history(end), tuple(found), log_starts)


def _describe(outcome: Outcome, found: Sequence[bytes]) -> str:
    spans = [(parsed(data).base_offset, parsed(data).last_offset) for data in outcome.batches]
    strange = [parsed(data).base_offset for data in found if data not in outcome.batches]
    return (
        f"  {spans} from {outcome.starts}, floor {outcome.floor}, end {outcome.end}"
        f" (not among them: {strange})"
    )


def _check_place(log: ReadableLog, segment: Segment, batches: Sequence[bytes]) -> None:
    following = log.segments.higher(segment.base_offset)
    limit = log.log_end_offset if following is None else following.base_offset
    for data in batches:
        batch = parsed(data)
        assert segment.base_offset <= batch.base_offset <= batch.last_offset < limit


def _check_indexes(segment: Segment, batches: Sequence[bytes]) -> None:
    """Every entry is true. How many there are depends on how the batches were appended."""
    positions = {}
    times: list[tuple[int, int]] = []
    position = 0
    for data in batches:
        batch = parsed(data)
        positions[batch.last_offset] = position
        position += len(data)
        if not times or batch.max_timestamp_ms > times[-1][0]:
            times.append((batch.max_timestamp_ms, batch.last_offset))
    for slot in range(segment.offset_index.entry_count):
        entry = segment.offset_index.entry(slot)
        assert positions.get(entry.offset) == entry.position, f"{segment!r}: {entry} in its index"
    previous = NO_TIMESTAMP
    for slot in range(segment.time_index.entry_count):
        time = segment.time_index.entry(slot)
        assert tuple(time) in times, f"{segment!r}: {time} in its time index"
        assert time.timestamp_ms > previous, f"{segment!r}: {time} behind {previous}"
        previous = time.timestamp_ms
    largest = times[-1] if times else (NO_TIMESTAMP, segment.base_offset)
    assert tuple(segment.largest) == largest


def _check_reads(log: ReadableLog, found: Sequence[bytes]) -> None:
    last_offsets = [parsed(data).last_offset for data in found]
    for offset in range(log.log_start_offset, log.log_end_offset):
        expected = (
            found[index] if (index := bisect_left(last_offsets, offset)) < len(found) else b""
        )
        read = data_of(log.read(offset, 1, Isolation.LOG_END))
        assert read == expected, f"a read at {offset}"
    assert log.read(log.log_end_offset, 1, Isolation.LOG_END).records is None


def _check_times(log: ReadableLog, found: Sequence[bytes]) -> None:
    times = [
        (offset, time_ms)
        for data in found
        for offset, time_ms in record_times(data)
        if offset >= log.log_start_offset
    ]
    targets = [time_ms + step for _, time_ms in times for step in (0, 1)]
    for target in dict.fromkeys(targets):
        expected = next((item for item in times if item[1] >= target), None)
        answer = by_time(log, target)
        assert (None if answer is None else (answer.offset, answer.timestamp_ms)) == expected


def _check_derived(
    log: ReadableLog,
    history: tuple[bytes, ...],
    found: tuple[bytes, ...],
    log_starts: tuple[int, ...],
) -> None:
    whole, left = derived(history), derived(found)
    starts = [max(start, log.segments.first.base_offset) for start in log_starts]
    epochs = [tuple(entry) for entry in log.epochs.entries]
    expected = [_from_start(whole.epochs, start, log.log_end_offset) for start in starts]
    if not found:
        # The epoch that has ended here need not be known.
        expected.append([])
    assert epochs in expected, f"epochs {epochs}, not {expected}"
    for producer_id, entry in log.producers.producers.items():
        known = [state.producers.get(producer_id) for state in (whole, left)]
        assert _plain(entry) in known, f"producer {producer_id} is {_plain(entry)}, not {known}"
    missing = left.producers.keys() - log.producers.producers.keys()
    assert not missing, f"producers {sorted(missing)} are unknown"
    aborted = [
        tuple(transaction)
        for segment in log.segments
        for transaction in segment.transaction_index.all()
    ]
    assert aborted == left.aborted


def _from_start(epochs: Sequence[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """The epochs of a log from `start` to `end`."""
    covering = [epoch for epoch, offset in epochs if offset <= start]
    later = [(epoch, offset) for epoch, offset in epochs if start < offset < end]
    return [(covering[-1], start), *later] if covering else later


def _plain(
    entry: ProducerEntry,
) -> tuple[int, int, int, int, tuple[int, int, int] | None]:
    last = entry.batches[-1][:3] if entry.batches else None
    return (
        entry.epoch,
        entry.coordinator_epoch,
        entry.last_timestamp_ms,
        entry.transaction_first_offset,
        last,
    )
