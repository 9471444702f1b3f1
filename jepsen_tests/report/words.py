"""Numbers and lists as people read them."""

from __future__ import annotations

__all__ = ["joined", "milliseconds"]


def joined(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(each) for each in value)
    return str(value)


def milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1000:.2f} s" if value >= 1000 else f"{value:.1f} ms"
