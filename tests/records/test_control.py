"""Control batches: what Kafka wrote is understood, and written the same."""

from __future__ import annotations

import struct

import pytest
from record_samples import KAFKA, LIMIT_BYTES, NOW_MS

from kraftpy.protocol.schema.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import (
    ControlType,
    EndTransactionMarker,
    build_control_batch,
    build_end_transaction,
    control_type,
    read_control_record,
)
from kraftpy.records.errors import InvalidRecord
from kraftpy.records.reader import Record, read_records


def only_record(batch: RecordBatch) -> Record:
    (record,) = read_records(batch, max_bytes=LIMIT_BYTES)
    return record


@pytest.mark.parametrize(("name", "kind", "is_commit"), [("abort", 0, False), ("commit", 1, True)])
def test_end_of_transaction(name: str, kind: int, is_commit: bool) -> None:
    """TXN-27, LOG-21."""
    batch = RecordBatch(KAFKA[name])
    assert batch.attributes == 0b110000
    assert batch.is_transactional
    assert batch.is_control
    assert batch.records_count == 1
    assert batch.next_offset - batch.base_offset == 1
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, -1)
    record = only_record(batch)
    assert record.offset == batch.base_offset
    assert record.timestamp_ms == batch.base_timestamp_ms
    assert record.key == struct.pack(">hh", 0, kind)
    assert record.value == struct.pack(">hi", 0, 6)
    assert control_type(record) == kind
    marker = EndTransactionMarker(is_commit, 6)
    assert read_control_record(record) == marker
    written = build_end_transaction(
        marker,
        producer_id=77,
        producer_epoch=3,
        timestamp_ms=NOW_MS,
        base_offset=50,
        leader_epoch=9,
    )
    assert written == KAFKA[name]


@pytest.mark.parametrize(
    ("name", "kind", "message_class"),
    [
        ("leader_change", ControlType.LEADER_CHANGE, LeaderChangeMessage),
        ("snapshot_header", ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord),
        ("snapshot_footer", ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord),
        ("kraft_version", ControlType.KRAFT_VERSION, KRaftVersionRecord),
        ("voters", ControlType.KRAFT_VOTERS, VotersRecord),
    ],
)
def test_metadata_log(name: str, kind: ControlType, message_class: type) -> None:
    batch = RecordBatch(KAFKA[name])
    assert batch.attributes == 0b100000
    record = only_record(batch)
    assert control_type(record) is kind
    message = read_control_record(record)
    assert isinstance(message, message_class)
    written = build_control_batch(
        [message], base_offset=batch.base_offset, leader_epoch=9, timestamp_ms=NOW_MS
    )
    assert written == KAFKA[name]


def test_values_of_the_metadata_log() -> None:
    leader_change = read_control_record(only_record(RecordBatch(KAFKA["leader_change"])))
    assert isinstance(leader_change, LeaderChangeMessage)
    assert leader_change.leader_id == 1
    assert [voter.voter_id for voter in leader_change.voters] == [1, 2]
    assert [voter.voter_id for voter in leader_change.granting_voters] == [2]
    header = read_control_record(only_record(RecordBatch(KAFKA["snapshot_header"])))
    assert isinstance(header, SnapshotHeaderRecord)
    assert header.last_contained_log_timestamp == 1699999999000
    version = read_control_record(only_record(RecordBatch(KAFKA["kraft_version"])))
    assert isinstance(version, KRaftVersionRecord)
    assert version.kraft_version == 1
    voters = read_control_record(only_record(RecordBatch(KAFKA["voters"])))
    assert isinstance(voters, VotersRecord)
    (voter,) = voters.voters
    (endpoint,) = voter.endpoints
    assert (voter.voter_id, endpoint.name, endpoint.host, endpoint.port) == (
        1,
        "CONTROLLER",
        "localhost",
        9093,
    )


def test_several_records_in_one_batch() -> None:
    messages = [SnapshotHeaderRecord(), KRaftVersionRecord(kraft_version=1), VotersRecord()]
    batch = RecordBatch(
        build_control_batch(messages, base_offset=0, leader_epoch=4, timestamp_ms=NOW_MS)
    )
    records = list(read_records(batch, max_bytes=LIMIT_BYTES))
    assert [read_control_record(record) for record in records] == messages
    assert batch.last_offset == 2


@pytest.mark.parametrize("number", [-1, 7, 32767])
def test_a_type_of_the_future_is_passed_over(number: int) -> None:
    record = Record(0, 0, struct.pack(">hh", 0, number), b"?")
    assert control_type(record) is None
    assert read_control_record(record) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\x00\x00\x00", b""),
        (b"\xff\xff\x00\x01", b"\x00\x00\x00\x00\x00\x06"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x06"),
        (b"\x00\x00\x00\x02", None),
        (b"\x00\x00\x00\x02", b"\x00"),
        (b"\x00\x00\x00\x02", b"\x00\x00\x00"),
        (b"\x00\x00\x00\x04", b"\x00\x09\x00"),
        (b"\x00\x00\x00\x04", b"\xff\xff\x00"),
        (b"\x00\x00\x00\x04", b"\x00\x00\x00\x00"),
    ],
)
def test_damage(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        read_control_record(Record(0, 0, key, value))


def test_a_marker_of_a_later_version_is_read() -> None:
    record = Record(0, 0, b"\x00\x01\x00\x01", b"\x00\x01\x00\x00\x00\x06\x00")
    assert read_control_record(record) == EndTransactionMarker(True, 6)
