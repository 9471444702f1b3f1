"""What an operation of the controller gives back, and how it refuses.

The records of an atomic result become one batch: everybody sees all of them or none. Others may be
cut into several batches, each of which makes sense alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kraftpy.metadata.records import MetadataRecord
from kraftpy.protocol.errors import ErrorCode

__all__ = ["MAX_RECORDS_PER_REQUEST", "Caller", "ControllerError", "ControllerResult", "Refusal"]

# What one request of a user may write; more is refused with POLICY_VIOLATION.
MAX_RECORDS_PER_REQUEST: Final = 10_000

# Far below what a text on the wire may have, and enough for people to read.
MAX_MESSAGE_LENGTH: Final = 1000

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T_co]):
    """Records to write, and the answer to give when they are committed."""

    records: tuple[MetadataRecord, ...]
    answer: T_co
    is_atomic: bool = True


class ControllerError(Exception):
    """Refuses a whole request with one of Kafka's error codes; nothing is written."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name if message is None else f"{code.name}: {message}")
        self.code = code
        self.message = code.message if message is None else _shortened(message)


class Refusal:
    """Why one item of a request is refused while the others go on."""

    __slots__ = ("code", "message")

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        self.message = _shortened(message)


def _shortened(message: str) -> str:
    """Messages repeat what was asked for, which may be longer than an answer can say."""
    return message if len(message) <= MAX_MESSAGE_LENGTH else f"{message[:MAX_MESSAGE_LENGTH]}..."


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: for a forwarded request, the client that the broker speaks for."""

    api_version: int
    principal: str = "User:ANONYMOUS"
    client_id: str | None = None
    client_host: str = ""
    # When the asker stops waiting, in the controller's monotonic time; None: whenever it comes.
    deadline_ms: int | None = None
