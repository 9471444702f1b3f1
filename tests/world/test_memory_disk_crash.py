"""JEP-142: what is durable, and the seven policies of power loss, on small cases made by hand."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import trio

from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk, MemoryFile, PowerLost, Recording
from kraftpy.world.memory_disk_crash import CrashPolicy, draw_crash_policy, sectors
from kraftpy.world.memory_disk_effects import (
    Create,
    NameEffect,
    PowerLoss,
    Remove,
    Rename,
    Resize,
    Sync,
    UnsyncedEffect,
    Write,
)
from kraftpy.world.memory_disk_faults import SlowDisk

SEEDS = range(200)


def create(disk: MemoryDisk, path: str, content: bytes = b"") -> MemoryFile:
    file = disk.open(path, write=True, create=True)
    assert isinstance(file, MemoryFile)
    file.pwrite([content], 0)
    return file


async def create_durably(disk: MemoryDisk, path: str, content: bytes = b"") -> MemoryFile:
    file = create(disk, path, content)
    await file.sync()
    await disk.sync_directory(path.rpartition("/")[0] or "/")
    return file


def tree(disk: MemoryDisk) -> dict[str, bytes]:
    """Every file's path and content."""
    return {path: inode.seen.read(inode.seen.size, 0) for path, inode in disk.image.files()}


def crashed(disk: MemoryDisk, policy: CrashPolicy, seed: int = 0) -> dict[str, bytes]:
    """What a crash would leave; the disk itself goes on."""
    copy = disk.copy()
    copy.crash(policy, Random(seed))
    return tree(copy)


def outcomes(disk: MemoryDisk, policy: CrashPolicy) -> list[dict[str, bytes]]:
    """All different trees that many seeds leave."""
    found: list[dict[str, bytes]] = []
    for seed in SEEDS:
        left = crashed(disk, policy, seed)
        if left not in found:
            found.append(left)
    return found


# What is durable.


async def test_data_is_durable_by_sync_of_the_file_and_its_name_by_sync_of_the_directory() -> None:
    disk = MemoryDisk()
    file = create(disk, "/f", b"abc")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {}
    await file.sync()
    # Without a durable name, durable bytes are of no use.
    assert crashed(disk, CrashPolicy.DROP_ALL) == {}
    await disk.sync_directory("/")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b"abc"}
    file.pwrite([b"def"], 3)
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b"abc"}
    await file.sync_data()
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b"abcdef"}
    file.truncate(1)
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b"abcdef"}
    await file.sync()
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b"a"}


async def test_a_synced_name_of_an_unsynced_file_is_an_empty_file() -> None:
    disk = MemoryDisk()
    create(disk, "/f", b"abc")
    await disk.sync_directory("/")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b""}


async def test_syncing_one_file_or_directory_leaves_others_unsynced() -> None:
    disk = MemoryDisk()
    await disk.make_directory("/a")
    await disk.make_directory("/b")
    await disk.sync_directory("/")
    first = await create_durably(disk, "/a/f", b"old")
    second = await create_durably(disk, "/b/f", b"old")
    first.pwrite([b"new"], 0)
    second.pwrite([b"new"], 0)
    create(disk, "/a/g")
    create(disk, "/b/g")
    await first.sync()
    await disk.sync_directory("/b")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {
        "/a/f": b"new",
        "/b/f": b"old",
        "/b/g": b"",
    }


async def test_a_new_directory_is_durable_when_its_parent_is_synced() -> None:
    disk = MemoryDisk()
    await disk.make_directory("/a/b")
    await create_durably(disk, "/a/b/f", b"abc")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {}
    await disk.sync_directory("/")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {}
    await disk.sync_directory("/a")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/a/b/f": b"abc"}


async def test_rename_is_durable_when_its_directory_is_synced() -> None:
    disk = MemoryDisk()
    await create_durably(disk, "/checkpoint", b"old")
    file = create(disk, "/checkpoint.tmp", b"new")
    await file.sync()
    await disk.rename("/checkpoint.tmp", "/checkpoint")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/checkpoint": b"old"}
    await disk.sync_directory("/")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/checkpoint": b"new"}


async def test_unlink_is_durable_when_its_directory_is_synced() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f", b"abc")
    await disk.unlink("/f")
    # The bytes come back with the name, and so do those written without a name.
    file.pwrite([b"X"], 0)
    await file.sync()
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b"Xbc"}
    await disk.sync_directory("/")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {}


