"""The transaction coordinator through a real shard: identities, partitions, time, failover."""

from __future__ import annotations

from dataclasses import replace

import pytest
from coordinator.shard_kit import START_MS
from coordinator.transaction_rig import (
    A0,
    A1,
    B0,
    ID,
    TIMEOUT_MS,
    TransactionRig,
    transaction_in,
)

from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.coordinator.transactions.identities import Claim, Identity, NeedsProducerId
from kraftpy.coordinator.transactions.listing import ListFilter, list_transactions
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.coordinator.transactions.state import (
    TransactionState,
    check_transition,
    grouped,
    merged,
    record_of,
    transaction_of,
)
from kraftpy.protocol.coordinator_records import encode_key, encode_value
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import InternalInvariant

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
IDLE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)

FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
PRODUCER = 1000


# InitProducerId.


def test_a_new_id_gets_a_producer_that_is_in_the_log_before_the_answer() -> None:
    """TXN-11."""
    rig = TransactionRig(commits_at_once=False)
    waiting = rig.write(lambda machine: machine.init_producer_id(Claim(ID, TIMEOUT_MS), None))
    assert isinstance(waiting.answer, NeedsProducerId)
    assert rig.records() == []
    waiting = rig.begin_init()
    rig.flush()
    assert not waiting.is_answered
    assert rig.begin_init().error is CONCURRENT
    rig.commit()
    assert waiting.answer == Identity(1500, 0)
    rig.move()
    assert rig.transaction.producer_id == 1500
    assert rig.transaction.timeout_ms == TIMEOUT_MS
    assert rig.state is EMPTY


def test_each_producer_shuts_out_the_one_before_it() -> None:
    """TXN-12."""
    rig = TransactionRig()
    first = rig.init()
    second = rig.init()
    assert second == Identity(first.producer_id, 1)
    assert rig.refused(rig.begin_add(first, A0)) is FENCED
    assert rig.refused(rig.begin_end(first, is_commit=False, version=0)) is FENCED
    rig.add(second, A0)


@pytest.mark.parametrize("state", IDLE)
def test_a_producer_that_says_who_it_is(state: TransactionState) -> None:
    """TV-20: the present one goes on, a repetition gets the same again, all others are shut out."""
    rig = TransactionRig()
    rig.put(transaction_in(state, epoch=5))
    assert rig.init(Identity(PRODUCER, 5)) == Identity(PRODUCER, 6)
    assert rig.state is EMPTY
    assert rig.init(Identity(PRODUCER, 5)) == Identity(PRODUCER, 6)
    for stranger in (
        Identity(PRODUCER, 4),
        Identity(PRODUCER, 7),
        Identity(999, 6),
        Identity(999, 32766),
    ):
        assert rig.refused(rig.begin_init(stranger)) is FENCED
    # Somebody else came in between: nothing is a repetition any more.
    assert rig.init() == Identity(PRODUCER, 7)
    assert rig.refused(rig.begin_init(Identity(PRODUCER, 6))) is FENCED


def test_a_repetition_is_not_known_to_the_next_coordinator() -> None:
    """As in Kafka 4.3, whose records do not have the last epoch."""
    rig = TransactionRig()
    rig.put(transaction_in(EMPTY, epoch=5))
    rig.init(Identity(PRODUCER, 5))
    rig.move()
    assert rig.refused(rig.begin_init(Identity(PRODUCER, 5))) is FENCED
    assert rig.init(Identity(PRODUCER, 6)) == Identity(PRODUCER, 7)


def test_a_producer_of_an_id_that_was_forgotten_begins_anew() -> None:
    rig = TransactionRig()
    assert rig.init(Identity(77, 3)) == Identity(1500, 0)


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_a_decision_is_not_disturbed(state: TransactionState) -> None:
    """TXN-14."""
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(state, epoch=5))
    assert rig.refused(rig.begin_init()) is CONCURRENT
    assert rig.refused(rig.begin_init(Identity(999, 1))) is CONCURRENT
    assert rig.state is state


