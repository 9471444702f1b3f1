"""JEP-142: faults of the running disk, and the atlas that keeps a scenario recoverable."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import PurePosixPath
from random import Random

import pytest
import trio

from kraftpy.world import InternalInvariant
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk, MemoryFile
from kraftpy.world.memory_disk_crash import CrashPolicy, draw_crash_policy
from kraftpy.world.memory_disk_effects import Resize, Rot, Write
from kraftpy.world.memory_disk_faults import (
    BitRot,
    ColdCache,
    Damage,
    DiskFault,
    DiskStall,
    FaultAtlas,
    MisdirectedWrite,
    ReadError,
    SlowDisk,
    SyncError,
    WriteError,
)


def create(disk: MemoryDisk, path: str, content: bytes = b"") -> MemoryFile:
    file = disk.open(path, write=True, create=True)
    assert isinstance(file, MemoryFile)
    file.pwrite([content], 0)
    return file


async def create_durably(disk: MemoryDisk, path: str, content: bytes = b"") -> MemoryFile:
    file = create(disk, path, content)
    await file.sync()
    await disk.sync_directory("/")
    return file


def left_by(disk: MemoryDisk, policy: CrashPolicy, path: str) -> bytes:
    copy = disk.copy()
    copy.crash(policy, Random(0))
    return copy.open(path).pread(1_000_000, 0)


def test_every_fault_has_a_name() -> None:
    kinds: list[type[DiskFault]] = [
        ReadError,
        WriteError,
        SyncError,
        BitRot,
        MisdirectedWrite,
        SlowDisk,
        DiskStall,
        ColdCache,
    ]
    assert [kind.name for kind in kinds] == [
        "disk-read-error",
        "disk-write-error",
        "disk-sync-error",
        "disk-bit-rot",
        "disk-misdirected-write",
        "disk-slow",
        "disk-stall",
        "disk-cold",
    ]


# When a fault strikes.


def test_a_fault_strikes_by_path_after_and_count() -> None:
    disk = MemoryDisk()
    log, index = create(disk, "/0.log", b"x"), create(disk, "/0.index", b"x")
    injected = disk.inject(ReadError(paths="*.log", after=2, count=2))

    def fails(file: MemoryFile) -> bool:
        with suppress(OSError):
            return file.pread(1, 0) != b"x"
        return True

    assert [fails(log) for _ in range(6)] == [False, False, True, True, False, False]
    assert not any(fails(index) for _ in range(6))
    assert (injected.seen, injected.struck) == (6, 2)
    second = disk.inject(ReadError(paths="/0.index"))
    assert fails(index)
    disk.heal(second)
    assert not fails(index)
    disk.inject(ReadError())
    disk.heal()
    assert not fails(log)


def test_a_fault_strikes_by_probability_and_seed() -> None:
    def strikes(seed: int) -> list[bool]:
        disk = MemoryDisk(random=Random(seed))
        file = create(disk, "/f", b"x")
        injected = disk.inject(ReadError(probability=0.3))
        struck = []
        for _ in range(1000):
            before = injected.struck
            with suppress(OSError):
                file.pread(1, 0)
            struck.append(injected.struck > before)
        return struck

    assert strikes(1) == strikes(1)
    assert strikes(1) != strikes(2)
    assert 250 < sum(strikes(1)) < 350


def test_a_probability_is_a_probability() -> None:
    for probability in (-0.1, 1.1):
        with pytest.raises(InternalInvariant):
            MemoryDisk().inject(ReadError(probability=probability))


async def test_read_error() -> None:
    disk = MemoryDisk()
    file = create(disk, "/f", b"abc")
    disk.inject(ReadError(count=3))
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.pread(1, 0)
    with pytest.raises(OSError, match="Input/output"):
        await file.read(1, 0)
    assert file.pread(3, 0) == b"abc"


async def test_same_seed_same_history() -> None:
    """All faults at once, and crashes of all kinds: twice the same effects, to the last byte."""

    async def history(seed: int) -> list[object]:
        random = Random(seed)
        disk = MemoryDisk(random=random)
        told: list[object] = []
        disk.observe(told.append)
        for kind in (ReadError, WriteError, SyncError, BitRot, MisdirectedWrite):
            disk.inject(kind(probability=0.2))
        for step in range(300):
            with suppress(OSError):
                file = disk.open(f"/{random.randrange(5)}", write=True, create=True)
                file.pwrite([random.randbytes(random.randrange(2000))], random.randrange(2000))
                file.pread(4000, 0)
                await random.choice([file.sync, lambda: disk.sync_directory("/")])()
                await disk.rename(f"/{random.randrange(5)}", f"/{random.randrange(5)}")
            if step % 30 == 29:
                disk.crash(draw_crash_policy(random), random)
        return told

    assert await history(1) == await history(1)
    assert await history(1) != await history(2)


# Writes.


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_write_error_leaves_a_prefix(code: int) -> None:
    lengths = set()
    for seed in range(50):
        disk = MemoryDisk(random=Random(seed))
        file = create(disk, "/f", b"ab")
        disk.inject(WriteError(error=code, count=1))
        with pytest.raises(OSError, match=rf"\[Errno {code}\]"):
            file.pwrite([b"cd", b"ef"], 2)
        left = file.pread(100, 0)
        assert b"abcdef".startswith(left)
        lengths.add(len(left))
        file.truncate(2)
        file.pwrite([b"cdef"], 2)
        assert file.pread(100, 0) == b"abcdef"
    assert lengths == {2, 3, 4, 5}


async def test_capacity() -> None:
    disk = MemoryDisk(capacity_bytes=10)
    first, second = create(disk, "/f", b"012345"), create(disk, "/g")
    space = await disk.space("/")
    assert (space.total_bytes, space.usable_bytes) == (10, 4)
    with pytest.raises(OSError, match="No space left"):
        second.pwrite([b"abcdefgh"], 0)
    assert second.pread(100, 0) == b"abcd"
    with pytest.raises(OSError, match="No space left"):
        second.pwrite([b"e"], 4)
    assert second.size() == 4
    # What is there already can be written over, and preallocation takes no room.
    first.pwrite([b"543210"], 0)
    first.truncate(1000)
    assert (await disk.space("/")).usable_bytes == 0
    first.truncate(5)
    second.pwrite([b"e"], 4)
    with pytest.raises(OSError, match="No space left"):
        second.pwrite([b"f"], 5)
    # Unlinked bytes are free when the last handle is closed.
    await disk.unlink("/f")
    assert (await disk.space("/")).usable_bytes == 0
    first.close()
    assert (await disk.space("/")).usable_bytes == 5
    disk.capacity_bytes = 3
    assert (await disk.space("/")).usable_bytes == 0
    second.pwrite([b"ABCDE"], 0)
    with pytest.raises(OSError, match="No space left"):
        second.pwrite([b"f"], 5)


# Syncs.


async def test_a_failed_sync_loses_what_it_covered_and_the_next_one_succeeds() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f", b"....")
    disk.inject(SyncError(count=1))
    file.pwrite([b"a"], 0)
    with pytest.raises(OSError, match="Input/output"):
        await file.sync()
    assert disk.effects() == []
    file.pwrite([b"b"], 1)
    await file.sync()
    # Seen until the power goes, and never durable: the second sync was a lie about the first write.
    assert file.pread(4, 0) == b"ab.."
    for policy in CrashPolicy:
        assert left_by(disk, policy, "/f") == b".b.."


async def test_a_failed_sync_may_show_the_loss_at_once() -> None:
    disk = MemoryDisk()
    file = await create_durably(disk, "/f", b"....")
    disk.inject(SyncError(count=1, reverted=True))
    file.pwrite([b"abcdefgh"], 0)
    with pytest.raises(OSError, match="Input/output"):
        await file.sync()
    assert file.pread(100, 0) == b"...."


async def test_a_failed_sync_spares_what_was_issued_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk(clock=MemoryClock())
    file = await create_durably(disk, "/f", b"....")
    disk.inject(SlowDisk(least_seconds=2))
    disk.inject(SyncError(count=1, reverted=True))
    file.pwrite([b"a"], 0)
    async with trio.open_nursery() as nursery:

        async def fail() -> None:
            with pytest.raises(OSError, match="Input/output"):
                await file.sync()

        nursery.start_soon(fail)
        await trio.sleep(1)
        file.pwrite([b"b"], 1)
    assert file.pread(4, 0) == b".b.."
    await file.sync()
    assert left_by(disk, CrashPolicy.DROP_ALL, "/f") == b".b.."


async def test_a_failed_sync_of_a_directory_loses_its_names() -> None:
    disk = MemoryDisk()
    await create_durably(disk, "/f", b"old")
    tmp = create(disk, "/f.tmp", b"new")
    await tmp.sync()
    await disk.rename("/f.tmp", "/f")
    disk.inject(SyncError(paths="/", count=1))
    with pytest.raises(OSError, match="Input/output"):
        await disk.sync_directory("/")
    await disk.sync_directory("/")
    assert disk.open("/f").pread(3, 0) == b"new"
    assert left_by(disk, CrashPolicy.KEEP_ALL, "/f") == b"old"


# Damage.


async def test_rot_is_sticky() -> None:
    """Durable and unsynced bytes alike, through syncs and crashes, until they are written again."""
    disk = MemoryDisk(random=Random(5))
    file = await create_durably(disk, "/f", bytes(8))
    file.pwrite([bytes(8)], 8)
    told: list[object] = []
    disk.observe(told.append)
    injected = disk.inject(BitRot(count=2))
    first = file.pread(8, 0)
    second = file.pread(8, 8)
    assert injected.struck == 2
    assert sum(byte.bit_count() for byte in first) == 1
    assert sum(byte.bit_count() for byte in second) == 1
    assert [type(effect) for effect in told] == [Rot, Rot]
    assert file.pread(16, 0) == first + second
    assert left_by(disk, CrashPolicy.DROP_ALL, "/f") == first
    assert left_by(disk, CrashPolicy.KEEP_ALL, "/f") == first + second
    await file.sync()
    assert left_by(disk, CrashPolicy.DROP_ALL, "/f") == first + second
    file.pwrite([bytes(16)], 0)
    assert file.pread(16, 0) == bytes(16)


def test_rot_stays_within_what_is_read() -> None:
    for seed in range(50):
        disk = MemoryDisk(random=Random(seed))
        file = create(disk, "/f", bytes(100))
        injected = disk.inject(BitRot(count=1))
        assert file.pread(10, 1000) == b""
        assert injected.struck == 0
        file.pread(2, 50)
        content = file.pread(100, 0)
        assert content.count(0) == 99
        assert content[50] or content[51]


def test_a_byte_is_damaged_on_request() -> None:
    disk = MemoryDisk()
    create(disk, "/f", b"abc")
    assert disk.rot("/f", 1, 0b11)
    assert disk.open("/f").pread(3, 0) == b"aac"


async def test_a_misdirected_write_lands_elsewhere() -> None:
    landed_in = set()
    for seed in range(40):
        disk = MemoryDisk(random=Random(seed))
        await create_durably(disk, "/other", b"o" * 1000)
        file = await create_durably(disk, "/f", b"f" * 1000)
        disk.inject(MisdirectedWrite(count=1))
        assert file.pwrite([b"X" * 600], 1000) == 600
        contents = {path: disk.open(path).pread(10_000, 0) for path in ("/f", "/other")}
        # The file grew as if nothing were wrong.
        assert contents["/f"][1000:] == bytes(600)
        assert len(contents["/other"]) == 1000
        for path, content in contents.items():
            if b"X" in content:
                start = content.index(b"X")
                landed_in.add((path, start))
                assert content.count(b"X") == min(600, 1000 - start)
        assert sum(b"X" in content for content in contents.values()) == 1
        assert [type(effect) for effect in disk.effects()] == [Resize, Write]
        # The next write is right again.
        file.pwrite([b"Y" * 600], 1000)
        assert file.pread(600, 1000) == b"Y" * 600
    assert landed_in == {("/f", 0), ("/f", 512), ("/other", 0), ("/other", 512)}


def test_it_is_known_whether_bytes_have_changed() -> None:
    """Growing changes none; writing over them, cutting them off and rot do."""
    disk = MemoryDisk()
    file = disk.open("/f", write=True, create=True)
    assert isinstance(file, MemoryFile)
    file.pwrite([b"abc"], 0)
    file.pwrite([b"def"], 3)
    file.truncate(10)
    assert file.content.changes == 0
    # What was zero, and read as such.
    file.pwrite([b"g"], 6)
    file.pwrite([b"x"], 1)
    file.truncate(4)
    assert disk.rot("/f", 0, 1)
    assert file.content.changes == 4


def test_on_an_empty_disk_no_write_can_be_misdirected() -> None:
    disk = MemoryDisk()
    injected = disk.inject(MisdirectedWrite())
    assert create(disk, "/f", b"abc").pread(10, 0) == b"abc"
    assert injected.struck == 0


# The atlas.

_DISKS = ("1", "2", "3")


def atlas_of(clean_replicas: int, unit_bytes: int = 1) -> FaultAtlas:
    return FaultAtlas(
        clean_replicas=clean_replicas, replicas_of=lambda _: _DISKS, unit_bytes=unit_bytes
    )


def test_the_atlas_leaves_enough_clean_replicas() -> None:
    atlas = atlas_of(clean_replicas=2)
    assert atlas.claim("1", ("/f", 10, 20))
    assert atlas.claim("1", ("/f", 15, 30)), "the same replica again"
    assert not atlas.claim("2", ("/f", 29, 40))
    assert not atlas.claim("2", ("/f", 0, 11))
    assert atlas.claim("2", ("/f", 30, 40))
    assert atlas.claim("3", ("/f", 0, 10))
    assert atlas.claim("3", ("/g", 10, 20))
    assert atlas.damages("2") == [Damage("/f", 30, 40)]
    atlas.forget("1")
    assert atlas.damages("1") == []
    assert atlas.claim("2", ("/f", 10, 20))


def test_the_atlas_refuses_all_or_nothing() -> None:
    atlas = atlas_of(clean_replicas=2)
    assert atlas.claim("1", ("/f", 0, 1))
    assert not atlas.claim("2", ("/g", 0, 1), ("/f", 0, 1))
    assert atlas.damages("2") == []


def test_one_clean_replica_of_three_allows_two_damages() -> None:
    atlas = atlas_of(clean_replicas=1)
    assert atlas.claim("1", ("/f", 0, 1))
    assert atlas.claim("2", ("/f", 0, 1))
    assert not atlas.claim("3", ("/f", 0, 1))
    assert atlas_of(clean_replicas=0).claim("3", ("/f", 0, 1))


def test_damages_within_a_unit_are_one_place() -> None:
    """A batch of up to 100 bytes can't have a wrong byte at 0 and another at 100."""
    atlas = atlas_of(clean_replicas=2, unit_bytes=100)
    assert atlas.claim("1", ("/f", 1000, 1001))
    assert not atlas.claim("2", ("/f", 1099, 1100))
    assert not atlas.claim("2", ("/f", 901, 902))
    assert atlas.claim("2", ("/f", 1100, 1101))
    assert atlas.claim("3", ("/f", 900, 901))


