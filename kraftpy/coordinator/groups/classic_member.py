"""A member of a classic group, and those of its requests that wait for others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, TypeAlias

from kraftpy.coordinator.outcome import CoordinatorError, Reply
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import hyphenated_uuid, random_uuid
from kraftpy.protocol.schema.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kraftpy.protocol.schema.k14_sync_group import SyncGroupResponse
from kraftpy.world import InternalInvariant, Random

__all__ = [
    "ClassicMember",
    "JoinCall",
    "JoinProtocol",
    "JoinReply",
    "SyncReply",
    "new_member_id",
    "protocols_of",
]

# Of a name that a member id begins with; the id itself must fit into any string.
_PREFIX_MAX_LENGTH: Final = 1000

JoinReply: TypeAlias = Reply[JoinGroupResponse]
SyncReply: TypeAlias = Reply[SyncGroupResponse]


class JoinProtocol(NamedTuple):
    """A way of assigning that a member knows, and what it has to say to the one who assigns."""

    name: str
    metadata: bytes


def protocols_of(given: Iterable[JoinGroupRequestProtocol]) -> tuple[JoinProtocol, ...]:
    """Those of a request, the favourite first; a name that comes again is passed over."""
    by_name: dict[str, bytes] = {}
    for each in given:
        by_name.setdefault(each.name, bytes(each.metadata))
    return tuple(map(JoinProtocol._make, by_name.items()))


def new_member_id(prefix: str, random: Random) -> str:
    """An id that nobody has; it begins with the member's own name, so that people know it."""
    return f"{prefix[:_PREFIX_MAX_LENGTH]}-{hyphenated_uuid(random_uuid(random))}"


class JoinCall:
    """A JoinGroup, who sends it, and who wants the answer."""

    __slots__ = ("api_version", "client_host", "client_id", "protocols", "reply", "request")

    def __init__(
        self,
        request: JoinGroupRequest,
        api_version: int,
        client_id: str,
        client_host: str,
        reply: JoinReply,
    ) -> None:
        self.request = request
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.reply = reply
        self.protocols = protocols_of(request.protocols)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The first version has none of its own."""
        request = self.request
        is_first = self.api_version == 0
        return request.session_timeout_ms if is_first else request.rebalance_timeout_ms


class ClassicMember:
    """What changes here is changed by its group, which keeps count."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        *,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[JoinProtocol, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        # Whether it has never been in a generation; it can't send heartbeats then.
        self.is_new = False
        # Of a JoinGroup that waits for the others, or a SyncGroup that waits for the leader.
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_joining(self) -> bool:
        return self.join_reply is not None

    @property
    def is_waiting_for_us(self) -> bool:
        """Whether it is silent because we owe it an answer.

        A new member is not spared by this: nobody knows whether it still waits.
        """
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise InternalInvariant("classic-member.protocol-not-supported")

    def vote(self, candidates: Collection[str]) -> str:
        """Its favourite among those that all members know."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise InternalInvariant("classic-member.no-candidate")

    def answer_sync(self, answer: SyncGroupResponse | CoordinatorError) -> bool:
        """Answer a SyncGroup that waits; False if there is none."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is None:
            return False
        reply(answer)
        return True

    def park_sync(self, reply: SyncReply) -> None:
        """Keep a SyncGroup until there is an assignment. One from before is not waited for."""
        if self.sync_reply is not None:
            self.answer_sync(CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS))
        self.sync_reply = reply
