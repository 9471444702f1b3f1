"""Groups that change from the classic protocol to that of KIP-848, and back, with their members.

Up: a member of the consumer protocol joins a classic group. The group becomes a consumer group of
the same generation, in which all others are classic members that have what they had.

Down: the last member of the consumer protocol leaves a group in which classic members are left, or
one of these takes its place. The group becomes a classic one of the same epoch and rebalances,
since the classic protocol has no other way to share out what has become free.

A conversion is records like any other change: those of one kind are deleted and those of the other
written, in one batch. What is soft (timers, requests that wait) is moved when the records are on
their way, and moved back if they are lost.
"""

from __future__ import annotations

from kraftpy.coordinator.assignors.assignor import Partitions
from kraftpy.coordinator.groups.classic_group import CONSUMER_PROTOCOL, ClassicGroup
from kraftpy.coordinator.groups.classic_member import ClassicMember, JoinCall, JoinProtocol
from kraftpy.coordinator.groups.classic_rebalance import ClassicRebalances
from kraftpy.coordinator.groups.classic_records import registration
from kraftpy.coordinator.groups.consumer_classic import by_name
from kraftpy.coordinator.groups.consumer_core import ConsumerCore
from kraftpy.coordinator.groups.consumer_draft import GroupDraft
from kraftpy.coordinator.groups.consumer_embedded import (
    EmbeddedError,
    decode_assignment,
    decode_subscription,
    embedded_version,
    encode_assignment,
    partitions_by_id,
)
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_member import (
    ClassicProfile,
    ConsumerMember,
    CurrentAssignment,
    Held,
    MemberProfile,
    MemberState,
)
from kraftpy.coordinator.groups.directory import no_such_group
from kraftpy.coordinator.groups.group import Group
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.consumer_protocol import ConsumerProtocolSubscription

__all__ = ["Migration"]


class Migration:
    __slots__ = ("_core", "_rebalances")

    def __init__(self, core: ConsumerCore, rebalances: ClassicRebalances) -> None:
        self._core = core
        self._rebalances = rebalances

    # Up.

    def upgrade(self, group: Group) -> GroupDraft:
        """A consumer group in the place of a classic one. Raises GROUP_ID_NOT_FOUND."""
        if not isinstance(group, ClassicGroup):
            raise no_such_group(group.group_id)
        draft = GroupDraft(self._core.new_group(group.group_id))
        draft.records += group.tombstones()
        draft.conversion = _Upgrade(self._core, self._rebalances, group, draft)
        if not group.is_empty:
            self._check_upgrade(group)
            self._take_over(group, draft)
        return draft

    def _check_upgrade(self, group: ClassicGroup) -> None:
        settings = self._core.settings
        if (
            not settings.consumer_migration_policy.allows_upgrade
            or group.protocol_type != CONSUMER_PROTOCOL
            or len(group.members) > settings.consumer_max_size
        ):
            raise no_such_group(group.group_id)

    def _take_over(self, group: ClassicGroup, draft: GroupDraft) -> None:
        """Members, epoch and assignments as they are."""
        image, epoch = self._core.topics.image, group.generation
        assigned: dict[str, Partitions] = {}
        owned: dict[str, Partitions] = {}
        try:
            for member_id, member in group.members.items():
                subscription = decode_subscription(member.protocols[0].metadata)
                assignment = decode_assignment(member.assignment)
                draft.set_profile(member_id, _profile_of(member, subscription))
                assigned[member_id] = partitions_by_id(assignment.assigned_partitions, image)
                owned[member_id] = partitions_by_id(subscription.owned_partitions, image)
        except EmbeddedError as error:
            raise no_such_group(group.group_id) from error
        taken = _Taken()
        held = {member_id: taken.take(each, epoch) for member_id, each in assigned.items()}
        if taken.has_conflict:
            # Members that share partitions by their own rules can't be led by ours.
            raise no_such_group(group.group_id)
        draft.set_epoch(epoch, self._core.topics.hash_of(draft.topic_names()))
        draft.set_targets(assigned, timestamp_ms=0)
        for member_id in group.members:
            # What a member owned when it joined and is not assigned, it may own until it rejoins.
            pending = taken.take(owned[member_id], epoch)
            state = MemberState.UNREVOKED_PARTITIONS if pending else MemberState.STABLE
            current = CurrentAssignment(epoch, epoch, state, held[member_id], pending)
            draft.set_current(member_id, current)

    # Down.

    def downgrade(
        self, draft: GroupDraft, joining_id: str | None = None, call: JoinCall | None = None
    ) -> bool:
        """Make a classic group of one with classic members only; False if that may not be.

        The member with `joining_id` waits, by `call`, for the generation that is to come.
        """
        settings, members = self._core.settings, draft.members()
        if (
            not members
            or not all(member.is_classic for member in members)
            or not settings.consumer_migration_policy.allows_downgrade
            or len(members) > settings.max_size
        ):
            return False
        now_ms = self._core.context.clock.wall_ms()
        group = ClassicGroup(draft.group.group_id, now_ms)
        group.generation = draft.epoch
        assignments = {}
        for member in members:
            classic_member = self._classic_member(member)
            group.add(classic_member, CONSUMER_PROTOCOL)
            assignments[member.member_id] = classic_member.assignment
        group.protocol_name = group.select_protocol()
        # Without a leader it rebalances as soon as it is loaded, here or by another coordinator.
        group.leader_id = None
        group.restore(CONSUMER_PROTOCOL, now_ms)
        draft.records[:] = (*draft.group.tombstones(), registration(group, assignments))
        conversion = _Downgrade(self._core, self._rebalances, draft.group, group)
        if joining_id is not None and call is not None:
            conversion.waiting = group.members[joining_id], call
        draft.conversion = conversion
        return True

    def _classic_member(self, member: ConsumerMember) -> ClassicMember:
        profile = member.profile
        if profile.classic is None:
            raise no_such_group(member.member_id)
        protocols = profile.classic.protocols
        assigned = by_name(member.current.assigned, self._core.topics.image)
        return ClassicMember(
            member.member_id,
            profile.instance_id,
            client_id=profile.client_id,
            client_host=profile.client_host,
            rebalance_timeout_ms=profile.rebalance_timeout_ms,
            session_timeout_ms=profile.classic.session_timeout_ms,
            protocols=tuple(JoinProtocol(name, metadata) for name, metadata in protocols),
            assignment=encode_assignment(assigned, embedded_version(protocols[0][1])),
        )