@pytest.mark.parametrize("synced", ["/a", "/b"])
async def test_rename_across_directories_is_one_effect(synced: str) -> None:
    """Never both names, never none; either directory's sync makes it durable."""
    disk = MemoryDisk()
    await disk.make_directory("/a")
    await disk.make_directory("/b")
    await disk.sync_directory("/")
    await create_durably(disk, "/a/f", b"abc")
    await disk.rename("/a/f", "/b/g")
    for policy in CrashPolicy:
        for left in outcomes(disk, policy):
            assert left in ({"/a/f": b"abc"}, {"/b/g": b"abc"})
    await disk.sync_directory(synced)
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/b/g": b"abc"}
    assert disk.effects() == []


async def test_removal_of_a_directory_takes_what_it_builds_on_with_it() -> None:
    disk = MemoryDisk()
    await disk.make_directory("/a")
    await disk.sync_directory("/")
    await create_durably(disk, "/a/f", b"abc")
    await disk.rename("/a/f", "/f")
    await disk.remove_directory("/a")
    for policy in CrashPolicy:
        for left in outcomes(disk, policy):
            assert left in ({"/a/f": b"abc"}, {"/f": b"abc"})
    await disk.sync_directory("/")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b"abc"}


async def test_a_lost_rename_never_takes_a_synced_file_with_it() -> None:
    """Names that are used again: f is moved away and created anew, directories change places."""
    disk = MemoryDisk()
    await disk.make_directory("/a/p/x")
    await disk.make_directory("/q")
    for path in ("/", "/a", "/a/p"):
        await disk.sync_directory(path)
    await create_durably(disk, "/a/p/x/deep", b"deep")
    await create_durably(disk, "/f", b"old")
    await disk.rename("/f", "/g")
    create(disk, "/f", b"new")
    await disk.rename("/a/p/x", "/q/x")
    await disk.rename("/a", "/q/x/a")
    effects = disk.effects()
    names = [effect for effect in effects if isinstance(effect, NameEffect)]
    for chosen in range(2 ** len(names)):
        copy = disk.copy()
        copy.crash_keeping([name for bit, name in enumerate(names) if chosen >> bit & 1])
        contents = list(tree(copy).values())
        assert contents.count(b"old") == 1
        assert contents.count(b"deep") == 1
    await disk.sync_directory("/")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {
        "/f": b"",
        "/g": b"old",
        "/q/x/deep": b"deep",
    }


async def test_a_rename_never_replaces_what_it_did_not_replace() -> None:
    """b made room for a; if only a's rename survived, it would take b's synced bytes with it."""
    disk = MemoryDisk()
    await create_durably(disk, "/a", b"a")
    await create_durably(disk, "/b", b"b")
    await disk.rename("/b", "/c")
    await disk.rename("/a", "/b")
    first, second = disk.effects()
    for survivors, left in (
        ([first], {"/a": b"a", "/c": b"b"}),
        ([second], {"/a": b"a", "/b": b"b"}),
        ([first, second], {"/b": b"a", "/c": b"b"}),
    ):
        copy = disk.copy()
        copy.crash_keeping(survivors)
        assert tree(copy) == left


async def test_a_sync_covers_what_was_issued_before_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk(clock=MemoryClock())
    file = await create_durably(disk, "/f", b"....")
    disk.inject(SlowDisk(least_seconds=2))
    file.pwrite([b"a"], 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.sync)
        nursery.start_soon(disk.sync_directory, "/")
        await trio.sleep(1)
        file.pwrite([b"b"], 1)
        create(disk, "/g")
        assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b"...."}
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b"a..."}
    assert crashed(disk, CrashPolicy.KEEP_ALL) == {"/f": b"ab..", "/g": b""}


async def test_power_lost_during_a_sync(autojump_clock: trio.testing.MockClock) -> None:
    """The sync ends at once, it has done nothing, and a cancelled task leaves without delay."""
    disk = MemoryDisk(clock=MemoryClock())
    file = await create_durably(disk, "/f", b"....")
    disk.inject(SlowDisk(least_seconds=1000))
    file.pwrite([b"a"], 0)
    ended: list[str] = []

    async def sync() -> None:
        with pytest.raises(PowerLost):
            await file.sync()
        ended.append("sync")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sync)
        nursery.start_soon(sync)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
        disk.power_off()
    assert ended == ["sync", "sync"]
    assert trio.current_time() < 10
    disk.crash(CrashPolicy.DROP_ALL, Random(0))
    assert tree(disk) == {"/f": b"...."}


async def test_a_sync_under_way_is_awaited_though_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk(clock=MemoryClock())
    file = await create_durably(disk, "/f", b"....")
    disk.inject(SlowDisk(least_seconds=10))
    file.pwrite([b"a"], 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.sync)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b"a..."}


# The policies.


