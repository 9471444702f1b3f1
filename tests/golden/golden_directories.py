"""Data directories as each release has written them (testing.md 8.3, 1): made once, opened always.

    python tests/golden/golden_directories.py       makes those of this version

A node in virtual time has topics of several kinds, transactions that were committed, aborted and
left open, and a group; then it is stopped in good order, or killed. Its files go into an archive
under the version's name, with the facts that a client can read of it beside them. Archives of
earlier releases are never made again: whatever opens them must find the same facts.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))

from support.simulated_nodes import CLIENT, PORT, SimulatedNodes, run_nodes  # noqa: E402

from kraftpy import __version__  # noqa: E402
from kraftpy.client.admin import open_admin  # noqa: E402
from kraftpy.client.admin_operations import (  # noqa: E402
    ConfigKind,
    NewTopic,
    create_topics,
    describe_configs,
    list_topics,
    require,
)
from kraftpy.client.calls import TopicPartition  # noqa: E402
from kraftpy.client.consumer import open_consumer  # noqa: E402
from kraftpy.client.group_offsets import OffsetAndMetadata  # noqa: E402
from kraftpy.client.producer import open_producer  # noqa: E402
from kraftpy.client.settings import (  # noqa: E402
    ConsumerSettings,
    IsolationLevel,
    ProducerSettings,
)
from kraftpy.world import World  # noqa: E402
from kraftpy.world.memory_disk import MemoryDisk  # noqa: E402

KINDS = ("clean", "unclean")
MAKING_SEED, OPENING_SEED = 1, 2
SERVERS = [("n1", PORT)]
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.max.timeout.ms": "2000000000",
}
# Nobody aborts the transaction that was left open, whenever the archive is opened.
LEFT_OPEN_MS = 2_000_000_000
TOPICS = (
    NewTopic("plain", 2, 1, {"retention.ms": "-1", "segment.bytes": "1048576"}),
    NewTopic("compacted", 1, 1, {"cleanup.policy": "compact"}),
    NewTopic("exact", 1, 1, {"retention.ms": "-1", "flush.messages": "1"}),
)
GROUP = "golden"
_DYNAMIC = 1
_DATA = "/data"


async def fill(world: World) -> None:
    async with open_admin(world, SERVERS) as admin:
        require(await admin.run(create_topics(TOPICS)))
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        settings = ProducerSettings(compression_type=codec)  # type: ignore[arg-type]
        async with open_producer(world, SERVERS, settings) as producer:
            for number in range(6):
                name = f"{codec}-{number}".encode()
                await producer.send("plain", name, key=name, partition=number % 2)
                await producer.send("compacted", name, key=b"k%d" % (number % 3), partition=0)
    for number, end in enumerate(("commit", "abort", "commit", "leave")):
        settings = ProducerSettings(
            transactional_id=f"gold-{number}", transaction_timeout_ms=LEFT_OPEN_MS
        )
        async with open_producer(world, SERVERS, settings) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            for each in range(3):
                delivery = await producer.send("exact", b"%s-%d" % (end.encode(), each))
                await producer.wait(delivery)
            if end == "commit":
                await producer.commit_transaction()
            elif end == "abort":
                await producer.abort_transaction()
    committing = ConsumerSettings(group_id=GROUP, enable_auto_commit=False)
    async with open_consumer(world, SERVERS, committing) as consumer:
        consumer.assign([TopicPartition("plain", 0)])
        await consumer.commit({TopicPartition("plain", 0): OffsetAndMetadata(7, metadata="seven")})


async def facts(world: World) -> dict[str, Any]:
    """What a client can read of it, in what JSON can carry."""
    reading = ConsumerSettings(
        group_id=GROUP, enable_auto_commit=False, isolation_level=IsolationLevel.READ_COMMITTED
    )
    found: dict[str, Any] = {"topics": {}, "records": {}}
    async with (
        open_admin(world, SERVERS) as admin,
        open_consumer(world, SERVERS, reading) as consumer,
    ):
        for name, topic in sorted((await admin.run(list_topics())).items()):
            configs = await admin.run(describe_configs(ConfigKind.TOPIC, name))
            own = {each.name: each.value for each in configs if each.source == _DYNAMIC}
            found["topics"][name] = {"partitions": len(topic.partitions), "configs": own}
            for number in sorted(topic.partitions):
                where = TopicPartition(name, number)
                found["records"][f"{name}-{number}"] = await _read(consumer, where)
        committed = await consumer.committed([TopicPartition("plain", 0)])
        [offset] = committed.values()
        found["committed"] = None if offset is None else [offset.offset, offset.metadata]
    return found


async def _read(consumer: Any, where: TopicPartition) -> list[list[Any]]:
    """Offset, key and value of each record, up to the last stable offset."""
    consumer.assign([where])
    consumer.seek_to_beginning(where)
    end = (await consumer.end_offsets([where]))[where]
    records: list[list[Any]] = []
    while await consumer.position(where) < end:
        for _, _, polled in await consumer.poll(timeout_ms=1_000):
            for record in polled:
                key = None if record.key is None else bytes(record.key).decode()
                records.append([record.offset, key, bytes(record.value).decode()])
    return records


def pack(disk: MemoryDisk) -> bytes:
    """The node's files as an archive; the same files give the same bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for path, inode in disk.image.files():
            entry = tarfile.TarInfo(path.removeprefix("/"))
            data = bytes(inode.seen.read(inode.seen.size, 0))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


async def unpack(archive: bytes, disk: MemoryDisk) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        for entry in packed:
            content = packed.extractfile(entry)
            assert content is not None
            path = f"/{entry.name}"
            await disk.make_directory(path.rpartition("/")[0])
            file = disk.open(path, write=True, create=True)
            file.pwrite([content.read()], 0)
            await file.sync()
            file.close()


def on_a_node(
    work: Callable[[SimulatedNodes, World], Awaitable[None]], archive: Path | None = None
) -> None:
    """With one node that serves, on these files or on none."""
    # A simulation opens no file of the machine.
    packed = None if archive is None else archive.read_bytes()

    async def scenario(rig: SimulatedNodes) -> None:
        if packed is not None:
            await unpack(packed, rig.simulation.machine("n1").disk)
        await rig.start("n1", settings=SETTINGS)
        await work(rig, rig.simulation.world(CLIENT))

    # Another process than the one that wrote the files: ids that it draws must differ.
    run_nodes(scenario, seed=MAKING_SEED if packed is None else OPENING_SEED)


def make_one(kind: str) -> tuple[dict[str, Any], bytes]:
    """Facts and files of one that was stopped in good order, or was not."""
    made: list[tuple[dict[str, Any], bytes]] = []

    async def work(rig: SimulatedNodes, world: World) -> None:
        await fill(world)
        found = await facts(world)
        if kind == "clean":
            await rig.stop("n1")
        else:
            rig.kill("n1")
            await rig.ended["n1"].wait()
        made.append((found, pack(rig.simulation.machine("n1").disk)))

    on_a_node(work)
    return made[0]


def make(directory: Path) -> None:
    """All archives of this version. Raises FileExistsError if they are there."""
    directory.mkdir()
    for kind in KINDS:
        found, packed = make_one(kind)
        text = json.dumps(found, indent=1, sort_keys=True) + "\n"
        (directory / f"{kind}.json").write_text(text)
        (directory / f"{kind}.tar.xz").write_bytes(packed)


if __name__ == "__main__":
    make(HERE / __version__)
