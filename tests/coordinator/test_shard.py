"""A shard's rules, with a machine that only remembers what it was told."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from coordinator.number_machine import NumberMachine, record
from coordinator.shard_kit import HandClock, ShardRig, Waiting

from kraftpy.coordinator.batch import Producer
from kraftpy.coordinator.memory_shard_log import MemoryShardLog
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.coordinator.runtime import CoordinatorRuntime
from kraftpy.coordinator.shard import Shard, ShardState
from kraftpy.coordinator.shard_writing import ShardSettings, ShardWorld
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.protocol.coordinator_records import GROUP_RECORDS, encode_key
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.group_records import OffsetCommitKey
from kraftpy.purgatory.timer import Timer
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import EndTransactionMarker
from kraftpy.records.reader import read_records


def make_rig(**options: Any) -> ShardRig[NumberMachine]:
    return ShardRig(NumberMachine, GROUP_RECORDS, **options)


def batches(rig: ShardRig[Any]) -> list[list[str]]:
    """The names in each batch of the log; control batches as "*"."""
    found = []
    for data in rig.log.batches:
        batch = RecordBatch(data)
        names = []
        for each in read_records(batch, max_bytes=1 << 20):
            assert each.key is not None
            if batch.is_control:
                names.append("*")
            else:
                key = GROUP_RECORDS.decode_key(each.key)
                assert isinstance(key, OffsetCommitKey)
                names.append(key.topic)
        found.append(names)
    return found


def test_an_answer_waits_until_its_records_are_committed() -> None:
    """CRT-2."""
    rig = make_rig()
    waiting = rig.write(lambda machine: machine.put(("a", 1), ("b", 2)))
    rig.flush()
    assert rig.log.log_end_offset == 2
    assert not waiting.is_answered
    rig.commit(1)
    assert not waiting.is_answered
    rig.commit(2)
    assert waiting.answer == "put"


def test_a_write_without_records_waits_for_those_before_it() -> None:
    """CRT-3: it may have seen what is not committed."""
    rig = make_rig()
    assert rig.write(lambda machine: machine.look()).answer == {}
    rig.write(lambda machine: machine.put(("a", 1)))
    behind_open = rig.write(lambda machine: machine.look())
    rig.flush()
    behind_written = rig.write(lambda machine: machine.look())
    assert not behind_open.is_answered
    assert not behind_written.is_answered
    rig.commit()
    assert behind_open.answer == behind_written.answer == {"a": 1}
    assert rig.write(lambda machine: machine.look()).is_answered


def test_a_read_sees_committed_state_only() -> None:
    """CRT-4."""
    rig = make_rig()
    rig.call(lambda machine: machine.put(("a", 1)))
    rig.write(lambda machine: machine.put(("a", 2)))
    rig.flush()
    assert rig.shard.read(NumberMachine.committed) == {"a": 1}
    assert rig.machine.numbers["a"] == 2
    rig.commit()
    assert rig.shard.read(NumberMachine.committed) == {"a": 2}


def test_operations_see_what_those_before_them_wrote() -> None:
    """CRT-5: records are replayed before they are appended, at the offsets they will have."""
    rig = make_rig()
    first, second = (rig.write(lambda machine: machine.add_one("a")) for _ in range(2))
    assert rig.log.log_end_offset == 0
    assert rig.machine.offsets == [0, 1]
    rig.commit()
    assert (first.answer, second.answer) == (1, 2)
    assert batches(rig) == [["a", "a"]]


def test_a_failed_append_fails_the_whole_batch_and_leaves_no_trace() -> None:
    """CRT-6, CRT-8."""
    rig = make_rig()
    rig.call(lambda machine: machine.put(("a", 1)))
    rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    first = rig.write(lambda machine: machine.put(("a", 2)))
    second = rig.write(lambda machine: machine.put(("a", None), ("b", 3)))
    third = rig.write(lambda machine: machine.look())
    rig.flush()
    assert first.error == second.error == third.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert dict(rig.machine.numbers.items()) == {"a": 1}
    assert rig.call(lambda machine: machine.add_one("a")) == 2
    assert rig.machine.offsets[-1] == 1


def test_a_failed_replay_fails_the_whole_batch_and_leaves_no_trace() -> None:
    """CRT-7."""
    rig = make_rig()
    first = rig.write(lambda machine: machine.put(("a", 1)))
    second = rig.write(lambda machine: machine.put(("b", 1), ("c", -1)))
    rig.commit()
    assert first.error == second.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not rig.machine.numbers
    assert rig.log.log_end_offset == 0


def test_a_record_that_can_not_be_written_fails_its_write_and_no_other() -> None:
    """Clients choose names and numbers, some of which no record can hold."""
    rig = make_rig()
    before = rig.write(lambda machine: machine.put(("a", 1)))
    settled: list[CoordinatorError | None] = []
    too_long = Outcome([record("x" * 40_000, 1)], answer="put", settled=settled.append)
    waiting = rig.write(lambda machine: too_long)
    after = rig.write(lambda machine: machine.put(("b", 2)))
    rig.commit()
    assert waiting.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [error is not None for error in settled] == [True]
    assert (before.answer, after.answer) == ("put", "put")
    assert batches(rig) == [["a", "b"]]


def test_a_shard_that_contradicts_its_log_is_loaded_again() -> None:
    """CRT-9."""
    rig = make_rig()
    pending = rig.write(lambda machine: machine.put(("a", 1)))
    rig.flush()
    builder = BatchBuilder()
    stranger = record("stranger", 7)
    builder.append(encode_key(stranger.key), None, timestamp_ms=0)
    rig.log.append(builder.build())
    shard, waiting = rig.shard, rig.write(lambda machine: machine.put(("b", 2)))
    rig.flush()
    assert waiting.error == pending.error == ErrorCode.NOT_COORDINATOR
    assert shard.state is ShardState.FAILED
    assert rig.reloads == 1
    rig.commit()
    assert rig.shard.read(NumberMachine.committed) == {"a": 1, "b": 2}


@pytest.mark.parametrize(("linger_ms", "expected"), [(0, [["a"], ["b"]]), (10, [["a", "b"]])])
def test_the_linger_groups_writes(linger_ms: int, expected: list[list[str]]) -> None:
    """CRT-10."""
    rig = make_rig(settings=ShardSettings(append_linger_ms=linger_ms))
    rig.write(lambda machine: machine.put(("a", 1)))
    rig.clock.now_ms += 9
    rig.flush()
    assert batches(rig) == ([["a"]] if linger_ms == 0 else [])
    rig.write(lambda machine: machine.put(("b", 1)))
    rig.clock.now_ms += 1
    rig.flush()
    assert batches(rig) == expected


def test_the_end_of_a_linger_does_not_end_the_next_batch() -> None:
    """CRT-11."""
    rig = make_rig(settings=ShardSettings(append_linger_ms=10))
    rig.write(lambda machine: machine.put(("a", 1)))
    rig.write_transactional(lambda machine: machine.put(("t", 1)), Producer(1, 0))
    rig.clock.now_ms += 5
    rig.write(lambda machine: machine.put(("b", 1)))
    rig.clock.now_ms += 5
    rig.flush()
    assert batches(rig) == [["a"], ["t"]]
    rig.clock.now_ms += 5
    rig.flush()
    assert batches(rig) == [["a"], ["t"], ["b"]]


def test_records_are_split_over_batches_unless_they_belong_together() -> None:
    """CRT-12."""
    names = [(f"name-{number}", number) for number in range(6)]
    rig = make_rig(log=MemoryShardLog(max_batch_bytes=300))
    assert rig.call(lambda machine: machine.put(*names, atomic=False)) == "put"
    assert len(batches(rig)) > 1
    assert [name for each in batches(rig) for name in each] == [name for name, _ in names]
    waiting = rig.write(lambda machine: machine.put(*names))
    rig.commit()
    assert waiting.error == ErrorCode.UNKNOWN_SERVER_ERROR
    written = len(batches(rig))
    rig.write(lambda machine: machine.put(names[0], names[1]))
    rig.write(lambda machine: machine.put(names[2], names[3]))
    rig.commit()
    assert batches(rig)[written:] == [["name-0", "name-1"], ["name-2", "name-3"]]


def test_a_transactional_write_is_a_batch_of_its_own() -> None:
    """CRT-13."""
    rig = make_rig()
    rig.write(lambda machine: machine.put(("a", 1)))
    waiting = rig.write_transactional(lambda machine: machine.put(("t", 1)), Producer(7, 3))
    rig.write(lambda machine: machine.put(("b", 1)))
    rig.commit()
    assert batches(rig) == [["a"], ["t"], ["b"]]
    assert waiting.answer == "put"
    header = RecordBatch(rig.log.batches[1])
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch) == (7, 3)
    assert dict(rig.machine.numbers.items()) == {"a": 1, "b": 1}


def test_a_transactional_write_is_lost_with_what_its_operation_saw() -> None:
    rig = make_rig()
    rig.write(lambda machine: machine.put(("a", 1)))
    rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    waiting = rig.write_transactional(lambda machine: machine.add_one("a"), Producer(7, 3))
    rig.commit()
    assert waiting.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.log.log_end_offset == 0
    assert not rig.machine.pending


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_comes_behind_what_was_written_before_it(is_commit: bool) -> None:
    """CRT-14."""
    rig = make_rig()
    producer = Producer(7, 3)
    rig.write_transactional(lambda machine: machine.put(("t", 1)), producer)
    rig.write(lambda machine: machine.put(("a", 1)))
    waiting = rig.complete_transaction(producer, is_commit=is_commit)
    assert batches(rig) == [["t"], ["a"], ["*"]]
    assert not waiting.is_answered
    rig.commit()
    assert waiting.answer.is_commit is is_commit
    expected = {"a": 1, "t": 1} if is_commit else {"a": 1}
    assert rig.shard.read(NumberMachine.committed) == expected
    rig.move()
    assert dict(rig.machine.numbers.items()) == expected


def test_a_marker_that_can_not_be_appended_has_ended_nothing() -> None:
    rig = make_rig()
    producer = Producer(7, 3)
    rig.write_transactional(lambda machine: machine.put(("t", 1)), producer)
    rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    waiting = rig.complete_transaction(producer, is_commit=True)
    assert waiting.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not rig.machine.numbers
    assert len(rig.machine.pending) == 1


def test_news_of_the_high_watermark_answer_before_anything_else_runs() -> None:
    """CRT-1, CRT-15: events don't overlap, and commits go first and in order."""
    rig = make_rig()
    told: list[str] = []
    for name in ("a", "b"):
        rig.shard.write(
            lambda machine, name=name: machine.put((name, 1)),
            lambda answer, name=name: told.append(name),
        )
    rig.flush()

    def operation(machine: NumberMachine) -> Outcome[str]:
        rig.shard.write(lambda machine: told.append("nested") or machine.look(), Waiting())
        rig.log.high_watermark = 2
        rig.shard.high_watermark_moved(2)
        told.append("first")
        return Outcome(answer="")

    rig.write(operation)
    assert told == ["first", "a", "b", "nested"]


