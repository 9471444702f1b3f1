"""Members of consumer groups that still speak the classic protocol.

While a group is moved from one protocol to the other, some of its members send JoinGroup, SyncGroup
and Heartbeat. They are led like all others, by target and reconciliation; only the words differ:

- JoinGroup brings the subscription and what the member owns. It does not wait for others. The
  generation in its answer is the member's epoch.
- SyncGroup gets what the member is assigned; nobody leads, nobody assigns.
- Heartbeat tells the member to join again when there is something new for it.

Such a member has to come back within its rebalance timeout when it was told to, and to sync when
it has joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraftpy.coordinator.groups.classic_group import CONSUMER_PROTOCOL
from kraftpy.coordinator.groups.classic_member import JoinCall, SyncReply, new_member_id
from kraftpy.coordinator.groups.consumer_core import ConsumerCore
from kraftpy.coordinator.groups.consumer_draft import GroupDraft
from kraftpy.coordinator.groups.consumer_embedded import (
    EmbeddedError,
    decode_subscription,
    embedded_version,
    encode_assignment,
    partitions_by_id,
)
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_member import (
    ClassicProfile,
    ConsumerMember,
    Held,
    MemberProfile,
    MemberState,
)
from kraftpy.coordinator.groups.group import Group
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.consumer_protocol import ConsumerProtocolSubscription
from kraftpy.protocol.schema.k11_join_group import JoinGroupResponse
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftpy.protocol.schema.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from kraftpy.world import InternalInvariant, Random

__all__ = ["ClassicMembersOfConsumerGroups", "by_name"]

# Since this version a dynamic member is told its id before it is let in.
_ASKS_FOR_MEMBER_ID: Final = 4


class ClassicMembersOfConsumerGroups:
    """See classic_bridge.ClassicMembers."""

    __slots__ = ("_core", "_downgrade", "_random")

    def __init__(
        self,
        core: ConsumerCore,
        random: Random,
        downgrade: Callable[[GroupDraft, str, JoinCall], bool],
    ) -> None:
        """`downgrade` makes a classic group of a draft, if it may, in which somebody joins."""
        self._core = core
        self._random = random
        self._downgrade = downgrade

    # Joining.

    def join(self, group: Group, call: JoinCall) -> Outcome[JoinGroupResponse]:
        core, request = self._core, call.request
        consumer_group = _consumer(group)
        draft = GroupDraft(consumer_group)
        self._check_join(draft, call)
        subscription = _subscription(call)
        instance_id = request.group_instance_id
        if not request.member_id and instance_id is None:
            member_id = new_member_id(call.client_id, self._random)
            if call.api_version >= _ASKS_FOR_MEMBER_ID:
                required = ErrorCode.MEMBER_ID_REQUIRED
                return Outcome(answer=JoinGroupResponse(error_code=required, member_id=member_id))
        else:
            member_id = request.member_id or new_member_id(instance_id or "", self._random)
        before = self._take_place(draft, call, member_id)
        profile = _profile(call, subscription)
        old_profile = MemberProfile() if before is None else before.profile
        is_bump_due = core.change_profile(draft, member_id, profile)
        was_mixed = consumer_group.classic_count.value < len(consumer_group.members)
        if was_mixed and self._downgrade(draft, member_id, call):
            return core.finish(draft, None)
        after = core.advance(
            draft,
            member_id,
            owned=partitions_by_id(subscription.owned_partitions, core.topics.image),
            has_subscription_changed=not profile.has_subscription_of(old_profile),
            is_bump_due=is_bump_due,
        )
        outcome = core.finish(
            draft,
            JoinGroupResponse(
                member_id=member_id,
                generation_id=after.current.member_epoch,
                protocol_type=CONSUMER_PROTOCOL,
                protocol_name=call.protocols[0].name,
            ),
        )
        core.timers.heard_of(group.group_id, after)
        core.timers.expect_sync(group.group_id, after)
        return outcome

    def _check_join(self, draft: GroupDraft, call: JoinCall) -> None:
        """Raises GROUP_MAX_SIZE_REACHED and INCONSISTENT_GROUP_PROTOCOL."""
        request, group = call.request, draft.group
        instance_id = request.group_instance_id
        is_known = request.member_id in group.members or (
            instance_id is not None and instance_id in group.static_members
        )
        if not is_known and len(group.members) >= self._core.settings.consumer_max_size:
            raise CoordinatorError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        known_to_others = [
            {name for name, _ in member.profile.classic.protocols}
            for member in group.members.values()
            if member.profile.classic is not None and member.member_id != request.member_id
        ]
        is_common = any(
            all(name in known for known in known_to_others) for name, _ in call.protocols
        )
        if request.protocol_type != CONSUMER_PROTOCOL or not is_common:
            raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _take_place(
        self, draft: GroupDraft, call: JoinCall, member_id: str
    ) -> ConsumerMember | None:
        """The member as it is; None for a new one. A static one may take its old place."""
        request = call.request
        instance_id = request.group_instance_id
        if instance_id is None:
            return draft.member(member_id)
        holder = draft.static_member(instance_id)
        if request.member_id:
            return draft.group.find_static_member(instance_id, request.member_id)
        if holder is None:
            return None
        self._core.take_place(draft, holder, member_id)
        return draft.member(member_id)

    # Syncing and staying.

    def sync(
        self, group: Group, request: SyncGroupRequest, reply: SyncReply
    ) -> Outcome[SyncGroupResponse]:
        core, consumer_group = self._core, _consumer(group)
        member, classic = _classic_member(
            consumer_group, request.member_id, request.group_instance_id
        )
        _check_generation(member, request.generation_id)
        protocol_name, metadata = classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (
            None,
            protocol_name,
        ):
            raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if consumer_group.epoch.value > member.current.member_epoch and not is_revoking:
            core.timers.expect_join(group.group_id, member)
            raise CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)
        core.timers.synced(group.group_id, member.member_id)
        core.timers.heard_of(group.group_id, member)
        assigned = by_name(member.current.assigned, core.topics.image)
        return Outcome(
            answer=SyncGroupResponse(
                protocol_type=CONSUMER_PROTOCOL,
                protocol_name=protocol_name,
                assignment=encode_assignment(assigned, embedded_version(metadata)),
            )
        )

    def classic_heartbeat(
        self, group: Group, request: HeartbeatRequest
    ) -> Outcome[HeartbeatResponse]:
        core, consumer_group = self._core, _consumer(group)
        member, _ = _classic_member(consumer_group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        core.timers.heard_of(group.group_id, member)
        if _has_news(consumer_group, member):
            core.timers.expect_join(group.group_id, member)
            raise CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)
        return Outcome(answer=HeartbeatResponse())

    # Leaving.

    def leave(self, group: Group, request: LeaveGroupRequest) -> Outcome[LeaveGroupResponse]:
        consumer_group = _consumer(group)
        answer = LeaveGroupResponse()
        leaving: dict[str, None] = {}
        for identity in request.members:
            response = MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id
            )
            answer.members.append(response)
            try:
                member_id = _leaving(consumer_group, identity)
                if member_id in leaving:
                    raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
                leaving[member_id] = None
            except CoordinatorError as error:
                response.error_code = error.code
        if not leaving:
            return Outcome(answer=answer)
        draft = GroupDraft(consumer_group)
        self._core.expel(draft, list(leaving))
        return self._core.finish(draft, answer)


def by_name(assigned: Held, image: MetadataImage) -> Mapping[str, Mapping[int, int]]:
    """The partitions of topics that exist, by the topics' names."""
    names = {topic_id: image.topic_names.get(topic_id) for topic_id in assigned}
    return {name: assigned[topic_id] for topic_id, name in names.items() if name is not None}


