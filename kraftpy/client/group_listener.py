"""Whom a consumer's user wants to be told of rebalances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from kraftpy.client.calls import TopicPartition
from kraftpy.client.group_member import Rebalance, RebalanceKind

__all__ = ["Listeners"]

T = TypeVar("T")


class Listeners(Generic[T]):
    """One for each kind of event; T is None, or something to wait for."""

    __slots__ = ("_of_kind",)

    def __init__(
        self,
        on_assigned: Callable[[list[TopicPartition]], T] | None = None,
        on_revoked: Callable[[list[TopicPartition]], T] | None = None,
        on_lost: Callable[[list[TopicPartition]], T] | None = None,
    ) -> None:
        self._of_kind = {
            RebalanceKind.ASSIGNED: on_assigned,
            RebalanceKind.REVOKED: on_revoked,
            RebalanceKind.LOST: on_lost or on_revoked,
        }

    def tell(self, event: Rebalance) -> T | None:
        listener = self._of_kind[event.kind]
        return None if listener is None else listener(list(event.partitions))
