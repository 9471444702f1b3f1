"""Uuids as the wire has them: 16 raw bytes.

A topic id is compared, hashed and used as a dictionary key far more often than it is shown. Raw
`bytes` do that at C speed, fuse with neighbouring fields into one `struct` call, and cost one
object; `uuid.UUID` costs a Python-level constructor for each field of each message. The NewType
keeps the two kinds of bytes apart for mypy.

As text, Kafka writes URL-safe base64 without padding: 22 characters.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, NewType

if TYPE_CHECKING:
    from kraftpy.world import Random

__all__ = ["ZERO_UUID", "Uuid", "format_uuid", "hyphenated_uuid", "parse_uuid", "random_uuid"]

Uuid = NewType("Uuid", bytes)

# Stands for "none" everywhere on the wire; a uuid is never null.
ZERO_UUID = Uuid(bytes(16))

_TEXT_LENGTH = 22
_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def format_uuid(uuid: Uuid) -> str:
    """The 22 characters that Kafka's tools print."""
    return binascii.b2a_base64(uuid, newline=False).rstrip(b"=").translate(_TO_URL_SAFE).decode()


def hyphenated_uuid(uuid: Uuid) -> str:
    """The usual 36 characters, which stand in the ids of a group's members."""
    text = uuid.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def parse_uuid(text: str) -> Uuid:
    """The uuid behind those 22 characters; ValueError for anything else.

    Only the canonical text is taken: one uuid has one spelling, so that texts can be compared.
    """
    try:
        raw = binascii.a2b_base64(text.encode("ascii").translate(_FROM_URL_SAFE) + b"==")
    except ValueError as failure:
        raise ValueError(f"not a uuid: {text!r}") from failure
    uuid = Uuid(raw)
    if len(text) != _TEXT_LENGTH or len(raw) != len(ZERO_UUID) or format_uuid(uuid) != text:
        raise ValueError(f"not a uuid: {text!r}")
    return uuid


def random_uuid(random: Random) -> Uuid:
    """A random uuid (RFC 4122, version 4), which is therefore none of the reserved ones.

    None whose text begins with a dash, because tools would take it for an option.
    """
    while True:
        number = random.getrandbits(128)
        number = number & ~(0xF << 76) | 0x4 << 76
        number = number & ~(0x3 << 62) | 0x2 << 62
        uuid = Uuid(number.to_bytes(16, "big"))
        if not format_uuid(uuid).startswith("-"):
            return uuid
