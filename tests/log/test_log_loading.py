"""Loading and recovery (LOG-32 to LOG-35, LOG-51 to LOG-64)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from log_place import Place, TalliedDisk
from log_rig import NOW_MS, TINY, Rig, batch, legacy, marker, values_in

from kraftpy.log.checkpoints import LEADER_EPOCH_CHECKPOINT, format_epochs
from kraftpy.log.errors import MalformedFileError, StorageError
from kraftpy.log.loading import load_log
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.segment import Segment
from kraftpy.records.validation import AppendOrigin

SEGMENT_0, SEGMENT_14, SEGMENT_28 = (f"{base:020d}" for base in (0, 14, 28))


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        offset = log.log_end_offset
        log.append_as_leader(batch(b"%02d" % offset, timestamp_ms=NOW_MS + offset), offset // 10)


def expected(count: int) -> dict[int, bytes]:
    return {offset: b"%02d" % offset for offset in range(count)}


async def built(rig: Rig) -> PartitionLog:
    """40 batches in segments 0, 14 and 28, closed."""
    log = await rig.load()
    fill(log, 40)
    assert [segment.base_offset for segment in log.segments] == [0, 14, 28]
    await log.close()
    return log


async def test_a_new_log(rig: Rig) -> None:
    """LOG-64, LOG-2."""
    log = await rig.load()
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    assert len(log.segments) == 1
    assert await rig.names() == [f"{SEGMENT_0}.index", f"{SEGMENT_0}.log", f"{SEGMENT_0}.timeindex"]


async def test_a_clean_start(rig: Rig) -> None:
    """LOG-61, LOG-51, LOG-52."""
    old = await built(rig)
    log = await rig.load(is_clean=True, recovery_point=40, log_start_offset=15)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (15, 40, 40)
    assert log.epochs.entries == ((1, 15), (2, 20), (3, 30))
    fill(log, 1)
    assert len(rig.get(f"{SEGMENT_28}.index")) == 1200
    assert len(rig.get(f"{SEGMENT_14}.index")) < 1200
    fill(log, 4)
    assert sorted(values_in(log)) == list(range(15, 45))
    assert old.log_end_offset == 40


async def test_a_clean_start_reads_no_index_and_no_data(place: Place) -> None:
    """LOG-61: epochs and producers are read; the checkpoint tells where the log ends."""
    rig = Rig.at(place)
    await built(rig)
    disk = TalliedDisk(place.disk)
    log = await Rig(disk, place.directory).load(is_clean=True, recovery_point=40)
    assert log.log_end_offset == 40
    assert [path for path in disk.tally.opens if "index" in path] == []
    assert len(disk.tally.reads) == 2
    small_files = ("leader-epoch-checkpoint", f"{40:020d}.snapshot")
    assert [length for _, length in disk.tally.reads] == [len(rig.get(n)) for n in small_files]
    await log.close()
    assert await rig.names("index") == [
        name
        for base in (SEGMENT_0, SEGMENT_14, SEGMENT_28)
        for name in (f"{base}.index", f"{base}.timeindex")
    ]


async def test_a_checkpoint_that_is_not_this_logs_gives_no_offset_twice(rig: Rig) -> None:
    """LOG-61: the files go further than it says. The next start recovers them."""
    await built(rig)
    log = await rig.load(is_clean=True, recovery_point=35)
    assert log.log_end_offset == 35
    with pytest.raises(StorageError, match="ends at 40, not at the checkpoint's 35"):
        fill(log, 1)
    assert len(rig.owner.failures) == 1
    log = await rig.load(recovery_point=35)
    fill(log, 1)
    assert sorted(values_in(log)) == list(range(41))


async def test_a_checkpoint_beyond_this_log_leaves_no_gap(rig: Rig) -> None:
    await built(rig)
    log = await rig.load(is_clean=True, recovery_point=45)
    with pytest.raises(StorageError, match="ends at 40, not at the checkpoint's 45"):
        fill(log, 1)
    assert len(rig.owner.failures) == 1


async def test_a_log_that_was_cut_off_in_a_gap_goes_on_where_it_was_cut_off(place: Place) -> None:
    """What compaction leaves has gaps, and a leader's epoch may end in one."""
    rig = Rig.at(place, replace(TINY, is_compacted=True))
    log = await rig.load()
    for offset in (0, 9):
        log.append_as_follower(batch(b"x", base_offset=offset), 1)
    await log.truncate_to(9)
    await log.close()
    log = await rig.load(is_clean=True, recovery_point=9)
    assert log.log_end_offset == 9
    log.append_as_follower(batch(b"y", base_offset=12), 1)
    assert (log.log_end_offset, rig.owner.failures) == (13, [])


