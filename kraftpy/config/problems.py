"""What is wrong with a configuration, collected and said all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["BadValueError", "ConfigurationError", "Problem"]


class BadValueError(Exception):
    """One value can't be taken; the argument is the reason, in words that follow the value."""


class Problem(NamedTuple):
    key: str
    value: str | None
    """As it was given, `[hidden]` for a secret; None when the key is missing."""
    reason: str
    """What is wrong, and what to do."""
    origin: str = ""
    """Where the value was given."""

    def __str__(self) -> str:
        place = f" ({self.origin})" if self.origin else ""
        if self.value is None:
            return f"{self.key}: {self.reason}"
        return f"{self.key}={self.value}{place}: {self.reason}"


class ConfigurationError(Exception):
    """A configuration that no node starts with. Holds every problem, not just the first.

    `warnings` are what would not have refused it: a key that nobody knows may be why another one
    is missing.
    """

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[str] = ()) -> None:
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)
        super().__init__("\n".join(str(problem) for problem in problems))
