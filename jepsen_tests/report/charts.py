"""The charts of a report, each an SVG over the time of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log10
from typing import Final

from jepsen_tests.report.drawing import LEFT, WIDTH, Plane, element, number, ticks
from jepsen_tests.report.facts import BINS, Facts, Reign

__all__ = [
    "availability_chart",
    "fault_chart",
    "latency_chart",
    "leader_chart",
    "rate_chart",
    "unseen_chart",
]

OUTCOMES: Final = ("ok", "fail", "info")
LANE: Final = 22
MAX_LANES: Final = 24
# Nodes have colours of their own, as many as can be told apart.
NODE_COLOURS: Final = 8
_LATENCY_ROWS: Final = 44
_MAX_DOTS: Final = 4_000


def _spans(facts: Facts) -> list[tuple[float, float]]:
    return [(band.start, band.end) for band in facts.bands if not band.note]


def fault_chart(facts: Facts) -> str:
    """A lane for each kind."""
    names = list(dict.fromkeys(band.name for band in facts.bands))
    plane = Plane.of(facts.seconds, max(1, len(names)) * LANE, "Faults over time")
    for row, name in enumerate(names):
        plane.lane(row * LANE + 14, name)
    for band in facts.bands:
        words = [f"{band.name}, {band.start:.1f} s to {band.end:.1f} s", *band.faults]
        words += [f"seen: {each}" for each in band.effects]
        plane.bar(
            band.start,
            band.end,
            names.index(band.name) * LANE + 3,
            LANE - 6,
            class_="missed" if band.note else "fault",
            rx=2,
            title="\n".join([*words, band.note] if band.note else words),
        )
    return plane.svg()


def rate_chart(facts: Facts) -> str:
    """Operations a second, one outcome on top of the other."""
    height = 120.0
    bin_seconds = facts.seconds / BINS
    highest = max((sum(each) for each in zip(*facts.rates.values(), strict=True)), default=0)
    top = max(highest / bin_seconds, 1.0)
    plane = Plane.of(facts.seconds, height, "Operations a second, by outcome")
    marks = [tick for tick in ticks(0, top, 4) if tick]
    plane.rows([(height - tick / top * height, f"{tick:g}/s") for tick in marks])
    floors = [0] * BINS
    for outcome in OUTCOMES:
        path = []
        for index, count in enumerate(facts.rates[outcome]):
            if not count:
                continue
            low = height - floors[index] / bin_seconds / top * height
            floors[index] += count
            high = height - floors[index] / bin_seconds / top * height
            left, right = plane.x(index * bin_seconds), plane.x((index + 1) * bin_seconds)
            path.append(
                f"M{number(left)} {number(low)}V{number(high)}H{number(right)}V{number(low)}z"
            )
        plane.add(element("path", d="".join(path), class_=outcome, title=outcome))
    plane.bands(_spans(facts))
    return plane.svg()


def latency_chart(facts: Facts) -> str:
    """On a logarithmic scale: a dot for each operation, or where they are many a tile for several,
    the darker the more.
    """
    height = 220.0
    low, high = _decades([each[1] for each in facts.latencies])
    plane = Plane.of(facts.seconds, height, "Latency of operations, by outcome")

    def y(milliseconds: float) -> float:
        share = (log10(max(milliseconds, 10.0**low)) - low) / (high - low)
        return height - min(1.0, share) * height

    plane.rows([(y(10.0**each), _duration(10.0**each)) for each in range(low, high + 1)])
    if len(facts.latencies) <= _MAX_DOTS:
        for at, milliseconds, outcome, kind in facts.latencies:
            tip = f"{kind} {outcome}, {_duration(milliseconds)} at {at:.2f} s"
            cx, cy = plane.x(at), y(milliseconds)
            plane.add(element("circle", cx=cx, cy=cy, r=1.8, class_=outcome, title=tip))
    else:
        _tiles(plane, facts, [y(each[1]) for each in facts.latencies])
    plane.bands(_spans(facts))
    return plane.svg()


def _tiles(plane: Plane, facts: Facts, heights: Sequence[float]) -> None:
    tiles: Counter[tuple[str, int, int]] = Counter()
    row_height = plane.height / _LATENCY_ROWS
    for (at, _, outcome, _), y in zip(facts.latencies, heights, strict=True):
        column = min(BINS - 1, int(at / facts.seconds * BINS))
        tiles[outcome, column, min(_LATENCY_ROWS - 1, int(y / row_height))] += 1
    most = max(tiles.values())
    width = facts.seconds / BINS
    for outcome in OUTCOMES:
        for (each, column, row), count in sorted(tiles.items()):
            if each == outcome:
                plane.bar(
                    column * width,
                    (column + 1) * width,
                    row * row_height,
                    row_height,
                    class_=outcome,
                    fill_opacity=f"{0.25 + 0.75 * log10(1 + count) / log10(1 + most):.2f}",
                    title=f"{count} {outcome} at {column * width:.1f} s",
                )


def leader_chart(facts: Facts) -> str:
    """A lane for each partition: who led it, in which epoch, and when replicas were missing."""
    names = sorted(facts.reigns, key=lambda name: (name != "controller", name))[:MAX_LANES]
    plane = Plane.of(facts.seconds, max(1, len(names)) * LANE, "Leaders over time")
    for row, name in enumerate(names):
        plane.lane(row * LANE + 14, name)
        most = max((len(each.isr) for each in facts.reigns[name]), default=0)
        for reign in facts.reigns[name]:
            _reign(plane, row * LANE, reign, most)
    plane.bands(_spans(facts))
    return plane.svg()


def _reign(plane: Plane, y: float, reign: Reign, most: int) -> None:
    leader = "nobody" if reign.leader < 0 else f"node {reign.leader}"
    in_sync = ", ".join(map(str, reign.isr)) or "nobody"
    tip = f"{leader} leads in epoch {reign.epoch} from {reign.start:.1f} s; in sync: {in_sync}"
    colour = "leaderless" if reign.leader < 0 else f"node{(reign.leader - 1) % NODE_COLOURS}"
    plane.bar(reign.start, reign.end, y + 3, LANE - 9, class_=colour, title=tip)
    if len(reign.isr) < most:
        plane.bar(reign.start, reign.end, y + LANE - 6, 3, class_="shrunk", title=tip)
    if plane.x(reign.end) - plane.x(reign.start) > 34:
        text = f"{reign.leader}·{reign.epoch}" if reign.leader >= 0 else "none"
        plane.add(element("text", text, x=plane.x(reign.start) + 4, y=y + 13, class_="inside"))


def availability_chart(facts: Facts) -> str:
    """A lane for each key that was unavailable at some time."""
    keys = sorted({gap.key for gap in facts.gaps})[:MAX_LANES]
    plane = Plane.of(facts.seconds, max(1, len(keys)) * LANE, "Times without a write, by key")
    for row, key in enumerate(keys):
        plane.lane(row * LANE + 14, f"key {key}")
    if not keys:
        text = f"no key was without an acknowledged write for {1:g} s or longer"
        plane.add(element("text", text, x=LEFT + 8, y=15, class_="tick"))
    for gap in facts.gaps:
        if gap.key in keys:
            tip = f"key {gap.key}: {gap.end - gap.start:.1f} s from {gap.start:.1f} s on"
            y = keys.index(gap.key) * LANE + 4
            plane.bar(gap.start, gap.end, y, LANE - 8, class_="gap", rx=2, title=tip)
    plane.bands(_spans(facts))
    return plane.svg()


def unseen_chart(facts: Facts) -> str:
    """Values that nobody has read yet, and how far readers are behind."""
    height = 90.0
    plane = Plane.of(facts.seconds, height, "Acknowledged values not read yet, and lag of readers")
    top = max(1, *facts.unseen)
    lag = max(0.1, *facts.lag)
    plane.rows([(0.0, f"{top:,} values"), (height, "0")])
    text = f"lag up to {lag:.1f} s"
    plane.add(element("text", text, x=WIDTH - 20, y=12, class_="tick end lag-text"))
    width = facts.seconds / BINS
    for values, most, colour in ((facts.unseen, top, "unseen"), (facts.lag, lag, "lag")):
        points = " ".join(
            f"{number(plane.x((index + 0.5) * width))},{number(height - value / most * height)}"
            for index, value in enumerate(values)
        )
        plane.add(element("polyline", points=points, class_=f"line {colour}"))
    plane.bands(_spans(facts))
    return plane.svg()


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Powers of ten that hold all of them."""
    smallest = max(min(values, default=1.0), 0.01)
    largest = max(max(values, default=10.0), smallest)
    low = int(log10(smallest) // 1)
    return low, max(low + 1, -int(-log10(largest) // 1))


def _duration(milliseconds: float) -> str:
    if milliseconds >= 1000:
        return (
            f"{milliseconds / 1000:g} s"
            if milliseconds % 1000 == 0
            else (f"{milliseconds / 1000:.1f} s")
        )
    return f"{milliseconds:g} ms" if milliseconds < 1 else f"{milliseconds:.0f} ms"