def _consumer(group: Group) -> ConsumerGroup:
    if not isinstance(group, ConsumerGroup):
        raise InternalInvariant("consumer-classic.not-a-consumer-group")
    return group


def _subscription(call: JoinCall) -> ConsumerProtocolSubscription:
    """What a member says of itself, with the protocol that it likes best."""
    try:
        return decode_subscription(call.protocols[0].metadata)
    except EmbeddedError as error:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The subscription can't be read: {error}"
        ) from error


def _profile(call: JoinCall, subscription: ConsumerProtocolSubscription) -> MemberProfile:
    request = call.request
    return MemberProfile(
        client_id=call.client_id,
        client_host=call.client_host,
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=call.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(subscription.topics))),
        classic=ClassicProfile(
            request.session_timeout_ms, tuple((name, metadata) for name, metadata in call.protocols)
        ),
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicProfile]:
    """Raises UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID."""
    if instance_id is None:
        member = group.find_member(member_id)
    else:
        member = group.find_static_member(instance_id, member_id)
    if member.profile.classic is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} speaks the consumer protocol."
        )
    return member, member.profile.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.current.member_epoch:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)


def _has_news(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether the member would get on by joining again."""
    current = member.current
    if current.member_epoch < group.epoch.value:
        return True
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if current.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    return all(
        group.holders.get((topic_id, partition)) in (None, member.member_id)
        for topic_id, partitions in group.target(member.member_id).items()
        for partition in partitions
    )


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> str:
    """The id of the member that is to go. Raises CoordinatorError.

    An administrator may name a static member by its instance alone, whatever it speaks.
    """
    instance_id = identity.group_instance_id
    if identity.member_id:
        return _classic_member(group, identity.member_id, instance_id)[0].member_id
    member_id = None if instance_id is None else group.static_members.get(instance_id)
    if member_id is None:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member_id
