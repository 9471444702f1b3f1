"""The log against a plain list, driven by hypothesis: everything that can happen to a log.

The model is the list of the batches that should be in the log. All it claims (values, offsets,
epochs, producers, transactions) is derived from that list, so there is nothing in it to go wrong.
What a cleaning leaves is judged against the list as it was (log_model.py), and is the list from
then on. After a loss of power the log may have less than the model, and after a truncation that was
not synced it may have batches again that were cut; then the model is what the log has, once that is
found sound: nothing below the recovery point is lost or changed, and nothing is there that nobody
wrote.
"""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any, TypeAlias

import trio
import trio.testing
from cleaning_rig import keyed
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from log_model import (
    Entry,
    Transaction,
    check_nothing_is_changed,
    check_the_last_of_each_key_stays,
    entry_of,
    transactions_of,
)
from log_rig import TINY, Rig, batches_in, marker, values_in

from kraftpy.log.cleaner import Cleaner
from kraftpy.log.cleaner_settings import CleanerSettings
from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.producer_entries import NO_OFFSET
from kraftpy.records.batch import RecordBatch
from kraftpy.records.compression import Codec
from kraftpy.records.reader import Record
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_crash import CrashPolicy

IDEMPOTENT = (0, 1)
TRANSACTIONAL = (10, 11, 12)
DELETE_RETENTION_MS = 1_000

