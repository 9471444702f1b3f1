"""FrameReader: every frame comes out whole, however its bytes came in, and nothing is held idle."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from netkit import framed

from kraftpy.net.framing import READ_AHEAD_BYTES, BufferPool, FrameReader, InvalidFrame
from kraftpy.world import InternalInvariant

MAXIMUM = 1_500_000


def reader(pool: BufferPool | None = None, maximum: int = MAXIMUM) -> FrameReader:
    return FrameReader(maximum, pool if pool is not None else BufferPool())


def feed(frames: FrameReader, data: bytes, *, at_most: int = 1 << 30) -> int:
    """Put in as much of `data` as there is room for in one receive; say how much."""
    if frames.large_frame_bytes:
        frames.begin_large()
    view = frames.receive_view()
    count = min(len(view), len(data), at_most)
    view[:count] = data[:count]
    frames.received(count)
    return count


def take_all(frames: FrameReader) -> list[bytes]:
    taken = []
    while (frame := frames.peek()) is not None:
        taken.append(bytes(frame))
        frames.pop()
    return taken


@settings(max_examples=60)
@given(
    payload_sizes=st.lists(
        st.one_of(
            st.integers(0, 200),
            st.integers(READ_AHEAD_BYTES - 8, READ_AHEAD_BYTES + 8),
            st.integers(0, MAXIMUM),
        ),
        max_size=5,
    ),
    pieces=st.lists(
        st.one_of(st.integers(1, 300), st.integers(1, 500_000)), min_size=1, max_size=20
    ),
    rests=st.lists(st.booleans(), min_size=1, max_size=20),
)
def test_frames_come_out_as_they_went_in(
    payload_sizes: list[int], pieces: list[int], rests: list[bool]
) -> None:
    """NET-28: whatever the sizes, the pieces of arrival, and the rests in between."""
    payloads = [bytes([index]) * size for index, size in enumerate(payload_sizes)]
    # A megabyte in tiny pieces only would take a minute.
    pieces = [*pieces, 100_000]
    data = b"".join(map(framed, payloads))
    frames = reader()
    taken: list[bytes] = []
    step = position = 0
    while position < len(data):
        if rests[step % len(rests)]:
            frames.rest()
        position += feed(frames, data[position:], at_most=pieces[step % len(pieces)])
        taken += take_all(frames)
        step += 1
    assert taken == payloads
    assert frames.buffered_bytes == 0


def test_a_frame_byte_by_byte() -> None:
    """NET-28: nothing before the last byte, then the whole frame; resting after each byte."""
    frames = reader()
    data = framed(b"abcdef") + framed(b"")
    for position, byte in enumerate(data):
        assert feed(frames, bytes([byte])) == 1
        expected = {9: [b"abcdef"], 13: [b""]}.get(position, [])
        assert take_all(frames) == expected
        frames.rest()


def test_many_frames_in_one_receive() -> None:
    """NET-28"""
    frames = reader()
    payloads = [b"%d" % index for index in range(1_000)]
    assert feed(frames, b"".join(map(framed, payloads))) == sum(map(len, payloads)) + 4_000
    assert take_all(frames) == payloads


@pytest.mark.parametrize("size", [-1, -(2**31), MAXIMUM + 1, 2**31 - 1])
def test_an_impossible_size_is_refused_before_anything_is_allocated(size: int) -> None:
    """NET-29: also one beyond the limit."""
    frames = reader()
    feed(frames, struct.pack(">i", size))
    held = frames.held_bytes
    with pytest.raises(InvalidFrame, match=str(size)):
        frames.peek()
    with pytest.raises(InvalidFrame):
        _ = frames.large_frame_bytes
    assert frames.held_bytes == held


def test_a_frame_of_the_greatest_size_is_taken() -> None:
    """NET-29: the limit itself is allowed."""
    frames = reader(maximum=10)
    feed(frames, framed(b"0123456789"))
    assert take_all(frames) == [b"0123456789"]


def test_a_large_frame_is_received_into_its_own_buffer_without_overshooting() -> None:
    frames = reader()
    size = 500_000
    begun = 20_000
    feed(frames, struct.pack(">i", size) + b"x" * begun)
    assert frames.peek() is None
    assert frames.large_frame_bytes == size
    frames.begin_large()
    assert frames.large_frame_bytes == 0
    assert frames.room_bytes == len(frames.receive_view()) == size - begun
    frames.receive_view()[:] = b"y" * (size - begun)
    frames.received(size - begun)
    frame = frames.peek()
    assert frame is not None
    assert bytes(frame) == b"x" * begun + b"y" * (size - begun)


def test_an_announced_size_costs_memory_only_as_bytes_arrive() -> None:
    """100 MB announced and nothing sent must not be 100 MB of memory, nor 1 MB.

    Nor may the buffer grow by more than a step at once: making room for 50 MB kept the loop for
    25 ms.
    """
    frames = reader(maximum=100_000_000)
    feed(frames, struct.pack(">i", 100_000_000) + bytes(4_000))
    assert frames.large_frame_bytes == 0
    frames.rest()
    assert frames.held_bytes <= 4_004
    arrived = feed(frames, bytes(16 * 1024 - 4_005))
    assert frames.large_frame_bytes == 0
    arrived += feed(frames, bytes(1))
    assert frames.large_frame_bytes == 100_000_000
    while arrived < 20_000_000:
        arrived += feed(frames, bytes(700_000))
        assert frames.held_bytes <= arrived + (1 << 20) + READ_AHEAD_BYTES


def test_a_grown_large_frame_is_intact() -> None:
    frames = reader()
    payload = bytes(range(256)) * 5_000
    data = framed(payload)
    position = 0
    while position < len(data):
        position += feed(frames, data[position:])
    assert take_all(frames) == [payload]


def test_frames_behind_a_large_one_wait_in_the_read_ahead_buffer() -> None:
    frames = reader()
    data = framed(b"L" * 100_000) + framed(b"small")
    position = 0
    while position < len(data):
        position += feed(frames, data[position:])
    frames.rest()
    assert take_all(frames) == [b"L" * 100_000, b"small"]


def test_the_buffer_is_bounded_when_nothing_is_taken() -> None:
    """NET-37: a muted connection receives ahead, up to one buffer and no further."""
    frames = reader()
    data = framed(b"z" * 96) * 10_000
    position = 0
    while frames.room_bytes:
        position += feed(frames, data[position:])
        assert frames.held_bytes <= READ_AHEAD_BYTES
    assert position == READ_AHEAD_BYTES
    assert len(frames.receive_view()) == 0


def test_a_resting_reader_holds_no_buffer() -> None:
    """2,000 idle connections share a few buffers; amid a small frame they keep the part only."""
    pool = BufferPool(keep=4)
    readers = [reader(pool) for _ in range(10)]
    for frames in readers:
        feed(frames, framed(b"whole") + framed(b"part of one")[:7])
        assert take_all(frames) == [b"whole"]
        frames.rest()
    assert [frames.held_bytes for frames in readers] == [7] * 10
    assert len(pool) == 1
    for frames in readers:
        feed(frames, framed(b"part of one")[7:])
        assert take_all(frames) == [b"part of one"]


def test_a_pool_keeps_only_so_many_buffers() -> None:
    pool = BufferPool(keep=2)
    borrowed = [pool.borrow() for _ in range(3)]
    for buffer in borrowed:
        pool.give_back(buffer)
    assert len(pool) == 2


def test_release_gives_the_buffer_back() -> None:
    """NET-50"""
    pool = BufferPool()
    frames = reader(pool)
    feed(frames, framed(b"a")[:3])
    frames.release()
    assert len(pool) == 1
    assert frames.held_bytes == 0


def test_misuse_is_an_invariant() -> None:
    frames = reader()
    with pytest.raises(InternalInvariant):
        frames.pop()
    with pytest.raises(InternalInvariant):
        frames.begin_large()
    frames.receive_view()
    with pytest.raises(InternalInvariant):
        frames.received(READ_AHEAD_BYTES + 1)
