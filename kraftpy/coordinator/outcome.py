"""What a machine answers with: records, an answer, or an error.

An operation of a machine reads state and changes none. It returns an Outcome; the shard replays its
records into the machine, appends them, and gives the answer when they are committed. So what is
answered is always in the log, and what the log refused has never happened.

Two kinds of operations need more:

- One whose answer depends on others (a member that waits for the group) returns no answer and
  keeps the `Reply` that it was given; it, or a later operation, calls it.
- One that has soft state to move when its records are committed, or to put back when they are not,
  gives `settled`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.tables import RecordKey, RecordValue

__all__ = ["CoordinatorError", "CoordinatorRecord", "Outcome", "Reply", "Settled"]

_Answer = TypeVar("_Answer")


class CoordinatorError(Exception):
    """Answered as it is; nothing is written."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name if message is None else f"{code.name}: {message}")
        self.code = code
        self.message = code.message if message is None else message


@dataclass(slots=True)
class CoordinatorRecord:
    """A key and its value, as messages of `protocol/schema`; without a value it deletes the key."""

    key: RecordKey
    value: RecordValue | None = None
    value_version: int = 0


# Called once, with an answer or with the error.
Reply: TypeAlias = Callable[[_Answer | CoordinatorError], None]
# Called once: with None when the records are committed, with the error when they are lost.
Settled: TypeAlias = Callable[[CoordinatorError | None], None]


class Outcome(NamedTuple, Generic[_Answer]):
    records: Sequence[CoordinatorRecord] = ()
    # None if somebody else replies, or if nobody waits.
    answer: _Answer | None = None
    settled: Settled | None = None
    # Whether the records must be in one batch. Those of mere housekeeping need not be.
    is_atomic: bool = True