def test_the_atlas_knows_what_is_where() -> None:
    """Segments of other names on other disks hold the same partition; indexes can be rebuilt."""

    def locate(path: str, start: int, end: int) -> Damage | None:
        file = PurePosixPath(path)
        base = int(file.stem)
        return Damage(file.parent.name, base + start, base + end) if file.suffix == ".log" else None

    atlas = FaultAtlas(
        clean_replicas=1,
        replicas_of=lambda key: ("1", "2") if key == "t-0" else ("2", "3"),
        locate=locate,
    )
    assert atlas.claim("1", ("/data/t-0/000.log", 500, 501))
    assert not atlas.claim("2", ("/data/t-0/400.log", 100, 101))
    assert atlas.claim("2", ("/data/t-0/400.log", 101, 102))
    assert atlas.claim("2", ("/data/t-0/400.index", 100, 101))
    assert atlas.claim("3", ("/data/t-1/000.log", 500, 501))
    assert not atlas.claim("2", ("/data/t-1/000.log", 500, 501))
    # A disk that is no replica can't take one away.
    assert atlas.claim("3", ("/data/t-0/000.log", 500, 501))


def test_rot_and_misdirection_ask_the_atlas() -> None:
    """Faults as frequent as can be, on three disks: some replica of each byte stays clean."""
    atlas = atlas_of(clean_replicas=1)
    disks = [
        MemoryDisk(name=name, atlas=atlas, random=Random(seed)) for seed, name in enumerate(_DISKS)
    ]
    content = bytes(range(250)) * 10
    files = [create(disk, "/f", content) for disk in disks]
    injected = [disk.inject(BitRot()) for disk in disks]
    injected += [disk.inject(MisdirectedWrite()) for disk in disks]
    for _ in range(30):
        for file in files:
            file.pread(2500, 0)
            file.pwrite([content[500:1000]], 500)
    for disk in disks:
        disk.heal()
    assert all(fault.struck for fault in injected[:3])
    assert any(fault.struck for fault in injected[3:])
    replicas = [file.pread(2500, 0) for file in files]
    for position, byte in enumerate(content):
        assert any(replica[position] == byte for replica in replicas), position
    assert sum(replica != content for replica in replicas) >= 2


