"""`kraftpy log dump` of internal topics: records of the coordinators, and of the controller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.kafka_jars import run_java

from kraftpy.cli.main import main
from kraftpy.metadata.record_format import encode_record
from kraftpy.metadata.records import TopicRecord
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.coordinator_records import (
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
    RecordTypes,
    encode_key,
    encode_value,
)
from kraftpy.protocol.ids import Uuid, format_uuid
from kraftpy.protocol.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kraftpy.protocol.schema.group_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kraftpy.protocol.tables import RecordKey, RecordValue, Struct, covers, version_bounds
from kraftpy.records.builder import BatchBuilder

NOW_MS = 1_700_000_000_000
TOPIC_ID = Uuid(bytes(range(16)))
KEY = encode_key(OffsetCommitKey(group="g", topic="t", partition=3))
DECODERS = {
    "--offsets-decoder": GROUP_RECORDS,
    "--transaction-log-decoder": TRANSACTION_RECORDS,
    "--share-group-state-decoder": SHARE_STATE_RECORDS,
}

Captured = pytest.CaptureFixture[str]


def write(folder: Path, *records: tuple[bytes | None, bytes | None]) -> Path:
    builder = BatchBuilder(base_offset=0, leader_epoch=0)
    for key, value in records:
        builder.append(key, value, timestamp_ms=NOW_MS)
    path = folder / f"{0:020d}.log"
    path.write_bytes(builder.build())
    return path


def dump(capsys: Captured, *arguments: object, code: int = 0) -> list[str]:
    assert main(["log", "dump", *map(str, arguments)]) == code
    return capsys.readouterr().out.splitlines()


def contents(lines: list[str]) -> list[str]:
    return [line.partition("headerKeys: [] ")[2] for line in lines if line.startswith("| ")]


def test_offsets_and_groups(tmp_path: Path, capsys: Captured) -> None:
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9, topic_id=TOPIC_ID)
    member = encode_key(ConsumerGroupMemberMetadataKey(group_id="g", member_id="é"))
    path = write(
        tmp_path,
        (KEY, encode_value(value, 4)),
        (KEY, encode_value(value, 3)),
        (KEY, None),
        (member, encode_value(ConsumerGroupMemberMetadataValue(), 0)),
    )
    lines = contents(dump(capsys, "--offsets-decoder", path))
    key = '{"type":"1","data":{"group":"g","topic":"t","partition":3}}'
    data = '"offset":7,"leaderEpoch":-1,"metadata":"m","commitTimestamp":9'
    shown_id = format_uuid(TOPIC_ID)
    assert lines[:3] == [
        f'key: {key} payload: {{"version":"4","data":{{{data},"topicId":"{shown_id}"}}}}',
        f'key: {key} payload: {{"version":"3","data":{{{data}}}}}',
        f"key: {key} payload: <DELETE>",
    ]
    # A tagged field that was not written is not shown.
    assert "classicMemberMetadata" not in lines[3]
    objects = [
        json.loads(line) for line in dump(capsys, "--format=json", "--offsets-decoder", path)
    ]
    assert objects[2]["payload"]["data"]["topicId"] == format_uuid(TOPIC_ID)
    assert objects[-1]["key"]["data"]["memberId"] == "é"


def test_what_is_no_record_of_the_topic(tmp_path: Path, capsys: Captured) -> None:
    """A type of the future is passed over, damage is named; all others are shown."""
    sound = encode_value(OffsetCommitValue(), 3)
    path = write(
        tmp_path,
        (b"\0\x63new", b"v"),
        (KEY[:-1], b"v"),
        (KEY, b"\0\x09"),
        (None, b"v"),
        (KEY, sound[:14]),
        (KEY, sound),
    )
    lines = dump(capsys, "--offsets-decoder", path, code=1)
    assert contents(lines)[0] == "key: unknown record type 99"
    assert contents(lines)[-1].startswith('key: {"type":"1"')
    assert [line for line in lines if line.startswith("problem: ")] == [
        "problem: the record at offset 1: OffsetCommitKey v0, partition: the bytes end here",
        "problem: the record at offset 2: OffsetCommitValue v9: there is no such version",
        "problem: the record at offset 3: it has no key",
        "problem: the record at offset 4: OffsetCommitValue v3, metadata: the bytes end here",
    ]


def test_the_metadata_log(tmp_path: Path, capsys: Captured) -> None:
    path = write(
        tmp_path, (None, encode_record(TopicRecord(name="t", topic_id=TOPIC_ID))), (None, b"?")
    )
    lines = dump(capsys, "--cluster-metadata-decoder", path, code=1)
    shown = contents(lines)[0].removeprefix("payload: ")
    assert json.loads(shown) == {
        "type": "TopicRecord",
        "data": {"name": "t", "topic_id": format_uuid(TOPIC_ID)},
    }
    assert lines[-1].startswith("problem: the record at offset 1: ")


def test_one_decoder_at_a_time(tmp_path: Path, capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["log", "dump", "--offsets-decoder", "--transaction-log-decoder", "x.log"])
    assert "not allowed with" in capsys.readouterr().err


def filled(struct_class: type[Struct], version: int) -> Struct:
    """A value in every field that the version has."""
    arguments: dict[str, object] = {}
    for field in struct_class.FIELDS:
        if not covers(field.versions, version):
            continue
        if field.struct is not None:
            value: object = filled(field.struct, version)
        else:
            assert field.kind is not None
            samples = {"string": "ab c", "bytes": b"\1\xff", "uuid": TOPIC_ID, "bool": True}
            value = samples.get(field.kind.name, 5)
        arguments[field.name] = [value, value] if field.is_array else value
    return struct_class(**arguments)


def every_record(types: RecordTypes) -> list[tuple[bytes, bytes | None]]:
    """Each type and version, with everything set, with nothing set, and as a tombstone."""
    records: list[tuple[bytes, bytes | None]] = []
    for key_class, value_class in zip(types.classes[::2], types.classes[1::2], strict=True):
        key = filled(key_class, 0)
        assert isinstance(key, RecordKey)
        first, last = version_bounds(value_class.VERSIONS)
        for version in range(first, last + 1):
            for value in (filled(value_class, version), value_class()):
                assert isinstance(value, RecordValue)
                records.append((encode_key(key), encode_value(value, version)))
        records.append((encode_key(key), None))
    return records


@pytest.mark.java
@pytest.mark.parametrize("decoder", DECODERS)
def test_kafkas_tool_says_the_same(tmp_path: Path, capsys: Captured, decoder: str) -> None:
    path = write(tmp_path, *every_record(DECODERS[decoder]))
    done = run_java("org.apache.kafka.tools.DumpLogSegments", decoder, "--files", str(path))
    theirs = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    ours = [line for line in dump(capsys, decoder, path) if line.startswith("| ")]
    assert ours == theirs
    assert len(ours) == len(every_record(DECODERS[decoder]))


def test_what_consumers_tell_each_other(tmp_path: Path, capsys: Captured) -> None:
    """It is shown as far as it can be read: Kafka's own consumers write it, others need not."""
    given = TopicPartition(topic="t", partitions=[0, 2])
    subscription = encode_bytes(ConsumerProtocolSubscription(topics=["t"], rack_id="r"), 3)
    assignment = encode_bytes(ConsumerProtocolAssignment(assigned_partitions=[given]), 0)

    def members(protocol_type: str, first: bytes, second: bytes) -> list[dict[str, object]]:
        member = MemberMetadata(member_id="m", subscription=first, assignment=second)
        value = GroupMetadataValue(protocol_type=protocol_type, members=[member])
        record = encode_key(GroupMetadataKey(group="g")), encode_value(value, 3)
        lines = contents(dump(capsys, "--offsets-decoder", write(tmp_path, record)))
        shown = json.loads(lines[0].partition("payload: ")[2])["data"]["members"]
        return [{name: each[name] for name in ("subscription", "assignment")} for each in shown]

    told = b"\0\x03" + subscription, b"\0\0" + assignment
    assert members("consumer", *told) == [
        {
            "subscription": {
                "topics": ["t"],
                "userData": None,
                "ownedPartitions": [],
                "generationId": -1,
                "rackId": "r",
            },
            "assignment": {
                "assignedPartitions": [{"topic": "t", "partitions": [0, 2]}],
                "userData": None,
            },
        }
    ]
    assert members("connect", b"\0\x03", b"") == [{"subscription": "AAM=", "assignment": ""}]
    # A version of the future, and half a message.
    unread = [{"subscription": "AAkA", "assignment": "AAAA"}]
    assert members("consumer", b"\0\x09\0", b"\0\0\0") == unread
