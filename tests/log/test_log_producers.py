"""Producer state: sequences, epochs, transactions (LOG-83; its part of LOG-74 and LOG-98)."""

from __future__ import annotations

import pytest

from kraftpy.log.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from kraftpy.log.producer_entries import (
    SEQUENCE_MAX,
    BatchMetadata,
    CompletedTransaction,
    OpenTransaction,
    ProducerEntry,
    decrement_sequence,
    increment_sequence,
)
from kraftpy.log.producers import LATE_TRANSACTION_BUFFER_MS, ProducerState
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import InternalInvariant

CLIENT, COORDINATOR, REPLICATION, _ = AppendOrigin
DAY_MS = 86_400_000


class Log:
    """A log reduced to its end offset, with the state that goes with it."""

    def __init__(self, *, verify: bool = False) -> None:
        self.state = ProducerState(expiration_ms=DAY_MS, verify_transactions=verify)
        self.end = 0

    def write(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        count: int = 1,
        *,
        transactional: bool = False,
        origin: AppendOrigin = CLIENT,
        guard: VerificationGuard = NO_GUARD,
        timestamp_ms: int = 1000,
    ) -> BatchMetadata | None:
        """Append a batch; the remembered one if it is a repetition."""
        if origin == CLIENT:
            repeated = self.state.find_duplicate(
                producer_id, epoch, base_sequence=sequence, last_offset_delta=count - 1
            )
            if repeated is not None:
                return repeated
        update = self.state.prepare(origin, guard=guard)
        update.add_batch(
            producer_id,
            epoch,
            base_sequence=sequence,
            base_offset=self.end,
            last_offset=self.end + count - 1,
            max_timestamp_ms=timestamp_ms,
            is_transactional=transactional,
            segment_base_offset=0,
            position=self.end * 100,
        )
        self.end += count
        self.state.commit(update)
        self.state.advance(self.end)
        return None

    def mark(
        self,
        producer_id: int,
        epoch: int,
        *,
        abort: bool = False,
        coordinator_epoch: int = 0,
        version: int = 1,
        origin: AppendOrigin = COORDINATOR,
    ) -> list[tuple[CompletedTransaction, int]]:
        """Append a marker; what it completed, with the last stable offset for the index."""
        update = self.state.prepare(origin, transaction_version=version)
        update.add_marker(
            producer_id,
            epoch,
            coordinator_epoch=coordinator_epoch,
            offset=self.end,
            timestamp_ms=1000,
            is_abort=abort,
        )
        self.end += 1
        self.state.commit(update)
        indexed = []
        for completed in update.completed:
            indexed.append((completed, self.state.last_stable_offset_after(completed)))
            self.state.complete(completed)
        self.state.advance(self.end)
        return indexed

    def unstable(self) -> int | None:
        first = self.state.first_unstable
        return None if first is None else first.first_offset


# Sequences.


def test_sequences_follow_each_other() -> None:
    """TXN-2, LOG-83: accepted if it is the last one plus one, a gap is out of order."""
    log = Log()
    log.write(7, 0, 0, count=3)
    log.write(7, 0, 3)
    with pytest.raises(OutOfOrderSequenceError, match="wrote sequence 5 after 3") as caught:
        log.write(7, 0, 5)
    assert caught.value.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.write(7, 0, 4)
    assert log.state.producers[7].last_sequence == 4


def test_a_repeated_batch_is_found_with_its_first_offsets() -> None:
    """TXN-2, LOG-83: the last five are remembered, the sixth is not."""
    log = Log()
    for number in range(6):
        log.write(7, 0, number * 2, count=2, timestamp_ms=1000 + number)
    end = log.end
    for number in range(1, 6):
        repeated = log.write(7, 0, number * 2, count=2)
        assert repeated == BatchMetadata(number * 2 + 1, number * 2 + 1, 1, 1000 + number)
        assert repeated.first_offset == number * 2
        assert repeated.first_sequence == number * 2
    assert log.end == end
    with pytest.raises(OutOfOrderSequenceError):
        log.write(7, 0, 0, count=2)