@pytest.mark.parametrize(("level", "epoch_after"), [(0, 7), (1, 7), (2, 7)])
def test_an_open_transaction_is_aborted_first(level: int, epoch_after: int) -> None:
    """TXN-13."""
    rig = TransactionRig(level=level, writes_markers_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=5, client_version=0))
    assert rig.refused(rig.begin_init()) is CONCURRENT
    [job] = rig.markers.sent
    assert (job.producer_epoch, job.is_commit) == (6, False)
    assert job.transaction_version == (2 if level == 2 else 0)
    assert rig.refused(rig.begin_init()) is CONCURRENT
    rig.markers.write_all()
    rig.flush_all()
    assert rig.state is COMPLETE_ABORT
    assert rig.transaction.epoch == 6
    assert rig.init() == Identity(PRODUCER, epoch_after)
    assert len(rig.markers.sent) == 1


def test_an_owner_that_had_its_transaction_aborted_goes_on() -> None:
    """TV-21: with version 2 there is one bump in all, and its owner can have it."""
    rig = TransactionRig()
    rig.put(transaction_in(ONGOING, epoch=5))
    assert rig.refused(rig.begin_init(Identity(PRODUCER, 5))) is CONCURRENT
    assert rig.init(Identity(PRODUCER, 5)) == Identity(PRODUCER, 6)
    rig = TransactionRig(level=1)
    rig.put(transaction_in(ONGOING, epoch=5, client_version=0))
    assert rig.refused(rig.begin_init(Identity(PRODUCER, 5))) is CONCURRENT
    assert rig.refused(rig.begin_init(Identity(PRODUCER, 5))) is FENCED


def test_a_stranger_does_not_abort_a_transaction() -> None:
    rig = TransactionRig()
    rig.put(transaction_in(ONGOING, epoch=5))
    assert rig.refused(rig.begin_init(Identity(999, 5))) is FENCED
    assert rig.state is ONGOING


@pytest.mark.parametrize("level", [1, 2])
def test_shutting_out_at_the_last_epoch_does_not_overflow(level: int) -> None:
    """TV-21."""
    rig = TransactionRig(level=level)
    rig.put(transaction_in(ONGOING, epoch=32766, client_version=0 if level == 1 else 2))
    assert rig.refused(rig.begin_init()) is CONCURRENT
    assert rig.markers.sent[0].producer_epoch == 32767
    assert rig.state is COMPLETE_ABORT
    # With version 2 the id was replaced by the abort, and each producer has an epoch of its own.
    assert rig.init() == Identity(1500, 1 if level == 2 else 0)


@pytest.mark.parametrize("version", [0, 2])
def test_nobody_goes_on_with_the_last_epoch(version: int) -> None:
    """TV-21: it is for markers. There is none after it, so that what it began could not end."""
    rig = TransactionRig(level=1)
    rig.put(transaction_in(ONGOING, epoch=32766, client_version=version))
    rig.advance(TIMEOUT_MS + 20_000)
    assert (rig.state, rig.transaction.epoch) == (COMPLETE_ABORT, 32767)
    # The producer aborts what was aborted already, and would be told the present epoch.
    old = Identity(PRODUCER, 32766)
    aborting = rig.begin_end(old, is_commit=False, version=version)
    assert rig.refused(aborting) is FENCED
    assert rig.refused(rig.begin_init(old)) is FENCED
    last = Identity(PRODUCER, 32767)
    assert rig.refused(rig.begin_add(last, A0, version=version)) is FENCED
    assert rig.refused(rig.begin_end(last, is_commit=False, version=version)) is FENCED
    assert refusal(rig, last) is FENCED
    assert rig.init() == Identity(1500, 0)


def test_an_abort_at_the_last_epoch_leaves_its_producer_a_new_id() -> None:
    """TV-18, TV-21: by the coordinator as by the producer. Kafka 4.3.1 answers the same."""
    rig = TransactionRig()
    rig.put(transaction_in(ONGOING, epoch=32766))
    rig.has_producer_ids = False
    rig.advance(TIMEOUT_MS + 20_000)
    assert rig.state is ONGOING
    rig.has_producer_ids = True
    rig.advance(10_000)
    [job] = rig.markers.sent
    assert (job.producer_id, job.producer_epoch, job.is_commit) == (PRODUCER, 32767, False)
    new = Identity(1500, 0)
    assert (rig.state, rig.transaction.producer_id, rig.transaction.epoch) == (COMPLETE_ABORT, *new)
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    old, last = Identity(PRODUCER, 32766), Identity(PRODUCER, 32767)
    assert rig.refused(rig.begin_add(old, A0)) is mapping
    assert rig.refused(rig.begin_add(last, A0)) is mapping
    assert rig.end(old, is_commit=False) == new
    assert rig.refused(rig.begin_end(last, is_commit=False)) is mapping
    assert rig.refused(rig.begin_end(old, is_commit=False, version=1)) is mapping
    assert rig.init(old) == new
    assert rig.refused(rig.begin_init(last)) is FENCED
    rig.add(new, A0)
    assert rig.end(new) == Identity(1500, 1)


