"""What a shard needs of the world, and what a machine is.

`ShardLog` is the leader's end of one partition; the broker's partition stands behind it. `Machine`
is what a shard runs; `ShardContext` is what a machine is made with.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kraftpy.coordinator.outcome import CoordinatorRecord, Outcome
from kraftpy.coordinator.timeline import Timeline
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.world import Buffer, Clock

__all__ = ["Background", "Machine", "ShardContext", "ShardLog", "Timers"]

_Result = TypeVar("_Result")


class ShardLog(Protocol):
    """The log of a shard, as long as this broker leads it in one epoch."""

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads in that epoch. The shard may hear of its end later."""
        ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def max_batch_bytes(self) -> int:
        """`max.message.bytes` of the topic."""
        ...

    def append(
        self,
        batch: Buffer,
        *,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = 0,
    ) -> int:
        """Append a batch and return its base offset. Raises CoordinatorError with the log's code.

        The high watermark may have moved when this returns, but the shard hears of that only later.
        """
        ...

    async def read(self, offset: int, max_bytes: int) -> Buffer:
        """From the batch that holds `offset` on; a whole one at least, unless at the end.

        The last batch of several may be cut off. Raises CoordinatorError, also when this broker no
        longer leads in that epoch.
        """
        ...


class Timers(Protocol):
    """The timers of one shard, by name; all of them end with the shard (CRT-22, CRT-23).

    What a timer does is an operation like any other, queued when the time is over. It is given up
    if its name was scheduled anew or cancelled in between, and tried again after a failure.
    """

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], Outcome[None]]) -> None:
        """Start a timer; one of the same name is replaced."""
        ...

    def cancel(self, key: str) -> None: ...

    def is_scheduled(self, key: str) -> bool: ...


class Background(Protocol):
    """Long work of a machine, done in slices between other things (CRT-24)."""

    def start(
        self,
        key: str,
        work: Generator[None, None, _Result],
        completed: Callable[[_Result | Exception], Outcome[None]],
    ) -> None:
        """Do `work`, pausing at each of its yields, and then `completed` as an operation.

        Nothing happens if work of that name is under way.
        """
        ...

    def is_running(self, key: str) -> bool: ...

    def cancel(self, key: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ShardContext:
    """What a machine is made with."""

    partition: int
    # Of the partition's leadership, which is the coordinator's epoch in markers.
    leader_epoch: int
    timeline: Timeline
    timers: Timers
    background: Background
    clock: Clock
    # The newest metadata that this shard has been told of.
    image: Callable[[], MetadataImage]
    # Where the next record will stand in the log, behind those that are not in it yet.
    next_offset: Callable[[], int]
    # Starts an operation of the machine's own accord.
    submit: Callable[[Callable[[], Outcome[None]]], None]


class Machine(Protocol):
    """The state of one shard. Only `replay` and `replay_marker` change what is in the timeline."""

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord
    ) -> None:
        """Take a record over; -1 for producer id and epoch outside of a transaction.

        The same for records just made and for those of a log that is loaded, which compaction may
        have thinned out.
        """
        ...

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """A transaction that wrote into this shard has ended."""
        ...

    def loaded(self) -> None:
        """Everything is replayed and the image is known: start timers."""
        ...

    def unloaded(self) -> None:
        """Leadership is over. Whoever waits for a reply gets NOT_COORDINATOR, by the machine."""
        ...

    def metadata_changed(self, changes: ImageChanges, image: MetadataImage) -> None: ...
