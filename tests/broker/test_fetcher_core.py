"""A fetcher's decisions, one answer at a time."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from core_rig import Uuid, batch, memory_log, record, values_in
from fetch_rig import Fetcher, carry_out, data, follower, memory_log_of

from kraftpy.broker.fetch_state import truncation_offset
from kraftpy.broker.fetcher_core import Phase
from kraftpy.broker.fetcher_steps import Fetch, FindOffsets, Flush, Idle, Restart, Truncate
from kraftpy.broker.memory_replica_log import MemoryReplicaLog
from kraftpy.broker.partition import Partition
from kraftpy.log.errors import StorageError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import InternalInvariant

T0 = ("t", 0)
T1 = ("t", 1)


def batches(*values: bytes, base_offset: int = 0, epoch: int = 5) -> bytearray:
    return batch(*values, base_offset=base_offset, leader_epoch=epoch)


def with_records(count: int, *, epoch: int = 4) -> Partition:
    """A follower whose log has so many records of an epoch."""
    partition = follower()
    for offset in range(count):
        partition.log.append_as_follower(batches(b"v", base_offset=offset, epoch=epoch), 5)
    return partition


def test_a_last_batch_that_may_not_be_in_its_place_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No CRC covers its offset, and after a crash nothing behind it bears that out."""
    partition = with_records(3)
    partition.log.append_as_follower(batches(b"v", base_offset=7, epoch=4), 5)
    unproven = property(lambda log: 3 if log.log_end_offset == 8 else None)
    monkeypatch.setattr(MemoryReplicaLog, "unproven_from", unproven)
    fetcher = Fetcher(partition)
    (change,) = fetcher.changes()
    assert isinstance(change, Truncate)
    assert change.offset == 3
    carry_out(change)
    fetcher.core.changed(change, 0)
    assert fetcher.asked()[0].fetch_offset == 3


# Requests.


def test_a_request_tells_where_the_log_ends() -> None:
    """REP-69."""
    partition = with_records(3)
    partition.log.update_high_watermark(2)
    partition.log.raise_log_start(1)
    request = Fetcher(partition).fetch()
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 101)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 << 20)
    asked = request.topics[0].partitions[0]
    assert (asked.partition, asked.fetch_offset, asked.log_start_offset) == (0, 3, 1)
    assert (asked.current_leader_epoch, asked.last_fetched_epoch) == (5, 4)
    assert asked.partition_max_bytes == 1 << 20


def test_one_request_at_a_time() -> None:
    fetcher = Fetcher(follower())
    fetcher.fetch()
    with pytest.raises(InternalInvariant):
        fetcher.step()


def test_without_partitions_there_is_nothing_to_do() -> None:
    """REP-61, REP-71, REP-54."""
    fetcher = Fetcher()
    assert fetcher.step() == Idle(None)
    fetcher.core.add(follower())
    fetcher.fetch()
    fetcher.answer(data())
    fetcher.core.remove([T0])
    assert len(fetcher.core) == 0
    assert len(fetcher.fetch().forgotten_topics_data) == 1


def test_idle_partitions_are_not_asked_for_again() -> None:
    """REP-72."""
    fetcher = Fetcher(follower(), follower(T1))
    assert list(fetcher.asked()) == [0, 1]
    fetcher.answer(data(0), data(1))
    assert fetcher.asked() == {}
    fetcher.answer(data(1, batches(b"a")))
    assert {index: each.fetch_offset for index, each in fetcher.asked().items()} == {1: 1}


def test_who_was_served_comes_last() -> None:
    """REP-59: without a session, where the order is the fetcher's."""
    fetcher = Fetcher(*[follower(("t", index)) for index in range(4)])
    assert list(fetcher.asked()) == [0, 1, 2, 3]
    fetcher.answer(data(0, batches(b"a")), data(1), session_id=0)
    assert list(fetcher.asked()) == [1, 2, 3, 0]
    fetcher.answer(data(2, batches(b"a")), data(1, batches(b"a")), session_id=0)
    assert list(fetcher.asked()) == [3, 0, 2, 1]


# Data.


