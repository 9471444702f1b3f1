"""What all assignors have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from kraftpy.client.calls import TopicPartition

__all__ = ["Assignment", "Assignor", "MemberSubscription"]

Assignment: TypeAlias = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member brings to the computation."""

    member_id: str
    topics: frozenset[str]
    user_data: bytes | None = None
    # What it had when it joined, and since which generation; empty under eager protocols.
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1


class Assignor(ABC):
    """`is_cooperative`: members keep what they have while the group rebalances."""

    name: ClassVar[str]
    is_cooperative: ClassVar[bool] = False

    def user_data(self) -> bytes | None:
        """What this member's subscription carries for the leader's eyes."""
        return None

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:  # noqa: B027
        """This member has a new assignment, which most assignors need not remember."""

    @abstractmethod
    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> Assignment:
        """Everybody's partitions, in order. Topics without a count don't exist."""