def test_a_write_that_takes_too_long_is_answered_but_not_undone() -> None:
    """CRT-16."""
    rig = make_rig(settings=ShardSettings(write_timeout_ms=5000))
    settled: list[object] = []

    def operation(machine: NumberMachine) -> Outcome[str]:
        return Outcome([record("a", 1)], answer="put", settled=settled.append)

    waiting = rig.write(operation)
    rig.advance(4999)
    assert not waiting.is_answered
    rig.advance(1)
    assert waiting.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert settled == []
    rig.commit()
    assert rig.shard.read(NumberMachine.committed) == {"a": 1}
    assert waiting.error is not None
    assert settled == [None]


def test_what_a_shard_says_when_it_is_not_active() -> None:
    """CRT-17, CRT-26."""
    rig = make_rig()
    for state, code in [
        (ShardState.LOADING, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ShardState.FAILED, ErrorCode.NOT_COORDINATOR),
        (ShardState.CLOSED, ErrorCode.NOT_COORDINATOR),
    ]:
        rig.shard.state = state
        assert rig.write(lambda machine: machine.look()).error == code
        with pytest.raises(CoordinatorError) as caught:
            rig.shard.read(NumberMachine.committed)
        assert caught.value.code == code
        marker = rig.complete_transaction(Producer(7, 3), is_commit=True)
        assert marker.error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_closing_answers_everybody_and_ends_timers() -> None:
    """CRT-19."""
    rig = make_rig()
    written = rig.write(lambda machine: machine.put(("a", 1)))
    rig.flush()
    collected = rig.write(lambda machine: machine.put(("b", 1)))
    rung: list[str] = []
    machine = rig.machine
    machine.context.timers.schedule("x", 100, partial(_ring, rung, "x"))
    rig.shard.close()
    assert not machine.context.timers.is_scheduled("x")
    assert written.error == collected.error == ErrorCode.NOT_COORDINATOR
    assert machine.events == ["loaded", "unloaded"]
    rig.advance(200)
    rig.commit()
    assert rung == []