@pytest.mark.parametrize("left", [1, 30, 70])
async def test_a_batch_that_was_cut_short_is_not_appended_to(rig: Rig, left: int) -> None:
    """After a clean stop, of the only batch in the last segment: what came behind could not be
    found again.
    """
    await built(rig)
    name = f"{SEGMENT_28}.log"
    await rig.put(name, rig.get(name)[:left])
    log = await rig.load(is_clean=True, recovery_point=28)
    with pytest.raises(StorageError, match="no batch at 0, though"):
        fill(log, 1)
    assert len(rig.owner.failures) == 1
    log = await rig.load(recovery_point=28)
    fill(log, 1)
    assert log.log_end_offset == 29


async def test_a_rotten_end_is_found_before_anything_is_appended(rig: Rig) -> None:
    await built(rig)
    data = bytearray(rig.get(f"{SEGMENT_28}.log"))
    # In the length of the last of twelve batches.
    data[len(data) // 12 * 11 + 8] = 255
    await rig.put(f"{SEGMENT_28}.log", bytes(data))
    log = await rig.load(is_clean=True, recovery_point=40)
    with pytest.raises(StorageError, match="a batch of"):
        fill(log, 1)
    assert len(rig.owner.failures) == 1


async def test_without_a_checkpoint_the_files_tell_the_end(rig: Rig) -> None:
    await built(rig)
    for recovery_point in (0, 27, 28):
        log = await rig.load(is_clean=True, recovery_point=recovery_point)
        assert log.log_end_offset == 40
    await rig.disk.unlink(f"{rig.directory}/{SEGMENT_28}.index")
    log = await rig.load(is_clean=True, recovery_point=39)
    assert log.log_end_offset == 40, "what was recovered is known better"


async def test_an_unclean_start_recovers_from_the_recovery_point(place: Place) -> None:
    """LOG-61: the segment that holds it included, those before it not."""
    rig = Rig.at(place)
    await built(rig)
    checked: list[int] = []
    for recovery_point, batches in ((0, 40), (13, 40), (14, 26), (20, 26), (28, 12), (40, 12)):
        checked.clear()
        log = await load_log(
            rig.environment,
            rig.directory,
            ("t", 0),
            rig.config,
            is_clean=False,
            recovery_point=recovery_point,
            progress=checked.append,
        )
        assert len(checked) == batches
        assert values_in(log) == expected(40)
        # Only a flush may raise it.
        assert log.recovery_point == recovery_point


async def test_recovered_indexes_are_those_of_the_appends(rig: Rig) -> None:
    """LOG-32, LOG-35."""
    old = await built(rig)
    kinds = (".index", ".timeindex")
    names = [name + kind for name in (SEGMENT_0, SEGMENT_14, SEGMENT_28) for kind in kinds]
    before = {name: rig.get(name) for name in names}
    for name in names:
        await rig.put(name, b"\xff" * 48)
    await rig.put("leader-epoch-checkpoint", b"0\n0\n")
    log = await rig.load()
    assert log.epochs.entries == old.epochs.entries
    await log.close()
    assert {name: rig.get(name) for name in names} == before


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 70])
async def test_a_torn_tail_is_cut(rig: Rig, cut: int) -> None:
    """LOG-33, LOG-62: as many bytes as are no whole batch."""
    await built(rig)
    data = rig.get(f"{SEGMENT_28}.log")
    await rig.put(f"{SEGMENT_28}.log", data[:-cut])
    log = await rig.load(recovery_point=28)
    assert values_in(log) == expected(39)
    assert log.log_end_offset == 39
    assert len(rig.get(f"{SEGMENT_28}.log")) == len(data) * 11 // 12


