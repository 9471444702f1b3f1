"""Patterns of topic names that members give: RE2, matched against whole names.

A pattern comes from a client and is run for every topic of the cluster, so its cost is bounded.
Python's own `re` backtracks, and a pattern of twenty characters can keep it busy for hours. RE2
takes time in proportion to the name, and refuses what would break that (back-references and
look-around). The factor is the size of the compiled pattern, which therefore has a bound as well:
at this one, a name of 249 characters takes about a millisecond at worst. To compile a pattern takes
some milliseconds at most, which the other bounds see to.

The library is loaded when the first pattern comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "MAX_PATTERN_LENGTH",
    "MAX_PROGRAM_SIZE",
    "MAX_UNICODE_CLASSES",
    "Pattern",
    "compile_pattern",
]

MAX_PATTERN_LENGTH: Final = 4096
# In instructions of RE2; a pattern that people write has some dozens.
MAX_PROGRAM_SIZE: Final = 2000
# Such as \pL, which has hundreds of ranges: it takes a quarter of a millisecond to read one.
MAX_UNICODE_CLASSES: Final = 8
# Of one compiled pattern with what it caches.
_MAX_BYTES: Final = 1 << 20
# Enough for a program of the largest size: RE2 gives up early on what becomes much larger, which
# some patterns do that are short.
_TRIAL_BYTES: Final = 1 << 17


class Pattern(Protocol):
    @property
    def programsize(self) -> int: ...

    def fullmatch(self, text: str) -> object | None: ...


def compile_pattern(text: str) -> Pattern:
    """Raises INVALID_REGULAR_EXPRESSION."""
    if len(text) > MAX_PATTERN_LENGTH:
        raise _invalid(f"longer than {MAX_PATTERN_LENGTH} characters")
    if text.count(r"\p") + text.count(r"\P") > MAX_UNICODE_CLASSES:
        raise _invalid(f"more than {MAX_UNICODE_CLASSES} classes of Unicode")
    if _compiled(text, _TRIAL_BYTES).programsize > MAX_PROGRAM_SIZE:
        raise _invalid("too large")
    return _compiled(text, _MAX_BYTES)


def _compiled(text: str, max_bytes: int) -> Pattern:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = max_bytes
    make: Callable[..., Pattern] = re2.compile
    try:
        return make(text, options)
    except re2.error as error:
        reason = error.args[0]
        raise _invalid(reason.decode() if isinstance(reason, bytes) else str(reason)) from error
    except UnicodeError as error:
        raise _invalid(str(error)) from error


def _invalid(why: str) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"The subscribed pattern is not valid: {why}"
    )