def _ring(rung: list[str], name: str) -> Outcome[None]:
    rung.append(name)
    return Outcome([record(name, len(rung))])


def test_loading_takes_over_everything_and_passes_over_what_it_does_not_know() -> None:
    """CRT-20."""
    rig = make_rig()
    builder = BatchBuilder()
    builder.append(b"\x7f\xffanything", b"\x00\x00", timestamp_ms=0)
    rig.log.append(builder.build())
    rig.move()
    rig.call(lambda machine: machine.put(("a", 1), ("b", 2)))
    rig.call(lambda machine: machine.put(("a", None)))
    rig.write_transactional(lambda machine: machine.put(("t", 1)), Producer(7, 3))
    rig.commit(3)
    rig.move()
    assert rig.machine.offsets == [1, 2, 3, 4]
    assert dict(rig.machine.numbers.items()) == {"b": 2}
    # What was written and not committed when the leader changed is not shown before it is.
    assert rig.shard.read(NumberMachine.committed) == {"a": 1, "b": 2}
    rig.commit()
    assert rig.shard.read(NumberMachine.committed) == {"b": 2}
    assert rig.call(lambda machine: machine.add_one("b")) == 3


def test_a_log_is_loaded_in_pieces() -> None:
    """GRP-6: meanwhile there is no coordinator; one that is closed hears of nothing any more."""
    rig = make_rig()
    rig.call(lambda machine: machine.put(*[(f"name-{number}", number) for number in range(200)]))
    runtime, loading = make_runtime()
    runtime.elected(0, 0, rig.log)
    [shard] = loading
    pieces = shard.load(rig.log.read_now(0))
    next(pieces)
    assert 0 < len(shard.machine.offsets) < 200
    waiting = Waiting()
    runtime.write(0, NumberMachine.look, waiting)
    assert waiting.error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    replayed = len(shard.machine.offsets)
    runtime.resigned(0, None)
    assert not list(pieces)
    assert len(shard.machine.offsets) == replayed