class _Upgrade:
    """See consumer_draft.Conversion."""

    __slots__ = ("_core", "_draft", "_group", "_rebalances")

    def __init__(
        self,
        core: ConsumerCore,
        rebalances: ClassicRebalances,
        group: ClassicGroup,
        draft: GroupDraft,
    ) -> None:
        self._core = core
        self._rebalances = rebalances
        self._group = group
        self._draft = draft

    def begun(self) -> None:
        """Whoever waits joins again, and finds a consumer group."""
        waiting = CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalances.forget(self._group, waiting)
        for member in self._draft.members():
            self._core.timers.restore(self._group.group_id, member)

    def undone(self, error: CoordinatorError) -> None:
        group = self._group
        for member in self._draft.members():
            self._core.timers.forget(group.group_id, member.member_id)
        # Nothing rings any more for ids that were given out; who has one will ask for another.
        group.pending_members.clear()
        _resume(self._core, self._rebalances, group.group_id)


class _Downgrade:
    """See consumer_draft.Conversion."""

    __slots__ = ("_after", "_before", "_core", "_rebalances", "waiting")

    def __init__(
        self,
        core: ConsumerCore,
        rebalances: ClassicRebalances,
        before: ConsumerGroup,
        after: ClassicGroup,
    ) -> None:
        self._core = core
        self._rebalances = rebalances
        self._before = before
        self._after = after
        # Who joins the classic group at this moment.
        self.waiting: tuple[ClassicMember, JoinCall] | None = None

    def begun(self) -> None:
        group = self._after
        for member_id in (*self._before.members, *group.members):
            self._core.timers.forget(group.group_id, member_id)
        self._rebalances.loaded(group, self._core.settings.max_size)
        if self.waiting is not None:
            member, call = self.waiting
            group.park_join(member, call.reply)

    def undone(self, error: CoordinatorError) -> None:
        self._rebalances.forget(self._after, error)
        _resume(self._core, self._rebalances, self._after.group_id)


def _resume(core: ConsumerCore, rebalances: ClassicRebalances, group_id: str) -> None:
    """Start the timers of the group that is there now.

    That need not be the one that was converted: with these records, others before them may have
    been lost.
    """
    group = core.directory.get(group_id)
    if isinstance(group, ConsumerGroup):
        core.timers.start_all(group)
    elif isinstance(group, ClassicGroup):
        rebalances.resume(group, core.settings.max_size)


class _Taken:
    """Partitions that somebody has, of several who may claim one."""

    __slots__ = ("_partitions", "has_conflict")

    def __init__(self) -> None:
        self._partitions: set[tuple[Uuid, int]] = set()
        self.has_conflict = False

    def take(self, claimed: Partitions, epoch: int) -> Held:
        """Those that nobody has taken yet."""
        taken: dict[Uuid, dict[int, int]] = {}
        for topic_id in claimed:
            for partition in sorted(claimed[topic_id]):
                if (topic_id, partition) in self._partitions:
                    self.has_conflict = True
                else:
                    self._partitions.add((topic_id, partition))
                    taken.setdefault(topic_id, {})[partition] = epoch
        return taken


def _profile_of(member: ClassicMember, subscription: ConsumerProtocolSubscription) -> MemberProfile:
    return MemberProfile(
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(subscription.topics))),
        classic=ClassicProfile(
            member.session_timeout_ms,
            tuple((name, metadata) for name, metadata in member.protocols),
        ),
    )