def test_records_are_appended_as_they_come() -> None:
    """REP-40, REP-64, REP-74: with the lag behind the leader's high watermark."""
    partition = follower()
    fetcher = Fetcher(partition)
    fetcher.fetch()
    assert fetcher.core.lag_of(T0) is None
    fetcher.answer(data(records=batches(b"a", b"b", epoch=3), high_watermark=6))
    assert values_in(partition.log) == {0: (3, b"a"), 1: (3, b"b")}
    assert partition.log.high_watermark == 2
    assert (fetcher.core.lag_of(T0), fetcher.core.max_lag()) == (4, 4)
    assert fetcher.traffic.counted == [(T0, len(batches(b"a", b"b")))]
    asked = fetcher.asked()[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, 3)
    fetcher.answer(data(high_watermark=1))
    assert partition.log.high_watermark == 1
    assert (fetcher.core.lag_of(T0), fetcher.core.max_lag()) == (0, 0)


def test_the_log_start_follows_and_is_told() -> None:
    """REP-76: never beyond the high watermark, and without harm to the partition."""
    partition = with_records(4)
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(high_watermark=2, log_start=3))
    assert partition.log.log_start_offset == 2
    assert fetcher.asked()[0].log_start_offset == 2
    fetcher.answer(data(high_watermark=4, log_start=3))
    assert fetcher.asked()[0].log_start_offset == 3


def test_a_batch_larger_than_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """REP-77: is noted, and appended."""
    partition = follower()
    fetcher = Fetcher(partition)
    fetcher.fetch()
    with caplog.at_level(logging.WARNING):
        fetcher.answer(data(records=batches(b"x" * (1 << 20))))
    assert "more than it should be" in caplog.text
    assert partition.log.log_end_offset == 1


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_leader_whose_log_begins_within_a_batch(is_empty: bool) -> None:
    """REP-92: after DeleteRecords. The follower's empty log begins again with that batch, and gets
    it at once: the next fetch would be below the leader's log start. So does one whose records the
    leader has all deleted.
    """
    partition = follower()
    log = memory_log_of(partition)
    log.truncate_fully_and_start_at(54 if is_empty else 52)
    if not is_empty:
        log.append_as_follower(batches(b"x", b"y", base_offset=52, epoch=4), 5)
    fetcher = Fetcher(partition)
    fetcher.fetch()
    answer = data(
        records=batches(b"a", b"b", b"c", base_offset=53), high_watermark=56, log_start=54
    )
    fetcher.answer(answer)
    (change,) = fetcher.changes()
    assert isinstance(change, Restart)
    assert change.offset == 53
    carry_out(change)
    fetcher.core.changed(change, 0)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (54, 56, 56)
    assert values_in(log) == {54: (5, b"b"), 55: (5, b"c")}
    asked = fetcher.asked()[0]
    assert (asked.fetch_offset, asked.log_start_offset) == (56, 54)


@pytest.mark.parametrize("count", [0, 2])
def test_a_batch_below_the_end_of_a_log_with_records_fails(count: int) -> None:
    """REP-75: nor does one help that ends before an empty log begins."""
    partition = with_records(count)
    if count == 0:
        memory_log_of(partition).truncate_fully_and_start_at(9)
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(records=batches(b"a", b"b", base_offset=1 if count else 7)))
    assert "begins at" in fetcher.core.failed[T0]


def test_half_a_batch_is_no_progress() -> None:
    partition = follower()
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(records=batches(b"x")[:50]))
    assert partition.log.log_end_offset == 0
    assert fetcher.asked()[0].fetch_offset == 0


def test_what_must_be_flushed_is_flushed_before_the_next_fetch() -> None:
    """Invariant 15: a fetch tells the leader that all before it is safe."""
    partition = follower(log=memory_log(flush_messages=1))
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(records=batches(b"a")))
    (change,) = fetcher.changes()
    assert isinstance(change, Flush)
    request = fetcher.fetch()
    assert [each.partitions for each in request.forgotten_topics_data] == [[0]]
    fetcher.answer()
    carry_out(change)
    fetcher.core.changed(change, 0)
    assert fetcher.asked()[0].fetch_offset == 1


