"""The cleaner: MB a second of compaction, and the memory that it takes.

A log of records of 1 KB over a hundredth as many keys as there are bytes in 10 KB of it, as a topic
that keeps the latest state of many things has them, is compacted once. `KRAFTPY_BENCH_CLEANER_MB`
sets its size (default 100; 1000 makes a million keys). The speed is that of the dirty bytes, which
are read twice; beside it stands the speed of reading and checking the same bytes twice and nothing
else, which every cleaner must do.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import trio

from kraftpy.log.cleaner import Cleaner
from kraftpy.log.cleaner_settings import CleanerSettings
from kraftpy.log.handles import HandlePool
from kraftpy.log.loading import load_log
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.log_reading import ReadableLog
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.recovery import read_batches
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.real_clock import RealClock
from kraftpy.world.real_disk import RealDisk

SIZE_MB = int(os.environ.get("KRAFTPY_BENCH_CLEANER_MB", "100"))
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Shape:
    name: str
    value_bytes: int
    batch_records: int
    codec: Codec = Codec.NONE
    size_mb: int = SIZE_MB


SHAPES = (
    Shape("records of 1 KB", 1_000, 16),
    Shape("records of 100 bytes", 100, 160, size_mb=max(1, SIZE_MB // 4)),
    Shape("records of 1 KB, lz4", 1_000, 16, Codec.LZ4),
)


class Owner:
    def work_pending(self, log: ReadableLog) -> None:
        pass

    def unlink_later(self, paths: Sequence[str], delay_ms: int) -> None:
        for path in paths:
            os.unlink(path)

    def storage_failed(self, log: ReadableLog, error: OSError) -> None:
        raise error


def main() -> None:
    for shape in SHAPES:
        with tempfile.TemporaryDirectory(prefix="kraftpy-bench-") as directory:
            trio.run(measure, shape, directory)


def batches_of(shape: Shape) -> Iterable[bytearray]:
    draw = random.Random(1)
    count = shape.size_mb * 1_000_000 // (shape.value_bytes + 20)
    values = [draw.randbytes(shape.value_bytes // 2).hex().encode() for _ in range(100)]
    keys = max(1, count // 2)
    for _ in range(0, count, shape.batch_records):
        builder = BatchBuilder(codec=shape.codec)
        for _ in range(shape.batch_records):
            key = b"customer-%08d" % draw.randrange(keys)
            builder.append(key, draw.choice(values), timestamp_ms=NOW_MS)
        yield builder.build()


async def measure(shape: Shape, directory: str) -> None:
    disk, clock = RealDisk(), RealClock()
    environment = LogEnvironment(
        disk=disk,
        pool=HandlePool(disk, 100),
        clock=clock,
        jitter=random.Random(1),
        owner=Owner(),
    )
    config = LogConfig(is_compacted=True, is_deleted=False, segment_bytes=64 << 20)
    log = await load_log(environment, f"{directory}/bench-0", ("bench", 0), config, is_clean=True)
    for data in batches_of(shape):
        log.append_as_leader(data, 0, origin=AppendOrigin.COORDINATOR)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    floor_seconds = await read_twice(log, Pace(clock))
    cleaner = Cleaner(disk, clock, CleanerSettings(), logs=lambda: [log])
    await cleaner.open_directory(directory, [])
    started = time.perf_counter()
    assert await cleaner.clean_dirtiest()
    seconds = time.perf_counter() - started
    report = cleaner.last_report
    assert report is not None
    records = log.log_end_offset
    print(
        f"   {shape.name}: {report.old_bytes / 1e6:,.0f} MB, {records:,} records, "
        f"{report.key_count:,} keys: {report.old_bytes / seconds / 1e6:,.1f} MB/s, "
        f"{records / seconds:,.0f} records/s; reading and checking alone "
        f"{report.old_bytes / floor_seconds / 1e6:,.0f} MB/s; {report.new_bytes / 1e6:,.0f} MB "
        f"remain; map {report.map_bytes / 1e6:,.1f} MB"
    )
    # Again, with most of it clean, for the memory: tracing it takes its time.
    log.append_as_leader(next(iter(batches_of(shape))), 0, origin=AppendOrigin.COORDINATOR)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    log.config = LogConfig(
        is_compacted=True, is_deleted=False, segment_bytes=64 << 20, min_cleanable_dirty_ratio=0.0
    )
    await cleaner.forget(log)
    tracemalloc.start()
    assert await cleaner.clean_dirtiest()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"   {shape.name}: peak memory of a cleaning {peak_bytes / 1e6:,.1f} MB")
    await log.close()


async def read_twice(log: PartitionLog, pace: Pace) -> float:
    started = time.perf_counter()
    for _ in range(2):
        for segment in log.segments:
            async with aclosing(read_batches(segment, pace)) as batches:
                async for _ in batches:
                    pass
    return time.perf_counter() - started
