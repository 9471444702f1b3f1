"""The producer snapshot file, byte by byte."""

from __future__ import annotations

import struct

import pytest
import trio
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.log.errors import CorruptSnapshotError
from kraftpy.log.pacing import Pace
from kraftpy.log.producer_entries import (
    NO_OFFSET,
    BatchMetadata,
    ProducerEntry,
    decode_snapshot,
    encode_snapshot,
)
from kraftpy.log.producers import ProducerState
from kraftpy.log.rebuilding import rebuild_producers
from kraftpy.log.segments import Segments
from kraftpy.log.snapshots import ProducerSnapshots
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk

INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)


@st.composite
def entries(draw: st.DrawFn) -> ProducerEntry:
    """As a snapshot keeps them: with one batch at most, whose time is the entry's."""
    timestamp_ms = draw(st.integers(-1, 2**63 - 1))
    batches: tuple[BatchMetadata, ...] = ()
    if draw(st.booleans()):
        batch = BatchMetadata(draw(st.integers(-1, 2**31 - 1)), draw(INT64), draw(INT32), 0)
        batches = (batch._replace(timestamp_ms=timestamp_ms),)
    return ProducerEntry(
        draw(INT64),
        draw(st.integers(0, 2**15 - 1)),
        draw(st.integers(-1, 2**31 - 1)),
        timestamp_ms,
        draw(st.integers(-1, 2**63 - 1)),
        batches,
    )


@given(st.lists(entries()))
def test_snapshots_round_trip(producers: list[ProducerEntry]) -> None:
    assert list(decode_snapshot(encode_snapshot(producers), "file")) == producers


def test_the_bytes_are_kafkas() -> None:
    batches = tuple(BatchMetadata(sequence, 100 + sequence, 0, 0) for sequence in range(4))
    data = encode_snapshot(
        [
            ProducerEntry(1, 2, 3, 4, 5, (*batches, BatchMetadata(6, 7, 2, 4))),
            ProducerEntry(9, 0, -1, 11),
        ]
    )
    checked = bytes.fromhex(
        "00000002"
        "0000000000000001 0002 00000006 0000000000000007 00000002 0000000000000004 00000003"
        "0000000000000005"
        "0000000000000009 0000 ffffffff ffffffffffffffff 00000000 000000000000000b ffffffff"
        "ffffffffffffffff"
    )
    assert data == struct.pack(">hI", 1, crc32c(checked)) + checked


def test_every_flipped_bit_is_noticed() -> None:
    data = bytearray(encode_snapshot([ProducerEntry(1, 2, 3, 4, 5), ProducerEntry(2, 2)]))
    for position in range(len(data) * 8):
        data[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(data), "file")
        data[position // 8] ^= 1 << position % 8
    assert len(list(decode_snapshot(bytes(data), "file"))) == 2


def test_every_torn_snapshot_is_noticed() -> None:
    data = encode_snapshot([ProducerEntry(1, 2, 3, 4, 5), ProducerEntry(2, 2)])
    for length in range(len(data)):
        with pytest.raises(CorruptSnapshotError, match=r"^file: "):
            decode_snapshot(data[:length], "file")
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(data[:length].ljust(len(data), b"\0"), "file")


def test_a_count_that_is_not_there_is_noticed() -> None:
    """Although the checksum fits."""
    for count in (0, 2, -1):
        checked = struct.pack(">i", count) + encode_snapshot([ProducerEntry(1)])[10:]
        data = struct.pack(">hI", 1, crc32c(checked)) + checked
        with pytest.raises(CorruptSnapshotError, match="do not hold"):
            decode_snapshot(data, "file")


def test_another_version_is_refused() -> None:
    data = b"\0\2" + encode_snapshot([])[2:]
    with pytest.raises(CorruptSnapshotError, match="version 2 is not 1"):
        decode_snapshot(data, "file")


async def test_very_many_producers_are_loaded_in_slices() -> None:
    """And those with a transaction are in the order of the log again."""
    producers = [
        ProducerEntry(number, 0, -1, 1000, 5000 - number if number % 100 == 0 else NO_OFFSET)
        for number in range(1, 5000)
    ]
    snapshots = ProducerSnapshots(disk := MemoryDisk(), "/d")
    await disk.make_directory("/d")
    snapshots.write(5000, encode_snapshot(producers))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    class EveryTime(Pace):
        @property
        def is_over(self) -> bool:
            return True

    state = ProducerState(expiration_ms=1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await rebuild_producers(
            state,
            snapshots,
            Segments(),
            clock=ClockAt(1500),
            pace=EveryTime(MemoryClock()),
            log_start_offset=0,
            end_offset=5000,
        )
        nursery.cancel_scope.cancel()
    assert turns > 15
    assert list(state.producers.values()) == producers
    assert state.first_undecided_offset == 100
    assert (state.map_end_offset, state.snapshot_offset) == (5000, 5000)


class ClockAt(MemoryClock):
    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._now_ms = now_ms

    def wall_ms(self) -> int:
        return self._now_ms
