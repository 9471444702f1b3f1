"""Rare but legal choices, made by the seed (rule 12).

In each run a quarter of the sites is enabled, each with a probability of its own between 0.05 and
0.25; the others never fire. Leaving most out of a run finds more than having all in every run.
"""

from __future__ import annotations

from kraftpy.world import Rng

__all__ = ["Buggify"]

_ENABLED_SHARE = 0.25
_LEAST_PROBABILITY = 0.05
_GREATEST_PROBABILITY = 0.25


class Buggify:
    __slots__ = ("_probabilities", "_rng")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._probabilities: dict[str, float] = {}

    def __call__(self, site: str) -> bool:
        """Shall the rare choice be made here, now?"""
        random = self._rng.stream(site)
        probability = self._probabilities.get(site)
        if probability is None:
            enabled = random.random() < _ENABLED_SHARE
            drawn = random.uniform(_LEAST_PROBABILITY, _GREATEST_PROBABILITY)
            probability = self._probabilities[site] = drawn if enabled else 0.0
        return probability > 0 and random.random() < probability
