"""The groups of a shard, of every kind, by their ids.

Only replay puts groups in or takes them out.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.coordinator.groups.group import Group
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.timeline import Timeline, TimelineMap
from kraftpy.protocol.errors import ErrorCode

__all__ = ["GroupDirectory", "no_such_group"]


class GroupDirectory:
    __slots__ = ("_groups",)

    def __init__(self, timeline: Timeline) -> None:
        self._groups: TimelineMap[str, Group] = TimelineMap(timeline)

    def __len__(self) -> int:
        return len(self._groups)

    # As it is now.

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def find(self, group_id: str) -> Group:
        """Raises GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if group is None:
            raise no_such_group(group_id)
        return group

    def all(self) -> list[Group]:
        return list(self._groups.values())

    # As it is committed.

    def committed_get(self, group_id: str) -> Group | None:
        return self._groups.committed_get(group_id)

    def committed_all(self) -> Iterator[Group]:
        for _, group in self._groups.committed_items():
            yield group

    # For replay.

    def put(self, group: Group) -> None:
        """Add a group, or replace the one of the same id."""
        if self._groups.get(group.group_id) is not group:
            self._groups[group.group_id] = group

    def remove(self, group_id: str) -> Group | None:
        return self._groups.pop(group_id)


def no_such_group(group_id: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
