"""What the transaction coordinator needs of the broker around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kraftpy.coordinator.transactions.state import Partitions
from kraftpy.protocol.errors import ErrorCode

__all__ = ["MarkerJob", "MarkerSender", "ProvideProducerId"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerJob:
    """A decided transaction, whose markers have to be written on all its partitions."""

    shard: int
    """The partition of `__transaction_state` whose leader asks."""
    coordinator_epoch: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int
    partitions: Partitions


class MarkerSender(Protocol):
    def send(self, job: MarkerJob, done: Callable[[], None]) -> None:
        """Have the markers written, however long it takes, and then call `done` once.

        It is never called if a partition knows of a newer producer or coordinator: then somebody
        else has the last word. It may be called before this returns.
        """
        ...

    def cancel(self, shard: int) -> None:
        """Nobody waits for this shard's jobs any more."""
        ...


# Has its argument called once, now or later, with a new producer id or with why there is none.
ProvideProducerId: TypeAlias = Callable[[Callable[[int | ErrorCode], None]], None]
