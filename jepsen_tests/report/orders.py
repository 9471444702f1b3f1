"""The order of a key's records as clients saw it: time downwards, offsets across.

Where two clients saw different values at one offset, both are marked. Only a stretch of offsets
around the first such place is shown, and only observations in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

from jepsen_tests.report.facts import micro_operations
from kraftpy.verify.history import Operation

__all__ = ["conflicts_of", "order_table"]

_AROUND: Final = 6
_MAX_ROWS: Final = 40


def _observations(operations: Sequence[Operation], key: int) -> Iterator[tuple[Operation, Any]]:
    """What each operation has seen of the key: pairs of offset and value."""
    for operation in operations:
        seen: list[Any] = []
        for kind, where, what in micro_operations(operation):
            if where == key:
                seen += what if kind == "poll" else [what]
        known = [record[:2] for record in seen if record[0] is not None]
        if known:
            yield operation, known


def conflicts_of(operations: Sequence[Operation], key: int) -> list[int]:
    """Offsets at which different values were seen."""
    values: dict[int, Any] = {}
    found: dict[int, None] = {}
    for _, seen in _observations(operations, key):
        for offset, value in seen:
            if values.setdefault(offset, value) != value:
                found[offset] = None
    return sorted(found)


def order_table(operations: Sequence[Operation], key: int, around: int) -> str:
    """HTML; `around` is the offset in its middle."""
    offsets = range(max(0, around - _AROUND), around + _AROUND + 1)
    conflicts = conflicts_of(operations, key)
    head = "".join(f"<td class=soft>{offset}</td>" for offset in offsets)
    rows = [f"<tr><td class=soft>operation</td>{head}</tr>"]
    for operation, seen in _observations(operations, key):
        here = {offset: value for offset, value in seen if offset in offsets}
        if not here or len(rows) > _MAX_ROWS:
            continue
        cells = []
        for offset in offsets:
            colour = " class=conflict" if offset in conflicts and offset in here else ""
            cells.append(f"<td{colour}>{escape(str(here.get(offset, '')))}</td>")
        name = f"{operation.index} {escape(operation.f)} by {escape(str(operation.process))}"
        rows.append(f"<tr><td>{name}</td>{''.join(cells)}</tr>")
    return f"<table class=orders>{''.join(rows)}</table>"