def test_what_another_leader_sent_is_flushed_before_the_first_fetch() -> None:
    """Invariant 15: the flush that it asked for was not begun when the leader changed."""
    partition = follower(log=memory_log(flush_messages=1))
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(records=batches(b"a")))
    fetcher.core.remove([T0])
    assert partition.log.recovery_point == 0
    fetcher.core.add(partition)
    (change,) = fetcher.changes()
    assert isinstance(change, Flush)
    carry_out(change)
    fetcher.core.changed(change, 0)
    assert fetcher.asked()[0].fetch_offset == 1


def test_what_is_left_after_truncation_is_flushed_too() -> None:
    """Invariant 15: by a follower that has no epochs to compare."""
    partition = follower(log=memory_log(flush_messages=1))
    partition.log.append_as_follower(batches(b"a"), 5)
    partition.log.append_as_follower(batches(b"b", base_offset=1), 5)
    partition.log.update_high_watermark(1)
    partition.log.epochs.clear()
    fetcher = Fetcher(partition)
    for kind in (Truncate, Flush):
        (change,) = fetcher.changes()
        assert isinstance(change, kind)
        carry_out(change)
        fetcher.core.changed(change, 0)
    assert fetcher.asked()[0].fetch_offset == partition.log.recovery_point == 1


def test_a_flush_that_fails_takes_the_partition_out() -> None:
    partition = follower(log=memory_log(flush_messages=1))
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(records=batches(b"a")))
    (change,) = fetcher.changes()
    fetcher.core.changed(change, 0, StorageError("broken"))
    assert fetcher.core.failed == {T0: "broken"}


# Answers about the past.


def test_stale_answers_are_ignored() -> None:
    """REP-62: of partitions that were removed, added again, or are led by another since."""
    partitions = [follower(("t", index)) for index in range(3)]
    fetcher = Fetcher(*partitions)
    fetcher.fetch()
    fetcher.core.remove([T0])
    fetcher.core.add(partitions[1])
    partitions[2].follow(record(3, leader_epoch=6, partition_epoch=11))
    fetcher.answer(*[data(index, batches(b"a")) for index in range(3)])
    assert [each.log.log_end_offset for each in partitions] == [0, 0, 0]
    assert T0 not in fetcher.core
    assert fetcher.core.phase_of(T1) is Phase.FETCHING


def test_an_answer_for_another_topic_id_is_ignored() -> None:
    partition = follower(topic_id=Uuid(b"another topic id"))
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(records=batches(b"a")))
    assert partition.log.log_end_offset == 0


# Errors.

TRANSIENT = [
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    9999,
]


@pytest.mark.parametrize("error", TRANSIENT)
def test_errors_delay_one_partition(error: int) -> None:
    """REP-58, REP-65: neither asked for nor waited with; others go on meanwhile."""
    fetcher = Fetcher(follower(), follower(T1))
    fetcher.fetch()
    fetcher.answer(data(0, error=error), data(1, batches(b"a")))
    request = fetcher.fetch()
    assert request.max_wait_ms == 100
    assert [each.partitions for each in request.forgotten_topics_data] == [[0]]
    fetcher.now_ms = 99
    fetcher.answer()
    assert fetcher.asked() == {}
    fetcher.answer()
    fetcher.now_ms = 100
    assert list(fetcher.asked()) == [0]


