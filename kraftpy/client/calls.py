"""What the cores of clients ask of their shells: requests to be made, and to be woken in time.

A core is a plain object: its users call its methods, its shell asks it for `calls`. The shell sends
each call to its address, calls to one address in the order given, and reports exactly once what
came of it: `answered` or `failed`. Before the moment of `wake_at_ms`, and whenever something has
happened, it asks again. Nothing else connects the two, so the same core runs under trio, under a
blocking loop and in a simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kraftpy.protocol.tables import Request
from kraftpy.world import Address

__all__ = ["Call", "ClientCore", "TopicPartition", "earliest"]


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Call:
    """One request to one node.

    `failed` gets ConnectionLost (the request may or may not have been carried out),
    NegotiationFailed or UnsupportedVersion (it was not). A call that expects no answer (Produce
    with acks=0) is answered with None when its bytes are on their way.

    A node answers the calls of a connection in order, so one that waits for others (Fetch,
    JoinGroup) holds up those behind it. Calls that must not wait for each other have different
    lanes: each is a connection of its own.
    """

    __slots__ = (
        "address",
        "answered",
        "expects_answer",
        "failed",
        "lane",
        "max_version",
        "message",
        "timeout_ms",
    )

    def __init__(
        self,
        address: Address,
        message: Request,
        *,
        answered: Callable[[Any, int], None],
        failed: Callable[[Exception, int], None],
        timeout_ms: int | None = None,
        expects_answer: bool = True,
        max_version: int | None = None,
        lane: str = "",
    ) -> None:
        self.address = address
        self.message = message
        self.answered = answered
        self.failed = failed
        self.timeout_ms = timeout_ms
        self.expects_answer = expects_answer
        self.max_version = max_version
        self.lane = lane


class ClientCore(Protocol):
    def calls(self, now_ms: int) -> list[Call]:
        """The requests to be made now."""
        ...

    def wake_at_ms(self) -> int | None:
        """When to ask for calls again if nothing happens before; None: need not."""
        ...


def earliest(*moments: int | None) -> int | None:
    """The first of these moments, of which some may never come."""
    first: int | None = None
    for moment in moments:
        if moment is not None and (first is None or moment < first):
            first = moment
    return first
