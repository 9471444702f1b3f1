"""The enumeration itself: which states it gives, and that equal disks are seen to be equal."""

from __future__ import annotations

from random import Random

import pytest
from log_crash_states import SUBSET_EFFECTS, files_on, fingerprint, survivals

from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_effects import UnsyncedEffect, Write


async def disk_with(writes: int) -> MemoryDisk:
    """One file, synced, and so many writes to it that are not."""
    disk = MemoryDisk()
    file = disk.open("/file", write=True, create=True)
    file.pwrite([b"synced"], 0)
    await file.sync()
    await disk.sync_directory("/")
    for number in range(writes):
        file.pwrite([b"%03d" % number * 200], 6 + 600 * number)
    return disk


@pytest.mark.parametrize("writes", [0, 1, 3, SUBSET_EFFECTS, SUBSET_EFFECTS + 1])
async def test_prefixes_omissions_and_subsets_are_all_there(writes: int) -> None:
    """JEP-152: all prefixes, all single omissions, all subsets of the last eight."""
    effects = (await disk_with(writes)).effects()
    whole = [
        survival.survivors
        for survival in survivals(effects, Random(1))
        if all(effect in effects for effect in survival.survivors)
    ]
    assert len(effects) == writes
    for kept in range(writes + 1):
        assert tuple(effects[:kept]) in whole
    for omitted in range(writes):
        assert tuple(effects[:omitted] + effects[omitted + 1 :]) in whole
    early, late = effects[:-SUBSET_EFFECTS], effects[-SUBSET_EFFECTS:]
    for mask in range(1 << len(late)):
        chosen = [effect for bit, effect in enumerate(late) if mask >> bit & 1]
        assert tuple(early + chosen) in whole


async def test_the_last_write_is_torn_at_sectors_and_elsewhere() -> None:
    effects = (await disk_with(2)).effects()
    pieces: list[tuple[UnsyncedEffect, ...]] = [
        survival.survivors for survival in survivals(effects, Random(1))
    ]
    last = effects[-1]
    assert isinstance(last, Write)
    torn = [
        survivors[1]
        for survivors in pieces
        if len(survivors) == 2 and survivors[0] == effects[0] and survivors[1] != last
    ]
    assert all(isinstance(each, Write) and each.position == last.position for each in torn)
    lengths = [len(each.data) for each in torn if isinstance(each, Write) and any(each.data)]
    # The sector ends at 1024, and the write begins at 606.
    assert {1, 1024 - 606, 599} < set(lengths)
    assert any(isinstance(each, Write) and each.data == bytes(600) for each in torn)


async def test_equal_disks_have_equal_fingerprints() -> None:
    disk, other = await disk_with(2), await disk_with(2)
    assert fingerprint(disk) == fingerprint(other)
    assert files_on(disk) == files_on(other)
    other.open("/file", write=True).pwrite([b"x"], 700)
    assert fingerprint(disk) != fingerprint(other)
    for path in ("/file", "/directory"):
        other = await disk_with(2)
        if path == "/file":
            await other.rename(path, "/other")
        else:
            await other.make_directory(path)
        assert fingerprint(disk) != fingerprint(other)
