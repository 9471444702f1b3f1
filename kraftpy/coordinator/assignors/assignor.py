"""What an assignor takes and gives, and how the groups of a broker find one by its name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kraftpy.protocol.ids import Uuid

__all__ = ["Assignor", "AssignorError", "Partitions", "Subscriber", "has_one_subscription"]

# Partitions by topic id; no topic without partitions.
Partitions: TypeAlias = Mapping[Uuid, frozenset[int]]


class AssignorError(Exception):
    """The input makes no sense; nothing is assigned."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member of the group as assignors see it.

    `topic_ids` are the topics it subscribes to, each once, in order of their ids; so two members
    with the same subscription have equal ones. `held` is what the last assignment gave it.
    """

    member_id: str
    topic_ids: tuple[Uuid, ...]
    instance_id: str | None = None
    held: Partitions = field(default_factory=dict)


# From the members and the partition counts of all topics that they subscribe to, to what each of
# the members is to have.
Assignor: TypeAlias = Callable[[Collection[Subscriber], Mapping[Uuid, int]], dict[str, Partitions]]


def has_one_subscription(subscribers: Iterable[Subscriber]) -> bool:
    """Whether all members subscribe to the same topics; true for none at all."""
    first: tuple[Uuid, ...] | None = None
    for subscriber in subscribers:
        if first is None:
            first = subscriber.topic_ids
        elif subscriber.topic_ids is not first and subscriber.topic_ids != first:
            return False
    return True
