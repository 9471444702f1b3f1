r"""Java's properties files.

A natural line ends at a line feed, a carriage return or both; an odd number of backslashes before
its end joins it with the next, whose leading blanks do not count. A line whose first visible
character is # or ! is a comment, which is never continued. The key ends at the first =, : or blank
that no backslash stands before; blanks around one separator do not count, those at the end of a
value do. A backslash makes t, n, r and f control characters, uXXXX a UTF-16 unit, and any other
character itself. A key that occurs again replaces its earlier value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kraftpy.config.problems import ConfigurationError, Problem

__all__ = ["Property", "parse_properties"]

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    key: str
    value: str
    line: int
    """The number of its first line, from 1."""


def parse_properties(text: str, name: str = "properties") -> list[Property]:
    """What a file says, in its order; ConfigurationError names the lines that can't be read."""
    properties: dict[str, Property] = {}
    problems = []
    for number, line in _logical_lines(text):
        key_end = _match_end(_KEY, line, 0)
        value_start = _match_end(_SEPARATOR, line, key_end)
        try:
            key, value = _unescape(line[:key_end]), _unescape(line[value_start:])
        except ValueError as error:
            problems.append(Problem(f"{name} line {number}", None, str(error)))
            continue
        properties.pop(key, None)
        properties[key] = Property(key, value, number)
    if problems:
        raise ConfigurationError(problems)
    return list(properties.values())


def _match_end(pattern: re.Pattern[str], line: str, start: int) -> int:
    found = pattern.match(line, start)
    return found.end() if found is not None else start


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments and blank lines."""
    unfinished: str | None = None
    first_number = 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_BLANKS)
        if unfinished is None:
            if line.startswith(("#", "!")):
                continue
            unfinished, first_number = "", number
        if (len(line) - len(line.rstrip("\\"))) % 2 == 1:
            unfinished += line[:-1]
            continue
        if unfinished or line:
            yield first_number, unfinished + line
        unfinished = None
    if unfinished:
        yield first_number, unfinished


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_unescape_one, text)
    # Two units written apart make one character beyond the basic plane, as they do in Java.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _unescape_one(found: re.Match[str]) -> str:
    escape = found[1]
    if escape[0] != "u":
        return _CONTROL.get(escape, escape)
    if re.fullmatch("u[0-9a-fA-F]{4}", escape) is None:
        raise ValueError(f"\\{escape} is not \\u and four hexadecimal digits")
    return chr(int(escape[1:], 16))
