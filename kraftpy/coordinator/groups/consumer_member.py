"""A member of a consumer group: what it brings, and what it has.

The two halves are two records in the log, and change independently: the profile, which the member
itself gives (type 5), and its current assignment, which the coordinator leads it to (type 8).

Everything here is immutable; a change makes a new member.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, TypeAlias

from kraftpy.coordinator.assignors.assignor import Partitions
from kraftpy.protocol.ids import Uuid

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "NOTHING_HELD",
    "NO_EPOCH",
    "STATIC_LEAVE_EPOCH",
    "ClassicProfile",
    "ConsumerMember",
    "CurrentAssignment",
    "Held",
    "MemberProfile",
    "MemberState",
    "gathered",
    "partitions_of",
]

# Member epochs that are none.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
# Of a member that the log says nothing about.
NO_EPOCH: Final = -1

# By topic id and partition: the member epoch in which it was assigned. A commit of an older epoch
# comes from before the member had the partition.
Held: TypeAlias = Mapping[Uuid, Mapping[int, int]]
NOTHING_HELD: Final[Held] = {}


class MemberState(IntEnum):
    """How far a member is on its way to the target; the numbers are those of the log."""

    STABLE = 0
    # It must give partitions back before anything else.
    UNREVOKED_PARTITIONS = 1
    # It waits for partitions that others still hold.
    UNRELEASED_PARTITIONS = 2
    # A newer release has written a state that we don't know.
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicProfile:
    """What a member that speaks the classic protocol has said in its JoinGroup."""

    session_timeout_ms: int
    # Names and embedded subscriptions, in the member's order of preference.
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class MemberProfile:
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    # In alphabetical order, each once.
    topic_names: tuple[str, ...] = ()
    # Empty for none.
    topic_regex: str = ""
    server_assignor: str | None = None
    # None for members that speak the consumer protocol.
    classic: ClassicProfile | None = None

    def has_subscription_of(self, other: MemberProfile) -> bool:
        return self.topic_names == other.topic_names and self.topic_regex == other.topic_regex


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    member_epoch: int = NO_EPOCH
    previous_epoch: int = NO_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    # No longer the member's to read, but not known to be given up either.
    pending_revocation: Held = field(default_factory=dict)

    def at_epoch(self, epoch: int) -> CurrentAssignment:
        return replace(self, member_epoch=epoch, previous_epoch=self.member_epoch)

    def is_stable_at(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def partitions(self) -> Iterator[tuple[Uuid, int]]:
        """All that the member holds, be it to revoke it."""
        for held in (self.assigned, self.pending_revocation):
            for topic_id, epochs in held.items():
                for partition in epochs:
                    yield topic_id, partition

    def holds(self, topic_id: Uuid, partition: int) -> bool:
        return self.assignment_epoch(topic_id, partition) is not None

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """Since when the member holds a partition, be it to revoke it; None if it does not."""
        for held in (self.assigned, self.pending_revocation):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    profile: MemberProfile = field(default_factory=MemberProfile)
    current: CurrentAssignment = field(default_factory=CurrentAssignment)

    @property
    def is_classic(self) -> bool:
        return self.profile.classic is not None


def partitions_of(held: Held) -> Partitions:
    """The same without epochs."""
    return {topic_id: frozenset(epochs) for topic_id, epochs in held.items()}


def gathered(places: Iterable[tuple[Uuid, Iterable[int]]]) -> Partitions:
    """What a client lists by topics, of which it may name one in several places."""
    found: dict[Uuid, set[int]] = {}
    for topic_id, partitions in places:
        found.setdefault(topic_id, set()).update(partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items() if partitions}
