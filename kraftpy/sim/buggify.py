"""Rare but legal choices, made by the seed (rule 12).

In each run a quarter of the sites is enabled, each with a probability of its own between 0.05 and
0.25; the others never fire. Leaving most out of a run finds more than having all in every run.

A site is a place in product code that calls `buggify`, or `dawdle`, with its own name.
`product_sites` finds them all in the source.
"""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from kraftpy.world import Rng

__all__ = ["Buggify", "product_sites"]

_ENABLED_SHARE = 0.25
_LEAST_PROBABILITY = 0.05
_GREATEST_PROBABILITY = 0.25
_SITE: Final = re.compile(r"(?:buggify|dawdle)\(\s*\"([a-z-]+)\"\s*\)")


class Buggify:
    __slots__ = ("_probabilities", "_rng", "fired")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._probabilities: dict[str, float] = {}
        # By site that was asked for, how often the rare choice was made.
        self.fired: dict[str, int] = {}

    def __call__(self, site: str) -> bool:
        """Shall the rare choice be made here, now?"""
        random = self._rng.stream(site)
        probability = self._probabilities.get(site)
        if probability is None:
            enabled = random.random() < _ENABLED_SHARE
            drawn = random.uniform(_LEAST_PROBABILITY, _GREATEST_PROBABILITY)
            probability = self._probabilities[site] = drawn if enabled else 0.0
            self.fired[site] = 0
        if probability > 0 and random.random() < probability:
            self.fired[site] += 1
            return True
        return False


def product_sites() -> list[str]:
    """The names of all sites, as often as they stand in the source."""
    return sorted(_sites_below(files("kraftpy")))


def _sites_below(place: Traversable) -> list[str]:
    found: list[str] = []
    for entry in place.iterdir():
        if entry.is_dir():
            found += _sites_below(entry)
        elif entry.name.endswith(".py"):
            found += _SITE.findall(entry.read_text())
    return found