@pytest.mark.parametrize("level", [1, 2])
def test_a_failed_attempt_to_shut_out_leaves_nothing(level: int) -> None:
    """TV-22: however often it fails, the epoch is raised once."""
    rig = TransactionRig(level=level, commits_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=5, client_version=0))
    for _ in range(3):
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        waiting = rig.begin_init()
        rig.flush()
        assert waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.transaction.epoch == 5
        assert rig.state is ONGOING
    assert rig.markers.sent == []
    waiting = rig.begin_init()
    rig.commit()
    assert waiting.error is CONCURRENT
    assert rig.transaction.epoch == 6


@pytest.mark.parametrize("epoch", [32766, 32767])
def test_used_up_epochs_lead_to_a_new_producer_id(epoch: int) -> None:
    """TXN-16."""
    rig = TransactionRig()
    rig.put(transaction_in(COMPLETE_COMMIT, epoch=epoch))
    assert rig.refused(rig.begin_init(Identity(PRODUCER, epoch - 1))) is FENCED
    old = Identity(PRODUCER, epoch)
    assert rig.init(old) == Identity(1500, 0)
    # Its answer was lost.
    assert rig.init(old) == Identity(1500, 0)
    assert rig.init(Identity(1500, 0)) == Identity(1500, 1)
    assert rig.refused(rig.begin_init(old)) is FENCED


def test_the_id_before_is_only_good_for_repeating_its_last_epoch() -> None:
    rig = TransactionRig()
    rig.put(transaction_in(COMPLETE_COMMIT, epoch=32766))
    new = rig.init(Identity(PRODUCER, 32766))
    rig.init(new)
    assert rig.refused(rig.begin_init(Identity(PRODUCER, 0))) is FENCED
    rig.add(Identity(1500, 1), A0)
    assert rig.refused(rig.begin_init(Identity(PRODUCER, 0))) is FENCED
    assert rig.state is ONGOING


def test_the_epoch_before_the_last_needs_no_new_id() -> None:
    rig = TransactionRig()
    rig.put(transaction_in(COMPLETE_COMMIT, epoch=32765))
    assert rig.init() == Identity(PRODUCER, 32766)


# Partitions.


def test_the_first_partition_begins_the_transaction() -> None:
    """TXN-17, TXN-18."""
    rig = TransactionRig()
    producer = rig.init()
    assert rig.state is EMPTY
    rig.advance(100)
    rig.add(producer, A0, B0)
    assert rig.state is ONGOING
    assert rig.transaction.start_ms == START_MS + 100
    rig.advance(100)
    rig.add(producer, A1, A0)
    assert rig.transaction.partitions == {"a": (0, 1), "b": (0,)}
    assert rig.transaction.start_ms == START_MS + 100
    count = len(rig.records())
    rig.add(producer, A1)
    rig.add(producer, A0, B0)
    assert len(rig.records()) == count


def test_a_thousand_partitions_are_not_compared_with_each_other() -> None:
    """A transaction over many partitions has them added one after the other."""

    class Watched(int):
        comparisons = 0

        def __eq__(self, other: object) -> bool:
            Watched.comparisons += 1
            return int.__eq__(self, other)

        __hash__ = int.__hash__

    old = transaction_in(ONGOING, partitions={"a": tuple(map(Watched, range(1000)))})
    new = replace(old, partitions=merged(old.partitions, {"a": (1000,)}))
    Watched.comparisons = 0
    check_transition(old, new)
    assert Watched.comparisons < 10_000