def test_refused_damage_does_not_count() -> None:
    disk = MemoryDisk(name="1", atlas=atlas_of(clean_replicas=3))
    file = create(disk, "/f", b"abc")
    rot = disk.inject(BitRot(count=1))
    stray = disk.inject(MisdirectedWrite(count=1))
    file.pwrite([b"def"], 3)
    assert file.pread(100, 0) == b"abcdef"
    assert not disk.rot("/f", 0, 1)
    assert (rot.struck, stray.struck) == (0, 0)
    assert disk.open("/f").pread(100, 0) == b"abcdef"


# Time.


async def test_a_slow_disk(autojump_clock: trio.testing.MockClock) -> None:
    clock = MemoryClock()
    disk = MemoryDisk(clock=clock, random=Random(1))
    file = create(disk, "/f", b"abc")
    await file.sync()
    assert clock.monotonic() == 0
    slow = disk.inject(SlowDisk(paths="/f", least_seconds=2))
    for call in (
        file.sync,
        file.sync_data,
        lambda: file.read(1, 0),
        lambda: file.warm(0, 1),
        lambda: disk.stat("/f"),
        lambda: disk.unlink("/f"),
    ):
        before = clock.monotonic()
        await call()
        assert clock.monotonic() - before == pytest.approx(2)
    # What never waits does not wait now.
    before = clock.monotonic()
    file.pwrite([b"x"], 0)
    file.pread(1, 0)
    await disk.list_directory("/")
    assert clock.monotonic() == before
    disk.heal(slow)
    disk.inject(SlowDisk(least_seconds=1, mean_more_seconds=3))
    took = []
    for _ in range(300):
        before = clock.monotonic()
        await file.sync()
        took.append(clock.monotonic() - before)
    assert min(took) >= 1
    assert 3.5 < sum(took) / len(took) < 4.5


