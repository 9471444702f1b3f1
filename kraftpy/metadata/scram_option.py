"""`--add-scram`: users that a new cluster begins with, as Kafka's storage tool takes them.

    SCRAM-SHA-256=[name=alice,password=secret]
    SCRAM-SHA-512=[name=bob,iterations=8192,salt="c2FsdA==",saltedpassword="..."]

Only what a server needs to check a password is written, never the password.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Mapping
from typing import Final

from kraftpy.metadata.controller.scram import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    scram_credential,
)
from kraftpy.metadata.records import ScramMechanism, UserScramCredentialRecord
from kraftpy.world import Random

__all__ = ["parse_scram_option"]

_MECHANISMS: Final = {
    "SCRAM-SHA-256": (ScramMechanism.SHA_256, "sha256"),
    "SCRAM-SHA-512": (ScramMechanism.SHA_512, "sha512"),
}
_SALT_BYTES: Final = 24
_OPTION: Final = re.compile(r"(SCRAM-SHA-(?:256|512))=\[(.*)\]", re.DOTALL)
_FIELD: Final = re.compile(r'\s*([a-z]+)=(?:"([^"]*)"|([^,"]*))\s*(?:,|$)')
_FORM: Final = "write SCRAM-SHA-256=[name=USER,password=SECRET], or SCRAM-SHA-512"


def parse_scram_option(text: str, random: Random) -> UserScramCredentialRecord:
    """The credential that one option gives; ValueError says what is wrong, without its secrets."""
    found = _OPTION.fullmatch(text)
    if found is None:
        raise ValueError(_FORM)
    mechanism, algorithm = _MECHANISMS[found[1]]
    fields = _fields(found[2])
    unknown = [
        name
        for name in fields
        if name not in ("name", "password", "salt", "iterations", "saltedpassword")
    ]
    if unknown:
        raise ValueError(f"{unknown[0]} is not known; {_FORM}")
    name = fields.get("name", "")
    if not name:
        raise ValueError(f"name is missing; {_FORM}")
    iterations = _iterations(fields.get("iterations", str(MIN_ITERATIONS)))
    if "salt" in fields:
        salt = _base64("salt", fields["salt"])
    else:
        salt = random.randbytes(_SALT_BYTES)
    if ("password" in fields) == ("saltedpassword" in fields):
        raise ValueError(f"either password or saltedpassword must be given; {_FORM}")
    if "password" in fields:
        password = fields["password"].encode()
        if not password:
            raise ValueError("the password is empty")
        salted = hashlib.pbkdf2_hmac(algorithm, password, salt, iterations)
    else:
        if "salt" not in fields:
            raise ValueError("saltedpassword needs the salt that it was made with")
        salted = _base64("saltedpassword", fields["saltedpassword"])
    return scram_credential(name, mechanism, salt, salted, iterations)


def _fields(text: str) -> Mapping[str, str]:
    fields: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _FIELD.match(text, position)
        if found is None:
            raise ValueError(f"the list in brackets can't be read; {_FORM}")
        if found[1] in fields:
            raise ValueError(f"{found[1]} is given twice")
        fields[found[1]] = found[2] if found[2] is not None else found[3]
        position = found.end()
    return fields


def _iterations(text: str) -> int:
    if not text.isdecimal() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise ValueError(f"iterations must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return int(text)


def _base64(name: str, text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise ValueError(f"{name} is not base64") from None
