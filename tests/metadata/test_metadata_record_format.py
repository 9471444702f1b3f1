"""Metadata records as bytes: every type there and back, and whatever else the bytes may be."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from random import Random

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_sequences import RecordSource

from kraftpy.metadata import records as r
from kraftpy.metadata.record_format import (
    MAX_RECORD_BYTES,
    MAX_SHARED_VALUES,
    RECORD_TYPES,
    MetadataRecordError,
    RecordDecoder,
    decode_record,
    encode_record,
)
from kraftpy.protocol.ids import Uuid

SCHEMAS = Path("/work/shared/protocol/metadata")
TOPIC = Uuid(bytes(range(16)))
PENDING = r.PendingDeletionRecord(TOPIC, "orders", (r.PendingReplica(0, 1), r.PendingReplica(5, 2)))

# Kafka's names that are other ones here, and what only served the way from ZooKeeper.
RENAMED = {"id": "broker_id", "epoch": "broker_epoch"}
DROPPED = {"is_migrating_zk_broker", "zk_migration_ready"}


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def frame(*parts: object) -> bytes:
    data: bytes = msgpack.packb(parts)
    return data


@given(seed=st.integers(0, 2**32))
def test_records_come_back_as_they_went(seed: int) -> None:
    for record in (*RecordSource(Random(seed)).take(150), PENDING):
        data = encode_record(record)
        assert decode_record(data) == record
        assert encode_record(decode_record(memoryview(data))) == data


def test_a_decoder_shares_what_is_equal_and_changes_nothing() -> None:
    """Also beyond the number of values that it remembers, where it begins anew."""
    source = RecordSource(Random(11))
    decoder = RecordDecoder()
    for record in source.take(2_000):
        assert decoder.decode(encode_record(record)) == record
    partition = r.PartitionRecord(0, TOPIC, (1, 2), (1, 2), directories=(TOPIC, TOPIC))
    data = encode_record(partition)
    first, second = decoder.decode(data), decoder.decode(data)
    assert isinstance(first, r.PartitionRecord)
    assert isinstance(second, r.PartitionRecord)
    assert first == second == partition
    assert first.topic_id is second.topic_id
    assert first.directories is second.directories
    assert first.replicas is first.isr is second.isr
    for number in range(MAX_SHARED_VALUES + 10):
        uuid = Uuid(number.to_bytes(16, "big"))
        assert decoder.decode(encode_record(r.RemoveTopicRecord(uuid))).topic_id == uuid  # type: ignore[union-attr]
    assert len(decoder._shared) <= MAX_SHARED_VALUES + 1


def test_the_bytes_are_those_of_the_document() -> None:
    """The examples of docs/format.md: the format is a promise to logs already written."""
    uuid = TOPIC.hex()
    for record, expected in (
        (r.NoOpRecord(), "94 01 14 00 90"),
        (r.TopicRecord("a", TOPIC), f"94 01 02 00 92 a1 61 c4 10 {uuid}"),
        (r.PartitionChangeRecord(3, TOPIC, isr=(1, 2)), f"94 01 05 00 93 03 c4 10 {uuid} 92 01 02"),
        (
            r.PartitionChangeRecord(0, TOPIC, last_known_elr=()),
            f"94 01 05 02 9b 00 c4 10 {uuid} c0 fe c0 c0 c0 ff c0 c0 90",
        ),
        (r.ReplicaDeletedRecord(TOPIC, 0, 1), f"94 01 cd 03 e8 00 93 c4 10 {uuid} 00 01"),
    ):
        assert encode_record(record) == bytes.fromhex(expected)


def test_the_version_is_the_lowest_that_has_the_fields() -> None:
    partition = {"partition_id": 0, "topic_id": TOPIC, "replicas": (1,), "isr": (1,)}
    for values, version in (
        ({}, 0),
        ({"partition_epoch": 4}, 0),
        ({"directories": (TOPIC,)}, 1),
        ({"eligible_leader_replicas": (1,)}, 2),
    ):
        data = encode_record(r.PartitionRecord(**partition, **values))  # type: ignore[arg-type]
        assert msgpack.unpackb(data)[2] == version
    cordoned = r.BrokerRegistrationChangeRecord(1, 2, cordoned_log_dirs=())
    assert msgpack.unpackb(encode_record(cordoned))[2] == 3


def test_the_table_has_every_class_once_and_no_retired_id() -> None:
    ids = [record_type.type_id for record_type in RECORD_TYPES]
    assert ids == sorted(set(ids))
    assert not {6, 13, 16, 21} & set(ids)
    for record_type in RECORD_TYPES:
        counts = record_type.fields_by_version
        assert list(counts) == sorted(counts)
        assert counts[-1] == len(record_type.readers) == len(record_type.field_names)
        assert record_type.required_count <= counts[0]


@pytest.mark.skipif(not SCHEMAS.exists(), reason="not part of a clone: Kafka's record schemas")
def test_ids_versions_and_fields_are_kafkas() -> None:
    ours = {record_type.type_id: record_type for record_type in RECORD_TYPES}
    for path in sorted(SCHEMAS.glob("*.json")):
        text = "\n".join(line for line in path.read_text().splitlines() if "//" not in line)
        schema = json.loads(text)
        if schema["name"] == "ZkMigrationStateRecord":
            continue
        record_type = ours.pop(schema["apiKey"])
        assert record_type.name == schema["name"]
        assert record_type.max_version == int(schema["validVersions"].split("-")[-1])
        theirs = {
            snake(field["name"]): int(field["versions"].rstrip("+")) for field in schema["fields"]
        }
        if schema["name"] in ("FenceBrokerRecord", "UnfenceBrokerRecord"):
            theirs = {RENAMED[name]: version for name, version in theirs.items()}
        names = {
            name.removesuffix("_ms"): min(
                version
                for version, count in enumerate(record_type.fields_by_version)
                if index < count
            )
            for index, name in enumerate(record_type.field_names)
        }
        assert names == {name: since for name, since in theirs.items() if name not in DROPPED}
    assert sorted(ours) == [1000, 1001]


WRONG = {
    "nothing": b"",
    "half an array": b"\x94\x01",
    "bytes left over": frame(1, 20, 0, []) + b"\x00",
    "a byte that msgpack does not know": b"\xc1",
    "an array that promises four billion": b"\xdd\xff\xff\xff\xff",
    "no array": frame(1)[1:],
    "a map": msgpack.packb({"a": 1}),
    "three elements": frame(1, 20, 0),
    "five elements": frame(1, 20, 0, [], 1),
    "frame version 0": frame(0, 20, 0, []),
    "frame version 2": frame(2, 20, 0, []),
    "frame version true": frame(True, 20, 0, []),
    "an unknown type": frame(1, 29, 0, []),
    "a retired type": frame(1, 6, 0, []),
    "a type that is a list": frame(1, [], 0, []),
    "a type that is a float": frame(1, 20.0, 0, []),
    "a newer version": frame(1, 20, 1, []),
    "a negative version": frame(1, 20, -1, []),
    "a version that is text": frame(1, 20, "0", []),
    "fields that are a number": frame(1, 20, 0, 7),
    "a field too many": frame(1, 20, 0, [1]),
    "a field too many for its version": frame(1, 5, 0, [0, TOPIC, None, 1, *[None] * 3, 0, None]),
    "a field too few": frame(1, 2, 0, ["a"]),
    "text for a uuid": frame(1, 2, 0, ["a", "b" * 16]),
    "a uuid of 15 bytes": frame(1, 2, 0, ["a", bytes(15)]),
    "bytes for text": frame(1, 2, 0, [b"a", TOPIC]),
    "no text at all": frame(1, 2, 0, [None, TOPIC]),
    "bad UTF-8": b"\x94\x01\x02\x00\x92\xa1\xff\xc4\x10" + TOPIC,
    "a broker id beyond 32 bits": frame(1, 1, 0, [2**31, 0]),
    "an epoch beyond 64 bits": frame(1, 1, 0, [1, 2**63]),
    "a boolean for a number": frame(1, 1, 0, [True, 0]),
    "a number for a boolean": frame(1, 14, 0, [[["user", "a"]], "rate", 1.0, 1]),
    "not a number": frame(1, 14, 0, [[["user", "a"]], "rate", float("nan")]),
    "an infinite quota": frame(1, 14, 0, [[["user", "a"]], "rate", float("inf")]),
    "an entity of three": frame(1, 14, 0, [[["user", "a", "b"]], "rate", 1.0]),
    "an entity that is text": frame(1, 14, 0, [["user"], "rate", 1.0]),
    "a list that is a number": frame(1, 3, 0, [0, TOPIC, 1, [1]]),
    "a replica that is text": frame(1, 3, 0, [0, TOPIC, ["1"], [1]]),
    "a replica beyond 32 bits": frame(1, 3, 0, [0, TOPIC, [2**31], [1]]),
    "a port beyond 16 bits": frame(1, 27, 0, [1, TOPIC, [["a", "b", 65536, 0]]]),
    "a negative port": frame(1, 27, 0, [1, TOPIC, [["a", "b", -1, 0]]]),
    "an extension": b"\x94\x01\x02\x00\x92\xa1a\xd4\x05\x00",
    "a timestamp out of range": b"\x94\x01\x02\x00\x92\xa1a\xc7\x0c\xff" + b"\xff" * 12,
    "nesting without end": b"\x91" * 100_000,
    "maps in maps": b"\x81\xa1a" * 50_000,
    "a list for a key": b"\x81\x90\x00",
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_wrong_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MetadataRecordError):
        decode_record(data)


def test_the_error_names_record_and_field() -> None:
    with pytest.raises(MetadataRecordError, match=r"TopicRecord\.topic_id: no uuid"):
        decode_record(frame(1, 2, 0, ["a", 5]))


@given(seed=st.integers(0, 2**32), data=st.data())
def test_damaged_bytes_are_refused_or_another_record(seed: int, data: st.DataObject) -> None:
    """Nothing but MetadataRecordError comes out, and what is accepted can be written again."""
    random = Random(seed)
    record = random.choice(RecordSource(random).take(40))
    damaged = bytearray(encode_record(record))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        accepted = decode_record(damaged)
    except MetadataRecordError:
        return
    assert decode_record(encode_record(accepted)) == accepted


def test_a_record_cut_short_is_refused_at_every_byte() -> None:
    for record in (*RecordSource(Random(3)).take(60), PENDING):
        data = encode_record(record)
        for end in range(len(data)):
            with pytest.raises(MetadataRecordError):
                decode_record(data[:end])


@given(st.binary(max_size=200))
def test_any_bytes_at_all(data: bytes) -> None:
    with suppress(MetadataRecordError):
        decode_record(data)


def test_the_largest_record_and_one_byte_more() -> None:
    overhead = len(encode_record(r.ConfigRecord(2, "t", "k", "v" * 70_000))) - 70_000
    largest = r.ConfigRecord(2, "t", "k", "v" * (MAX_RECORD_BYTES - overhead))
    data = encode_record(largest)
    assert len(data) == MAX_RECORD_BYTES
    assert decode_record(data) == largest
    beyond = r.ConfigRecord(2, "t", "k", "v" * (MAX_RECORD_BYTES - overhead + 1))
    with pytest.raises(MetadataRecordError, match="bytes"):
        encode_record(beyond)
    with pytest.raises(MetadataRecordError, match="bytes"):
        decode_record(frame(1, 4, 0, [2, "t", "k", beyond.value]))


@pytest.mark.parametrize(
    "record",
    [
        r.TopicRecord("a", Uuid(b"short")),
        r.TopicRecord("\ud800", TOPIC),
        r.UnregisterBrokerRecord(2**31, 0),
        r.PartitionRecord(0, TOPIC, [1], (1,)),  # type: ignore[arg-type]
        r.ClientQuotaRecord((r.QuotaEntity("user", "a"),), "rate", float("nan")),
        "text",
    ],
)
def test_what_could_not_be_read_is_not_written(record: r.MetadataRecord) -> None:
    """A committed record that nobody can read would stop every controller."""
    with pytest.raises(MetadataRecordError):
        encode_record(record)


def test_records_are_immutable_and_slotted() -> None:
    for record_type in RECORD_TYPES:
        members = vars(record_type.record_class)
        assert members["__dataclass_params__"].frozen
        assert members["__slots__"] == record_type.field_names
