"""The cleaner: MB a second of compaction beside Kafka's cleaner, and the memory that it takes.

Apache Kafka writes a compacted topic of records of 500 bytes, each key twice, in random order. Its
directory is copied; Kafka cleans its own, we the copy, in a process of our own. What remains must
be the same records. `KRAFTPY_BENCH_CLEANER_MB` sets the size (default 200; 1000 makes 1 GB, with a
million keys).
Kafka's time runs from the change of `min.cleanable.dirty.ratio` that lets it begin until its
checkpoint says that it is done, up to a tenth of a second of waiting included. Its CPU time is that
of the whole process, compiler and garbage collector included, less its idle rate from before.

Then, of us alone, other shapes of records. The speed is that of the dirty bytes, which are read
twice; beside it stands the speed of reading and checking the same bytes twice and nothing else,
which every cleaner must do.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import trio
from confluent_kafka import Producer, admin

from bench._peers import Server, apache_kafka
from kraftpy.log.checkpoints import CLEANER_OFFSET_CHECKPOINT, parse_offsets
from kraftpy.log.cleaner import Cleaner
from kraftpy.log.cleaner_settings import CleanerSettings
from kraftpy.log.cleaning import CleaningReport
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
from kraftpy.records.walker import records_of, walk_batches
from kraftpy.world.real_clock import RealClock
from kraftpy.world.real_disk import RealDisk

SIZE_MB = int(os.environ.get("KRAFTPY_BENCH_CLEANER_MB", "200"))
RECORD_BYTES = 500
SEGMENT_BYTES = 100_000_000
TOPIC = "bench"
PARTITION = f"{TOPIC}-0"
QUEUE_RECORDS = 50_000
CLEANING_TIMEOUT_SECONDS = 600
IDLE_SECONDS = 3.0
# Kafka takes all of `log.cleaner.dedupe.buffer.size` at its start.
KAFKA_MAP_BYTES = 134_217_728
SHAPE_MB = 100
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Shape:
    name: str
    value_bytes: int
    batch_records: int
    codec: Codec = Codec.NONE
    size_mb: int = SHAPE_MB


SHAPES = (
    Shape("records of 1 KB", 1_000, 16),
    Shape("records of 100 bytes", 100, 160, size_mb=SHAPE_MB // 4),
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
    compare_with_kafka()
    for shape in SHAPES:
        with tempfile.TemporaryDirectory(prefix="kraftpy-bench-") as directory:
            trio.run(measure, shape, directory)


@dataclass(frozen=True)
class Measured:
    """One cleaning.

    The memory is the process's, before and at most; Kafka's is that of before and after.
    """

    seconds: float
    cpu_seconds: float
    before_bytes: int
    peak_bytes: int
    map_bytes: int


@dataclass(frozen=True)
class Remains:
    """The sealed part of a partition's directory."""

    size_bytes: int
    records: int
    digest: str


def compare_with_kafka() -> None:
    added = {"log.cleaner.backoff.ms": "100"}
    with tempfile.TemporaryDirectory(prefix="kraftpy-bench-") as name, apache_kafka(added) as kafka:
        original, copy = kafka.folder / "data" / PARTITION, Path(name) / PARTITION
        end_offset = fill(kafka)
        copy_sealed(original, copy, end_offset)
        before = remains(copy, end_offset)
        os.sync()
        theirs = let_kafka_clean(kafka, end_offset)
        os.sync()
        command = [sys.executable, "-m", "bench.cleaner", name]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        ours = Measured(**json.loads(found.stdout))
        after = {"kraftpy": remains(copy, end_offset), "Kafka": remains(original, end_offset)}
    print(
        f"   {before.size_bytes / 1e6:,.0f} MB, {before.records:,} records of {RECORD_BYTES} bytes,"
        f" {before.records // 2:,} keys"
    )
    for server, measured in (("kraftpy", ours), ("Kafka", theirs)):
        print(
            f"   {server:7}: {before.size_bytes / measured.seconds / 1e6:6,.1f} MB/s,"
            f" {before.size_bytes / measured.cpu_seconds / 1e6:6,.1f} MB a CPU second"
            f" ({measured.seconds:.2f} s, {measured.cpu_seconds:.2f} s of CPU);"
            f" process {measured.before_bytes / 1e6:,.0f} -> {measured.peak_bytes / 1e6:,.0f} MB"
            f" with a map of {measured.map_bytes / 1e6:,.1f} MB;"
            f" {after[server].size_bytes / 1e6:,.2f} MB, {after[server].records:,} records remain"
        )
    print(
        f"   kraftpy / Kafka: {theirs.seconds / ours.seconds:.2f} x by the clock,"
        f" {theirs.cpu_seconds / ours.cpu_seconds:.2f} x by CPU"
    )
    if after["kraftpy"].digest != after["Kafka"].digest:
        raise SystemExit("the two cleaners have kept different records")
    print("   both have kept the same records: offsets, timestamps, keys and values agree")


