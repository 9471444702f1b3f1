"""The transaction index (LOG-50, and its part of LOG-2, LOG-90, LOG-98)."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_place import Place, TalliedDisk

from kraftpy.log.errors import CorruptIndexError, InvalidIndexOffsetError
from kraftpy.log.handles import HandlePool
from kraftpy.log.transactions import (
    ENTRY_BYTES,
    AbortedSearch,
    AbortedTransaction,
    TransactionIndex,
)
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_faults import WriteError

NAME = "00000000000000000000.txnindex"


def index_at(place: Place, *, base_offset: int = 0, exists: bool = False) -> TransactionIndex:
    file = place.pool.file(place.path(NAME), write=True, create=True)
    return TransactionIndex(file, base_offset, exists=exists)


# Last stable offsets never fall, and none is above the offset behind its marker.
SAMPLE = [
    AbortedTransaction(1, 0, 10, 2),
    AbortedTransaction(2, 2, 12, 8),
    AbortedTransaction(3, 8, 20, 21),
    AbortedTransaction(1, 30, 40, 41),
]


def filled(place: Place) -> TransactionIndex:
    index = index_at(place)
    for transaction in SAMPLE:
        index.append(transaction)
    return index


async def test_the_file_appears_with_the_first_aborted_transaction(place: Place) -> None:
    """LOG-2, LOG-50: until then nothing is opened or created by any call."""
    disk = TalliedDisk(place.disk)
    file = HandlePool(disk, limit=5).file(place.path(NAME), write=True, create=True)
    index = TransactionIndex(file, 0, exists=False)
    assert index.collect(0, 100) == AbortedSearch([], is_complete=False)
    assert index.all() == []
    index.truncate_to(0)
    index.reset()
    index.sanity_check()
    await index.sync()
    index.close()
    assert disk.tally.opens == []
    assert await place.disk.list_directory(place.directory) == []
    filled(place)
    assert await place.disk.list_directory(place.directory) == [NAME]


async def test_entry_bytes(place: Place) -> None:
    """LOG-50: 34 bytes: version, producer id, first, last, last stable offset."""
    index = index_at(place)
    index.append(AbortedTransaction(1, 2, 3, 4))
    assert place.get(NAME) == bytes.fromhex(
        "0000 0000000000000001 0000000000000002 0000000000000003 0000000000000004"
    )
    assert ENTRY_BYTES == 34


async def test_reopening_continues(place: Place) -> None:
    filled(place)
    again = index_at(place, exists=True)
    assert again.all() == SAMPLE
    with pytest.raises(InvalidIndexOffsetError):
        again.append(AbortedTransaction(9, 39, 40, 41))
    again.append(AbortedTransaction(9, 41, 42, 43))
    assert again.entry_count == 5


async def test_markers_must_come_in_order(place: Place) -> None:
    index = filled(place)
    for last_offset in (39, 40):
        with pytest.raises(InvalidIndexOffsetError, match="can't follow the one at 40"):
            index.append(AbortedTransaction(5, 31, last_offset, 41))
    assert index.all() == SAMPLE


@pytest.mark.parametrize(
    ("fetched", "numbers", "is_complete"),
    [
        ((0, 1), [0], True),
        ((0, 3), [0, 1], True),
        ((11, 12), [1, 2], True),
        ((13, 21), [2], True),
        ((13, 22), [2], True),
        ((21, 30), [], True),
        ((40, 41), [3], True),
        ((40, 42), [3], False),
        ((0, 100), [0, 1, 2, 3], False),
        ((41, 100), [], False),
    ],
)
async def test_collect(
    place: Place, fetched: tuple[int, int], numbers: list[int], is_complete: bool
) -> None:
    """LOG-90, the index's part: those that overlap, and whether later segments can have more."""
    index = filled(place)
    assert index.collect(*fetched) == AbortedSearch(
        [SAMPLE[number] for number in numbers], is_complete
    )


@pytest.mark.parametrize(
    ("offset", "count"), [(100, 4), (41, 4), (40, 3), (21, 3), (20, 2), (11, 1), (10, 0), (0, 0)]
)
async def test_truncate(place: Place, offset: int, count: int) -> None:
    """LOG-98, the index's part."""
    index = filled(place)
    index.truncate_to(offset)
    assert index.all() == SAMPLE[:count]
    assert len(place.get(NAME)) == count * ENTRY_BYTES
    # What was cut off may be written again.
    for transaction in SAMPLE[count:]:
        index.append(transaction)
    assert index.all() == SAMPLE


