"""The log's leaves beside Apache Kafka's, which read our files and judge the same appends."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from support.kafka_jars import run_java

from kraftpy.log.checkpoints import (
    AtomicFile,
    format_epochs,
    format_offsets,
    format_partition_metadata,
)
from kraftpy.log.errors import LogError
from kraftpy.log.handles import HandlePool
from kraftpy.log.index import OffsetIndex, TimeIndex
from kraftpy.log.meta_properties import MetaProperties, format_meta_properties
from kraftpy.log.producer_entries import (
    SEQUENCE_MAX,
    BatchMetadata,
    ProducerEntry,
    encode_snapshot,
    increment_sequence,
)
from kraftpy.log.producers import ProducerState
from kraftpy.log.transactions import AbortedTransaction, TransactionIndex
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.protocol.ids import parse_uuid
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.real_disk import RealDisk

pytestmark = pytest.mark.java

ORACLE = Path(__file__).with_name("LogOracle.java")
ORIGINS = {
    "C": AppendOrigin.CLIENT,
    "K": AppendOrigin.COORDINATOR,
    "R": AppendOrigin.REPLICATION,
}
CASES = 100
SEED = 20261116


def described(entry: ProducerEntry) -> str:
    batches = "".join(" " + ",".join(map(str, batch)) for batch in entry.batches)
    return (
        f"{entry.producer_id} {entry.epoch} {entry.coordinator_epoch} "
        f"{entry.last_timestamp_ms} {entry.transaction_first_offset}{batches}"
    )


async def test_kafka_reads_our_files(tmp_path: Path) -> None:
    """LOG-5, LOG-8 in part: every small file and index, with the class that owns the format."""
    disk = RealDisk()
    pool = HandlePool(disk, limit=10)
    topic_id, directory_id = "LbWaf3qcTM2zxfIuYfLDVw", "7NUiGCnoQdeqDvnJ5vQwoA"
    meta = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 7, parse_uuid(directory_id))
    for name, text in {
        "replication-offset-checkpoint": format_offsets({("a-b", 3): 2**40}),
        "leader-epoch-checkpoint": format_epochs([(0, 0), (3, 17)]),
        "partition.metadata": format_partition_metadata(parse_uuid(topic_id)),
        "meta.properties": format_meta_properties(meta),
    }.items():
        await AtomicFile(disk, str(tmp_path / name)).replace(text)
    producers = [
        ProducerEntry(5, 2, 4, 999, 40, (BatchMetadata(2**31 - 1, 41, 1, 999),)),
        ProducerEntry(2**62, 0, -1, 7),
    ]
    (tmp_path / "00000000000000000042.snapshot").write_bytes(encode_snapshot(producers))
    base = str(tmp_path / "00000000000000000100")
    offsets = OffsetIndex(pool.file(base + ".index", write=True, create=True), 100, 1024)
    times = TimeIndex(pool.file(base + ".timeindex", write=True, create=True), 100, 1024)
    aborted = TransactionIndex(
        pool.file(base + ".txnindex", write=True, create=True), 100, exists=False
    )
    offsets.create()
    times.create()
    transactions = [AbortedTransaction(1, 90, 110, 95), AbortedTransaction(2**62, 95, 120, 121)]
    for number in (5, 17, 2**31 - 1):
        offsets.append(100 + number, number // 2)
        times.maybe_append(1_526_384_712_245 + number, 100 + number)
    for transaction in transactions:
        aborted.append(transaction)
    offsets.close()
    times.close()
    done = run_java(ORACLE, "files", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"offset a-b-3 {2**40}",
        "epoch 0 0",
        "epoch 3 17",
        f"topic {topic_id}",
        f"meta 1 MkU3OEVBNTcwNTJENDM2Qg 7 {directory_id}",
        *(f"producer {described(entry)}" for entry in producers),
        *(f"position {100 + number} {number // 2}" for number in (5, 17, 2**31 - 1)),
        *(f"time {1_526_384_712_245 + number} {100 + number}" for number in (5, 17, 2**31 - 1)),
        *("aborted " + " ".join(map(str, transaction)) for transaction in transactions),
    ]


class OurLog:
    """What LogOracle.java does with Kafka's log, done with ours."""

    def __init__(self) -> None:
        self.state = ProducerState(expiration_ms=0)
        self.guards: list[VerificationGuard] = []
        self.end = 0

    def perform(self, line: str) -> str:
        words = line.split()
        try:
            answer = getattr(self, words[0])(*words[1:])
        except LogError as error:
            answer = f"error {error.error_code.name}"
        first = self.state.first_unstable
        unstable = -1 if first is None else first.first_offset
        entries = sorted(self.state.producers.values())
        return " | ".join([answer, str(unstable), *map(described, entries)])

    def log(self, verify: str) -> str:
        self.state = ProducerState(expiration_ms=86_400_000, verify_transactions=verify == "1")
        self.guards = []
        self.end = 0
        return "ok"

    def write(self, origin: str, *words: str) -> str:
        producer_id, epoch, sequence, count, transactional, guard = map(int, words)
        if origin == "C":
            repeated = self.state.find_duplicate(
                producer_id, epoch, base_sequence=sequence, last_offset_delta=count - 1
            )
            if repeated is not None:
                return f"ok {repeated.first_offset} {repeated.last_offset}"
        update = self.state.prepare(
            ORIGINS[origin], guard=NO_GUARD if guard < 0 else self.guards[guard]
        )
        first, last = self.end, self.end + count - 1
        update.add_batch(
            producer_id,
            epoch,
            base_sequence=sequence,
            base_offset=first,
            last_offset=last,
            max_timestamp_ms=1000 + self.end,
            is_transactional=transactional == 1,
        )
        self.state.commit(update)
        self.end += count
        return f"ok {first} {last}"

    def mark(self, origin: str, *words: str) -> str:
        producer_id, epoch, coordinator_epoch, abort, version = map(int, words)
        update = self.state.prepare(ORIGINS[origin], transaction_version=version)
        update.add_marker(
            producer_id,
            epoch,
            coordinator_epoch=coordinator_epoch,
            offset=self.end,
            timestamp_ms=1000 + self.end,
            is_abort=abort == 1,
        )
        self.state.commit(update)
        for completed in update.completed:
            self.state.complete(completed)
        self.end += 1
        return f"ok {self.end - 1} {self.end - 1}"

    def verify(self, *words: str) -> str:
        producer_id, epoch, sequence, bump = map(int, words)
        # Kafka takes the wall's time, which is long after what `expire` expires.
        guard = self.state.start_verification(
            producer_id,
            epoch=epoch,
            sequence=sequence,
            now_ms=10**13,
            supports_epoch_bump=bump == 1,
        )
        if guard is NO_GUARD:
            return "guard -1"
        if guard not in self.guards:
            self.guards.append(guard)
        return f"guard {self.guards.index(guard)}"

    def watermark(self, offset: str) -> str:
        self.state.high_watermark_advanced(int(offset))
        return "ok"

    def expire(self, now_ms: str) -> str:
        sum(self.state.remove_expired(int(now_ms)))
        return "ok"


