"""Who of a classic group's members gets which partitions: the leader's computation.

An assignor is a name that all members must know, what it adds to a member's subscription, and a
function from partitions and members to an assignment. All of them are deterministic, so that two
leaders with the same facts agree.
"""

from __future__ import annotations

from kraftpy.client.assignors.assignor import Assignor, MemberSubscription
from kraftpy.client.assignors.range import RangeAssignor
from kraftpy.client.assignors.roundrobin import RoundRobinAssignor
from kraftpy.client.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = ["Assignor", "MemberSubscription", "assignors_named"]


def assignors_named(names: tuple[str, ...]) -> dict[str, Assignor]:
    """The assignors of these names, in order. Raises ValueError for one that is unknown."""
    known: dict[str, type[Assignor]] = {
        each.name: each
        for each in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
    }
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is no assignor; there are {', '.join(known)}")
    return {name: known[name]() for name in names}
