"""Apache Kafka 4.3.1 itself beside us: it reads our batches, and judges what we judge."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from record_samples import CODECS, KAFKA, LEGACY_CODECS, LEGACY_RECORDS, LIMIT_BYTES, RECORDS
from record_samples import NOW_MS as NOW
from support.kafka_jars import run_java

from kraftpy.records.batch import RecordBatch, TimestampType, crc32c
from kraftpy.records.builder import BatchBuilder, build_batch
from kraftpy.records.compression import Codec, compress
from kraftpy.records.errors import RecordDataError
from kraftpy.records.legacy import build_message_set
from kraftpy.records.reader import Record
from kraftpy.records.validation import AppendOrigin, TopicRules, prepare_batch
from kraftpy.records.walker import records_of, walk_batches

pytestmark = pytest.mark.java

HERE = Path(__file__).parent
TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


def ask_kafka(questions: list[str]) -> list[str]:
    done = run_java(HERE / "JudgeBatches.java", stdin="\n".join(questions))
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions)
    return answers


def text(data: bytes | None) -> str:
    return "null" if data is None else data.hex()


def reading(data: bytes | bytearray) -> str:
    """What JudgeBatches answers to `read`, from our own reader."""
    answer = ""
    for batch in walk_batches(data):
        answer += "valid" if batch.is_valid else "invalid"
        for record in records_of(batch, max_bytes=LIMIT_BYTES):
            answer += f" {record.offset}:{record.timestamp_ms}"
            answer += f":{text(record.key)}:{text(record.value)}"
            for key, value in record.headers:
                answer += f":{text(key.encode())}={text(value)}"
    return answer


def test_kafka_reads_what_we_write() -> None:
    """LOG-8, LOG-20: every format and codec, small and of several blocks, every level's end."""
    large = [*RECORDS, Record(4, NOW, b"large", bytes(range(256)) * 700)]
    batches: list[bytes | bytearray] = []
    levels = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 9, 17), Codec.ZSTD: (-131072, 1, 22)}
    for codec in CODECS:
        for level in (None, *levels.get(codec, ())):
            for records in (RECORDS, large):
                builder = BatchBuilder(codec=codec, level=level, leader_epoch=3)
                batches.append(build_batch(records, builder))
    batches += [
        build_message_set(LEGACY_RECORDS, magic=magic, codec=codec)
        for magic in (0, 1)
        for codec in LEGACY_CODECS
    ]
    batches += KAFKA.values()
    answers = ask_kafka([f"read {batch.hex()}" for batch in batches])
    assert all(answer.startswith("valid") for answer in answers)
    assert answers == [reading(batch) for batch in batches]


def test_kafka_still_writes_the_stored_samples() -> None:
    """But for gzip, whose bytes are the JDK's."""
    done = run_java(HERE / "KafkaBatches.java")
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)
    assert set(written) == set(KAFKA)
    for name, data in KAFKA.items():
        if "gzip" not in name:
            assert written[name] == data.hex(), name


def sealed(data: bytearray) -> bytes:
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def cases() -> dict[str, bytes]:
    """Batches with a right CRC, most of them wrong in one way."""
    found: dict[str, bytes] = {}
    keyed = [record._replace(key=record.key or b"k") for record in RECORDS]
    early = [record._replace(timestamp_ms=NOW - 1001) for record in keyed]
    for codec in CODECS:
        for name, records in {"keys": keyed, "no key": list(RECORDS), "early": early}.items():
            found[f"{name}, {codec.name}"] = bytes(
                build_batch(records, BatchBuilder(codec=codec, leader_epoch=7))
            )
        base = bytearray(found[f"keys, {codec.name}"])
        for name, position, form, value in (
            ("last offset delta -1", 23, ">i", -1),
            ("last offset delta 2", 23, ">i", 2),
            ("last offset delta 4", 23, ">i", 4),
            ("count 0", 57, ">i", 0),
            ("count -1", 57, ">i", -1),
            ("count 5", 57, ">i", 5),
            ("control", 21, ">h", codec | 0x20),
            ("log append time", 21, ">h", codec | 0x08),
            ("transactional", 21, ">h", codec | 0x10),
            ("producer without sequence", 43, ">q", 5),
            ("maximum timestamp too small", 35, ">q", NOW - 5),
            ("maximum timestamp too large", 35, ">q", NOW + 5_000_000),
        ):
            data = base.copy()
            struct.pack_into(form, data, position, value)
            found[f"{name}, {codec.name}"] = sealed(data)
        for name, delta, count in (("one record less", 2, 3), ("one record more", 4, 5)):
            data = base.copy()
            struct.pack_into(">i", data, 23, delta)
            struct.pack_into(">i", data, 57, count)
            found[f"{name}, {codec.name}"] = sealed(data)
    plain = bytearray(found["keys, NONE"])
    for name, body in {
        "record too long": b"\x1e\x00\x00\x00\x02k\x02v\x00",
        "record too short": b"\x0e\x00\x00\x00\x02k\x02v\x00",
        "headers -1": b"\x10\x00\x00\x00\x02k\x02v\x01",
        "headers without room": b"\x10\x00\x00\x00\x02k\x02v\x04",
    }.items():
        for codec in CODECS:
            data = plain[:61] + compress(codec, body)
            struct.pack_into(">h", data, 21, codec)
            struct.pack_into(">i", data, 23, 0)
            struct.pack_into(">i", data, 57, 1)
            found[f"{name}, {codec.name}"] = sealed(data)
    return found


def judgement(data: bytes, timestamp_type: str, *, is_compacted: bool) -> str:
    """What JudgeBatches answers to `judge`, from our own validation."""
    rules = TopicRules(
        max_message_bytes=LIMIT_BYTES,
        max_inflated_bytes=LIMIT_BYTES,
        timestamp_type=TYPES[timestamp_type],
        timestamp_before_max_ms=1000,
        timestamp_after_max_ms=600,
        is_compacted=is_compacted,
        validates_fully=True,
    )
    batch = RecordBatch(bytearray(data))
    try:
        batch = prepare_batch(batch, rules, origin=AppendOrigin.CLIENT, now_ms=NOW)
    except RecordDataError as error:
        return error.error_code.name + "".join(
            f" {fault.batch_index}" for fault in error.record_faults
        )
    batch.stamp(5000, 7)
    return f"ok {batch.data.hex()}"


def is_known_difference(name: str, ours: str, theirs: str) -> bool:
    """Kafka doesn't compare a record's length with its content when the batch is compressed, and
    stores what its consumers then can't read. We refuse it.
    """
    wrong_length = name.startswith(("record too long, ", "record too short, "))
    return wrong_length and ours == "INVALID_RECORD" and theirs.startswith("ok")


def test_kafka_judges_as_we_do() -> None:
    """LOG-75, LOG-81: full validation against Kafka's LogValidator: same error, same bytes."""
    questions = []
    ours = []
    names = []
    for name, data in cases().items():
        for timestamp_type in TYPES:
            for is_compacted in (False, True):
                names.append(name)
                questions.append(f"judge {timestamp_type} {str(is_compacted).lower()} {data.hex()}")
                ours.append(judgement(data, timestamp_type, is_compacted=is_compacted))
    differences = []
    known = 0
    for name, our_answer, their_answer in zip(names, ours, ask_kafka(questions), strict=True):
        if is_known_difference(name, our_answer, their_answer):
            known += 1
        elif our_answer != their_answer:
            differences.append(f"{name}: {our_answer[:70]}, Kafka: {their_answer[:70]}")
    assert not differences, "\n".join(differences)
    assert known == 2 * 4 * 4  # Two lies in four codecs under four configurations.
