"""One thing that happened in a run, in words."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Note"]


@dataclass(frozen=True, slots=True)
class Note:
    """Of one node, or for 0 of none."""

    seconds: float
    node_id: int
    text: str
