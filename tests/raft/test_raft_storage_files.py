"""The files of the metadata log: their names and bytes, damage, and what wrong use meets."""

from __future__ import annotations

from random import Random
from zlib import crc32

import pytest
from raft_cluster import config_of, key_of
from storage_rig import (
    STATIC,
    DiskSubject,
    contents,
    data_batch,
    open_at,
    promise_of,
    snapshot_of,
)

from kraftpy.log.errors import InconsistentTopicIdError, StorageError
from kraftpy.raft import effects as fx
from kraftpy.raft.core import RaftCore
from kraftpy.raft.durable_end import DURABLE_END
from kraftpy.raft.election_state import ElectionState, QuorumStateError
from kraftpy.raft.inputs import Propose
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT, Batch, SnapshotId
from kraftpy.raft.quorum_state_file import QUORUM_STATE, QuorumStateFile
from kraftpy.raft.roles import Leader
from kraftpy.raft.snapshot_files import (
    CorruptSnapshotFileError,
    SnapshotFiles,
    parse_snapshot_name,
    snapshot_name,
)
from kraftpy.raft.storage import RaftStorage
from kraftpy.sim.quorum_nemesis import snapshot_bytes
from kraftpy.world import InternalInvariant
from kraftpy.world.memory_disk import MemoryDisk

DIRECTORY = "/meta/__cluster_metadata-0"


@pytest.fixture
async def disk() -> MemoryDisk:
    disk = MemoryDisk()
    await disk.make_directory(DIRECTORY)
    return disk


def put(disk: MemoryDisk, name: str, content: bytes) -> None:
    file = disk.open(f"{DIRECTORY}/{name}", write=True, create=True)
    file.truncate(0)
    file.pwrite([content], 0)
    file.close()


def get(disk: MemoryDisk, name: str) -> bytes:
    file = disk.open(f"{DIRECTORY}/{name}")
    return file.pread(file.size(), 0)


async def names(disk: MemoryDisk, part: str) -> list[str]:
    return [name for name in await disk.list_directory(DIRECTORY) if part in name]


# quorum-state.


@pytest.mark.parametrize(
    ("kraft_version", "content"),
    [
        (
            0,
            (
                b'{"clusterId":"","leaderId":-1,"leaderEpoch":7,"votedId":3,"appliedOffset":0,'
                b'"currentVoters":[{"voterId":1},{"voterId":3}],"data_version":0}'
            ),
        ),
        (
            1,
            (
                b'{"leaderId":-1,"leaderEpoch":7,"votedId":3,'
                b'"votedDirectoryId":"AwAAAAAAAAAAAAAAAAAAAA","data_version":1}'
            ),
        ),
    ],
)
async def test_the_promise_is_written_as_kafka_does(
    disk: MemoryDisk, kraft_version: int, content: bytes
) -> None:
    """KRF-37: byte by byte, in both versions."""
    file = QuorumStateFile(disk, DIRECTORY)
    await file.write(fx.PersistElection(ElectionState(7, -1, key_of(3)), kraft_version, (1, 3), 1))
    assert get(disk, QUORUM_STATE) == content
    assert await names(disk, "quorum-state") == [QUORUM_STATE]
    read = await file.read()
    assert (read.epoch, read.leader_id) == (7, -1)
    assert read.voted is not None
    assert read.voted.node_id == 3


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"null", b'{"data_version":9}', b'{"leaderEpoch":3}']
)
async def test_a_damaged_promise_stops_the_node(disk: MemoryDisk, content: bytes) -> None:
    """The file is named, and nothing in the directory is touched."""
    left = "00000000000000000005-0000000001-x.checkpoint.part"
    put(disk, QUORUM_STATE, content)
    put(disk, left, b"")
    with pytest.raises(QuorumStateError, match=f"{DIRECTORY}/quorum-state"):
        await open_at(disk, "/meta")
    assert get(disk, QUORUM_STATE) == content
    assert await disk.list_directory(DIRECTORY) == [left, QUORUM_STATE]