@pytest.mark.parametrize("garbage", [b"\0" * 500, b"\xff" * 500, b"\0" * 3, bytes(range(200))])
async def test_garbage_behind_the_end_is_cut(rig: Rig, garbage: bytes) -> None:
    """LOG-33: also the zeros of a preallocated file."""
    await built(rig)
    await rig.put(f"{SEGMENT_28}.log", rig.get(f"{SEGMENT_28}.log") + garbage)
    log = await rig.load(recovery_point=28)
    assert log.log_end_offset == 40
    assert values_in(log) == expected(40)


async def test_every_flipped_bit_is_found_in_recovery(rig: Rig) -> None:
    """A flipped bit in data: what is before stays, what follows goes, nothing false is served."""
    await built(rig)
    data = rig.get(f"{SEGMENT_28}.log")
    size = len(data) // 12
    # Leader epochs and base offsets are outside of the CRC, by design.
    covered = [*range(8 * 8, 12 * 8), *range(16 * 8, size * 8, 7)]
    for bit in covered:
        damaged = bytearray(data)
        damaged[5 * size + bit // 8] ^= 1 << bit % 8
        await rig.put(f"{SEGMENT_28}.log", bytes(damaged))
        log = await rig.load(recovery_point=28)
        assert values_in(log) == expected(33), bit
        log.go_offline("the test has seen enough")


async def test_offsets_that_do_not_grow_end_the_segment(rig: Rig) -> None:
    """LOG-62: what comes before is kept, which may have been acknowledged."""
    await built(rig)
    data = rig.get(f"{SEGMENT_28}.log")
    await rig.put(f"{SEGMENT_28}.log", data + data[:200])
    log = await rig.load(recovery_point=28)
    assert values_in(log) == expected(40)


async def test_a_cut_segment_ends_the_log(rig: Rig) -> None:
    """LOG-62: all later segments go."""
    await built(rig)
    data = bytearray(rig.get(f"{SEGMENT_14}.log"))
    data[len(data) // 2 + 20] ^= 1
    await rig.put(f"{SEGMENT_14}.log", bytes(data))
    log = await rig.load(recovery_point=14)
    assert [segment.base_offset for segment in log.segments] == [0, 14]
    assert values_in(log) == expected(21)
    assert log.epochs.entries == ((0, 0), (1, 10), (2, 20))
    assert await rig.names(SEGMENT_28) == [
        f"{SEGMENT_28}{kind}.deleted" for kind in (".index", ".log", ".timeindex")
    ]
    fill(log, 1)
    assert values_in(log) == expected(22)


async def test_recovery_rebuilds_producers_and_transactions(rig: Rig) -> None:
    """LOG-35, LOG-50: from data alone, without snapshots."""
    log = await rig.load()
    for sequence in range(20):
        producer = sequence % 3
        log.append_as_leader(
            batch(
                b"t",
                producer_id=producer,
                producer_epoch=0,
                sequence=sequence // 3,
                is_transactional=True,
            ),
            0,
        )
        if sequence % 5 == 4:
            log.append_as_leader(
                marker(producer, 0, is_commit=sequence % 2 == 0),
                0,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=1,
            )
    aborted = [found for segment in log.segments for found in segment.transaction_index.all()]
    assert aborted
    producers = dict(log.producers.producers)
    undecided = log.producers.first_undecided_offset
    await log.close()
    for name in await rig.names(".snapshot"):
        await rig.disk.unlink(f"{rig.directory}/{name}")
    again = await rig.load()
    assert [f for segment in again.segments for f in segment.transaction_index.all()] == aborted
    # Of the batches a snapshot keeps the last one.
    for producer_id, entry in again.producers.producers.items():
        assert entry.batches[-1:] == producers[producer_id].batches[-1:]
        assert entry._replace(batches=()) == producers[producer_id]._replace(batches=())
    assert len(again.producers.producers) == len(producers)
    assert again.producers.first_undecided_offset == undecided
    assert again.last_stable_offset <= again.high_watermark


async def test_a_damaged_snapshot_is_replaced_by_replay(rig: Rig) -> None:
    log = await rig.load()
    for sequence in range(40):
        log.append_as_leader(batch(b"p", producer_id=9, producer_epoch=0, sequence=sequence), 0)
    await log.close()
    for name in await rig.names(".snapshot"):
        await rig.put(name, b"\0" * 20)
    again = await rig.load(is_clean=True, recovery_point=40)
    assert again.producers.producers[9].last_sequence == 39
    assert await rig.names(".snapshot") == []


async def test_a_snapshot_from_a_lost_future_is_removed(rig: Rig) -> None:
    log = await built(rig)
    await rig.put(f"{99:020d}.snapshot", b"whatever")
    await rig.load()
    assert f"{99:020d}.snapshot" not in await rig.names()
    assert log.log_end_offset == 40


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
async def test_a_missing_index_is_rebuilt(rig: Rig, kind: str, is_clean: bool) -> None:
    """LOG-58."""
    await built(rig)
    name = SEGMENT_14 + kind
    before = rig.get(name)
    await rig.disk.unlink(f"{rig.directory}/{name}")
    log = await rig.load(is_clean=is_clean, recovery_point=40)
    assert rig.get(name) == before
    assert values_in(log) == expected(40)


@pytest.mark.parametrize("content", [b"\xff" * 16, b"\0" * 7])
async def test_a_corrupt_index_is_rebuilt(rig: Rig, content: bytes) -> None:
    """LOG-58: below the recovery point too."""
    await built(rig)
    name = f"{SEGMENT_0}.index"
    before = rig.get(name)
    await rig.put(name, content)
    log = await rig.load(recovery_point=40)
    assert rig.get(name) == before
    assert values_in(log) == expected(40)


async def test_deleted_and_cleaned_files_go(rig: Rig) -> None:
    """LOG-53, LOG-54."""
    await built(rig)
    for name in (
        f"{SEGMENT_0}.log.deleted",
        f"{SEGMENT_14}.txnindex.deleted",
        f"{SEGMENT_14}.snapshot.deleted",
        f"{SEGMENT_14}.log.cleaned",
        f"{SEGMENT_14}.index.cleaned",
        "leader-epoch-checkpoint.tmp",
    ):
        await rig.put(name, b"x")
    log = await rig.load(is_clean=True, recovery_point=40)
    names = await rig.names()
    assert not [n for n in names if n.endswith((".deleted", ".cleaned", ".swap", ".tmp"))]
    assert values_in(log) == expected(40)


async def test_orphan_indexes_go(rig: Rig) -> None:
    """LOG-57."""
    await built(rig)
    for kind in (".index", ".timeindex", ".txnindex"):
        await rig.put(f"{5:020d}{kind}", b"x" * 24)
    log = await rig.load(is_clean=True, recovery_point=40)
    assert await rig.names(f"{5:020d}") == []
    assert values_in(log) == expected(40)


async def merged(rig: Rig) -> bytes:
    """Segments 0 and 14 cleaned into one, of the even offsets."""
    both = rig.get(f"{SEGMENT_0}.log") + rig.get(f"{SEGMENT_14}.log")
    size = len(both) // 28
    return b"".join(both[index * size : (index + 1) * size] for index in range(1, 28, 2))


def after_merge() -> dict[int, bytes]:
    return {o: v for o, v in expected(40).items() if o >= 28 or o % 2}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("originals", [(SEGMENT_0, SEGMENT_14), (SEGMENT_14,), (SEGMENT_0,), ()])
async def test_a_swap_takes_the_place_of_what_it_replaces(
    rig: Rig, originals: tuple[str, ...], is_clean: bool
) -> None:
    """LOG-55, LOG-56, LOG-114: whichever of the originals are still there."""
    await built(rig)
    await rig.put(f"{SEGMENT_0}.log.swap", await merged(rig))
    await rig.put(f"{SEGMENT_0}.index.swap", b"\x01" * 80)
    for base in (SEGMENT_0, SEGMENT_14):
        for kind in (".log", ".index", ".timeindex"):
            if base not in originals:
                await rig.disk.unlink(f"{rig.directory}/{base}{kind}")
    log = await rig.load(is_clean=is_clean, recovery_point=40)
    assert [segment.base_offset for segment in log.segments] == [0, 28]
    assert values_in(log) == after_merge()
    assert not [n for n in await rig.names() if n.endswith((".swap", ".deleted"))]


async def test_an_incomplete_swap_is_dropped(rig: Rig) -> None:
    """LOG-54: a `.cleaned` at or below it says that the renaming was not finished."""
    await built(rig)
    await rig.put(f"{SEGMENT_0}.log.swap", await merged(rig))
    await rig.put(f"{SEGMENT_0}.index.cleaned", b"")
    log = await rig.load(is_clean=True, recovery_point=40)
    assert values_in(log) == expected(40)
    assert not [n for n in await rig.names() if n.endswith((".swap", ".cleaned"))]


async def test_a_swap_below_a_later_cleaned_is_good(rig: Rig) -> None:
    """LOG-54: another group was still being cleaned."""
    await built(rig)
    await rig.put(f"{SEGMENT_0}.log.swap", await merged(rig))
    await rig.put(f"{SEGMENT_28}.log.cleaned", b"half")
    log = await rig.load(is_clean=True, recovery_point=40)
    assert values_in(log) == after_merge()


async def test_an_unreadable_file(rig: Rig) -> None:
    """LOG-59: a directory in the place of a segment's data."""
    await rig.disk.make_directory(f"{rig.directory}/{SEGMENT_0}.log")
    with pytest.raises(OSError, match=SEGMENT_0):
        await rig.load()


async def test_a_segment_with_an_offset_overflow_is_split(rig: Rig) -> None:
    """LOG-60."""
    offsets = [0, 5, 2**31 - 1, 2**31, 2**31 + 7, 2**32 + 9]
    await rig.put(f"{SEGMENT_0}.log", b"".join(batch(b"%d" % o, base_offset=o) for o in offsets))
    log = await rig.load()
    assert [segment.base_offset for segment in log.segments] == [0, 2**31, 2**32 + 9]
    assert values_in(log) == {offset: b"%d" % offset for offset in offsets}
    assert not [n for n in await rig.names() if n.endswith((".swap", ".cleaned"))]


async def test_files_that_vanished(rig: Rig) -> None:
    """LOG-63: the log ends before its start, so it begins anew there."""
    await built(rig)
    log = await rig.load(is_clean=True, recovery_point=40, log_start_offset=100)
    assert [segment.base_offset for segment in log.segments] == [100]
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert log.epochs.entries == ()
    fill(log, 1)
    assert sorted(values_in(log)) == [100]


async def test_the_start_is_the_first_segment_or_later(rig: Rig) -> None:
    """LOG-52."""
    await built(rig)
    for kind in (".log", ".index", ".timeindex"):
        await rig.disk.unlink(f"{rig.directory}/{SEGMENT_0}{kind}")
    log = await rig.load(is_clean=True, recovery_point=40, log_start_offset=3)
    assert log.log_start_offset == log.high_watermark == 14
    assert log.epochs.entries[0] == (1, 14)


async def test_a_malformed_epoch_checkpoint_is_refused_clearly(rig: Rig) -> None:
    await built(rig)
    await rig.put("leader-epoch-checkpoint", b"0\n1\n0 x\n")
    with pytest.raises(MalformedFileError, match="line 3"):
        await rig.load(is_clean=True)


async def test_old_messages_are_recovered(rig: Rig) -> None:
    """LOG-32: magic 0 and 1."""
    await rig.put(f"{SEGMENT_0}.log", legacy(0, 1, 2) + legacy(3, 4, magic=0) + b"torn")
    log = await rig.load()
    assert values_in(log) == {offset: b"v%d" % offset for offset in range(5)}


async def test_large_batches_are_recovered(place: Place) -> None:
    """Larger than what recovery reads at once."""
    rig = Rig.at(place, replace(TINY, segment_bytes=1 << 24, max_message_bytes=1 << 23))
    log = await rig.load()
    for index in range(3):
        log.append_as_leader(batch(b"%d" % index * 2_500_000), 0)
    await log.flush()
    again = await rig.load()
    assert again.log_end_offset == 3
    assert again.size_bytes == log.size_bytes


async def test_loading_twice_gives_the_same(rig: Rig) -> None:
    await built(rig)
    first = await rig.load()
    one = {name: rig.get(name) for name in await rig.names()}
    first.go_offline("crashed")
    await rig.load()
    assert {name: rig.get(name) for name in await rig.names()} == one


async def test_a_full_time_index_gets_its_last_entry_in_recovery(rig: Rig) -> None:
    """LOG-34."""
    rig.config = replace(TINY, segment_index_bytes=36)
    data = b"".join(
        batch(b"x", base_offset=offset, timestamp_ms=NOW_MS + offset) for offset in range(10)
    )
    await rig.put(f"{SEGMENT_0}.log", data)
    log = await rig.load()
    segment: Segment = log.active_segment
    assert segment.time_index.entry_count == 3
    assert segment.time_index.last_entry == (NOW_MS + 9, 9)
    assert segment.largest.offset == 9


async def test_restarts_leave_no_snapshots_behind(rig: Rig) -> None:
    """Each leaves one at the log end, where no segment begins and nobody would remove it."""
    log = await rig.load()
    for number in range(5):
        records = batch(b"v", producer_id=1, producer_epoch=0, sequence=number)
        log.append_as_leader(records, 0)
        log = await rig.reload(log)
    assert await rig.names(".snapshot") == [f"{5:020d}.snapshot"]
    assert log.producers.producers[1].last_sequence == 4


EPOCH_AT = 12


def with_epoch(data: bytes, index: int, size: int, epoch: int) -> bytes:
    """The epoch of one of many batches of the same size; the CRC does not cover it."""
    position = index * size + EPOCH_AT
    return data[:position] + epoch.to_bytes(4) + data[position + 4 :]


@pytest.mark.parametrize(
    ("index", "epoch", "expected"),
    [
        # Too high: forgotten, and what began behind it begins where it did.
        (2, 1_000, ((1, 0), (3, 5))),
        (5, 1_000, ((1, 0), (3, 6))),
        (7, 1_000, ((1, 0), (3, 5))),
        # Too low: passed over.
        (7, 0, ((1, 0), (3, 5))),
        (7, 2, ((1, 0), (3, 5))),
        # In one of the last two batches nothing tells.
        (8, 1_000, ((1, 0), (3, 5), (1_000, 8))),
        (9, 1_000, ((1, 0), (3, 5), (1_000, 9))),
    ],
)
async def test_a_leader_epoch_that_is_damaged(
    rig: Rig, index: int, epoch: int, expected: tuple[tuple[int, int], ...]
) -> None:
    """No CRC covers it, but epochs only grow."""
    data = b"".join(
        bytes(batch(b"v", base_offset=offset, leader_epoch=1 if offset < 5 else 3))
        for offset in range(10)
    )
    await rig.put(f"{0:020d}.log", with_epoch(data, index, len(data) // 10, epoch))
    log = await rig.load()
    assert log.log_end_offset == 10
    assert log.epochs.entries == expected


async def test_an_epoch_of_the_checkpoint_is_not_forgotten(rig: Rig) -> None:
    """Nor one that begins in a segment which comes later."""
    data = b"".join(bytes(batch(b"v", base_offset=n, leader_epoch=1)) for n in range(10))
    await rig.put(f"{0:020d}.log", data)
    await rig.put(LEADER_EPOCH_CHECKPOINT, format_epochs([(1, 0), (3, 7)]).encode())
    log = await rig.load()
    assert log.epochs.entries == ((1, 0), (3, 7))
