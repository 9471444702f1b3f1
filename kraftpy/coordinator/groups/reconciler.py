"""How one member of a consumer group gets from what it has to what it is to have (KIP-848).

Members move on one by one, each at its own heartbeats, and nobody waits for the whole group. Two
rules make that safe:

- A partition is given to a member only if nobody holds it. A member holds what it is assigned, and
  also what it was told to give up, until its heartbeat shows that it has.
- A member's epoch becomes the target's only when it has nothing left to give up.

So at each moment a partition is held by one member at most, and a member at the target's epoch
has nothing of an older target.

A heartbeat that does not list partitions says nothing about them: `owned` is None then, and never
counts as a sign that something was given up.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

from kraftpy.coordinator.assignors.assignor import Partitions
from kraftpy.coordinator.groups.consumer_member import (
    NOTHING_HELD,
    CurrentAssignment,
    Held,
    MemberState,
)
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid

__all__ = ["Reconciliation"]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """All that decides on a member's next step."""

    target_epoch: int
    target: Partitions
    # What the member says it has; None if it says nothing.
    owned: Partitions | None
    # Topics that the member subscribes to and that exist.
    subscribed: Container[Uuid]
    has_subscription_changed: bool
    # Whether no other member holds the partition.
    is_free: Callable[[Uuid, int], bool]

    def next(self, current: CurrentAssignment) -> CurrentAssignment:
        """Raises FENCED_MEMBER_EPOCH for a member in a state that we don't know."""
        epoch, target_epoch = current.member_epoch, self.target_epoch
        match current.state:
            case MemberState.STABLE:
                if epoch != target_epoch:
                    return self._towards_target(current, epoch)
                return self._without_unsubscribed(current)
            case MemberState.UNREVOKED_PARTITIONS:
                if self._may_own(current.pending_revocation):
                    return self._without_unsubscribed(current)
                return self._towards_target(current, min(epoch + 1, target_epoch))
            case MemberState.UNRELEASED_PARTITIONS:
                return self._towards_target(current, epoch)
            case MemberState.UNKNOWN:
                if self.owned is None or self.owned:
                    raise CoordinatorError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "The member is in a state that this coordinator does not know.",
                    )
                return self._towards_target(current, target_epoch)

    def _towards_target(self, current: CurrentAssignment, epoch: int) -> CurrentAssignment:
        """Give up what is not in the target; if nothing is left of that, take what is free."""
        keep: dict[Uuid, Mapping[int, int]] = {}
        revoke: dict[Uuid, Mapping[int, int]] = {}
        add: dict[Uuid, list[int]] = {}
        is_waiting = False
        for topic_id in {**self.target, **current.assigned}:
            target = self._target_of(topic_id)
            assigned = current.assigned.get(topic_id, {})
            if kept := {p: epoch_of for p, epoch_of in assigned.items() if p in target}:
                keep[topic_id] = kept
            if lost := {p: epoch_of for p, epoch_of in assigned.items() if p not in target}:
                revoke[topic_id] = lost
            wanted = sorted(target - assigned.keys())
            free = [p for p in wanted if self.is_free(topic_id, p)]
            if free:
                add[topic_id] = free
            is_waiting |= len(free) < len(wanted)

        if revoke and self._may_own(revoke):
            return replace(
                current.at_epoch(epoch),
                state=MemberState.UNREVOKED_PARTITIONS,
                assigned=keep,
                pending_revocation=revoke,
            )
        for topic_id, free in add.items():
            added = dict.fromkeys(free, self.target_epoch)
            keep[topic_id] = {**keep.get(topic_id, {}), **added}
        return replace(
            current.at_epoch(self.target_epoch),
            state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
            assigned=keep,
            pending_revocation=NOTHING_HELD,
        )

    def _without_unsubscribed(self, current: CurrentAssignment) -> CurrentAssignment:
        """Partitions of topics that the member has just left go at once, before a new target."""
        if not self.has_subscription_changed:
            return current
        lost = {
            topic_id: epochs
            for topic_id, epochs in current.assigned.items()
            if topic_id not in self.subscribed
        }
        if not lost:
            return current
        keep = {
            topic_id: epochs
            for topic_id, epochs in current.assigned.items()
            if topic_id not in lost
        }
        if not self._may_own(lost):
            return replace(current, assigned=keep)
        pending = dict(current.pending_revocation)
        for topic_id, epochs in lost.items():
            pending[topic_id] = {**pending.get(topic_id, {}), **epochs}
        return replace(
            current,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=keep,
            pending_revocation=pending,
        )

    def _target_of(self, topic_id: Uuid) -> frozenset[int]:
        """A target may be older than the subscription: what was left is no longer wanted."""
        if topic_id not in self.subscribed:
            return frozenset()
        return self.target.get(topic_id, frozenset())

    def _may_own(self, partitions: Held) -> bool:
        """Whether the member may still have one of them."""
        owned = self.owned
        if owned is None:
            return True
        return any(
            not owned.get(topic_id, frozenset()).isdisjoint(epochs)
            for topic_id, epochs in partitions.items()
        )
