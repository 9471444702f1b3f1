"""Histories are read as they were written, and nothing that can't happen gets into one."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgpack
import pytest

from kraftpy.verify.history import (
    Event,
    History,
    HistoryError,
    Invocation,
    Recorder,
    read_history,
    write_history,
)

OPERATIONS: list[tuple[str, Any, Any]] = [
    ("assign", [1, 2], [1, 2]),
    ("subscribe", [1], [1]),
    ("poll", [["poll"]], [["poll", {5: [[270, 138], [271, 139, {"epoch": 3}]]}]]),
    ("send", [["send", 5, 140]], [["send", 5, [None, 140]]]),
    ("txn", [["send", 5, 140], ["poll"]], [["send", 5, [272, 140]], ["poll", {}]]),
    ("commit", {4: [10, "c1"]}, {4: [10, "c1"]}),
    ("committed", [4, 5], {4: [10, "c1"], 5: None}),
    ("end_offsets", [4], {4: [0, 3, 7]}),
    ("join_view", {"group": "g", "member": "m"}, {"group": "g", "assignment": [1]}),
    ("md_cas", {"topic": "t", "expected": 1, "value": 2}, {"topic": "t", "swapped": True}),
    ("debug", [1], {1: {"leader": 2, "isr": [1, 2]}}),
]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(count(1_000, 7).__next__)


def everything(recorder: Recorder) -> None:
    """Every kind of operation with every kind of completion."""
    processes: Iterator[int] = count()
    for f, asked, answered in OPERATIONS:
        process = next(processes)
        recorder.invoke(process, f, asked, {"node": "n1"}).ok(
            answered, "remark", [{"kind": "revoked", "keys": [4, 55]}], {"lepoch": 7}
        )
        recorder.invoke(process, f, asked).fail("REFUSED", answered)
        recorder.invoke(process, f, asked).info("TIMEOUT", answered)
    recorder.invoke(next(processes), "crash", None).info("crash")
    recorder.nemesis({"name": "partition", "phase": "start", "targets": [1, 2]})
    recorder.invoke(next(processes), "send", [["send", 1, 1]])
    recorder.nemesis({"name": "partition", "phase": "end", "effects": ["leader changed"]})


def stored(history: History) -> bytes:
    stream = io.BytesIO()
    write_history(stream, history)
    return stream.getvalue()


def test_what_is_written_is_read(recorder: Recorder) -> None:
    """JEP-1: every kind of operation comes back as it was, and is written the same again."""
    everything(recorder)
    history = recorder.history({"seed": 7, "workload": "W1"})
    content = stored(history)
    again = read_history(io.BytesIO(content))
    assert again.events == recorder.events
    assert again.run == {"seed": 7, "workload": "W1"}
    assert stored(again) == content
    head = next(msgpack.Unpacker(io.BytesIO(content), strict_map_key=False))
    assert head == {"format": "kraftpy-history", "version": 1, "run": history.run}


def test_operations_are_paired(recorder: Recorder) -> None:
    first = recorder.invoke(0, "send", [["send", 1, 1]], {"node": 1})
    second = recorder.invoke(1, "poll", [["poll"]])
    second.ok([["poll", {1: [[0, 1]]}]], rebalance=[{"kind": "lost", "keys": [3]}])
    first.ok([["send", 1, [0, 1]]], meta={"lepoch": 2})
    recorder.invoke(1, "send", [["send", 1, 2]])
    one, two, three = recorder.history({}).operations
    assert (one.f, one.type, one.index, one.end_index) == ("send", "ok", 0, 3)
    assert one.meta == {"node": 1, "lepoch": 2}
    assert one.value == [["send", 1, [0, 1]]]
    assert (two.type, two.end_ns, two.rebalanced_keys) == ("ok", 1_014, frozenset({3}))
    # One that never completed may still happen.
    assert (three.type, three.end_ns, three.value) == ("info", None, [["send", 1, 2]])


def test_partial_results_of_the_unknown_and_the_failed_are_kept(recorder: Recorder) -> None:
    """JEP-3: what was learned before a crash is in the operation's value."""
    for process, end in ((0, Invocation.fail), (1, Invocation.info)):
        invocation = recorder.invoke(process, "txn", [["send", 1, 1], ["send", 2, 1]])
        end(invocation, "DISCONNECTED", [["send", 1, [17, 1]], ["send", 2, 1]])
    for operation in recorder.history({}).operations:
        assert operation.value[0] == ["send", 1, [17, 1]]


