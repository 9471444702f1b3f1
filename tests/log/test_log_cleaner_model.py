"""Any history of a compacted log, cleaned at any time, against a plain list of what was written.

After every cleaning: for each key the last committed value is what it was (LOG-107); every record
that is still there has the offset, time and value with which it was written, in the same order; and
what the rules oblige the log to keep is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import trio
from cleaning_rig import COMPACTED, SETTINGS, CompactedRig, committed, keyed, records_in, state_of
from hypothesis import given
from hypothesis import strategies as st
from log_rig import marker

from kraftpy.records.compression import Codec
from kraftpy.records.reader import Record
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.memory_disk import MemoryDisk

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
VALUES = st.none() | st.binary(max_size=30)
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
PRODUCERS = st.sampled_from([1, 2, 3])


@dataclass(frozen=True)
class Put:
    pairs: list[tuple[bytes | None, bytes | None]]
    codec: Codec


@dataclass(frozen=True)
class PutInTransaction:
    producer_id: int
    pairs: list[tuple[bytes | None, bytes | None]]
    codec: Codec


@dataclass(frozen=True)
class End:
    producer_id: int
    is_commit: bool


@dataclass(frozen=True)
class Roll:
    pass


@dataclass(frozen=True)
class Clean:
    map_slots: int


@dataclass(frozen=True)
class Wait:
    milliseconds: int


@dataclass(frozen=True)
class Restart:
    is_clean: bool


CODECS = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4])
# The number of slots is rounded down to a prime; few of them end most first passes early.
CLEANS = st.builds(Clean, st.sampled_from([2, 3, 5, 1_000, 1_000]))
OPERATIONS = st.one_of(
    st.builds(Put, PAIRS, CODECS),
    st.builds(PutInTransaction, PRODUCERS, PAIRS, CODECS),
    st.builds(End, PRODUCERS, st.booleans()),
    st.builds(Roll),
    CLEANS,
    st.builds(Wait, st.sampled_from([1, 500, 1_000])),
    st.builds(Restart, st.booleans()),
)


class History:
    """A log, and everything that was ever written to it."""

    def __init__(self, rig: CompactedRig) -> None:
        self.rig = rig
        self.written: list[Record] = []
        self.sequences: dict[int, int] = {}
        # The records of open transactions, by producer, and those of aborted ones.
        self.open: dict[int, list[Record]] = {}
        self.aborted: list[Record] = []

    async def do(self, operation: object) -> None:
        rig = self.rig
        match operation:
            case Put(pairs, codec):
                offset = rig.append(keyed(*pairs, codec=codec, timestamp_ms=rig.clock.now_ms))
                self._note(offset, pairs)
            case PutInTransaction(producer_id, pairs, codec):
                sequence = self.sequences.get(producer_id, 0)
                self.sequences[producer_id] = sequence + len(pairs)
                data = keyed(
                    *pairs,
                    codec=codec,
                    timestamp_ms=rig.clock.now_ms,
                    producer_id=producer_id,
                    producer_epoch=0,
                    sequence=sequence,
                    is_transactional=True,
                )
                records = self._note(rig.append(data), pairs)
                self.open.setdefault(producer_id, []).extend(records)
            case End(producer_id, is_commit):
                if producer_id in self.open:
                    records = self.open.pop(producer_id)
                    self.aborted += [] if is_commit else records
                    ending = marker(producer_id, 0, is_commit=is_commit)
                    rig.append(ending, origin=AppendOrigin.COORDINATOR)
            case Roll():
                rig.log.roll()
            case Wait(milliseconds):
                rig.clock.now_ms += milliseconds
            case Clean(map_slots):
                rig.cleaner.configure(replace(SETTINGS, map_bytes=map_slots * 24))
                await rig.clean()
                self.check()
            case Restart(is_clean):
                await rig.log.close()
                await rig.start(is_clean=is_clean, recovery_point=rig.log.recovery_point)
                self.check()

    def _note(self, offset: int, pairs: list[tuple[bytes | None, bytes | None]]) -> list[Record]:
        now_ms = self.rig.clock.now_ms
        records = [
            Record(offset + index, now_ms, key, value) for index, (key, value) in enumerate(pairs)
        ]
        self.written += records
        return records

    def check(self) -> None:
        rig = self.rig
        assert rig.cleaner.uncleanable == {}
        assert rig.owner.failures == []
        stable_offset = rig.log.last_stable_offset
        seen = [
            record
            for record in self.written
            if record.offset < stable_offset and record not in self.aborted
        ]
        kept = records_in(rig.log)
        assert kept == [record for record in self.written if record in kept], "changed or moved"
        by_committed_readers = committed(rig.log)
        assert [record for record in by_committed_readers if record in self.aborted] == []
        assert state_of(by_committed_readers) == state_of(seen)
        clean_until = rig.cleaner.clean_until(rig.log) or 0
        for record in self.written:
            if record.offset >= clean_until and record not in self.aborted:
                assert record in kept, "not cleaned yet, and gone"


async def live(operations: list[object], segment_bytes: int) -> int:
    disk = MemoryDisk()
    await disk.make_directory("/data")
    config = replace(COMPACTED, segment_bytes=segment_bytes, delete_retention_ms=1_000)
    rig = CompactedRig(disk, "/data", config)
    await rig.start()
    history = History(rig)
    for operation in operations:
        await history.do(operation)
    for producer_id in (1, 2, 3):
        await history.do(End(producer_id, is_commit=True))
    rounds = 0
    while await rig.clean():
        history.check()
        rounds += 1
        assert rounds <= rig.log.log_end_offset, "every cleaning goes further"
    # All is clean and decided: of each key one record is left at most.
    keys = [record.key for record in records_in(rig.log)]
    assert len(keys) == len({*keys})
    return len(history.written) - len(keys)


@given(st.lists(OPERATIONS, max_size=40), st.sampled_from([1_024, 2_000]))
def test_cleaning_changes_nothing_that_a_reader_ends_up_with(
    operations: list[object], segment_bytes: int
) -> None:
    """LOG-107, LOG-112, LOG-115."""
    trio.run(live, operations, segment_bytes)


def test_the_model_is_not_vacuous() -> None:
    """A history in which all of it happens, and most records go."""
    operations: list[object] = []
    for turn in range(12):
        operations += [
            Put([(b"a", b"%d" % turn), (b"b", None)], Codec.GZIP),
            PutInTransaction(1, [(b"c", b"%d" % turn), (b"a", b"x")], Codec.NONE),
            PutInTransaction(2, [(b"d", b"%d" % turn)], Codec.LZ4),
            End(1, is_commit=turn % 2 == 0),
            Clean(5),
            Wait(500),
            Restart(is_clean=turn % 3 == 0),
            Clean(1_000),
        ]
    assert trio.run(live, operations, 1_024) > 50
