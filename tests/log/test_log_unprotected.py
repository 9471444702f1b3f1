"""A flipped bit in one of the 21 bytes of a batch's header that no CRC covers: who notices it.

Every bit of the first, a middle and the last batch of a segment, in a closed segment and in the
last one: offsets, leader epoch, length, magic, and the CRC itself. docs/format.md says the same in
words, and what nobody can notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from log_rig import NOW_MS, TINY, Rig, batch, data_of, values_in

from kraftpy.log.appending import judge_as_follower
from kraftpy.log.checkpoints import LEADER_EPOCH_CHECKPOINT, format_epochs
from kraftpy.log.errors import OffsetsOutOfOrderError, StorageError, UnexpectedAppendOffsetError
from kraftpy.log.moving import copy_step, has_caught_up
from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.records.batch import MAX_INT32, RecordBatch
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.walker import walk_batches
from kraftpy.world.memory_disk import MemoryDisk

SEGMENTS, BATCHES, RECORDS = 3, 5, 3
END = SEGMENTS * BATCHES * RECORDS
EPOCH = 6
UNPROTECTED_BITS = range(21 * 8)
BASE_OFFSET, LEADER_EPOCH = range(8 * 8), range(12 * 8, 16 * 8)
ROOMY = replace(TINY, segment_bytes=1 << 20, segment_index_bytes=1 << 16)


@dataclass(frozen=True)
class Place:
    """A batch, by its segment and its number in there."""

    segment: int
    number: int

    @property
    def is_last_of_log(self) -> bool:
        return (self.segment, self.number) == (SEGMENTS - 1, BATCHES - 1)

    @property
    def base_offset(self) -> int:
        return (self.segment * BATCHES + self.number) * RECORDS

    @property
    def segment_base(self) -> int:
        return self.segment * BATCHES * RECORDS

    @property
    def file(self) -> str:
        return f"{self.segment_base:020d}.log"

    def lowers_offset(self, bit: int) -> bool:
        return bit in BASE_OFFSET and flipped_offset(self.base_offset, bit) < self.base_offset


PLACES = [
    pytest.param(Place(segment, number), id=f"segment {segment} batch {number}")
    for segment in (1, SEGMENTS - 1)
    for number in (0, 2, BATCHES - 1)
]


def flip(data: bytearray, position: int, bit: int) -> None:
    data[position + bit // 8] ^= 0x80 >> bit % 8


def flipped_offset(offset: int, bit: int) -> int:
    if bit not in BASE_OFFSET:
        return offset
    data = bytearray(offset.to_bytes(8))
    flip(data, 0, bit)
    return int.from_bytes(data, signed=True)


def expected(end: int = END) -> dict[int, bytes]:
    return {offset: b"%02d" % offset for offset in range(end)}


def fill(log: PartitionLog, epoch: int = EPOCH) -> None:
    for _ in range(BATCHES):
        offset = log.log_end_offset
        values = [b"%02d" % (offset + number) for number in range(RECORDS)]
        log.append_as_leader(batch(*values, timestamp_ms=NOW_MS + offset), epoch)


@pytest.fixture
def index_interval_bytes() -> int:
    """An index entry for each batch but the first of a segment."""
    return TINY.index_interval_bytes


@pytest.fixture
async def files(index_interval_bytes: int) -> dict[str, bytes]:
    """Of a log of three segments, all of one epoch, closed in order."""
    config = replace(ROOMY, index_interval_bytes=index_interval_bytes)
    rig = Rig(MemoryDisk(), "/data", config)
    log = await rig.load()
    for segment in range(SEGMENTS):
        if segment:
            log.roll()
        fill(log)
    await log.close()
    assert log.log_end_offset == END
    return {name: rig.get(name) for name in await rig.names()}


async def rig_of(files: dict[str, bytes]) -> Rig:
    rig = Rig(MemoryDisk(), "/data", ROOMY)
    for name, content in files.items():
        await rig.put(name, content)
    return rig


def flips(files: dict[str, bytes], place: Place) -> Iterator[tuple[int, dict[str, bytes]]]:
    """The files with one bit flipped each time."""
    size = len(files[place.file]) // BATCHES
    for bit in UNPROTECTED_BITS:
        data = bytearray(files[place.file])
        flip(data, place.number * size, bit)
        yield bit, files | {place.file: bytes(data)}


def is_silent_in_recovery(place: Place, bit: int) -> bool:
    """Nothing behind the last batch of a log contradicts it.

    Its offset may be too high, as long as a segment has room for it, and its epoch may be any.
    """
    if not place.is_last_of_log or place.lowers_offset(bit):
        return False
    reach = flipped_offset(place.base_offset, bit) + RECORDS - 1 - place.segment_base
    return bit in LEADER_EPOCH or (bit in BASE_OFFSET and reach <= MAX_INT32)


@pytest.mark.parametrize("place", PLACES)
async def test_recovery_ends_the_log_before_the_damage(
    files: dict[str, bytes], place: Place
) -> None:
    """LOG-33, LOG-62: what is before it stays, all of it; nothing is served in a wrong place."""
    for bit, damaged in flips(files, place):
        log = await (await rig_of(damaged)).load()
        if is_silent_in_recovery(place, bit):
            assert log.log_end_offset >= END, bit
            # A follower fetches it again.
            assert log.unproven_from == (None if bit in LEADER_EPOCH else place.base_offset), bit
            continue
        assert log.unproven_from is None, bit
        assert log.log_end_offset == place.base_offset, bit
        assert values_in(log) == expected(place.base_offset), bit
        assert log.epochs.entries == ((EPOCH, 0),), bit


async def test_a_gap_before_the_last_batch_is_no_proof(files: dict[str, bytes]) -> None:
    """It stays until somebody else has it; whatever changes the log's end settles that."""
    place = Place(SEGMENTS - 1, BATCHES - 1)
    damaged = dict(flips(files, place))[BASE_OFFSET[-10]]
    rig = await rig_of(damaged)
    log = await rig.load()
    assert (log.unproven_from, len(values_in(log))) == (place.base_offset, END)
    await log.truncate_to(place.base_offset)
    assert (log.unproven_from, log.log_end_offset) == (None, place.base_offset)
    assert values_in(log) == expected(place.base_offset)
    # Nobody can cut a log before its start.
    log = await (await rig_of(damaged)).load(log_start_offset=place.base_offset + 1)
    assert log.unproven_from is None
    log = await (await rig_of(damaged)).load()
    fill(log)
    assert log.unproven_from is None