async def test_drop_all_and_keep_all() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f", b"abc")
    file.pwrite([b"XY"], 2)
    file.truncate(3)
    create(disk, "/g", b"new")
    assert crashed(disk, CrashPolicy.DROP_ALL) == {"/f": b"abc"}
    assert crashed(disk, CrashPolicy.KEEP_ALL) == {"/f": b"abX", "/g": b"new"} == tree(disk)


async def test_prefix_is_in_issue_order_over_files_and_names() -> None:
    disk = MemoryDisk()
    first = await create_durably(disk, "/f", b"")
    second = await create_durably(disk, "/g", b"")
    first.pwrite([b"1"], 0)
    second.pwrite([b"2"], 0)
    await disk.rename("/g", "/h")
    first.pwrite([b"3"], 1)
    prefixes: list[dict[str, bytes]] = [
        {"/f": b"", "/g": b""},
        {"/f": b"1", "/g": b""},
        {"/f": b"1", "/g": b"2"},
        {"/f": b"1", "/h": b"2"},
        {"/f": b"13", "/h": b"2"},
    ]
    found = outcomes(disk, CrashPolicy.PREFIX)
    assert len(found) == len(prefixes)
    assert all(left in prefixes for left in found)


async def test_subset_keeps_sectors_each_for_itself() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f", bytes(8192))
    file.pwrite([b"1" * 8192], 0)
    file.pwrite([b"2" * 1024], 512)
    seen = []
    for left in outcomes(disk, CrashPolicy.SUBSET):
        content = left["/f"]
        for start in range(0, 8192, 512):
            sector = content[start : start + 512]
            allowed = (0, ord("1"), ord("2")) if start in (512, 1024) else (0, ord("1"))
            assert sector in [bytes([byte]) * 512 for byte in allowed]
        seen.append(tuple(content[start] for start in range(0, 8192, 512)))
    # The later write survived the earlier one, and sectors of one write had different fates.
    assert any(sector[1] == ord("2") and sector[0] == 0 for sector in seen)
    assert any(sector[1] != sector[2] for sector in seen)
    # Both sizes of sectors are drawn.
    assert any(len(set(sector[8:])) > 1 for sector in seen)
    assert any(len(set(sector[8:])) == 1 and sector[8] != sector[7] for sector in seen)


def test_sectors_are_cut_at_the_files_sectors() -> None:
    write = Write(9, 1, "/f", 500, bytes(range(100)) * 10, 0)
    parts = sectors(write, 512)
    assert [(part.position, len(part.data)) for part in parts] == [
        (500, 12),
        (512, 512),
        (1024, 476),
    ]
    assert b"".join(part.data for part in parts) == write.data
    assert all(part.effect_id == 9 for part in parts)


async def test_subset_leaves_holes() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f")
    file.pwrite([b"1" * 512], 0)
    file.pwrite([b"2" * 512], 512)
    assert {"/f": bytes(512) + b"2" * 512} in outcomes(disk, CrashPolicy.SUBSET)


async def test_subset_chooses_among_names_and_sizes_too() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f", b"abc")
    file.truncate(1)
    await create(disk, "/g").sync()
    await disk.rename("/f", "/h")
    found = outcomes(disk, CrashPolicy.SUBSET)
    assert len(found) == 8
    assert {"/h": b"abc", "/g": b""} in found


async def test_torn_last_cuts_the_last_write() -> None:
    disk = MemoryDisk()
    first = await create_durably(disk, "/f")
    second = await create_durably(disk, "/g")
    second.pwrite([b"whole"], 0)
    first.pwrite([b"0123456789"], 2)
    second.truncate(1)
    await disk.unlink("/g")
    found = outcomes(disk, CrashPolicy.TORN_LAST)
    assert len(found) == 10
    for left in found:
        assert left["/g"] == b"whole"
        assert len(left["/f"]) < 12
        assert (bytes(2) + b"0123456789").startswith(left["/f"])
    assert {"/f": b"", "/g": b"whole"} in found


async def test_torn_last_without_a_write_keeps_all() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f", b"abc")
    file.truncate(1)
    assert outcomes(disk, CrashPolicy.TORN_LAST) == [{"/f": b"a"}]


async def test_size_first_keeps_lengths_and_not_bytes() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f", b"durable")
    file.pwrite([b"XXX"], 0)
    file.pwrite([b"YYYYYY"], 5)
    create(disk, "/g", b"abcdefgh")
    found = outcomes(disk, CrashPolicy.SIZE_FIRST)
    for left in found:
        # Old bytes stay where the file did not grow.
        assert left["/f"].startswith(b"durable")
        assert len(left["/f"]) == 11
        assert len(left["/g"]) == 8
        assert set(left["/f"][7:]) <= set(b"\0XYabcdefgh")
    assert {"/f": b"durable\0\0\0\0", "/g": bytes(8)} in found
    assert any(left["/f"][7:].isalpha() and left["/g"] == bytes(8) for left in found)