def test_only_the_same_range_and_epoch_is_a_repetition() -> None:
    """LOG-83: a part of a batch, or another epoch's, is not."""
    log = Log()
    log.write(7, 0, 0, count=4)
    for sequence, count in ((0, 3), (1, 3), (0, 5)):
        with pytest.raises(OutOfOrderSequenceError):
            log.write(7, 0, sequence, count=count)
    assert log.write(7, 1, 0, count=4) is None
    assert log.write(8, 0, 0, count=4) is None


def test_sequences_wrap() -> None:
    """TXN-3, LOG-83: after Int.MAX comes 0, within a batch and between two."""
    log = Log()
    log.write(7, 0, SEQUENCE_MAX - 1, count=2)
    log.write(7, 0, 0, count=2)
    log.write(8, 0, SEQUENCE_MAX - 1, count=4)
    assert log.state.producers[8].last_sequence == 1
    repeated = log.write(8, 0, SEQUENCE_MAX - 1, count=4)
    assert repeated is not None
    assert repeated.first_sequence == SEQUENCE_MAX - 1
    log.write(8, 0, 2)
    with pytest.raises(OutOfOrderSequenceError):
        log.write(7, 0, SEQUENCE_MAX)


@pytest.mark.parametrize(
    ("sequence", "step", "result"),
    [
        (0, 1, 1),
        (SEQUENCE_MAX, 1, 0),
        (SEQUENCE_MAX - 1, 1, SEQUENCE_MAX),
        (SEQUENCE_MAX, SEQUENCE_MAX, SEQUENCE_MAX - 1),
        (5, 0, 5),
    ],
)
def test_sequence_arithmetic(sequence: int, step: int, result: int) -> None:
    assert increment_sequence(sequence, step) == result
    assert decrement_sequence(result, step) == sequence


def test_a_new_producer_may_begin_anywhere() -> None:
    """Its state may have expired, or its data been deleted."""
    log = Log()
    log.write(7, 3, 41)
    with pytest.raises(OutOfOrderSequenceError):
        log.write(7, 3, 43)


def test_a_new_epoch_begins_at_zero() -> None:
    """TXN-4."""
    log = Log()
    log.write(7, 0, 0)
    with pytest.raises(OutOfOrderSequenceError, match="began epoch 1 at sequence 1"):
        log.write(7, 1, 1)
    log.write(7, 1, 0)
    assert log.state.producers[7].batches == (BatchMetadata(0, 1, 0, 1000),)


def test_a_stale_epoch_is_fenced() -> None:
    """TXN-4."""
    log = Log()
    log.write(7, 5, 0)
    with pytest.raises(InvalidProducerEpochError) as caught:
        log.write(7, 4, 1)
    assert caught.value.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(InvalidProducerEpochError):
        log.write(7, 4, -1, origin=COORDINATOR)


def test_a_coordinators_sequences_are_not_checked() -> None:
    """All of its batches have sequence 0, or none at all."""
    log = Log()
    for sequence in (0, 0, -1):
        log.write(7, 0, sequence, transactional=True, origin=COORDINATOR)
    assert log.state.producers[7].last_sequence == -1
    assert len(log.state.producers[7].batches) == 3


