"""ListConfigResources: which configurations there are to describe."""

from __future__ import annotations

import pytest
from api.image_cluster import bench_of, broker, configs, topic, view_of

from kraftpy.api.k74_list_config_resources import ListConfigResourcesHandler
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k74_list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def ask(*types: int, version: int = 1) -> ListConfigResourcesResponse:
    cluster = view_of(
        broker(1),
        broker(2),
        broker(3, fenced=True),
        broker(4, "INSIDE"),
        *topic("b", (1,)),
        *topic("a", (1,)),
        *configs(
            (TOPIC, "a", "retention.ms", "1"),
            (BROKER, "", "log.cleaner.threads", "2"),
            (CLIENT_METRICS, "cpu", "interval.ms", "1000"),
            (GROUP, "readers", "consumer.session.timeout.ms", "46000"),
        ),
    )
    request = ListConfigResourcesRequest(resource_types=list(types))
    response = bench_of(ListConfigResourcesHandler(cluster)).ask(request, version)
    assert isinstance(response, ListConfigResourcesResponse)
    return response


def named(response: ListConfigResourcesResponse) -> list[tuple[int, str]]:
    assert response.error_code == ErrorCode.NONE
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


def test_everything_if_no_type_is_named() -> None:
    assert named(ask()) == [
        (TOPIC, "a"),
        (TOPIC, "b"),
        (BROKER, "1"),
        (BROKER, "2"),
        (LOGGER, "1"),
        (LOGGER, "2"),
        (CLIENT_METRICS, "cpu"),
        (GROUP, "readers"),
    ]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([GROUP], [(GROUP, "readers")]),
        ([GROUP, TOPIC, GROUP], [(GROUP, "readers"), (TOPIC, "a"), (TOPIC, "b")]),
    ],
)
def test_the_types_that_are_asked_for_once_each(
    types: list[int], expected: list[tuple[int, str]]
) -> None:
    assert named(ask(*types)) == expected


def test_version_0_knows_client_metrics_only() -> None:
    assert named(ask(version=0)) == [(CLIENT_METRICS, "cpu")]


def test_a_type_that_is_not_known() -> None:
    response = ask(TOPIC, 64)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response.config_resources == []