def test_what_is_committed_is_so_while_a_log_is_still_loaded() -> None:
    """Batch by batch: a journal of all that is loaded would be long, and hold the loop at its end.

    What is not committed stays in it.
    """
    rig = make_rig()
    for number in range(100):
        rig.call(lambda machine, number=number: machine.put((f"name-{number}", number)))
    rig.write(lambda machine: machine.put(("late", 1)))
    rig.flush()
    runtime, loading = make_runtime()
    runtime.elected(0, 0, rig.log)
    [shard] = loading
    pieces = shard.load(rig.log.read_now(0))
    next(pieces)
    assert shard.timeline.last_committed == shard.timeline.last_written > 0
    assert not shard.machine.numbers.is_uncommitted("name-0")
    list(pieces)
    assert (shard.timeline.last_committed, shard.timeline.last_written) == (100, 101)
    assert shard.machine.numbers.is_uncommitted("late")


def test_a_marker_that_comes_while_a_log_is_loaded_takes_nothing_away() -> None:
    """Transaction coordinators try again at once when a leader changes: into half a batch."""
    rig = make_rig()
    rig.call(lambda machine: machine.put(*[(f"name-{number}", number) for number in range(200)]))
    runtime, loading = make_runtime()
    runtime.elected(0, 0, rig.log)
    [shard] = loading
    pieces = shard.load(rig.log.read_now(0))
    next(pieces)
    waiting = Waiting()
    runtime.complete_transaction(0, EndTransactionMarker(True, 0), waiting, Producer(7, 3), 2)
    assert waiting.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for _ in pieces:
        pass
    shard.activate()
    assert len(shard.read(NumberMachine.committed)) == 200


