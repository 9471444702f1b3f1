"""The segment log beside plain writes of the same bytes.

- Appending batches of 1 MB and of 10 KB, as leader and as follower, and a loop of `pwrite` of the
  same bytes into one file, in turns; the ratio of the medians.
- The cost of an append with the size of the log, and of a read with its position in it.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

import trio

from kraftpy.log.handles import HandlePool
from kraftpy.log.loading import load_log
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.log_reading import ReadableLog
from kraftpy.log.offsets import Isolation
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.records.builder import BatchBuilder
from kraftpy.world.real import real_world

PASSES = 9
# As many bytes in each pass, whatever the batch.
PASS_BYTES = 64 * 1024 * 1024
GOALS = {1_000_000: 0.70, 10_000: 0.25}


class Owner:
    """Nothing is flushed: neither is what is written plainly."""

    def __init__(self, pool: HandlePool) -> None:
        self._pool = pool

    def work_pending(self, log: ReadableLog) -> None:
        pass

    def unlink_later(self, paths: Sequence[str], delay_ms: int) -> None:
        self._pool.close_paths(paths)
        for path in paths:
            os.unlink(path)

    def storage_failed(self, log: ReadableLog, error: OSError) -> None:
        raise error


async def new_log(directory: Path) -> PartitionLog:
    world = real_world()
    pool = HandlePool(world.disk, limit=100)
    environment = LogEnvironment(
        disk=world.disk,
        pool=pool,
        clock=world.clock,
        pace=Pace(world.clock),
        jitter=Random(1),
        owner=Owner(pool),
    )
    config = LogConfig(max_message_bytes=2**30, file_delete_delay_ms=0)
    return await load_log(environment, str(directory), ("t", 0), config, is_clean=False)


def batch_of(size_bytes: int, *, producer_id: int = -1) -> bytearray:
    """A batch of records of 1,000 bytes, nearly as large as asked for."""
    now_ms = time.time_ns() // 1_000_000
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
    )
    payload = Random(7).randbytes(990)
    while builder.size + 1_000 < size_bytes:
        builder.append(None, payload, timestamp_ms=now_ms)
    return builder.build()


def seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


async def compare(root: Path, size_bytes: int) -> None:
    batch = batch_of(size_bytes)
    count = PASS_BYTES // len(batch)
    unstamped = bytes(batch[:8])
    log = await new_log(root / f"log-{size_bytes}")
    copy = await new_log(root / f"copy-{size_bytes}")
    descriptor = os.open(root / f"plain-{size_bytes}", os.O_RDWR | os.O_CREAT)

    def plain() -> None:
        position = 0
        for _ in range(count):
            position += os.pwrite(descriptor, batch, position)

    def as_leader() -> None:
        for _ in range(count):
            batch[:8] = unstamped
            log.append_as_leader(batch, 0)

    def as_follower() -> None:
        pack = int.to_bytes
        for _ in range(count):
            batch[:8] = pack(copy.log_end_offset, 8, "big")
            copy.append_as_follower(batch, 0)

    times: dict[str, list[float]] = {"plain": [], "leader": [], "follower": []}
    for _ in range(PASSES):
        # From nothing each time: pages that exist are written faster than new ones.
        os.ftruncate(descriptor, 0)
        await log.truncate_fully_and_start_at(0)
        await copy.truncate_fully_and_start_at(0)
        times["plain"].append(seconds(plain))
        times["leader"].append(seconds(as_leader))
        times["follower"].append(seconds(as_follower))
    os.close(descriptor)
    await log.close()
    await copy.close()
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    goal = GOALS[size_bytes]
    for name, median in medians.items():
        ratio = medians["plain"] / median
        mark = "" if name == "plain" else f"  {ratio:5.0%} of plain (goal {goal:.0%})"
        rate = count * len(batch) / median / 1e6
        print(
            f"   {len(batch):>9,} bytes  {name:<8} {rate:8.0f} MB/s "
            f"{median / count * 1e6:8.1f} us each{mark}"
        )


async def growth(root: Path) -> None:
    """Whether appends and reads slow down as the log grows."""
    log = await new_log(root / "growth")
    batch = batch_of(10_000)
    unstamped = bytes(batch[:8])

    def append() -> None:
        for _ in range(2_000):
            batch[:8] = unstamped
            log.append_as_leader(batch, 0)

    costs = [seconds(append) / 2_000 * 1e6 for _ in range(20)]
    print(
        f"   append to a log of {log.size_bytes / 1e6:.0f} MB: "
        f"{statistics.median(costs[:5]):.1f} us in the first quarter, "
        f"{statistics.median(costs[-5:]):.1f} us in the last"
    )
    random = Random(3)
    for name, low, high in (("start", 0.0, 0.01), ("middle", 0.5, 0.51), ("end", 0.99, 1.0)):
        span = log.log_end_offset - 1
        offsets = [int(span * random.uniform(low, high)) for _ in range(2_000)]
        cost = seconds(partial(read_each, log, offsets))
        print(f"   read at the {name:<6} {cost / len(offsets) * 1e6:6.1f} us")
    await log.close()


def read_each(log: PartitionLog, offsets: list[int]) -> None:
    for offset in offsets:
        log.read(offset, 1 << 20, Isolation.LOG_END)


async def measure() -> None:
    with tempfile.TemporaryDirectory() as root:
        for size_bytes in GOALS:
            await compare(Path(root), size_bytes)
        await growth(Path(root))


def main() -> None:
    trio.run(measure)


if __name__ == "__main__":
    main()
