"""The client's core: negotiation, matching, deadlines, evidence; no I/O anywhere."""

from __future__ import annotations

import struct

import pytest

from kraftpy.client.core import ConnectionCore, Pending, State
from kraftpy.client.errors import ConnectionLost, Evidence, NegotiationFailed, UnsupportedVersion
from kraftpy.client.settings import ClientSettings
from kraftpy.net.service import Part
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_request_header, encode_response
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataResponse
from kraftpy.protocol.schema.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kraftpy.protocol.schema.k60_describe_cluster import DescribeClusterRequest
from kraftpy.protocol.tables import Response

SETTINGS = ClientSettings(client_id="tester", request_timeout_ms=1_000)


def joined(parts: list[Part]) -> bytes:
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]


def frame_of(response: Response, version: int, correlation_id: int) -> memoryview:
    return memoryview(joined(encode_response(response, version, correlation_id))[4:])


def versions(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    keys = {"metadata": 3, "api_versions": 18, "describe_cluster": 60}
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=keys[name], min_version=low, max_version=high)
            for name, (low, high) in ranges.items()
        ]
    )


def sent_header(parts: list[Part]) -> tuple[int, int, int, str | None]:
    """Key, version, correlation id and client id of a request that was to be sent."""
    header, _ = decode_request_header(joined(parts)[4:])
    return (
        header.request_api_key,
        header.request_api_version,
        header.correlation_id,
        header.client_id,
    )


def ready_core(**ranges: tuple[int, int]) -> ConnectionCore:
    core = ConnectionCore(SETTINGS)
    core.open(0)
    core.receive(frame_of(versions(**(ranges or {"metadata": (0, 13)})), 4, 0), 0)
    assert core.state is State.READY
    return core


def submit(core: ConnectionCore, now_ms: int = 0, **limits: int) -> tuple[Pending, list[Part]]:
    return core.submit(MetadataRequest(), now_ms, lambda: None, **limits)


def test_negotiates_in_our_highest_version_first() -> None:
    core = ConnectionCore(SETTINGS)
    assert sent_header(core.open(0)) == (18, 4, 0, "tester")
    assert core.receive(frame_of(versions(metadata=(0, 9)), 4, 0), 0) == []
    assert core.state is State.READY
    assert core.versions == {3: (0, 9)}


def test_goes_down_to_what_an_older_node_offers() -> None:
    """KIP-511."""
    core = ConnectionCore(SETTINGS)
    core.open(0)
    refusal = versions(api_versions=(0, 3))
    refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
    assert sent_header(core.receive(frame_of(refusal, 0, 0), 0)) == (18, 3, 1, "tester")
    core.receive(frame_of(versions(metadata=(0, 9)), 3, 1), 0)
    assert core.state is State.READY


def test_goes_down_to_version_0_without_an_offer() -> None:
    core = ConnectionCore(SETTINGS)
    core.open(0)
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    assert sent_header(core.receive(frame_of(refusal, 0, 0), 0))[1] == 0
    core.receive(frame_of(versions(metadata=(0, 1)), 0, 1), 0)
    assert core.state is State.READY


def test_negotiation_always_ends() -> None:
    """A node that refuses every version, each time offering the one it just refused."""
    core = ConnectionCore(SETTINGS)
    parts = core.open(0)
    asked = []
    while core.state is State.NEGOTIATING:
        _, version, correlation_id, _ = sent_header(parts)
        asked.append(version)
        refusal = versions(api_versions=(0, version))
        refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
        parts = core.receive(frame_of(refusal, 0, correlation_id), 0)
    assert asked == [4, 3, 2, 1, 0]
    assert isinstance(core.failure, NegotiationFailed)


def test_other_errors_end_negotiation() -> None:
    core = ConnectionCore(SETTINGS)
    core.open(0)
    core.receive(frame_of(ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST), 4, 0), 0)
    assert isinstance(core.failure, NegotiationFailed)
    assert "42" in str(core.failure)


@pytest.mark.parametrize(
    ("theirs", "limit", "expected"),
    [((0, 13), None, 13), ((0, 99), None, 13), ((0, 5), None, 5), ((0, 13), 8, 8), ((4, 4), 9, 4)],
)
def test_highest_common_version(theirs: tuple[int, int], limit: int | None, expected: int) -> None:
    core = ready_core(metadata=theirs)
    assert core.choose_version(API[3], limit) == expected


@pytest.mark.parametrize(
    ("theirs", "limit"),
    [((14, 20), None), ((5, 13), 4), ((-5, -1), None)],
)
def test_no_common_version(theirs: tuple[int, int], limit: int | None) -> None:
    core = ready_core(metadata=theirs)
    with pytest.raises(UnsupportedVersion, match="Metadata"):
        core.submit(MetadataRequest(), 0, lambda: None, max_version=limit)
    assert core.in_flight_count == 0


