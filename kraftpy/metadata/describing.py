"""What the cluster's metadata says about quotas, access control and SCRAM users: pure reads.

Every broker answers these from its own image, with nothing but the image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from kraftpy.metadata.access_control import AclFilter
from kraftpy.metadata.image import EntityQuotas, MetadataImage
from kraftpy.metadata.records import QUOTA_CLIENT_ID, QUOTA_IP, QUOTA_USER
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k29_describe_acls as k29
from kraftpy.protocol.schema import k48_describe_client_quotas as k48
from kraftpy.protocol.schema import k50_describe_user_scram_credentials as k50

__all__ = ["describe_acls", "describe_client_quotas", "describe_user_scram_credentials"]

_QUOTA_TYPES: Final = (QUOTA_USER, QUOTA_CLIENT_ID, QUOTA_IP)

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_SPECIFIED: Final = 2

_NameTest: TypeAlias = Callable[[str | None], bool]


def describe_acls(
    image: MetadataImage, request: k29.DescribeAclsRequest
) -> k29.DescribeAclsResponse:
    """The entries that a filter means, by resource."""
    acl_filter = AclFilter(
        resource_type=request.resource_type_filter,
        resource_name=request.resource_name_filter,
        pattern_type=request.pattern_type_filter,
        principal=request.principal_filter,
        host=request.host_filter,
        operation=request.operation,
        permission_type=request.permission_type,
    )
    unknown = acl_filter.unknown_part()
    if unknown is not None:
        return k29.DescribeAclsResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=f"there is no {unknown}"
        )
    resources: dict[tuple[int, str, int], k29.DescribeAclsResource] = {}
    for entry in acl_filter.matching(image):
        pattern = (entry.resource_type, entry.resource_name, entry.pattern_type)
        if pattern not in resources:
            resources[pattern] = k29.DescribeAclsResource(
                resource_type=entry.resource_type,
                resource_name=entry.resource_name,
                pattern_type=entry.pattern_type,
                acls=[],
            )
        resources[pattern].acls.append(
            k29.AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
        )
    ordered = [resources[pattern] for pattern in sorted(resources)]
    return k29.DescribeAclsResponse(error_message=None, resources=ordered)


def describe_client_quotas(
    image: MetadataImage, request: k48.DescribeClientQuotasRequest
) -> k48.DescribeClientQuotasResponse:
    """The quotas of entities that have every part asked for; strictly, no other part."""
    tests: dict[str, _NameTest] = {}
    for component in request.components:
        reason = _wrong_component(component, tests)
        if reason is not None:
            return k48.DescribeClientQuotasResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=reason, entries=None
            )
        tests[component.entity_type] = _name_test(component.match_type, component.match)
    entries = [
        _quota_entry(quotas)
        for quotas in image.client_quotas.values()
        if _is_meant(quotas, tests, is_strict=request.strict)
    ]
    return k48.DescribeClientQuotasResponse(error_message=None, entries=entries)


def _wrong_component(component: k48.ComponentData, seen: Iterable[str]) -> str | None:
    kind, match_type = component.entity_type, component.match_type
    if kind not in _QUOTA_TYPES:
        return f"there are no quotas for the type {kind!r}"
    if kind in seen:
        return f"the type {kind} is named twice"
    if match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
        return f"there is no way {match_type} to match"
    if match_type == MATCH_EXACT and component.match is None:
        return "an exact match needs a name"
    if match_type != MATCH_EXACT and component.match is not None:
        return "only an exact match takes a name"
    return None


def _name_test(match_type: int, match: str | None) -> _NameTest:
    """An exact match's name, or None for the default; any name at all otherwise."""
    if match_type == MATCH_SPECIFIED:
        return lambda _name: True
    return lambda name: name == match


def _is_meant(quotas: EntityQuotas, tests: dict[str, _NameTest], *, is_strict: bool) -> bool:
    names = dict(quotas.entity)
    if is_strict and len(names) != len(tests):
        return False
    return all(kind in names and test(names[kind]) for kind, test in tests.items())


def _quota_entry(quotas: EntityQuotas) -> k48.EntryData:
    return k48.EntryData(
        entity=[
            k48.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in quotas.entity
        ],
        values=[k48.ValueData(key=key, value=value) for key, value in quotas.limits.items()],
    )


def describe_user_scram_credentials(
    image: MetadataImage, request: k50.DescribeUserScramCredentialsRequest
) -> k50.DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of users, of all of them if none are named; never their keys."""
    infos: dict[str, list[k50.CredentialInfo]] = {}
    for user, credential in image.scram_credentials.items():
        infos.setdefault(user.name, []).append(
            k50.CredentialInfo(mechanism=user.mechanism, iterations=credential.iterations)
        )
    # An empty list asks for everybody, like none at all.
    asked = [user.name for user in request.users or ()]
    results = []
    for name, times in Counter(asked or sorted(infos)).items():
        code, message = ErrorCode.NONE, None
        if times > 1:
            code, message = ErrorCode.DUPLICATE_RESOURCE, "the request names the user twice"
        elif name not in infos:
            code, message = ErrorCode.RESOURCE_NOT_FOUND, "the user has no credential"
        results.append(
            k50.DescribeUserScramCredentialsResult(
                user=name,
                error_code=code,
                error_message=message,
                credential_infos=infos[name] if code is ErrorCode.NONE else [],
            )
        )
    return k50.DescribeUserScramCredentialsResponse(error_message=None, results=results)