def set_topic(client: admin.AdminClient, key: str, value: str) -> None:
    entry = admin.ConfigEntry(key, value, incremental_operation=admin.AlterConfigOpType.SET)
    resource = admin.ConfigResource("topic", TOPIC, incremental_configs=[entry])
    for done in client.incremental_alter_configs([resource]).values():
        done.result()


def fill(kafka: Server) -> int:
    """Make the topic and seal its segments; where the last of them ends."""
    address: dict[str, Any] = {"bootstrap.servers": f"{kafka.host}:{kafka.port}"}
    client = admin.AdminClient(address)
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        # The ratio of a log that was never cleaned is 1, and must be more than this.
        "min.cleanable.dirty.ratio": "1.0",
    }
    for made in client.create_topics([admin.NewTopic(TOPIC, 1, 1, config=config)]).values():
        made.result()
    producer = Producer({**address, "batch.size": 16_384, "linger.ms": 50})
    draw = random.Random(1)
    count = SIZE_MB * 1_000_000 // RECORD_BYTES
    values = [draw.randbytes(RECORD_BYTES // 2).hex()[: RECORD_BYTES - 25] for _ in range(100)]
    customers = [*range(count // 2), *range(count // 2)]
    draw.shuffle(customers)
    for customer in customers:
        while len(producer) >= QUEUE_RECORDS:
            producer.poll(0.1)
        producer.produce(TOPIC, draw.choice(values), b"customer-%08d" % customer)
    producer.flush()
    set_topic(client, "segment.ms", "1")
    original = kafka.folder / "data" / PARTITION
    while (end_offset := base_offsets(original)[-1]) < count:
        # A record that finds the active segment too old goes into a new one.
        producer.produce(TOPIC, b"", b"customer-last")
        producer.flush()
        time.sleep(0.05)
    return end_offset


def base_offsets(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def copy_sealed(original: Path, copy: Path, end_offset: int) -> None:
    copy.mkdir()
    for base_offset in base_offsets(original):
        if base_offset < end_offset:
            for path in original.glob(f"{base_offset:020}.*"):
                shutil.copy(path, copy)


def remains(folder: Path, end_offset: int) -> Remains:
    size_bytes = records = 0
    digest = hashlib.sha256()
    for base_offset in base_offsets(folder):
        if base_offset < end_offset:
            data = (folder / f"{base_offset:020}.log").read_bytes()
            size_bytes += len(data)
            for batch in walk_batches(data):
                # Not the batch's bytes: Kafka counts timestamps from the first that is left.
                for record in records_of(batch, max_bytes=1 << 20):
                    records += 1
                    digest.update(b"%d %d " % (record.offset, record.timestamp_ms))
                    digest.update(record.key or b"")
                    digest.update(record.value or b"")
    return Remains(size_bytes, records, digest.hexdigest())


def let_kafka_clean(kafka: Server, end_offset: int) -> Measured:
    client = admin.AdminClient({"bootstrap.servers": f"{kafka.host}:{kafka.port}"})
    path = kafka.folder / "data" / CLEANER_OFFSET_CHECKPOINT
    if cleaned_until(path) is not None:
        raise SystemExit("Kafka has cleaned before it should")
    idle_from = kafka.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    cpu_from, before_bytes = kafka.cpu_seconds(), kafka.resident_bytes()
    idle_share = (cpu_from - idle_from) / IDLE_SECONDS
    started = time.perf_counter()
    set_topic(client, "min.cleanable.dirty.ratio", "0.001")
    while cleaned_until(path) != end_offset:
        if time.perf_counter() - started > CLEANING_TIMEOUT_SECONDS:
            raise SystemExit(f"Kafka has cleaned up to {cleaned_until(path)}, not {end_offset}")
        time.sleep(0.005)
    seconds = time.perf_counter() - started
    cpu_seconds = kafka.cpu_seconds() - cpu_from - idle_share * seconds
    return Measured(seconds, cpu_seconds, before_bytes, kafka.resident_bytes(), KAFKA_MAP_BYTES)


def cleaned_until(path: Path) -> int | None:
    if not path.exists():
        return None
    return parse_offsets(path.read_text(), str(path)).get((TOPIC, 0))


async def open_log(directory: str) -> PartitionLog:
    disk = RealDisk()
    environment = LogEnvironment(
        disk=disk,
        pool=HandlePool(disk, 100),
        clock=RealClock(),
        pace=Pace(RealClock()),
        jitter=random.Random(1),
        owner=Owner(),
    )
    config = LogConfig(is_compacted=True, is_deleted=False, segment_bytes=SEGMENT_BYTES)
    path = f"{directory}/{PARTITION}"
    return await load_log(environment, path, (TOPIC, 0), config, is_clean=True)


async def clean(log: PartitionLog, directory: str) -> tuple[Measured, CleaningReport]:
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    cleaner = Cleaner(RealDisk(), RealClock(), CleanerSettings(), logs=lambda: [log])
    await cleaner.open_directory(directory, [])
    before_bytes = peak_of_process()
    started, cpu_from = time.perf_counter(), time.process_time()
    assert await cleaner.clean_dirtiest()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_from
    report = cleaner.last_report
    assert report is not None
    measured = Measured(seconds, cpu_seconds, before_bytes, peak_of_process(), report.map_bytes)
    return measured, report


async def clean_copy(directory: str) -> Measured:
    log = await open_log(directory)
    measured, _ = await clean(log, directory)
    await log.close()
    return measured


def peak_of_process() -> int:
    """Not that of getrusage, which a child takes over from its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


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
    log = await open_log(directory)
    for data in batches_of(shape):
        log.append_as_leader(data, 0, origin=AppendOrigin.COORDINATOR)
    floor_seconds = await read_twice(log, Pace(RealClock()))
    measured, report = await clean(log, directory)
    records = log.log_end_offset
    print(
        f"   {shape.name}: {report.old_bytes / 1e6:,.0f} MB, {records:,} records, "
        f"{report.key_count:,} keys: {report.old_bytes / measured.seconds / 1e6:,.1f} MB/s, "
        f"{records / measured.seconds:,.0f} records/s; reading and checking alone "
        f"{report.old_bytes / floor_seconds / 1e6:,.0f} MB/s; {report.new_bytes / 1e6:,.0f} MB "
        f"remain; map {report.map_bytes / 1e6:,.1f} MB"
    )
    await log.close()


async def read_twice(log: PartitionLog, pace: Pace) -> float:
    started = time.perf_counter()
    for _ in range(2):
        for segment in log.segments:
            async with aclosing(read_batches(segment, pace)) as batches:
                async for _ in batches:
                    pass
    return time.perf_counter() - started


if __name__ == "__main__":
    print(json.dumps(asdict(trio.run(clean_copy, sys.argv[1]))))