# Keys, and whether they are deleted.
Keys: TypeAlias = list[tuple[bytes, bool]]
KEYS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([False, False, True])),
    min_size=1,
    max_size=3,
)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        # Everything that was ever in the log, as it was appended and as the cleaner left it.
        self.written: list[Entry] = []
        self.start = self.end = self.high_watermark = 0
        self.leader_epoch = 0
        self.count = 0
        # The log's end when its producers' state was last made from files.
        self.rebuilt_up_to = 0
        # Up to where the log was cleaned, and of what has gone, base offset and epoch.
        self.clean_until = 0
        self.gone: list[tuple[int, int]] = []
        self.horizons: dict[int, int] = {}
        # By producer and marker: where the aborted transaction began.
        self.aborted: dict[tuple[int, int | None], int] = {}

    def run(self, coroutine: Coroutine[Any, Any, object]) -> Any:
        async def main() -> object:
            return await coroutine

        # Each run begins at the same moment: what lives longer than one must not see time jump.
        return trio.run(main, clock=trio.testing.MockClock())

    @initialize(
        segment_bytes=st.sampled_from([250, 400, 1024]),
        interval=st.sampled_from([1, 100, 4096]),
        index_bytes=st.sampled_from([36, 1200]),
        is_compacted=st.sampled_from([True, True, False]),
    )
    def begin(
        self, segment_bytes: int, interval: int, index_bytes: int, is_compacted: bool
    ) -> None:
        self.disk = MemoryDisk(random=Random(1))
        self.config = replace(
            TINY,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            retention_ms=-1,
            is_compacted=is_compacted,
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=DELETE_RETENTION_MS,
        )

        async def prepare() -> None:
            await self.disk.make_directory("/data")
            await self.disk.sync_directory("/")

        self.run(prepare())
        self.rig = Rig(self.disk, "/data", self.config)
        self.log: PartitionLog = self.run(self.rig.load())
        self._start_cleaner()

    def _start_cleaner(self) -> None:
        """With what the checkpoint says, as after every start."""

        async def start() -> Cleaner:
            settings = CleanerSettings()
            cleaner = Cleaner(self.disk, self.rig.clock, settings, logs=lambda: [self.log])
            await cleaner.open_directory("/data", [("t", 0)])
            return cleaner

        self.cleaner: Cleaner = self.run(start())

    # Appending.

    def _append(self, records: bytearray, entry: Entry, **options: Any) -> None:
        info = self.log.append_as_leader(records, self.leader_epoch, **options)
        assert (info.first_offset, info.last_offset) == (self.end, entry.last)
        assert not info.is_duplicate
        self.entries.append(entry)
        self.written.append(entry)
        self.end = entry.last + 1

    def _records(self, keys: Keys) -> tuple[Record, ...]:
        """Each with a value of its own, or none if the key is deleted."""
        records = []
        for index, (key, is_deleted) in enumerate(keys):
            self.count += 1
            value = None if is_deleted else b"%d" % self.count
            records.append(Record(self.end + index, self.rig.clock.now_ms, key, value))
        return tuple(records)

    def _append_data(self, keys: Keys, codec: Codec = Codec.NONE, producer_id: int = -1) -> None:
        records = self._records(keys)
        is_transactional = producer_id in TRANSACTIONAL
        sequence = -1 if producer_id < 0 else self._next_sequence(producer_id)
        entry = Entry(
            self.end,
            self.end + len(records) - 1,
            records,
            self.leader_epoch,
            producer_id,
            sequence,
            is_transactional,
        )
        self._append(self._batch_of(entry, codec), entry)

    def _batch_of(self, entry: Entry, codec: Codec = Codec.NONE) -> bytearray:
        return keyed(
            *((record.key, record.value) for record in entry.records),
            codec=codec,
            timestamp_ms=self.rig.clock.now_ms,
            producer_id=entry.producer_id,
            producer_epoch=min(0, entry.producer_id),
            sequence=entry.sequence,
            is_transactional=entry.is_transactional,
        )

    @rule(keys=KEYS, codec=st.sampled_from([Codec.NONE, Codec.LZ4]))
    def append(self, keys: Keys, codec: Codec) -> None:
        self._append_data(keys, codec)

    @rule(producer_id=st.sampled_from(IDEMPOTENT), keys=KEYS)
    def append_idempotent(self, producer_id: int, keys: Keys) -> None:
        self._append_data(keys, producer_id=producer_id)

    @rule(producer_id=st.sampled_from(IDEMPOTENT))
    def repeat_the_last(self, producer_id: int) -> None:
        last = self._last_of(producer_id)
        # Without its data a producer may be forgotten.
        if last is None or last.last < self.start:
            return
        # With as many records as it once had; what they say is not compared.
        records = tuple(Record(at, 0, b"k", b"") for at in range(last.base, last.last + 1))
        repeated = self._batch_of(replace(last, records=records))
        info = self.log.append_as_leader(repeated, self.leader_epoch)
        assert info.is_duplicate
        assert (info.first_offset, info.last_offset) == (last.base, last.last)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), keys=KEYS)
    def append_in_transaction(self, producer_id: int, keys: Keys) -> None:
        self._append_data(keys, producer_id=producer_id)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), is_commit=st.booleans())
    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        self._append(
            marker(producer_id, 0, is_commit=is_commit),
            Entry(
                self.end,
                self.end,
                (),
                self.leader_epoch,
                producer_id,
                is_transactional=True,
                is_marker=True,
                is_commit=is_commit,
            ),
            origin=AppendOrigin.COORDINATOR,
            transaction_version=1,
        )
        for transaction in self._transactions():
            if transaction.is_aborted:
                key = (transaction.producer_id, transaction.marker)
                self.aborted.setdefault(key, transaction.first)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), keys=KEYS, is_commit=st.booleans())
    def transact(self, producer_id: int, keys: Keys, is_commit: bool) -> None:
        """What mostly follows each other, so that there is something decided to be cleaned."""
        self.append_in_transaction(producer_id, keys)
        self.end_transaction(producer_id, is_commit)

    @rule()
    def elect_a_leader(self) -> None:
        self.leader_epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    # The ends of the log.

    @rule(share=st.floats(0, 1) | st.just(1.0))
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
        # Where a batch begins: what replicas agree on are batches. What was cleaned is decided
        # and replicated; nobody who is elected cleanly lacks it.
        low = max(self.start, self.clean_until)
        bases = [entry.base for entry in self.entries if entry.base >= low]
        target = [*bases, self.end][round(len(bases) * share)]
        self.run(self.cleaner.lower_checkpoint(self.log, target))
        self.run(self.log.truncate_to(target))
        self.entries = [entry for entry in self.entries if entry.last < target]
        self.end = self.rebuilt_up_to = target
        self.high_watermark = min(self.high_watermark, target)
        self._forget_cleaning(target)
        # Whoever appends after a truncation is a new leader, or has it from one.
        self.leader_epoch += 1

    def _forget_cleaning(self, offset: int) -> None:
        """What follows the offset is new."""
        self.clean_until = min(self.clean_until, offset)
        self.gone = [(base, epoch) for base, epoch in self.gone if base < offset]
        self.horizons = {base: at for base, at in self.horizons.items() if base < offset}
        self.aborted = {
            key: first
            for key, first in self.aborted.items()
            if key[1] is not None and key[1] < offset
        }

    @precondition(lambda self: self.end > 20)
    @rule(offset=st.integers(0, 100))
    def begin_anew(self, offset: int) -> None:
        self.run(self.cleaner.lower_checkpoint(self.log, offset))
        self.run(self.log.truncate_fully_and_start_at(offset))
        self.entries = []
        self.start = self.end = self.high_watermark = offset
        self._forget_cleaning(0)

    # Cleaning.

    @precondition(lambda self: self.config.is_compacted)
    @rule(
        map_slots=st.sampled_from([3, 1_000, 1_000]),
        lag_ms=st.sampled_from([0, 0, 5]),
        is_late=st.sampled_from([True, True, False]),
    )
    def clean(self, map_slots: int, lag_ms: int, is_late: bool) -> None:
        """LOG-107, LOG-108, LOG-112, LOG-115, in the middle of anything."""
        if is_late:
            # When all is replicated, and nothing of it in the active segment any more.
            self.raise_high_watermark(1.0)
            self.log.roll()
        # A map of few slots is full early, and then the log is clean up to some record only.
        self.cleaner.configure(CleanerSettings(map_bytes=map_slots * 24, buffer_bytes=300))
        self.log.config = replace(self.config, min_compaction_lag_ms=lag_ms)
        before = [entry for entry in self.entries if entry.last >= self.start]
        was_clean_until = self.cleaner.clean_until(self.log) or 0
        stable_offset = self.log.last_stable_offset
        is_cleaned = self.run(self.cleaner.clean_dirtiest())
        self.log.config = self.config
        assert self.cleaner.uncleanable == {}
        assert self.rig.owner.failures == []
        if not is_cleaned:
            return
        end = self.cleaner.clean_until(self.log)
        assert end is not None
        assert end <= stable_offset
        self.clean_until = end
        after = self._found()
        now_ms = self.rig.clock.now_ms
        check_nothing_is_changed(before, after, end)
        check_the_last_of_each_key_stays(
            before, after, end, self.horizons, now_ms=now_ms, retention_ms=DELETE_RETENTION_MS
        )
        for entry in before:
            if entry.base >= was_clean_until and any(
                record.timestamp_ms > now_ms - lag_ms for record in entry.records
            ):
                assert not lag_ms or entry in after, "too young"
        kept = [entry.base for entry in after]
        self.gone += [(e.base, e.leader_epoch) for e in before if e.base not in kept]
        self.entries = [e for e in self.entries if e.last < self.start] + after
        self.written += after

    def _found(self) -> list[Entry]:
        return [
            entry_of(one)
            for one in batches_in(self.log)
            if isinstance(one, RecordBatch) and one.last_offset >= self.start
        ]

    # Time passes.

    @rule(milliseconds=st.sampled_from([1, 10, DELETE_RETENTION_MS]))
    def wait(self, milliseconds: int) -> None:
        self.rig.clock.now_ms += milliseconds

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
        self._start_cleaner()

    @rule(policy=st.sampled_from(CrashPolicy), seed=st.integers(0, 100))
    def lose_power(self, policy: CrashPolicy, seed: int) -> None:
        recovery_point = self.log.recovery_point
        assert self.rig.owner.failures == []
        self.disk.crash(policy, Random(seed))
        now_ms = self.rig.clock.now_ms
        self.rig = Rig(self.disk, "/data", self.config)
        self.rig.clock.now_ms = now_ms
        self.log = self.run(
            self.rig.load(recovery_point=recovery_point, log_start_offset=self.start)
        )
        assert self.log.log_end_offset >= recovery_point
        found = self._found()
        assert all(entry in self.written for entry in found), "nothing is invented"
        durable_until = max(recovery_point, self.clean_until)
        durable = [e for e in self.entries if self.start <= e.last < durable_until]
        assert [e for e in found if e.last < durable_until] == durable, "nothing durable is lost"
        older = [entry for entry in self.entries if entry.last < self.start]
        self.entries = older + found
        self.end = self.rebuilt_up_to = self.log.log_end_offset
        assert self.end >= (found[-1].last + 1 if found else self.start)
        self.high_watermark = self.log.update_high_watermark(min(self.high_watermark, self.end))
        self.leader_epoch += 1
        self._start_cleaner()

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
        """Of those too that the cleaner has taken."""
        for base, epoch in self.gone:
            if base >= self.start:
                assert self.log.epochs.epoch_for_offset(base) == epoch
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
        # Of some the cleaner has taken everything, and readers may hear of them or not.
        assert listed.keys() <= self.aborted.keys()
        for transaction in self._transactions():
            if not transaction.is_aborted:
                continue
            key = (transaction.producer_id, transaction.marker)
            visible = max(transaction.first, self.start)
            if transaction.last_data >= self.start and visible < min(
                bound, self.log.last_stable_offset
            ):
                assert self.aborted[key] <= listed[key] <= visible

    # Derived from the list.

    def _values_below(self, bound: int) -> dict[int, bytes]:
        return {
            record.offset: record.value or b""
            for entry in self.entries
            if entry.last < bound
            for record in entry.records
            if record.offset >= self.start
        }

    def _last_of(self, producer_id: int) -> Entry | None:
        mine = [e for e in self.entries if e.producer_id == producer_id and not e.is_marker]
        return mine[-1] if mine else None

    def _next_sequence(self, producer_id: int) -> int:
        known = self.log.producers.producers.get(producer_id)
        if known is None or not known.batches:
            return 0
        return known.last_sequence + 1

    def _transactions(self) -> list[Transaction]:
        return transactions_of(self.entries, self.start)


LogMachine.TestCase.settings = settings(
    max_examples=150,
    # A failure is printed as it was found: to shrink one takes minutes.
    phases=[Phase.generate],
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLog = LogMachine.TestCase
