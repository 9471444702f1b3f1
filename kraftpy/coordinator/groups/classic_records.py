"""Classic groups as records, and back.

The record of a group says what it is at the end of a rebalance. Where it is written, the group is
in memory already, and is more than its record; so the record carries the group along, and replay
has nothing to do but to put it into the directory. Where a log is loaded, the group is made of the
record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kraftpy.coordinator.groups.classic_group import ClassicGroup
from kraftpy.coordinator.groups.classic_member import ClassicMember, JoinProtocol
from kraftpy.coordinator.outcome import CoordinatorRecord
from kraftpy.protocol.schema.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

__all__ = ["ClassicGroupRecord", "group_of_record", "new_group_record", "registration"]

# The newest one without tagged fields, which is what Kafka writes.
_VALUE_VERSION: Final = 3
_NOT_SAID: Final = -1


@dataclass(slots=True)
class ClassicGroupRecord(CoordinatorRecord):
    """A record of a group that is in memory."""

    group: ClassicGroup = field(kw_only=True)


def new_group_record(group: ClassicGroup) -> ClassicGroupRecord:
    """Says that a group exists, whoever is about to join it."""
    value = GroupMetadataValue(
        protocol=None, leader=None, current_state_timestamp=group.state_timestamp_ms
    )
    return _record(group, value)


def registration(group: ClassicGroup, assignments: Mapping[str, bytes]) -> ClassicGroupRecord:
    """What the group is now, with the assignments that its members get; all must have one."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return _record(group, value)


def group_of_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group as it was when the record was written: at rest."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation = value.generation
    group.protocol_name = value.protocol
    if value.members:
        group.protocol_name = value.protocol or ""
    for each in value.members:
        if each.member_id in group.members or each.group_instance_id in group.static_members:
            # Nobody writes that, but anybody who may write to the topic can.
            continue
        is_old = each.rebalance_timeout == _NOT_SAID
        member = ClassicMember(
            each.member_id,
            each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout_ms=each.session_timeout if is_old else each.rebalance_timeout,
            session_timeout_ms=each.session_timeout,
            protocols=(JoinProtocol(group.protocol_name or "", bytes(each.subscription)),),
            assignment=bytes(each.assignment),
        )
        group.add(member, value.protocol_type)
    if value.leader is None or value.leader in group.members:
        group.leader_id = value.leader
    group.restore(value.protocol_type, value.current_state_timestamp)
    return group


def _record(group: ClassicGroup, value: GroupMetadataValue) -> ClassicGroupRecord:
    return ClassicGroupRecord(
        GroupMetadataKey(group=group.group_id), value, _VALUE_VERSION, group=group
    )