def draw_command(random: Random, ours: OurLog) -> str:
    """One that is often right, and wrong in every way that matters otherwise."""
    producer_id = random.randrange(3)
    entry = ours.state.producers.get(producer_id, ProducerEntry(producer_id, epoch=0))
    epoch = max(0, entry.epoch + random.choice([0, 0, 0, 0, 0, 1, -1]))
    follows = increment_sequence(entry.last_sequence, 1) if epoch == entry.epoch else 0
    wrong = [0, increment_sequence(follows, 1), max(0, follows - 2), SEQUENCE_MAX - 1]
    sequence = random.choice([follows] * 6 + wrong)
    what = random.choices(["write", "mark", "verify", "watermark", "expire"], [60, 20, 15, 15, 1])[
        0
    ]
    if what == "verify":
        return f"verify {producer_id} {epoch} {sequence} {random.randrange(2)}"
    if what == "watermark":
        return f"watermark {random.randint(max(0, ours.end - 6), ours.end)}"
    if what == "expire":
        return f"expire {86_400_000 + 1000 + random.randrange(ours.end + 1)}"
    if what == "mark":
        origin = random.choice("KKKR")
        # A follower does not know the version.
        version = -1 if origin == "R" else random.choice([0, 1, 2, 2])
        coordinator_epoch = random.choice([3, 3, 3, 3, 2])
        abort = random.randrange(2)
        return f"mark {origin} {producer_id} {epoch} {coordinator_epoch} {abort} {version}"
    origin = random.choice("CCCCCKR")
    if origin == "K":
        sequence = 0
    if origin == "C" and entry.batches and random.random() < 0.2:
        batch = random.choice(entry.batches)
        if batch.last_sequence >= 0:
            count = batch.offset_delta + 1
            return f"write C {producer_id} {entry.epoch} {batch.first_sequence} {count} 0 -1"
    transactional = int(entry.transaction_first_offset >= 0) ^ int(random.random() < 0.25)
    guard = random.choice([-1, *range(len(ours.guards)), len(ours.guards) - 1])
    count = random.choice([1, 1, 2, 5])
    return f"write {origin} {producer_id} {epoch} {sequence} {count} {transactional} {guard}"


def test_kafka_judges_the_same_appends_the_same_way(tmp_path: Path) -> None:
    """LOG-83, LOG-74, TV-5 to TV-11: random appends to a log of Kafka's, answer by answer.

    After each command both tell the answer or error, the first unstable offset, and everything
    that is known of every producer.
    """
    print(f"seed {SEED}")
    random, ours = Random(SEED), OurLog()
    commands, expected = [], []
    for case in range(CASES):
        for number in range(60):
            line = draw_command(random, ours) if number else f"log {case % 3 and 1}"
            commands.append(line)
            expected.append(ours.perform(line))
    done = run_java(ORACLE, "script", str(tmp_path), stdin="\n".join(commands) + "\n")
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(commands), done.stderr
    for number, (answer, our_answer) in enumerate(zip(answers, expected, strict=True)):
        history = "\n".join(commands[max(0, number - 60) : number + 1])
        assert our_answer == answer, f"after\n{history}"
    # A comparison of refusals alone, or of none, would say little.
    errors = [answer.split()[1] for answer in answers if answer.startswith("error")]
    assert {
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_TXN_STATE",
        "TRANSACTION_COORDINATOR_FENCED",
    } == set(errors)
    assert 0.2 < len(errors) / len(answers) < 0.8
