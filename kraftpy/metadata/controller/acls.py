"""Creating and deleting access control entries.

What exists already is not created twice, and counts as success. Entries of one request that a
filter matches are deleted together; an entry that two filters match is listed for both and removed
once.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.metadata.access_control import AclFilter, entry_of, is_known
from kraftpy.metadata.controller.result import (
    MAX_RECORDS_PER_REQUEST,
    Caller,
    ControllerError,
    ControllerResult,
)
from kraftpy.metadata.controller.view import MetadataView
from kraftpy.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid, random_uuid
from kraftpy.protocol.schema.k30_create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kraftpy.protocol.schema.k31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kraftpy.security.acl_terms import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from kraftpy.world import Random

__all__ = ["AclControl"]


class AclControl:
    def __init__(self, context: MetadataView, random: Random) -> None:
        self._context = context
        self._random = random

    def create_acls(
        self, request: CreateAclsRequest, _caller: Caller
    ) -> ControllerResult[CreateAclsResponse]:
        entries = self._context.image.access_control_entries
        present = {entry_of(record) for record in entries.values()}
        records: dict[Uuid, AccessControlEntryRecord] = {}
        results = []
        for creation in request.creations:
            reason = _wrong_entry(creation)
            if reason is not None:
                code = ErrorCode.INVALID_REQUEST
                results.append(AclCreationResult(error_code=code, error_message=reason))
                continue
            results.append(AclCreationResult(error_message=None))
            entry = _wanted(creation)
            if entry not in present:
                present.add(entry)
                acl_id = self._new_id(records)
                records[acl_id] = AccessControlEntryRecord(acl_id, *entry)
        return ControllerResult(tuple(records.values()), CreateAclsResponse(results=results))

    def _new_id(self, taken: dict[Uuid, AccessControlEntryRecord]) -> Uuid:
        while True:
            acl_id = random_uuid(self._random)
            if acl_id not in taken and acl_id not in self._context.image.access_control_entries:
                return acl_id

    def delete_acls(
        self, request: DeleteAclsRequest, _caller: Caller
    ) -> ControllerResult[DeleteAclsResponse]:
        doomed: dict[Uuid, RemoveAccessControlEntryRecord] = {}
        results = []
        # Over all filters: each lists what it means, also if another one does so, too.
        listed_count = 0
        for wanted in request.filters:
            acl_filter = _filter(wanted)
            unknown = acl_filter.unknown_part()
            if unknown is not None:
                code, message = ErrorCode.INVALID_REQUEST, f"there is no {unknown}"
                results.append(DeleteAclsFilterResult(error_code=code, error_message=message))
                continue
            matching = list(acl_filter.matching(self._context.image))
            listed_count += len(matching)
            if listed_count > MAX_RECORDS_PER_REQUEST:
                message = f"the filters mean more than {MAX_RECORDS_PER_REQUEST} entries; split it"
                raise ControllerError(ErrorCode.POLICY_VIOLATION, message)
            for entry in matching:
                doomed[entry.id] = RemoveAccessControlEntryRecord(entry.id)
            results.append(
                DeleteAclsFilterResult(error_message=None, matching_acls=list(_listed(matching)))
            )
        answer = DeleteAclsResponse(filter_results=results)
        return ControllerResult(tuple(doomed.values()), answer)


def _wanted(creation: AclCreation) -> AclEntry:
    return AclEntry(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _wrong_entry(creation: AclCreation) -> str | None:
    """Why there can't be such an entry; None if there can."""
    kind, operation = creation.resource_type, creation.operation
    if not is_known(ResourceType, kind) or kind == ResourceType.ANY:
        return f"there is no resource of the type {kind}"
    if creation.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"an entry has no pattern of the type {creation.resource_pattern_type}"
    if not is_known(AclOperation, operation) or operation == AclOperation.ANY:
        return f"there is no operation {operation}"
    if creation.permission_type not in (AclPermission.DENY, AclPermission.ALLOW):
        return f"there is no permission {creation.permission_type}"
    if not creation.resource_name:
        return "a resource name must not be empty"
    if kind == ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        return f"the only resource of the type CLUSTER is {CLUSTER_NAME}"
    if ":" not in creation.principal:
        return f"the principal {creation.principal!r} has no colon between its type and its name"
    return None


def _filter(wanted: DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        resource_type=wanted.resource_type_filter,
        resource_name=wanted.resource_name_filter,
        pattern_type=wanted.pattern_type_filter,
        principal=wanted.principal_filter,
        host=wanted.host_filter,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )


def _listed(entries: list[AccessControlEntryRecord]) -> Iterator[DeleteAclsMatchingAcl]:
    for entry in entries:
        yield DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=entry.resource_type,
            resource_name=entry.resource_name,
            pattern_type=entry.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )
