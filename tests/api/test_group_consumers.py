"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, from bytes to bytes."""

from __future__ import annotations

from typing import Any

import pytest
from api.group_rig import GroupRig
from api.image_cluster import image_of, topic_id

from kraftpy.api.access import OPEN_ACCESS
from kraftpy.metadata import records as r
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.features import GROUP_VERSION
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kraftpy.protocol.schema.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from kraftpy.security.acl_terms import ResourceType


def rig_with_topics(*, is_enabled: bool = True, is_loaded: bool = True) -> GroupRig:
    rig = GroupRig(is_loaded=is_loaded)
    image = rig.cluster.image
    if is_enabled:
        image = image_of(r.FeatureLevelRecord(GROUP_VERSION, 1), base=image)
    rig.runtime.publish(ImageChanges(EMPTY_IMAGE, image), image)
    return rig


def join(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        **{
            "group_id": "g",
            "member_id": "m",
            "rebalance_timeout_ms": 1000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
            **fields,
        }
    )


def described(
    rig: GroupRig, *group_ids: str, version: int = 1, **fields: Any
) -> list[DescribedGroup]:
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), **fields)
    groups: list[DescribedGroup] = rig.ask(request, version).groups
    return groups


@pytest.mark.parametrize("version", [0, 1])
def test_joining(version: int) -> None:
    rig = rig_with_topics()
    answer: ConsumerGroupHeartbeatResponse = rig.ask(join(), version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.member_id, answer.member_epoch) == ("m", 1)
    assert answer.heartbeat_interval_ms == 5000
    assert answer.assignment is not None
    [partitions] = answer.assignment.topic_partitions
    assert (partitions.topic_id, partitions.partitions) == (topic_id("t"), [0, 1, 2])


def test_the_answer_comes_when_it_is_committed() -> None:
    rig = rig_with_topics()
    pending = rig.send(join(), 1)
    assert not pending.is_answered
    rig.commit()
    assert pending.response.member_epoch == 1


def test_no_assignment_is_null() -> None:
    rig = rig_with_topics()
    rig.ask(join(), 1)
    stay = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    assert rig.ask(stay, 1).assignment is None


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (join(group_id=""), ErrorCode.INVALID_REQUEST),
        (join(member_id=""), ErrorCode.INVALID_REQUEST),
        (join(server_assignor="sticky"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (join(member_epoch=3), ErrorCode.GROUP_ID_NOT_FOUND),
        (join(subscribed_topic_regex="("), ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_refusals_have_a_message(request_: ConsumerGroupHeartbeatRequest, code: ErrorCode) -> None:
    answer = rig_with_topics().ask(request_, 1)
    assert answer.error_code == code
    assert answer.error_message
    assert answer.assignment is None


def test_a_protocol_that_is_not_enabled() -> None:
    rig = rig_with_topics(is_enabled=False)
    assert rig.ask(join(), 1).error_code == ErrorCode.UNSUPPORTED_VERSION
    [group] = described(rig, "g")
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_coordinator_that_is_not_ready() -> None:
    rig = rig_with_topics(is_loaded=False)
    assert rig.ask(join(), 1).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    [group] = described(rig, "g")
    assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.runtime.close()
    assert rig.ask(join(), 1).error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", [0, 1])
def test_describing(version: int) -> None:
    """CGP-57: several groups, on several partitions."""
    rig = rig_with_topics()
    rig.ask(join(), 1)
    first, second, third = described(rig, "g", "other", "", version=version)
    assert (first.group_id, first.error_code, first.group_state) == ("g", 0, "Stable")
    assert (first.group_epoch, first.assignment_epoch, first.assignor_name) == (1, 1, "uniform")
    [member] = first.members
    assert (member.member_id, member.client_id) == ("m", "test")
    assert member.client_host.startswith("/")
    assert member.member_type == (1 if version else -1)
    [partitions] = member.assignment.topic_partitions
    assert (partitions.topic_name, partitions.partitions) == ("t", [0, 1, 2])
    assert member.target_assignment.topic_partitions == member.assignment.topic_partitions
    assert (second.group_id, second.error_code) == ("other", ErrorCode.GROUP_ID_NOT_FOUND)
    assert second.error_message
    assert third.error_code == ErrorCode.INVALID_GROUP_ID


def test_operations_only_if_asked_for() -> None:
    rig = rig_with_topics()
    rig.ask(join(), 1)
    [plain] = described(rig, "g")
    assert plain.authorized_operations == -(2**31)
    first, second = described(rig, "g", "other", include_authorized_operations=True)
    assert first.authorized_operations == OPEN_ACCESS.operations(ResourceType.GROUP)
    assert second.authorized_operations == -(2**31)