async def test_size_first_keeps_truncations_and_names() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f", b"abcdef")
    file.truncate(2)
    await disk.rename("/f", "/g")
    assert outcomes(disk, CrashPolicy.SIZE_FIRST) == [{"/g": b"ab"}]


async def test_dir_lag_loses_names_or_the_reverse() -> None:
    """The checkpoint that was renamed before its bytes were synced, or its directory not at all."""
    disk = MemoryDisk()
    await create_durably(disk, "/checkpoint", b"old")
    create(disk, "/checkpoint.tmp", b"new")
    await disk.rename("/checkpoint.tmp", "/checkpoint")
    found = outcomes(disk, CrashPolicy.DIR_LAG)
    expected: list[dict[str, bytes]] = [
        {"/checkpoint": b"old"},
        {"/checkpoint": b"old", "/checkpoint.tmp": b"new"},
        {"/checkpoint": b""},
    ]
    assert len(found) == len(expected)
    assert all(left in found for left in expected)


async def test_dir_lag_holds_each_directory_back_by_itself() -> None:
    disk = MemoryDisk()
    for directory in ("/a", "/b"):
        await disk.make_directory(directory)
    await disk.sync_directory("/")
    for directory in ("/a", "/b"):
        for name in ("1", "2"):
            create(disk, f"{directory}/{name}", b"x")
    named = [
        tuple(left) for left in outcomes(disk, CrashPolicy.DIR_LAG) if b"" not in left.values()
    ]
    assert sorted(named) == [(), ("/a/1",), ("/a/1", "/b/1"), ("/b/1",)]


def test_every_policy_is_drawn() -> None:
    random = Random(1)
    drawn = {draw_crash_policy(random) for _ in range(100)}
    assert drawn == set(CrashPolicy)
    assert [policy.value for policy in CrashPolicy] == [
        "drop-all",
        "keep-all",
        "prefix",
        "subset",
        "torn-last",
        "size-first",
        "dir-lag",
    ]


@pytest.mark.parametrize("policy", CrashPolicy)
async def test_same_seed_same_outcome(policy: CrashPolicy) -> None:
    disk = MemoryDisk()
    for number in range(5):
        file = create(disk, f"/{number}", bytes([number]) * 5000)
        file.truncate(1000 * number)
    for seed in range(20):
        assert crashed(disk, policy, seed) == crashed(disk, policy, seed)


# Incarnations.


