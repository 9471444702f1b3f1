"""SVG by hand: elements whose texts and attributes are escaped, and a plane for charts.

All charts of a page have the same time axis and the same width, so that what stands above each
other happened at the same time. Colours are classes, which the page's style gives for light, dark
and paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import Any, Final

__all__ = ["WIDTH", "Plane", "element", "number", "ticks"]

WIDTH: Final = 1200
LEFT: Final = 130
RIGHT: Final = 16
_NICE: Final = (1, 2, 5, 10)


def number(value: float) -> str:
    """Short, for coordinates."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def element(name: str, body: str | None = None, **attributes: object) -> str:
    """`body` is taken as it is; `title` becomes a tip, and is escaped like all attributes."""
    title = attributes.pop("title", None)
    text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = ("" if title is None else f"<title>{escape(str(title))}</title>") + (body or "")
    return f"<{name}{text}>{inside}</{name}>" if inside or body == "" else f"<{name}{text}/>"


def _text(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers between the two."""
    span = max(high - low, 1e-9)
    power = 10 ** floor(log10(span / count))
    step = next(nice * power for nice in _NICE if nice * power * count >= span)
    first = ceil(low / step)
    return [each * step for each in range(first, floor(high / step) + 1)]


@dataclass(slots=True)
class Plane:
    """The area of one chart: time from left to right, something else from bottom to top."""

    seconds: float
    height: float
    label: str
    parts: list[str]

    @classmethod
    def of(cls, seconds: float, height: float, label: str) -> Plane:
        return cls(seconds, height, label, [])

    @property
    def width(self) -> float:
        return WIDTH - LEFT - RIGHT

    def x(self, seconds: float) -> float:
        return LEFT + max(0.0, min(1.0, seconds / self.seconds)) * self.width

    def add(self, *parts: str) -> None:
        self.parts += parts

    def bands(self, spans: Iterable[tuple[float, float]]) -> None:
        """Shade the times of faults, behind everything else."""
        for start, end in spans:
            left, right = self.x(start), self.x(end)
            self.parts.insert(
                0,
                element(
                    "rect",
                    x=left,
                    y=0,
                    width=max(1.0, right - left),
                    height=self.height,
                    class_="band",
                ),
            )

    def rows(self, marks: Sequence[tuple[float, str]]) -> None:
        """Lines across, at heights from the top, with what they stand for."""
        for y, text in marks:
            self.add(
                element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"),
                element("text", escape(text), x=LEFT - 8, y=y + 4, class_="tick end"),
            )

    def lane(self, y: float, text: str) -> None:
        """The name of a row of bars."""
        self.add(element("text", escape(text), x=LEFT - 8, y=y, class_="tick end"))

    def bar(self, start: float, end: float, y: float, height: float, **rest: Any) -> None:
        left, right = self.x(start), self.x(end)
        self.add(element("rect", x=left, y=y, width=max(1.5, right - left), height=height, **rest))

    def svg(self) -> str:
        marks = []
        for tick in ticks(0, self.seconds, 10):
            x = self.x(tick)
            marks.append(element("line", x1=x, x2=x, y1=0, y2=self.height, class_="grid"))
            text = f"{tick:g} s"
            marks.append(element("text", text, x=x, y=self.height + 15, class_="tick middle"))
        return element(
            "svg",
            "".join((*marks, *self.parts)),
            viewBox=f"0 -6 {WIDTH} {number(self.height + 28)}",
            role="img",
            aria_label=self.label,
        )
