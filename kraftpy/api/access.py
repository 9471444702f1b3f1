"""What the sender of a request may do: the one place where handlers ask.

`context.access` is an `Access`. Without an authorizer it is `OPEN_ACCESS`, which allows everything
and costs nothing. With one, each request gets an access of its own, that knows who sent it; a
request out of an envelope one for the client that the broker speaks for.

Where a request as a whole needs something, its handler says `context.require(...)`, or, if it is
always the same operation on the cluster, has it as its `cluster_operation`. Where the items of a
request are judged one by one, it asks `context.access.may(...)` for each. The checks and their
errors are those of Kafka's KafkaApis and ControllerApis; tests/api/test_access_table.py lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kraftpy.protocol.errors import ErrorCode
from kraftpy.security.acl_terms import CLUSTER_NAME, OPERATIONS_OF, AclOperation, ResourceType
from kraftpy.security.authorizer import Question, StandardAuthorizer

__all__ = ["NO_AUTHORIZER", "OPEN_ACCESS", "REFUSALS", "Access", "AccessOf"]

REFUSALS: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""What those are told who may not."""

NO_AUTHORIZER: Final = "there is no authorizer; set authorizer.class.name"
"""What those are told who look for access control entries, or want to have some."""

_NOTHING: Final = 0


class Access:
    """Of anybody where there is no authorizer."""

    __slots__ = ()

    is_limited = False
    """Whether there is an authorizer."""

    def may(
        self, operation: AclOperation, kind: ResourceType, name: str, *, is_probe: bool = False
    ) -> bool:
        """A probe is a question of which another one decides if the answer is no: not logged."""
        return True

    def may_cluster(self, operation: AclOperation, *, is_probe: bool = False) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_probe=is_probe)

    def may_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether there could be a resource of that kind to which it may be done."""
        return True

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """All that may be done to a resource, as the bit field of the protocol."""
        return _bits(OPERATIONS_OF[kind])

    def cluster_operations(self) -> int:
        """Nothing, to those who must not know of the cluster."""
        if not self.may_cluster(AclOperation.DESCRIBE):
            return _NOTHING
        return self.operations(ResourceType.CLUSTER)

    def on_behalf(self, principal: str, host: str) -> Access:
        """That of somebody else, for whom the sender speaks."""
        return self


class AccessOf(Access):
    """Of one principal, who comes from one host."""

    __slots__ = ("_authorizer", "_host", "_principal")

    is_limited = True

    def __init__(self, authorizer: StandardAuthorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = host

    def may(
        self, operation: AclOperation, kind: ResourceType, name: str, *, is_probe: bool = False
    ) -> bool:
        question = Question(self._principal, self._host, operation, kind, name)
        return self._authorizer.allows(question, is_probe=is_probe)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        return _bits(
            operation
            for operation in OPERATIONS_OF[kind]
            if self.may(operation, kind, name, is_probe=True)
        )

    def may_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        return self._authorizer.allows_any(self._principal, self._host, operation, kind)

    def on_behalf(self, principal: str, host: str) -> Access:
        return AccessOf(self._authorizer, principal, host)


OPEN_ACCESS: Final = Access()


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)