def test_adding_is_answered_when_it_is_committed() -> None:
    rig = TransactionRig(commits_at_once=False)
    rig.put(transaction_in(EMPTY))
    waiting = rig.begin_add(Identity(PRODUCER, 5), A0)
    rig.flush()
    # Others of the same transaction need not wait until that is committed, strangers do.
    same, other = (rig.begin_add(Identity(PRODUCER, 5), name) for name in (A0, B0))
    assert rig.begin_add(Identity(PRODUCER, 4), A1).error is CONCURRENT
    assert not waiting.is_answered
    assert not same.is_answered
    rig.commit()
    assert waiting.answer is same.answer is other.answer is ErrorCode.NONE
    assert rig.transaction.partitions == {"a": (0,), "b": (0,)}


def test_partitions_that_are_added_at_once_are_lost_together() -> None:
    rig = TransactionRig(commits_at_once=False)
    rig.put(transaction_in(EMPTY))
    first, second = (rig.begin_add(Identity(PRODUCER, 5), name) for name in (A0, B0))
    rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    rig.flush()
    assert first.error is second.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.state is EMPTY


def test_what_was_loaded_and_is_not_committed_is_not_confirmed() -> None:
    """CRT-3: the record may be lost with this coordinator, and so would the partition."""
    rig = TransactionRig(commits_at_once=False)
    rig.put(transaction_in(EMPTY))
    rig.begin_add(Identity(PRODUCER, 5), A0)
    rig.flush()
    rig.move()
    waiting = rig.begin_add(Identity(PRODUCER, 5), A0)
    rig.flush()
    assert not waiting.is_answered
    rig.commit()
    assert waiting.answer is ErrorCode.NONE


def park(rig: TransactionRig, identity: Identity) -> list[str]:
    """Begin a transaction while the one before it is being completed."""
    calls: list[str] = []
    waiting = rig.write(
        lambda machine: machine.add_partitions(
            ID, identity, grouped([A0]), client_version=2, again=lambda: calls.append("again")
        )
    )
    assert not waiting.is_answered
    return calls


def test_the_next_transaction_waits_for_the_end_of_the_one_before() -> None:
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=5))
    after = rig.end(Identity(PRODUCER, 5))
    first, second = park(rig, after), park(rig, after)
    rig.advance(50)
    assert first == second == []
    rig.markers.write_all()
    rig.flush()
    rig.commit()
    assert first == second == ["again"]
    rig.add(after, A0)
    rig.advance(200)
    assert first == second == ["again"]


def test_it_does_not_wait_for_long() -> None:
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(PREPARE_COMMIT, epoch=5))
    calls = park(rig, Identity(PRODUCER, 5))
    rig.advance(99)
    assert calls == []
    rig.advance(51)
    assert calls == ["again"]


def test_nor_when_the_coordinator_moves() -> None:
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(PREPARE_COMMIT, epoch=5))
    calls = park(rig, Identity(PRODUCER, 5))
    rig.move()
    assert calls == ["again"]


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_ABORT, COMPLETE_COMMIT])
def test_who_may_not_add(state: TransactionState) -> None:
    """TXN-18."""
    rig = TransactionRig()
    rig.put(transaction_in(state, epoch=5))
    assert rig.refused(rig.begin_add(Identity(PRODUCER, 4), A1)) is FENCED
    assert rig.refused(rig.begin_add(Identity(PRODUCER, 6), A1)) is FENCED
    assert rig.refused(rig.begin_add(Identity(9, 5), A1)) is MAPPING
    assert rig.refused(rig.begin_add(Identity(PRODUCER, 5), A1, name="other")) is MAPPING
    assert rig.state is state


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_nothing_is_added_to_a_decided_transaction(state: TransactionState) -> None:
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(state, epoch=5))
    assert rig.refused(rig.begin_add(Identity(PRODUCER, 5), A0)) is CONCURRENT


def verdicts(rig: TransactionRig, identity: Identity, *names: tuple[str, int]) -> object:
    return rig.shard.read(lambda machine: machine.verify_partitions(ID, identity, grouped(names)))


def refusal(rig: TransactionRig, identity: Identity) -> ErrorCode:
    with pytest.raises(CoordinatorError) as raised:
        verdicts(rig, identity, A0)
    return raised.value.code


