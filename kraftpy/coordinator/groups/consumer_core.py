"""What all operations on consumer groups have in common: the steps of a change, and its end.

A change is drafted (consumer_draft.py). `advance` leads one member on: a new group epoch if one is
due, a new target for it if enough time has passed since the last, the member's next step to it.
`expel` takes members out. `finish` makes the outcome, moves the timers, and puts soft state right
again if the records are lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from kraftpy.coordinator.assignors.assignor import Partitions
from kraftpy.coordinator.groups.consumer_draft import Conversion, GroupDraft
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_intervals import ConsumerIntervals, consumer_intervals
from kraftpy.coordinator.groups.consumer_member import (
    JOIN_EPOCH,
    ConsumerMember,
    CurrentAssignment,
    MemberProfile,
    MemberState,
)
from kraftpy.coordinator.groups.consumer_timers import ConsumerTimers
from kraftpy.coordinator.groups.consumer_topics import ConsumerTopics
from kraftpy.coordinator.groups.directory import GroupDirectory, no_such_group
from kraftpy.coordinator.groups.metrics import GroupMetrics
from kraftpy.coordinator.groups.reconciler import Reconciliation
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.groups.target_assignment import Assignors, make_target
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.coordinator.ports import ShardContext
from kraftpy.metadata.features import GROUP_VERSION
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import InternalInvariant

__all__ = ["ConsumerCore"]

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

# In group.coordinator.rebalance.protocols.
_PROTOCOL: Final = "consumer"


class ConsumerCore:
    __slots__ = (
        "_metrics",
        "assignors",
        "context",
        "directory",
        "downgrade",
        "settings",
        "timers",
        "topics",
    )

    def __init__(
        self,
        context: ShardContext,
        directory: GroupDirectory,
        settings: GroupSettings,
        metrics: GroupMetrics,
    ) -> None:
        self.context = context
        self.directory = directory
        self.settings = settings
        self._metrics = metrics
        self.topics = ConsumerTopics(context.image)
        self.assignors = Assignors(settings.consumer_assignors)
        self.timers = ConsumerTimers(
            context.timers,
            lambda group_id: self.intervals(group_id).session_timeout_ms,
            self._time_over,
        )
        # Turns a draft without members of the consumer protocol into a classic group, if it may.
        self.downgrade: Callable[[GroupDraft], bool] = lambda draft: False

    # Questions.

    def find(self, group_id: str) -> ConsumerGroup:
        """Raises GROUP_ID_NOT_FOUND, also for a group of another kind."""
        group = self.directory.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise no_such_group(group_id)
        return group

    def check_is_offered(self) -> None:
        """Raises UNSUPPORTED_VERSION if nobody is to speak the consumer protocol here."""
        is_finalized = (self.topics.image.features.get(GROUP_VERSION) or 0) >= 1
        if not is_finalized or _PROTOCOL not in self.settings.protocols:
            raise CoordinatorError(
                ErrorCode.UNSUPPORTED_VERSION, "The consumer group protocol is not enabled."
            )

    def intervals(self, group_id: str) -> ConsumerIntervals:
        return consumer_intervals(self.settings, self.topics.image, group_id)

    def new_group(self, group_id: str) -> ConsumerGroup:
        """One that nobody knows before its first records are replayed."""
        return ConsumerGroup(group_id, self.context.timeline, self.topics)

    # Steps.

    def take_place(self, draft: GroupDraft, old: ConsumerMember, member_id: str) -> None:
        """A static member comes back under a new id, and takes over what it had."""
        target = draft.target(old.member_id)
        draft.remove_member(old.member_id)
        draft.set_profile(member_id, old.profile)
        draft.set_target(member_id, target)
        draft.set_current(member_id, rejoining(old.current))

    def change_profile(self, draft: GroupDraft, member_id: str, profile: MemberProfile) -> bool:
        """Write what has changed; whether the group needs a new epoch for it."""
        member = draft.member(member_id)
        before = MemberProfile() if member is None else member.profile
        if member is None or profile != before:
            draft.set_profile(member_id, profile)
        if profile.topic_regex == before.topic_regex:
            return profile.topic_names != before.topic_names
        draft.drop_orphaned(before.topic_regex)
        # A new pattern changes nothing for others until it is resolved.
        is_known = not profile.topic_regex or draft.resolved(profile.topic_regex) is not None
        return profile.topic_names != before.topic_names or is_known

    def advance(
        self,
        draft: GroupDraft,
        member_id: str,
        *,
        owned: Partitions | None,
        has_subscription_changed: bool,
        is_bump_due: bool,
    ) -> ConsumerMember:
        """Lead a member on: epoch, target, and its next step."""
        self._renew_epoch(draft, is_bump_due=is_bump_due)
        now_ms = self.context.clock.wall_ms()
        if draft.epoch > draft.assignment_epoch and self._may_assign(draft.group, now_ms):
            draft.set_targets(make_target(draft, self.topics, self.assignors), now_ms)
        member = draft.member(member_id)
        if member is None:
            raise InternalInvariant("consumer-core.nobody-to-advance")
        current = member.current
        if not has_subscription_changed and current.is_stable_at(draft.assignment_epoch):
            return member
        reconciliation = Reconciliation(
            target_epoch=draft.assignment_epoch,
            target=draft.target(member_id),
            owned=owned,
            subscribed=frozenset(self.topics.ids(draft.subscription(member.profile))),
            has_subscription_changed=has_subscription_changed,
            is_free=lambda topic_id, partition: draft.is_free(topic_id, partition, member_id),
        )
        reconciled = reconciliation.next(current)
        if reconciled != current:
            draft.set_current(member_id, reconciled)
        return draft.member(member_id) or member

    def _renew_epoch(self, draft: GroupDraft, *, is_bump_due: bool) -> None:
        is_due = is_bump_due or not draft.epoch
        if not is_due and not draft.group.needs_refresh:
            return
        metadata_hash = self.topics.hash_of(draft.topic_names())
        if is_due or metadata_hash != draft.metadata_hash:
            draft.bump(metadata_hash)
        draft.is_refreshed = True

    def _may_assign(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether the last target is old enough. A clock that was set back counts as that."""
        last_ms = group.assignment_timestamp_ms.value
        interval_ms = self.intervals(group.group_id).assignment_interval_ms
        return last_ms <= 0 or not last_ms <= now_ms < last_ms + interval_ms

    def expel(self, draft: GroupDraft, member_ids: Sequence[str]) -> None:
        """Take members out, whose partitions are free from now on."""
        regexes: dict[str, None] = {}
        for member_id in member_ids:
            member = draft.member(member_id)
            if member is not None:
                regexes[member.profile.topic_regex] = None
                draft.remove_member(member_id)
        for regex in regexes:
            draft.drop_orphaned(regex)
        if not self.downgrade(draft):
            draft.bump(self.topics.hash_of(draft.topic_names()))

    # The end.

    def finish(self, draft: GroupDraft, answer: _Answer | None) -> Outcome[_Answer]:
        """Move the timers of all members that were changed, and make the outcome."""
        group = draft.group
        changed = draft.changed_members()
        for member_id, before, after in changed:
            if after is None:
                self.timers.forget(group.group_id, member_id)
            else:
                self.timers.moved(group.group_id, before, after)
        if draft.is_refreshed:
            group.needs_refresh = False
        if draft.conversion is not None:
            draft.conversion.begun()
        if not draft.records:
            return Outcome(answer=answer)
        if draft.epoch > group.epoch.value:
            log.info(
                "group=%r epoch=%d assignment_epoch=%d members=%d",
                group.group_id,
                draft.epoch,
                draft.assignment_epoch,
                draft.member_count(),
            )
            self._metrics.consumer_rebalances(1)
        member_ids = [member_id for member_id, _, _ in changed]
        settled = partial(self._settled, group.group_id, member_ids, draft.conversion)
        return Outcome(draft.records, answer, settled)

    def _settled(
        self,
        group_id: str,
        member_ids: Sequence[str],
        conversion: Conversion | None,
        error: CoordinatorError | None,
    ) -> None:
        """Lost records: the timers were moved for nothing, the hash was compared for nothing."""
        if error is None:
            return
        if conversion is not None:
            conversion.undone(error)
        group = self.directory.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return
        group.needs_refresh = True
        for member_id in member_ids:
            member = group.members.get(member_id)
            if member is not None:
                self.timers.restore(group_id, member)

    def _time_over(
        self, group_id: str, member_id: str, epoch: int | None, kind: str
    ) -> Outcome[None]:
        """A timer has rung; it may be about a member that is gone or has moved on."""
        group = self.directory.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return Outcome()
        member = group.members.get(member_id)
        if member is None:
            return Outcome()
        if epoch is not None and (
            member.current.member_epoch != epoch
            or member.current.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            return Outcome()
        log.info("group=%r member=%r expelled: its %s time is over", group_id, member_id, kind)
        draft = GroupDraft(group)
        self.expel(draft, [member_id])
        return self.finish(draft, None)


def rejoining(current: CurrentAssignment) -> CurrentAssignment:
    """What somebody has who begins anew: the same partitions, as of no epoch."""
    return CurrentAssignment(
        JOIN_EPOCH,
        JOIN_EPOCH,
        current.state,
        {
            topic_id: dict.fromkeys(epochs, JOIN_EPOCH)
            for topic_id, epochs in current.assigned.items()
        },
        current.pending_revocation,
    )