async def test_after_a_crash_everything_of_the_old_incarnation_is_dead() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f", b"abc")
    lock = disk.lock("/.lock")
    disk.crash(CrashPolicy.KEEP_ALL, Random(0))
    calls: list[Callable[[], object]] = [
        file.size,
        lambda: file.pread(1, 0),
        lambda: file.pwrite([b"x"], 0),
        lambda: file.truncate(0),
        lambda: file.resident(0, 1),
    ]
    for call in calls:
        with pytest.raises(PowerLost):
            call()
    for wait in (file.sync, file.sync_data):
        with pytest.raises(PowerLost):
            await wait()
    with pytest.raises(PowerLost):
        await file.read(1, 0)
    file.close()
    # The next incarnation takes the lock, which the old one's release does not free.
    disk.lock("/.lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock("/.lock")
    assert tree(disk) == {"/.lock": b"", "/f": b"abc"}


async def test_without_power_nothing_happens() -> None:
    disk = MemoryDisk()
    await create_durably(disk, "/f", b"abc")
    disk.power_off()
    for call in (
        lambda: disk.unlink("/f"),
        lambda: disk.rename("/f", "/g"),
        lambda: disk.make_directory("/d"),
        lambda: disk.sync_directory("/"),
        lambda: disk.stat("/f"),
    ):
        with pytest.raises(PowerLost):
            await call()
    with pytest.raises(PowerLost):
        disk.open("/g", create=True)
    with pytest.raises(PowerLost):
        disk.lock("/.lock")
    disk.crash(CrashPolicy.KEEP_ALL, Random(0))
    assert tree(disk) == {"/f": b"abc"}
    assert disk.open("/f").size() == 3


# Effects, and recordings of them.


async def test_effects_are_told_in_order_and_listed_while_unsynced() -> None:
    disk = MemoryDisk()
    told: list[object] = []
    disk.observe(told.append)
    file = disk.open("/f", write=True, create=True)
    file.pwrite([b"a", b"b"], 3)
    file.truncate(4)
    assert (
        disk.effects()
        == told
        == [
            Create(1, 0, "f", "/f", is_directory=False),
            Write(2, 1, "/f", 3, b"ab", 0),
            Resize(3, 1, "/f", 4),
        ]
    )
    await file.sync()
    assert disk.effects() == told[:1]
    await disk.rename("/f", "/g")
    await disk.unlink("/g")
    assert disk.effects() == [
        told[0],
        Rename(5, 0, "f", "/f", 0, "g", "/g", 1, None, is_directory=False),
        Remove(6, 0, "g", "/g", 1, is_directory=False),
    ]
    await disk.sync_directory("/")
    assert disk.effects() == []
    disk.crash_keeping([])
    assert told[3] == Sync(4, 1, "/f", 3)
    assert told[6:] == [Sync(7, 0, "/", 6), PowerLoss(8, ())]


async def test_crash_keeping_takes_effects_whole_or_in_part() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f", b"......")
    file.pwrite([b"aaa"], 0)
    file.pwrite([b"bbb"], 2)
    first, second = disk.effects()
    assert isinstance(first, Write)
    assert isinstance(second, Write)
    cases: list[tuple[list[UnsyncedEffect], bytes]] = [
        ([second], b"..bbb."),
        ([first, second], b"aabbb."),
        # An older version of a sector may reach the medium last.
        ([second, first], b"aaabb."),
        ([second.between(3, 4)], b"...b.."),
        ([second.between(0, 3)], b"..b..."),
        ([first.between(1, 1)], b"......"),
    ]
    for survivors, content in cases:
        copy = disk.copy()
        copy.crash_keeping(survivors)
        assert tree(copy) == {"/f": content}


async def test_a_recording_gives_the_disk_at_every_moment() -> None:
    """Record and enumerate: also what was opened without a name, across a crash, from a start that
    is not empty.
    """
    disk = MemoryDisk()
    await create_durably(disk, "/before", b"abc")
    recording = Recording(disk)
    moments = [disk.copy()]
    disk.observe(lambda _: moments.append(disk.copy()))
    unnamed = create(disk, "/unnamed", b"1")
    await disk.unlink("/unnamed")
    await disk.sync_directory("/")
    unnamed.pwrite([b"2"], 1)
    await unnamed.sync()
    file = create(disk, "/f.tmp", b"new")
    await file.sync()
    await disk.rename("/f.tmp", "/before")
    disk.crash(CrashPolicy.PREFIX, Random(3))
    await disk.make_directory("/d/e")
    disk.rot("/before", 0, 1)
    await disk.remove_directory("/d/e")
    assert len(moments) == len(recording.effects) + 1
    for count, moment in enumerate(moments):
        replayed = recording.disk_after(count)
        assert tree(replayed) == tree(moment)
        assert crashed(replayed, CrashPolicy.DROP_ALL) == crashed(moment, CrashPolicy.DROP_ALL)
        assert crashed(replayed, CrashPolicy.KEEP_ALL) == crashed(moment, CrashPolicy.KEEP_ALL)
        assert replayed.image.next_effect_id == moment.image.next_effect_id


async def test_inodes_that_nobody_can_bring_back_are_dropped() -> None:
    """A disk that is used for long does not grow with what was deleted."""
    disk = MemoryDisk()
    for _ in range(3):
        file = create(disk, "/segment", b"never synced")
        await disk.unlink("/segment")
        file.close()
        assert disk.effects() != []
        await disk.sync_directory("/")
        assert disk.effects() == []
        assert list(disk.image.inodes) == [0]
    await disk.make_directory("/a/b")
    await create(disk, "/a/b/f", b"x").sync()
    await disk.unlink("/a/b/f")
    await disk.remove_directory("/a/b")
    await disk.remove_directory("/a")
    await disk.sync_directory("/")
    disk.crash(CrashPolicy.DROP_ALL, Random(0))
    assert list(disk.image.inodes) == [0]


@pytest.mark.timeout(20)
async def test_thousands_of_appends_cost_what_they_write() -> None:
    """If each append or sync copied the file, this would move 400 GB."""
    disk = MemoryDisk()
    file = await create_durably(disk, "/f")
    chunk = bytes(1000)
    for index in range(20_000):
        file.pwrite([chunk], 1000 * index)
        if index % 10 == 0:
            await file.sync()
    assert len(disk.effects()) == 9
    disk.crash(CrashPolicy.DROP_ALL, Random(0))
    assert disk.open("/f").size() == 1000 * 19_991