def test_values_are_copied(recorder: Recorder) -> None:
    """A client fills its value in place while the operation runs."""
    value: list[Any] = [["send", 1, 1]]
    recorder.invoke(0, "send", value)
    value[0][2] = [3, 1]
    assert recorder.events[0].value == [["send", 1, 1]]


def begin_twice(recorder: Recorder) -> None:
    recorder.invoke(0, "send", [])
    recorder.invoke(0, "send", [])


def complete_twice(recorder: Recorder) -> None:
    invocation = recorder.invoke(0, "send", [])
    invocation.ok([])
    invocation.ok([])


def complete_after_info(recorder: Recorder) -> None:
    invocation = recorder.invoke(0, "send", [])
    invocation.info("TIMEOUT")
    invocation.ok([])


def go_on_after_info(recorder: Recorder) -> None:
    """JEP-2: the operation may still take effect, so the process is over."""
    recorder.invoke(0, "send", []).info("TIMEOUT")
    recorder.invoke(0, "send", [])


def end_another(recorder: Recorder) -> None:
    first = recorder.invoke(0, "send", [])
    first.ok([])
    recorder.invoke(0, "poll", [])
    first.ok([])


def crash_well(recorder: Recorder) -> None:
    recorder.invoke(0, "crash", None).ok(None)


def record_what_no_file_holds(recorder: Recorder) -> None:
    recorder.invoke(0, "send", object())


def record_a_number_too_large(recorder: Recorder) -> None:
    recorder.invoke(0, "send", 2**64)


def have_a_nemesis_without_phase(recorder: Recorder) -> None:
    recorder.nemesis({"name": "kill"})


def be_nobody(recorder: Recorder) -> None:
    recorder.invoke("somebody", "send", [])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (begin_twice, "still in 'send'"),
        (complete_twice, "has begun nothing"),
        (complete_after_info, "has begun nothing"),
        (go_on_after_info, "is retired since event 1"),
        (end_another, "ends what began as 'poll'"),
        (crash_well, "always info"),
        (record_what_no_file_holds, "can't hold the value of 'send'"),
        (record_a_number_too_large, "can't hold the value of 'send'"),
        (have_a_nemesis_without_phase, "phase start or end"),
        (be_nobody, "is no process"),
    ],
)
def test_illegal_events_are_refused(
    recorder: Recorder, act: Callable[[Recorder], None], complaint: str
) -> None:
    """JEP-1: and leave what was recorded as it is."""
    with pytest.raises(HistoryError, match=complaint):
        act(recorder)
    before = list(recorder.events)
    recorder.invoke(99, "poll", [["poll"]]).ok([["poll", {}]])
    assert recorder.events[: len(before)] == before
    assert len(recorder.history({}).events) == len(before) + 2


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([Event(1, 0, 0, "invoke", "send")], "event 1 where 0 should be"),
        (
            [Event(0, 5, 0, "invoke", "send"), Event(1, 4, 0, "ok", "send")],
            "before its predecessor",
        ),
        ([Event(0, 0, 0, "done", "send")], "no type 'done'"),  # type: ignore[arg-type]
        ([Event(0, 0, 0, "ok", "send")], "has begun nothing"),
    ],
)
def test_a_file_is_validated_like_a_recording(events: list[Event], complaint: str) -> None:
    with pytest.raises(HistoryError, match=complaint):
        History(events, {})


def test_files_that_are_no_histories(recorder: Recorder) -> None:
    everything(recorder)
    content = stored(recorder.history({}))
    for damaged, complaint in (
        (b"", "not a history"),
        (msgpack.packb({"format": "other"}), "not a history"),
        (msgpack.packb({"format": "kraftpy-history", "version": 2, "run": {}}), "version 2"),
        (content[:-3], "ends in the middle of event"),
        (content + msgpack.packb({"i": 1}), "damaged"),
        (content + msgpack.packb(3), "damaged"),
        (content + b"\xc1", "damaged"),
    ):
        with pytest.raises(HistoryError, match=complaint):
            read_history(io.BytesIO(damaged))
