"""Groups as administrators see them: ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraftpy.coordinator.groups.classic_group import ClassicGroup, ClassicState
from kraftpy.coordinator.groups.classic_member import ClassicMember
from kraftpy.coordinator.groups.directory import GroupDirectory, no_such_group
from kraftpy.coordinator.groups.offsets import Offsets
from kraftpy.coordinator.outcome import CoordinatorError, CoordinatorRecord, Outcome
from kraftpy.protocol.schema.k15_describe_groups import DescribedGroup, DescribedGroupMember
from kraftpy.protocol.schema.k16_list_groups import ListedGroup
from kraftpy.protocol.schema.k42_delete_groups import DeletableGroupResult

__all__ = ["GroupListing"]

# What a group that is not there is said to be.
_DEAD: Final = "Dead"
# Since this version of DescribeGroups, a group that is not there is an error.
_KNOWS_NO_SUCH_GROUP: Final = 6


class GroupListing:
    __slots__ = ("_directory", "_offsets")

    def __init__(self, directory: GroupDirectory, offsets: Offsets) -> None:
        self._directory = directory
        self._offsets = offsets

    def listed(self, states: Sequence[str], types: Sequence[str]) -> list[ListedGroup]:
        """The groups in any of those states and of any of those types, in whatever case.

        Without a filter, all of them.
        """
        states = [each.lower() for each in states]
        types = [each.lower() for each in types]
        found = []
        for group in self._directory.committed_all():
            state = group.committed_state_name
            is_wanted = not states or state.lower() in states
            if is_wanted and (not types or group.group_type in types):
                found.append(
                    ListedGroup(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type,
                        group_state=state,
                        group_type=group.group_type.value,
                    )
                )
        return found

    def describe(self, group_ids: Sequence[str], api_version: int) -> list[DescribedGroup]:
        """Classic groups; those of another kind are described by other requests."""
        return [self._describe(group_id, api_version) for group_id in group_ids]

    def _describe(self, group_id: str, api_version: int) -> DescribedGroup:
        group = self._directory.committed_get(group_id)
        if isinstance(group, ClassicGroup):
            return _described(group)
        answer = DescribedGroup(group_id=group_id, group_state=_DEAD)
        if api_version >= _KNOWS_NO_SUCH_GROUP:
            error = no_such_group(group_id)
            answer.error_code = error.code
            answer.error_message = error.message
        return answer

    def delete(self, group_ids: Sequence[str]) -> Outcome[list[DeletableGroupResult]]:
        """Groups without members, and their offsets."""
        records: list[CoordinatorRecord] = []
        results = []
        # Whoever names a group twice has it deleted once.
        for group_id in dict.fromkeys(group_ids):
            result = DeletableGroupResult(group_id=group_id)
            results.append(result)
            try:
                group = self._directory.find(group_id)
                group.validate_delete()
            except CoordinatorError as error:
                result.error_code = error.code
                continue
            records += self._offsets.tombstones(group_id)
            records += group.tombstones()
        return Outcome(records, results)


def _described(group: ClassicGroup) -> DescribedGroup:
    # Otherwise members may not agree on a protocol.
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.committed_state_name,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            _described_member(member, group.protocol_name if is_stable else None)
            for member in group.members.values()
        ],
    )


def _described_member(member: ClassicMember, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment,
    )
