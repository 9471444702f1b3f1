"""Client quotas: which entities and values there are, and who is found by which question."""

from __future__ import annotations

from math import inf, nan

import pytest
from small_cluster import CALLER, SmallCluster

from kraftpy.metadata.controller.quotas import QuotaControl
from kraftpy.metadata.describing import describe_client_quotas
from kraftpy.metadata.records import ClientQuotaRecord, MetadataRecord, QuotaEntity
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k48_describe_client_quotas as k48
from kraftpy.protocol.schema import k49_alter_client_quotas as k49

Parts = list[tuple[str, str | None]]
Operations = list[tuple[str, float | None]]

USER: Parts = [("user", "ann")]
BYTES = "producer_byte_rate"


def entry(parts: Parts, operations: Operations) -> k49.RequestEntryData:
    return k49.RequestEntryData(
        entity=[k49.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[
            k49.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in operations
        ],
    )


def alter(
    cluster: SmallCluster, *entries: k49.RequestEntryData, validate_only: bool = False
) -> tuple[list[ErrorCode], tuple[MetadataRecord, ...]]:
    request = k49.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    result = QuotaControl(cluster.context).alter_client_quotas(request, CALLER)
    assert encode_bytes(result.answer, 1)
    assert [each.entity for each in result.answer.entries] == [each.entity for each in entries]
    cluster.apply(result.records)
    return [ErrorCode(each.error_code) for each in result.answer.entries], result.records


REFUSED: list[tuple[Parts, Operations]] = [
    ([], [(BYTES, 1.0)]),
    ([("user", "a"), ("user", "b")], [(BYTES, 1.0)]),
    ([("group", "a")], [(BYTES, 1.0)]),
    ([("user", "")], [(BYTES, 1.0)]),
    ([("user", "a"), ("client-id", "")], [(BYTES, 1.0)]),
    ([("ip", "10.0.0.1"), ("user", "a")], [("connection_creation_rate", 1.0)]),
    ([("ip", "10.0.0.1"), ("client-id", "a")], [("connection_creation_rate", 1.0)]),
    ([("ip", "not an address")], [("connection_creation_rate", 1.0)]),
    ([("ip", "10.0.0.256")], [("connection_creation_rate", 1.0)]),
    ([("ip", "10.0.0.1")], [(BYTES, 1.0)]),
    (USER, [("connection_creation_rate", 1.0)]),
    (USER, [("no_such_key", 1.0)]),
    (USER, [(BYTES, 0.0)]),
    (USER, [(BYTES, -1.0)]),
    (USER, [(BYTES, nan)]),
    (USER, [("request_percentage", inf)]),
    (USER, [(BYTES, 1.5)]),
    (USER, [(BYTES, float(1 << 64))]),
    ([("ip", None)], [("connection_creation_rate", float(1 << 31))]),
    (USER, [(BYTES, 1.0), (BYTES, 2.0)]),
    (USER, [(BYTES, 1.0), ("request_percentage", -1.0)]),
]


@pytest.mark.parametrize(("parts", "operations"), REFUSED)
def test_each_refusal(parts: Parts, operations: Operations) -> None:
    cluster = SmallCluster()
    other = entry([("user", "other")], [(BYTES, 1.0)])
    codes, records = alter(cluster, entry(parts, operations), other)
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert len(records) == 1


@pytest.mark.parametrize(
    ("parts", "operations"),
    [
        (USER, [(BYTES, 1.0), ("consumer_byte_rate", 1e12), ("request_percentage", 0.5)]),
        ([("user", None)], [("controller_mutation_rate", 0.1)]),
        ([("client-id", "c"), ("user", "ann")], [(BYTES, 1.0)]),
        ([("user", None), ("client-id", None)], [(BYTES, 1.0)]),
        ([("ip", "10.0.0.1")], [("connection_creation_rate", float((1 << 31) - 1))]),
        ([("ip", "::1")], [("connection_creation_rate", 1.0)]),
        ([("ip", None)], [("connection_creation_rate", 1.0)]),
    ],
)
def test_what_is_stored_comes_back(parts: Parts, operations: Operations) -> None:
    cluster = SmallCluster()
    assert alter(cluster, entry(parts, operations), validate_only=True)[1] == ()
    codes, records = alter(cluster, entry(parts, operations))
    assert (codes, len(records)) == ([ErrorCode.NONE], len(operations))
    assert alter(cluster, entry(parts, operations)) == ([ErrorCode.NONE], ())
    ((_, quotas),) = cluster.image.client_quotas.items()
    assert sorted(quotas.entity, key=str) == sorted(map(QuotaEntity._make, parts), key=str)
    assert quotas.limits == dict(operations)


def test_removing() -> None:
    cluster = SmallCluster()
    alter(cluster, entry(USER, [(BYTES, 5.0)]))
    codes, records = alter(cluster, entry(USER, [(BYTES, None), ("request_percentage", None)]))
    assert codes == [ErrorCode.NONE]
    assert records == (ClientQuotaRecord((QuotaEntity("user", "ann"),), BYTES, remove=True),)
    assert len(cluster.image.client_quotas) == 0


def test_an_entity_named_twice_is_refused_however_its_parts_are_ordered() -> None:
    cluster = SmallCluster()
    one = entry([("user", "a"), ("client-id", "b")], [(BYTES, 1.0)])
    other = entry([("client-id", "b"), ("user", "a")], [(BYTES, 1.0)])
    codes, records = alter(cluster, one, other)
    assert (codes, records) == ([ErrorCode.INVALID_REQUEST] * 2, ())


# Listing.

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Question = list[tuple[str, int, str | None]]


def described(
    cluster: SmallCluster, question: Question, *, strict: bool
) -> list[dict[str, str | None]] | ErrorCode:
    request = k48.DescribeClientQuotasRequest(
        components=[
            k48.ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in question
        ],
        strict=strict,
    )
    answer = describe_client_quotas(cluster.image, request)
    assert encode_bytes(answer, 1)
    if answer.error_code:
        assert answer.entries is None
        return ErrorCode(answer.error_code)
    found = []
    for each in answer.entries or ():
        assert [(value.key, value.value) for value in each.values] == [(BYTES, 1.0)]
        found.append({part.entity_type: part.entity_name for part in each.entity})
    return found


ANN = {"user": "ann"}
ANN_C = {"client-id": "c", "user": "ann"}
EVERYBODY = {"user": None}
C = {"client-id": "c"}


@pytest.mark.parametrize(
    ("question", "strict", "found"),
    [
        ([], False, [ANN, ANN_C, C, EVERYBODY]),
        ([], True, []),
        ([("user", EXACT, "ann")], True, [ANN]),
        ([("user", EXACT, "ann")], False, [ANN, ANN_C]),
        ([("user", DEFAULT, None)], False, [EVERYBODY]),
        ([("user", SPECIFIED, None)], True, [ANN, EVERYBODY]),
        ([("user", SPECIFIED, None)], False, [ANN, ANN_C, EVERYBODY]),
        ([("user", SPECIFIED, None), ("client-id", EXACT, "c")], True, [ANN_C]),
        ([("user", EXACT, "bob")], False, []),
        ([("ip", SPECIFIED, None)], False, []),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], False, ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "a")], False, ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], False, ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], False, ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], False, ErrorCode.INVALID_REQUEST),
    ],
)
def test_listing(question: Question, strict: bool, found: object) -> None:
    cluster = SmallCluster()
    entities: list[Parts] = [list(each.items()) for each in (ANN, ANN_C, EVERYBODY, C)]
    alter(cluster, *(entry(parts, [(BYTES, 1.0)]) for parts in entities))
    answer = described(cluster, question, strict=strict)
    if isinstance(answer, list):
        answer.sort(key=lambda each: sorted(each.items(), key=str).__repr__())
        assert isinstance(found, list)
        found = sorted(found, key=lambda each: sorted(each.items(), key=str).__repr__())
    assert answer == found