def test_verifying() -> None:
    """Section 20: only what is committed counts, and pending changes do not matter."""
    rig = TransactionRig(commits_at_once=False)
    assert refusal(rig, Identity(PRODUCER, 5)) is MAPPING
    rig.put(transaction_in(ONGOING, epoch=5))
    me = Identity(PRODUCER, 5)
    rig.begin_add(me, A1)
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert verdicts(rig, me, A0, A1, B0) == {A0: ErrorCode.NONE, A1: abortable, B0: abortable}
    rig.commit()
    assert verdicts(rig, me, A1) == {A1: ErrorCode.NONE}
    assert refusal(rig, Identity(9, 5)) is MAPPING
    assert refusal(rig, Identity(PRODUCER, 4)) is FENCED
    assert refusal(rig, Identity(PRODUCER, 6)) is FENCED


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_a_decided_transaction_is_not_confirmed(state: TransactionState) -> None:
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(state, epoch=5))
    assert refusal(rig, Identity(PRODUCER, 5)) is CONCURRENT
    rig.put(transaction_in(COMPLETE_ABORT, epoch=5))
    assert verdicts(rig, Identity(PRODUCER, 5), A0) == {A0: ErrorCode.TRANSACTION_ABORTABLE}


# Failover.


@pytest.mark.parametrize(
    ("state", "end"), [(PREPARE_COMMIT, COMPLETE_COMMIT), (PREPARE_ABORT, COMPLETE_ABORT)]
)
@pytest.mark.parametrize("version", [0, 2])
def test_the_next_coordinator_finishes(
    state: TransactionState, end: TransactionState, version: int
) -> None:
    """TV-27, TXN-24."""
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(state, epoch=5, client_version=version))
    rig.move()
    [job] = rig.markers.sent
    assert job.coordinator_epoch == 1
    assert job.is_commit == (state is PREPARE_COMMIT)
    assert (job.producer_id, job.producer_epoch, job.transaction_version) == (PRODUCER, 5, version)
    assert job.partitions == {"a": (0,)}
    rig.move()
    assert [each.coordinator_epoch for each in rig.markers.sent] == [1, 2]
    assert len(rig.markers.jobs) == 1, "the coordinator before this one has stopped"
    rig.markers.write_all()
    rig.flush_all()
    assert rig.state is end
    assert rig.transaction.epoch == 5


def test_an_abort_of_nothing_is_finished_after_a_failover() -> None:
    rig = TransactionRig()
    rig.put(transaction_in(PREPARE_ABORT, epoch=5, partitions={}))
    rig.move()
    rig.flush_all()
    assert rig.state is COMPLETE_ABORT
    assert rig.markers.sent == []


def test_a_decision_that_may_still_be_lost_sends_no_markers() -> None:
    """The next coordinator has the record, but not everybody else does."""
    rig = TransactionRig(commits_at_once=False, writes_markers_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=5))
    rig.begin_end(Identity(PRODUCER, 5))
    rig.flush()
    rig.move()
    assert rig.state is PREPARE_COMMIT
    rig.flush()
    assert rig.markers.sent == []
    assert rig.begin_end(Identity(PRODUCER, 5)).error is CONCURRENT
    rig.commit(rig.log.log_end_offset - 1)
    assert rig.markers.sent == []
    rig.commit()
    assert len(rig.markers.sent) == 1
    rig.markers.write_all()
    rig.commit()
    assert rig.state is COMPLETE_COMMIT


def test_answers_that_were_lost_are_given_again_by_the_next_coordinator() -> None:
    rig = TransactionRig()
    producer = rig.init()
    rig.add(producer, A0)
    ended = rig.end(producer)
    rig.move()
    assert rig.end(producer) == ended
    assert rig.refused(rig.begin_end(producer, is_commit=False)) is ErrorCode.INVALID_TXN_STATE


def test_markers_that_come_after_the_shard_is_gone_do_nothing() -> None:
    rig = TransactionRig(writes_markers_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=5))
    rig.end(Identity(PRODUCER, 5))
    [(_, done)] = rig.markers.jobs
    rig.move()
    done()
    rig.flush_all()
    assert rig.state is PREPARE_COMMIT


