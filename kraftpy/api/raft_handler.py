"""What the handlers of the quorum's APIs have in common: the Raft core answers, errors included.

A request goes to this node's member of the quorum as it is, and the core's answer comes back: at
once, after an fsync, or, for a Fetch that found nothing new, when something has happened. All
checks are the core's (KRF section 6), for it alone knows the epoch. The core knows no versions: it
says all there is to say, and what an older version can't carry is taken out here. A member that no
longer takes part, because the node stops, answers BROKER_NOT_AVAILABLE.

The requests refer to no bytes of their frame: they consist of numbers, ids and text, which decoding
has copied. So there is nothing to copy here, however long the core keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.raft.inputs import RaftRequest, RaftResponse
from kraftpy.security.acl_terms import AclOperation

__all__ = ["PartitionRaftHandler", "QuorumMember", "RaftHandler"]

# Of Vote, BeginQuorumEpoch, EndQuorumEpoch and FetchSnapshot alike (KIP-853).
_FIRST_VERSION_WITH_ENDPOINTS = 1


class QuorumMember(Protocol):
    """This node's part in the quorum; the driver is one."""

    def submit(self, request: RaftRequest, reply: Callable[[RaftResponse], None]) -> bool: ...


class RaftHandler(Handler):
    """An API of the quorum whose answer has one error code."""

    is_exempt = True
    cluster_operation = AclOperation.CLUSTER_ACTION

    def __init__(self, member: QuorumMember) -> None:
        self._member = member

    def handle(self, request: RaftRequest, context: RequestContext) -> None:
        def reply(response: RaftResponse) -> None:
            self.fit(response, context.api_version)
            context.respond(response)

        if not self._member.submit(request, reply):
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "this node leaves the quorum")

    def fit(self, response: Any, version: int) -> None:
        """Take out of an answer, which is nobody else's, what this version has no place for."""


class PartitionRaftHandler(RaftHandler):
    """One whose answer has an error code for the partition, too, and says where the leader is."""

    def fit(self, response: Any, version: int) -> None:
        if version < _FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = []

    def error_codes(self, response: Any) -> Iterable[int]:
        yield response.error_code
        for topic in response.topics:
            for partition in topic.partitions:
                yield partition.error_code
