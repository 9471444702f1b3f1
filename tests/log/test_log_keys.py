"""Settings of a node, by their keys, and what they do to its logs."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from cleaning_rig import CompactedRig, keyed

from kraftpy.config import NodeConfig, from_mapping
from kraftpy.log import directory_loading
from kraftpy.log.cleaner_settings import CleanerSettings
from kraftpy.log.log_config import LogConfig
from kraftpy.log.manager import LogManager
from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.world import World
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_network import MemoryFabric
from kraftpy.world.memory_rng import MemoryRng

NODE = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "9@h:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:0",
}
MIB = 1024 * 1024


def config_with(**settings: str) -> NodeConfig:
    return NodeConfig(from_mapping(NODE | settings, "the test"))


async def keys_in_a_map(count: int = 60_000, **settings: str) -> int:
    """How many keys the first cleaning of a log with very many takes in."""
    rig = CompactedRig(MemoryDisk(), "/data")
    rig.config = LogConfig(is_compacted=True, segment_bytes=100 * MIB, max_message_bytes=MIB)
    small = {"log.cleaner.dedupe.buffer.size": str(MIB * 5 // 4), **settings}
    rig.settings = CleanerSettings.from_node(config_with(**small))
    await rig.start()
    for start in range(0, count, 10_000):
        rig.append(keyed(*[(b"%d" % number, b"") for number in range(start, start + 10_000)]))
    assert await rig.clean()
    assert rig.cleaner.last_report is not None
    return rig.cleaner.last_report.key_count


async def test_the_cleaners_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """log.cleaner.dedupe.buffer.size holds keys up to log.cleaner.io.buffer.load.factor of it, and
    log.cleaner.io.buffer.size is read at a time.
    """
    full = await keys_in_a_map()
    less = await keys_in_a_map(**{"log.cleaner.dedupe.buffer.size": str(MIB + 24)})
    thin = await keys_in_a_map(**{"log.cleaner.io.buffer.load.factor": "0.45"})
    assert 45_000 < full < 60_000
    assert less == pytest.approx(full * 4 / 5, rel=0.01)
    assert thin == pytest.approx(full / 2, rel=0.01)
    from kraftpy.log import cleaning

    chunks: list[int] = []
    read_batches = cleaning.read_batches

    def noted(*args: Any, chunk_bytes: int) -> Any:
        chunks.append(chunk_bytes)
        return read_batches(*args, chunk_bytes=chunk_bytes)

    monkeypatch.setattr(cleaning, "read_batches", noted)
    await keys_in_a_map(10_000, **{"log.cleaner.io.buffer.size": "77777"})
    assert set(chunks) == {77_777}


@pytest.mark.parametrize(("threads", "side_by_side"), [("1", 4), ("3", 12)])
async def test_logs_are_loaded_side_by_side(
    threads: str, side_by_side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """num.recovery.threads.per.data.dir: four logs for each, where Kafka has one."""
    disk = MemoryDisk()
    world = World(
        MemoryClock(), MemoryRng(1, "test"), MemoryFabric(MemoryRng(1, "n")).host("h"), disk
    )
    for number in range(30):
        await disk.make_directory(f"/data/t-{number}")
    active = peak = 0
    load_log = directory_loading.load_log

    async def counted(*args: Any, **options: Any) -> Any:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        await trio.lowlevel.checkpoint()
        try:
            return await load_log(*args, **options)
        finally:
            active -= 1

    monkeypatch.setattr(directory_loading, "load_log", counted)
    config = config_with(**{"num.recovery.threads.per.data.dir": threads})
    settings = LogManagerSettings.from_node(config, "c", ("/data",), open_files_max=100)
    manager = LogManager(world, settings, config_of=lambda _: LogConfig())
    async with manager.running():
        assert len(manager.logs) == 30
    assert peak == side_by_side
