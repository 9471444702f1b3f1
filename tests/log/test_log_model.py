"""The log against a plain list, driven by hypothesis: everything that can happen to a log.

The model is the list of the batches that should be in the log. All it claims (values, offsets,
epochs, producers, transactions) is derived from that list, so there is nothing in it to go wrong.
After a loss of power the log may have less than the model, and after a truncation that was not
synced it may have batches again that were cut; then the model is what the log has, once that is
found sound: nothing below the recovery point is lost or changed, and nothing is there that nobody
wrote.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import trio
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from log_rig import NOW_MS, TINY, Rig, batch, batches_in, marker, values_in

from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.producer_entries import NO_OFFSET
from kraftpy.records.batch import RecordBatch
from kraftpy.records.compression import Codec
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.reader import read_records
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_crash import CrashPolicy

IDEMPOTENT = (0, 1)
TRANSACTIONAL = (10, 11, 12)


@dataclass(frozen=True)
class Entry:
    """A batch that should be in the log."""

    base: int
    values: tuple[bytes, ...]
    leader_epoch: int
    producer_id: int = -1
    sequence: int = -1
    is_transactional: bool = False
    is_commit: bool | None = None
    """Of a marker."""

    @property
    def last(self) -> int:
        return self.base + len(self.values) - 1


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
    records = list(read_records(found, max_bytes=1 << 20))
    is_commit = None
    if found.is_control:
        control = read_control_record(records[0])
        assert isinstance(control, EndTransactionMarker)
        is_commit = control.is_commit
    return Entry(
        base=found.base_offset,
        values=tuple(b"" if found.is_control else record.value or b"" for record in records),
        leader_epoch=found.leader_epoch,
        producer_id=found.producer_id,
        sequence=found.base_sequence,
        is_transactional=found.is_transactional,
        is_commit=is_commit,
    )


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        # Everything that was ever appended.
        self.written: list[Entry] = []
        self.start = self.end = self.high_watermark = 0
        self.leader_epoch = 0
        self.count = 0
        # The log's end when its producers' state was last made from files.
        self.rebuilt_up_to = 0

    def run(self, coroutine: Coroutine[Any, Any, object]) -> Any:
        async def main() -> object:
            return await coroutine

        return trio.run(main)

    @initialize(
        segment_bytes=st.sampled_from([250, 400, 1024]),
        interval=st.sampled_from([1, 100, 4096]),
        index_bytes=st.sampled_from([36, 1200]),
    )
    def begin(self, segment_bytes: int, interval: int, index_bytes: int) -> None:
        self.disk = MemoryDisk(random=Random(1))
        self.config = replace(
            TINY,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            retention_ms=-1,
        )

        async def prepare() -> None:
            await self.disk.make_directory("/data")
            await self.disk.sync_directory("/")

        self.run(prepare())
        self.rig = Rig(self.disk, "/data", self.config)
        self.log: PartitionLog = self.run(self.rig.load())

    # Appending.

    def _append(self, records: bytearray, entry: Entry, **options: Any) -> None:
        info = self.log.append_as_leader(records, self.leader_epoch, **options)
        assert (info.first_offset, info.last_offset) == (self.end, entry.last)
        assert not info.is_duplicate
        self.entries.append(entry)
        self.written.append(entry)
        self.end = entry.last + 1

    def _values(self, count: int) -> tuple[bytes, ...]:
        self.count += count
        return tuple(b"%d" % number for number in range(self.count - count, self.count))

    @rule(count=st.integers(1, 3), codec=st.sampled_from([Codec.NONE, Codec.LZ4]))
    def append(self, count: int, codec: Codec) -> None:
        values = self._values(count)
        self._append(
            batch(*values, codec=codec, timestamp_ms=NOW_MS + self.count),
            Entry(self.end, values, self.leader_epoch),
        )

    @rule(producer_id=st.sampled_from(IDEMPOTENT), count=st.integers(1, 3))
    def append_idempotent(self, producer_id: int, count: int) -> None:
        values, sequence = self._values(count), self._next_sequence(producer_id)
        self._append(
            batch(*values, producer_id=producer_id, producer_epoch=0, sequence=sequence),
            Entry(self.end, values, self.leader_epoch, producer_id, sequence),
        )

    @rule(producer_id=st.sampled_from(IDEMPOTENT))
    def repeat_the_last(self, producer_id: int) -> None:
        last = self._last_of(producer_id)
        # Without its data a producer may be forgotten.
        if last is None or last.last < self.start:
            return
        info = self.log.append_as_leader(
            batch(*last.values, producer_id=producer_id, producer_epoch=0, sequence=last.sequence),
            self.leader_epoch,
        )
        assert info.is_duplicate
        assert (info.first_offset, info.last_offset) == (last.base, last.last)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), count=st.integers(1, 2))
    def append_in_transaction(self, producer_id: int, count: int) -> None:
        values, sequence = self._values(count), self._next_sequence(producer_id)
        records = batch(
            *values,
            producer_id=producer_id,
            producer_epoch=0,
            sequence=sequence,
            is_transactional=True,
        )
        self._append(
            records,
            Entry(
                self.end, values, self.leader_epoch, producer_id, sequence, is_transactional=True
            ),
        )

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), is_commit=st.booleans())
    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        self._append(
            marker(producer_id, 0, is_commit=is_commit),
            Entry(
                self.end,
                (b"",),
                self.leader_epoch,
                producer_id,
                is_transactional=True,
                is_commit=is_commit,
            ),
            origin=AppendOrigin.COORDINATOR,
            transaction_version=1,
        )

    @rule()
    def elect_a_leader(self) -> None:
        self.leader_epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    # The ends of the log.

    @rule(share=st.floats(0, 1))
    def raise_high_watermark(self, share: float) -> None:
        target = self.high_watermark + round((self.end - self.high_watermark) * share)
        self.high_watermark = self.log.update_high_watermark(target)
        assert self.high_watermark == target

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.start += round((self.high_watermark - self.start) * share)
        self.log.raise_log_start(self.start)

    @rule(limit_bytes=st.integers(0, 2000))
    def delete_by_size(self, limit_bytes: int) -> None:
        self.log.config = replace(self.config, retention_bytes=limit_bytes)
        self.run(self.log.delete_old_segments())
        self.log.config = self.config
        assert self.start <= self.log.log_start_offset <= self.high_watermark
        self.start = self.log.log_start_offset
        assert self.log.segments.first.base_offset <= self.start

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        # Where a batch begins: what replicas agree on are batches.
        bases = [entry.base for entry in self.entries if entry.base >= self.start]
        target = [*bases, self.end][round(len(bases) * share)]
        self.run(self.log.truncate_to(target))
        self._cut(target)
        # Whoever appends after a truncation is a new leader, or has it from one.
        self.leader_epoch += 1

    def _cut(self, target: int) -> None:
        self.entries = [entry for entry in self.entries if entry.last < target]
        self.end = self.rebuilt_up_to = target
        self.high_watermark = min(self.high_watermark, target)

    @precondition(lambda self: self.end > 20)
    @rule(offset=st.integers(0, 100))
    def begin_anew(self, offset: int) -> None:
        self.run(self.log.truncate_fully_and_start_at(offset))
        self.entries = []
        self.start = self.end = self.high_watermark = offset

    # Time passes.

    @rule()
    def flush(self) -> None:
        self.run(self.log.flush())
        assert self.log.recovery_point == self.end

    @rule()
    def work(self) -> None:
        self.run(self.log.do_pending_work())

    @rule()
    def unlink_what_was_deleted(self) -> None:
        async def unlink() -> None:
            for paths, _ in self.rig.owner.unlinks:
                for path in paths:
                    # A segment with the same base may have gone the same way since.
                    with suppress(FileNotFoundError):
                        await self.disk.unlink(path)
            self.rig.owner.unlinks.clear()

        self.run(unlink())

    @rule()
    def restart(self) -> None:
        self.log = self.run(self.rig.reload(self.log))
        self.rig.owner.unlinks.clear()
        self.rebuilt_up_to = self.end
        self.high_watermark = self.log.update_high_watermark(self.high_watermark)

    @rule(policy=st.sampled_from(CrashPolicy), seed=st.integers(0, 100))
    def lose_power(self, policy: CrashPolicy, seed: int) -> None:
        recovery_point = self.log.recovery_point
        assert self.rig.owner.failures == []
        self.disk.crash(policy, Random(seed))
        self.rig = Rig(self.disk, "/data", self.config)
        self.log = self.run(
            self.rig.load(recovery_point=recovery_point, log_start_offset=self.start)
        )
        assert self.log.log_end_offset >= recovery_point
        found = [
            entry_of(one)
            for one in batches_in(self.log)
            if isinstance(one, RecordBatch) and one.last_offset >= self.start
        ]
        assert all(entry in self.written for entry in found), "nothing is invented"
        durable = [e for e in self.entries if self.start <= e.last < recovery_point]
        assert [e for e in found if e.last < recovery_point] == durable, "nothing durable is lost"
        older = [entry for entry in self.entries if entry.last < self.start]
        self.entries = older + found
        self.end = self.rebuilt_up_to = self.log.log_end_offset
        assert self.end >= (found[-1].last + 1 if found else self.start)
        self.high_watermark = self.log.update_high_watermark(min(self.high_watermark, self.end))
        self.leader_epoch += 1

    # What must hold.

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.high_watermark == self.high_watermark
        holding = [
            t for t in self._transactions() if t.marker is None or t.marker >= self.high_watermark
        ]
        # A state that was rebuilt knows nothing of what was deleted, and a snapshot nothing of
        # markers that were not replicated.
        open_or_new = [t for t in holding if t.marker is None or t.marker >= self.rebuilt_up_to]
        assert log.last_stable_offset in [
            max(self.start, min([self.high_watermark, *firsts]))
            for firsts in (
                [t.first for t in holding],
                [t.first_left for t in holding],
                [t.first_left for t in open_or_new],
            )
        ]
        log._watermarks.check(log.last_stable_offset)

    @invariant()
    def everything_can_be_read(self) -> None:
        assert values_in(self.log) == self._values_below(self.end)
        # A high watermark within a batch, which there is none of outside of tests, hides it.
        read = values_in(self.log, isolation=Isolation.HIGH_WATERMARK)
        assert read == self._values_below(self.high_watermark)

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        for entry in self.entries:
            if entry.last >= self.start:
                offset = max(entry.base, self.start)
                assert self.log.epochs.epoch_for_offset(offset) == entry.leader_epoch

    @invariant()
    def producers_go_on_where_they_were(self) -> None:
        for producer_id in (*IDEMPOTENT, *TRANSACTIONAL):
            last = self._last_of(producer_id)
            entry = self.log.producers.producers.get(producer_id)
            if last is not None and last.base >= self.start:
                assert entry is not None
                assert entry.last_data_offset == last.last
            mine = [t for t in self._transactions() if t.producer_id == producer_id]
            is_open = bool(mine) and mine[-1].marker is None
            if entry is not None and (not is_open or mine[-1].last_data >= self.start):
                assert (entry.transaction_first_offset != NO_OFFSET) == is_open

    @invariant()
    def aborted_transactions_are_listed(self) -> None:
        if self.start >= self.log.last_stable_offset:
            return
        read = self.log.read(self.start, 1 << 20, Isolation.COMMITTED)
        assert read.aborted_transactions is not None
        listed = {(t.producer_id, t.last_offset): t.first_offset for t in read.aborted_transactions}
        following = self.log.segments.higher(read.fetch_offset.segment_base_offset)
        bound = self.end if following is None else following.base_offset
        aborted = {(t.producer_id, t.marker): t for t in self._transactions() if t.is_aborted}
        assert listed.keys() <= aborted.keys()
        for key, transaction in aborted.items():
            visible = max(transaction.first, self.start)
            if transaction.last_data >= self.start and visible < min(
                bound, self.log.last_stable_offset
            ):
                assert transaction.first <= listed[key] <= visible

    # Derived from the list.

    def _values_below(self, bound: int) -> dict[int, bytes]:
        return {
            entry.base + index: value
            for entry in self.entries
            if entry.is_commit is None and entry.last < bound
            for index, value in enumerate(entry.values)
            if entry.base + index >= self.start
        }

    def _last_of(self, producer_id: int) -> Entry | None:
        mine = [e for e in self.entries if e.producer_id == producer_id and e.is_commit is None]
        return mine[-1] if mine else None

    def _next_sequence(self, producer_id: int) -> int:
        known = self.log.producers.producers.get(producer_id)
        if known is None or not known.batches:
            return 0
        return known.last_sequence + 1

    def _transactions(self) -> list[Transaction]:
        """In the order of their markers, the open ones last."""
        opened: dict[int, Transaction] = {}
        ended = []
        for entry in self.entries:
            if not entry.is_transactional:
                continue
            known = opened.get(entry.producer_id)
            if entry.is_commit is None:
                first = entry.base if known is None else known.first
                first_left = sys.maxsize if known is None else known.first_left
                if entry.last >= self.start:
                    first_left = min(first_left, entry.base)
                opened[entry.producer_id] = Transaction(
                    entry.producer_id, first, first_left, entry.last
                )
            elif known is not None:
                is_aborted = not entry.is_commit
                ended.append(replace(known, marker=entry.base, is_aborted=is_aborted))
                del opened[entry.producer_id]
        return [*ended, *opened.values()]


LogMachine.TestCase.settings = settings(
    max_examples=60,
    # A failure is printed as it was found: to shrink one takes minutes.
    phases=[Phase.generate],
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLog = LogMachine.TestCase
