"""What can go wrong for a client: how connections end, and what a node answers instead of success.

A peer whose connection was reset or closed, and that refuses a new one, is dead now; one that is
silent may only be slow (design, decision 14). So every failure says which kind of evidence it is.
"""

from __future__ import annotations

from enum import Enum

from kraftpy.protocol.errors import ErrorCode

__all__ = [
    "ClientClosed",
    "ConnectionLost",
    "Evidence",
    "KafkaError",
    "LogTruncated",
    "NegotiationFailed",
    "OffsetOutOfRange",
    "UnsupportedVersion",
    "error_code",
    "evidence_of",
    "failure_of",
]


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


class KafkaError(Exception):
    """What was asked for was not done; `code` is Kafka's word for why."""

    def __init__(self, code: ErrorCode, detail: str | None = None) -> None:
        super().__init__(f"{code.name}: {detail or code.message}")
        self.code = code
        self.detail = detail or code.message


class OffsetOutOfRange(KafkaError):  # noqa: N818 (Kafka's name)
    """The position lies outside the log, and no policy says where to go on instead."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {topic}-{partition} is not there"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset


class LogTruncated(KafkaError):  # noqa: N818 (it names what happened)
    """Records before the position are gone from the log: others may stand in their place."""

    def __init__(self, topic: str, partition: int, offset: int, divergent_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition} was cut at {divergent_offset}, before position {offset}",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.divergent_offset = divergent_offset


class ClientClosed(Exception):  # noqa: N818 (it names what happened)
    """The client was closed before this could be done."""


def error_code(number: int) -> ErrorCode:
    """The code behind a number on the wire; one newer than we are counts as unknown."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def failure_of(number: int, detail: str | None = None) -> KafkaError | None:
    """The failure that an answer's code stands for; None for success."""
    return None if number == ErrorCode.NONE else KafkaError(error_code(number), detail)
