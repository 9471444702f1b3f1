"""Byte compatibility with Apache Kafka, both ways: it reads what we write, we read what it writes.

Apache Kafka's own dump tool is the judge of our files. Its output and ours are compared line by
line, for the files of both. A broker of Kafka's, run once for this module (and killed in between),
writes a data directory; our manager loads it, after the clean stop and after the kill, and serves
the records that Kafka's consumers were served.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path

import pytest
from kafka_directory import CLUSTER_ID, NODE_ID, TOPICS, KafkaDirectory, Seen, write_directory
from log_home import Home
from log_rig import batch, batches_in, marker
from support.kafka_jars import run_java

from kraftpy.cli.main import main
from kraftpy.log.log_config import LogConfig
from kraftpy.log.manager import LogManager
from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.validation import AppendOrigin
from kraftpy.records.walker import records_of
from kraftpy.world.real_disk import RealDisk

pytestmark = [pytest.mark.java, pytest.mark.slow]

DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> KafkaDirectory:
    return write_directory(tmp_path_factory.mktemp("kafka"))


def dumped_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.suffix in DUMPED]


def dump_with_kafka(files: list[Path], *, is_compacted: bool) -> list[str]:
    """What Kafka's tool prints; it must have nothing to complain about."""
    done = run_java(
        "org.apache.kafka.tools.DumpLogSegments",
        "--deep-iteration",
        "--print-data-log",
        "--files",
        ",".join(map(str, files)),
    )
    assert complaints(done.stderr, is_compacted=is_compacted) == []
    assert done.returncode == 0
    # An index without entries is said to be empty; ours says nothing.
    return [line for line in done.stdout.splitlines() if not line.endswith(" is empty.")]


def complaints(stderr: str, *, is_compacted: bool) -> list[str]:
    """Without those that the tool has about every segment but the first, and about gaps."""
    ignored = ["SLF4J", "Non-consecutive offsets in "]
    ignored.append(" is followed by " if is_compacted else "  -1 is followed by ")
    return [line for line in stderr.splitlines() if not any(each in line for each in ignored)]


def dump_with_kraftpy(files: list[Path]) -> list[str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["log", "dump", "--print-data-log", *map(str, files)]) == 0
    return printed.getvalue().splitlines()


def assert_dumped_alike(folder: Path, copy: Path, *, is_compacted: bool = False) -> list[str]:
    """Both tools say the same of every file; Kafka's gets a copy, since it opens files to write."""
    shutil.copytree(folder, copy)
    theirs = dump_with_kafka(dumped_files(copy), is_compacted=is_compacted)
    assert dump_with_kraftpy(dumped_files(copy)) == theirs
    # Nor was anything changed by being looked at.
    for path in dumped_files(folder):
        assert path.read_bytes() == (copy / path.name).read_bytes(), path.name
    return theirs


def append_marker(log: PartitionLog, producer_id: int, *, is_commit: bool) -> None:
    log.append_as_leader(
        marker(producer_id, 0, is_commit=is_commit),
        2,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=1,
    )


def write_everything(log: PartitionLog) -> None:
    """All codecs, headers, nulls, idempotence, transactions of both ends, over several segments."""
    for codec in Codec:
        builder = BatchBuilder(codec=codec)
        for number in range(20):
            headers = (("codec", codec.name.encode()), ("nothing", None)) if number % 3 else ()
            key = None if number % 4 == 0 else b"key %d" % number
            value = None if number % 7 == 6 else b"value %d" % number * 9
            timestamp_ms = 1_700_000_000_000 + number * (7 if number % 2 else -5)
            builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)
        log.append_as_leader(builder.build(), 0)
    for number in range(60):
        producer_id = number % 3 + 1
        is_transactional = producer_id > 1
        values = [b"%d of %d" % (number, producer_id) * 5] * (number % 4 + 1)
        entry = log.producers.producers.get(producer_id)
        sequence = 0 if entry is None else entry.last_sequence + 1
        log.append_as_leader(
            batch(
                *values,
                producer_id=producer_id,
                producer_epoch=0,
                sequence=sequence,
                is_transactional=is_transactional,
                timestamp_ms=1_700_000_001_000 + number,
            ),
            1 + number // 40,
        )
        if number % 12 == 10:
            append_marker(log, 2, is_commit=False)
        if number % 12 == 11:
            append_marker(log, 3, is_commit=number % 24 == 11)


def follow(leader: PartitionLog, follower: PartitionLog) -> None:
    """Several batches at a time, as a fetcher gets them."""
    while follower.log_end_offset < leader.log_end_offset:
        found = leader.read(follower.log_end_offset, 1500, Isolation.LOG_END).records
        assert found is not None
        follower.append_as_follower(bytearray(found.file.pread(found.length, found.position)), 9)


