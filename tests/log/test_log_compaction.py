"""What remains of a log that is compacted: keys, tombstones, transactions, producers, formats."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from cleaning_rig import COMPACTED, CompactedRig, committed, keyed, records_in, state_of
from log_place import Place
from log_rig import NOW_MS, batches_in, by_time, data_of, marker

from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.records.batch import RecordBatch, TimestampType
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.legacy import LegacyBatch, build_message_set
from kraftpy.records.reader import Record, read_records
from kraftpy.records.validation import AppendOrigin
from kraftpy.records.walker import records_of

DAY_MS = 86_400_000
COORDINATOR = AppendOrigin.COORDINATOR


@pytest.fixture
async def rig(place: Place) -> CompactedRig:
    rig = CompactedRig(place.disk, place.directory)
    await rig.start()
    return rig


def kept(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records_in(log)]


def batches(log: PartitionLog) -> list[RecordBatch]:
    return [batch for batch in batches_in(log) if isinstance(batch, RecordBatch)]


async def more(rig: CompactedRig) -> None:
    """Something dirty, so that the log is cleaned once more."""
    rig.put(b"more", b"more")
    assert await rig.clean()


async def test_the_last_record_of_a_key_stays_where_it_was(rig: CompactedRig) -> None:
    """LOG-107."""
    for number in range(40):
        rig.put(b"k%d" % (number % 3), b"v%d" % number)
    rig.put(b"once", b"x")
    assert await rig.clean()
    assert kept(rig.log) == [
        (37, b"k1", b"v37"),
        (38, b"k2", b"v38"),
        (39, b"k0", b"v39"),
        (40, b"once", b"x"),
    ]
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (0, 41)


async def test_a_key_in_the_clean_part_gives_way_to_one_in_the_dirty(rig: CompactedRig) -> None:
    """LOG-107: the second cleaning maps the dirty part only, and cleans all of it."""
    rig.put(b"a", b"1")
    rig.put(b"b", b"2")
    assert await rig.clean()
    rig.put(b"a", b"3")
    assert await rig.clean()
    assert kept(rig.log) == [(1, b"b", b"2"), (2, b"a", b"3")]
    assert rig.cleaner.last_report is not None
    assert rig.cleaner.last_report.key_count == 1


async def test_a_batch_from_which_nothing_goes_is_copied(rig: CompactedRig) -> None:
    """Byte by byte, however it was compressed: a foreign library's work is not redone."""
    data = keyed((b"a", b"1"), (b"b", b"2"), codec=Codec.GZIP)
    rig.append(data)
    before = bytes(batches(rig.log)[0].data)
    assert await rig.clean()
    assert bytes(batches(rig.log)[0].data) == before


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_batch_of_which_some_stays_keeps_its_header(
    rig: CompactedRig, codec: Codec
) -> None:
    """LOG-107: base and last offset, epoch, producer, sequence, codec; the largest time is new."""
    builder = BatchBuilder(producer_id=5, producer_epoch=2, base_sequence=10, codec=codec)
    for number, key in enumerate((b"a", b"b", b"c", b"d")):
        time_ms = NOW_MS + number * 1_000_000
        builder.append(key, b"old", timestamp_ms=time_ms, headers=[("h", b"%d" % number)])
    rig.log.append_as_leader(builder.build(), 3)
    rig.append(keyed((b"d", b"new"), (b"a", b"new"), producer_id=5, producer_epoch=2, sequence=14))
    assert await rig.clean()
    old, new = batches(rig.log)
    assert old.is_valid
    assert (old.base_offset, old.last_offset, old.records_count) == (0, 3, 2)
    assert (old.producer_id, old.producer_epoch, old.base_sequence) == (5, 2, 10)
    assert (old.leader_epoch, old.codec) == (3, codec)
    assert old.max_timestamp_ms == NOW_MS + 2_000_000
    assert list(read_records(old, max_bytes=1_000)) == [
        Record(1, NOW_MS + 1_000_000, b"b", b"old", (("h", b"1"),)),
        Record(2, NOW_MS + 2_000_000, b"c", b"old", (("h", b"2"),)),
    ]
    assert new.records_count == 2


async def test_log_append_time_stays(place: Place) -> None:
    config = replace(COMPACTED, timestamp_type=TimestampType.LOG_APPEND_TIME)
    rig = CompactedRig(place.disk, place.directory, config)
    await rig.start()
    rig.append(keyed((b"a", b"1"), (b"b", None), timestamp_ms=1))
    rig.clock.now_ms += 500
    rig.put(b"a", b"2")
    assert await rig.clean()
    assert [record.timestamp_ms for record in records_in(rig.log)] == [NOW_MS, NOW_MS + 500]


