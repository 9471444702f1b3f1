"""What a topic may be called.

Kafka's metrics write dots as underscores, so that two topics whose names differ in nothing else
would share theirs. The index knows existing topics by their names with every dot so written, and
only those that have either character: most names can't collide with anything.
"""

from __future__ import annotations

import re
from typing import Final

from kraftpy.metadata.changes import ImageChanges

__all__ = ["CLUSTER_METADATA_TOPIC", "TopicNames", "unified_name", "wrong_name"]

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"

MAX_NAME_LENGTH: Final = 249
_LEGAL_CHARACTERS: Final = r"[a-zA-Z0-9._-]*"


def wrong_name(name: str) -> str | None:
    """Why no topic may have this name; None if one may."""
    if not name:
        return "a topic name must not be empty"
    if name in (".", ".."):
        return "a topic name must not be '.' or '..'"
    if len(name) > MAX_NAME_LENGTH:
        return f"a topic name has at most {MAX_NAME_LENGTH} characters, this one {len(name)}"
    if re.fullmatch(_LEGAL_CHARACTERS, name) is None:
        return f"a topic name has only letters, digits, '.', '_' and '-', unlike {name!r}"
    return None


def unified_name(name: str) -> str | None:
    """What colliding names have in common; None for a name that collides with no other."""
    return name.replace(".", "_") if "." in name or "_" in name else None


class TopicNames:
    """Existing topics whose names could collide, by their unified names. Follows the image."""

    __slots__ = ("_by_unified_name",)

    def __init__(self) -> None:
        self._by_unified_name: dict[str, list[str]] = {}

    def update(self, changes: ImageChanges) -> None:
        for change in changes.topics:
            if change.before is None and change.after is not None:
                self._add(change.after.name)
            elif change.before is not None and change.after is None:
                self._remove(change.before.name)

    def colliding(self, name: str) -> str | None:
        """An existing topic that this name collides with; None without one."""
        unified = unified_name(name)
        others = self._by_unified_name.get(unified, []) if unified is not None else []
        return min(others, default=None)

    def _add(self, name: str) -> None:
        unified = unified_name(name)
        if unified is not None:
            self._by_unified_name.setdefault(unified, []).append(name)

    def _remove(self, name: str) -> None:
        unified = unified_name(name)
        if unified is None:
            return
        names = self._by_unified_name[unified]
        names.remove(name)
        if not names:
            del self._by_unified_name[unified]
