"""EndTxn: each cell of its tables, through a real shard."""

from __future__ import annotations

import pytest
from coordinator.shard_kit import START_MS
from coordinator.transaction_rig import A0, ID, TransactionRig, transaction_in

from kraftpy.coordinator.transactions.identities import Identity
from kraftpy.coordinator.transactions.state import TransactionState
from kraftpy.protocol.errors import ErrorCode

EPOCH = 5
PRODUCER = 1000

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT

FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
BUMP = "prepared with a new epoch"
DONE = "answered with the stored identity"

# Abort repeated, abort, commit repeated, commit.
VERSION_2 = {
    ONGOING: (FENCED, BUMP, FENCED, BUMP),
    # Kafka's table has other rules for these two, which nobody can meet: until the markers are
    # written everything is pending, there as here.
    PREPARE_COMMIT: (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    PREPARE_ABORT: (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    EMPTY: (FENCED, BUMP, FENCED, INVALID),
    COMPLETE_ABORT: (DONE, BUMP, INVALID, INVALID),
    COMPLETE_COMMIT: (INVALID, BUMP, DONE, INVALID),
}
CELLS = [
    (state, bool(column >= 2), column % 2 == 0, expected)
    for state, row in VERSION_2.items()
    for column, expected in enumerate(row)
]


@pytest.mark.parametrize(("state", "is_commit", "is_repeated", "expected"), CELLS)
def test_every_cell_of_version_2(
    state: TransactionState, is_commit: bool, is_repeated: bool, expected: object
) -> None:
    """TV-16."""
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(state, epoch=EPOCH))
    asking = Identity(PRODUCER, EPOCH - 1 if is_repeated else EPOCH)
    waiting = rig.begin_end(asking, is_commit=is_commit)
    if isinstance(expected, ErrorCode):
        assert rig.refused(waiting) is expected
        assert rig.state is state
        assert rig.transaction.epoch == EPOCH
    elif expected is DONE:
        assert rig.answered(waiting) == Identity(PRODUCER, EPOCH)
        assert rig.state is state
    else:
        assert rig.answered(waiting) == Identity(PRODUCER, EPOCH + 1)
        assert rig.transaction.epoch == EPOCH + 1
        if state is ONGOING:
            assert rig.state is (PREPARE_COMMIT if is_commit else PREPARE_ABORT)
        else:
            # Nothing was written to, so there is nothing to wait for (TV-19).
            assert rig.state is COMPLETE_ABORT
            assert rig.markers.sent == []
            assert rig.transaction.start_ms == START_MS


# Abort, commit.
VERSION_1 = {
    ONGOING: (PREPARE_ABORT, PREPARE_COMMIT),
    PREPARE_COMMIT: (CONCURRENT, CONCURRENT),
    PREPARE_ABORT: (CONCURRENT, CONCURRENT),
    EMPTY: (INVALID, INVALID),
    COMPLETE_ABORT: (DONE, INVALID),
    COMPLETE_COMMIT: (INVALID, DONE),
}


@pytest.mark.parametrize(
    ("state", "is_commit", "expected"),
    [
        (state, is_commit, row[is_commit])
        for state, row in VERSION_1.items()
        for is_commit in (False, True)
    ],
)
def test_every_cell_of_version_1(
    state: TransactionState, is_commit: bool, expected: object
) -> None:
    """TXN-23: repetitions are answered as the first time, crossed ones refused."""
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(state, epoch=EPOCH, client_version=0))
    waiting = rig.begin_end(Identity(PRODUCER, EPOCH), is_commit=is_commit, version=0)
    if isinstance(expected, ErrorCode):
        assert rig.refused(waiting) is expected
    else:
        assert rig.answered(waiting) == Identity(PRODUCER, EPOCH)
        assert rig.state is (state if expected is DONE else expected)
    assert rig.transaction.epoch == EPOCH


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    ("asking", "expected"),
    [
        (Identity(PRODUCER + 1, EPOCH), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Identity(PRODUCER, EPOCH + 1), FENCED),
        (Identity(PRODUCER, EPOCH - 2), FENCED),
        (Identity(PRODUCER, EPOCH - 1), FENCED),
    ],
)
def test_who_may_not_end_it(version: int, asking: Identity, expected: ErrorCode) -> None:
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=EPOCH))
    assert rig.refused(rig.begin_end(asking, version=version)) is expected
    assert rig.state is ONGOING


def test_an_unknown_id_has_no_producer() -> None:
    rig = TransactionRig()
    waiting = rig.begin_end(Identity(PRODUCER, EPOCH))
    assert rig.refused(waiting) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_pending_comes_before_wrong_ids_and_epochs() -> None:
    """TV-17; a client of version 1 hears of its mistake first."""
    rig = TransactionRig(commits_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=EPOCH))
    rig.begin_end(Identity(PRODUCER, EPOCH))
    for stranger in (Identity(7, 7), Identity(PRODUCER, 1)):
        assert rig.begin_end(stranger).error is CONCURRENT
    assert rig.begin_end(Identity(7, 7), version=0).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert rig.begin_add(Identity(7, 7), A0).error is CONCURRENT