def test_a_log_may_begin_within_a_batch() -> None:
    rig = make_rig()
    rig.call(lambda machine: machine.put(("a", 1), ("b", 2), ("c", 3)))
    rig.log.log_start_offset = 1
    rig.move()
    assert rig.machine.offsets == [1, 2]
    assert rig.shard.read(NumberMachine.committed) == {"b": 2, "c": 3}


def test_what_is_committed_while_a_log_is_loaded_is_seen_when_it_is_active() -> None:
    """The news came when there was nothing to tell them to."""
    runtime, loading = make_runtime()
    rig = make_rig()
    rig.write(lambda machine: machine.put(("a", 1)))
    rig.flush()
    runtime.elected(0, 0, rig.log)
    for _ in loading[0].load(rig.log.read_now(0)):
        pass
    rig.log.high_watermark = 1
    loading[0].activate()
    assert loading[0].read(NumberMachine.committed) == {"a": 1}


def test_a_timer_that_was_replaced_or_cancelled_does_nothing() -> None:
    """CRT-22, also when it has rung already and its event waits."""
    rig = make_rig()
    rung: list[str] = []
    timers = rig.machine.context.timers
    timers.schedule("a", 100, partial(_ring, rung, "first"))
    timers.schedule("a", 200, partial(_ring, rung, "second"))
    timers.schedule("b", 100, partial(_ring, rung, "b"))
    rig.advance(100)
    assert rung == ["b"]
    timers.schedule("c", 50, partial(_ring, rung, "c"))

    def cancel_while_it_rings(machine: NumberMachine) -> Outcome[str]:
        rig.clock.now_ms += 50
        rig.flush()
        timers.cancel("c")
        return Outcome(answer="")

    rig.write(cancel_while_it_rings)
    assert rung == ["b"]
    rig.advance(50)
    assert rung == ["b", "second"]
    assert not timers.is_scheduled("a")


def test_a_timer_that_starts_anew_after_it_has_rung_rings_once() -> None:
    """CRT-22: its event of before, which waits, is not taken for the new one's."""
    rig = make_rig()
    rung: list[str] = []
    timers = rig.machine.context.timers
    timers.schedule("a", 50, partial(_ring, rung, "first"))

    def start_anew_while_it_rings(machine: NumberMachine) -> Outcome[str]:
        rig.clock.now_ms += 50
        rig.flush()
        timers.schedule("a", 100, partial(_ring, rung, "second"))
        return Outcome(answer="")

    rig.write(start_anew_while_it_rings)
    rig.advance(99)
    assert rung == []
    rig.advance(1)
    assert rung == ["second"]


@pytest.mark.parametrize("fails_in", ["append", "operation"])
def test_a_timer_that_fails_is_tried_again(fails_in: str) -> None:
    """CRT-23."""
    rig = make_rig(commits_at_once=True)
    rung: list[str] = []

    def operation() -> Outcome[None]:
        if fails_in == "operation" and not rung:
            rung.append("failed")
            raise CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return _ring(rung, "a")

    if fails_in == "append":
        rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    rig.machine.context.timers.schedule("a", 100, operation)
    rig.advance(100)
    assert len(rung) == 1
    assert not rig.machine.numbers
    rig.advance(499)
    assert len(rung) == 1
    rig.advance(1)
    assert rig.machine.numbers["a"] == 2
    rig.advance(2000)
    assert len(rung) == 2


