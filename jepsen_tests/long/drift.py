"""Does anything grow, or get slower, in a run of hours (section 8.4)?

A sample is taken at the end of each window, when the cluster is healed and calm. The first quarter
of the run is warm-up. From then on:

- resident memory of no node grows by 1 % an hour or more (the slope of a line through the samples,
  held against their mean);
- descriptors, threads and bytes on disk stay within a tenth of what they were (and a few);
- the 99th percentile of latencies in calm times stays within 20 % of the first hour's (and 5 ms).

Too few samples say nothing, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression, mean, median
from typing import Final

__all__ = ["LEAST_SAMPLES", "Sample", "drifts"]

LEAST_SAMPLES: Final = 8
MEMORY: Final = "memory"
FLAT: Final = {"descriptors": 8.0, "threads": 4.0, "disk": 64.0 * 1024 * 1024}
"""What may not grow by more than a tenth, and how much always may."""
LATENCY: Final = "p99"
_SLOPE_LIMIT: Final = 0.01
_GROWTH: Final = 1.1
_LATENCY_GROWTH: Final = 1.2
_LATENCY_SLACK_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True)
class Sample:
    """`values` by node (0 for clients) and name; bytes, counts or seconds."""

    hours: float
    values: Mapping[tuple[int, str], float]


def drifts(samples: Sequence[Sample]) -> list[str] | None:
    """What drifted, in words; None if there are too few samples to tell."""
    if len(samples) < LEAST_SAMPLES:
        return None
    settled = samples[len(samples) // 4 :]
    found = []
    for key in settled[0].values:
        node, name = key
        hours = [each.hours for each in settled if key in each.values]
        values = [each.values[key] for each in settled if key in each.values]
        if len(values) < 2:
            continue
        if name == MEMORY:
            slope = linear_regression(hours, values).slope / mean(values)
            if slope >= _SLOPE_LIMIT:
                found.append(f"memory of node {node} grows by {slope:.1%} an hour")
        elif name in FLAT:
            # Of three at each end the middle one: a single odd sample is no drift.
            first, last = median(values[:3]), median(values[-3:])
            if last > _GROWTH * first + FLAT[name]:
                found.append(f"{name} of node {node}: {first:.0f} at first, {last:.0f} in the end")
        elif name == LATENCY:
            first, last = median(values[:3]), median(values[-3:])
            if last > _LATENCY_GROWTH * first + _LATENCY_SLACK_SECONDS:
                found.append(
                    f"p99 was {first * 1000:.1f} ms at first, {last * 1000:.1f} in the end"
                )
    return found
