"""Access control entries: creating, deleting and listing them by filters."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from small_cluster import CALLER, SmallCluster

from kraftpy.metadata.controller import acls
from kraftpy.metadata.controller.acls import AclControl
from kraftpy.metadata.controller.result import ControllerError
from kraftpy.metadata.describing import describe_acls
from kraftpy.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.protocol.schema import k29_describe_acls as k29
from kraftpy.protocol.schema import k30_create_acls as k30
from kraftpy.protocol.schema import k31_delete_acls as k31

TOPIC, CLUSTER = 2, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3


def creation(name: str = "t", pattern: int = LITERAL, **changes: Any) -> k30.AclCreation:
    fields: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": "User:ann",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return k30.AclCreation(**(fields | changes))


def create(cluster: SmallCluster, *creations: k30.AclCreation) -> list[ErrorCode]:
    request = k30.CreateAclsRequest(creations=list(creations))
    result = AclControl(cluster.context, Random(1)).create_acls(request, CALLER)
    assert result.is_atomic
    answer = cluster.carry_out(result)
    assert encode_bytes(answer, 3)
    return [ErrorCode(each.error_code) for each in answer.results]


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 8},
        {"resource_type": -1},
        {"resource_pattern_type": 0},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": MATCH},
        {"resource_pattern_type": 5},
        {"operation": 0},
        {"operation": 1},
        {"operation": 16},
        {"permission_type": 0},
        {"permission_type": 1},
        {"permission_type": 4},
        {"resource_name": ""},
        {"resource_type": CLUSTER, "resource_name": "other"},
        {"principal": "ann"},
        {"principal": ""},
    ],
)
def test_each_refusal(changes: dict[str, Any]) -> None:
    cluster = SmallCluster()
    codes = create(cluster, creation(**changes), creation("good"))
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert [each.resource_name for each in cluster.image.access_control_entries.values()] == [
        "good"
    ]


def test_duplicates_are_success_without_a_record() -> None:
    cluster = SmallCluster()
    assert (
        create(cluster, creation(), creation(), creation(operation=WRITE)) == [ErrorCode.NONE] * 3
    )
    before = cluster.image
    assert len(before.access_control_entries) == 2
    assert create(cluster, creation()) == [ErrorCode.NONE]
    assert cluster.image is before


def test_the_clusters_own_resource() -> None:
    codes = create(SmallCluster(), creation("kafka-cluster", resource_type=CLUSTER))
    assert codes == [ErrorCode.NONE]


ENTRIES = [
    creation("t"),
    creation("t", PREFIXED),
    creation("topic"),
    creation("to", PREFIXED, principal="User:bob"),
    creation("*", host="10.0.0.1"),
    creation("t", operation=WRITE, permission_type=DENY),
    creation("kafka-cluster", resource_type=CLUSTER),
]

EVERYTHING: dict[str, Any] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}

# Which of ENTRIES, by number, each filter means.
FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0, 1, 2, 3, 4, 5, 6]),
    ({"pattern_type_filter": MATCH}, [0, 1, 2, 3, 4, 5, 6]),
    ({"pattern_type_filter": LITERAL}, [0, 2, 4, 5, 6]),
    ({"pattern_type_filter": PREFIXED}, [1, 3]),
    ({"resource_name_filter": "t"}, [0, 1, 5]),
    ({"resource_name_filter": "t", "pattern_type_filter": LITERAL}, [0, 5]),
    ({"resource_name_filter": "t", "pattern_type_filter": PREFIXED}, [1]),
    ({"resource_name_filter": "topic", "pattern_type_filter": MATCH}, [1, 2, 3, 4]),
    ({"resource_name_filter": "t", "pattern_type_filter": MATCH}, [0, 1, 4, 5]),
    ({"resource_name_filter": "*", "pattern_type_filter": LITERAL}, [4]),
    ({"resource_type_filter": TOPIC}, [0, 1, 2, 3, 4, 5]),
    ({"resource_type_filter": CLUSTER}, [6]),
    ({"principal_filter": "User:bob"}, [3]),
    ({"host_filter": "10.0.0.1"}, [4]),
    ({"operation": WRITE}, [5]),
    ({"permission_type": DENY}, [5]),
    ({"principal_filter": "User:nobody"}, []),
]


def numbers(entries: list[AccessControlEntryRecord]) -> list[int]:
    wanted = [
        (each.resource_type, each.resource_name, each.resource_pattern_type, each.principal,
         each.host, each.operation, each.permission_type)
        for each in ENTRIES
    ]  # fmt: skip
    return sorted(
        wanted.index((each.resource_type, each.resource_name, each.pattern_type, each.principal,
                      each.host, each.operation, each.permission_type))
        for each in entries
    )  # fmt: skip


@pytest.mark.parametrize(("changes", "meant"), FILTERS)
def test_deleting_by_filter(changes: dict[str, Any], meant: list[int]) -> None:
    cluster = SmallCluster()
    create(cluster, *ENTRIES)
    request = k31.DeleteAclsRequest(filters=[k31.DeleteAclsFilter(**(EVERYTHING | changes))])
    result = AclControl(cluster.context, Random(1)).delete_acls(request, CALLER)
    assert result.is_atomic
    assert encode_bytes(result.answer, 3)
    (filter_result,) = result.answer.filter_results
    doomed = [
        cluster.image.access_control_entries[record.id]
        for record in result.records
        if isinstance(record, RemoveAccessControlEntryRecord)
    ]
    assert numbers(doomed) == meant
    assert len(filter_result.matching_acls) == len(meant)
    cluster.carry_out(result)
    left = list(cluster.image.access_control_entries.values())
    assert numbers(left) == [each for each in range(len(ENTRIES)) if each not in meant]
    again = AclControl(cluster.context, Random(1)).delete_acls(request, CALLER)
    assert again.records == ()


@pytest.mark.parametrize(("changes", "meant"), FILTERS)
def test_listing_by_filter(changes: dict[str, Any], meant: list[int]) -> None:
    cluster = SmallCluster()
    create(cluster, *ENTRIES)
    answer = describe_acls(cluster.image, k29.DescribeAclsRequest(**(EVERYTHING | changes)))
    assert encode_bytes(answer, 3)
    listed = [
        AccessControlEntryRecord(
            ZERO_UUID, resource.resource_type, resource.resource_name, resource.pattern_type,
            acl.principal, acl.host, acl.operation, acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    ]  # fmt: skip
    assert numbers(listed) == meant
    patterns = [(each.resource_type, each.resource_name, each.pattern_type) for each in listed]
    assert len(answer.resources) == len(set(patterns))


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type_filter": 0},
        {"resource_type_filter": 8},
        {"pattern_type_filter": 0},
        {"pattern_type_filter": 5},
        {"operation": 0},
        {"operation": 16},
        {"permission_type": 0},
        {"permission_type": 4},
    ],
)
def test_filters_with_unknown_numbers(changes: dict[str, Any]) -> None:
    cluster = SmallCluster()
    create(cluster, *ENTRIES)
    bad, good = EVERYTHING | changes, EVERYTHING | {"host_filter": "10.0.0.1"}
    request = k31.DeleteAclsRequest(
        filters=[k31.DeleteAclsFilter(**bad), k31.DeleteAclsFilter(**good)]
    )
    result = AclControl(cluster.context, Random(1)).delete_acls(request, CALLER)
    codes = [each.error_code for each in result.answer.filter_results]
    assert codes == [ErrorCode.INVALID_REQUEST, 0]
    assert len(result.records) == 1
    answer = describe_acls(cluster.image, k29.DescribeAclsRequest(**bad))
    assert (answer.error_code, answer.resources) == (ErrorCode.INVALID_REQUEST, [])


def test_an_entry_that_two_filters_mean_is_removed_once() -> None:
    cluster = SmallCluster()
    create(cluster, *ENTRIES)
    wanted = k31.DeleteAclsFilter(**EVERYTHING)
    request = k31.DeleteAclsRequest(filters=[wanted, wanted])
    result = AclControl(cluster.context, Random(1)).delete_acls(request, CALLER)
    assert [len(each.matching_acls) for each in result.answer.filter_results] == [7, 7]
    assert len(result.records) == 7
    cluster.carry_out(result)
    assert len(cluster.image.access_control_entries) == 0


def test_filters_that_list_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many filters that mean the same make a large answer out of few records."""
    monkeypatch.setattr(acls, "MAX_RECORDS_PER_REQUEST", 4)
    cluster = SmallCluster()
    create(cluster, creation("a"), creation("b"))
    control = AclControl(cluster.context, Random(1))
    everything = k31.DeleteAclsFilter(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    result = control.delete_acls(k31.DeleteAclsRequest(filters=[everything] * 2), CALLER)
    assert len(result.records) == 2
    with pytest.raises(ControllerError) as caught:
        control.delete_acls(k31.DeleteAclsRequest(filters=[everything] * 3), CALLER)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_ids_are_never_given_twice() -> None:
    """The random source repeats itself; the ids in use are passed over."""
    cluster = SmallCluster()
    create(cluster, creation("a"))
    create(cluster, creation("b"), creation("c"))
    (first, second, third) = cluster.image.access_control_entries.values()
    assert len({first.id, second.id, third.id}) == 3
    assert replace(first, resource_name="x", id=second.id) == replace(second, resource_name="x")
