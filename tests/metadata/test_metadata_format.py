"""Formatting storage, and what a node makes of its directories (kraft.md 3 and 18.3)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kraftpy.config import NodeConfig, from_mapping
from kraftpy.log.checkpoints import read_text
from kraftpy.log.errors import StorageError
from kraftpy.log.meta_properties import parse_meta_properties
from kraftpy.metadata.bootstrap import bootstrap_records, read_bootstrap, write_bootstrap
from kraftpy.metadata.directories import (
    DirectoryState,
    NodeStorage,
    UnusableStorageError,
    directory_paths,
    inspect_directories,
    present_cluster_id,
    verify_directories,
)
from kraftpy.metadata.format import (
    FormatRefusedError,
    FormatRequest,
    Formatted,
    format_storage,
    parse_initial_controllers,
)
from kraftpy.metadata.records import METADATA_VERSION, FeatureLevelRecord
from kraftpy.protocol.ids import format_uuid
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT
from kraftpy.raft.storage import metadata_log_config
from kraftpy.raft.storage_opening import open_storage
from kraftpy.raft.voters import Endpoint, ReplicaKey, VoterSet
from kraftpy.world import World
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk, Recording
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_disk_faults import ReadError
from kraftpy.world.memory_rng import MemoryRng
from kraftpy.world.real_network import RealNetwork

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
STANDALONE = FormatRequest(CLUSTER, standalone=True)


def config_of(**changes: str) -> NodeConfig:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "log.dirs": "/data/a,/data/b",
    }
    settings |= {key.replace("_", "."): value for key, value in changes.items()}
    return NodeConfig(from_mapping(settings, "test"))


BROKER = {"process_roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:9092"}
STATIC = {"controller_quorum_voters": "1@127.0.0.1:9093"}


def world_on(disk: MemoryDisk, seed: int = 1) -> World:
    return World(MemoryClock(), MemoryRng(seed), RealNetwork(), disk)


class Home:
    """A node's disk and configuration."""

    def __init__(self, disk: MemoryDisk | None = None, **changes: str) -> None:
        self.disk = disk or MemoryDisk()
        self.config = config_of(**changes)
        self.paths = directory_paths(self.config, "/work")
        self.world = world_on(self.disk)

    async def format(self, request: FormatRequest = STANDALONE) -> Formatted:
        return await format_storage(self.config, request, self.paths, self.world)

    async def verify(self) -> NodeStorage:
        return await verify_directories(
            self.config,
            self.paths,
            disk=self.disk,
            random=Random(7),
            config_path="server.properties",
        )

    async def states(self) -> list[DirectoryState]:
        return [each.state for each in await inspect_directories(self.disk, self.paths.all)]

    async def write(self, path: str, content: str) -> None:
        await self.disk.make_directory(path.rpartition("/")[0])
        file = self.disk.open(path, write=True, create=True)
        file.truncate(0)
        file.pwrite([content.encode()], 0)
        file.close()

    async def exists(self, path: str) -> bool:
        return path.rpartition("/")[2] in await self.disk.list_directory(path.rpartition("/")[0])


async def refusal(home: Home, request: FormatRequest = STANDALONE) -> str:
    with pytest.raises(FormatRefusedError) as refused:
        await home.format(request)
    return str(refused.value)


async def test_a_standalone_controller() -> None:
    """KRF-74: the first voter is this node, in the snapshot 0-0, at kraft.version 1."""
    home = Home()
    done = await home.format()
    assert done.paths == ("/data/b", "/data/a")
    storage = await home.verify()
    assert storage.cluster_id == CLUSTER
    assert list(storage.directory_ids) == ["/data/a", "/data/b"]
    assert len(set(storage.directory_ids.values())) == 2
    raft, recovered = await open_storage(
        home.paths.metadata,
        metadata_log_config(),
        VoterSet(),
        disk=home.disk,
        clock=home.world.clock,
        jitter=Random(1),
    )
    assert recovered.snapshots == (BOOTSTRAP_SNAPSHOT,)
    assert recovered.kraft_versions == ((-1, 1),)
    [(offset, voters)] = recovered.voters
    assert offset == -1
    [voter] = voters.voters
    assert voter.key == ReplicaKey(1, storage.metadata_directory_id)
    assert voter.endpoints == (Endpoint("CONTROLLER", "127.0.0.1", 9093),)
    assert done.voters == voters
    await raft.close()


async def test_bootstrap_records_come_in_kafkas_order() -> None:
    """metadata.version first, others above 0 by name, no kraft.version."""
    home = Home()
    await home.format(replace(STANDALONE, features={"group.version": 0}))
    for path in home.paths.all:
        assert await read_bootstrap(home.disk, path) == (
            FeatureLevelRecord(METADATA_VERSION, 30),
            FeatureLevelRecord("eligible.leader.replicas.version", 1),
            FeatureLevelRecord("transaction.version", 2),
        )