async def test_what_was_fetched_again_is_proven() -> None:
    """The leader has that gap, too: then the log ends where it did, and is cut no more."""
    rig = Rig(MemoryDisk(), "/data", replace(ROOMY, is_compacted=True))
    first, last = batch(b"x", base_offset=0), batch(b"y", base_offset=9)
    await rig.put(f"{0:020d}.log", first + last)
    log = await rig.load()
    assert (log.unproven_from, log.log_end_offset) == (1, 10)
    await log.truncate_to(1)
    log.append_as_follower(last, EPOCH)
    assert (log.unproven_from, log.log_end_offset) == (None, 10)


async def test_what_a_leader_has_is_proven() -> None:
    """Others have it from there, and it is committed: not to be cut off when another one leads."""
    rig = Rig(MemoryDisk(), "/data", replace(ROOMY, is_compacted=True))
    data = batch(b"x", base_offset=0) + batch(b"y", base_offset=9)
    await rig.put(f"{0:020d}.log", data)
    log = await rig.load()
    assert log.unproven_from == 1
    log.begin_epoch(EPOCH + 1)
    assert log.unproven_from is None


async def test_no_last_batch_has_offsets_that_its_segment_has_no_room_for() -> None:
    """In a log with other gaps too, where a later segment could begin anywhere."""
    rig = Rig(MemoryDisk(), "/data", replace(ROOMY, is_compacted=True))
    data = [batch(b"x", base_offset=offset) for offset in (0, 4, 2**31)]
    await rig.put(f"{0:020d}.log", b"".join(data))
    log = await rig.load()
    assert (log.log_end_offset, list(values_in(log))) == (5, [0, 4])


async def test_a_copy_begins_with_what_is_in_its_place(files: dict[str, bytes]) -> None:
    """A log on its way to another directory, whose last batch pretends that it has arrived."""
    place = Place(SEGMENTS - 1, BATCHES - 1)
    current = await (await rig_of(files)).load()
    future = await (await rig_of(dict(flips(files, place))[BASE_OFFSET[-1]])).load()
    assert future.log_end_offset > END
    assert not has_caught_up(current, future)
    while await copy_step(current, future):
        pass
    assert has_caught_up(current, future)
    assert values_in(future) == expected()


