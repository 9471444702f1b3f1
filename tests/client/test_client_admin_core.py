"""Operations of the admin client: asked again while that can help, given up when it can't."""

from __future__ import annotations

from random import Random

import pytest
from client.fake_cluster import FakeCluster

from kraftpy.client.admin_core import AdminCore
from kraftpy.client.admin_operations import NewTopic, create_topics
from kraftpy.client.calls import Call
from kraftpy.client.errors import ConnectionLost, Evidence, KafkaError, UnsupportedVersion
from kraftpy.client.settings import AdminSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k03_metadata import MetadataRequest
from kraftpy.protocol.schema.k19_create_topics import CreatableTopicResult, CreateTopicsResponse

TIMEOUT_MS = 5_000


class Desk:
    """An admin core whose requests the test answers, one after the other."""

    def __init__(self) -> None:
        self.core = AdminCore(
            [("node1", 9092)], AdminSettings(default_api_timeout_ms=TIMEOUT_MS), Random(1)
        )
        self.cluster = FakeCluster()
        self.now_ms = 0
        self.run = self.core.start(create_topics([NewTopic("new")]), self.now_ms)

    def next_call(self) -> Call:
        for _ in range(1_000):
            calls = self.core.calls(self.now_ms)
            for call in calls:
                if not isinstance(call.message, MetadataRequest):
                    return call
                call.answered(self.cluster.handle(1, call.message), self.now_ms)
            if calls:
                continue
            wake_at_ms = self.core.wake_at_ms()
            assert wake_at_ms is not None
            self.now_ms = max(self.now_ms, wake_at_ms)
        raise AssertionError("nothing is asked")

    def answer(self, call: Call, code: ErrorCode) -> None:
        results = [CreatableTopicResult(name="new", error_code=code, error_message=None)]
        call.answered(CreateTopicsResponse(topics=results), self.now_ms)


def test_a_refusal_that_may_pass_is_asked_again() -> None:
    desk = Desk()
    desk.answer(desk.next_call(), ErrorCode.NOT_CONTROLLER)
    assert not desk.run.is_done
    before_ms = desk.now_ms
    desk.answer(desk.next_call(), ErrorCode.NONE)
    assert desk.now_ms - before_ms >= 80
    assert desk.run.result() == {"new": None}


def test_a_lost_connection_is_made_up_for_at_another_node() -> None:
    desk = Desk()
    first = desk.next_call()
    first.failed(ConnectionLost(Evidence.BROKEN, "by the test"), desk.now_ms)
    second = desk.next_call()
    assert second.address != first.address
    desk.answer(second, ErrorCode.NONE)
    assert desk.run.is_done


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_a_refusal_that_stays_is_the_outcome(code: ErrorCode) -> None:
    desk = Desk()
    desk.answer(desk.next_call(), code)
    failure = desk.run.result()["new"]
    assert failure is not None
    assert failure.code == code


def test_time_is_over_in_the_end() -> None:
    desk = Desk()
    desk.answer(desk.next_call(), ErrorCode.NOT_CONTROLLER)
    late = desk.next_call()
    desk.now_ms = TIMEOUT_MS - 1
    desk.core.calls(desk.now_ms)
    assert not desk.run.is_done
    desk.now_ms = TIMEOUT_MS
    desk.core.calls(desk.now_ms)
    with pytest.raises(KafkaError, match="NOT_CONTROLLER") as raised:
        desk.run.result()
    assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT
    desk.answer(late, ErrorCode.NONE)
    assert desk.run.failure is raised.value


def test_what_no_node_serves_fails_at_once() -> None:
    desk = Desk()
    desk.next_call().failed(UnsupportedVersion("by the test"), desk.now_ms)
    with pytest.raises(UnsupportedVersion):
        desk.run.result()
