"""FindCoordinator (10): who looks after a group, or after a transactional id.

The first who asks has the internal topic created, by the broker itself, since clients need no right
to do that; and is told to ask again. From version 4 on
several keys can be asked for at once; before, the answer stands in the response itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kraftpy.api.access import REFUSALS
from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.topic_creation import AutoTopicCreation
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["GROUP_KEY", "TRANSACTION_KEY", "FindCoordinatorHandler"]

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
_SHARE_KEY: Final = 2

_FIRST_VERSION_WITH_KEYS: Final = 4
_FIRST_VERSION_WITH_SHARES: Final = 6
_NOBODY: Final = -1


class FindCoordinatorHandler(Handler):
    api_key = 10

    def __init__(
        self, lookups: Mapping[int, CoordinatorLookup], creation: AutoTopicCreation
    ) -> None:
        """`lookups` are by type of key; of a type that isn't there, nobody is the coordinator."""
        self._lookups = lookups
        self._creation = creation

    def handle(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> FindCoordinatorResponse:
        version = context.api_version
        if not self._is_known(request.key_type, version):
            code = ErrorCode.INVALID_REQUEST
            return self.error_answer(request, context, code, code.message)
        if version >= _FIRST_VERSION_WITH_KEYS:
            return FindCoordinatorResponse(
                coordinators=[
                    self._find(request.key_type, key, context) for key in request.coordinator_keys
                ]
            )
        found = self._find(request.key_type, request.key, context)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def error_answer(
        self,
        request: FindCoordinatorRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> FindCoordinatorResponse:
        if context.api_version < _FIRST_VERSION_WITH_KEYS:
            return FindCoordinatorResponse(
                error_code=code, error_message=message, node_id=_NOBODY, host="", port=_NOBODY
            )
        return FindCoordinatorResponse(
            coordinators=[_nobody(key, code, message) for key in request.coordinator_keys]
        )

    def error_codes(self, response: FindCoordinatorResponse) -> Iterator[int]:
        if not response.coordinators:
            yield response.error_code
        for coordinator in response.coordinators:
            yield coordinator.error_code

    def _is_known(self, key_type: int, version: int) -> bool:
        if key_type == _SHARE_KEY:
            return version >= _FIRST_VERSION_WITH_SHARES
        return key_type in (GROUP_KEY, TRANSACTION_KEY)

    def _find(self, key_type: int, key: str, context: RequestContext) -> Coordinator:
        if key_type == _SHARE_KEY:
            context.require(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        else:
            kind = ResourceType.GROUP if key_type == GROUP_KEY else ResourceType.TRANSACTIONAL_ID
            if not context.access.may(AclOperation.DESCRIBE, kind, key):
                return _nobody(key, REFUSALS[kind], REFUSALS[kind].message)
        lookup = self._lookups.get(key_type)
        missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if lookup is None:
            return _nobody(key, missing, missing.message)
        node = lookup.coordinator_of(key, context.channel.listener_name)
        if node is None:
            if not lookup.is_created:
                self._creation.create([lookup.topic])
            return _nobody(key, missing, missing.message)
        return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)


def _nobody(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=_NOBODY, host="", port=_NOBODY, error_code=code, error_message=message
    )