async def test_initial_controllers_give_directory_ids() -> None:
    """The metadata directory gets the id that the voters have for this node."""
    home = Home()
    text = (
        "1@[::1]:9093:ejJS9og2Ty-T8jUdGZbXdg,2@b:9093:pbnooS9kIKBAspj1Vo20Qw,"
        "3@c:9093:zG6drQGK2S1-vDUPArX4Zg"
    )
    initial = parse_initial_controllers(text)
    done = await home.format(replace(STANDALONE, standalone=False, initial_controllers=initial))
    storage = await home.verify()
    assert format_uuid(storage.metadata_directory_id) == "ejJS9og2Ty-T8jUdGZbXdg"
    assert done.voters is not None
    assert done.voters.ids == (1, 2, 3)
    assert done.voters.voters[0].endpoints == (Endpoint("CONTROLLER", "::1", 9093),)


@pytest.mark.parametrize(
    "text",
    [
        "1@a:9093",
        "1@a:9093:short",
        "1@a:9093:AAAAAAAAAAAAAAAAAAAAAQ",
        "1@a:9093:ejJS9og2Ty-T8jUdGZbXdg,1@b:9093:pbnooS9kIKBAspj1Vo20Qw",
        "1@a:9093:ejJS9og2Ty-T8jUdGZbXdg,2@b:9093:ejJS9og2Ty-T8jUdGZbXdg",
        "",
    ],
)
def test_initial_controllers_that_can_not_be(text: str) -> None:
    with pytest.raises(ValueError, match="id"):
        parse_initial_controllers(text)


@pytest.mark.parametrize(
    ("changes", "request_"),
    [
        (STATIC, FormatRequest(CLUSTER)),
        (BROKER, FormatRequest(CLUSTER)),
        ({}, FormatRequest(CLUSTER, has_no_initial_controllers=True)),
    ],
    ids=["static voters", "broker", "joining controller"],
)
async def test_without_first_voters_there_is_no_snapshot(
    changes: dict[str, str], request_: FormatRequest
) -> None:
    home = Home(**changes)
    await home.format(request_)
    assert not await home.exists("/data/a/__cluster_metadata-0")
    assert (await home.verify()).cluster_id == CLUSTER


async def test_a_metadata_directory_of_its_own() -> None:
    home = Home(metadata_log_dir="meta/")
    await home.format()
    assert home.paths.all == ("/work/meta", "/data/a", "/data/b")
    assert await home.exists(f"/work/meta/{SNAPSHOT}")
    assert len((await home.verify()).directory_ids) == 3


CONTRADICTIONS: list[tuple[dict[str, str], dict[str, Any], str]] = [
    ({}, {"standalone": False}, "--no-initial-controllers"),
    (STATIC, {}, "leave the option out"),
    (BROKER, {}, "process.roles is broker"),
    ({}, {"has_no_initial_controllers": True}, "exclude each other"),
    ({}, {"cluster_id": "a b"}, "random-uuid"),
    ({}, {"release": "9.9"}, "known are 3.3-IV3"),
    ({}, {"release": "4.0", "features": {METADATA_VERSION: 25}}, "leave one out"),
    ({}, {"features": {METADATA_VERSION: 31}}, "from 7 (3.3-IV3) to 30 (4.3-IV0)"),
    ({}, {"features": {METADATA_VERSION: 6}}, "from 7"),
    ({}, {"features": {"no.version": 1}}, "known are metadata.version"),
    ({}, {"features": {"group.version": 2}}, "from 0 to 1"),
    ({}, {"features": {"kraft.version": 0}}, "kraft.version is 1 here"),
    (STATIC, {"standalone": False, "features": {"kraft.version": 1}}, "kraft.version is 0 here"),
    (
        {},
        {"release": "4.0-IV0", "features": {"eligible.leader.replicas.version": 1}},
        "needs metadata.version 23",
    ),
]


@pytest.mark.parametrize(("changes", "wishes", "advice"), CONTRADICTIONS)
async def test_requests_that_are_refused(
    changes: dict[str, str], wishes: dict[str, Any], advice: str
) -> None:
    """Nothing is written, and the message says what to do next."""
    home = Home(**changes)
    assert advice in await refusal(home, replace(STANDALONE, **wishes))
    assert await home.states() == [DirectoryState.EMPTY] * 2
    assert await home.disk.list_directory("/") == []


@pytest.mark.parametrize(
    ("release", "level"), [(None, 30), ("4.0", 25), ("4.0.1", 25), ("3.9-IV0", 21), ("4.1", 27)]
)
async def test_releases(release: str | None, level: int) -> None:
    home = Home()
    assert (await home.format(replace(STANDALONE, release=release))).levels[
        METADATA_VERSION
    ] == level


