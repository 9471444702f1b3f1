"""The second half of a rebalance: the leader's assignment is stored, and everybody gets its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from kraftpy.coordinator.groups.classic_group import ClassicGroup, ClassicState
from kraftpy.coordinator.groups.classic_member import ClassicMember, SyncReply
from kraftpy.coordinator.groups.classic_rebalance import ClassicRebalances
from kraftpy.coordinator.groups.classic_records import registration
from kraftpy.coordinator.groups.metrics import GroupMetrics
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.coordinator.ports import ShardContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["ClassicAssignments"]

log = logging.getLogger(__name__)

_WAITS: Final[Outcome[SyncGroupResponse]] = Outcome()


class ClassicAssignments:
    __slots__ = ("_context", "_metrics", "_rebalances")

    def __init__(
        self, context: ShardContext, rebalances: ClassicRebalances, metrics: GroupMetrics
    ) -> None:
        self._context = context
        self._rebalances = rebalances
        self._metrics = metrics

    def sync(
        self, group: ClassicGroup, request: SyncGroupRequest, reply: SyncReply
    ) -> Outcome[SyncGroupResponse]:
        """To a group that has members."""
        _validate(group, request)
        if group.state is ClassicState.PREPARING:
            raise CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)
        member = group.members[request.member_id]
        self._rebalances.synced(group, member)
        if group.state is ClassicState.STABLE:
            self._rebalances.prolong(group, member)
            return Outcome(answer=_answer(group, member))
        member.park_sync(reply)
        if member.member_id != group.leader_id or group.is_storing_assignment:
            return _WAITS
        return self._store(group, request)

    def _store(self, group: ClassicGroup, request: SyncGroupRequest) -> Outcome[SyncGroupResponse]:
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        missing = [member_id for member_id in group.members if member_id not in given]
        if missing:
            log.warning("group %r: members without assignment: %s", group.group_id, missing)
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        group.is_storing_assignment = True
        return Outcome(
            [registration(group, assignments)],
            settled=partial(self._stored, group, group.generation, assignments),
        )

    def _stored(
        self,
        group: ClassicGroup,
        generation: int,
        assignments: Mapping[str, bytes],
        error: CoordinatorError | None,
    ) -> None:
        """Nothing comes of it if the group has begun another rebalance meanwhile."""
        if group.state is not ClassicState.COMPLETING or group.generation != generation:
            return
        if error is None:
            self._hand_out(group, assignments)
            return
        group.is_storing_assignment = False
        self._rebalances.refuse_assignment(group, error)
        self._context.submit(partial(self._try_again, group, generation))

    def _hand_out(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        group.assigned(self._context.clock.wall_ms())
        self._metrics.completed_rebalances(1)
        for member in list(group.members.values()):
            member.assignment = assignments.get(member.member_id, b"")
            if member.answer_sync(_answer(group, member)):
                # It may have been silent, and spared for it, while it waited for this.
                self._rebalances.prolong(group, member)

    def _try_again(self, group: ClassicGroup, generation: int) -> Outcome[None]:
        if group.state is not ClassicState.COMPLETING or group.generation != generation:
            return Outcome()
        return self._rebalances.begin(group, "the assignment could not be stored")


def _validate(group: ClassicGroup, request: SyncGroupRequest) -> None:
    group.validate_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
    # Older clients say neither, and may say either.
    is_other_type = request.protocol_type not in (None, group.protocol_type)
    is_other_name = request.protocol_name not in (None, group.protocol_name)
    if is_other_type or (is_other_name and group.protocol_name is not None):
        raise CoordinatorError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _answer(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
