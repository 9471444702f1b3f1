"""Access control entries, found by the resource that somebody wants to use.

An entry concerns a resource if it is of its type and names it, or has `*` for a name, or is
prefixed and begins its name. Names are looked up in a table; so are prefixes, once for each length
that any has. So a lookup takes as many steps as there are different lengths, however many entries
there are, and not more than the name is long.

Entries are given out with their hosts in the form of `plain_address`, in which they are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kraftpy.protocol.ids import Uuid
from kraftpy.security.acl_terms import WILDCARD, AclEntry, PatternType
from kraftpy.security.address_quota import plain_address

__all__ = ["AclIndex"]

_NONE: Final[dict[Uuid, AclEntry]] = {}


class AclIndex:
    __slots__ = ("_of_types",)

    def __init__(self) -> None:
        self._of_types: dict[int, _OfType] = {}

    def add(self, acl_id: Uuid, entry: AclEntry) -> None:
        """An entry whose id is not there yet."""
        self._of_types.setdefault(entry.resource_type, _OfType()).add(acl_id, entry)

    def remove(self, acl_id: Uuid, entry: AclEntry) -> None:
        """An entry that is there."""
        self._of_types[entry.resource_type].remove(acl_id, entry)

    def about(self, resource_type: int, name: str) -> Iterator[AclEntry]:
        """The entries that concern a resource."""
        of_type = self._of_types.get(resource_type)
        return iter(()) if of_type is None else of_type.about(name)

    def of_type(self, resource_type: int) -> Iterator[AclEntry]:
        """All entries for resources of a type."""
        of_type = self._of_types.get(resource_type)
        return iter(()) if of_type is None else of_type.all()


class _OfType:
    """The entries for one type of resources."""

    __slots__ = ("_lengths", "_literal", "_prefixed")

    def __init__(self) -> None:
        # By resource name, then by id.
        self._literal: dict[str, dict[Uuid, AclEntry]] = {}
        self._prefixed: dict[str, dict[Uuid, AclEntry]] = {}
        # How many prefixes of each length there are.
        self._lengths: Counter[int] = Counter()

    def add(self, acl_id: Uuid, entry: AclEntry) -> None:
        name = entry.resource_name
        table = self._table(entry)
        if name not in table:
            table[name] = {}
            if table is self._prefixed:
                self._lengths[len(name)] += 1
        table[name][acl_id] = entry._replace(host=plain_address(entry.host))

    def remove(self, acl_id: Uuid, entry: AclEntry) -> None:
        name = entry.resource_name
        table = self._table(entry)
        del table[name][acl_id]
        if not table[name]:
            del table[name]
            if table is self._prefixed:
                self._lengths[len(name)] -= 1
                if not self._lengths[len(name)]:
                    del self._lengths[len(name)]

    def _table(self, entry: AclEntry) -> dict[str, dict[Uuid, AclEntry]]:
        return self._prefixed if entry.pattern_type == PatternType.PREFIXED else self._literal

    def about(self, name: str) -> Iterator[AclEntry]:
        yield from self._literal.get(name, _NONE).values()
        if name != WILDCARD:
            yield from self._literal.get(WILDCARD, _NONE).values()
        for length in self._lengths:
            if length <= len(name):
                yield from self._prefixed.get(name[:length], _NONE).values()

    def all(self) -> Iterator[AclEntry]:
        for table in (self._literal, self._prefixed):
            for entries in table.values():
                yield from entries.values()
