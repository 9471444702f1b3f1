"""What can be set for subscriptions to the metrics of clients."""

from __future__ import annotations

from typing import Final

from kraftpy.config.checks import distinct
from kraftpy.config.table import INT, LIST, MEDIUM, define

__all__ = ["KEYS"]

# A table, kept to three lines a key.
# fmt: off
KEYS: Final = (
    define("interval.ms",
           "Pause between two pushes of a client.",
           INT, 300_000, MEDIUM),
    define("match",
           "Which clients are meant: name=regular expression, comma-separated.",
           LIST, (), MEDIUM, distinct(empty=True)),
    define("metrics",
           "Prefixes of the metrics that are wanted; * for all.",
           LIST, (), MEDIUM, distinct(empty=True)),
)
