"""Who of a classic group's members gets which partitions: the leader's computation.

An assignor is a name that all members must know, what it adds to a member's subscription, and a
function from partitions and members to an assignment. Those that are here are deterministic, so
that two leaders with the same facts agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kraftpy.client.assignors.assignor import (
    Assignor,
    CountingAssignor,
    GroupTopics,
    MemberAssignment,
    MemberSubscription,
)
from kraftpy.client.assignors.range import RangeAssignor
from kraftpy.client.assignors.roundrobin import RoundRobinAssignor
from kraftpy.client.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "Assignor",
    "AssignorChoice",
    "CountingAssignor",
    "GroupTopics",
    "MemberAssignment",
    "MemberSubscription",
    "make_assignors",
]

# The name of one that is here, or what makes one of the user's own: its class, mostly.
AssignorChoice: TypeAlias = str | Callable[[], Assignor]


def make_assignors(choices: Sequence[AssignorChoice]) -> dict[str, Assignor]:
    """One of each, in order, by their names. Raises ValueError for an unknown or a taken name."""
    known: dict[str, type[Assignor]] = {
        each.name: each
        for each in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
    }
    made: dict[str, Assignor] = {}
    for choice in choices:
        if not isinstance(choice, str):
            assignor = choice()
        elif choice in known:
            assignor = known[choice]()
        else:
            raise ValueError(f"{choice!r} is no assignor; there are {', '.join(known)}")
        name = assignor.name
        # Members with the same name must mean the same: who leads is not theirs to choose.
        if name in made or type(assignor) is not known.get(name, type(assignor)):
            raise ValueError(f"there is more than one assignor of the name {name!r}")
        made[name] = assignor
    return made
