"""LOG-114: a loss of power at every moment of a cleaning loses nothing and doubles nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from cleaning_rig import COMPACTED, CompactedRig, committed, keyed, records_in, state_of
from log_rig import marker

from kraftpy.records.reader import Record
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.memory_disk import MemoryDisk, Recording
from kraftpy.world.memory_disk_crash import CrashPolicy

SEED = 15
EVERYWHERE = (CrashPolicy.DROP_ALL, CrashPolicy.KEEP_ALL, CrashPolicy.SUBSET)
# Tombstones and markers go with the cleaning after the one that stamps them.
CONFIG = replace(COMPACTED, segment_bytes=400, delete_retention_ms=0)


async def prepare() -> CompactedRig:
    """A synced log that was cleaned once, with tombstones and markers about to go, and dirt."""
    disk = MemoryDisk()
    await disk.make_directory("/data")
    await disk.sync_directory("/")
    rig = CompactedRig(disk, "/data", CONFIG)
    await rig.start()
    write(rig, 0)
    assert await rig.clean()
    write(rig, 1)
    rig.log.roll()
    await rig.log.flush()
    # So that the next cleaning makes one of several.
    rig.log.config = replace(CONFIG, segment_bytes=800)
    return rig


def write(rig: CompactedRig, turn: int) -> None:
    for number in range(6):
        rig.put(b"k%d" % number, b"%d" % turn)
    rig.put(b"k0", None)
    rig.put(b"once%d" % turn, b"x")
    for sequence in range(3):
        rig.append(
            keyed(
                (b"k1", b"bad"),
                (b"k5", b"bad"),
                producer_id=7,
                producer_epoch=0,
                sequence=(turn * 3 + sequence) * 2,
                is_transactional=True,
            )
        )
    rig.append(marker(7, 0, is_commit=False), origin=AppendOrigin.COORDINATOR)
    rig.put(b"k2", None)


async def check(disk: MemoryDisk, before: list[Record], end_offset: int) -> None:
    """Loads, holds what it should, can be cleaned, and loads again."""
    rig = CompactedRig(disk, "/data", CONFIG)
    await rig.start(recovery_point=end_offset)
    assert rig.owner.failures == []
    assert rig.log.log_end_offset == end_offset
    found = records_in(rig.log)
    offsets = [record.offset for record in found]
    assert all(low < high for low, high in pairwise(offsets)), "a record is there twice"
    assert [record for record in found if record not in before] == [], "a record is invented"
    state = state_of(committed(rig.log))
    assert state == EXPECTED
    names = await rig.names()
    assert [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))] == []
    await rig.clean()
    assert rig.cleaner.uncleanable == {}
    assert state_of(committed(rig.log)) == EXPECTED
    kept = records_in(rig.log)
    await rig.start(recovery_point=end_offset)
    assert records_in(rig.log) == kept


EXPECTED = {
    b"k1": b"1",
    b"k3": b"1",
    b"k4": b"1",
    b"k5": b"1",
    b"once0": b"x",
    b"once1": b"x",
}


async def recorded() -> tuple[Recording, list[Record], int]:
    rig = await prepare()
    before = records_in(rig.log)
    assert state_of(committed(rig.log)) == EXPECTED
    assert isinstance(rig.disk, MemoryDisk)
    recording = Recording(rig.disk)
    groups = len(rig.log.segments)
    assert await rig.cleaner.clean_dirtiest()
    assert rig.cleaner.last_report is not None
    assert rig.cleaner.last_report.new_bytes < rig.cleaner.last_report.old_bytes
    assert len(rig.log.segments) < groups
    return recording, before, rig.log.log_end_offset


@pytest.mark.parametrize("policy", list(CrashPolicy))
async def test_power_lost_at_every_effect(policy: CrashPolicy) -> None:
    """LOG-114: every step of the swap protocol, and all between."""
    recording, before, end_offset = await recorded()
    assert len(recording.effects) > 100
    # Those that draw nothing are tried at every place, as is what may keep a later name and lose an
    # earlier one, and that several times; the others at a third of them.
    step = 1 if policy in EVERYWHERE else 3
    first = list(CrashPolicy).index(policy) % step
    for count in range(first, len(recording.effects) + 1, step):
        for draw in range(3 if policy is CrashPolicy.SUBSET else 1):
            disk = recording.disk_after(count)
            disk.crash(policy, Random(SEED * 100_000 + count * 10 + draw))
            try:
                await check(disk, before, end_offset)
            except BaseException as error:
                error.add_note(f"after {count} effects, policy {policy}, seed {SEED}, draw {draw}")
                raise


async def test_power_lost_in_the_recovery_from_a_lost_swap() -> None:
    """LOG-114: again and again, until it is through."""
    recording, before, end_offset = await recorded()
    random = Random(SEED)
    for count in range(0, len(recording.effects) + 1, 12):
        disk = recording.disk_after(count)
        disk.crash(CrashPolicy.KEEP_ALL, random)
        rig = CompactedRig(disk, "/data", CONFIG)
        loading = Recording(disk)
        await rig.start(recovery_point=end_offset)
        for loaded in range(0, len(loading.effects) + 1, 3):
            again = loading.disk_after(loaded)
            again.crash(random.choice(list(CrashPolicy)), random)
            await check(again, before, end_offset)