def test_delays_grow_and_end_with_success() -> None:
    """REP-65: up to replica.fetch.backoff.ms."""
    fetcher = Fetcher(follower())
    fetcher.fetch()
    for pause_ms in (100, 200, 400, 800, 1000, 1000):
        fetcher.answer(data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        request = fetcher.fetch()
        assert request.forgotten_topics_data
        fetcher.answer()
        assert fetcher.step() == Idle(fetcher.now_ms + pause_ms)
        fetcher.now_ms += pause_ms
        fetcher.fetch()
    fetcher.answer(data())
    fetcher.fetch()
    fetcher.answer(data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert fetcher.fetch().max_wait_ms == 100


def test_a_partition_that_is_added_again_is_not_delayed() -> None:
    """REP-58: it is a new beginning; the old delay's end is nobody's."""
    partition = follower()
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    fetcher.core.add(partition)
    assert list(fetcher.asked()) == [0]
    fetcher.now_ms = 100
    fetcher.answer(data())
    assert fetcher.asked() == {}


def test_a_leadership_that_is_over_fails_the_partition_until_it_is_added(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """REP-55, REP-66, REP-67: nothing to worry about, the leader has heard of it earlier."""
    partition = follower()
    fetcher = Fetcher(partition, follower(T1))
    fetcher.fetch()
    fetcher.answer(data(error=ErrorCode.FENCED_LEADER_EPOCH), data(1))
    assert list(fetcher.core.failed) == [T0]
    assert T0 not in fetcher.core
    fetcher.now_ms = 10_000
    assert fetcher.asked() == {}
    # Added again during the request: its answer is about the past.
    partition.follow(record(2, leader_epoch=6, partition_epoch=11))
    fetcher.core.add(partition)
    assert fetcher.core.failed == {}
    fetcher.answer(data(error=ErrorCode.FENCED_LEADER_EPOCH))
    assert fetcher.asked()[0].current_leader_epoch == 6
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_failed_request_delays_all_and_is_told_anew() -> None:
    """REP-63: after a pause that grows; then everything, in a new session."""
    fetcher = Fetcher(follower(), follower(T1))
    fetcher.fetch()
    fetcher.answer(data(0), data(1))
    fetcher.fetch()
    for pause_ms in (100, 200, 400):
        fetcher.core.failed_request(fetcher.now_ms, "lost")
        assert fetcher.step() == Idle(fetcher.now_ms + pause_ms)
        fetcher.now_ms += pause_ms
        request = fetcher.fetch()
        assert (request.session_id, request.session_epoch) == (7, 0)
        assert len(request.topics[0].partitions) == 2
    fetcher.answer(data(0), data(1))
    fetcher.fetch()
    fetcher.core.failed_request(fetcher.now_ms, "lost")
    assert fetcher.step() == Idle(fetcher.now_ms + 100)


def test_a_session_that_is_gone_is_begun_anew_at_once() -> None:
    """REP-72: but not again and again."""
    fetcher = Fetcher(follower())
    fetcher.fetch()
    fetcher.answer(data())
    fetcher.fetch()
    fetcher.answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert list(fetcher.asked()) == [0]
    fetcher.answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert fetcher.step() == Idle(100)


def test_what_is_corrupt_delays_its_partition() -> None:
    """REP-68: what was broken on the way may come whole the next time."""
    partitions = [follower(), follower(T1)]
    fetcher = Fetcher(*partitions)
    fetcher.fetch()
    broken = batches(b"a")
    broken[-1] ^= 1
    fetcher.answer(data(0, broken), data(1, batches(b"a")))
    assert [each.log.log_end_offset for each in partitions] == [0, 1]
    assert list(fetcher.asked()) == [1]
    fetcher.now_ms = 100
    fetcher.answer(data(1))
    assert list(fetcher.asked()) == [0]
    fetcher.answer(data(0, batches(b"a")))
    assert partitions[0].log.log_end_offset == 1


def test_what_can_not_be_right_fails_its_partition() -> None:
    """REP-68."""
    partitions = [with_records(2), follower(T1)]
    fetcher = Fetcher(*partitions)
    fetcher.fetch()
    fetcher.answer(data(0, batches(b"a", base_offset=1)), data(1, batches(b"a")))
    assert list(fetcher.core.failed) == [T0]
    assert partitions[1].log.log_end_offset == 1


def test_a_log_that_ends_elsewhere_than_asked_is_not_appended_to() -> None:
    """REP-75: an error of that partition alone."""
    partition = follower()
    fetcher = Fetcher(partition)
    fetcher.fetch()
    partition.log.append_as_follower(batches(b"v"), 5)
    fetcher.answer(data(records=batches(b"a")))
    assert values_in(partition.log) == {0: (5, b"v")}
    fetcher.step()
    fetcher.answer()
    fetcher.now_ms = 100
    assert fetcher.asked()[0].fetch_offset == 1


# Truncation.


def test_without_epochs_a_log_is_cut_to_its_high_watermark() -> None:
    """REP-57, REP-60, REP-79: before it is fetched."""
    partition = with_records(5)
    log = memory_log_of(partition)
    log.update_high_watermark(3)
    log.epochs.clear()
    fetcher = Fetcher(partition)
    assert fetcher.core.phase_of(T0) is Phase.CHANGING
    (change,) = fetcher.changes()
    assert isinstance(change, Truncate)
    assert change.offset == 3
    assert fetcher.step() == Idle(None)
    carry_out(change)
    fetcher.core.changed(change, 0)
    asked = fetcher.asked()[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (3, -1)


def test_with_epochs_the_leader_is_asked_first() -> None:
    """REP-80."""
    partition = with_records(5)
    assert list(Fetcher(partition).asked()) == [0]
    assert partition.log.log_end_offset == 5


def test_a_diverging_epoch_cuts_the_log() -> None:
    """REP-60, REP-96: and before anything else is fetched, the log is cut."""
    partition = with_records(5)
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(diverging=(4, 2)))
    (change,) = fetcher.changes()
    assert isinstance(change, Truncate)
    assert change.offset == 2
    carry_out(change)
    fetcher.core.changed(change, 0)
    assert fetcher.asked()[0].fetch_offset == 2


def test_where_to_cut() -> None:
    """REP-84 to REP-86: the same epoch, one that is unknown here, none; never beyond the end."""
    log = memory_log()
    for offset, epoch in enumerate((2, 2, 5, 5, 7)):
        log.append_as_follower(batches(b"v", base_offset=offset, epoch=epoch), 9)
    assert truncation_offset(log, 5, 3) == 3
    assert truncation_offset(log, 5, 9) == 4
    assert truncation_offset(log, 7, 9) == 5
    # Of epoch 6 there is nothing here: all of epoch 5 is asked for next.
    assert truncation_offset(log, 6, 5) == truncation_offset(log, 6, 3) == 4
    assert truncation_offset(log, 3, 4) == 2
    # Nothing of the time is left here.
    assert truncation_offset(log, 1, 0) == 0
    log.epochs.clear()
    assert truncation_offset(log, 4, 3) == 3
    assert truncation_offset(log, 4, 30) == 5


def test_a_truncation_that_fails_is_tried_again() -> None:
    partition = with_records(5)
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(diverging=(4, 2)))
    (change,) = fetcher.changes()
    fetcher.core.changed(change, 0, StorageError("full"))
    assert isinstance(fetcher.step(), Fetch)
    fetcher.now_ms = 100
    fetcher.answer()
    assert fetcher.asked()[0].fetch_offset == 5


def test_the_end_of_a_change_that_nobody_wants_any_more() -> None:
    """REP-62: the partition was removed, or added again."""
    partition = with_records(5)
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(diverging=(4, 2)))
    (change,) = fetcher.changes()
    fetcher.core.remove([T0])
    fetcher.core.changed(change, 0)
    assert T0 not in fetcher.core
    memory_log_of(partition).epochs.clear()
    fetcher.core.add(partition)
    fetcher.core.changed(change, 0)
    assert fetcher.core.phase_of(T0) is Phase.CHANGING


# Out of range.


def offsets_of(fetcher: Fetcher) -> Any:
    step = fetcher.step()
    assert isinstance(step, FindOffsets), step
    asked = step.request.topics[0].partitions[0]
    return asked.timestamp, asked.current_leader_epoch, step.request.replica_id


def out_of_range(partition: Partition) -> Fetcher:
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(error=ErrorCode.OFFSET_OUT_OF_RANGE))
    return fetcher