def test_a_client_can_be_older_than_it_is() -> None:
    """The highest version of an API can be set; others are as ever."""
    core = ConnectionCore(ClientSettings(max_versions={3: 8}))
    core.open(0)
    offered = versions(metadata=(0, 13), describe_cluster=(0, 2))
    core.receive(frame_of(offered, API[18].max_version, 0), 0)
    assert core.choose_version(API[3]) == 8
    assert core.choose_version(API[60]) == 2


def test_api_that_is_not_served() -> None:
    with pytest.raises(UnsupportedVersion, match="does not serve DescribeCluster"):
        ready_core().submit(DescribeClusterRequest(), 0, lambda: None)


def test_answers_go_to_their_requests_in_order() -> None:
    core = ready_core()
    woken: list[int] = []
    pendings = []
    for number in range(3):
        pending, parts = core.submit(MetadataRequest(), 0, lambda n=number: woken.append(n))
        assert sent_header(parts)[2] == number + 1
        pendings.append(pending)
    for number, pending in enumerate(pendings):
        assert not pending.is_done
        core.receive(frame_of(MetadataResponse(controller_id=number), 13, number + 1), 0)
        assert pending.result().controller_id == number
    assert woken == [0, 1, 2]
    assert core.in_flight_count == 0


def test_correlation_ids_wrap() -> None:
    core = ready_core()
    core._next_correlation_id = 2**31 - 1
    assert sent_header(submit(core)[1])[2] == 2**31 - 1
    assert sent_header(submit(core)[1])[2] == 0


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0\0\0", id="no correlation id"),
        pytest.param(frame_of(MetadataResponse(), 13, 2), id="an answer out of turn"),
        pytest.param(struct.pack(">i", 1) + b"\xff" * 40, id="no Metadata"),
        pytest.param(struct.pack(">i", 1), id="no body"),
    ],
)
def test_garbled_answer_ends_the_connection(frame: bytes) -> None:
    core = ready_core()
    first, _ = submit(core)
    second, _ = submit(core)
    core.receive(memoryview(frame), 0)
    assert core.state is State.LOST
    for pending in (first, second):
        with pytest.raises(ConnectionLost) as lost:
            pending.result()
        assert lost.value.evidence is Evidence.GARBLED


def test_answer_that_nobody_asked_for() -> None:
    core = ready_core()
    core.receive(frame_of(MetadataResponse(), 13, 1), 0)
    assert isinstance(core.failure, ConnectionLost)
    assert core.failure.evidence is Evidence.GARBLED


@pytest.mark.parametrize("frame", [b"\0\0\0\0", b"\0\0\0\0\0\0\xff\xff", b"\0\0\0\0\0\x23"])
def test_garbled_negotiation(frame: bytes) -> None:
    core = ConnectionCore(SETTINGS)
    core.open(0)
    core.receive(memoryview(frame), 0)
    assert isinstance(core.failure, ConnectionLost)
    assert core.failure.evidence is Evidence.GARBLED


def test_overdue_answer_ends_the_connection() -> None:
    """F19: one millisecond before nothing happens; at the deadline every pending request fails."""
    core = ready_core()
    early, _ = submit(core, 100, timeout_ms=700)
    late, _ = submit(core, 200)
    assert core.next_deadline_ms() == 800
    core.expire(799)
    assert core.state is State.READY
    core.expire(800)
    assert core.state is State.LOST
    for pending in (early, late):
        assert isinstance(pending.failure, ConnectionLost)
        assert pending.failure.evidence is Evidence.TIMED_OUT
    assert not Evidence.TIMED_OUT.speaks_of_death


def test_negotiation_has_a_deadline() -> None:
    core = ConnectionCore(SETTINGS)
    core.open(50)
    assert core.next_deadline_ms() == 1_050
    core.expire(1_050)
    assert core.state is State.LOST


def test_nothing_awaited_has_no_deadline() -> None:
    core = ready_core()
    assert core.next_deadline_ms() is None
    core.expire(10**9)
    assert core.state is State.READY


def test_loss_fails_pending_and_later_requests_with_the_first_reason() -> None:
    core = ready_core()
    pending, _ = submit(core)
    core.lose(Evidence.BROKEN, "reset")
    core.lose(Evidence.ENDED_HERE, "closed")
    assert isinstance(pending.failure, ConnectionLost)
    assert pending.failure.evidence is Evidence.BROKEN
    with pytest.raises(ConnectionLost, match="broken: reset"):
        submit(core)
    assert core.receive(frame_of(MetadataResponse(), 13, 1), 0) == []


def test_what_speaks_of_death() -> None:
    """Decision 14: only what the peer's own machine says."""
    speaking = [evidence for evidence in Evidence if evidence.speaks_of_death]
    assert speaking == [Evidence.REFUSED, Evidence.BROKEN]


def test_first_request_names_this_software() -> None:
    core = ConnectionCore(SETTINGS)
    frame = joined(core.open(0))[4:]
    _, position = decode_request_header(frame)
    assert b"kraftpy" in frame[position:]
    assert ApiVersionsRequest.KEY == 18
