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
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kraftpy.config.problems import ConfigurationError, Problem

__all__ = ["Property", "format_properties", "parse_properties"]

_BLANKS: Final = " \t\f"
_LINE_END: Final = r"\r\n|\r|\n"
_KEY_AND_VALUE: Final = r"(?s)((?:[^\\=: \t\f]|\\.)*)([ \t\f]*[=:]?[ \t\f]*)(.*)"
_ESCAPE: Final = r"(?s)\\(u.{0,4}|.)"
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SEPARATORS_IN_KEY: Final = r"([=: #!\\])"
_CONTROL_TO_ESCAPE: Final = str.maketrans({plain: f"\\{name}" for name, plain in _CONTROL.items()})


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
        found = re.fullmatch(_KEY_AND_VALUE, line)
        assert found is not None  # The pattern matches any text.
        try:
            key, value = _unescape(found[1]), _unescape(found[3])
        except ValueError as error:
            problems.append(Problem(f"{name} line {number}", None, str(error)))
            continue
        properties.pop(key, None)
        properties[key] = Property(key, value, number)
    if problems:
        raise ConfigurationError(problems)
    return list(properties.values())


def format_properties(properties: Mapping[str, str]) -> str:
    """A file that says this, one line for each key."""
    return "".join(f"{_escape_key(key)}={_escape(value)}\n" for key, value in properties.items())


def _escape_key(key: str) -> str:
    return re.sub(_SEPARATORS_IN_KEY, r"\\\1", key).translate(_CONTROL_TO_ESCAPE)


def _escape(value: str) -> str:
    """Blanks at the beginning would not count."""
    escaped = value.replace("\\", r"\\").translate(_CONTROL_TO_ESCAPE)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments and blank lines."""
    unfinished, first_number = "", 0
    for number, natural in enumerate(re.split(_LINE_END, text), start=1):
        line = natural.lstrip(_BLANKS)
        if not unfinished:
            if line.startswith(("#", "!")):
                continue
            first_number = number
        if (len(line) - len(line.rstrip("\\"))) % 2 == 1:
            unfinished += line[:-1]
            continue
        if unfinished or line:
            yield first_number, unfinished + line
        unfinished = ""
    if unfinished:
        yield first_number, unfinished


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = re.sub(_ESCAPE, _unescape_one, text)
    # Two units written apart make one character beyond the basic plane, as they do in Java.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _unescape_one(found: re.Match[str]) -> str:
    escape = found[1]
    if escape[0] != "u":
        return _CONTROL.get(escape, escape)
    if re.fullmatch("u[0-9a-fA-F]{4}", escape) is None:
        raise ValueError(f"\\{escape} is not \\u and four hexadecimal digits")
    return chr(int(escape[1:], 16))
