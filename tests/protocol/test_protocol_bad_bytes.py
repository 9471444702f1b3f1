"""Bytes that are not a message: one kind of error, and no more memory than the frame justifies."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_cases import RECORD_MESSAGES, all_messages, quick, sample_message, versions_of

from kraftpy.protocol.codec import DecodeError, decode, encode_bytes
from kraftpy.protocol.schema.k00_produce import ProduceRequest
from kraftpy.protocol.schema.k01_fetch import FetchRequest
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataResponse
from kraftpy.protocol.schema.k75_describe_topic_partitions import DescribeTopicPartitionsRequest
from kraftpy.protocol.tables import Message

CLASSES = [*all_messages(), *RECORD_MESSAGES]
by_class = pytest.mark.parametrize("message_class", CLASSES, ids=lambda each: each.__name__)

# What a decoded message may cost for each byte of its frame: a struct of a byte or two becomes an
# object of some slots in a list.
BYTES_FOR_EACH_BYTE = 200


def _only_decode_error(message_class: type[Message], version: int, data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decode(message_class, version, data)


@by_class
def test_cut_short_at_every_byte(message_class: type[Message]) -> None:
    """NET-88: a prefix of a message is never a message, in any version."""
    for version in versions_of(message_class):
        whole = encode_bytes(sample_message(message_class, version), version)
        for length in range(len(whole)):
            with pytest.raises(DecodeError) as caught:
                decode(message_class, version, whole[:length])
            error = caught.value
            assert error.field, f"v{version} cut at {length} names no field"
            assert (error.message_name, error.version) == (message_class.__name__, version)


@by_class
def test_bytes_left_over(message_class: type[Message]) -> None:
    for version in versions_of(message_class):
        whole = encode_bytes(sample_message(message_class, version), version)
        with pytest.raises(DecodeError, match="1 bytes left over"):
            decode(message_class, version, whole + b"\0")


@by_class
def test_lengths_that_lie(message_class: type[Message]) -> None:
    """At every position in turn a huge or a negative number, old and compact."""
    for version in (versions_of(message_class)[0], versions_of(message_class)[-1]):
        whole = encode_bytes(sample_message(message_class, version), version)
        for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\xff\xff\xff\xff\x0f", b"\x80\0"):
            for position in range(len(whole)):
                lying = whole[:position] + lie + whole[position + len(lie) :]
                _only_decode_error(message_class, version, lying)


@by_class
def test_mutations(message_class: type[Message]) -> None:
    """Bytes replaced, inserted and removed anywhere."""
    versions = versions_of(message_class)
    wholes = {each: encode_bytes(sample_message(message_class, each), each) for each in versions}

    @quick
    @given(
        st.sampled_from(versions),
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 2), st.binary(max_size=5))),
    )
    def mutate(version: int, changes: list[tuple[int, int, bytes]]) -> None:
        data = bytearray(wholes[version])
        for where, removed, inserted in changes:
            position = where % (len(data) + 1)
            data[position : position + removed] = inserted
        _only_decode_error(message_class, version, bytes(data))

    mutate()


@by_class
def test_noise(message_class: type[Message]) -> None:
    @quick
    @given(st.sampled_from(versions_of(message_class)), st.binary(max_size=200))
    def noise(version: int, data: bytes) -> None:
        _only_decode_error(message_class, version, data)

    noise()


@by_class
def test_memory_is_bounded_by_the_frame(message_class: type[Message]) -> None:
    """A count that the frame can't hold allocates nothing; one that it can, a bounded amount."""
    for version in (versions_of(message_class)[0], versions_of(message_class)[-1]):
        whole = encode_bytes(sample_message(message_class, version), version)
        room = bytes(1024)
        positions = range(0, len(whole), max(1, len(whole) // 20))
        for lie in (b"\x7f\xff\xff\xff", b"\0\0\x03\xff", b"\xff\xff\xff\xff\x07", b"\xff\x07"):
            frames = [room, *(whole[:position] + lie + room for position in positions)]
            peak = _peak_of_decoding(message_class, version, frames)
            assert peak < BYTES_FOR_EACH_BYTE * (len(whole) + len(room)) + 100_000, version


def _peak_of_decoding(message_class: type[Message], version: int, frames: Sequence[bytes]) -> int:
    _only_decode_error(message_class, version, frames[0])
    tracemalloc.start()
    try:
        for frame in frames:
            _only_decode_error(message_class, version, frame)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_count_is_compared_with_the_smallest_elements() -> None:
    """One element more than the bytes behind the count could hold is refused at the count."""
    topics = b"\0\0\0\2" + b"\0\0" * 2
    assert decode(MetadataRequest, 0, topics).topics is not None
    with pytest.raises(DecodeError, match=r"MetadataRequest v0, topics: 3 elements where 4 bytes"):
        decode(MetadataRequest, 0, b"\0\0\0\3" + b"\0\0" * 2)


def test_null_where_there_is_none() -> None:
    """NET-88: -1 is null only where the table says so."""
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    with pytest.raises(DecodeError, match=r"MetadataRequest v0, topics: null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(DecodeError, match=r"MetadataRequest v1, topics\[\].name: null"):
        decode(MetadataRequest, 1, b"\0\0\0\1\xff\xff")
    with pytest.raises(DecodeError, match=r"MetadataRequest v9, topics\[\].name: null"):
        decode(MetadataRequest, 9, b"\2\0\0\0\0\0\0\0")
    with pytest.raises(DecodeError, match=r"brokers: null"):
        decode(MetadataResponse, 9, b"\0\0\0\0\0" + bytes(20))


@pytest.mark.parametrize("length", [b"\xff\xfe", b"\x80\0"], ids=["-2", "-32768"])
def test_negative_lengths_other_than_null(length: bytes) -> None:
    """NET-88. The frame is large enough that the length would fit it as an unsigned number."""
    data = length + bytes(70_000)
    with pytest.raises(DecodeError, match=r"ProduceRequest v3, transactional_id: null or a neg"):
        decode(ProduceRequest, 3, data)


def test_null_array_of_numbers() -> None:
    prefix = bytes(4) + b"\1" + b"\0" + bytes(4) + b"\2" + bytes(2) + b"\2t" + b"\0" + b"\2"
    partition = bytes(14) + b"\0"
    with pytest.raises(DecodeError, match=r"topics\[\].partitions\[\].replica_nodes: null"):
        decode(MetadataResponse, 9, prefix + partition + bytes(30))


def test_invalid_utf8() -> None:
    with pytest.raises(DecodeError, match=r"MetadataRequest v1, topics\[\].name: invalid UTF-8"):
        decode(MetadataRequest, 1, b"\0\0\0\1\0\2\xc3\x28")
    with pytest.raises(DecodeError, match=r"ProduceRequest v3, transactional_id: invalid UTF-8"):
        decode(ProduceRequest, 3, b"\0\1\xff" + bytes(20))


def test_compact_string_beyond_the_old_limit() -> None:
    """Kafka refuses compact strings of more than 32767 bytes too; one less passes."""
    for length, fits in ((32767, True), (32768, False)):
        encoded = length + 1
        prefix = bytes([encoded & 127 | 128, encoded >> 7 & 127 | 128, encoded >> 14])
        data = b"\2" + prefix + b"x" * length + b"\0" * 5
        if fits:
            topics = decode(MetadataRequest, 9, data).topics
            assert topics is not None
            assert topics[0].name == "x" * length
        else:
            with pytest.raises(DecodeError, match="string longer than 32767 bytes"):
                decode(MetadataRequest, 9, data)


@pytest.mark.parametrize(
    ("varint", "reason"),
    [
        (b"\xff\xff\xff\xff\xff\x01", "longer than 5 bytes"),
        (b"\x80\x80\x80\x80\x80\x00", "longer than 5 bytes"),
        (b"\xff\xff\xff\xff\x1f", "exceeds 32 bits"),
    ],
)
def test_over_long_varint(varint: bytes, reason: str) -> None:
    """NET-87"""
    with pytest.raises(DecodeError, match=reason):
        decode(MetadataRequest, 9, varint + bytes(20))


def test_nullable_struct_is_absent_or_present() -> None:
    message = DescribeTopicPartitionsRequest()
    data = encode_bytes(message, 0)
    assert decode(DescribeTopicPartitionsRequest, 0, data) == message
    position = data.index(b"\xff")
    with pytest.raises(DecodeError, match=r"cursor: 2 is not the presence of a struct"):
        decode(DescribeTopicPartitionsRequest, 0, data[:position] + b"\2" + data[position + 1 :])


def test_tagged_fields_that_lie_about_their_size() -> None:
    whole = encode_bytes(FetchRequest(cluster_id="abc"), 12)
    position = whole.index(b"\4abc") - 1
    for size, reason in ((5, "4 remain"), (3, "1 bytes late"), (200, "remain")):
        lying = whole[:position] + bytes([size]) + whole[position + 1 :]
        with pytest.raises(DecodeError, match=reason):
            decode(FetchRequest, 12, lying)


def test_version_outside_the_table() -> None:
    for version in (-1, 2, 14, 99):
        with pytest.raises(DecodeError, match="there is no such version"):
            decode(ProduceRequest, version, b"")