# Time.


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_that_takes_too_long_is_aborted(level: int) -> None:
    """TXN-34, TV-28."""
    rig = TransactionRig(level=level)
    producer = rig.init()
    rig.add(producer, A0, version=0)
    rig.advance(TIMEOUT_MS)
    assert rig.state is ONGOING
    rig.advance(10_000)
    assert rig.state is COMPLETE_ABORT
    assert rig.markers.sent[0].transaction_version == (2 if level == 2 else 0)
    assert rig.transaction.epoch == 1
    assert rig.refused(rig.begin_add(producer, A0)) is FENCED
    if level == 2:
        # Its own abort finds that done, and a commit that it can't be.
        assert rig.end(producer, is_commit=False) == Identity(producer.producer_id, 1)
        assert rig.refused(rig.begin_end(producer)) is ErrorCode.INVALID_TXN_STATE
    else:
        assert rig.refused(rig.begin_end(producer, version=0)) is FENCED


def test_a_timeout_is_not_told_as_another_producer(caplog: pytest.LogCaptureFixture) -> None:
    """F4: who was too slow may abort and go on, and the log has the cause; who is fenced may not.

    Of version 1 a client hears the same in both cases: it has no error for the one.
    """
    rig = TransactionRig(level=2)
    slow = rig.init()
    rig.add(slow, A0, version=0)
    with caplog.at_level("INFO", "kraftpy.coordinator"):
        rig.advance(TIMEOUT_MS + 10_000)
    assert "aborted after its timeout" in caplog.text
    assert rig.refused(rig.begin_end(slow)) is ErrorCode.INVALID_TXN_STATE
    revived = rig.end(slow, is_commit=False)
    newer = rig.init()
    assert newer.epoch > revived.epoch
    for is_commit in (True, False):
        assert rig.refused(rig.begin_end(revived, is_commit=is_commit)) is FENCED


def test_many_transactions_are_aborted_in_pieces() -> None:
    """TXN-34: others have their turn in between."""
    rig = TransactionRig()
    names = [f"id-{number}" for number in range(250)]
    for name in names:
        rig.add(rig.init(name=name), A0, name=name)
    rig.clock.now_ms += TIMEOUT_MS + 1
    rig.shard.submit(rig.machine._abort_timed_out)
    states = [rig.machine.transactions[name].state for name in names]
    assert 0 < sum(state is not ONGOING for state in states) < 50
    rig.advance(50)
    assert {rig.machine.transactions[name].state for name in names} == {COMPLETE_ABORT}


def test_what_ends_in_time_is_not_aborted() -> None:
    rig = TransactionRig()
    producer = rig.init()
    for _ in range(4):
        rig.add(producer, A0)
        rig.advance(TIMEOUT_MS - 20_000)
        producer = rig.end(producer)
    assert all(job.is_commit for job in rig.markers.sent)


def test_pending_and_unlimited_transactions_do_not_time_out() -> None:
    """TV-28."""
    rig = TransactionRig()
    rig.put(transaction_in(ONGOING, timeout_ms=2**31 - 1))
    rig.clock.now_ms += 2**31
    rig.advance(20_000)
    assert rig.state is ONGOING
    rig = TransactionRig(commits_at_once=False)
    rig.put(transaction_in(EMPTY))
    rig.begin_add(Identity(PRODUCER, 5), A0)
    rig.flush()
    rig.advance(TIMEOUT_MS + 20_000)
    assert rig.state is ONGOING
    rig.commit()
    rig.advance(10_000)
    rig.commit()
    rig.commit()
    assert rig.states()[-1] is COMPLETE_ABORT


def test_an_old_transaction_is_aborted_by_the_next_coordinator() -> None:
    """TXN-24: its age is in its record."""
    rig = TransactionRig()
    producer = rig.init()
    rig.add(producer, A0)
    rig.advance(TIMEOUT_MS - 5_000)
    rig.move()
    rig.advance(10_050)
    assert rig.state is COMPLETE_ABORT


