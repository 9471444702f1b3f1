"""AnswerLine by itself, on a stream that takes a few bytes a call and always has room for more."""

from __future__ import annotations

import pytest
from test_net_outbox import SlowStream

from kraftpy.net.line import AnswerLine, HeldLines
from kraftpy.net.mute import MuteState
from kraftpy.world.real_clock import RealClock


class Owner:
    connection_id = "here:1-there:2-0"
    is_reader_waiting = False

    def __init__(self) -> None:
        self.wakes = 0
        self.closes = 0

    def on_activity(self, now: float) -> None:
        pass

    def wake(self) -> None:
        self.wakes += 1

    def close(self) -> None:
        self.closes += 1

    def close_in_order(self) -> None:
        self.closes += 1


class PatientClock(RealClock):
    """Its time stands still, so that no turn ends."""

    def monotonic(self) -> float:
        return 0.0


def line_on(stream: SlowStream) -> tuple[AnswerLine, Owner]:
    owner = Owner()
    return line_held_by(HeldLines(), stream, owner), owner


def line_held_by(held: HeldLines, stream: SlowStream, owner: Owner) -> AnswerLine:
    return AnswerLine(owner, stream, PatientClock(), lambda task: None, held)  # type: ignore[arg-type]


@pytest.mark.parametrize("bite", range(1, 20))
def test_what_on_sent_finishes_is_sent_once(bite: int) -> None:
    """A write that ends amid the second answer, while the first one's callback finishes a third:
    nothing is sent twice, wherever the write ends.
    """
    stream = SlowStream([bite])
    line, _ = line_on(stream)
    first, second, third = [line.open(1, arrived=0, served=0) for _ in range(3)]
    second.send((b"-second-",))
    first.send((b"first",), lambda: third.send((b"third",)))
    assert stream.data == b"first-second-third"
    assert line.outstanding_count == line.outstanding_bytes == line.pending_count == 0
    assert line.mute_state is MuteState.NOT_MUTED


def test_a_corked_line_sends_with_one_write() -> None:
    stream = SlowStream()
    line, _ = line_on(stream)
    line.cork()
    for _ in range(3):
        line.open(1, arrived=0, served=0).send((b"abc",))
    assert line.corked_bytes == 9
    assert stream.calls == []
    line.uncork()
    assert stream.calls == [("send", 9, False)]


@pytest.mark.parametrize("bite", range(1, 7))
def test_a_single_answer_leaves_whole_and_once(bite: int) -> None:
    stream = SlowStream([bite])
    line, owner = line_on(stream)
    left: list[bytes] = []
    line.open(1, arrived=0, served=0).send((b"answer",), lambda: left.append(stream.data))
    assert (stream.data, left, owner.wakes) == (b"answer", [b"answer"], 1)
    first, second = [line.open(1, arrived=0, served=0) for _ in range(2)]
    second.send((b" third",))
    first.send((b" second",))
    assert stream.data == b"answer second third"


def test_what_is_finished_while_lines_are_held_leaves_when_they_are_released() -> None:
    """In the order of finishing, each line with one write; what that finishes leaves at once."""
    held, stream, owner = HeldLines(), SlowStream(), Owner()
    one, other, third = [line_held_by(held, stream, owner) for _ in range(3)]
    answers = [line.open(1, arrived=0, served=0) for line in (one, other, one, third)]
    held.is_holding = True
    answers[1].send((b"other ",), lambda: answers[3].send((b"third ",)))
    answers[0].send((b"one ",))
    answers[2].send((b"one more",))
    assert stream.calls == []
    held.release()
    assert stream.data == b"other third one one more"
    assert len(stream.calls) == 3
    answers = [line.open(1, arrived=0, served=0) for line in (one, other)]
    answers[0].send((b"!",))
    assert stream.data.endswith(b"!")


def test_an_answer_that_leaves_wakes_the_reader() -> None:
    line, owner = line_on(SlowStream())
    line.open(1, arrived=0, served=0).send((b"abc",))
    assert (owner.wakes, owner.closes) == (1, 0)


def test_the_last_answer_of_a_line_that_ends_closes() -> None:
    line, owner = line_on(SlowStream())
    first, second = [line.open(1, arrived=0, served=0) for _ in range(2)]
    line.is_ending = True
    first.send((b"abc",))
    assert owner.closes == 0
    second.nothing()
    assert owner.closes == 1