async def test_formatting_twice() -> None:
    """Refused; ignoring what is formatted leaves it byte for byte as it was."""
    home = Home()
    await home.format()
    before = await home.verify()
    assert "already formatted: /data/a, /data/b; --ignore-formatted" in await refusal(home)
    again = await home.format(replace(STANDALONE, ignores_formatted=True))
    assert again.paths == ()
    assert again.voters is None
    assert await present_cluster_id(home.disk, home.paths) == CLUSTER
    assert await present_cluster_id(home.disk, Home(log_dirs="/other").paths) is None
    assert await home.verify() == before


async def test_a_new_disk_beside_formatted_ones() -> None:
    home = Home(log_dirs="/data/a")
    await home.format()
    wider = Home(home.disk)
    with pytest.raises(UnusableStorageError) as refused:
        await wider.verify()
    command = (
        f"kraftpy storage format --config server.properties --cluster-id {CLUSTER} "
        "--standalone --ignore-formatted"
    )
    assert f"not formatted: /data/b\nrun: {command}" in str(refused.value)
    done = await wider.format(replace(STANDALONE, ignores_formatted=True))
    assert (done.paths, done.already_formatted) == (("/data/b",), ("/data/a",))
    assert (await wider.verify()).metadata_directory_id == (
        await home.verify()
    ).metadata_directory_id


async def test_directories_of_another_cluster_or_node() -> None:
    home = Home()
    await home.format()
    other = replace(STANDALONE, cluster_id="another", ignores_formatted=True)
    assert f"--cluster-id {CLUSTER} --ignore-formatted" in await refusal(home, other)
    neighbour = Home(home.disk, node_id="2")
    ignoring = replace(STANDALONE, ignores_formatted=True)
    assert "belongs to node 1, and this is node 2; correct node.id" in await refusal(
        neighbour, ignoring
    )
    with pytest.raises(UnusableStorageError, match=r"belongs to node 1, .* correct node\.id"):
        await neighbour.verify()


async def test_another_directory_id_than_the_voters_have() -> None:
    home = Home()
    await home.format()
    initial = parse_initial_controllers("1@a:9093:ejJS9og2Ty-T8jUdGZbXdg")
    wish = FormatRequest(CLUSTER, initial_controllers=initial, ignores_formatted=True)
    assert "gives node 1 ejJS9og2Ty-T8jUdGZbXdg" in await refusal(home, wish)


@pytest.mark.parametrize(
    "path", ["/data/b/orders-0/x", "/data/a/__cluster_metadata-0/quorum-state"]
)
async def test_data_without_meta_properties_is_never_formatted_over(path: str) -> None:
    home = Home()
    await home.write(path, "data")
    assert "holds data and has no meta.properties; restore" in await refusal(home)
    with pytest.raises(UnusableStorageError, match="restore that file"):
        await home.verify()


async def test_a_directory_in_use() -> None:
    home = Home()
    await home.disk.make_directory("/data/b")
    lock = home.disk.lock("/data/b/.lock")
    assert "/data/b is in use by another process; stop that node" in await refusal(home)
    lock.release()
    await home.format()


async def test_an_unformatted_node_says_the_command() -> None:
    """A missing format: the exact command, for each kind of node."""
    words = "kraftpy storage format --config server.properties --cluster-id $(kraftpy storage "
    for changes, end in (({}, " --standalone\n"), (STATIC, "\n"), (BROKER, "\n")):
        home = Home(**changes)
        with pytest.raises(UnusableStorageError) as refused:
            await home.verify()
        assert f"run: {words}random-uuid){end}" in str(refused.value)


async def test_ids_must_agree_and_differ() -> None:
    """Section 3: the same cluster everywhere, and directory ids that are unique."""
    home = Home()
    await home.format()
    text = await read_text(home.disk, "/data/a/meta.properties")
    assert text is not None
    await home.write("/data/b/meta.properties", text)
    with pytest.raises(UnusableStorageError, match=r"the same directory\.id .* take it out"):
        await home.verify()
    own = (await inspect_directories(home.disk, ["/data/a"]))[0].meta
    assert own is not None
    await home.write(
        "/data/b/meta.properties", text.replace(CLUSTER, "other").replace("directory.id", "x")
    )
    with pytest.raises(
        UnusableStorageError, match=f"cluster other and /data/a to cluster {CLUSTER}"
    ):
        await home.verify()


async def test_a_missing_directory_id_is_made_and_written() -> None:
    home = Home()
    await home.format()
    path = "/data/b/meta.properties"
    text = await read_text(home.disk, path)
    assert text is not None
    await home.write(path, "\n".join(line for line in text.split("\n") if "directory" not in line))
    first = await home.verify()
    assert (await home.verify()) == first
    written = await read_text(home.disk, path)
    assert written is not None
    assert parse_meta_properties(written, path).directory_id == first.directory_ids["/data/b"]


