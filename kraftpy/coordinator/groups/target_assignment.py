"""The target of a consumer group: which assignor makes it, and from what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kraftpy.coordinator.assignors.assignor import (
    Assignor,
    AssignorError,
    Partitions,
    Subscriber,
)
from kraftpy.coordinator.assignors.range import assign_ranges
from kraftpy.coordinator.assignors.uniform import assign_uniformly
from kraftpy.coordinator.groups.consumer_draft import GroupDraft
from kraftpy.coordinator.groups.consumer_member import ConsumerMember
from kraftpy.coordinator.groups.consumer_topics import ConsumerTopics
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid

__all__ = ["Assignors", "make_target"]

_KNOWN: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}


class Assignors:
    """Those that are configured, the default first."""

    __slots__ = ("_by_name",)

    def __init__(self, names: Sequence[str]) -> None:
        """Raises ValueError for names that there is no assignor of."""
        unknown = [name for name in names if name not in _KNOWN]
        if unknown or not names:
            raise ValueError(f"group.consumer.assignors has unknown or no assignors: {names}")
        self._by_name = {name: _KNOWN[name] for name in names}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def chosen(self, members: Iterable[ConsumerMember]) -> str:
        """The one that most members ask for, of those that are as many the first configured.

        A member may have asked for one that is no longer configured; that counts for nothing.
        """
        votes = dict.fromkeys(self._by_name, 0)
        for member in members:
            name = member.profile.server_assignor
            if name in votes:
                votes[name] += 1
        return max(votes, key=votes.__getitem__)

    def __getitem__(self, name: str) -> Assignor:
        return self._by_name[name]


def make_target(
    draft: GroupDraft, topics: ConsumerTopics, assignors: Assignors
) -> dict[str, Partitions]:
    """What each member is to have. Raises UNKNOWN_SERVER_ERROR if the assignor can't say."""
    members = draft.members()
    ids_of: dict[tuple[str, ...], tuple[Uuid, ...]] = {}
    subscribers = []
    for member in members:
        names = draft.subscription(member.profile)
        topic_ids = ids_of.get(names)
        if topic_ids is None:
            topic_ids = ids_of[names] = topics.ids(names)
        subscribers.append(
            Subscriber(
                member.member_id,
                topic_ids,
                member.profile.instance_id,
                draft.target(member.member_id),
            )
        )
    counts = {
        topic_id: topics.partition_count(topic_id)
        for topic_ids in ids_of.values()
        for topic_id in topic_ids
    }
    name = assignors.chosen(members)
    try:
        return assignors[name](subscribers, counts)
    except AssignorError as error:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The {name} assignor failed: {error}"
        ) from error
