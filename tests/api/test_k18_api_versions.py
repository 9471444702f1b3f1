"""ApiVersions: the one API that answers whatever version it is asked in."""

from __future__ import annotations

import pytest
from api.recording import Bench, ThreeFeatures, lone_node, payload
from support.lone_node import broker_handlers

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse


class Produce(Handler):
    api_key = 0

    def handle(self, request: object, context: RequestContext) -> None:
        context.respond_nothing()


def ask(bench: Bench, version: int, name: str = "kraftpy", software: str = "1.0") -> object:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software)
    return bench.ask(request, version)


@pytest.mark.parametrize("version", range(5))
def test_lists_what_is_served(version: int) -> None:
    """NET-98."""
    response = ask(Bench(broker_handlers(lone_node())), version)
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == ErrorCode.NONE
    ranges = [(each.api_key, each.min_version, each.max_version) for each in response.api_keys]
    assert ranges == [(3, 0, 13), (18, 0, 4), (60, 0, 2)]


def test_golden_request_and_answer_of_version_0() -> None:
    """NET-89, from the first byte of the size to the last of the list."""
    answer = Bench([]).serve(bytes.fromhex("0012 0000 00000001 0001 74"))
    assert answer.sent == bytes.fromhex("00000010 00000001 0000 00000001 0012 0000 0004")


def test_golden_answer_of_version_3_has_the_old_header() -> None:
    """NET-98: a flexible body behind a header without tagged fields, or no client could read it."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = Bench([]).serve(payload(request, 3, 1))
    assert answer.sent == bytes.fromhex("00000013 00000001 0000 02 0012 0000 0004 00 00000000 00")


@pytest.mark.parametrize("version", ["0005", "0063", "7fff", "ffff"])
def test_unknown_version_is_answered_in_version_0(version: str) -> None:
    """NET-99, NET-89: the body is not looked at, the connection stays, the range is told."""
    answer = Bench([]).serve(bytes.fromhex(f"0012 {version} 00000004 dead beef"))
    assert answer.outcome == "sent"
    assert answer.sent == bytes.fromhex("00000010 00000004 0023 00000001 0012 0000 0004")


def test_client_software_is_kept_on_the_channel() -> None:
    """NET-100."""
    bench = Bench([])
    ask(bench, 3, "apache-kafka-java", "4.3.1")
    assert bench.channel.client_software_name == "apache-kafka-java"
    assert bench.channel.client_software_version == "4.3.1"


def test_older_versions_carry_no_client_software() -> None:
    bench = Bench([])
    bench.ask(ApiVersionsRequest(), 2)
    assert bench.channel.client_software_name == "unknown"


@pytest.mark.parametrize("wrong", ["", "-a", "a-", ".", "a b", "ä", "a\n", "a" * 200 + "!"])
def test_invalid_client_software(wrong: str) -> None:
    """NET-100: either field; nothing is stored and nothing listed."""
    for name, software in ((wrong, "1.0"), ("kraftpy", wrong)):
        bench = Bench([])
        response = ask(bench, 4, name, software)
        assert isinstance(response, ApiVersionsResponse)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert response.api_keys == []
        assert bench.channel.client_software_name == "unknown"


@pytest.mark.parametrize("right", ["a", "7", "a-b.c", "A.", "x" * 500])
def test_valid_client_software(right: str) -> None:
    response = ask(Bench([]), 4, right.rstrip("."))
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == ErrorCode.NONE


def test_produce_is_said_to_start_at_0() -> None:
    """librdkafka before 2.11.1 compresses only then."""
    response = ask(Bench([Produce()]), 0)
    assert isinstance(response, ApiVersionsResponse)
    assert (response.api_keys[0].api_key, response.api_keys[0].min_version) == (0, 0)


def test_features_with_level_0_are_for_version_4() -> None:
    """KAFKA-17011."""
    for version, expected in (
        (3, ["metadata.version"]),
        (4, ["metadata.version", "group.version"]),
    ):
        response = ask(Bench([], ThreeFeatures()), version)
        assert isinstance(response, ApiVersionsResponse)
        assert [feature.name for feature in response.supported_features] == expected
        [finalized] = response.finalized_features
        assert (finalized.name, finalized.max_version_level) == ("metadata.version", 29)
        assert response.finalized_features_epoch == 4711
