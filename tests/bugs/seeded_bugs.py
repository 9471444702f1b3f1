"""Bugs that are put into the product on purpose, and how it is told whether a run finds one.

A suite is a list of bugs and a simulation that must find each of them within 500 seeds, whichever
they begin with. exam.py runs the suites.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.world import InternalInvariant

SEED_LIMIT = 500


@dataclass(frozen=True)
class Bug:
    """`owner.method` is replaced by `broken`."""

    name: str
    owner: type
    method: str
    broken: Callable[..., Any]

    @contextmanager
    def seeded(self) -> Iterator[None]:
        original = self.owner.__dict__[self.method]
        setattr(self.owner, self.method, self.broken)
        try:
            yield
        finally:
            setattr(self.owner, self.method, original)


def named(owner: type, method: str, broken: Any) -> Bug:
    """A bug that is called as the function is which makes it."""
    function = broken.fget if isinstance(broken, property) else broken
    return Bug(function.__name__.replace("_", " "), owner, method, broken)


@dataclass(frozen=True)
class Suite:
    """`run` a seed: it raises what it finds. `level` is for the table."""

    name: str
    level: str
    bugs: Sequence[Bug]
    run: Callable[[int], None]

    @property
    def seeds_path(self) -> Path:
        """Which seed finds which bug, as recorded by the last exam."""
        return Path(__file__).with_name(f"{self.name}_seeds.json")

    def recorded(self) -> dict[str, dict[str, Any]]:
        """By the name of a bug: seed, code, and how many seeds were tried."""
        return dict(json.loads(self.seeds_path.read_text()))

    def failure_of(self, seed: int) -> str | None:
        """The code of what a run is found guilty of."""
        try:
            self.run(seed)
        except InvariantViolated as violation:
            return violation.code
        except InternalInvariant as broken:
            return str(broken).split(":")[0].split()[0]
        return None

    def find(self, bug: Bug, first_seed: int) -> tuple[int, str] | None:
        """The seed that shows the bug, and as what."""
        with bug.seeded():
            for seed in range(first_seed, first_seed + SEED_LIMIT):
                code = self.failure_of(seed)
                if code is not None:
                    return seed, code
        return None
