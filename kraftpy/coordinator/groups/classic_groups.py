"""The classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, for groups of any kind.

A request to a consumer group that has members is passed on to those who serve it (classic_bridge).
Everything else is answered here, in Kafka's order of checks. What a member may not do is raised as
a CoordinatorError, before anything has changed.

A JoinGroup and a SyncGroup may have to wait for others. They return no answer then; the group has
their reply. If a group's first record is lost, the group is not in the directory any more, though
members may have come in between: they are told (`_guarded`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar, cast

from kraftpy.coordinator.groups.classic_bridge import ClassicMembers
from kraftpy.coordinator.groups.classic_group import ClassicGroup, ClassicState
from kraftpy.coordinator.groups.classic_member import (
    ClassicMember,
    JoinCall,
    SyncReply,
    new_member_id,
)
from kraftpy.coordinator.groups.classic_rebalance import ClassicRebalances
from kraftpy.coordinator.groups.classic_records import (
    ClassicGroupRecord,
    group_of_record,
    new_group_record,
)
from kraftpy.coordinator.groups.classic_static import ClassicReplacements
from kraftpy.coordinator.groups.classic_sync import ClassicAssignments
from kraftpy.coordinator.groups.directory import GroupDirectory
from kraftpy.coordinator.groups.group import Group, GroupType
from kraftpy.coordinator.groups.metrics import GroupMetrics
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorError, CoordinatorRecord, Outcome
from kraftpy.coordinator.ports import ShardContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.group_records import GroupMetadataKey, GroupMetadataValue
from kraftpy.protocol.schema.k11_join_group import JoinGroupResponse
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftpy.protocol.schema.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from kraftpy.world import Random

__all__ = ["ClassicGroups"]

_Response = TypeVar("_Response")

# Since this version a dynamic member is told its id before it is let in, so that a client which
# gives up and comes again does not leave members behind that nobody is.
_ASKS_FOR_MEMBER_ID: Final = 4


class ClassicGroups:
    __slots__ = (
        "_assignments",
        "_consumers",
        "_context",
        "_directory",
        "_max_size",
        "_random",
        "_rebalances",
        "_replacements",
        "_session_timeouts_ms",
    )

    def __init__(
        self,
        context: ShardContext,
        directory: GroupDirectory,
        settings: GroupSettings,
        random: Random,
        *,
        rebalances: ClassicRebalances,
        consumers: ClassicMembers,
        metrics: GroupMetrics,
    ) -> None:
        self._context = context
        self._directory = directory
        self._max_size = settings.max_size
        self._session_timeouts_ms = range(
            settings.min_session_timeout_ms, settings.max_session_timeout_ms + 1
        )
        self._random = random
        self._consumers = consumers
        self._rebalances = rebalances
        self._assignments = ClassicAssignments(context, rebalances, metrics)
        self._replacements = ClassicReplacements(rebalances)

    # Joining.

    def join(self, call: JoinCall) -> Outcome[JoinGroupResponse]:
        if call.request.session_timeout_ms not in self._session_timeouts_ms:
            raise CoordinatorError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self._directory.get(call.request.group_id)
        if group is None:
            return self._join_new_group(call, ())
        if group.group_type is GroupType.CONSUMER:
            if not group.is_empty:
                return self._consumers.join(group, call)
            return self._join_new_group(call, group.tombstones())
        if not isinstance(group, ClassicGroup):
            raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return self._guarded(group, self._join(group, call))

    def _join_new_group(
        self, call: JoinCall, tombstones: Sequence[CoordinatorRecord]
    ) -> Outcome[JoinGroupResponse]:
        """Make a group, in the place of one that has no members if there are tombstones."""
        if call.request.member_id:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        group = ClassicGroup(call.request.group_id, self._context.clock.wall_ms())
        record = new_group_record(group)
        outcome = self._join(group, call)
        return self._guarded(group, Outcome((*tombstones, record), outcome.answer))

    def _guarded(
        self, group: ClassicGroup, outcome: Outcome[JoinGroupResponse]
    ) -> Outcome[JoinGroupResponse]:
        """See to those who wait in a group that turns out never to have been."""

        def settled(error: CoordinatorError | None) -> None:
            if outcome.settled is not None:
                outcome.settled(error)
            if error is not None and self._directory.get(group.group_id) is not group:
                self._rebalances.forget(group, error)

        return Outcome(outcome.records, outcome.answer, settled)

    def _join(self, group: ClassicGroup, call: JoinCall) -> Outcome[JoinGroupResponse]:
        request = call.request
        if not self._has_room(group, request.member_id):
            self._rebalances.dismiss(group, request.member_id)
            full = JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
            return _with_answer(self._rebalances.advance(group), full)
        if not group.supports(request.protocol_type, call.protocols):
            raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id:
            return self._join_known(group, call)
        instance_id = request.group_instance_id
        member_id = new_member_id(
            call.client_id if instance_id is None else instance_id, self._random
        )
        if instance_id is not None and instance_id in group.static_members:
            return self._replacements.replace(group, call, member_id)
        if instance_id is None and call.api_version >= _ASKS_FOR_MEMBER_ID:
            group.pending_members.add(member_id)
            self._rebalances.watch_pending(group, member_id, request.session_timeout_ms)
            required = ErrorCode.MEMBER_ID_REQUIRED
            return Outcome(answer=JoinGroupResponse(error_code=required, member_id=member_id))
        return self._add(group, call, member_id)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether another one may come. One who was here before may come back.

        While members join, those who have joined count: the last ones to come are out of luck, be
        they old or new.
        """
        if group.is_empty:
            return True
        member = group.members.get(member_id)
        if group.state is ClassicState.PREPARING:
            is_counted = member is not None and member.is_joining
            return is_counted or group.joining_count < self._max_size
        return member is not None or len(group.members) < self._max_size

    def _add(
        self, group: ClassicGroup, call: JoinCall, member_id: str
    ) -> Outcome[JoinGroupResponse]:
        request = call.request
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            client_id=call.client_id,
            client_host=call.client_host,
            rebalance_timeout_ms=call.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=call.protocols,
        )
        member.is_new = True
        if group.state is ClassicState.PREPARING:
            group.has_late_joiner = True
        group.add(member, request.protocol_type)
        group.park_join(member, call.reply)
        self._rebalances.watch_new(group, member)
        return _without_answer(self._rebalances.begin_or_advance(group, f"{member_id} is new"))

    def _join_known(self, group: ClassicGroup, call: JoinCall) -> Outcome[JoinGroupResponse]:
        """One who has an id: a member, or somebody who was just given one."""
        request = call.request
        member_id = request.member_id
        if member_id in group.pending_members and request.group_instance_id is None:
            return self._add(group, call, member_id)
        group.validate_member(member_id, request.group_instance_id)
        member = group.members[member_id]
        is_unchanged = member.protocols == call.protocols
        is_leader = member_id == group.leader_id
        if group.state is ClassicState.COMPLETING and is_unchanged:
            # Our answer did not arrive.
            return Outcome(answer=group.join_answer(member_id, with_members=is_leader))
        if group.state is ClassicState.STABLE and is_unchanged and not is_leader:
            return Outcome(answer=group.join_answer(member_id, with_members=False))
        # A leader that joins again has reasons that can't be seen here: topics have changed.
        group.update(
            member,
            call.protocols,
            rebalance_timeout_ms=call.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
        )
        group.park_join(member, call.reply)
        reason = f"{member_id} joins again: {request.reason or 'not provided'}"
        return _without_answer(self._rebalances.begin_or_advance(group, reason))

    # Syncing.

    def sync(self, request: SyncGroupRequest, reply: SyncReply) -> Outcome[SyncGroupResponse]:
        group = self._of_member(request.group_id)
        if group.is_empty:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not isinstance(group, ClassicGroup):
            return self._consumers.sync(group, request, reply)
        return self._assignments.sync(group, request, reply)

    # Staying and leaving.

    def heartbeat(self, request: HeartbeatRequest) -> Outcome[HeartbeatResponse]:
        group = self._of_member(request.group_id)
        if not isinstance(group, ClassicGroup):
            return self._consumers.classic_heartbeat(group, request)
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
        self._rebalances.prolong(group, group.members[request.member_id])
        if group.state is ClassicState.PREPARING:
            raise CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)
        return Outcome(answer=HeartbeatResponse())

    def keep_alive(self, group: ClassicGroup, member_id: str) -> None:
        """A member that commits offsets is alive."""
        member = group.members.get(member_id)
        if member is not None:
            self._rebalances.prolong(group, member)

    def leave(self, request: LeaveGroupRequest) -> Outcome[LeaveGroupResponse]:
        """`request` names its members as version 3 does, in every version."""
        group = self._of_member(request.group_id)
        if not isinstance(group, ClassicGroup):
            return self._consumers.leave(group, request)
        answer = LeaveGroupResponse()
        has_changed = False
        for identity in request.members:
            response = MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id
            )
            answer.members.append(response)
            try:
                self._rebalances.dismiss(group, _leaving(group, identity))
                has_changed = True
            except CoordinatorError as error:
                response.error_code = error.code
        if not has_changed or group.is_empty:
            return Outcome(answer=answer)
        reason = f"members leave: {len(request.members)}"
        return _with_answer(self._rebalances.begin_or_advance(group, reason), answer)

    def _of_member(self, group_id: str) -> Group:
        """The group of somebody who says that it is a member of it."""
        group = self._directory.get(group_id)
        if group is None or group.group_type not in (GroupType.CLASSIC, GroupType.CONSUMER):
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # The log, and leadership.

    def replay(self, record: CoordinatorRecord, key: GroupMetadataKey) -> None:
        if isinstance(record, ClassicGroupRecord):
            self._directory.put(record.group)
        elif isinstance(record.value, GroupMetadataValue):
            self._directory.put(group_of_record(key.group, record.value))
        elif isinstance(self._directory.get(key.group), ClassicGroup):
            self._directory.remove(key.group)

    def loaded(self) -> None:
        for group in self._classic():
            self._rebalances.loaded(group, self._max_size)

    def unloaded(self) -> None:
        for group in self._classic():
            group.fail_waiting(CoordinatorError(ErrorCode.NOT_COORDINATOR))

    def _classic(self) -> list[ClassicGroup]:
        return [group for group in self._directory.all() if isinstance(group, ClassicGroup)]


def _leaving(group: ClassicGroup, identity: MemberIdentity) -> str:
    """The id of the member that is to go; an administrator may name a static one by its instance.

    Raises CoordinatorError.
    """
    instance_id = identity.group_instance_id
    if not identity.member_id:
        member_id = None if instance_id is None else group.static_members.get(instance_id)
        if member_id is None:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member_id
    if identity.member_id not in group.pending_members:
        group.validate_member(identity.member_id, instance_id)
    return identity.member_id


def _with_answer(outcome: Outcome[None], answer: _Response) -> Outcome[_Response]:
    return Outcome(outcome.records, answer, outcome.settled)


def _without_answer(outcome: Outcome[None]) -> Outcome[JoinGroupResponse]:
    """The answer comes by the reply that the group has; an outcome of None is one without."""
    return cast("Outcome[JoinGroupResponse]", outcome)
