"""What a check says: a verdict, the anomalies it stands on, and figures about the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["Anomaly", "State", "Verdict"]

State: TypeAlias = Literal["valid", "invalid", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding. `operations` are the indexes of the invocations that are involved."""

    id: str
    name: str
    operations: tuple[int, ...]
    text: str
    key: int | None = None
    """The key that it is about, if it is about one."""
    is_bad: bool = True
    """Whether it fails the run; others are allowed by its configuration, or just information."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`invalid` with at least one bad anomaly; else `inconclusive` if there are `reasons` not to
    trust it, which are what the run did not exercise; else `valid`.
    """

    state: State
    anomalies: tuple[Anomaly, ...] = ()
    reasons: tuple[str, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bad(self) -> tuple[Anomaly, ...]:
        return tuple(anomaly for anomaly in self.anomalies if anomaly.is_bad)
