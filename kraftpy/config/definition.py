"""What is known about one configuration key, and how its text becomes a value.

The tables in the modules `keys_*` are made of Definitions. Parsing follows Kafka's, so that a file
that Kafka accepts means the same here: surrounding blanks never count, a list is split at commas,
numbers have the width of their Java type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from kraftpy.config.problems import BadValueError

__all__ = [
    "REQUIRED",
    "Check",
    "ConfigType",
    "Definition",
    "Effect",
    "Importance",
    "Password",
    "Required",
    "UpdateMode",
    "Value",
    "parse",
    "render",
]


class ConfigType(Enum):
    """Types of values, under the names of Kafka's ConfigDef."""

    BOOLEAN = "boolean"
    INT = "int"
    SHORT = "short"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    CLASS = "class"
    PASSWORD = "password"


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Whether and for whom a key can be changed while brokers run."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Effect(Enum):
    """Whether setting a key changes anything here."""

    YES = "yes"
    LATER = "later"
    NONE = "none"


class Required(Enum):
    """The default of a key that has none."""

    REQUIRED = "required"


REQUIRED: Final = Required.REQUIRED


class Password:
    """A secret that no log line, error or repr gives away."""

    __slots__ = ("secret",)

    HIDDEN = "[hidden]"

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def __repr__(self) -> str:
        return self.HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.secret == self.secret

    def __hash__(self) -> int:
        return hash(self.secret)


Value: TypeAlias = bool | int | float | str | tuple[str, ...] | Password | None


class Check(NamedTuple):
    """A condition on a value beyond its type."""

    text: str
    """The condition in words, for the table of keys and for error messages."""
    refuse: Callable[[Value], str | None]
    """The reason why a value is wrong, or None."""


class Definition(NamedTuple):
    name: str
    doc: str
    type: ConfigType
    default: Value | Required
    importance: Importance
    check: Check | None
    mode: UpdateMode
    effect: Effect
    reason: str
    """Why the key has no effect, where it has none."""
    internal: bool
    """Kafka leaves these out of its documentation and answers; tests set them."""
    synonyms: tuple[str, ...]
    """Broker keys that give the default of a topic's or group's key, the strongest first."""

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD


# Bits of Java's integer types.
_INTEGER_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
# Here and elsewhere patterns are compiled when first used, which keeps importing cheap.
_INTEGER: Final = r"[+-]?[0-9]+"
_DECIMAL: Final = r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[dDfF]?"
_CLASS_NAME: Final = r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*"


def parse(definition: Definition, text: str) -> Value:
    """The value that a text stands for; BadValueError says what is wrong with it."""
    value = _parse_type(definition.type, text.strip())
    if definition.check is not None:
        reason = definition.check.refuse(value)
        if reason is not None:
            raise BadValueError(reason)
    return value


def _parse_type(type_: ConfigType, text: str) -> Value:
    if type_ in _INTEGER_BITS:
        return _parse_integer(_INTEGER_BITS[type_], text)
    match type_:
        case ConfigType.BOOLEAN:
            lowered = text.lower()
            if lowered not in ("true", "false"):
                raise BadValueError("must be true or false")
            return lowered == "true"
        case ConfigType.DOUBLE:
            found = re.fullmatch(_DECIMAL, text)
            if found is None:
                raise BadValueError("must be a number")
            return float(found[1])
        case ConfigType.LIST:
            return tuple(item.strip() for item in text.split(",")) if text else ()
        case ConfigType.CLASS:
            if re.fullmatch(_CLASS_NAME, text) is None:
                raise BadValueError("must be the name of a class, such as org.example.Thing")
            return text
        case ConfigType.PASSWORD:
            return Password(text)
        case _:
            return text


def _parse_integer(bits: int, text: str) -> int:
    if re.fullmatch(_INTEGER, text) is None:
        raise BadValueError("must be a whole number")
    # Python refuses to convert thousands of digits; none of them could fit.
    value = int(text) if len(text) < 100 else 1 << 64
    limit = 1 << (bits - 1)
    if not -limit <= value < limit:
        raise BadValueError(f"must be from {-limit} to {limit - 1}")
    return value


def render(value: Value) -> str | None:
    """The text of a value, as DescribeConfigs and the table of keys show it; None for no value."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case Password():
            return Password.HIDDEN
        case _:
            return str(value)