def test_beyond_the_leaders_end() -> None:
    """REP-91: an unclean election, after which the leader has less."""
    partition = with_records(5)
    fetcher = out_of_range(partition)
    assert offsets_of(fetcher) == (-1, 5, 1)
    fetcher.answer_offset(2)
    (change,) = fetcher.changes()
    assert isinstance(change, Truncate)
    assert change.offset == 2


def test_before_the_leaders_start() -> None:
    """REP-92."""
    partition = with_records(5)
    fetcher = out_of_range(partition)
    assert offsets_of(fetcher) == (-1, 5, 1)
    fetcher.answer_offset(20)
    assert offsets_of(fetcher) == (-2, 5, 1)
    fetcher.answer_offset(10)
    (change,) = fetcher.changes()
    assert isinstance(change, Restart)
    assert change.offset == 10
    carry_out(change)
    fetcher.core.changed(change, 0)
    assert fetcher.asked()[0].fetch_offset == 10


def test_in_range_after_all() -> None:
    """REP-91: nothing is cut, but the leader is not asked again at once."""
    partition = with_records(5)
    fetcher = out_of_range(partition)
    offsets_of(fetcher)
    fetcher.answer_offset(5)
    offsets_of(fetcher)
    fetcher.answer_offset(5)
    assert isinstance(fetcher.step(), Fetch)
    fetcher.now_ms = 100
    fetcher.answer()
    assert fetcher.asked()[0].fetch_offset == 5


