"""ConsumerGroupHeartbeat: all that a member of a consumer group ever says (KIP-848).

One request joins, stays, changes the subscription, reports what was given up, and leaves; which, is
in the member epoch: 0 to join, the last one heard to stay, -1 to leave, -2 to leave for a while as
a static member. The answer has the epoch to use next, and what the member may read if that changed.

A member whose answer was lost repeats its last request. It is then one epoch behind, which is
accepted if what it owns is a part of what it is assigned; any other epoch means that the group has
gone on without the member, which has to give everything up and join anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from kraftpy.coordinator.assignors.assignor import Partitions
from kraftpy.coordinator.groups.consumer_core import ConsumerCore, rejoining
from kraftpy.coordinator.groups.consumer_draft import GroupDraft
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NOTHING_HELD,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    CurrentAssignment,
    Held,
    MemberProfile,
    MemberState,
    gathered,
    partitions_of,
)
from kraftpy.coordinator.groups.group import Group
from kraftpy.coordinator.groups.regex_pattern import compile_pattern
from kraftpy.coordinator.groups.regex_refresh import RegexRefresh
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import format_uuid, random_uuid
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kraftpy.world import Random

__all__ = ["ConsumerHeartbeats"]

# From this version on the member id is the client's to make.
_VERSION_WITH_OWN_ID: Final = 1


class ConsumerHeartbeats:
    __slots__ = ("_core", "_random", "_regexes", "_upgrade")

    def __init__(
        self,
        core: ConsumerCore,
        regexes: RegexRefresh,
        random: Random,
        upgrade: Callable[[Group], GroupDraft],
    ) -> None:
        """`upgrade` drafts a consumer group from one of another kind, or refuses to."""
        self._core = core
        self._regexes = regexes
        self._random = random
        self._upgrade = upgrade

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        api_version: int,
        client_id: str,
        client_host: str,
        may_describe: Callable[[str], bool],
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        self._core.check_is_offered()
        _check(request, api_version)
        assignor = request.server_assignor
        if assignor is not None and assignor not in self._core.assignors:
            raise CoordinatorError(
                ErrorCode.UNSUPPORTED_ASSIGNOR, f"There is no assignor {assignor}."
            )
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(request)
        return self._stay(request, client_id, client_host, may_describe)

    # Joining and staying.

    def _stay(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        may_describe: Callable[[str], bool],
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        core = self._core
        draft = self._draft(request)
        owned = _owned(request)
        member_id = request.member_id or format_uuid(random_uuid(self._random))
        before = self._find_member(draft, request, member_id, owned)
        profile = _updated(before, request, client_id, client_host)
        old_profile = MemberProfile() if before is None else before.profile
        regex = profile.topic_regex
        if regex != old_profile.topic_regex and regex and not draft.has_readers(regex):
            compile_pattern(regex)
        is_bump_due = core.change_profile(draft, member_id, profile)
        after = core.advance(
            draft,
            member_id,
            owned=owned,
            has_subscription_changed=not profile.has_subscription_of(old_profile),
            is_bump_due=is_bump_due,
        )
        outcome = core.finish(draft, self._answer(request, before, after))
        core.timers.heard_of(request.group_id, after)
        self._regexes.start_if_due(draft, may_describe)
        return outcome

    def _draft(self, request: ConsumerGroupHeartbeatRequest) -> GroupDraft:
        core, group_id = self._core, request.group_id
        if request.member_epoch != JOIN_EPOCH:
            return GroupDraft(core.find(group_id))
        group = core.directory.get(group_id)
        if group is None:
            return GroupDraft(core.new_group(group_id))
        if isinstance(group, ConsumerGroup):
            return GroupDraft(group)
        return self._upgrade(group)

    def _find_member(
        self,
        draft: GroupDraft,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        owned: Partitions | None,
    ) -> ConsumerMember | None:
        """The member as it is; None for a new one. A static one may take its old place."""
        group, instance_id = draft.group, request.instance_id
        if request.member_epoch != JOIN_EPOCH:
            if instance_id is None:
                member = group.find_member(member_id)
            else:
                member = group.find_static_member(instance_id, member_id)
            _check_epoch(member.current, request.member_epoch, owned)
            return member
        known = draft.member(member_id)
        holder = None if instance_id is None else draft.static_member(instance_id)
        if holder is not None and holder.member_id != member_id:
            is_free = holder.current.member_epoch == STATIC_LEAVE_EPOCH or holder.is_classic
            if not is_free:
                raise CoordinatorError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Instance id {instance_id} is in use by member {holder.member_id}.",
                )
            self._core.take_place(draft, holder, member_id)
            return draft.member(member_id)
        if known is None and draft.member_count() >= self._core.settings.consumer_max_size:
            raise CoordinatorError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"Group {group.group_id} has as many members as it may have.",
            )
        return known

    def _answer(
        self,
        request: ConsumerGroupHeartbeatRequest,
        before: ConsumerMember | None,
        after: ConsumerMember,
    ) -> ConsumerGroupHeartbeatResponse:
        answer = ConsumerGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.current.member_epoch,
            heartbeat_interval_ms=self._core.intervals(request.group_id).heartbeat_interval_ms,
        )
        has_changed = before is None or not _is_same(
            before.current.assigned, after.current.assigned
        )
        if request.member_epoch == JOIN_EPOCH or _is_full(request) or has_changed:
            answer.assignment = _assignment(after.current.assigned)
        return answer

    # Leaving.

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        core = self._core
        group = core.find(request.group_id)
        if request.instance_id is None:
            member = group.find_member(request.member_id)
        else:
            member = group.find_static_member(request.instance_id, request.member_id)
        draft = GroupDraft(group)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            draft.set_current(member.member_id, _put_aside(member.current))
        else:
            core.expel(draft, [member.member_id])
        answer = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        return core.finish(draft, answer)


def _put_aside(current: CurrentAssignment) -> CurrentAssignment:
    """What a static member keeps while it is away."""
    return replace(
        rejoining(current).at_epoch(STATIC_LEAVE_EPOCH),
        state=MemberState.STABLE,
        pending_revocation=NOTHING_HELD,
    )


def _check(request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
    """Raises INVALID_REQUEST for what makes no sense whatever the group is like."""
    epoch = request.member_epoch
    needs_id = api_version >= _VERSION_WITH_OWN_ID or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    is_join = epoch == JOIN_EPOCH
    has_subscription = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    problems: Sequence[tuple[bool, str]] = (
        (needs_id and not request.member_id, "There is no member id."),
        (not request.group_id, "There is no group id."),
        (request.instance_id == "", "An instance id has at least one character."),
        (request.rack_id == "", "A rack id has at least one character."),
        (
            is_join and request.rebalance_timeout_ms == -1,
            "Who joins must give a rebalance timeout.",
        ),
        (
            is_join and (request.topic_partitions is None or bool(request.topic_partitions)),
            "Who joins must list its partitions, and must have none.",
        ),
        (is_join and not has_subscription, "Who joins must give names of topics or a pattern."),
        (
            epoch == STATIC_LEAVE_EPOCH and request.instance_id is None,
            "Who leaves for a while must give an instance id.",
        ),
        (epoch < STATIC_LEAVE_EPOCH, f"There is no member epoch {epoch}."),
    )
    for is_problem, message in problems:
        if is_problem:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, message)


def _check_epoch(current: CurrentAssignment, epoch: int, owned: Partitions | None) -> None:
    """Raises FENCED_MEMBER_EPOCH, unless the member is up to date or one lost answer behind."""
    if epoch == current.member_epoch:
        return
    if epoch < current.member_epoch and epoch == current.previous_epoch and owned is not None:
        assigned = current.assigned
        if all(
            partitions <= assigned.get(topic_id, {}).keys()
            for topic_id, partitions in owned.items()
        ):
            return
    raise CoordinatorError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member's epoch is {current.member_epoch}, not {epoch}; it must rejoin.",
    )


def _updated(
    member: ConsumerMember | None,
    request: ConsumerGroupHeartbeatRequest,
    client_id: str,
    client_host: str,
) -> MemberProfile:
    """What a member brings now; what its request leaves out is as it was."""
    old = MemberProfile() if member is None else member.profile
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    return MemberProfile(
        client_id=client_id,
        client_host=client_host,
        instance_id=_or(request.instance_id, old.instance_id),
        rack_id=_or(request.rack_id, old.rack_id),
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=old.topic_names if names is None else tuple(sorted(set(names))),
        topic_regex=_or(request.subscribed_topic_regex, old.topic_regex) or "",
        server_assignor=_or(request.server_assignor, old.server_assignor),
    )


def _or(new: str | None, old: str | None) -> str | None:
    return old if new is None else new


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    topics = request.topic_partitions
    if topics is None:
        return None
    return gathered((topic.topic_id, topic.partitions) for topic in topics)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says all, as it does when it is not sure what was heard of it."""
    return (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def _is_same(before: Held, after: Held) -> bool:
    return before is after or partitions_of(before) == partitions_of(after)


def _assignment(assigned: Held) -> Assignment:
    return Assignment(topic_partitions=list(_topic_partitions(assigned)))


def _topic_partitions(assigned: Held) -> Iterable[TopicPartitions]:
    for topic_id in sorted(assigned):
        yield TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
