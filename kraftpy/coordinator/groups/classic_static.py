"""A static member that comes back under a new id takes its old place, mostly without a rebalance.

In a Stable group nothing changes but the id, unless the members would now choose another protocol.
The new id is stored before it is told, because the coordinator that comes next must know it; if it
can't be stored, the old one holds. While a group is assigning, the leader has been told the old id
already, so that all have to meet again.
"""

from __future__ import annotations

from typing import Final

from kraftpy.coordinator.groups.classic_group import ClassicGroup, ClassicState
from kraftpy.coordinator.groups.classic_member import ClassicMember, JoinCall
from kraftpy.coordinator.groups.classic_rebalance import ClassicRebalances
from kraftpy.coordinator.groups.classic_records import registration
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.protocol.schema.k11_join_group import JoinGroupResponse
from kraftpy.world import InternalInvariant

__all__ = ["ClassicReplacements"]

# Since this version a leader can be told not to assign. An older one must take itself for a
# follower, so it gets the id of the leader that it was.
_CAN_SKIP_ASSIGNMENT: Final = 9


class ClassicReplacements:
    __slots__ = ("_rebalances",)

    def __init__(self, rebalances: ClassicRebalances) -> None:
        self._rebalances = rebalances

    def replace(
        self, group: ClassicGroup, call: JoinCall, new_id: str
    ) -> Outcome[JoinGroupResponse]:
        """`call` comes with an instance id that a member of the group has."""
        instance_id = call.request.group_instance_id
        if instance_id is None or group.is_empty:
            raise InternalInvariant("classic-static.nobody-to-replace")
        old_id = group.static_members[instance_id]
        replacement = _Replacement(self._rebalances, group, group.members[old_id], new_id)
        if call.api_version >= _CAN_SKIP_ASSIGNMENT:
            replacement.leader_id = None
        member = group.replace_static(old_id, new_id)
        group.update(
            member,
            call.protocols,
            rebalance_timeout_ms=call.rebalance_timeout_ms,
            session_timeout_ms=call.request.session_timeout_ms,
        )
        group.park_join(member, call.reply)
        self._rebalances.prolong(group, member)
        if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol_name:
            assignments = {each_id: each.assignment for each_id, each in group.members.items()}
            return Outcome([registration(group, assignments)], settled=replacement.stored)
        reason = f"static member {instance_id} is back as {new_id}"
        outcome = self._rebalances.begin_or_advance(group, reason)
        return Outcome(outcome.records, None, outcome.settled)


class _Replacement:
    """A member that has a new id, which is on its way into the log."""

    __slots__ = (
        "_group",
        "_member",
        "_new_id",
        "_old_id",
        "_old_protocols",
        "_old_rebalance_timeout_ms",
        "_old_session_timeout_ms",
        "_rebalances",
        "leader_id",
    )

    def __init__(
        self,
        rebalances: ClassicRebalances,
        group: ClassicGroup,
        member: ClassicMember,
        new_id: str,
    ) -> None:
        """`member` is still the old one."""
        self._rebalances = rebalances
        self._group = group
        self._member = member
        self._new_id = new_id
        self._old_id = member.member_id
        self._old_protocols = member.protocols
        self._old_rebalance_timeout_ms = member.rebalance_timeout_ms
        self._old_session_timeout_ms = member.session_timeout_ms
        # Whom the member is told to follow; None for the real leader, even if that is itself.
        self.leader_id = group.leader_id

    def stored(self, error: CoordinatorError | None) -> None:
        group, member = self._group, self._member
        if group.members.get(self._new_id) is not member:
            # It is gone again, or has been replaced once more, and was told so.
            return
        if error is not None:
            self._give_back(error)
        elif group.state is ClassicState.STABLE:
            group.answer_join(member, self._answer())
            # It may have been silent, and spared for it, while it waited for this.
            self._rebalances.prolong(group, member)
        # If the group rebalances meanwhile, the member has joined like everybody else.

    def _answer(self) -> JoinGroupResponse:
        group = self._group
        if self.leader_id is not None:
            answer = group.join_answer(self._new_id, with_members=False)
            answer.leader = self.leader_id
            return answer
        is_leader = self._new_id == group.leader_id
        return group.join_answer(self._new_id, with_members=is_leader, skips_assignment=is_leader)

    def _give_back(self, error: CoordinatorError) -> None:
        """The log has the old id."""
        self._group.answer_join(self._member, error)
        self._group.update(
            self._member,
            self._old_protocols,
            rebalance_timeout_ms=self._old_rebalance_timeout_ms,
            session_timeout_ms=self._old_session_timeout_ms,
        )
        self._group.replace_static(self._new_id, self._old_id)
        self._rebalances.prolong(self._group, self._member)
