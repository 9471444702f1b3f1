"""What the handlers of groups have in common: which shard to ask, and by whom it is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.outcome import CoordinatorError, Outcome, Reply
from kraftpy.coordinator.runtime import CoordinatorRuntime
from kraftpy.protocol.tables import Response

__all__ = ["Gathering", "GroupHandler", "GroupRuntime", "client_host", "reply_to"]

_Answer = TypeVar("_Answer")

GroupRuntime: TypeAlias = CoordinatorRuntime[GroupMachine]


class GroupHandler(Handler):
    """Asks the shard that a group belongs to."""

    def __init__(self, runtime: GroupRuntime, lookup: CoordinatorLookup) -> None:
        self._runtime = runtime
        self._lookup = lookup

    def write(
        self,
        group_id: str,
        operation: Callable[[GroupMachine], Outcome[_Answer]],
        reply: Reply[_Answer],
    ) -> None:
        self._runtime.write(self._lookup.partition_of(group_id), operation, reply)

    def read(self, group_id: str, operation: Callable[[GroupMachine], _Answer]) -> _Answer:
        """Raises CoordinatorError."""
        return self._runtime.read(self._lookup.partition_of(group_id), operation)


class Gathering:
    """Answers when the last of several parts has come."""

    __slots__ = ("_done", "_left")

    def __init__(self, count: int, done: Callable[[], None]) -> None:
        """`done` is called at once if there is nothing to wait for."""
        self._left = count
        self._done = done
        if count == 0:
            done()

    def one_is_there(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._done()


def reply_to(context: RequestContext) -> Reply[Response]:
    """Answers with what comes; an error in the way of the API."""

    def reply(answer: Response | CoordinatorError) -> None:
        if isinstance(answer, CoordinatorError):
            context.respond_error(answer.code, answer.message)
        else:
            context.respond(answer)

    return reply


def client_host(context: RequestContext) -> str:
    """As Java prints an address without a name, which is how Kafka's tools show it."""
    return f"/{context.channel.client_host}"