@pytest.mark.parametrize("place", PLACES)
async def test_what_is_durable_is_not_given_up_for_an_epoch(
    files: dict[str, bytes], place: Place
) -> None:
    """Below the recovery point its records are worth more; an offset that lies ends the segment."""
    for bit, damaged in flips(files, place):
        if bit not in LEADER_EPOCH:
            continue
        log = await (await rig_of(damaged)).load(recovery_point=END)
        assert values_in(log) == expected(), bit


@pytest.mark.parametrize("index_interval_bytes", [1, 150, 4096])
@pytest.mark.parametrize("place", PLACES)
async def test_a_reader_is_given_nothing_in_a_wrong_place(
    files: dict[str, bytes], place: Place
) -> None:
    """A clean start reads no batch. A read refuses, or what it gives has a wrong CRC."""
    for bit, damaged in flips(files, place):
        rig = await rig_of(damaged)
        log = await rig.load(is_clean=True, recovery_point=END)
        for offset in range(place.base_offset, place.base_offset + RECORDS):
            assert refuses(log, offset) == (bit not in LEADER_EPOCH), (bit, offset)


def refuses(log: PartitionLog, offset: int) -> bool:
    """Whether a reader of `offset` notices damage."""
    try:
        data = data_of(log.read(offset, 1 << 20, Isolation.LOG_END))
        first = next(walk_batches(data))
    except (CorruptRecord, StorageError, StopIteration):
        return True
    return not first.is_valid


async def test_an_index_is_not_made_anew_from_offsets_that_lie(files: dict[str, bytes]) -> None:
    """LOG-58: its entries are the only way to what lies behind the damage."""
    place = Place(1, 2)
    damaged = dict(flips(files, place))[BASE_OFFSET[-4]]
    rig = await rig_of(damaged)
    log = await rig.load(is_clean=True, recovery_point=END)
    # The last offset of the batch is what its entry says.
    assert refuses(log, place.base_offset + RECORDS - 1)
    segment = log.segments.get(place.segment_base)
    assert segment is not None
    assert segment.has_damaged_index
    index_file = place.file.replace(".log", ".index")
    before = rig.get(index_file)
    await log.rebuild_damaged_indexes()
    assert segment.has_damaged_data
    assert not segment.has_damaged_index
    assert rig.get(index_file) == before
    # The last offset of the next batch has an entry of its own.
    touched = range(place.base_offset, place.base_offset + 2 * RECORDS - 1)
    assert [offset for offset in range(END) if refuses(log, offset)] == list(touched)


async def test_a_reader_is_not_disturbed_by_what_is_missing() -> None:
    """LOG-115, LOG-88: offsets that compaction has taken, at every place, are no damage."""
    rig = Rig(MemoryDisk(), "/data", ROOMY)
    log = await rig.load()
    starts = [0, 4, 5, 9, 17, 18, 40, 2**20]
    for start in starts:
        log.append_as_follower(batch(b"x", base_offset=start, leader_epoch=0), 0)
        if start in (9, 18):
            log.roll()
    for loaded in (log, await rig.load(), await rig.load(recovery_point=log.log_end_offset)):
        assert list(values_in(loaded)) == starts
        for offset in range(50):
            first = next(walk_batches(data_of(loaded.read(offset, 1 << 20, Isolation.LOG_END))))
            assert first.last_offset == min(start for start in starts if start >= offset)
    assert rig.owner.failures == []


# Epochs: what is a proof, and what is none.


async def load_epochs(epochs: list[int], checkpoint: list[tuple[int, int]]) -> PartitionLog:
    """After a crash: one batch of one record for each epoch, in one segment."""
    rig = Rig(MemoryDisk(), "/data", ROOMY)
    data = [batch(b"v", base_offset=n, leader_epoch=epoch) for n, epoch in enumerate(epochs)]
    await rig.put(f"{0:020d}.log", b"".join(data))
    await rig.put(LEADER_EPOCH_CHECKPOINT, format_epochs(checkpoint).encode())
    return await rig.load()


