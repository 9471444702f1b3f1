"""Outbox: all bytes in order whatever the stream takes, and each departure told at its time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.net.outbox import Departure, Outbox
from kraftpy.world import Buffer, FileSlice
from kraftpy.world.real_clock import RealClock
from kraftpy.world.real_disk import RealDisk

FOREVER = float("inf")


class SlowStream:
    """Takes as many bytes a call as `takes` says; keeps what it took and how."""

    def __init__(self, takes: Sequence[int] = (1 << 30,)) -> None:
        self.takes = list(takes)
        self.data = b""
        self.calls: list[tuple[str, int, bool]] = []

    def _take(self, kind: str, data: bytes, *, more: bool) -> int:
        count = min(self.takes[len(self.calls) % len(self.takes)], len(data))
        self.calls.append((kind, count, more))
        self.data += data[:count]
        return count

    def send(self, parts: Sequence[Buffer], *, more: bool = False) -> int:
        return self._take("send", b"".join(parts), more=more)

    def send_slice(self, part: FileSlice, skip: int, *, more: bool = False) -> int:
        data = part.file.pread(part.length - skip, part.position + skip)
        return self._take("slice", data, more=more)


class Note(Departure):
    def __init__(self, stream: SlowStream, notes: list[int]) -> None:
        self.stream = stream
        self.notes = notes

    def on_left(self) -> None:
        self.notes.append(len(self.stream.data))


def slice_of(folder: Path, data: bytes, length: int | None = None) -> FileSlice:
    path = folder / "segment"
    path.write_bytes(b"###" + data)
    return FileSlice(RealDisk().open(str(path)), 3, len(data) if length is None else length)


def flush(outbox: Outbox, stream: SlowStream) -> bool:
    return outbox.flush(stream, RealClock(), FOREVER)  # type: ignore[arg-type]


@given(
    answers=st.lists(st.lists(st.binary(max_size=20), max_size=4), max_size=6),
    takes=st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any),
)
def test_bytes_and_departures_in_order(answers: list[list[bytes]], takes: list[int]) -> None:
    """Each departure is told when its last byte is gone and not earlier; 0 means: come back."""
    stream = SlowStream(takes)
    outbox = Outbox()
    notes: list[int] = []
    ends: list[int] = []
    for parts in answers:
        outbox.add(parts, Note(stream, notes))
        ends.append(sum(map(len, parts)) + (ends[-1] if ends else 0))
    while not flush(outbox, stream):
        assert stream.calls[-1][1] == 0
    assert stream.data == b"".join(part for parts in answers for part in parts)
    positions = [0, *accumulate(count for _, count, _ in stream.calls)]
    assert notes == [min(each for each in positions if each >= end) for end in ends]
    assert not outbox


def test_buffers_of_many_answers_leave_in_one_call() -> None:
    stream = SlowStream()
    outbox = Outbox()
    notes: list[int] = []
    for _ in range(10):
        outbox.add((b"head", memoryview(b"body")), Note(stream, notes))
    assert flush(outbox, stream)
    assert stream.calls == [("send", 80, False)]
    assert notes == [80] * 10


def test_a_large_slice_goes_by_itself_and_is_announced(tmp_path: Path) -> None:
    stream = SlowStream([10, 0, 20_000, 0, 1 << 30])
    outbox = Outbox()
    body = bytes(range(256)) * 200
    notes: list[int] = []
    outbox.add((b"0123456789", slice_of(tmp_path, body), b"tail"), Note(stream, notes))
    assert not flush(outbox, stream)
    assert notes == []
    assert not flush(outbox, stream)
    assert flush(outbox, stream)
    assert stream.data == b"0123456789" + body + b"tail"
    assert stream.calls[0] == ("send", 10, True)
    assert [kind for kind, _, _ in stream.calls] == [
        "send",
        "slice",
        "slice",
        "slice",
        "slice",
        "send",
    ]
    assert notes == [len(stream.data)]


def test_a_small_slice_is_read_into_its_neighbours(tmp_path: Path) -> None:
    """One beyond is not: 16 KB is the border."""
    stream = SlowStream()
    outbox = Outbox()
    outbox.add((b"head", slice_of(tmp_path, b"s" * (16 * 1024 - 1)), b"tail"), Note(stream, []))
    assert flush(outbox, stream)
    assert [kind for kind, _, _ in stream.calls] == ["send"]
    outbox.add((slice_of(tmp_path, b"s" * (16 * 1024)),), Note(stream, []))
    assert flush(outbox, stream)
    assert [kind for kind, _, _ in stream.calls] == ["send", "slice"]


def test_a_small_slice_of_a_file_that_ended_is_an_error(tmp_path: Path) -> None:
    """The peer was promised these bytes; something else in their place would corrupt its log."""
    outbox = Outbox()
    with pytest.raises(OSError, match="ended before"):
        outbox.add((slice_of(tmp_path, b"short", length=6),), Note(SlowStream(), []))


def test_nothing_to_send_leaves_at_once_and_in_order() -> None:
    """NET-39"""
    stream = SlowStream([3, 0, 1 << 30])
    outbox = Outbox()
    notes: list[int] = []
    outbox.add((), Note(stream, notes))
    outbox.add((b"12345",), Note(stream, notes))
    outbox.add((), Note(stream, notes))
    assert not flush(outbox, stream)
    assert notes == [0]
    assert flush(outbox, stream)
    assert notes == [0, 5, 5]


def test_flush_stops_when_its_time_is_up(tmp_path: Path) -> None:
    """The stream would take more, but others want the loop."""
    stream = SlowStream([100])
    outbox = Outbox()
    outbox.add((slice_of(tmp_path, b"x" * 20_000),), Note(stream, []))
    assert not outbox.flush(stream, RealClock(), 0.0)  # type: ignore[arg-type]
    assert len(stream.calls) == 1


def test_clear_names_those_who_never_leave() -> None:
    stream = SlowStream([4, 0])
    outbox = Outbox()
    notes: list[int] = []
    first, second = Note(stream, notes), Note(stream, notes)
    outbox.add((b"abc",), first)
    outbox.add((b"def",), second)
    flush(outbox, stream)
    assert outbox.clear() == [second]
    assert not outbox
    assert notes == [4]
