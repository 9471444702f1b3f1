"""What happened, for people: one line for each thing, one column for each node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from kraftpy.sim.whole.notes import Note

__all__ = ["timeline"]

_WIDTH = 26


def timeline(node_ids: Sequence[int], notes: Sequence[Note]) -> Iterator[str]:
    """The cluster's own column, which is for what befalls several, comes first."""
    columns = (0, *node_ids)
    titles = ["all", *(f"node {each}" for each in node_ids)]
    yield _line("seconds", titles)
    yield _line("-" * 9, ["-" * _WIDTH] * len(columns))
    for note in notes:
        column = columns.index(note.node_id) if note.node_id in columns else 0
        for number, words in enumerate(wrap(note.text, _WIDTH) or [""]):
            cells = [""] * len(columns)
            cells[column] = words
            yield _line(f"{note.seconds:9.3f}" if number == 0 else "", cells)


def _line(first: str, cells: Sequence[str]) -> str:
    padded = " | ".join(f"{cell:<{_WIDTH}}" for cell in cells)
    return f"{first:>9} | {padded}".rstrip(" |")
