"""A damaged metadata log or snapshot, found when a process starts: it refuses, in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusterkit import Recorder, eventually, real_cluster, run_on

from kraftpy.client.admin_operations import NewTopic, create_topics, require
from kraftpy.launch.cluster import Cluster, NodeDeath
from kraftpy.launch.errors import LaunchError
from kraftpy.launch.plan import combined_shape
from kraftpy.records.walker import walk_batches

METADATA = "__cluster_metadata-0"
LOG = "00000000000000000000.log"
# Every few records: the test's own snapshots come within a second.
SNAPSHOTS = {"metadata.log.max.snapshot.interval.ms": "200"}


async def make_topics(cluster: Cluster) -> None:
    for number in range(3):
        topic = NewTopic(f"topic-{number}", partitions=1, replication_factor=1)
        require(await run_on(cluster, 1, create_topics([topic])))


def contents(data: Path) -> dict[str, bytes]:
    """Everything that the quorum has decided, as it lies there."""
    suffixes = (".log", ".checkpoint", "quorum-state", "durable-end")
    files = (data / METADATA).iterdir()
    return {path.name: path.read_bytes() for path in files if path.name.endswith(suffixes)}


async def refusal(tmp_path: Path) -> NodeDeath:
    """Start the only node again: it must end by itself, and leave everything as it is."""
    events = Recorder()
    with pytest.raises(LaunchError):
        async with real_cluster(tmp_path, events) as cluster:
            await cluster.start()
    [death] = events.deaths
    print(death.exit_code, *death.last_lines[-2:], sep="\n")
    assert death.exit_code > 0
    assert not any("Traceback" in line for line in death.last_lines)
    return death


def flip(path: Path, place: float, size: int | None = None) -> None:
    """A bit at this part of the file, or of its first bytes."""
    content = bytearray(path.read_bytes())
    content[int((len(content) if size is None else size) * place)] ^= 0x10
    path.write_bytes(content)


def synced_bytes(directory: Path) -> int:
    """Of the log: what the killed process had written and not synced yet is no part of it."""
    end = int((directory / "durable-end").read_bytes().split()[0])
    batches = walk_batches((directory / LOG).read_bytes())
    return sum(batch.size for batch in batches if batch.last_offset < end)


@pytest.mark.parametrize("place", [0.3, 0.99])
async def test_a_crash_and_damage_to_the_metadata_log(tmp_path: Path, place: float) -> None:
    """Also near the end: what was synced is known after a crash, and a torn tail lies behind it."""
    async with real_cluster(tmp_path, shape=combined_shape(1)) as cluster:
        await cluster.start()
        await make_topics(cluster)
        await cluster.kill(1)
    data = Path(cluster.nodes[1].data_dir)
    flip(data / METADATA / LOG, place, synced_bytes(data / METADATA))
    before = contents(data)
    death = await refusal(tmp_path)
    assert any(METADATA in line and "Bring the directory back" in line for line in death.last_lines)
    assert contents(data) == before


@pytest.mark.parametrize("place", [0.05, 0.5, 0.95])
async def test_a_damaged_snapshot(tmp_path: Path, place: float) -> None:
    """Its head, its records or its end. It is not passed over: the log may begin behind it."""
    async with real_cluster(tmp_path, shape=combined_shape(1), settings=SNAPSHOTS) as cluster:
        data = Path(cluster.nodes[1].data_dir)

        async def newest() -> Path | None:
            found = sorted((data / METADATA).glob("*.checkpoint"))
            has_topics = bool(found) and b"topic-2" in found[-1].read_bytes()
            return found[-1] if has_topics else None

        await cluster.start()
        await make_topics(cluster)
        await eventually(newest)
    path = await eventually(newest)
    flip(path, place)
    before = contents(data)
    death = await refusal(tmp_path)
    assert any(path.name in line for line in death.last_lines)
    assert contents(data) == before
