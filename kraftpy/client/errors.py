"""How a connection to a node ends, and what that says about the node.

A peer whose connection was reset or closed, and that refuses a new one, is dead now; one that is
silent may only be slow (design, decision 14). So every failure says which kind of evidence it is.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["ConnectionLost", "Evidence", "NegotiationFailed", "UnsupportedVersion", "evidence_of"]


class Evidence(Enum):
    """What the end of a connection, or of the attempt to make one, has shown."""

    REFUSED = "refused"  # The host is there and nobody listens on the port.
    BROKEN = "broken"  # The peer's side reset or closed a connection that stood.
    TIMED_OUT = "timed out"  # No sign of life for the time allowed; proves nothing.
    UNREACHABLE = "unreachable"  # The path or the name failed; proves nothing about the peer.
    GARBLED = "garbled"  # What answers there doesn't speak the protocol.
    ENDED_HERE = "ended here"  # We closed it ourselves.

    @property
    def speaks_of_death(self) -> bool:
        """Did the peer's own machine tell us that the process, or its connection, is gone?"""
        return self in (Evidence.REFUSED, Evidence.BROKEN)


def evidence_of(error: OSError) -> Evidence:
    """What a failed socket call shows about the peer."""
    if isinstance(error, ConnectionRefusedError):
        return Evidence.REFUSED
    if isinstance(error, (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)):
        return Evidence.BROKEN
    # The path between the hosts, or the name of the other one: it may well be alive.
    return Evidence.UNREACHABLE


class ConnectionLost(ConnectionError):  # noqa: N818 (it names what happened)
    """The connection is gone; whether the request was carried out is unknown."""

    def __init__(self, evidence: Evidence, detail: str) -> None:
        super().__init__(f"{evidence.value}: {detail}")
        self.evidence = evidence
        self.detail = detail


class NegotiationFailed(ConnectionError):  # noqa: N818 (it names what happened)
    """The peer answered, but won't tell its versions; trying again would not help."""


class UnsupportedVersion(Exception):  # noqa: N818 (it names what was asked for)
    """There is no version of this API that both sides know; the request was not sent."""
