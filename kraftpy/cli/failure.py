"""How a command fails: one message that says what is wrong and what to do next."""

from __future__ import annotations

__all__ = [
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_INVARIANT",
    "EXIT_USAGE",
    "CommandFailed",
]

EXIT_FAILED = 1
EXIT_USAGE = 2
# A node stopped itself because its own state was wrong (sysexits.h calls it EX_SOFTWARE).
EXIT_INVARIANT = 70
EXIT_INTERRUPTED = 130


class CommandFailed(Exception):  # noqa: N818 (it names what happened)
    """The command can't go on; the message is for the person at the terminal."""

    def __init__(self, message: str, *, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