async def test_reset(place: Place) -> None:
    index = filled(place)
    index.reset()
    assert (index.all(), place.get(NAME)) == ([], b"")
    index.append(SAMPLE[0])
    assert index.all() == SAMPLE[:1]


async def test_a_torn_entry_is_written_over(place: Place) -> None:
    filled(place)
    place.put(NAME, place.get(NAME)[: 2 * ENTRY_BYTES + 5])
    index = index_at(place, exists=True)
    assert index.all() == SAMPLE[:2]
    index.append(SAMPLE[2])
    assert index.all() == SAMPLE[:3]
    assert len(place.get(NAME)) == 3 * ENTRY_BYTES


async def test_sanity_check(place: Place) -> None:
    filled(place)
    index_at(place, base_offset=10, exists=True).sanity_check()
    with pytest.raises(CorruptIndexError, match="before the segment's base 11"):
        index_at(place, base_offset=11, exists=True).sanity_check()
    content = place.get(NAME)
    place.put(NAME, content[:-1])
    with pytest.raises(CorruptIndexError, match="no whole entries"):
        index_at(place, exists=True).sanity_check()
    place.put(NAME, content[:ENTRY_BYTES] + b"\0\1" + content[ENTRY_BYTES + 2 :])
    with pytest.raises(CorruptIndexError, match="version 1"):
        index_at(place, exists=True).sanity_check()


async def test_a_file_that_shrank_is_noticed(place: Place) -> None:
    index = filled(place)
    place.put(NAME, place.get(NAME)[: ENTRY_BYTES + 3])
    with pytest.raises(CorruptIndexError, match="ends before"):
        index.all()


async def test_a_failed_append_changes_nothing() -> None:
    disk = MemoryDisk()
    await disk.make_directory("/data")
    place = Place(disk, "/data", HandlePool(disk, limit=5))
    index = filled(place)
    fault = disk.inject(WriteError(error=errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        index.append(AbortedTransaction(9, 41, 42, 43))
    disk.heal(fault)
    assert index.all() == SAMPLE
    index.append(AbortedTransaction(9, 41, 42, 43))
    assert index.entry_count == 5


async def test_a_search_reads_little(place: Place) -> None:
    """Finding the first entry that matters does not read the ones before."""
    disk = TalliedDisk(place.disk)
    file = HandlePool(disk, limit=5).file(place.path(NAME), write=True, create=True)
    index = TransactionIndex(file, 0, exists=False)
    for number in range(10_000):
        index.append(AbortedTransaction(number, number * 10, number * 10 + 5, number * 10 + 6))
    disk.tally.reads.clear()
    assert len(index.collect(99_000, 99_100).transactions) == 10
    assert sum(length for _, length in disk.tally.reads) < 3 * 4096


@st.composite
def aborted(draw: st.DrawFn) -> list[AbortedTransaction]:
    """A history as producer state makes it: markers grow, the last stable offset does not fall."""
    count = draw(st.integers(0, 150))
    transactions = []
    last, stable = 0, 0
    for _ in range(count):
        last += draw(st.integers(1, 5))
        stable = draw(st.integers(stable, last + 1))
        first = draw(st.integers(max(0, last - 10), last))
        transactions.append(AbortedTransaction(draw(st.integers(0, 3)), first, last, stable))
    return transactions


@given(aborted(), st.integers(0, 1500), st.integers(1, 60))
def test_collect_is_a_plain_scan(
    transactions: list[AbortedTransaction], fetch_offset: int, length: int
) -> None:
    """LOG-90, the index's part."""
    index = TransactionIndex(
        HandlePool(MemoryDisk(), limit=5).file("/a", write=True, create=True), 0, exists=False
    )
    for transaction in transactions:
        index.append(transaction)
    upper = fetch_offset + length
    expected = []
    is_complete = False
    for transaction in transactions:
        if transaction.last_offset >= fetch_offset and transaction.first_offset < upper:
            expected.append(transaction)
        if transaction.last_stable_offset >= upper:
            is_complete = True
            break
    assert index.collect(fetch_offset, upper) == AbortedSearch(expected, is_complete)
