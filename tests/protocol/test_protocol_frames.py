"""Headers, frames, golden bytes; and the registry, error codes and uuids that go with them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from protocol_cases import quick

from kraftpy.protocol.codec import DecodeError, EncodeError, decode, encode_bytes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import (
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from kraftpy.protocol.ids import ZERO_UUID, Uuid, format_uuid, hyphenated_uuid, parse_uuid
from kraftpy.protocol.registry import API, request_header_version, response_header_version
from kraftpy.protocol.schema.headers import RequestHeader, ResponseHeader
from kraftpy.protocol.schema.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kraftpy.protocol.schema.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kraftpy.protocol.schema.k03_metadata import MetadataRequest
from kraftpy.protocol.schema.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kraftpy.protocol.tables import Message, Request, Response

PRODUCE_REQUEST = ProduceRequest(
    acks=-1,
    timeout_ms=30000,
    topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData()])],
)
PRODUCE_RESPONSE = ProduceResponse(
    responses=[
        TopicProduceResponse(
            name="t",
            partition_responses=[PartitionProduceResponse(base_offset=5, log_start_offset=0)],
        )
    ]
)
FETCH_REQUEST = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=52428800,
    session_id=0,
    session_epoch=0,
    topics=[
        FetchTopic(topic="t", partitions=[FetchPartition(partition_max_bytes=1048576)]),
    ],
)
FETCH_RESPONSE = FetchResponse(
    responses=[
        FetchableTopicResponse(
            topic="t",
            partitions=[
                PartitionData(
                    last_stable_offset=0,
                    log_start_offset=0,
                    aborted_transactions=None,
                    records=b"",
                )
            ],
        )
    ]
)

GOLDEN_REQUESTS: list[tuple[str, Request, int, int, str | None]] = [
    ("0000000b 0012 0000 00000001 0001 74", ApiVersionsRequest(), 0, 1, "t"),
    (
        "0000000e 0003 0001 00000007 ffff ffffffff",
        MetadataRequest(topics=None),
        1,
        7,
        None,
    ),
    (
        (
            "00000026 0000 0006 00000003 0001 70 ffff ffff 00007530 00000001 0001 74 00000001"
            "00000000 ffffffff"
        ),
        PRODUCE_REQUEST,
        6,
        3,
        "p",
    ),
    (
        (
            "0000004b 0001 0008 00000002 0001 63 ffffffff 000001f4 00000001 03200000 00 00000000"
            "00000000 00000001 0001 74 00000001 00000000 0000000000000000 ffffffffffffffff 00100000"
            "00000000"
        ),
        FETCH_REQUEST,
        8,
        2,
        "c",
    ),
]
GOLDEN_RESPONSES: list[tuple[str, Response, int, int]] = [
    (
        "00000010 00000004 0023 00000001 0012 0000 0003",
        ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, max_version=3)]),
        0,
        4,
    ),
    (
        (
            "00000031 00000009 00000001 0001 74 00000001 00000000 0000 0000000000000005"
            "ffffffffffffffff 0000000000000000 00000000"
        ),
        PRODUCE_RESPONSE,
        6,
        9,
    ),
    (
        (
            "0000003f 00000002 00000000 0000 00000000 00000001 0001 74 00000001 00000000 0000"
            "0000000000000000 0000000000000000 0000000000000000 ffffffff 00000000"
        ),
        FETCH_RESPONSE,
        8,
        2,
    ),
]


@pytest.mark.parametrize(
    ("golden", "message", "version", "correlation_id", "client"), GOLDEN_REQUESTS
)
def test_golden_requests(
    golden: str, message: Request, version: int, correlation_id: int, client: str | None
) -> None:
    """NET-89"""
    wire = bytes.fromhex(golden)
    assert b"".join(encode_request(message, version, correlation_id, client)) == wire  # type: ignore[arg-type]
    assert int.from_bytes(wire[:4], "big") == len(wire) - 4
    header, position = decode_request_header(wire[4:])
    assert header == RequestHeader(
        request_api_key=message.KEY,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client,
    )
    assert decode(type(message), version, wire[4 + position :]) == message


@pytest.mark.parametrize(("golden", "message", "version", "correlation_id"), GOLDEN_RESPONSES)
def test_golden_responses(
    golden: str, message: Response, version: int, correlation_id: int
) -> None:
    """NET-89"""
    wire = bytes.fromhex(golden)
    assert b"".join(encode_response(message, version, correlation_id)) == wire  # type: ignore[arg-type]
    assert decode_response(type(message), version, wire[4:]) == (correlation_id, message)


# Request headers


@quick
@given(
    key=st.sampled_from(sorted(API)),
    version=st.integers(-(2**15), 2**15 - 1),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    tags=st.lists(st.binary(max_size=3), max_size=3),
)
def test_request_header_is_read_as_its_table_says(
    key: int, version: int, correlation_id: int, client_id: str | None, tags: list[bytes]
) -> None:
    header_version = request_header_version(key, version)
    header = RequestHeader(
        request_api_key=key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        unknown_tags=tuple(enumerate(tags)) if header_version == 2 else (),
    )
    data = encode_bytes(header, header_version)
    for kind in (bytes, memoryview):
        assert decode_request_header(kind(data + b"body")) == (header, len(data))


@pytest.mark.parametrize("version", [0, 3], ids=["old", "flexible"])
def test_request_header_cut_short(version: int) -> None:
    header = RequestHeader(
        request_api_key=18,
        request_api_version=version,
        client_id="client",
        unknown_tags=((1, b"xy"),) if version == 3 else (),
    )
    data = encode_bytes(header, request_header_version(18, version))
    for length in range(len(data)):
        with pytest.raises(DecodeError, match="RequestHeader"):
            decode_request_header(data[:length])


@pytest.mark.parametrize("key", [-1, 4, 5, 6, 7, 93, 32767])
def test_request_header_of_no_live_api(key: int) -> None:
    data = key.to_bytes(2, "big", signed=True) + bytes(20)
    with pytest.raises(DecodeError, match=f"{key} is no live API"):
        decode_request_header(data)


def test_request_header_with_a_bad_client_id() -> None:
    start = bytes.fromhex("0012 0000 00000001")
    with pytest.raises(DecodeError, match="client_id: a negative length"):
        decode_request_header(start + b"\xff\xfe" + bytes(9))
    with pytest.raises(DecodeError, match="client_id: invalid UTF-8"):
        decode_request_header(start + b"\0\1\xff")
    flexible = bytes.fromhex("0012 0003 00000001 ffff")
    for tags in ("ff", "01", "0105", "010505", "ffffffffff01"):
        with pytest.raises(DecodeError, match="tagged fields"):
            decode_request_header(flexible + bytes.fromhex(tags))


def test_header_versions() -> None:
    assert [request_header_version(0, version) for version in (3, 8, 9, 13)] == [1, 1, 2, 2]
    assert [response_header_version(0, version) for version in (3, 8, 9, 13)] == [0, 0, 1, 1]
    assert [request_header_version(18, version) for version in (2, 3, 4, 99)] == [1, 2, 2, 2]
    assert request_header_version(17, 1) == 1
    assert request_header_version(47, 0) == 1
    assert [request_header_version(key, version) for key in (53, 54) for version in (0, 1)] == [
        1,
        2,
        1,
        2,
    ]


@pytest.mark.parametrize("version", range(5))
def test_api_versions_answers_have_header_0(version: int) -> None:
    """NET-98"""
    assert response_header_version(18, version) == 0
    wire = b"".join(encode_response(ApiVersionsResponse(error_code=42), version, 7))  # type: ignore[arg-type]
    assert wire[4:10] == bytes.fromhex("00000007 002a")
    assert decode_response(ApiVersionsResponse, version, wire[4:])[1].error_code == 42


# Whole frames


@pytest.mark.parametrize("key", sorted(API))
def test_frames_of_every_api(key: int) -> None:
    api = API[key]
    for version in range(api.min_version, api.max_version + 1):
        request, response = api.request_class(), api.response_class()
        frame = b"".join(encode_request(request, version, 11, "client"))  # type: ignore[arg-type]
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header_version = request_header_version(key, version)
        header = RequestHeader(
            request_api_key=key,
            request_api_version=version,
            correlation_id=11,
            client_id="client",
        )
        body = encode_bytes(request, version)
        assert frame[4:] == encode_bytes(header, header_version) + body
        frame = b"".join(encode_response(response, version, 12))  # type: ignore[arg-type]
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        expected = encode_bytes(
            ResponseHeader(correlation_id=12), response_header_version(key, version)
        )
        assert frame[4:] == expected + encode_bytes(response, version)
        assert decode_response(api.response_class, version, frame[4:]) == (12, response)


def test_frame_sizes_count_record_data() -> None:
    request = ProduceRequest(
        topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=bytes(1000))])]
    )
    parts = encode_request(request, 9, 1, None)
    assert int.from_bytes(parts[0][:4], "big") == sum(map(len, parts)) - 4  # type: ignore[arg-type, index]
    assert request.topic_data[0].partition_data[0].records in parts


def test_response_tags_are_skipped() -> None:
    body = encode_bytes(PRODUCE_RESPONSE, 9)
    header = encode_bytes(ResponseHeader(correlation_id=5, unknown_tags=((3, b"abc"),)), 1)
    assert decode_response(ProduceResponse, 9, header + body) == (5, PRODUCE_RESPONSE)


def test_response_cut_short() -> None:
    frame = b"".join(encode_response(PRODUCE_RESPONSE, 9, 5))[4:]  # type: ignore[arg-type]
    for length in range(len(frame)):
        with pytest.raises(DecodeError):
            decode_response(ProduceResponse, 9, frame[:length])


def test_headers_out_of_range() -> None:
    for correlation_id, client_id in ((2**31, "c"), (0, "x" * 32768), (0, "\ud800")):
        with pytest.raises(EncodeError, match="MetadataRequest v1, header"):
            encode_request(MetadataRequest(), 1, correlation_id, client_id)
    with pytest.raises(EncodeError, match="ProduceResponse v9, header"):
        encode_response(PRODUCE_RESPONSE, 9, 2**31)


# Registry


def test_registry_rows() -> None:
    assert API[0].advertised_min_version == 0
    assert API[0].min_version == 3
    assert API[22].max_version == 5
    assert API[22].latest_unstable
    assert [key for key, api in API.items() if api.latest_unstable] == [22]
    others = [api for api in API.values() if api.key != 0]
    assert all(api.advertised_min_version == api.min_version for api in others)
    assert sum("broker" in api.listeners for api in API.values()) == 77
    assert sum("controller" in api.listeners for api in API.values()) == 41
    assert not {4, 5, 6, 7} & set(API)
    assert API[18].module_name == "k18_api_versions"
    assert repr(API[1]) == "<ApiSpec 1 Fetch 4-18>"


def test_importing_the_registry_imports_no_schema_and_no_trio() -> None:
    program = (
        "import sys, kraftpy.protocol.registry\n"
        "print([n for n in sys.modules if '.schema.k' in n or n in ('trio', 'dataclasses')])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert run.stdout.strip() == "[]"


# Error codes


def test_error_codes_are_those_of_kio() -> None:
    assert [code.value for code in ErrorCode] == list(range(-1, 134))
    for code in ErrorCode:
        theirs = KioErrorCode(code.value)
        assert code.name.lower() == theirs.name
        assert code.retriable == theirs.retriable, code
        assert code.message.endswith(".")


def test_error_codes_are_ints_with_advice() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == 6
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.refreshes_metadata
    assert not ErrorCode.REQUEST_TIMED_OUT.refreshes_metadata
    assert len({code.message for code in ErrorCode}) == len(ErrorCode)
    assert all(code.retriable for code in ErrorCode if code.refreshes_metadata)
    assert sum(code.refreshes_metadata for code in ErrorCode) == 13


# Uuids


@given(st.binary(min_size=16, max_size=16))
@quick
def test_uuid_text_round_trip(raw: bytes) -> None:
    text = format_uuid(Uuid(raw))
    assert len(text) == 22
    assert parse_uuid(text) == raw


def test_uuid_text() -> None:
    assert format_uuid(ZERO_UUID) == "A" * 22
    assert format_uuid(Uuid(b"\xff" * 16)) == "_" * 21 + "w"
    for text in ("", "A" * 21, "A" * 23, "A" * 21 + "B", "A" * 20 + "==", "+" * 22, "é" * 22):
        with pytest.raises(ValueError, match="not a uuid"):
            parse_uuid(text)


def test_a_uuid_with_hyphens() -> None:
    assert hyphenated_uuid(Uuid(bytes(range(16)))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_message_classes_are_loaded_on_demand() -> None:
    assert API[3].request_class is MetadataRequest
    assert issubclass(API[3].response_class, Message)