async def test_the_metadata_log_in_another_directory() -> None:
    home = Home()
    await home.format()
    moved = Home(home.disk, metadata_log_dir="/data/b")
    with pytest.raises(UnusableStorageError, match=r"set metadata\.log\.dir=/data/a"):
        await moved.verify()
    ignoring = replace(STANDALONE, ignores_formatted=True)
    assert "set metadata.log.dir=/data/a" in await refusal(moved, ignoring)


async def test_an_unreadable_data_directory_is_only_marked() -> None:
    home = Home()
    await home.format()
    home.disk.inject(ReadError(paths="/data/b/*"))
    storage = await home.verify()
    assert list(storage.directory_ids) == ["/data/a"]
    assert list(storage.failed) == ["/data/b"]
    home.disk.heal()
    home.disk.inject(ReadError(paths="/data/a/*"))
    with pytest.raises(UnusableStorageError, match="the metadata directory can't be read"):
        await home.verify()
    ignoring = replace(STANDALONE, ignores_formatted=True)
    assert "/data/a can't be read" in await refusal(home, ignoring)


async def test_a_damaged_meta_properties_is_named() -> None:
    home = Home()
    await home.format()
    await home.write("/data/b/meta.properties", "version=1\n")
    storage = await home.verify()
    assert "/data/b/meta.properties, line 1" in storage.failed["/data/b"]


async def test_a_bootstrap_checkpoint_that_is_cut_off() -> None:
    """KRF-65: no footer, no snapshot."""
    home = Home()
    await home.format()
    file = home.disk.open("/data/a/bootstrap.checkpoint", write=True)
    file.truncate(file.size() - 1)
    file.close()
    with pytest.raises(StorageError, match=r"bootstrap\.checkpoint: .*cut off.* format"):
        await read_bootstrap(home.disk, "/data/a")
    assert await read_bootstrap(home.disk, "/nowhere") is None


async def test_bootstrap_with_users() -> None:
    home = Home()
    await home.disk.make_directory("/d")
    records = bootstrap_records({METADATA_VERSION: 30, "b": 1, "a": 2})
    await write_bootstrap(home.disk, "/d", records, 5)
    names = [each.name for each in await read_bootstrap(home.disk, "/d") or ()]  # type: ignore[union-attr]
    assert names == [METADATA_VERSION, "a", "b"]


async def test_what_an_interrupted_formatting_wanted_does_not_count() -> None:
    """Another wish, or another metadata directory: its voters are gone."""
    home = Home()
    await home.format()
    for path in home.paths.all:
        await home.disk.unlink(f"{path}/meta.properties")
    assert await home.states() == [DirectoryState.EMPTY] * 2
    assert all(
        each.was_interrupted for each in await inspect_directories(home.disk, home.paths.all)
    )
    moved = Home(home.disk, metadata_log_dir="/data/b")
    await moved.format(FormatRequest(CLUSTER, has_no_initial_controllers=True))
    assert not await moved.exists("/data/a/__cluster_metadata-0")
    assert (await moved.verify()).metadata_path == "/data/b"


@pytest.mark.parametrize("policy", CrashPolicy)
@pytest.mark.parametrize("seed", range(2))
async def test_a_crash_at_any_moment_of_formatting(seed: int, policy: CrashPolicy) -> None:
    """A directory with meta.properties is whole; the others are formatted again."""
    random = Random(seed)
    home = Home()
    await home.disk.make_directory("/data/a")
    await home.disk.sync_directory("/data")
    await home.disk.sync_directory("/")
    recording = Recording(home.disk)
    await home.format()
    seen: dict[DirectoryState, int] = {}
    for cut in range(len(recording.effects) + 1):
        disk = recording.disk_after(cut)
        disk.crash(policy, random)
        after = Home(disk)
        for found in await inspect_directories(disk, after.paths.all):
            seen[found.state] = seen.get(found.state, 0) + 1
            assert found.state in (DirectoryState.FORMATTED, DirectoryState.EMPTY), (seed, cut)
            if found.state is DirectoryState.FORMATTED:
                assert await read_bootstrap(disk, found.path), (seed, cut)
                if found.path == after.paths.metadata:
                    assert await after.exists(f"/data/a/{SNAPSHOT}"), (seed, cut)
        await after.format(replace(STANDALONE, ignores_formatted=True))
        storage = await after.verify()
        assert storage.failed == {}
        _, recovered = await open_storage(
            after.paths.metadata,
            metadata_log_config(),
            VoterSet(),
            disk=disk,
            clock=after.world.clock,
            jitter=Random(1),
        )
        [(_, voters)] = recovered.voters
        assert voters.voters[0].key.directory_id == storage.metadata_directory_id
    assert len(seen) == 2, "a crash that always has the same outcome proves nothing"
