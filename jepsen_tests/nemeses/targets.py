"""Whom a fault strikes: sets of nodes, drawn from the seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from jepsen_tests.cluster.errors import NotHereError

__all__ = ["SETS", "draw_nodes", "draw_one", "draw_text"]

SETS: Final = ("one", "minority", "majority", "all", "some")


def draw_nodes(random: Random, nodes: Sequence[int], sets: Sequence[str] = SETS) -> list[int]:
    """At least one; the kind of set is drawn, too. Raises NotHereError when there is nobody."""
    if not nodes:
        raise NotHereError("there is no node that this could befall now")
    count = len(nodes)
    match random.choice(list(sets)):
        case "one":
            wanted = 1
        case "minority":
            wanted = max(1, (count - 1) // 2)
        case "majority":
            wanted = count // 2 + 1
        case "all":
            wanted = count
        case _:
            wanted = random.randint(1, count)
    return sorted(random.sample(list(nodes), wanted))


def draw_one(random: Random, nodes: Sequence[int], otherwise: Sequence[int]) -> int:
    """One of these; if there are none, as when nobody leads, one of the others. Raises
    NotHereError when there is nobody at all.
    """
    if not nodes and not otherwise:
        raise NotHereError("there is no node that this could befall now")
    return random.choice(list(nodes or otherwise))


def draw_text(random: Random, texts: Sequence[str]) -> str:
    """Raises NotHereError when there is none."""
    if not texts:
        raise NotHereError("there is nothing that this could befall now")
    return random.choice(list(texts))
