"""Keys and records of workloads: which partition is meant, and whether a record is whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.verify.workloads.keys import KeySpace
from kraftpy.verify.workloads.payload import Content, Damage, OutgoingRecord, decode, encode
from kraftpy.verify.workloads.plans import Plan
from kraftpy.verify.workloads.port import Ack, PolledRecord
from kraftpy.verify.workloads.progress import Progress

KEYS = KeySpace()


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_keys_and_partitions_are_one_to_one(key: int, partitions: int) -> None:
    """JEP-4."""
    space = KeySpace("t", partitions)
    where = space.where(key)
    assert space.key_of(*where) == key
    assert key in space.keys_of(where.topic)
    assert space.topics([key, key]) == [where.topic]


@pytest.mark.parametrize(
    ("topic", "partition"),
    [("u1", 0), ("t1", 2), ("t1", -1), ("t", 0), ("t01", 0), ("t-1", 0), ("t1x", 0), ("t²", 0)],
)
def test_what_is_not_of_the_key_space_has_no_key(topic: str, partition: int) -> None:
    """JEP-4."""
    assert KEYS.key_of(topic, partition) is None


contents = st.builds(
    Content,
    key=st.integers(0, 10**6),
    value=st.integers(0, 10**6),
    process=st.integers(0, 1000),
    operation=st.integers(0, 10**6),
    is_transactional=st.booleans(),
    extras=st.sampled_from([{}, {"from": [1, 2]}, {"record_key": "a", "balance": 7}]),
)


def read(record: OutgoingRecord) -> Content | Damage:
    return decode(record.value, key=record.key, time_ms=record.timestamp_ms, headers=record.headers)


@given(contents, st.integers(0, 500))
def test_a_record_is_read_as_it_was_written(content: Content, padding: int) -> None:
    """JEP-5."""
    assert read(encode(content, padding=padding)) == content


@given(contents, st.data())
def test_a_record_that_is_damaged_anywhere_is_noticed(
    content: Content, data: st.DataObject
) -> None:
    """JEP-5: one flipped bit in its value, whichever, or something else beside it."""
    record = encode(content, padding=20)
    value = bytearray(record.value or b"")
    place = data.draw(st.integers(0, 8 * len(value) - 1))
    value[place // 8] ^= 1 << place % 8
    assert isinstance(read(replace(record, value=bytes(value))), Damage)
    assert isinstance(read(replace(record, value=bytes(value[:-1]))), Damage)
    assert isinstance(read(replace(record, key=b"another")), Damage)
    assert isinstance(read(replace(record, timestamp_ms=record.timestamp_ms + 1)), Damage)
    assert isinstance(read(replace(record, headers=(*record.headers, ("x", b"")))), Damage)


def test_a_tombstone_says_who_it_is() -> None:
    """JEP-5: by its headers, since it has no value."""
    record = encode(Content(3, 4, extras={"record_key": "a", "tombstone": True}))
    assert record.value is None
    found = read(record)
    assert isinstance(found, Content)
    assert (found.key, found.value, dict(found.extras)) == (
        3,
        4,
        {"record_key": "a", "tombstone": True},
    )
    assert isinstance(read(replace(record, key=b"b")), Damage)
    assert isinstance(read(replace(record, headers=())), Damage)


def polled(partition: int, content: Content, **changes: object) -> PolledRecord:
    record = encode(content)
    found = PolledRecord(
        "t0", partition, 9, record.key, record.value, record.timestamp_ms, record.headers
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def test_polled_records_come_into_the_history_with_what_is_wrong_with_them() -> None:
    """JEP-4, JEP-5: a foreign or damaged record is there, and says so."""
    progress = Progress(Plan("poll", [["poll"]]), KEYS)
    progress.polled(
        0,
        [
            polled(0, Content(0, 7)),
            polled(0, Content(1, 8), offset=10),
            polled(1, Content(1, 9), value=b"nonsense"),
        ],
    )
    assert progress.value == [
        [
            "poll",
            {
                0: [[9, 7], [10, 8, {"key": 1}]],
                1: [[9, None, {"damage": "no header: the value is too short"}]],
            },
        ]
    ]
    assert progress.first_polled == {("t0", 0): 9, ("t0", 1): 9}
    assert progress.next_offsets == {("t0", 0): 11, ("t0", 1): 10}


def test_an_ack_of_another_partition_is_noted() -> None:
    """JEP-4: misrouted."""
    progress = Progress(Plan("send", [["send", 0, 7], ["send", 1, 8]]), KEYS)
    progress.sent(0, Ack(1, 5))
    progress.sent(1, Ack(1, None))
    assert progress.value == [["send", 0, [5, 7, {"key": 1}]], ["send", 1, [None, 8]]]
