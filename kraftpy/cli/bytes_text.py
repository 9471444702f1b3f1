"""Bytes of records as people and scripts can read them."""

from __future__ import annotations

from base64 import b64encode

__all__ = ["json_bytes", "printable"]


def json_bytes(value: bytes | None) -> str | dict[str, str] | None:
    """Text where it is text."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


def printable(text: str) -> str:
    """One line, and nothing that a terminal takes for a command."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