@pytest.mark.parametrize(
    ("epochs", "checkpoint", "end"),
    [
        # Between two others it must be what they are, or lie between them, as the checkpoint says.
        ([1, 1, 9, 1, 1], [(1, 0)], 2),
        ([1, 1, 0, 1, 1], [(1, 0)], 2),
        ([1, 1, 9, 3, 3], [(1, 0), (3, 2)], 2),
        ([1, 1, 0, 3, 3], [(1, 0), (3, 2)], 2),
        ([9, 1, 1], [(1, 0)], 0),
        # It does.
        ([1, 1, 2, 3, 3], [(1, 0), (3, 2)], 5),
        # The checkpoint knows nothing of these offsets yet, or says the same.
        ([1, 1, 9, 1, 1], [], 5),
        ([1, 1, 9, 1, 1], [(1, 0), (9, 2)], 5),
        ([1, 1, 2, 4, 4, 7], [(1, 0)], 6),
        # Logs of another cluster, in which epochs begin anew: not saved yet, and saved.
        ([0, 0, 1, 0, 0, 0], [(0, 0), (1, 2)], 6),
        ([0, 0, 1, 0, 0, 0], [(0, 3)], 6),
        ([57, 57, 0, 0], [(57, 0)], 4),
        ([57, 0, 0], [(57, 0)], 3),
        ([57, 0, 0], [(0, 1)], 3),
        # Batches without an epoch are of no time.
        ([1, 1, -1, 1, 1], [(1, 0)], 5),
        ([-1, 1, -1, -1, 1], [(1, 1)], 5),
        # Nothing follows.
        ([1, 1, 1, 0], [(1, 0)], 4),
        ([1, 1, 1, 9], [(1, 0)], 4),
    ],
)
async def test_an_epoch_ends_the_log_only_if_three_witnesses_deny_it(
    epochs: list[int], checkpoint: list[tuple[int, int]], end: int
) -> None:
    """LOG-35: those before and behind it, and the checkpoint."""
    log = await load_epochs(epochs, checkpoint)
    assert log.log_end_offset == end
    assert len(values_in(log)) == end


@pytest.mark.parametrize("place", [Place(0, BATCHES - 1), Place(1, 0), Place(1, BATCHES - 1)])
async def test_epochs_are_compared_across_segments(place: Place) -> None:
    """Where a new epoch began with a new segment; another that lies between both can't be told."""
    rig = Rig(MemoryDisk(), "/data", ROOMY)
    log = await rig.load()
    for segment in range(SEGMENTS):
        if segment:
            log.roll()
        fill(log, 4 * segment)
    await log.close()
    around = range(4 * (place.segment - 1), 4 * place.segment + 1)
    if place.number:
        around = range(4 * place.segment, 4 * (place.segment + 1) + 1)
    for bit, damaged in flips({name: rig.get(name) for name in await rig.names()}, place):
        if bit in LEADER_EPOCH:
            recovered = await (await rig_of(damaged)).load()
            epoch = 4 * place.segment ^ 1 << LEADER_EPOCH[-1] - bit
            end = END if epoch in around else place.base_offset
            assert recovered.log_end_offset == end, (bit, epoch)


# Followers.


def replicated(first_offset: int) -> bytearray:
    """Three batches as a leader sends them."""
    offsets = [first_offset + RECORDS * number for number in range(3)]
    values = [b"%d" % number for number in range(RECORDS)]
    return bytearray().join(batch(*values, base_offset=o, leader_epoch=EPOCH) for o in offsets)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("has_more", [False, True])
def test_a_follower_takes_nothing_in_a_wrong_place(number: int, has_more: bool) -> None:
    """LOG-80: unless it is the last of what came, and too high: the next one would tell.

    Epochs beyond the leader's are left out; lower ones are the leader's word.
    """
    first_offset = 12
    data = replicated(first_offset)
    size = len(data) // 3
    for bit in UNPROTECTED_BITS:
        damaged = bytearray(data)
        flip(damaged, number * size, bit)
        if has_more:
            damaged += batch(b"cut", base_offset=first_offset + 3 * RECORDS)[:20]
        base_offset = first_offset + number * RECORDS
        is_higher = flipped_offset(base_offset, bit) > base_offset
        is_silent = bit in LEADER_EPOCH or (is_higher and number == 2 and not has_more)
        try:
            taken = judge_as_follower(damaged, log_end_offset=first_offset, leader_epoch=EPOCH)
        except (CorruptRecord, OffsetsOutOfOrderError, UnexpectedAppendOffsetError):
            assert not is_silent, bit
        else:
            assert is_silent or len(taken.batches) == number, bit
            epochs = [each.leader_epoch for each in taken.batches if isinstance(each, RecordBatch)]
            assert max(epochs, default=0) <= EPOCH, bit
