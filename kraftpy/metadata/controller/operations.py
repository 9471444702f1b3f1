"""Which request is served by what: the table of the controller's operations.

A write goes through the active controller: it may want records, and its answer waits until they,
and everything that it may have read, are committed. A read is served from committed state, by the
active controller as well: a standby may be far behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from kraftpy.metadata.controller.event_queue import EventKind
from kraftpy.metadata.controller.periodic import PeriodicTask
from kraftpy.metadata.controller.result import Caller, ControllerResult
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import Endpoint, MetadataRecord

__all__ = ["ControllerParts", "Operation", "OperationTable", "Turn"]


class Turn(NamedTuple):
    """When an operation runs, in time and in the log: the offset that its first record will get."""

    now_ms: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Operation:
    """How one kind of request is served."""

    name: str
    run: Callable[[Any, Caller, Turn], ControllerResult[object]]
    # What the request is in Kafka's table of events; it may depend on what is asked for.
    kind: Callable[[Any], EventKind | None]
    # What a user asks for must fit one batch, or is refused; what the cluster needs is cut.
    is_users: bool = False
    is_read: bool = False
    # How long a request may wait in the queue; None: as long as the asker does.
    max_queue_ms: int | None = None
    # What is done with a request that has waited too long.
    on_late: Callable[[Any, Turn], None] | None = None


OperationTable: TypeAlias = Mapping[type[Any], Operation]


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """What a controller is made of, besides its context."""

    operations: OperationTable
    tasks: Sequence[PeriodicTask]
    # The records that an empty log begins with; metadata.version is the first.
    bootstrap: tuple[MetadataRecord, ...]
    # What a new controller finds to be put right, piece by piece: each result is written before
    # the next one is asked for.
    reevaluate: Callable[[], Iterator[ControllerResult[object]]]
    # Leaders for the partitions that have none, of one topic or of all; whether there are more.
    bring_online: Callable[[str | None], ControllerResult[bool]]
    # Fences a broker of whose death there is evidence, at this time.
    fence_dead: Callable[[int, int], ControllerResult[object]]
    # Listeners of brokers that should be tried at this time.
    probes: Callable[[int], Sequence[tuple[int, Endpoint]]]
    # The image before the transaction that the committed log leaves open, if it does.
    open_transaction: Callable[[], MetadataImage | None]
