"""What an operation of the controller gives back, and how it refuses.

The records of an atomic result become one batch: everybody sees all of them or none. Others may be
cut into several batches, each of which makes sense alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeAlias, TypeVar

from kraftpy.metadata.records import MetadataRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import quickly_made

__all__ = [
    "MAX_RECORDS_PER_REQUEST",
    "Caller",
    "ControllerError",
    "ControllerResult",
    "Outcome",
    "Part",
    "Refusal",
    "in_parts",
    "in_steps",
]

# What one request of a user may write; more is refused with POLICY_VIOLATION.
MAX_RECORDS_PER_REQUEST: Final = 10_000

# Far below what a text on the wire may have, and enough for people to read.
MAX_MESSAGE_LENGTH: Final = 1000

T_co = TypeVar("T_co", covariant=True)
Record = TypeVar("Record", bound=MetadataRecord)


@quickly_made
@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T_co]):
    """Records to write, and the answer to give when they are committed."""

    records: tuple[MetadataRecord, ...]
    answer: T_co
    is_atomic: bool = True


@quickly_made
@dataclass(frozen=True, slots=True)
class Part(Generic[T_co]):
    """Some of the records of an operation whose whole would keep everybody else waiting.

    They are appended like those of a result that is not atomic. Then `proceed` is called, with the
    offset that its first record will get, before anything else happens in the controller: whoever
    asks sees the operation done, or not begun. A controller that dies in between leaves what was
    appended, so each record must be right without those behind it.
    """

    records: tuple[MetadataRecord, ...]
    proceed: Callable[[int], Outcome[T_co]]


Outcome: TypeAlias = ControllerResult[T_co] | Part[T_co]


def in_parts(
    changes: Iterator[Record | None],
    size: int,
    finish: Callable[[tuple[Record, ...], int], Outcome[T_co]],
    next_offset: int,
) -> Outcome[T_co]:
    """The records of an operation, `size` steps at a time; None is a step without a record.

    `finish` makes the result out of the last part and the offset that its first record will get.
    """
    taken = list(islice(changes, size))
    records = tuple(record for record in taken if record is not None)
    if len(taken) < size:
        return finish(records, next_offset)
    return Part(records, lambda offset: in_parts(changes, size, finish, offset))


def in_steps(work: Generator[None, None, Outcome[T_co]]) -> Outcome[T_co]:
    """What comes of an operation that is a good while at it, and rests between its steps.

    Nothing is written before its end, and nothing changes in the controller until then.
    """
    try:
        next(work)
    except StopIteration as end:
        outcome: Outcome[T_co] = end.value
        return outcome
    return Part((), lambda _: in_steps(work))


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


def _without_limit(partition_count: int) -> bool:
    del partition_count
    return True


@quickly_made
@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: for a forwarded request, the client that the broker speaks for."""

    api_version: int
    principal: str = "User:ANONYMOUS"
    client_id: str | None = None
    client_host: str = ""
    # When the asker stops waiting, in the controller's monotonic time; None: whenever it comes.
    deadline_ms: int | None = None
    # Whether so many more partitions may be created or deleted now; they then count (KIP-599).
    may_change: Callable[[int], bool] = _without_limit
