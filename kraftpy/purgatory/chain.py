"""A first-in, first-out list whose members carry their own links.

A member is in one chain at most and can be taken out of its middle in constant time, by whoever
holds the member: what timers need that are mostly cancelled, and watch lists whose operations
mostly end elsewhere. A dictionary could do that too; it takes twice the memory for a short list,
and one that was long stays slow to walk. The two links cost 16 bytes a member.

`chain` is None exactly while the member is in no chain. A member that was taken out refers to
nobody, so that it is freed at once and not by the garbage collector.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Self, TypeVar

from kraftpy.world import InternalInvariant

__all__ = ["Chain", "Linked"]


class Linked:
    """What can be in a chain. Compared by identity."""

    __slots__ = ("chain", "next", "previous")

    chain: Chain[Self] | None
    next: Self | None
    previous: Self | None

    def __init__(self) -> None:
        self.chain = None
        self.next = None
        self.previous = None


_Member = TypeVar("_Member", bound=Linked)


class Chain(Generic[_Member]):
    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first: _Member | None = None
        self.last: _Member | None = None

    def append(self, member: _Member) -> None:
        if member.chain is not None:
            raise InternalInvariant("chain.already-in-one")
        last = self.last
        member.chain = self
        member.previous = last
        if last is None:
            self.first = member
        else:
            last.next = member
        self.last = member

    def remove(self, member: _Member) -> None:
        if member.chain is not self:
            raise InternalInvariant("chain.not-in-this-one")
        before, behind = member.previous, member.next
        if before is None:
            self.first = behind
        else:
            before.next = behind
        if behind is None:
            self.last = before
        else:
            behind.previous = before
        member.chain = member.next = member.previous = None

    def __iter__(self) -> Iterator[_Member]:
        """Whoever changes the chain meanwhile iterates over a copy."""
        member = self.first
        while member is not None:
            yield member
            member = member.next