async def test_records_without_key_go_and_are_counted(
    rig: CompactedRig, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that was not compacted before may have them."""
    rig.log.config = replace(COMPACTED, is_compacted=False)
    rig.append(keyed((None, b"x"), (b"a", b"1"), (None, b"y")))
    rig.log.config = COMPACTED
    rig.put(b"b", b"2")
    assert await rig.clean()
    assert kept(rig.log) == [(1, b"a", b"1"), (3, b"b", b"2")]
    assert "dropped 2 records without key" in caplog.text


async def test_readers_step_over_the_gaps(rig: CompactedRig) -> None:
    """LOG-115: from every offset, what follows it; lookups by time as well."""
    for number in range(60):
        rig.put(b"k%d" % (number % 2 if number < 50 else number), b"v%d" % number, NOW_MS + number)
    before = rig.log.read(10, 1 << 20)
    assert await rig.clean()
    offsets = [record.offset for record in records_in(rig.log)]
    assert offsets == [48, 49, *range(50, 60)]
    for start in range(60):
        read = rig.log.read(start, 1)
        first = RecordBatch(data_of(read))
        assert first.last_offset == next(offset for offset in offsets if offset >= start)
    found = by_time(rig.log, NOW_MS + 3)
    assert found is not None
    assert found.offset == 48
    # One who had begun to read before the cleaning reads what there was.
    assert next(iter(read_records(RecordBatch(data_of(before)), max_bytes=1_000))).offset == 10


@pytest.mark.parametrize("value", [b"v", None])
async def test_a_high_watermark_at_the_end_of_a_cleaned_segment_is_no_trap(
    rig: CompactedRig, value: bytes | None
) -> None:
    """LOG-115: its place was in the segment as it was, which is shorter now, or longer.

    Longer with tombstones: their batch is stamped, and its times take more bytes.
    """
    for number in range(6 if value else 1):
        rig.put(b"k", value)
        end = number
    place = rig.log.high_watermark_metadata()
    old_bytes = place.position
    rig.log.roll()
    rig.append(keyed((b"z", b"not replicated")), replicate=False)
    rig.log._watermarks.high_watermark = place
    assert await rig.cleaner.clean_dirtiest()
    assert rig.log.high_watermark == end + 1
    new_bytes = rig.log.segments.first.size_bytes
    assert new_bytes < old_bytes if value else new_bytes > old_bytes
    replicated = batches_in(rig.log, isolation=Isolation.HIGH_WATERMARK)
    assert [batch.last_offset for batch in replicated] == [end]
    # A follower's place from before the cleaning may still become the high watermark.
    rig.log._watermarks.high_watermark = place
    read = rig.log.read(0, 1 << 20)
    assert len(data_of(read)) == read.size_bytes


# Tombstones.


async def test_a_tombstone_stays_for_its_time_and_goes_later(rig: CompactedRig) -> None:
    """LOG-112: stamped by the first cleaning, kept to the last millisecond, gone with the next."""
    rig.append(keyed((b"a", b"1"), (b"b", b"2")))
    rig.append(keyed((b"a", None), (b"c", b"3")))
    assert await rig.clean()
    assert kept(rig.log) == [(1, b"b", b"2"), (2, b"a", None), (3, b"c", b"3")]
    first, second = batches(rig.log)
    assert first.delete_horizon_ms is None
    assert second.delete_horizon_ms == NOW_MS + DAY_MS
    assert second.is_valid
    assert [r.timestamp_ms for r in read_records(second, max_bytes=1_000)] == [NOW_MS, NOW_MS]
    stamped = bytes(second.data)

    rig.clock.now_ms += DAY_MS - 1
    await more(rig)
    assert bytes(batches(rig.log)[1].data) == stamped, "a horizon is set once"

    rig.clock.now_ms += 1
    await more(rig)
    assert [(key, value) for _, key, value in kept(rig.log)] == [
        (b"b", b"2"),
        (b"c", b"3"),
        (b"more", b"more"),
    ]
    survivor = batches(rig.log)[1]
    assert survivor.delete_horizon_ms == NOW_MS + DAY_MS
    assert [r.timestamp_ms for r in read_records(survivor, max_bytes=1_000)] == [NOW_MS]


async def test_a_tombstone_waits_for_its_first_cleaning(rig: CompactedRig) -> None:
    """LOG-112: it may be years old; its time begins when what it deletes goes."""
    rig.put(b"a", b"1", NOW_MS - 100 * DAY_MS)
    rig.put(b"a", None, NOW_MS - 100 * DAY_MS)
    assert await rig.clean()
    assert kept(rig.log) == [(1, b"a", None)]


async def test_a_tombstone_without_retention_goes_with_the_second_cleaning(
    rig: CompactedRig,
) -> None:
    """LOG-112: delete.retention.ms=0."""
    rig.log.config = replace(COMPACTED, delete_retention_ms=0)
    rig.put(b"a", None)
    rig.put(b"b", b"2")
    assert await rig.clean()
    assert len(kept(rig.log)) == 2
    await more(rig)
    assert [key for _, key, _ in kept(rig.log)] == [b"b", b"more"]


async def test_a_key_that_came_back_loses_its_tombstone(rig: CompactedRig) -> None:
    rig.put(b"a", None)
    rig.put(b"a", b"again")
    assert await rig.clean()
    assert kept(rig.log) == [(1, b"a", b"again")]


async def test_beyond_a_full_map_tombstones_keep_waiting(place: Place) -> None:
    """LOG-111, LOG-112: what was not mapped has deleted nothing yet, so its time does not run."""
    rig = CompactedRig(place.disk, place.directory)
    rig.settings = replace(rig.settings, map_bytes=3 * 24)
    await rig.start()
    rig.append(keyed((b"a", b"1"), (b"b", b"2"), (b"c", None), (b"a", None)))
    assert await rig.clean()
    assert rig.cleaner.clean_until(rig.log) == 2
    assert kept(rig.log) == [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"c", None), (3, b"a", None)]
    assert batches(rig.log)[0].delete_horizon_ms is None


# Transactions.


def transactional(
    rig: CompactedRig, sequence: int, *pairs: tuple[bytes, bytes | None], producer_id: int = 7
) -> int:
    return rig.append(
        keyed(
            *pairs,
            producer_id=producer_id,
            producer_epoch=0,
            sequence=sequence,
            is_transactional=True,
        )
    )


def end(rig: CompactedRig, *, is_commit: bool, producer_id: int = 7) -> int:
    return rig.append(marker(producer_id, 0, is_commit=is_commit), origin=COORDINATOR)


async def test_aborted_records_go_and_never_shadow_others(rig: CompactedRig) -> None:
    """LOG-107: the last committed value of a key is the one that counts."""
    rig.put(b"a", b"good")
    transactional(rig, 0, (b"a", b"bad"), (b"b", b"bad"))
    end(rig, is_commit=False)
    transactional(rig, 2, (b"b", b"good"))
    end(rig, is_commit=True)
    before = committed(rig.log)
    assert await rig.clean()
    assert kept(rig.log) == [(0, b"a", b"good"), (4, b"b", b"good")]
    assert records_in(rig.log) == committed(rig.log) == before


async def test_a_marker_outlives_its_data_by_the_retention(rig: CompactedRig) -> None:
    """LOG-112 for markers: kept while a batch was there, stamped when none is, dropped later."""
    transactional(rig, 0, (b"a", b"bad"))
    abort = end(rig, is_commit=False)
    transactional(rig, 1, (b"a", b"1"))
    commit = end(rig, is_commit=True)
    # Another batch is the producer's last: it has an empty header kept of it.
    transactional(rig, 2, (b"z", b"1"))
    last_commit = end(rig, is_commit=True)
    rig.put(b"a", b"2")

    def controls() -> dict[int, int | None]:
        return {b.base_offset: b.delete_horizon_ms for b in batches(rig.log) if b.is_control}

    assert await rig.clean()
    assert controls() == {abort: None, commit: None, last_commit: None}
    await more(rig)
    horizon_ms = NOW_MS + DAY_MS
    assert controls() == {abort: horizon_ms, commit: horizon_ms, last_commit: None}
    rig.clock.now_ms += DAY_MS - 1
    await more(rig)
    assert controls() == {abort: horizon_ms, commit: horizon_ms, last_commit: None}
    rig.clock.now_ms += 1
    await more(rig)
    assert controls() == {last_commit: None}


async def test_the_transaction_index_tells_what_is_aborted_after_cleaning_too(
    place: Place,
) -> None:
    """LOG-90, LOG-107: the map is full in the middle of an aborted transaction; the rest stays.

    What is beyond the map is copied, aborted or not, and readers must still be told.
    """
    rig = CompactedRig(place.disk, place.directory)
    rig.settings = replace(rig.settings, map_bytes=3 * 24)
    await rig.start()
    rig.put(b"a", b"1")
    rig.put(b"b", b"1")
    rig.put(b"c", b"1")
    transactional(rig, 0, (b"a", b"bad"))
    end(rig, is_commit=False)
    before = committed(rig.log)
    assert await rig.clean()
    assert rig.cleaner.clean_until(rig.log) == 2
    assert (3, b"a", b"bad") in kept(rig.log)
    assert committed(rig.log) == before
    assert [(r.offset, r.key) for r in before] == [(0, b"a"), (1, b"b"), (2, b"c")]
    aborted = rig.log.segments.first.transaction_index.all()
    assert [(t.producer_id, t.first_offset, t.last_offset) for t in aborted] == [(7, 3, 4)]


async def test_transactions_across_segments_and_groups(rig: CompactedRig) -> None:
    """LOG-107: data in one group, its marker three groups later, other producers in between."""
    rig.put(b"a", b"good")
    for number in range(30):
        transactional(rig, number, (b"a", b"bad%d" % number))
        transactional(rig, number, (b"b", b"good%d" % number), producer_id=8)
        if number % 5 == 0:
            rig.log.roll()
    end(rig, is_commit=True, producer_id=8)
    abort = end(rig, is_commit=False)
    assert len(rig.log.segments) > 6
    before = state_of(committed(rig.log))
    assert await rig.clean()
    assert state_of(committed(rig.log)) == before
    assert [key for _, key, _ in kept(rig.log)] == [b"a", b"b"]
    assert abort in [batch.base_offset for batch in batches(rig.log)]


async def test_control_records_of_other_kinds_stay(rig: CompactedRig) -> None:
    builder = BatchBuilder(is_control=True)
    builder.append(b"\0\0\0\2", b"", timestamp_ms=NOW_MS)
    rig.append(builder.build(), origin=COORDINATOR)
    for _ in range(3):
        await more(rig)
    assert batches(rig.log)[0].is_control


# Producers.


async def test_the_last_batch_of_a_producer_stays_without_records(rig: CompactedRig) -> None:
    """Its sequence is how a repetition is recognised when the state was replayed."""
    for sequence in range(3):
        rig.append(
            keyed((b"a", b"%d" % sequence), producer_id=5, producer_epoch=1, sequence=sequence)
        )
    rig.put(b"a", b"other")
    assert await rig.clean()
    empty, other = batches(rig.log)
    assert (empty.base_offset, empty.records_count, empty.size) == (2, 0, 61)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (5, 1, 2)
    assert other.records_count == 1
    await more(rig)
    assert batches(rig.log)[0].base_offset == 2, "as long as the producer is known"
    repeated = keyed((b"a", b"2"), producer_id=5, producer_epoch=1, sequence=2)
    assert rig.log.append_as_leader(repeated, 0).is_duplicate
    assert sum(rig.log.producers.remove_expired(NOW_MS + 100 * DAY_MS)) > 0
    await more(rig)
    assert [batch.producer_id for batch in batches(rig.log)] == [-1, -1]


async def test_replayed_after_cleaning_a_repetition_is_still_recognised(rig: CompactedRig) -> None:
    for sequence in range(3):
        rig.append(
            keyed((b"a", b"%d" % sequence), producer_id=5, producer_epoch=1, sequence=sequence)
        )
    rig.put(b"a", b"other")
    assert await rig.clean()
    await rig.log.close()
    for name in await rig.names(".snapshot"):
        await rig.disk.unlink(f"{rig.directory}/{name}")
    await rig.start(is_clean=True)
    repeated = keyed((b"a", b"2"), producer_id=5, producer_epoch=1, sequence=2)
    assert rig.log.append_as_leader(repeated, 0).is_duplicate


async def test_a_producer_that_is_known_by_a_marker_keeps_that(rig: CompactedRig) -> None:
    """The marker has the epoch that fences those before; without its record if it must."""
    rig.log.config = replace(COMPACTED, delete_retention_ms=0)
    rig.append(marker(9, 3, is_commit=False), origin=COORDINATOR)
    rig.put(b"a", b"1")
    assert await rig.clean()
    assert batches(rig.log)[0].records_count == 1
    await more(rig)
    await more(rig)
    first = batches(rig.log)[0]
    assert (first.is_control, first.records_count) == (True, 0)
    assert (first.producer_id, first.producer_epoch) == (9, 3)


async def test_the_last_batch_of_a_cleaning_stays(rig: CompactedRig) -> None:
    """Even without records: it tells how far the log goes. Until there is a later one."""
    rig.put(b"a", b"1")
    rig.log.config = replace(COMPACTED, is_compacted=False)
    rig.append(keyed((None, b"x"), (None, b"y")))
    rig.log.config = COMPACTED
    assert await rig.clean()
    first, last = batches(rig.log)
    assert (last.base_offset, last.last_offset, last.records_count) == (1, 2, 0)
    await more(rig)
    assert [batch.base_offset for batch in batches(rig.log)] == [0, 3]
    assert first.records_count == 1


# Old formats.


def append_old(rig: CompactedRig, *records: Record, magic: int, codec: Codec = Codec.NONE) -> None:
    rig.log.append_as_follower(build_message_set(records, magic=magic, codec=codec), 0)
    rig.log.update_high_watermark(rig.log.log_end_offset)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
async def test_old_formats_are_cleaned_too(rig: CompactedRig, magic: int, codec: Codec) -> None:
    """LOG-107: copied where nothing goes, and made a v2 batch where something does."""
    time_ms = NOW_MS if magic else -1
    records = [
        Record(offset, time_ms, key, value)
        for offset, (key, value) in enumerate(
            [(b"a", b"1"), (b"b", b"2"), (b"c", None), (b"d", b"4")]
        )
    ]
    append_old(rig, *records, magic=magic, codec=codec)
    append_old(rig, Record(4, time_ms, b"e", b"5"), magic=magic, codec=codec)
    rig.put(b"a", b"6")
    assert await rig.clean()
    assert kept(rig.log) == [
        (1, b"b", b"2"),
        (2, b"c", None),
        (3, b"d", b"4"),
        (4, b"e", b"5"),
        (5, b"a", b"6"),
    ]
    assert [record.timestamp_ms for record in records_in(rig.log)[:4]] == [time_ms] * 4
    by_offset = {batch.last_offset: batch for batch in batches_in(rig.log)}
    assert isinstance(by_offset[4], LegacyBatch), "nothing went"
    tombstones = [
        batch
        for batch in batches(rig.log)
        if any(record.value is None for record in records_of(batch, max_bytes=1_000))
    ]
    assert [batch.delete_horizon_ms for batch in tombstones] == [NOW_MS + DAY_MS]
    rig.clock.now_ms += DAY_MS
    await more(rig)
    assert [key for _, key, _ in kept(rig.log)] == [b"b", b"d", b"e", b"a", b"more"]


# Output.


async def test_many_small_segments_become_few(rig: CompactedRig) -> None:
    """LOG-113: and the empty ones that compaction leaves vanish with the next."""
    for number in range(100):
        rig.put(b"k%d" % (number % 2), b"v%d" % number)
    assert len(rig.log.segments) > 5
    assert await rig.clean()
    await more(rig)
    assert len(rig.log.segments) == 2
    assert [key for _, key, _ in kept(rig.log)] == [b"k0", b"k1", b"more"]


async def test_a_group_that_grows_beyond_its_index_becomes_two(rig: CompactedRig) -> None:
    """Positions, offsets and index entries are limited; a second segment takes the rest."""
    rig.log.config = replace(COMPACTED, index_interval_bytes=100_000, segment_bytes=400_000)
    for number in range(200):
        rig.put(b"k%d" % number, b"v" * 1_000)
    rig.log.config = replace(COMPACTED, segment_bytes=400_000, segment_index_bytes=400)
    before = kept(rig.log)
    assert await rig.clean()
    assert len(rig.log.segments) == 5
    assert kept(rig.log) == before
    bases = [segment.base_offset for segment in rig.log.segments]
    assert all(low < high for low, high in pairwise(bases))
    for record in records_in(rig.log):
        assert RecordBatch(data_of(rig.log.read(record.offset, 1))).base_offset == record.offset
    await rig.start(is_clean=False)
    assert kept(rig.log) == before


async def test_indexes_of_a_cleaned_segment_are_those_of_recovery(rig: CompactedRig) -> None:
    """LOG-32: they agree with the data; here with an entry for every batch."""
    for number in range(40):
        rig.put(b"k%d" % number, b"v", NOW_MS + number * (-1) ** number)
    assert await rig.clean()
    active = f"{rig.log.active_segment.base_offset:020d}"
    names = [
        name
        for name in await rig.names("index")
        if not name.endswith(".deleted") and not name.startswith(active)
    ]
    assert len(names) == 6
    before = {name: rig.get(name) for name in names}
    assert all(len(data) < 200 for data in before.values()), "cut to what they hold"
    await rig.log.close()
    for name in names:
        await rig.disk.unlink(f"{rig.directory}/{name}")
    await rig.start()
    await rig.log.close()
    assert {name: rig.get(name) for name in names} == before