def test_an_answer_without_sense_cuts_nothing() -> None:
    """REP-68: nor does it end the broker, as a log that is cut to a negative offset would."""
    partition = with_records(5)
    fetcher = out_of_range(partition)
    offsets_of(fetcher)
    fetcher.answer_offset(-1)
    assert isinstance(fetcher.step(), Fetch | Idle)
    fetcher = Fetcher(partition)
    fetcher.fetch()
    fetcher.answer(data(diverging=(4, -1)))
    assert isinstance(fetcher.step(), Fetch | Idle)


def test_no_offset_to_be_had() -> None:
    """REP-65, REP-66: tried again, or given up, as with a fetch."""
    fetcher = out_of_range(with_records(5))
    offsets_of(fetcher)
    fetcher.answer_offset(-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    fetcher.fetch()
    fetcher.answer()
    assert fetcher.step() == Idle(100)
    fetcher.now_ms = 100
    assert offsets_of(fetcher) == (-1, 5, 1)
    fetcher.core.failed_request(100, "lost")
    assert fetcher.step() == Idle(200)
    fetcher.now_ms = 200
    assert offsets_of(fetcher) == (-1, 5, 1)
    fetcher.answer_offset(-1, error=ErrorCode.FENCED_LEADER_EPOCH)
    assert list(fetcher.core.failed) == [T0]


def test_offsets_of_the_past_are_ignored() -> None:
    """REP-62."""
    partition = with_records(5)
    fetcher = out_of_range(partition)
    offsets_of(fetcher)
    partition.follow(record(2, leader_epoch=6, partition_epoch=11))
    fetcher.core.add(partition)
    fetcher.answer_offset(0)
    assert fetcher.asked()[0].fetch_offset == 5


# The quota.


def test_beyond_the_quota_who_lags_is_not_asked_for() -> None:
    """REP-70: who is in sync is, and who is not throttled."""
    partitions = [follower(("t", index)) for index in range(4)]
    fetcher = Fetcher(*partitions)
    fetcher.traffic.throttled += [("t", 0), ("t", 1), ("t", 3)]
    fetcher.fetch()
    fetcher.answer(
        data(0, high_watermark=5), data(1), data(2, high_watermark=5), data(3, high_watermark=5)
    )
    fetcher.core.remove([("t", 3)])
    fetcher.traffic.is_over = True
    request = fetcher.fetch()
    assert [each.partitions for each in request.forgotten_topics_data] == [[3, 0]]
    fetcher.answer(data(1, batches(b"a")), data(2, batches(b"a")))
    assert list(fetcher.asked()) == [1, 2]
    fetcher.answer()
    fetcher.traffic.is_over = False
    assert list(fetcher.asked()) == [0]


def test_when_all_are_held_back_the_quota_is_looked_at_again() -> None:
    """REP-70."""
    fetcher = Fetcher(follower())
    fetcher.traffic.throttled.append(T0)
    fetcher.traffic.is_over = True
    assert fetcher.step() == Idle(1000)
    fetcher.traffic.is_over = False
    assert list(fetcher.asked()) == [0]


def test_who_is_no_longer_throttled_is_asked_for_beyond_the_quota() -> None:
    """REP-70."""
    fetcher = Fetcher(follower(), follower(("t", 1)))
    fetcher.traffic.throttled += [T0, ("t", 1)]
    fetcher.traffic.is_over = True
    assert fetcher.step() == Idle(1000)
    fetcher.traffic.throttled.remove(T0)
    assert list(fetcher.asked()) == [0]
