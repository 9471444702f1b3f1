"""Starting with many logs: after a clean stop, and after a crash.

A clean start loads 1,000 partitions of 3 segments (goal: less than 1.5 s, and no index is read). An
unclean start recovers some hundred MB; printed beside it is the time of reading the same bytes and
checking the CRC of the same batches, which is the least that recovery has to do (goal: at most
twice that).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from kraftpy.log.log_config import LogConfig
from kraftpy.log.manager import LogManager
from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.walker import walk_batches
from kraftpy.world import Disk, File, World
from kraftpy.world.real import real_world
from kraftpy.world.real_disk import RealDisk

PARTITIONS = 1_000
SEGMENTS = 3
RECOVERED_BYTES = 300_000_000
BATCH_BYTES = 16_384
ROUNDS = 3


def main() -> None:
    with folder() as root:
        trio.run(measure_clean_start, root)
    with folder() as root:
        trio.run(measure_unclean_start, root)


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kraftpy-bench-") as name:
        yield Path(name)


class CountingDisk(RealDisk):
    """Notes what is opened."""

    __slots__ = ("opened",)

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def open(
        self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        self.opened.append(path)
        return super().open(path, write=write, create=create, exclusive=exclusive)


def manager(root: Path, config: LogConfig, disk: Disk | None = None) -> LogManager:
    world = real_world()
    if disk is not None:
        world = World(clock=world.clock, rng=world.rng, network=world.network, disk=disk)
    settings = LogManagerSettings(
        directories=(str(root / "data"),),
        cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
        node_id=1,
    )
    return LogManager(world, settings, config_of=lambda _: config)


def batch(size_bytes: int) -> bytearray:
    builder = BatchBuilder()
    while builder.size < size_bytes:
        builder.append(b"key", bytes(100), timestamp_ms=1_700_000_000_000)
    return builder.build()


async def measure_clean_start(root: Path) -> None:
    config = LogConfig(segment_index_bytes=8192)
    async with manager(root, config).running() as logs:
        for partition in range(PARTITIONS):
            log = await logs.get_or_create(("t", partition))
            for segment in range(SEGMENTS):
                log.append_as_leader(batch(1000), 0)
                if segment < SEGMENTS - 1:
                    log.roll()
    config = LogConfig()
    times, cpu_times, opened = [], [], []
    for _ in range(ROUNDS):
        disk = CountingDisk()
        started, cpu_started = time.perf_counter(), time.process_time()
        async with manager(root, config, disk).running() as logs:
            times.append(time.perf_counter() - started)
            cpu_times.append(time.process_time() - cpu_started)
            opened = list(disk.opened)
            assert len(logs.logs) == PARTITIONS
    indexes = [path for path in opened if path.endswith("index")]
    print(
        f"clean start, {PARTITIONS} partitions of {SEGMENTS} segments: "
        f"{min(times):.2f} s, {min(cpu_times):.2f} s of them computing (goal 1.5 s); "
        f"{len(indexes)} indexes opened, {len(opened)} files in all"
    )


async def measure_unclean_start(root: Path) -> None:
    config = LogConfig(segment_bytes=64_000_000)
    async with manager(root, config).running() as logs:
        logs_by_turn = [await logs.get_or_create(("t", number)) for number in range(4)]
        data = batch(BATCH_BYTES)
        for number in range(RECOVERED_BYTES // len(data)):
            logs_by_turn[number % 4].append_as_leader(bytearray(data), 0)
    plain, recovery = [], []
    for turn in range(ROUNDS):
        copy = root / f"copy-{turn}"
        shutil.copytree(root / "data", copy / "data")
        # Without marker and recovery points everything has to be recovered.
        (copy / "data" / ".kafka_cleanshutdown").unlink()
        (copy / "data" / "recovery-point-offset-checkpoint").write_text("0\n0\n")
        started = time.perf_counter()
        total = check_bytes(copy / "data")
        plain.append(time.perf_counter() - started)
        started = time.perf_counter()
        async with manager(copy, config).running():
            recovery.append(time.perf_counter() - started)
        shutil.rmtree(copy)
    ratio = min(recovery) / min(plain)
    print(
        f"unclean start, {total / 1e6:.0f} MB in batches of {BATCH_BYTES // 1024} KiB: "
        f"{min(recovery):.2f} s, {ratio:.2f} x reading and CRC ({min(plain):.2f} s; goal 2 x)"
    )


def check_bytes(data: Path) -> int:
    """Read all segments and check every CRC, with nothing else around it."""
    total = 0
    for path in sorted(data.glob("*/*.log")):
        content = path.read_bytes()
        for found in walk_batches(content):
            assert isinstance(found, RecordBatch)
            assert found.is_valid
        total += len(content)
    return total
