"""ListGroups, DescribeGroups and DeleteGroups as clients of every version see them."""

from __future__ import annotations

import pytest
from api.group_rig import GroupRig
from api.test_group_members import join_request, stable, versions
from api.test_group_offsets import commit_request

from kraftpy.api.access import OPEN_ACCESS
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k15_describe_groups import DescribeGroupsRequest
from kraftpy.protocol.schema.k16_list_groups import ListGroupsRequest
from kraftpy.protocol.schema.k42_delete_groups import DeleteGroupsRequest
from kraftpy.security.acl_terms import ResourceType

NOT_ASKED = -(2**31)


def rig_with_groups() -> GroupRig:
    """A stable group, and one that has nothing but offsets."""
    rig = GroupRig()
    stable(rig)
    assert rig.partition_of("g") != rig.partition_of("e")
    rig.ask(commit_request(9, "e", ("t", 0, 1)), 9)
    return rig


@pytest.mark.parametrize("version", versions(16))
def test_a_list(version: int) -> None:
    """GRP-46"""
    answer = rig_with_groups().ask(ListGroupsRequest(), version)
    assert answer.error_code == 0
    found = {
        each.group_id: (each.protocol_type, each.group_state, each.group_type)
        for each in answer.groups
    }
    state, kind = version >= 4, version >= 5
    assert found == {
        "g": ("consumer", "Stable" if state else "", "classic" if kind else ""),
        "e": ("", "Empty" if state else "", "classic" if kind else ""),
    }


def test_a_list_with_filters() -> None:
    """CGP-58"""
    rig = rig_with_groups()

    def found(states: list[str], types: list[str]) -> list[str]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        return [each.group_id for each in rig.ask(request, 5).groups]

    assert found(["stable"], []) == ["g"]
    assert found(["EMPTY"], ["classic"]) == ["e"]
    assert found([], ["Consumer"]) == []


def test_a_list_while_some_are_loaded() -> None:
    """GRP-6: those that are there, and an error. Those that are elsewhere are none of ours."""
    rig = rig_with_groups()
    rig.runtime.resigned(rig.partition_of("e"), 1)
    answer = rig.ask(ListGroupsRequest(), 4)
    assert (answer.error_code, [each.group_id for each in answer.groups]) == (0, ["g"])
    rig.runtime._load = lambda shard: None
    rig.runtime.elected(rig.partition_of("e"), 2, rig.logs[rig.partition_of("e")])
    answer = rig.ask(ListGroupsRequest(), 4)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [each.group_id for each in answer.groups] == ["g"]


@pytest.mark.parametrize("version", versions(15))
def test_descriptions(version: int) -> None:
    """GRP-47"""
    rig = rig_with_groups()
    request = DescribeGroupsRequest(groups=["g", "e", "none"])
    groups = rig.ask(request, version).groups
    assert [(each.group_id, each.group_state) for each in groups] == [
        ("g", "Stable"),
        ("e", "Empty"),
        ("none", "Dead"),
    ]
    not_found = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
    assert [each.error_code for each in groups] == [0, 0, not_found]
    assert groups[2].error_message == ("Group none not found." if version >= 6 else None)
    (member,) = groups[0].members
    assert (groups[0].protocol_type, groups[0].protocol_data) == ("consumer", "range")
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"meta", b"mine")
    assert [each.authorized_operations for each in groups] == [NOT_ASKED] * 3


def test_what_may_be_done() -> None:
    rig = rig_with_groups()
    request = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=True)
    groups = rig.ask(request, 6).groups
    assert [each.authorized_operations for each in groups] == [
        OPEN_ACCESS.operations(ResourceType.GROUP),
        NOT_ASKED,
    ]
    assert OPEN_ACCESS.operations(ResourceType.GROUP) == 0b110101001000


@pytest.mark.parametrize("version", [5, 6])
def test_descriptions_of_what_is_elsewhere(version: int) -> None:
    """GRP-5"""
    rig = rig_with_groups()
    rig.runtime.resigned(rig.partition_of("e"), 1)
    groups = rig.ask(DescribeGroupsRequest(groups=["e", "g"]), version).groups
    assert [each.error_code for each in groups] == [ErrorCode.NOT_COORDINATOR, 0]
    assert bool(groups[0].error_message) == (version >= 6)


@pytest.mark.parametrize("version", versions(42))
def test_deletion(version: int) -> None:
    """GRP-48: each for itself, each answered once."""
    rig = rig_with_groups()
    rig.ask(commit_request(9, "d", ("t", 0, 1)), 9)
    rig.runtime.resigned(rig.partition_of("d"), 1)
    assert rig.partition_of("d") not in (rig.partition_of("g"), rig.partition_of("e"))
    request = DeleteGroupsRequest(groups_names=["g", "e", "none", "e", "d"])
    results = rig.ask(request, version).results
    assert [(each.group_id, each.error_code) for each in results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("e", 0),
        ("none", _of_none(rig)),
        ("d", ErrorCode.NOT_COORDINATOR),
    ]
    assert [each.group_id for each in rig.ask(ListGroupsRequest(), 0).groups] == ["g"]


def _of_none(rig: GroupRig) -> ErrorCode:
    is_elsewhere = rig.partition_of("none") == rig.partition_of("d")
    return ErrorCode.NOT_COORDINATOR if is_elsewhere else ErrorCode.GROUP_ID_NOT_FOUND


def test_deletion_of_nothing() -> None:
    assert GroupRig().ask(DeleteGroupsRequest(), 2).results == []


def test_a_group_that_is_being_joined_is_listed() -> None:
    rig = GroupRig()
    rig.ask(join_request(9), 9)
    (group,) = rig.ask(ListGroupsRequest(), 5).groups
    assert (group.group_id, group.group_state) == ("g", "Empty")
