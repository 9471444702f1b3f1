"""What a generator hands to the executor: one operation to do, in the words of the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from kraftpy.verify.history import Event

__all__ = ["Extras", "Generator", "Plan", "Reaction", "SlotState", "micro_plan"]

Extras: TypeAlias = Mapping[tuple[int, int], Mapping[str, Any]]
"""What records say besides their value, by (key, value)."""
Reaction: TypeAlias = Callable[[Mapping[int, list[list[Any]]]], tuple[list[list[Any]], Extras]]
"""From what was polled to what is sent in the same transaction."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot is one place for a client; its processes follow one another."""

    slot: int
    process: int
    is_fresh: bool
    """The process has done nothing yet: it has no assignment."""
    now_ms: int


@dataclass(frozen=True, slots=True)
class Plan:
    f: str
    value: Any = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    extras: Extras = field(default_factory=dict)
    reaction: Reaction | None = None


class Generator(Protocol):
    def next(self, state: SlotState) -> Plan | None:
        """What this slot does next; None: nothing for now."""
        ...

    def observe(self, event: Event) -> None:
        """An operation has ended."""
        ...


def micro_plan(
    micro: list[list[Any]],
    *,
    is_transactional: bool,
    extras: Extras | None = None,
) -> Plan:
    """An operation of sends and polls, tagged by what it is made of."""
    kinds = [each[0] for each in micro]
    f = kinds[0] if len(set(kinds)) == 1 else "txn"
    meta = {"transactional": True} if is_transactional else {}
    return Plan(f, micro, meta, extras or {})