async def test_a_stall_holds_up_the_whole_disk(autojump_clock: trio.testing.MockClock) -> None:
    clock = MemoryClock()
    disk = MemoryDisk(clock=clock)
    first, second = create(disk, "/f"), create(disk, "/g")
    disk.inject(DiskStall(paths="/f", count=1, seconds=30))
    ended: list[float] = []

    async def sync(file: MemoryFile, after_seconds: float) -> None:
        await trio.sleep(after_seconds)
        await file.sync()
        ended.append(clock.monotonic())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sync, first, 1)
        nursery.start_soon(sync, second, 0.5)
        nursery.start_soon(sync, second, 5)
        nursery.start_soon(sync, first, 20)
        nursery.start_soon(sync, first, 40)
    assert ended == pytest.approx([0.5, 31, 31, 31, 40])


def test_slowness_needs_a_clock() -> None:
    for fault in (SlowDisk(least_seconds=1), DiskStall(seconds=1)):
        with pytest.raises(InternalInvariant):
            MemoryDisk().inject(fault)


async def test_times_are_the_clocks(autojump_clock: trio.testing.MockClock) -> None:
    clock = MemoryClock()
    disk = MemoryDisk(clock=clock)
    file = create(disk, "/f", b"abc")
    created_ms = clock.wall_ms()
    await trio.sleep(5)
    assert (await disk.stat("/f")).modified_ms == created_ms
    file.truncate(1)
    assert (await disk.stat("/f")).modified_ms == created_ms + 5000
    assert (await disk.stat("/")).modified_ms == created_ms
    await disk.rename("/f", "/g")
    assert (await disk.stat("/")).modified_ms == created_ms + 5000


def test_a_cold_cache() -> None:
    disk = MemoryDisk()
    file = create(disk, "/f", b"abc")
    assert file.resident(0, 3)
    disk.inject(ColdCache(count=1))
    assert not file.resident(0, 3)
    assert file.resident(0, 3)
