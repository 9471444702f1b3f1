"""The producer snapshot file, byte by byte."""

from __future__ import annotations

import struct

import pytest
import trio
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from log_rig import Rig, batch

from kraftpy.log.errors import CorruptSnapshotError
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
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
    snapshots.take((5000, tuple(producers)))
    await snapshots.write(Pace(MemoryClock()))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

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


async def test_very_many_producers_are_written_in_slices() -> None:
    """The file appears whole, with what was taken."""
    producers = [ProducerEntry(number, 0, -1, 1000) for number in range(5000)]
    snapshots = ProducerSnapshots(disk := MemoryDisk(), "/d")
    await disk.make_directory("/d")
    snapshots.take((5000, tuple(producers)))
    turns = 0

    async def look() -> None:
        nonlocal turns
        while not await disk.list_directory("/d"):
            turns += 1
            await trio.lowlevel.checkpoint()
        file = disk.open(snapshots.path(5000))
        assert file.pread(file.size(), 0) == encode_snapshot(producers)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await snapshots.write(EveryTime(MemoryClock()))
    assert turns > 5
    assert not snapshots.has_unwritten


async def test_the_snapshot_of_a_roll_is_written_behind_it(rig: Rig) -> None:
    """The producers in it are those of the roll, whatever they have written since."""
    log = await rig.load()
    append_as_producer(log, 0, 1, 2)
    log.roll()
    append_as_producer(log, 3)
    assert await rig.names(".snapshot") == []
    await log.do_pending_work()
    assert await rig.names(".snapshot") == [f"{3:020d}.snapshot"]
    (entry,) = decode_snapshot(rig.get(f"{3:020d}.snapshot"), "file")
    assert (entry.producer_id, entry.last_sequence) == (7, 2)


@pytest.mark.parametrize("cut", [2, 3, 4])
async def test_a_log_is_truncated_before_its_snapshot_is_written(rig: Rig, cut: int) -> None:
    """Its producers are as the log that is left has them, and so is what is written then."""
    log = await rig.load()
    append_as_producer(log, 0, 1, 2)
    log.roll()
    append_as_producer(log, 3, 4)
    await log.truncate_to(cut)
    assert log.producers.producers[7].last_sequence == cut - 1
    append_as_producer(log, cut)
    await log.do_pending_work()
    assert await rig.names(".snapshot") == [f"{3:020d}.snapshot"] * (cut >= 3)
    log = await rig.reload(log)
    assert log.producers.producers[7].last_sequence == cut


def append_as_producer(log: PartitionLog, *sequences: int) -> None:
    for sequence in sequences:
        log.append_as_leader(batch(b"v", producer_id=7, producer_epoch=0, sequence=sequence), 0)


class EveryTime(Pace):
    """Lets others run whenever it is asked."""

    @property
    def is_over(self) -> bool:
        return True


class ClockAt(MemoryClock):
    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._now_ms = now_ms

    def wall_ms(self) -> int:
        return self._now_ms