async def test_a_missing_promise_is_a_fresh_one_and_told_beside_a_log(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """The node starts, as Kafka's does, but nothing is forgotten in silence."""
    assert await QuorumStateFile(disk, DIRECTORY).read() is None
    storage, recovered = await open_at(disk, "/meta")
    assert recovered.election == ElectionState()
    assert not caplog.records
    storage.perform(fx.PersistElection(ElectionState(1, 9), 1, (9,), 1))
    storage.perform(fx.AppendLog((data_batch(0, 1, b"a"),), 2))
    await storage.sync()
    await storage.close()
    storage, recovered = await open_at(disk, "/meta")
    assert recovered.election.epoch == 1
    assert not caplog.records
    await storage.close()
    await disk.unlink(f"{DIRECTORY}/{QUORUM_STATE}")
    _, recovered = await open_at(disk, "/meta")
    assert recovered.election == ElectionState()
    [record] = caplog.records
    assert f"{DIRECTORY}/{QUORUM_STATE} is missing" in record.getMessage()


async def test_a_promise_survives_power_and_a_torn_one_never_was(disk: MemoryDisk) -> None:
    """KRF-36: synced under another name, then renamed; what lies under that name is no promise."""
    file = QuorumStateFile(disk, DIRECTORY)
    await disk.sync_directory("/meta")
    await disk.sync_directory("/")
    promise = ElectionState(7, -1, key_of(3))
    await file.write(fx.PersistElection(promise, 1, (1, 3), 1))
    put(disk, f"{QUORUM_STATE}.tmp", b'{"leaderId":-1,"leaderEp')
    disk.crash_keeping(())
    assert await QuorumStateFile(disk, DIRECTORY).read() == promise
    put(disk, f"{QUORUM_STATE}.tmp", b'{"leaderId":-1,"leaderEpoch":9' + bytes(500))
    file = QuorumStateFile(disk, DIRECTORY)
    assert await file.read() == promise
    later = ElectionState(8, -1, key_of(1))
    await file.write(fx.PersistElection(later, 1, (1, 3), 2))
    assert await file.read() == later
    assert await names(disk, "quorum-state") == [QUORUM_STATE]


# Snapshots.


def test_a_snapshots_name() -> None:
    snapshot_id = SnapshotId(1234, 5)
    assert snapshot_name(snapshot_id) == "00000000000000001234-0000000005.checkpoint"
    assert parse_snapshot_name(snapshot_name(snapshot_id)) == snapshot_id
    for other in ("bootstrap.checkpoint", "1234-5.checkpoint", "00000000000000001234.log"):
        assert parse_snapshot_name(other) is None
    for suffix in (".part", ".deleted", ".tmp"):
        assert parse_snapshot_name(snapshot_name(snapshot_id) + suffix) is None


async def test_what_is_no_snapshot_yet_or_any_more_is_removed(disk: MemoryDisk) -> None:
    """And nothing else: Kafka's random names and ours, whatever they hold."""
    kept = ["00000000000000000007-0000000001.checkpoint", "bootstrap.checkpoint", "notes.part"]
    for name in [
        *kept,
        "00000000000000000008-0000000001-4711.checkpoint.part",
        "00000000000000000008-0000000001-own.checkpoint.part",
        "00000000000000000003-0000000001.checkpoint.deleted",
    ]:
        put(disk, name, b"torn")
    files = SnapshotFiles(disk, DIRECTORY)
    await files.load()
    assert files.ids == ((7, 1),)
    assert await disk.list_directory(DIRECTORY) == kept


async def test_a_snapshot_is_seen_when_it_is_frozen(disk: MemoryDisk) -> None:
    """Also when the same one is being downloaded."""
    files = SnapshotFiles(disk, DIRECTORY)
    snapshot_id = SnapshotId(4, 2)
    own, download = files.create(snapshot_id, "own"), files.create(snapshot_id, "download")
    own.append(b"one")
    download.append(b"other")
    own.append(b" snapshot")
    assert files.ids == ()
    with pytest.raises(InternalInvariant):
        files.size(snapshot_id)
    await own.freeze()
    await download.abandon()
    assert files.ids == (snapshot_id,)
    assert files.read(snapshot_id, 4, 5) == b"snaps"
    assert files.size(snapshot_id) == 12
    assert await disk.list_directory(DIRECTORY) == [snapshot_name(snapshot_id)]
    await files.delete(snapshot_id)
    await files.delete(snapshot_id)
    assert files.ids == ()
    assert await disk.list_directory(DIRECTORY) == []


@pytest.mark.parametrize(
    "damage", ["empty", "torn", "flipped", "other", "its last byte", "a flipped end", "twice"]
)
async def test_a_damaged_snapshot_that_is_needed_is_named(disk: MemoryDisk, damage: str) -> None:
    snapshot_id = SnapshotId(5, 1)
    whole = snapshot_of(snapshot_id)
    content = {
        "empty": b"",
        "torn": whole[:70],
        "flipped": whole[:80] + bytes([whole[80] ^ 1]) + whole[81:],
        "other": data_batch(0, 1, b"no header").data,
        "its last byte": whole[:-1],
        "a flipped end": whole[:-1] + bytes([whole[-1] ^ 1]),
        "twice": whole + whole,
    }[damage]
    put(disk, snapshot_name(snapshot_id), content)
    with pytest.raises(CorruptSnapshotFileError, match=snapshot_name(snapshot_id)):
        await open_at(disk, "/meta")


# The log.


async def new_subject(disk: MemoryDisk) -> DiskSubject:
    storage, _ = await open_at(disk, "/meta")
    return DiskSubject(disk, "/meta", storage)


async def test_a_log_start_without_a_snapshot_is_refused(disk: MemoryDisk) -> None:
    """What is left stays for a human to look at."""
    put(disk, "log-start-offset-checkpoint", b"0\n1\n__cluster_metadata 0 5\n")
    put(disk, "00000000000000000000.log", data_batch(0, 1, b"a").data)
    with pytest.raises(StorageError, match="no snapshot covers"):
        await open_at(disk, "/meta")
    assert await names(disk, ".log") == ["00000000000000000000.log"]


async def test_kafkas_log_start_is_where_the_next_snapshot_ends(disk: MemoryDisk) -> None:
    """Kafka keeps no log start: its first segment may begin before the first snapshot ends."""
    batches = [data_batch(offset, 1, b"a") for offset in range(3, 9)]
    put(disk, "00000000000000000003.log", b"".join(batch.data for batch in batches))
    for snapshot_id in (SnapshotId(2, 1), SnapshotId(5, 1), SnapshotId(8, 1)):
        put(disk, snapshot_name(snapshot_id), snapshot_of(snapshot_id))
    storage, recovered = await open_at(disk, "/meta")
    assert (recovered.start_offset, recovered.end_offset) == (5, 9)
    assert recovered.snapshots == ((5, 1), (8, 1))
    assert recovered.epochs == ((1, 5),)
    assert contents(storage, 5, 9) == [batch.data for batch in batches[2:]]


@pytest.mark.parametrize(
    "stray", [data_batch(5, 2, b"behind"), data_batch(2, 1, b"older"), data_batch(0, 2, b"x")]
)
async def test_a_sound_batch_in_the_wrong_place_ends_the_log(
    disk: MemoryDisk, stray: Batch
) -> None:
    """A crash may show old bytes where new ones were being written."""
    batches = [data_batch(0, 1, b"a"), data_batch(1, 2, b"b")]
    put(disk, "00000000000000000000.log", b"".join(each.data for each in [*batches, stray]))
    storage, recovered = await open_at(disk, "/meta")
    assert (recovered.end_offset, recovered.epochs) == (2, ((1, 0), (2, 1)))
    assert contents(storage, 0, 2) == [batch.data for batch in batches]
    storage.perform(fx.AppendLog((data_batch(2, 3, b"c"),), 1))
    await storage.sync()


async def ended_log(disk: MemoryDisk, end: str) -> list[str]:
    """A log of 20 synced batches in some segments, closed in order or not; its segments' names."""
    storage, _ = await open_at(disk, "/meta")
    for number in range(20):
        storage.perform(fx.AppendLog((data_batch(number, 1, b"x" * 50),), number + 1))
        await storage.sync()
    if end == "a stop":
        await storage.close()
    else:
        storage.abandon()
    return await names(disk, ".log")


@pytest.mark.parametrize("end", ["a stop", "a crash"])
@pytest.mark.parametrize("damage", ["a byte", "the end", "a segment"])
async def test_damage_to_what_was_synced_stops_the_node(
    disk: MemoryDisk, damage: str, end: str
) -> None:
    """What was decided must not vanish in silence: a crash leaves nothing of the kind."""
    segments = await ended_log(disk, end)
    assert len(segments) > 2
    name = segments[1] if damage == "a byte" else segments[-1]
    content = bytearray(get(disk, name))
    if damage == "a byte":
        content[len(content) // 2] ^= 1
        put(disk, name, content)
    elif damage == "the end":
        put(disk, name, content[:-1])
    else:
        await disk.unlink(f"{DIRECTORY}/{name}")
    before = {each: get(disk, each) for each in await names(disk, ".log")}
    for _ in range(2):
        with pytest.raises(StorageError, match=rf"{DIRECTORY}.*Bring the directory back"):
            await open_at(disk, "/meta")
    assert {each: get(disk, each) for each in await names(disk, ".log")} == before


async def test_what_a_crash_tore_off_behind_the_last_sync_is_cut_off(disk: MemoryDisk) -> None:
    """Sound batches behind the torn one, too: nobody was told of them."""
    segments = await ended_log(disk, "a crash")
    torn = bytearray(data_batch(20, 1, b"x" * 50).data)
    torn[-1] ^= 1
    behind = data_batch(21, 1, b"x" * 50).data
    put(disk, segments[-1], get(disk, segments[-1]) + torn + behind)
    _, recovered = await open_at(disk, "/meta")
    assert recovered.end_offset == 20


@pytest.mark.parametrize("content", [b"", b"0000000000000000020", b"\x00" * 29, b"9" * 29])
async def test_a_torn_word_of_the_durable_end_says_nothing(
    disk: MemoryDisk, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    segments = await ended_log(disk, "a crash")
    assert get(disk, DURABLE_END) == b"0000000000000000020 %08x\n" % crc32(b"0000000000000000020")
    put(disk, DURABLE_END, content)
    put(disk, segments[-1], get(disk, segments[-1])[:-1])
    _, recovered = await open_at(disk, "/meta")
    assert recovered.end_offset == 19
    assert f"{DIRECTORY}/{DURABLE_END} can't be read" in caplog.text


async def test_a_log_that_was_open_again_may_end_anywhere(disk: MemoryDisk) -> None:
    """A truncation and a crash later, the end that the log once had says nothing."""
    await ended_log(disk, "a stop")
    storage, recovered = await open_at(disk, "/meta")
    assert recovered.end_offset == 20
    storage.perform(fx.TruncateLog(12, 21))
    await storage.sync()
    storage.abandon()
    _, recovered = await open_at(disk, "/meta")
    assert recovered.end_offset == 12


async def test_a_trimmed_log_loses_its_files(disk: MemoryDisk) -> None:
    subject = await new_subject(disk)
    for offset in range(12):
        subject.perform(fx.AppendLog((data_batch(offset, 1, b"x" * 300),), offset + 1))
    for snapshot_id in (SnapshotId(4, 1), SnapshotId(10, 1)):
        await subject.freeze(snapshot_id, snapshot_of(snapshot_id))
    before, size_before = await names(disk, ".log"), subject.view.log_bytes_from(0)
    promised = subject.view.log_bytes_from(10)
    subject.perform(fx.TrimLog(10))
    subject.perform(fx.DeleteSnapshots((SnapshotId(4, 1),)))
    assert subject.view.has_work
    await subject.sync()
    assert not subject.view.has_work
    assert len(await names(disk, ".log")) < len(before)
    assert subject.view.log_bytes_from(0) == promised < size_before
    assert await names(disk, ".deleted") == []
    assert await names(disk, ".checkpoint") == [snapshot_name(SnapshotId(10, 1))]


async def test_the_directory_of_another_topic_is_refused(disk: MemoryDisk) -> None:
    await new_subject(disk)
    assert get(disk, "partition.metadata") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    put(disk, "partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    with pytest.raises(InconsistentTopicIdError, match=r"partition\.metadata"):
        await open_at(disk, "/meta")


async def test_age_and_size_remove_nothing(disk: MemoryDisk) -> None:
    """Kafka's defaults for topics would, after a week."""
    subject = await new_subject(disk)
    for offset in range(9):
        subject.perform(fx.AppendLog((data_batch(offset, 1, b"x" * 300),), offset + 1))
    await subject.sync()
    await subject.freeze(SnapshotId(2, 1), snapshot_of(SnapshotId(2, 1)))
    await subject.freeze(SnapshotId(9, 1), snapshot_of(SnapshotId(9, 1)))
    subject.perform(fx.TrimLog(2))
    await subject.sync()
    assert len(contents(subject.view, 2, 9)) == 7


# Wrong use.


@pytest.mark.parametrize(
    "effect",
    [
        fx.AppendLog((data_batch(7, 1, b"gap"),), 2),
        fx.AppendLog((data_batch(1, 1, b"an old token"),), 1),
        fx.PersistElection(ElectionState(1), 1, (), 1),
        fx.WriteSnapshotChunk(SnapshotId(5, 1), 3, b"not the beginning"),
        fx.InstallSnapshot(SnapshotId(5, 1), 2),
    ],
    ids=["gap", "old append", "old promise", "download gap", "no download"],
)
async def test_what_no_core_asks_for_is_refused(
    disk: MemoryDisk, effect: fx.AppendLog | fx.PersistElection
) -> None:
    subject = await new_subject(disk)
    subject.perform(fx.AppendLog((data_batch(0, 1, b"a"),), 1))

    async def ask() -> None:
        subject.perform(effect)
        await subject.sync()

    with pytest.raises(InternalInvariant):
        await ask()


async def test_a_closed_storage_is_whole_and_refuses(disk: MemoryDisk) -> None:
    subject = await new_subject(disk)
    subject.perform(fx.AppendLog((data_batch(0, 1, b"a"),), 1))
    subject.perform(promise_of(5, 2))
    subject.perform(fx.WriteSnapshotChunk(SnapshotId(5, 1), 0, b"half"))
    await subject.view.close()
    assert await names(disk, ".part") == []
    with pytest.raises(StorageError, match="closed"):
        subject.perform(promise_of(6, 3))
    recovered = await subject.reopen()
    assert recovered.end_offset == 1
    assert recovered.election == promise_of(5, 2).election


def open_files(disk: MemoryDisk) -> list[str]:
    return [path for path, inode in disk.image.files() if inode.handles]


async def test_an_abandoned_storage_holds_no_file(disk: MemoryDisk) -> None:
    storage, _ = await open_at(disk, "/meta")
    storage.perform(fx.WriteSnapshotChunk(SnapshotId(5, 1), 0, b"half"))
    assert [path for path in open_files(disk) if path.endswith(".part")]
    storage.abandon()
    storage.abandon()
    assert open_files(disk) == []


# With a core.


async def drive(core: RaftCore, storage: RaftStorage, effects: list[fx.Effect]) -> int:
    """Carry effects out until nothing is left to do; the high watermark."""
    high_watermark = 0
    while effects:
        for effect in effects:
            if isinstance(effect, fx.HighWatermarkAdvanced):
                high_watermark = effect.offset
            elif isinstance(
                effect, fx.PersistElection | fx.AppendLog | fx.TruncateLog | fx.InstallSnapshot
            ):
                storage.perform(effect)
        effects = core.step(await storage.sync(), 0) if storage.has_work else []
    return high_watermark


async def test_a_sole_voter_commits_and_comes_back(disk: MemoryDisk) -> None:
    """The core's own records, through the disk and back."""
    put(disk, snapshot_name(BOOTSTRAP_SNAPSHOT), snapshot_bytes(BOOTSTRAP_SNAPSHOT, STATIC, 1))
    config = config_of(9)
    ends = []
    for _ in range(3):
        storage, recovered = await open_at(disk, "/meta")
        core = RaftCore(config, recovered, Random(1))
        await drive(core, storage, core.start(0))
        assert isinstance(core.quorum.role, Leader)
        end_offset = await drive(
            core, storage, core.step(Propose(1, core.quorum.epoch, (b"x",)), 0)
        )
        assert end_offset == storage.log_end_offset == core.quorum.log.durable_end_offset
        assert core.quorum.voters.latest == STATIC
        assert core.quorum.voters.latest_offset == 2
        ends.append((core.quorum.epoch, end_offset))
    assert [end_offset for _, end_offset in ends] == [4, 6, 8]
    assert ends[0] < ends[1] < ends[2]
