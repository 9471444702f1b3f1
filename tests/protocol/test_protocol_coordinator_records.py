"""Records of coordinators: their prefixes, and their tables beside Apache Kafka's own classes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from protocol_cases import INTEGERS, RECORD_MESSAGES, present_fields, versions_of
from support.kafka_jars import run_java

from kraftpy.protocol.codec import DecodeError, decode, encode_bytes
from kraftpy.protocol.coordinator_records import (
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
    UnknownRecordTypeError,
    encode_key,
    encode_value,
)
from kraftpy.protocol.schema.group_records import (
    ConsumerGroupMemberMetadataValue,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kraftpy.protocol.schema.transaction_records import TransactionLogKey, TransactionLogValue
from kraftpy.protocol.tables import Message, Struct, covers

ORACLE = Path(__file__).with_name("RecordOracle.java")
SEED = 20261116
CASES = 12

KEY = OffsetCommitKey(group="g", topic="t", partition=3)
KEY_BYTES = b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\3"


def test_the_type_stands_before_a_key_and_the_version_before_a_value() -> None:
    assert encode_key(KEY) == KEY_BYTES
    assert encode_key(TransactionLogKey(transactional_id="x")) == b"\0\0\0\1x"
    value = OffsetCommitValue(offset=7, leader_epoch=2, metadata="m", commit_timestamp=9)
    assert encode_value(value, 3) == (
        b"\0\3" + (7).to_bytes(8) + (2).to_bytes(4) + b"\0\1m" + (9).to_bytes(8)
    )
    # The version before the epoch leaves it out, and has one time more.
    assert encode_value(value, 1) == (
        b"\0\1" + (7).to_bytes(8) + b"\0\1m" + (9).to_bytes(8) + b"\xff" * 8
    )


def test_a_key_and_its_value_come_back() -> None:
    key = GROUP_RECORDS.decode_key(KEY_BYTES)
    assert key == KEY
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9)
    for version in versions_of(OffsetCommitValue):
        data = memoryview(encode_value(value, version))
        assert GROUP_RECORDS.decode_value(key, data) == (value, version)
    state = TransactionLogValue(producer_id=5, transaction_partitions=None, next_producer_id=6)
    transactional = TransactionLogKey(transactional_id="x")
    assert TRANSACTION_RECORDS.decode_value(transactional, encode_value(state, 1)) == (state, 1)


def test_what_stands_behind_is_passed_over() -> None:
    assert GROUP_RECORDS.decode_key(KEY_BYTES + b"rest") == KEY


def test_a_type_of_the_future_is_told_from_damage() -> None:
    with pytest.raises(UnknownRecordTypeError) as unknown:
        GROUP_RECORDS.decode_key(b"\0\x63whatever")
    assert unknown.value.record_type == 99
    with pytest.raises(UnknownRecordTypeError):
        TRANSACTION_RECORDS.decode_key(KEY_BYTES)
    for damaged in (b"", b"\0", KEY_BYTES[:-1]):
        with pytest.raises(DecodeError):
            GROUP_RECORDS.decode_key(damaged)
    for damaged in (b"", b"\0", b"\0\x05", b"\0\3\0"):
        with pytest.raises(DecodeError):
            GROUP_RECORDS.decode_value(KEY, damaged)


def test_every_type_is_under_its_number() -> None:
    for types in (GROUP_RECORDS, TRANSACTION_RECORDS, SHARE_STATE_RECORDS):
        numbers = [each.KEY for each in types.classes]
        assert numbers == sorted(numbers)
        assert numbers[::2] == numbers[1::2]
        assert len(set(numbers)) == len(numbers) / 2
    assert GroupMetadataKey.KEY == 2


def test_a_tagged_struct_that_is_null_is_not_one_that_did_not_come() -> None:
    """Kafka's default of this field is an empty struct, so a null one is written."""
    plain = ConsumerGroupMemberMetadataValue()
    null = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert encode_bytes(plain, 0).endswith(b"\0")
    assert encode_bytes(null, 0).endswith(b"\1\0\1\0")
    for value in (plain, null):
        data = encode_bytes(value, 0)
        assert decode(ConsumerGroupMemberMetadataValue, 0, data) == value


def _drawn(random: Random, struct_class: type[Struct], version: int) -> Struct:
    """Anything that the version can hold, nulls and defaults among it."""
    arguments: dict[str, object] = {}
    for field in present_fields(struct_class, version):
        if field.tag is not None and random.random() < 0.3:
            continue
        if covers(field.nullable, version) and random.random() < 0.3:
            arguments[field.name] = None
            continue
        values = [
            _drawn(random, field.struct, version)
            if field.struct is not None
            else _scalar(random, field.kind.name if field.kind else "")
            for _ in range(random.randrange(4) if field.is_array else 1)
        ]
        arguments[field.name] = values if field.is_array else values[0]
    return struct_class(**arguments)


def _scalar(random: Random, kind_name: str) -> object:
    if kind_name in INTEGERS:
        low, high = INTEGERS[kind_name]
        return random.choice((0, 1, low, high, random.randint(low, high)))
    match kind_name:
        case "string":
            return random.choice(("", "topic-7", "ünï✓", "x" * 130))
        case "bytes":
            return random.randbytes(random.randrange(5))
        case "uuid":
            return random.randbytes(16)
    raise AssertionError(kind_name)


@pytest.mark.java
def test_kafka_reads_and_writes_the_same_bytes() -> None:
    """Every class and version, with Kafka's own generated classes."""
    random = Random(SEED)
    asked: list[tuple[type[Message], int, str]] = []
    for message_class in RECORD_MESSAGES:
        for version in versions_of(message_class):
            for _ in range(CASES):
                message = _drawn(random, message_class, version)
                assert isinstance(message, Message)
                asked.append((message_class, version, encode_bytes(message, version).hex()))
    done = run_java(
        ORACLE,
        stdin="".join(f"{each.__name__} {version} {data}\n" for each, version, data in asked),
    )
    assert done.returncode == 0, f"seed {SEED}: {done.stderr}"
    answers = done.stdout.splitlines()
    assert len(answers) == len(asked)
    for (message_class, version, data), answer in zip(asked, answers, strict=True):
        assert answer.split(" ", 1)[0] == data, f"seed {SEED}: {message_class.__name__} v{version}"