def test_an_answer_waits_for_the_decision_to_be_committed() -> None:
    """TXN-22: Prepare, markers, Complete, each only when the one before it is safe."""
    rig = TransactionRig(commits_at_once=False, writes_markers_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=EPOCH, partitions={"a": (0, 1), "b": (0,)}))
    waiting = rig.begin_end(Identity(PRODUCER, EPOCH))
    rig.flush()
    assert not waiting.is_answered
    assert rig.markers.sent == []
    rig.commit()
    assert waiting.answer == Identity(PRODUCER, EPOCH + 1)
    [job] = rig.markers.sent
    assert job.partitions == {"a": (0, 1), "b": (0,)}
    assert (job.producer_id, job.producer_epoch) == (PRODUCER, EPOCH + 1)
    assert job.is_commit
    assert job.transaction_version == 2
    assert job.coordinator_epoch == 0
    assert rig.state is PREPARE_COMMIT
    rig.markers.write_all()
    rig.commit()
    assert rig.state is COMPLETE_COMMIT
    assert rig.transaction.partitions == {}
    assert rig.states() == [ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]


def test_a_lost_decision_sends_no_marker() -> None:
    rig = TransactionRig(commits_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=EPOCH))
    rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    waiting = rig.begin_end(Identity(PRODUCER, EPOCH))
    rig.flush()
    assert waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.markers.sent == []
    assert rig.transaction.epoch == EPOCH
    assert rig.state is ONGOING
    # Nothing has happened, so that the producer can try again.
    assert rig.end(Identity(PRODUCER, EPOCH)) == Identity(PRODUCER, EPOCH + 1)


def test_complete_is_tried_until_it_is_written() -> None:
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=EPOCH))
    rig.end(Identity(PRODUCER, EPOCH))
    for _ in range(3):
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    rig.markers.write_all()
    rig.advance(1_400)
    assert rig.state is PREPARE_COMMIT
    rig.advance(300)
    assert rig.state is COMPLETE_COMMIT


def test_the_last_epoch_is_for_markers_and_a_new_id_follows() -> None:
    """TV-18, TXN-16."""
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=32766))
    old = Identity(PRODUCER, 32766)
    rig.next_producer_id = 2000
    new = rig.end(old)
    assert new == Identity(2000, 0)
    [job] = rig.markers.sent
    assert (job.producer_id, job.producer_epoch) == (PRODUCER, 32767)
    # The producer has its new id before the transaction is complete.
    assert rig.refused(rig.begin_add(new, A0)) is CONCURRENT
    assert rig.refused(rig.begin_end(old)) is CONCURRENT
    rig.markers.write_all()
    rig.flush_all()
    assert rig.end(old) == new
    assert rig.refused(rig.begin_end(old, is_commit=False)) is INVALID
    rig.add(new, A0)
    assert rig.refused(rig.begin_end(old)) is FENCED
    assert rig.end(new) == Identity(2000, 1)


def test_a_rotation_survives_the_coordinator() -> None:
    """TV-18, TV-27: both ids are in the record of the decision."""
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=32766))
    old = Identity(PRODUCER, 32766)
    new = rig.end(old)
    rig.move()
    [_, job] = rig.markers.sent
    assert (job.producer_id, job.producer_epoch) == (PRODUCER, 32767)
    assert job.coordinator_epoch == 1
    rig.markers.write_all()
    rig.flush_all()
    rig.move()
    assert rig.end(old) == new
    rig.add(new, A0)


def test_the_present_epoch_is_about_the_next_transaction() -> None:
    """TV-15, F1: a late end never ends another transaction than its own."""
    rig = TransactionRig()
    first = rig.init()
    rig.add(first, A0)
    second = rig.end(first)
    assert second == Identity(first.producer_id, first.epoch + 1)
    rig.add(second, A0)
    # The first one's commit comes a second time, when the second transaction is open.
    assert rig.refused(rig.begin_end(first)) is FENCED
    assert rig.refused(rig.begin_end(first, is_commit=False)) is FENCED
    assert rig.state is ONGOING
    assert rig.end(second, is_commit=False) == Identity(first.producer_id, first.epoch + 2)
    # And again when it is aborted: that was not what it asked for.
    assert rig.refused(rig.begin_end(second)) is INVALID
    assert rig.end(second, is_commit=False) == Identity(first.producer_id, first.epoch + 2)
    assert ID in rig.machine.transactions


def test_both_generations_side_by_side() -> None:
    """TV-2."""
    rig = TransactionRig()
    old, new = rig.init(name="old"), rig.init(name="new")
    for _ in range(3):
        rig.add(old, A0, version=0, name="old")
        rig.add(new, A0, version=2, name="new")
        assert rig.end(old, version=0, name="old") == old
        new = rig.end(new, version=2, name="new")
    assert new.epoch == 3
    assert {job.transactional_id: job.transaction_version for job in rig.markers.sent} == {
        "old": 0,
        "new": 2,
    }
