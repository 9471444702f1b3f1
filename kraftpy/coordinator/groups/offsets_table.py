"""Something for each partition that a group has to do with, in a timeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from kraftpy.coordinator.timeline import Timeline, TimelineMap

__all__ = ["OffsetTable", "TopicPartition"]

_Value = TypeVar("_Value")
TopicPartition: TypeAlias = tuple[str, int]


class OffsetTable(Generic[_Value]):
    """By group, and in a group by topic and partition. A group without anything costs nothing."""

    __slots__ = ("_by_group", "_timeline")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._by_group: TimelineMap[str, TimelineMap[TopicPartition, _Value]] = TimelineMap(
            timeline
        )

    def get(self, group_id: str, partition: TopicPartition) -> _Value | None:
        values = self._by_group.get(group_id)
        return None if values is None else values.get(partition)

    def put(self, group_id: str, partition: TopicPartition, value: _Value) -> None:
        values = self._by_group.get(group_id)
        if values is None:
            values = self._by_group[group_id] = TimelineMap(self._timeline)
        values[partition] = value

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        values = self._by_group.get(group_id)
        if values is not None:
            values.pop(partition)
            if not values:
                self._by_group.pop(group_id)

    def count(self) -> int:
        return sum(len(values) for values in self._by_group.values())

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_group

    def group_ids(self) -> list[str]:
        return list(self._by_group)

    def of_group(self, group_id: str) -> list[tuple[TopicPartition, _Value]]:
        values = self._by_group.get(group_id)
        return [] if values is None else list(values.items())

    # As it is committed.

    def committed_get(self, group_id: str, partition: TopicPartition) -> _Value | None:
        values = self._by_group.committed_get(group_id)
        return None if values is None else values.committed_get(partition)

    def committed_of_group(self, group_id: str) -> Iterator[tuple[TopicPartition, _Value]]:
        values = self._by_group.committed_get(group_id)
        return iter(()) if values is None else values.committed_items()
