"""What all assignors have in common, and what one of your own has to be.

Most assignors need to know no more than how many partitions the topics have: they are
CountingAssignors. One that looks at where the partitions are, or sends members more than their
partitions, is a plain Assignor.

Members may tell the leader anything in their `user_data`: a weight, a host, a rack. The leader may
answer each of them in its MemberAssignment, and `assigned` hears of that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

from kraftpy.client.calls import TopicPartition

__all__ = [
    "Assignment",
    "Assignor",
    "CountingAssignor",
    "GroupTopics",
    "MemberAssignment",
    "MemberSubscription",
]

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
    # Empty if it has none, or does not say.
    rack: str = ""


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """The topics of a group that exist, as the leader knows them."""

    partition_counts: Mapping[str, int]
    # Of the brokers that lead; only of those that have a rack.
    leader_racks: Mapping[TopicPartition, str] = field(default_factory=dict)


class MemberAssignment(NamedTuple):
    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


class Assignor(ABC):
    """`is_cooperative`: members keep what they have while the group rebalances.

    An assignor belongs to one member and lives as long. What it raises ends the membership, and is
    raised by the user's next poll.
    """

    name: ClassVar[str]
    is_cooperative: ClassVar[bool] = False

    def user_data(self) -> bytes | None:
        """What this member's subscription carries for the leader's eyes."""
        return None

    def assigned(  # noqa: B027
        self,
        partitions: Sequence[TopicPartition],
        generation: int,
        user_data: bytes | None = None,
    ) -> None:
        """This member has a new assignment, which most assignors need not remember."""

    @abstractmethod
    def assign_group(
        self, topics: GroupTopics, members: Sequence[MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        """What each member gets; whoever is left out gets nothing."""


class CountingAssignor(Assignor):
    @abstractmethod
    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> Assignment:
        """Everybody's partitions, in order. Topics without a count don't exist."""

    def assign_group(
        self, topics: GroupTopics, members: Sequence[MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        assignment = self.assign(topics.partition_counts, members)
        return {member_id: MemberAssignment(wheres) for member_id, wheres in assignment.items()}