def test_a_wall_clock_that_jumps_aborts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenario 11 of the testing specification."""
    rig = TransactionRig()
    producer = rig.init()
    rig.add(producer, A0)
    monkeypatch.setattr(rig.clock, "wall_ms", lambda: START_MS + 3_600_000)
    rig.advance(20_000)
    assert rig.state is ONGOING


def test_a_failed_abort_is_tried_again() -> None:
    rig = TransactionRig()
    rig.put(transaction_in(EMPTY, epoch=5))
    rig.add(Identity(PRODUCER, 5), A0)
    rig.advance(TIMEOUT_MS + 9_000)
    rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    rig.advance(2_000)
    assert not rig.log.failures
    assert rig.state is ONGOING
    rig.advance(10_000)
    assert rig.state is COMPLETE_ABORT
    assert rig.transaction.epoch == 6


EXPIRING = TransactionSettings(id_expiration_ms=100_000, expiry_interval_ms=30_000)


@pytest.mark.parametrize("state", IDLE)
def test_an_unused_id_is_forgotten(state: TransactionState) -> None:
    """TV-29, TXN-35."""
    rig = TransactionRig(settings=EXPIRING)
    rig.put(transaction_in(state, update_ms=START_MS))
    rig.advance(90_000)
    assert ID in rig.machine.transactions
    rig.advance(30_100)
    assert ID not in rig.machine.transactions
    assert rig.records()[-1] == (ID, None)
    rig.move()
    assert ID not in rig.machine.transactions
    assert rig.init() == Identity(1500, 0)


def test_a_used_id_is_not_forgotten() -> None:
    rig = TransactionRig(settings=EXPIRING)
    rig.put(transaction_in(ONGOING, update_ms=START_MS, timeout_ms=2**31 - 1))
    rig.advance(200_000)
    assert rig.state is ONGOING


def test_an_id_whose_tombstone_is_not_written_stays_usable() -> None:
    """TV-29."""
    rig = TransactionRig(settings=EXPIRING)
    rig.put(transaction_in(EMPTY, update_ms=START_MS))
    rig.advance(119_000)
    rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    rig.advance(2_000)
    assert ID in rig.machine.transactions
    rig.add(Identity(PRODUCER, 5), A0)


def test_a_pending_id_is_not_forgotten() -> None:
    """TV-29."""
    rig = TransactionRig(settings=EXPIRING, commits_at_once=False)
    rig.put(transaction_in(ONGOING, update_ms=START_MS, timeout_ms=2**31 - 1))
    record = record_of(transaction_in(EMPTY, update_ms=START_MS), level=2)
    rig.write(lambda machine: Outcome((record,), "done"))
    rig.advance(121_000)
    assert ID in rig.machine.transactions
    rig.commit()
    rig.advance(31_000)
    assert ID not in rig.machine.transactions


def test_many_ids_are_forgotten_in_pieces() -> None:
    rig = TransactionRig(settings=EXPIRING)
    for number in range(1_100):
        transaction = transaction_in(EMPTY, transactional_id=f"id-{number}", update_ms=START_MS)
        rig.write(lambda machine, each=transaction: Outcome((record_of(each, level=2),), "done"))
    rig.commit()
    rig.advance(120_100)
    assert len(rig.machine.transactions) == 0


# Records.


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_the_version_of_values(level: int, version: int) -> None:
    """TV-1: both are read."""
    rig = TransactionRig(level=level)
    producer = rig.init()
    rig.add(producer, A0, B0, version=0)
    values = [value for _, value in rig.records() if value is not None]
    assert [value.transaction_partitions is None for value in values] == [True, False]
    record = record_of(rig.transaction, level=level)
    assert record.value_version == version
    before = rig.transaction
    rig.move()
    assert rig.transaction == before


def test_the_bytes_of_a_record() -> None:
    """TXN-39."""
    transaction = transaction_in(
        ONGOING,
        transactional_id="t",
        producer_id=0x0102,
        epoch=3,
        timeout_ms=0x0405,
        start_ms=6,
        update_ms=7,
        client_version=0,
    )
    record = record_of(transaction, level=0)
    assert encode_key(record.key) == bytes.fromhex("0000 0001 74")
    assert record.value is not None
    assert encode_value(record.value, 0) == bytes.fromhex(
        "0000 0000000000000102 0003 00000405 01"
        "00000001 0001 61 00000001 00000000"
        "0000000000000007 0000000000000006"
    )
    empty = record_of(replace(transaction, state=EMPTY, partitions={}), level=0)
    assert empty.value is not None
    assert encode_value(empty.value, 0)[17:21] == bytes.fromhex("ffffffff")
    assert [int(state) for state in TransactionState] == [0, 1, 2, 3, 4, 5, 6]


def test_a_rotation_is_recorded_at_any_level() -> None:
    rig = TransactionRig(level=0, writes_markers_at_once=False)
    rig.put(transaction_in(ONGOING, epoch=32766))
    new = rig.end(Identity(PRODUCER, 32766))
    rig.move()
    rig.markers.write_all()
    rig.flush_all()
    rig.add(new, A0)


def test_a_state_that_there_is_not_is_refused() -> None:
    value = record_of(transaction_in(EMPTY), level=1).value
    assert value is not None
    value.transaction_status = 9  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="9"):
        transaction_of(ID, value)


LEGAL = {
    EMPTY: IDLE,
    ONGOING: (*IDLE, ONGOING),
    PREPARE_COMMIT: (ONGOING,),
    PREPARE_ABORT: (ONGOING, *IDLE),
    COMPLETE_COMMIT: (PREPARE_COMMIT,),
    COMPLETE_ABORT: (PREPARE_ABORT,),
    TransactionState.DEAD: IDLE,
}


@pytest.mark.parametrize("target", list(LEGAL))
@pytest.mark.parametrize("source", list(TransactionState))
def test_illegal_transitions_are_our_own_mistake(
    source: TransactionState, target: TransactionState
) -> None:
    """The table of section 21."""
    old, new = transaction_in(source), transaction_in(target)
    if target.is_decided:
        new = replace(new, partitions=old.partitions)
    if source in LEGAL[target]:
        check_transition(old, new)
    else:
        with pytest.raises(InternalInvariant):
            check_transition(old, new)


def test_what_else_is_illegal() -> None:
    ongoing = transaction_in(ONGOING)
    with pytest.raises(InternalInvariant, match="partitions"):
        check_transition(ongoing, replace(ongoing, partitions={"b": (0,)}))
    with pytest.raises(InternalInvariant, match="partitions"):
        check_transition(ongoing, replace(ongoing, state=PREPARE_COMMIT, partitions={"a": (0, 1)}))
    with pytest.raises(InternalInvariant, match="partitions"):
        check_transition(transaction_in(PREPARE_COMMIT), replace(ongoing, state=COMPLETE_COMMIT))
    with pytest.raises(InternalInvariant, match="epoch"):
        check_transition(ongoing, replace(ongoing, epoch=4))
    empty = transaction_in(EMPTY, client_version=0)
    with pytest.raises(InternalInvariant, match="transition"):
        check_transition(empty, replace(empty, state=PREPARE_ABORT))


# Lists.


def test_listing() -> None:
    """TV-30."""
    rig = TransactionRig(commits_at_once=False)
    for name, state, start_ms, producer_id in (
        ("empty", EMPTY, -1, 1),
        ("open", ONGOING, START_MS - 1_000, 2),
        ("new", ONGOING, START_MS, 3),
        ("done", COMPLETE_COMMIT, START_MS - 5_000, 4),
    ):
        record = record_of(
            transaction_in(
                state, transactional_id=name, start_ms=start_ms, producer_id=producer_id
            ),
            level=2,
        )
        rig.call(lambda machine, each=record: Outcome((each,), "done"))

    def found(wanted: ListFilter) -> list[str]:
        return sorted(
            each.transactional_id for each in list_transactions(rig.machine, wanted, START_MS)
        )

    assert found(ListFilter()) == ["done", "empty", "new", "open"]
    assert found(ListFilter(state_names=["Ongoing"])) == ["new", "open"]
    assert found(ListFilter(state_names=["Ongoing", "CompleteCommit"])) == ["done", "new", "open"]
    assert found(ListFilter(producer_ids=[1, 4])) == ["done", "empty"]
    assert found(ListFilter(longer_than_ms=999)) == ["done", "empty", "open"]
    assert found(ListFilter(longer_than_ms=1_000)) == ["done", "empty"]
    assert found(ListFilter(state_names=["Ongoing"], longer_than_ms=0)) == ["open"]
    nobody = ListFilter(state_names=["Asleep", "PrepareEpochFence", "Dead"])
    assert found(nobody) == []
    assert nobody.unknown_states == ["Asleep"]
    # What is not committed is not told.
    rig.begin_end(Identity(2, 5), name="open")
    assert found(ListFilter(state_names=["PrepareCommit"])) == []
    rig.commit()
    assert found(ListFilter(state_names=["PrepareCommit", "CompleteCommit"])) == ["done", "open"]
