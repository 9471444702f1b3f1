"""The codec's rules: defaults, nulls, ignorable fields, tags, record data by reference, errors."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
from protocol_cases import (
    INTEGERS,
    all_messages,
    present_fields,
    sample_message,
    versions_of,
)

from kraftpy.protocol.codec import DecodeError, EncodeError, decode, encode, encode_bytes
from kraftpy.protocol.primitives import Malformed, Unwritable, read_rest_of_varint, unsigned_varint
from kraftpy.protocol.schema.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kraftpy.protocol.schema.k01_fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from kraftpy.protocol.schema.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftpy.protocol.schema.k59_fetch_snapshot import (
    FetchSnapshotResponse,
    ResponsePartitionSnapshot,
    ResponseTopicSnapshot,
)
from kraftpy.protocol.schema.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
)
from kraftpy.protocol.tables import (
    Message,
    Request,
    Struct,
    covers,
    int8,
    int16,
    int32,
    int64,
    uint16,
    uuid,
)


def produce(records: object, topic: str = "t") -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=records)  # type: ignore[arg-type]
    return ProduceRequest(
        acks=1, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
    )


# Classes


def test_constructor_has_kafkas_defaults() -> None:
    request = FetchRequest()
    assert request.max_bytes == 0x7FFFFFFF
    assert request.replica_id == -1
    assert request.replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)
    assert request.cluster_id is None
    assert request.topics == []
    assert request.unknown_tags == ()


def test_defaults_are_not_shared() -> None:
    first, second = FetchRequest(), FetchRequest()
    assert first.topics is not second.topics
    assert first.replica_state is not second.replica_state
    decoded = decode(FetchRequest, 12, encode_bytes(first, 12))
    assert (
        decoded.replica_state is not decode(FetchRequest, 4, encode_bytes(first, 4)).replica_state
    )


def test_unknown_arguments_and_attributes_are_refused() -> None:
    with pytest.raises(TypeError):
        HeartbeatRequest(groupid="g")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        HeartbeatRequest().groupid = "g"  # type: ignore[attr-defined]


def test_equality_is_by_value_and_class() -> None:
    assert HeartbeatRequest(group_id="g") == HeartbeatRequest(group_id="g")
    assert HeartbeatRequest(group_id="g") != HeartbeatRequest(group_id="h")
    assert HeartbeatRequest() != HeartbeatRequest(unknown_tags=((9, b""),))
    assert ReplicaState() != EpochEndOffset()
    assert produce(b"abc") == produce(memoryview(b"abc"))
    with pytest.raises(TypeError):
        hash(HeartbeatRequest())


def test_repr_shows_lengths_of_bytes_only() -> None:
    shown = repr(produce(b"secret"))
    assert "records=<6 bytes>" in shown
    assert "secret" not in shown
    assert "name='t'" in shown
    assert repr(produce(None)).count("records=None") == 1
    assert "unknown_tags=((9, b'x'),)" in repr(HeartbeatRequest(unknown_tags=((9, b"x"),)))


# Which fields a version has


def test_fields_that_a_version_lacks_get_their_defaults() -> None:
    request = FetchRequest(session_id=0, rack_id="r")
    assert decode(FetchRequest, 10, encode_bytes(request, 10)).rack_id == ""
    assert decode(FetchRequest, 11, encode_bytes(request, 11)).rack_id == "r"


def test_ignorable_fields_are_dropped_and_others_refused() -> None:
    assert encode_bytes(FetchRequest(session_id=5), 7) != encode_bytes(FetchRequest(), 7)
    heartbeat = HeartbeatRequest(group_instance_id="i")
    with pytest.raises(EncodeError, match="HeartbeatRequest v2, group_instance_id: this version"):
        encode_bytes(heartbeat, 2)
    broker = MetadataResponseBroker(rack="r")
    # Rack is ignorable, and v0 has none.
    v0 = encode_bytes(MetadataResponse(brokers=[broker]), 0)
    assert decode(MetadataResponse, 0, v0).brokers[0].rack is None


def test_every_field_that_is_not_ignorable_is_refused_where_it_is_absent() -> None:
    """Each one alone set to something, in each version without it."""
    checked = 0
    for message_class in all_messages():
        for version in versions_of(message_class):
            whole = sample_message(message_class, versions_of(message_class)[-1])
            for field in message_class.FIELDS:
                message = message_class()
                value = getattr(whole, field.name)
                if value == getattr(message, field.name) or field.struct is not None:
                    continue
                setattr(message, field.name, value)
                if field.ignorable or covers(field.versions, version):
                    encode_bytes(message, version)
                    continue
                with pytest.raises(EncodeError) as caught:
                    encode_bytes(message, version)
                assert caught.value.field == field.name
                checked += 1
    assert checked > 40


def test_absent_tagged_struct_must_have_its_defaults() -> None:
    response = ProduceResponse(
        responses=[TopicProduceResponse(partition_responses=[PartitionProduceResponse()])]
    )
    encode_bytes(response, 9)
    response.responses[0].partition_responses[0].current_leader.leader_id = 4
    with pytest.raises(EncodeError, match=r"v9, responses\[\].partition_responses\[\].current_lea"):
        encode_bytes(response, 9)
    encode_bytes(response, 10)


def test_version_outside_the_table() -> None:
    for version in (-1, 2, 14):
        with pytest.raises(EncodeError, match=r"ProduceRequest v.*: there is no such version"):
            encode(ProduceRequest(), version)


# Tags


def test_tagged_fields_with_their_default_are_left_out() -> None:
    plain = encode_bytes(FetchRequest(), 12)
    assert len(encode_bytes(FetchRequest(cluster_id="abc"), 12)) == len(plain) + 2 + 4
    assert encode_bytes(FetchRequest(cluster_id=None), 12) == plain


@pytest.mark.parametrize("message_class", list(all_messages()), ids=lambda each: each.__name__)
def test_unknown_tags_are_kept(message_class: type[Message]) -> None:
    """In every struct of every flexible version, between and behind the known ones."""
    for version in versions_of(message_class):
        message = sample_message(message_class, version)
        if not covers(message_class.FLEXIBLE, version):
            message.unknown_tags = ((50, b""),)
            with pytest.raises(EncodeError, match="tagged fields: no tags in this version"):
                encode_bytes(message, version)
            continue
        _tag_everything(message, version)
        data = encode_bytes(message, version)
        decoded = decode(message_class, version, data)
        assert decoded == message
        assert encode_bytes(decoded, version) == data


def _tag_everything(struct: Struct, version: int) -> None:
    struct.unknown_tags = ((50, b""), (200, bytes(200)), (2**32 - 1, b"x"))
    for field in present_fields(type(struct), version):
        value = getattr(struct, field.name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                _tag_everything(each, version)


def test_more_tags_than_one_byte_can_count() -> None:
    tags = tuple((tag, b"") for tag in range(100, 300))
    for message_class in (HeartbeatRequest, FetchRequest):
        message = message_class(unknown_tags=tags)
        version = versions_of(message_class)[-1]
        assert decode(message_class, version, encode_bytes(message, version)) == message


@pytest.mark.parametrize("tags", [((7, b""), (7, b"")), ((8, b""), (7, b"")), ((-1, b""),)])
def test_tags_that_do_not_rise_are_refused(tags: tuple[tuple[int, bytes], ...]) -> None:
    with pytest.raises(EncodeError, match="tagged fields"):
        encode_bytes(HeartbeatRequest(unknown_tags=tags), 4)


def test_an_unknown_tag_with_a_known_number_is_refused() -> None:
    message = FetchRequest(cluster_id="c", unknown_tags=((0, b"\2c"),))
    with pytest.raises(EncodeError, match="tag 0 follows tag 0"):
        encode_bytes(message, 12)


def test_known_tags_are_taken_in_any_order() -> None:
    """Kafka does not insist on rising tags when it reads."""
    message = FetchRequest(cluster_id="c", replica_state=ReplicaState(replica_id=1))
    data = encode_bytes(message, 15)
    section = data.index(b"\2\0\2\2c\1")
    first, second = data[section + 1 : section + 5], data[section + 5 :]
    assert decode(FetchRequest, 15, data[: section + 1] + second + first) == message


# Values


@pytest.mark.parametrize("kind", [int8, int16, uint16, int32, int64], ids=lambda k: k.name)
def test_integers_at_their_limits(kind: object) -> None:
    """NET-86: the limits pass, one beyond is refused."""
    name = kind.name  # type: ignore[attr-defined]
    low, high = INTEGERS[name]

    class Sample(Message, versions="0", flexible="none"):
        value: int = kind()  # type: ignore[operator]

    for value in (low, high, 0):
        assert decode(Sample, 0, encode_bytes(Sample(value=value), 0)).value == value
    for value in (low - 1, high + 1):
        with pytest.raises(EncodeError, match=f"Sample v0, value: {value} does not fit"):
            encode_bytes(Sample(value=value), 0)


def test_any_byte_but_zero_is_true() -> None:
    data = bytearray(encode_bytes(MetadataRequest(allow_auto_topic_creation=True), 4))
    for byte in (1, 2, 0x80, 0xFF):
        data[-1] = byte
        assert decode(MetadataRequest, 4, data).allow_auto_topic_creation is True
    data[-1] = 0
    assert decode(MetadataRequest, 4, data).allow_auto_topic_creation is False


def test_strings_count_bytes_and_end_at_32767() -> None:
    """NET-88"""
    assert encode_bytes(HeartbeatRequest(group_id="é"), 0)[:4] == b"\0\2\xc3\xa9"
    for version in (0, 4):
        longest = HeartbeatRequest(group_id="x" * 32767)
        assert decode(HeartbeatRequest, version, encode_bytes(longest, version)) == longest
        with pytest.raises(EncodeError, match=f"HeartbeatRequest v{version}, group_id"):
            encode_bytes(HeartbeatRequest(group_id="x" * 32768), version)


@pytest.mark.parametrize("version", [0, 4])
@pytest.mark.parametrize("bad", [None, b"bytes", 5, "\ud800"], ids=repr)
def test_what_is_no_string(version: int, bad: object) -> None:
    """NET-88: null too, where the table has none."""
    with pytest.raises(EncodeError, match=f"HeartbeatRequest v{version}, group_id"):
        encode_bytes(HeartbeatRequest(group_id=bad), version)  # type: ignore[arg-type]


def test_null_where_the_version_has_none() -> None:
    assert encode_bytes(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    with pytest.raises(EncodeError, match="MetadataRequest v0, topics"):
        encode_bytes(MetadataRequest(topics=None), 0)
    with pytest.raises(EncodeError, match=r"MetadataRequest v9, topics\[\].name"):
        encode_bytes(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9)
    assert encode_bytes(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 10)


def test_nullable_struct() -> None:
    for cursor in (None, Cursor(topic_name="t", partition_index=4)):
        message = DescribeTopicPartitionsRequest(cursor=cursor)
        assert decode(DescribeTopicPartitionsRequest, 0, encode_bytes(message, 0)) == message


@pytest.mark.parametrize("size", [0, 15, 17])
def test_uuids_have_16_bytes(size: int) -> None:
    class Sample(Message, versions="0", flexible="none"):
        one: bytes = uuid()

    with pytest.raises(EncodeError, match="one: a uuid has 16 bytes"):
        encode_bytes(Sample(one=bytes(size)), 0)
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(size))])  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match=r"topics\[\].topic_id: a uuid has 16 bytes"):
        encode_bytes(request, 12)


def test_error_in_a_run_names_the_value() -> None:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t", partition_responses=[PartitionProduceResponse(base_offset=2**63)]
            )
        ]
    )
    with pytest.raises(EncodeError) as caught:
        encode(response, 9)
    assert caught.value.field == "responses[].partition_responses[].base_offset"
    assert caught.value.version == 9
    assert caught.value.message_name == "ProduceResponse"


def test_elements_of_the_wrong_kind() -> None:
    for topics in ([5], [None], ["t"], 5):
        for version in (3, 9):
            with pytest.raises(EncodeError, match=f"ProduceRequest v{version}, topic_data"):
                encode(ProduceRequest(topic_data=topics), version)  # type: ignore[arg-type]
    partitions = [PartitionProduceResponse(), object()]
    topic = TopicProduceResponse(partition_responses=partitions)  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match=r"responses\[\].partition_responses\[\]"):
        encode(ProduceResponse(responses=[topic]), 9)


def test_messages_can_be_copied() -> None:
    original = produce(b"abc")
    copied = copy.deepcopy(original)
    assert copied == original
    copied.topic_data[0].name = "other"
    assert copied != original


@pytest.mark.parametrize("version", [11, 17])
def test_elements_share_the_structs_that_they_lack(version: int) -> None:
    """With one message, not with others; and what an element has is its own."""
    partitions = [PartitionData(partition_index=index, records=b"") for index in range(3)]
    if version > 11:
        partitions[1].current_leader = LeaderIdAndEpoch(leader_id=5, leader_epoch=6)
    message = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    data = encode_bytes(message, version)
    first, second = (decode(FetchResponse, version, data).responses[0] for _ in range(2))
    assert [first, second] == message.responses * 2
    assert first.partitions[0].current_leader is first.partitions[2].current_leader
    assert first.partitions[0].current_leader is not second.partitions[0].current_leader


# Varints


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**31 - 1, "ffffffff07"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_unsigned_varints(value: int, encoded: str) -> None:
    """NET-87"""
    data = bytes.fromhex(encoded)
    assert unsigned_varint(value) == data
    if value > 127:
        assert read_rest_of_varint(data, data[0], 1) == (value, len(data))
        with pytest.raises(IndexError):
            read_rest_of_varint(data[:-1], data[0], 1)


def test_unsigned_varints_end_at_32_bits() -> None:
    """NET-87"""
    for value in (-1, 2**32):
        with pytest.raises(Unwritable):
            unsigned_varint(value)
    with pytest.raises(Malformed, match="exceeds 32 bits"):
        read_rest_of_varint(b"\xff\xff\xff\xff\x10", 0xFF, 1)
    with pytest.raises(Malformed, match="longer than 5 bytes"):
        read_rest_of_varint(b"\x80\x80\x80\x80\x80\x00", 0x80, 1)


# Every length of one byte and many of two, the borders of three and four, with all bits in use.
LENGTHS = [*range(400), 8191, 16381, 16382, 16383, 16384, 20_000, 32766, 32767]
RECORD_LENGTHS = [*LENGTHS, 1_000_000, 2_097_150, 2_097_151, 2_097_152, 3_333_333]


def test_compact_lengths_of_strings() -> None:
    """NET-87, NET-88"""
    for length in LENGTHS:
        message = HeartbeatRequest(group_id="x" * length)
        data = encode_bytes(message, 4)
        assert data.startswith(unsigned_varint(length + 1) + b"x" * length)
        assert decode(HeartbeatRequest, 4, data) == message


def test_compact_lengths_of_record_data() -> None:
    for length in RECORD_LENGTHS:
        message = produce(b"r" * length)
        data = encode_bytes(message, 9)
        assert data.endswith(unsigned_varint(length + 1) + b"r" * length + b"\0\0\0")
        assert decode(ProduceRequest, 9, data) == message


@pytest.mark.parametrize("version", [9, 13])
def test_record_data_that_is_null_at_the_end(version: int) -> None:
    """Three bytes of its length are read at once, and behind one there are just three of tags."""
    message = produce(None, topic="" if version > 12 else "t")
    data = encode_bytes(message, version)
    assert data.endswith(b"\0\0\0\0")
    assert decode(ProduceRequest, version, data) == message


def test_compact_counts() -> None:
    for count in LENGTHS[:-4]:
        partition = MetadataResponsePartition(replica_nodes=[7] * count)
        topics = [MetadataResponseTopic(name="t", partitions=[partition])]
        message = MetadataResponse(topics=topics)
        assert decode(MetadataResponse, 9, encode_bytes(message, 9)) == message
        request = MetadataRequest(topics=[MetadataRequestTopic(name="")] * count)
        data = encode_bytes(request, 9)
        assert data.startswith(unsigned_varint(count + 1))
        assert decode(MetadataRequest, 9, data) == request


# Record data


@dataclass(frozen=True)
class Slice:
    """Has a length, and no bytes at all: as a file slice."""

    length: int

    def __len__(self) -> int:
        return self.length


@pytest.mark.parametrize("version", [3, 9])
def test_record_data_is_passed_on_by_reference(version: int) -> None:
    for records in (b"x" * 200, memoryview(b"x" * 200), bytearray(5), Slice(10**6)):
        parts = encode(produce(records), version)
        assert [part for part in parts if part is records] == [records]
        assert parts[0] is not records
    assert len(encode(produce(None), version)) == 1
    assert len(encode(produce(b""), version)) == 1


def test_record_data_is_a_slice_of_the_frame() -> None:
    for version in (4, 12):
        partition = PartitionData(partition_index=1, records=b"records of a batch")
        message = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
        frame = bytearray(encode_bytes(message, version))
        decoded = decode(FetchResponse, version, frame)
        records = decoded.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        assert records.obj is frame
        assert records == b"records of a batch"


def test_what_is_no_record_data() -> None:
    with pytest.raises(EncodeError, match=r"v9, topic_data\[\].partition_data\[\].records"):
        encode(produce(5), 9)
    partition = ResponsePartitionSnapshot(unaligned_records=None)  # type: ignore[arg-type]
    snapshot = FetchSnapshotResponse(topics=[ResponseTopicSnapshot(partitions=[partition])])
    with pytest.raises(EncodeError, match=r"topics\[\].partitions\[\].unaligned_records"):
        encode(snapshot, 1)


def test_other_fields_are_copies() -> None:
    frame = bytearray(encode_bytes(produce(b"abc", topic="topic"), 3))
    decoded = decode(ProduceRequest, 3, frame)
    frame[frame.index(b"topic")] = ord("T")
    assert decoded.topic_data[0].name == "topic"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_decoded(kind: type) -> None:
    for message in (produce(b"abc"), HeartbeatRequest(group_id="g")):
        version = versions_of(type(message))[0]
        data = kind(encode_bytes(message, version))
        assert decode(type(message), version, data) == message


def test_bytes_behind_a_message_can_be_passed_over() -> None:
    data = encode_bytes(HeartbeatRequest(group_id="g"), 4) + b"rest"
    decoded = decode(HeartbeatRequest, 4, data, may_have_rest=True)
    assert decoded == HeartbeatRequest(group_id="g")
    with pytest.raises(DecodeError, match="4 bytes left over"):
        decode(HeartbeatRequest, 4, data)
    with pytest.raises(DecodeError, match="the bytes end here"):
        decode(HeartbeatRequest, 4, data[:-5], may_have_rest=True)


def test_generated_functions_are_made_once() -> None:
    class Sample(Request, key=999, versions="0-1", flexible="none"):
        value: int = int32()

    assert Sample.decoders == {}
    decode(Sample, 0, encode_bytes(Sample(), 0))
    generated = Sample.decoders[0]
    decode(Sample, 0, bytes(4))
    assert Sample.decoders == {0: generated}
    assert list(Sample.encoders) == [0]


def test_messages_of_one_version_are_empty() -> None:
    assert encode(ApiVersionsRequest(), 0) == [b""]
    assert decode(ApiVersionsRequest, 0, b"") == ApiVersionsRequest()
    with pytest.raises(DecodeError, match="ApiVersionsResponse v0, error_code: the bytes end here"):
        decode(ApiVersionsResponse, 0, b"")