def test_replication_takes_what_the_leader_took(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    log.write(7, 5, 10, origin=REPLICATION)
    log.write(7, 5, 99, origin=REPLICATION)
    log.write(7, 4, 3, origin=REPLICATION)
    assert "fenced" in caplog.text
    assert log.state.producers[7].epoch == 4
    assert log.state.producers[7].last_sequence == 3
    log.mark(7, 3, coordinator_epoch=5, origin=REPLICATION, version=-1)
    log.mark(7, 3, coordinator_epoch=4, origin=REPLICATION, version=-1)
    assert log.state.producers[7].coordinator_epoch == 4


@pytest.mark.parametrize("is_known", [False, True])
def test_several_batches_are_checked_against_each_other(is_known: bool) -> None:
    log = Log()
    if is_known:
        log.write(7, 0, 0)
    update = log.state.prepare(CLIENT)

    def add(sequence: int) -> None:
        update.add_batch(
            7,
            0,
            base_sequence=sequence,
            base_offset=sequence,
            last_offset=sequence,
            max_timestamp_ms=1,
            is_transactional=False,
        )

    add(1)
    add(2)
    with pytest.raises(OutOfOrderSequenceError, match="wrote sequence 4 after 2"):
        add(4)


def test_a_failed_append_leaves_nothing_behind() -> None:
    """An update that is not committed, with all that an update can hold."""
    log = Log(verify=True)
    guard = log.state.start_verification(
        7, epoch=0, sequence=0, now_ms=0, supports_epoch_bump=False
    )
    log.write(7, 0, 0, transactional=True, guard=guard)
    waiting = log.state.start_verification(
        9, epoch=0, sequence=0, now_ms=0, supports_epoch_bump=False
    )
    before = (dict(log.state.producers), log.state.first_unstable, log.state.map_end_offset)
    update = log.state.prepare(REPLICATION, transaction_version=1)
    for producer_id in (7, 8, 9):
        update.add_batch(
            producer_id, 0, base_sequence=1, base_offset=1, last_offset=1,
            max_timestamp_ms=9, is_transactional=True,
        )  # fmt: skip
    update.add_marker(7, 1, coordinator_epoch=1, offset=2, timestamp_ms=9, is_abort=True)
    assert len(update.completed) == 1
    after = (dict(log.state.producers), log.state.first_unstable, log.state.map_end_offset)
    assert after == before
    assert log.state.accepts_guard(9, waiting)


# Transactions.


def test_a_transaction_holds_readers_back_until_its_marker_is_replicated() -> None:
    """LOG-74: open, then decided but above the high watermark, then stable."""
    log = Log()
    log.write(7, 0, 0)
    log.write(7, 0, 1, transactional=True)
    log.write(7, 0, 2, transactional=True)
    assert log.state.first_unstable == OpenTransaction(7, 1, 0, 100)
    assert log.state.first_undecided_offset == 1
    assert log.mark(7, 0) == [(CompletedTransaction(7, 1, 3, is_aborted=False), 4)]
    assert log.state.first_undecided_offset is None
    log.state.high_watermark_advanced(3)
    assert log.unstable() == 1
    log.state.high_watermark_advanced(4)
    assert log.unstable() is None


def test_the_earliest_of_open_and_unreplicated_counts() -> None:
    """LOG-74."""
    log = Log()
    for producer_id in (1, 2, 3):
        log.write(producer_id, 0, 0, transactional=True)
    # The last stable offset for the index is the first offset of the earliest other open one.
    assert log.mark(2, 0, abort=True) == [(CompletedTransaction(2, 1, 3, is_aborted=True), 0)]
    assert log.unstable() == 0
    assert log.mark(1, 0) == [(CompletedTransaction(1, 0, 4, is_aborted=False), 2)]
    assert log.unstable() == 0
    log.state.high_watermark_advanced(4)
    assert log.unstable() == 0
    log.state.high_watermark_advanced(5)
    assert log.unstable() == 2
    log.mark(3, 0)
    assert log.unstable() == 2
    log.write(1, 0, 1, transactional=True)
    log.state.high_watermark_advanced(6)
    assert log.unstable() == 6


def test_a_marker_without_data_completes_nothing() -> None:
    log = Log()
    assert log.mark(7, 0, abort=True) == []
    entry = log.state.producers[7]
    assert (entry.epoch, entry.coordinator_epoch, entry.batches) == (0, 0, ())
    # A producer that is known by a marker alone begins at 0.
    with pytest.raises(OutOfOrderSequenceError):
        log.write(7, 0, 1)
    log.write(7, 0, 0)


def test_a_plain_write_inside_a_transaction_is_refused() -> None:
    """TXN-37."""
    log = Log()
    log.write(7, 0, 0, transactional=True)
    with pytest.raises(InvalidTransactionStateError) as caught:
        log.write(7, 0, 1)
    assert caught.value.error_code == ErrorCode.INVALID_TXN_STATE
    log.mark(7, 0)
    log.write(7, 0, 1)


def test_sequences_go_on_after_a_marker_of_the_same_epoch() -> None:
    log = Log()
    log.write(7, 0, 0, transactional=True)
    log.mark(7, 0)
    with pytest.raises(OutOfOrderSequenceError):
        log.write(7, 0, 0, count=2, transactional=True)
    log.write(7, 0, 1, transactional=True)


def test_a_replaced_coordinator_is_fenced() -> None:
    log = Log()
    log.write(7, 0, 0, transactional=True)
    log.mark(7, 0, coordinator_epoch=3)
    log.write(7, 0, 1, transactional=True)
    with pytest.raises(TransactionCoordinatorFencedError) as caught:
        log.mark(7, 0, coordinator_epoch=2)
    assert caught.value.error_code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    log.mark(7, 0, coordinator_epoch=3)


def test_markers_of_version_1_may_repeat_the_epoch() -> None:
    log = Log()
    log.write(7, 5, 0, transactional=True)
    with pytest.raises(InvalidProducerEpochError):
        log.mark(7, 4, version=1)
    log.mark(7, 5, version=1)


def test_markers_of_version_2_bring_a_new_epoch() -> None:
    """KIP-1228: an old epoch's marker can't end the next transaction."""
    log = Log()
    log.write(7, 5, 0, transactional=True)
    for stale in (4, 5):
        with pytest.raises(InvalidProducerEpochError):
            log.mark(7, stale, version=2)
    assert len(log.mark(7, 6, version=2)) == 1
    # The same marker again, as after a lost answer: written, and completes nothing.
    assert log.mark(7, 6, version=2) == []
    with pytest.raises(InvalidProducerEpochError):
        log.mark(7, 5, version=2)
    log.write(7, 6, 0, transactional=True)
    with pytest.raises(InvalidProducerEpochError):
        log.mark(7, 6, version=2)


def test_a_leader_must_know_the_version_of_a_marker() -> None:
    with pytest.raises(InternalInvariant, match="marker-without-transaction-version"):
        Log().mark(7, 0, version=-1)


def test_completing_what_is_not_open_is_our_mistake() -> None:
    with pytest.raises(InternalInvariant, match="completed-unknown-transaction"):
        Log().state.complete(CompletedTransaction(7, 0, 1, is_aborted=False))


def test_late_transactions() -> None:
    log = Log()
    timeout_ms = 900_000
    assert not log.state.has_late_transaction(10**12, timeout_ms)
    log.write(7, 0, 0, transactional=True, timestamp_ms=1000)
    limit_ms = 1000 + timeout_ms + LATE_TRANSACTION_BUFFER_MS
    assert not log.state.has_late_transaction(limit_ms, timeout_ms)
    assert log.state.has_late_transaction(limit_ms + 1, timeout_ms)
    log.mark(7, 0)
    assert not log.state.has_late_transaction(limit_ms + 1, timeout_ms)


# Verification.


def verify(
    log: Log, producer_id: int = 7, epoch: int = 0, sequence: int = 0, *, bump: bool = False
) -> VerificationGuard:
    return log.state.start_verification(
        producer_id, epoch=epoch, sequence=sequence, now_ms=0, supports_epoch_bump=bump
    )


def test_a_transaction_begins_only_with_its_guard() -> None:
    log = Log(verify=True)
    for origin in (CLIENT, COORDINATOR):
        with pytest.raises(InvalidTransactionStateError, match="no verified transaction"):
            log.write(7, 0, 0, transactional=True, origin=origin)
    guard = verify(log)
    with pytest.raises(InvalidTransactionStateError):
        log.write(7, 0, 0, transactional=True, guard=VerificationGuard())
    log.write(7, 0, 0, transactional=True, guard=guard)
    # TV-6: the transaction is open; nothing more is needed.
    assert verify(log, sequence=1) is NO_GUARD
    log.write(7, 0, 1, transactional=True)


def test_no_guard_never_fits() -> None:
    """TV-8."""
    log = Log(verify=True)
    verify(log)
    with pytest.raises(InvalidTransactionStateError):
        log.write(7, 0, 0, transactional=True, guard=NO_GUARD)


def test_verification_can_be_off() -> None:
    """TV-14."""
    Log(verify=False).write(7, 0, 0, transactional=True)


def test_replication_and_plain_writes_need_no_guard() -> None:
    log = Log(verify=True)
    log.write(7, 0, 0)
    log.write(7, 0, 1, transactional=True, origin=REPLICATION)
    log.mark(7, 0)


def test_a_marker_makes_a_guard_void() -> None:
    """TV-7: verified, then aborted, then the late write."""
    log = Log(verify=True)
    guard = verify(log)
    log.mark(7, 0, abort=True)
    with pytest.raises(InvalidTransactionStateError):
        log.write(7, 0, 0, transactional=True, guard=guard)
    # Nor does the old guard serve the next verification (ABA).
    assert verify(log) is not guard
    with pytest.raises(InvalidTransactionStateError):
        log.write(7, 0, 0, transactional=True, guard=guard)


def test_a_marker_spares_the_guard_of_the_next_transaction() -> None:
    """TV-9: with version 2 the marker may come after the next transaction has begun."""
    log = Log(verify=True)
    log.write(7, 5, 0, transactional=True, guard=verify(log, epoch=5, bump=True))
    guard = verify(log, epoch=6, bump=True)
    log.mark(7, 6, version=2)
    log.write(7, 6, 0, transactional=True, guard=guard)
    # Without version 2 the epoch says nothing.
    log.mark(7, 7, version=2)
    guard = verify(log, epoch=8, bump=False)
    log.mark(7, 8, version=1)
    with pytest.raises(InvalidTransactionStateError):
        log.write(7, 8, 0, transactional=True, guard=guard)


def test_a_batch_uses_the_guard_up() -> None:
    log = Log(verify=True)
    guard = verify(log)
    log.write(7, 0, 0, transactional=True, guard=guard)
    log.mark(7, 0)
    with pytest.raises(InvalidTransactionStateError):
        log.write(7, 0, 1, transactional=True, guard=guard)


def test_a_batch_that_bumps_the_epoch_of_an_open_transaction_uses_the_guard_up() -> None:
    log = Log(verify=True)
    log.write(7, 0, 0, transactional=True, guard=verify(log))
    guard = verify(log, epoch=1)
    log.write(7, 1, 0, transactional=True, guard=guard)
    assert not log.state.accepts_guard(7, guard)


def test_the_epoch_is_checked_before_the_guard() -> None:
    log = Log(verify=True)
    log.write(7, 5, 0)
    with pytest.raises(InvalidProducerEpochError):
        log.write(7, 4, 0, transactional=True)
    with pytest.raises(InvalidProducerEpochError):
        verify(log, epoch=4)


def test_the_lowest_waiting_sequence_goes_first() -> None:
    """TV-10."""
    log = Log(verify=True)
    guard = verify(log, sequence=5)
    assert verify(log, sequence=3) is guard
    assert verify(log, sequence=9) is guard
    with pytest.raises(OutOfOrderSequenceError, match="3 awaits verification"):
        log.write(7, 0, 5, transactional=True, guard=guard)
    # A newer epoch begins anew.
    assert verify(log, epoch=1, sequence=8) is guard
    assert verify(log, epoch=0, sequence=1) is guard
    log.write(7, 1, 8, transactional=True, guard=guard)


def test_a_new_producer_of_version_2_begins_at_zero() -> None:
    """TV-11."""
    log = Log(verify=True)
    guard = verify(log, sequence=4, bump=True)
    with pytest.raises(OutOfOrderSequenceError, match="is new here"):
        log.write(7, 0, 4, transactional=True, guard=guard)
    other = verify(log, 8, sequence=4, bump=False)
    log.write(8, 0, 4, transactional=True, guard=other)


# Lifetime.


def test_idle_producers_expire() -> None:
    """TXN-7."""
    log = Log(verify=True)
    log.write(1, 0, 0, timestamp_ms=0)
    log.write(2, 0, 0, timestamp_ms=1)
    log.write(3, 0, 0, transactional=True, guard=verify(log, 3), timestamp_ms=0)
    guard = verify(log, 4)
    assert sum(log.state.remove_expired(DAY_MS - 1)) == 0
    assert log.state.accepts_guard(4, guard)
    assert sum(log.state.remove_expired(DAY_MS)) == 1
    # The open transaction stays whatever its age, the guard that nobody came back for does not.
    assert sorted(log.state.producers) == [2, 3]
    assert not log.state.accepts_guard(4, guard)


def test_very_many_producers_expire_in_slices() -> None:
    """Who writes between two of them is not idle any more."""
    log = Log()
    for producer_id in range(1000):
        log.write(producer_id, 0, 0, timestamp_ms=0)
    slices = log.state.remove_expired(DAY_MS)
    first = next(slices)
    assert 0 < first < 500
    assert len(log.state.producers) == 1000 - first
    log.write(999, 0, 1, timestamp_ms=DAY_MS)
    assert first + sum(slices) == 999
    assert list(log.state.producers) == [999]


def test_a_snapshot_is_due_when_the_log_has_grown() -> None:
    log = Log()
    assert log.state.take_snapshot() is None
    log.write(7, 0, 0)
    taken = log.state.take_snapshot()
    assert taken is not None
    assert taken[0] == 1
    assert log.state.take_snapshot() is None


def test_reload_begins_from_the_snapshot() -> None:
    """TXN-6, LOG-98, the state's part."""
    log = Log()
    log.write(1, 0, 0, transactional=True)
    log.mark(1, 0)
    state = log.state
    entries = [
        ProducerEntry(5, 1, 0, 1000, 40, (BatchMetadata(3, 41, 0, 1000),)),
        ProducerEntry(6, 1, 0, 1000, 30),
        ProducerEntry(8, 1, 0, 0),
    ]
    state.reload(10, snapshot_offset=50)
    state.reopen(state.restore(entries, DAY_MS))
    assert (state.map_end_offset, state.snapshot_offset) == (50, 50)
    # The idle one is not loaded, and transactions are in the order of their offsets again.
    assert sorted(state.producers) == [5, 6]
    assert log.unstable() == 30
    assert state.first_undecided_offset == 30
    state.reload(10)
    assert (state.map_end_offset, state.snapshot_offset) == (10, 10)
    assert state.is_empty
    assert state.first_undecided_offset is None


def test_an_advanced_log_start_keeps_producers() -> None:
    """TXN-7."""
    log = Log()
    log.write(1, 0, 0, transactional=True)
    log.mark(1, 0)
    log.state.log_start_advanced(2, latest_snapshot_offset=None)
    assert log.unstable() is None
    assert (log.state.map_end_offset, log.state.snapshot_offset) == (2, 2)
    log.state.log_start_advanced(9, latest_snapshot_offset=7)
    assert (log.state.map_end_offset, log.state.snapshot_offset) == (9, 7)
    log.write(1, 0, 1)


def test_full_truncation_forgets_everything() -> None:
    log = Log()
    log.write(1, 0, 0, transactional=True)
    log.mark(1, 0)
    log.write(1, 0, 1, transactional=True)
    log.state.truncate_fully(100)
    assert log.state.is_empty
    assert log.unstable() is None
    assert (log.state.map_end_offset, log.state.snapshot_offset) == (100, 0)


def test_the_mapping_of_producers_is_read_only() -> None:
    log = Log()
    with pytest.raises(TypeError):
        log.state.producers[1] = ProducerEntry(1)  # type: ignore[index]
