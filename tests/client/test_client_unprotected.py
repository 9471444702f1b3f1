"""A flipped bit in what no CRC covers of a batch's header: what our consumer shows of a fetch.

As tests/log/test_log_unprotected.py, where the log's part is.
"""

from __future__ import annotations

import pytest

from kraftpy.client.fetched import Fetched
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.walker import walk_batches

FIRST_OFFSET, BATCHES, RECORDS = 12, 3, 3
BASE_OFFSET, LEADER_EPOCH, UNPROTECTED = range(8 * 8), range(12 * 8, 16 * 8), range(21 * 8)


def fetch() -> bytearray:
    data = bytearray()
    for number in range(BATCHES):
        builder = BatchBuilder(base_offset=FIRST_OFFSET + number * RECORDS, leader_epoch=6)
        for _ in range(RECORDS):
            builder.append(None, b"v", timestamp_ms=0)
        data += builder.build()
    return data


@pytest.mark.parametrize("number", range(BATCHES))
@pytest.mark.parametrize("position", [FIRST_OFFSET, FIRST_OFFSET + 1])
def test_nothing_is_shown_in_a_wrong_place(number: int, position: int) -> None:
    """Nor is anything lost in silence; but for an offset that is too high at the very end."""
    good = fetch()
    start = len(good) // BATCHES * number
    base_offset = FIRST_OFFSET + number * RECORDS
    for bit in UNPROTECTED:
        data = bytearray(good)
        data[start + bit // 8] ^= 0x80 >> bit % 8
        found = int.from_bytes(data[start : start + 8], signed=True)
        shown, has_noticed = consumed(data, position)
        if bit in LEADER_EPOCH or (found > base_offset and number == BATCHES - 1):
            assert len(shown) == BATCHES * RECORDS - (position - FIRST_OFFSET), bit
            continue
        assert has_noticed, bit
        assert shown == list(range(position, base_offset))[: len(shown)], bit
        if bit in BASE_OFFSET and number > 1:
            # With two before it, it is the one that is wrong.
            assert shown == list(range(position, base_offset)), bit


def test_what_compaction_has_left_is_shown() -> None:
    """Gaps are no damage, wherever they are."""
    data = bytearray()
    offsets = [12, 20, 21, 2**40]
    for offset in offsets:
        builder = BatchBuilder(base_offset=offset, leader_epoch=6)
        builder.append(None, b"v", timestamp_ms=0)
        data += builder.build()
    for position in (0, 10, 12):
        assert consumed(data, position) == (offsets, False)


def consumed(data: bytearray, position: int) -> tuple[list[int], bool]:
    """The offsets that the user is shown, and whether the damage is said."""
    shown: list[int] = []
    try:
        fetched = Fetched(
            ("t", 0),
            data,
            position=position,
            position_epoch=6,
            aborted=(),
            check_crcs=True,
            max_batch_bytes=1 << 20,
        )
        while records := fetched.take(4):
            shown += [record.offset for record in records]
    except CorruptRecord:
        return shown, True
    # A length that reaches beyond the end looks like a fetch that was cut off there.
    return shown, sum(each.size for each in walk_batches(data)) < len(data)