def test_background_work_is_done_in_pieces_and_its_result_is_written() -> None:
    """CRT-24."""
    rig = make_rig()
    background = rig.machine.context.background
    steps: list[str] = []

    def work(name: str) -> Any:
        for number in range(3):
            steps.append(f"{name}{number}")
            yield
        return len(steps)

    def completed(result: Any) -> Outcome[None]:
        return Outcome([record("steps", result)])

    background.start("x", work("a"), completed)
    background.start("x", work("ignored"), completed)
    assert background.is_running("x")
    rig.commit()
    assert steps == ["a0", "a1", "a2"]
    assert rig.machine.numbers["steps"] == 3
    background.start("x", work("b"), completed)
    rig.shard.close()
    rig.flush()
    assert len(steps) == 3


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_errors_of_the_log_in_the_words_of_a_coordinator(
    code: ErrorCode, expected: ErrorCode
) -> None:
    """CRT-25, REP-27."""
    rig = make_rig()
    rig.fail_next(code)
    waiting = rig.write(lambda machine: machine.put(("a", 1)))
    rig.flush()
    assert waiting.error == expected


def test_what_nobody_expected_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    """CRT-25."""
    rig = make_rig()

    def operation(machine: NumberMachine) -> Outcome[str]:
        raise ZeroDivisionError("secret")

    waiting = rig.write(operation)
    assert waiting.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "secret" in caplog.text
    assert "secret" not in waiting.replies[0].message


def make_runtime() -> tuple[CoordinatorRuntime[NumberMachine], list[Shard[NumberMachine]]]:
    clock = HandClock()
    world = ShardWorld(clock, Timer("a", clock), Timer("b", clock), ShardSettings(), GROUP_RECORDS)
    loading: list[Shard[NumberMachine]] = []
    return CoordinatorRuntime("topic", world, NumberMachine, load=loading.append), loading


def test_leadership_by_epoch() -> None:
    """CRT-18: what is known, or older, is ignored, be it gained or lost."""
    runtime, loading = make_runtime()
    log = MemoryShardLog()
    runtime.elected(3, 5, log)
    runtime.elected(3, 5, log)
    runtime.elected(3, 4, log)
    assert len(loading) == 1
    runtime.resigned(3, 4)
    assert [shard.leader_epoch for shard in runtime.shards()] == [5]
    runtime.elected(3, 6, log)
    assert loading[0].state is ShardState.CLOSED
    assert len(loading) == 2
    runtime.resigned(3, 6)
    runtime.resigned(3, None)
    assert not list(runtime.shards())
    assert loading[1].state is ShardState.CLOSED


def test_what_is_led_elsewhere_is_refused() -> None:
    """CRT-17, CRT-26."""
    runtime, _ = make_runtime()
    waiting, marker = Waiting(), Waiting()
    runtime.write(1, NumberMachine.look, waiting)
    assert waiting.error == ErrorCode.NOT_COORDINATOR
    with pytest.raises(CoordinatorError):
        runtime.read(1, NumberMachine.committed)
    runtime.complete_transaction(1, None, marker, Producer(1, 1), 2)  # type: ignore[arg-type]
    assert marker.error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_shards_of_two_partitions_do_not_wait_for_each_other() -> None:
    """CRT-1."""
    runtime, loading = make_runtime()
    for partition in (0, 1):
        runtime.elected(partition, 0, MemoryShardLog())
        loading[-1].activate()
    waiting = Waiting()

    def operation(machine: NumberMachine) -> Outcome[str]:
        runtime.write(1, NumberMachine.look, waiting)
        assert waiting.is_answered
        return Outcome(answer="")

    runtime.write(0, operation, Waiting())
    assert waiting.answer == {}


def test_an_active_shard_hears_of_metadata() -> None:
    runtime, loading = make_runtime()
    runtime.elected(0, 0, MemoryShardLog())
    changes = ImageChanges(EMPTY_IMAGE, EMPTY_IMAGE)
    runtime.publish(changes, EMPTY_IMAGE)
    loading[0].activate()
    runtime.publish(changes, EMPTY_IMAGE)
    assert loading[0].machine.events == ["loaded", "metadata"]