async def test_kafkas_dump_tool_reads_our_files(tmp_path: Path) -> None:
    """LOG-8: logs, indexes, time indexes, transaction indexes, snapshots; deep iteration."""
    home = Home(RealDisk(), str(tmp_path))
    home.config = LogConfig(segment_bytes=3000, index_interval_bytes=200, segment_index_bytes=12000)
    async with home.manager(verifies_transactions=False).running() as manager:
        leader = await manager.get_or_create(("leader", 0), directory=home.a)
        follower = await manager.get_or_create(("follower", 0), directory=home.a)
        write_everything(leader)
        follow(leader, follower)
    for topic in ("leader", "follower"):
        lines = assert_dumped_alike(Path(home.a, f"{topic}-0"), tmp_path / topic)
        text = "\n".join(lines)
        for codec in Codec:
            assert f"compresscodec: {codec.name.lower()} " in text
        for wanted in ("endTxnMarker: ABORT", "endTxnMarker: COMMIT", "lastStableOffset: "):
            assert wanted in text
        for suffix in DUMPED:
            assert sum(line.endswith(suffix) for line in lines) >= 2, suffix
        assert "currentTxnFirstOffset: OptionalLong[" in text
        assert sum(line.startswith("offset: ") for line in lines) > 10
        assert sum(line.startswith("timestamp: ") for line in lines) > 10


@pytest.mark.parametrize("topic", TOPICS)
def test_both_dumps_say_the_same_of_kafkas_files(
    kafka: KafkaDirectory, tmp_path: Path, topic: str
) -> None:
    folder, is_compacted = kafka.clean / f"{topic}-0", topic == "compacted"
    assert len(assert_dumped_alike(folder, tmp_path / topic, is_compacted=is_compacted)) > 10


def records_in(log: PartitionLog, isolation: Isolation) -> list[Seen]:
    """What a consumer makes of what it is served: no markers, nothing aborted."""
    aborted = log.read(log.log_start_offset, 1 << 30, isolation).aborted_transactions or ()
    if isolation is Isolation.COMMITTED:
        for segment in log.segments:
            aborted += tuple(segment.transaction_index.entries())
    found = []
    for each in batches_in(log, isolation=isolation):
        assert isinstance(each, RecordBatch)
        is_aborted = each.is_transactional and any(
            each.producer_id == transaction.producer_id
            and transaction.first_offset <= each.base_offset <= transaction.last_offset
            for transaction in aborted
        )
        if not each.is_control and not is_aborted:
            found += [Seen(*record) for record in records_of(each, max_bytes=1 << 24)]
    return found


def manager_of(folder: Path) -> LogManager:
    home = Home(RealDisk(), str(folder))
    home.config = LogConfig()
    return home.manager(directories=(str(folder),), cluster_id=CLUSTER_ID, node_id=NODE_ID)


async def test_we_serve_what_kafka_wrote(kafka: KafkaDirectory, tmp_path: Path) -> None:
    """LOG-61, LOG-117: codecs, transactions, several segments and epochs, a compacted topic."""
    folder = tmp_path / "data"
    shutil.copytree(kafka.clean, folder)
    async with manager_of(folder).running() as manager:
        for topic in TOPICS:
            log = manager.get((topic, 0))
            assert log is not None
            assert log.high_watermark == log.log_end_offset
            assert records_in(log, Isolation.HIGH_WATERMARK) == kafka.everything[topic], topic
            assert records_in(log, Isolation.COMMITTED) == kafka.committed[topic], topic
            assert len(log.epochs.entries) == 2, topic
            assert manager.topic_id((topic, 0)) is not None
        segments = manager.get(("segments", 0))
        assert segments is not None
        assert len(segments.segments) >= 3
        # The idempotent producer of `segments` is known: its snapshot was read.
        assert len(segments.producers.producers) == 2
        compacted = [seen.offset for seen in kafka.everything["compacted"]]
        assert compacted != list(range(compacted[0], compacted[-1] + 1)), "Kafka has compacted"
        appended = segments.append_as_leader(batch(b"ours"), 9)
        assert appended.first_offset == len(kafka.everything["segments"])


async def test_we_recover_what_a_killed_kafka_left(kafka: KafkaDirectory, tmp_path: Path) -> None:
    """LOG-61: preallocated indexes, no marker; what consumers had seen is there."""
    folder = tmp_path / "data"
    shutil.copytree(kafka.crashed, folder)
    async with manager_of(folder).running() as manager:
        for topic in TOPICS:
            log = manager.get((topic, 0))
            assert log is not None
            found = records_in(log, Isolation.LOG_END)
            seen = kafka.everything_at_crash[topic]
            if topic == "compacted":
                # The cleaner may have gone on between the consumer and the kill.
                assert {each.key: each for each in found} == {each.key: each for each in seen}
            else:
                assert found == seen, topic
