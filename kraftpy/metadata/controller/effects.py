"""Everything that the controller can want. The shell carries effects out at once and in order.

Records that are to be appended have happened in the controller's memory already. If Raft doesn't
take them, or they land at another offset, the shell says so (`Controller.append_refused`), and the
controller gives up its role together with everything that was built on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from kraftpy.metadata.records import MetadataRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import quickly_made

__all__ = [
    "Answer",
    "AppendRecords",
    "ControllerEffect",
    "ProbeBroker",
    "Refuse",
    "ResignLeadership",
]


@quickly_made
@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append these as one batch in this epoch; the first one must get `base_offset`.

    `values` are the records in their stored form.
    """

    epoch: int
    base_offset: int
    records: tuple[MetadataRecord, ...]
    values: tuple[bytes, ...]

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.values) - 1


@quickly_made
@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: whatever it says is committed."""

    request_id: int
    response: object


@quickly_made
@dataclass(frozen=True, slots=True)
class Refuse:
    """A request as a whole ends with this error."""

    request_id: int
    code: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class ResignLeadership:
    """This node can't be the controller of this epoch any longer: somebody else must lead."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ProbeBroker:
    """Find out whether anybody listens there; a refused connection is evidence of a death."""

    broker_id: int
    host: str
    port: int


ControllerEffect: TypeAlias = AppendRecords | Answer | Refuse | ResignLeadership | ProbeBroker
