"""What the steps of a tier add up to (JEP-151, JEP-171), read from what they printed as JSON.

With the seeds goes how fast they were (JEP-150): simulated time by the time of a processor that it
took, whatever else that was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol

__all__ = ["Totals", "shortfalls"]

_HOUR: Final = 3600.0
WHOLE: Final = "whole"


class _Result(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def exit_code(self) -> int | None: ...

    @property
    def is_good(self) -> bool: ...

    @property
    def seconds(self) -> float: ...

    @property
    def output(self) -> str: ...


@dataclass(slots=True)
class Totals:
    seconds: float = 0.0
    kernel_seeds: int = 0
    kernel_hours: float = 0.0
    whole_seeds: int = 0
    whole_hours: float = 0.0
    runs: int = 0
    operations: int = 0
    power_cycles: int = 0
    fuzz_cases: int = 0
    soak_windows: int = 0
    kernel_processor_seconds: float = 0.0
    whole_processor_seconds: float = 0.0
    anomalies: dict[str, int] = field(default_factory=dict)
    """Bad ones, and codes of failed seeds, by their names."""
    failures: list[str] = field(default_factory=list)
    """Steps that were not good."""

    @classmethod
    def of(cls, results: Iterable[_Result]) -> Totals:
        totals = cls()
        for result in results:
            totals.seconds += result.seconds
            for facts in documents(result.output):
                totals._add(facts)
            if not result.is_good:
                code = result.exit_code
                why = "not over in time" if code is None else f"ended with code {code}"
                totals.failures.append(f"{result.name}: {why}")
        return totals

    def _add(self, facts: Mapping[str, Any]) -> None:
        if "level" in facts:
            self._add_seed(facts)
        elif "workload" in facts:
            self.runs += 1
            self.operations += sum(facts["operations"].values())
            self._count(each["name"] for each in facts["anomalies"] if each["bad"])
        elif facts.get("kind") == "power":
            self.power_cycles += facts["cycles"]
            self._count(text.split(":")[0] for text in facts["bad"])
        elif facts.get("kind") == "fuzz":
            self.fuzz_cases += facts["cases"]
            self._count(each["target"] for each in facts["failures"])
        elif facts.get("kind") == "soak":
            self.soak_windows += len(facts["windows"])
            self._count(text.split(":")[0] for text in facts["bad"])
        elif facts.get("kind") == "overload":
            self._count(text.split(":")[0] for text in facts["bad"])

    def _add_seed(self, facts: Mapping[str, Any]) -> None:
        hours = facts["virtual_seconds"] / _HOUR
        if facts["level"] == WHOLE:
            self.whole_seeds += 1
            self.whole_hours += hours
            self.whole_processor_seconds += facts["processor_seconds"]
        else:
            self.kernel_seeds += 1
            self.kernel_hours += hours
            self.kernel_processor_seconds += facts["processor_seconds"]
        if facts.get("code") is not None:
            self._count([facts["code"]])

    def _count(self, names: Iterable[str]) -> None:
        for name in names:
            self.anomalies[name] = self.anomalies.get(name, 0) + 1

    @property
    def kernel_speed(self) -> float:
        """How many times as fast as real time a processor is at it; 0 if it was not tried."""
        return _speed(self.kernel_hours, self.kernel_processor_seconds)

    @property
    def whole_speed(self) -> float:
        return _speed(self.whole_hours, self.whole_processor_seconds)

    def as_json(self) -> dict[str, Any]:
        speeds = {"kernel_speed": self.kernel_speed, "whole_speed": self.whole_speed}
        return {**asdict(self), **speeds}

    def lines(self) -> list[str]:
        """For people."""
        kernels = f"{self.kernel_seeds:,} seeds, {self.kernel_hours:,.1f} simulated hours"
        wholes = f"{self.whole_seeds:,} seeds, {self.whole_hours:,.2f} simulated hours"
        found = [
            f"{self.seconds / 60:.1f} minutes",
            f"L2: {kernels}, {self.kernel_speed:,.0f} times real time",
            f"L3: {wholes}, {self.whole_speed:,.1f} times real time",
            f"processes: {self.runs} runs, {self.operations:,} operations",
            f"{self.power_cycles} losses of power, {self.soak_windows} windows of soaks",
            f"fuzzing: {self.fuzz_cases:,} cases",
        ]
        found += [f"found {name}: {count} times" for name, count in sorted(self.anomalies.items())]
        return found + [f"failed: {each}" for each in self.failures]


def _speed(hours: float, processor_seconds: float) -> float:
    return hours * _HOUR / processor_seconds if processor_seconds else 0.0


def shortfalls(totals: Totals, asked: Mapping[str, float], scale: float) -> list[str]:
    """Where less was done than is asked for; a part of a tier is asked for as much less."""
    return [
        f"short of {name.replace('_', ' ')}: {getattr(totals, name):,.1f} of {least * scale:,.1f}"
        for name, least in asked.items()
        if getattr(totals, name) < least * scale
    ]


def documents(output: str) -> Iterator[Mapping[str, Any]]:
    """The JSON objects that a step printed: one for a line, one for all, or a list of them."""
    decoder = json.JSONDecoder()
    rest = output.strip()
    while rest:
        try:
            found, end = decoder.raw_decode(rest)
        except ValueError:
            # Words for people, between or instead of them.
            rest = rest.partition("\n")[2].lstrip()
            continue
        rest = rest[end:].lstrip()
        many: Sequence[Any] = found if isinstance(found, list) else [found]
        yield from (each for each in many if isinstance(each, dict))
