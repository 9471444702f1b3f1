"""FindCoordinator while there are no coordinators: every version says so, for every key."""

from __future__ import annotations

import pytest
from api.recording import Bench

from kraftpy.api.k10_find_coordinator import FindCoordinatorHandler
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

VERSIONS = range(API[10].min_version, API[10].max_version + 1)


def ask(version: int, key_type: int = 0) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key_type=key_type)
    if version < 4:
        request.key = "g"
    else:
        request.coordinator_keys = ["g", "h"]
    answer = Bench([FindCoordinatorHandler()]).ask(request, version)
    assert isinstance(answer, FindCoordinatorResponse)
    return answer


@pytest.mark.parametrize("version", VERSIONS)
def test_nobody_is_there_in_every_version(version: int) -> None:
    answer = ask(version)
    if version < 4:
        assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    else:
        assert [(each.key, each.error_code, each.node_id) for each in answer.coordinators] == [
            (key, ErrorCode.COORDINATOR_NOT_AVAILABLE, -1) for key in ("g", "h")
        ]


def test_a_kind_of_key_that_nobody_knows() -> None:
    assert ask(3, 7).error_code == ErrorCode.INVALID_REQUEST
    assert [each.error_code for each in ask(6, 7).coordinators] == [ErrorCode.INVALID_REQUEST] * 2
