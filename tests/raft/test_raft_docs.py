"""The page about the quorum shows the table of transitions as it is.

`KRAFTPY_TRANSCRIPTS=write` writes the table into the page.
"""

from __future__ import annotations

import os
from pathlib import Path

from kraftpy.raft.roles import TRANSITIONS

PAGE = Path(__file__).parents[2] / "docs" / "raft.md"
BEGIN, END = "<!-- transitions -->\n", "<!-- end -->"


def test_the_page_has_the_table() -> None:
    """KRF-25"""
    rows = ["| From | To | Epoch | When |", "| --- | --- | --- | --- |"]
    rows += [
        f"| {each.origin} | {each.target} | {each.epoch.value} | {each.when} |"
        for each in TRANSITIONS
    ]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    stored, _, after = rest.partition(END)
    table = "\n".join(rows) + "\n"
    if os.environ.get("KRAFTPY_TRANSCRIPTS") == "write":
        PAGE.write_text(before + BEGIN + table + END + after)
    else:
        assert stored == table
