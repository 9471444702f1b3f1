"""Which access control entries a filter means.

Deleting and listing entries go by the same filters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import AccessControlEntryRecord
from kraftpy.security.acl_terms import (
    WILDCARD,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

__all__ = ["AclFilter", "entry_of", "is_known"]


@dataclass(frozen=True, slots=True)
class AclFilter:
    """What entries must be like; None and ANY stand for everything.

    A name is compared as the pattern type says. LITERAL and PREFIXED: with the name of entries of
    that type. ANY: with the name of entries of either. MATCH: whether an entry would apply to a
    resource of that name.
    """

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def unknown_part(self) -> str | None:
        """A part that has a number which stands for nothing; None if there is none."""
        parts: tuple[tuple[str, int, type[IntEnum]], ...] = (
            ("resource type", self.resource_type, ResourceType),
            ("pattern type", self.pattern_type, PatternType),
            ("operation", self.operation, AclOperation),
            ("permission type", self.permission_type, AclPermission),
        )
        for name, number, known in parts:
            if not is_known(known, number):
                return f"{name} {number}"
        return None

    def matches(self, entry: AccessControlEntryRecord) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, entry.resource_type)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission_type in (AclPermission.ANY, entry.permission_type)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self._matches_pattern(entry)
        )

    def _matches_pattern(self, entry: AccessControlEntryRecord) -> bool:
        is_of_one_type = self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
        if is_of_one_type and self.pattern_type != entry.pattern_type:
            return False
        name = self.resource_name
        if name is None or name == entry.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if entry.pattern_type == PatternType.PREFIXED:
            return name.startswith(entry.resource_name)
        return entry.resource_name == WILDCARD

    def matching(self, image: MetadataImage) -> Iterator[AccessControlEntryRecord]:
        """The entries meant, in the order of their ids."""
        return (entry for entry in image.access_control_entries.values() if self.matches(entry))


def is_known(kind: type[IntEnum], number: int) -> bool:
    """Whether a number, other than UNKNOWN's, is one of a kind's."""
    return 0 < number <= max(kind)


def entry_of(record: AccessControlEntryRecord) -> AclEntry:
    """An entry without its id."""
    return AclEntry(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )
