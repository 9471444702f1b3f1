"""Conditions on values: ranges, choices and the formats of Kafka's structured strings."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from kraftpy.config.definition import Check, Value

__all__ = [
    "BOOTSTRAP_SERVERS",
    "GZIP_LEVEL",
    "NOT_EMPTY",
    "OFFSET_RESET",
    "THROTTLED_REPLICAS",
    "VOTERS",
    "at_least",
    "between",
    "distinct",
    "one_of",
    "parse_host_port",
    "parse_voter",
    "some_of",
]


def at_least(low: int) -> Check:
    return Check(f">= {low}", partial(_refuse_outside, low, None))


def between(low: float, high: float) -> Check:
    return Check(f"{low} to {high}", partial(_refuse_outside, low, high))


def _refuse_outside(low: float, high: float | None, value: Value) -> str | None:
    if not isinstance(value, int | float):
        return None
    if value < low:
        return f"must be at least {low}"
    if high is not None and value > high:
        return f"must be at most {high}"
    return None


def one_of(*choices: str, any_case: bool = False) -> Check:
    return Check(", ".join(choices), partial(_refuse_choice, choices, any_case))


def _refuse_choice(choices: tuple[str, ...], any_case: bool, value: Value) -> str | None:
    if not isinstance(value, str):
        return None
    if value in choices or (any_case and value.lower() in [choice.lower() for choice in choices]):
        return None
    return f"must be one of {', '.join(choices)}"


def distinct(*, empty: bool) -> Check:
    """A list in which nothing is blank or occurs twice."""
    return Check(
        "a list without repetition" + ("" if empty else ", not empty"),
        partial(_refuse_list, None, empty),
    )


def some_of(*choices: str, empty: bool) -> Check:
    """A list of some of these, each at most once."""
    return Check(f"some of {', '.join(choices)}", partial(_refuse_list, choices, empty))


def _refuse_list(choices: tuple[str, ...] | None, empty: bool, value: Value) -> str | None:
    if not isinstance(value, tuple):
        return None
    if not value:
        return None if empty else "must not be empty"
    if "" in value:
        return "must have no empty element; is a comma too many?"
    if len(dict.fromkeys(value)) != len(value):
        return "must not name anything twice"
    if choices is not None and (wrong := [item for item in value if item not in choices]):
        return f"can't contain {', '.join(wrong)}; choose from {', '.join(choices)}"
    return None


def _refuse_empty(value: Value) -> str | None:
    return "must not be empty" if value == "" else None


NOT_EMPTY: Final = Check("not empty", _refuse_empty)


def _refuse_gzip_level(value: Value) -> str | None:
    if isinstance(value, int) and value != -1 and not 1 <= value <= 9:
        return "must be from 1 to 9, or -1 for the codec's own default"
    return None


GZIP_LEVEL: Final = Check("1 to 9, or -1", _refuse_gzip_level)


_HOST_PORT: Final = r"(?:\[([0-9a-fA-F:.%]+)\]|([^\s\[\]:/@]+)):([0-9]{1,5})"


def parse_host_port(text: str) -> tuple[str, int] | None:
    """`host:port`, an IPv6 address in brackets; None for anything else."""
    found = re.fullmatch(_HOST_PORT, text)
    if found is None or int(found[3]) > 65535:
        return None
    return found[1] or found[2], int(found[3])


def parse_voter(text: str) -> tuple[int, str, int] | None:
    """`id@host:port`; None for anything else."""
    node_id, _, address = text.partition("@")
    host_port = parse_host_port(address)
    if not re.fullmatch("[0-9]{1,10}", node_id) or int(node_id) >= 1 << 31 or host_port is None:
        return None
    return int(node_id), *host_port


def _refuse_items(parse: Callable[[str], object], form: str, value: Value) -> str | None:
    if not isinstance(value, tuple):
        return None
    for item in value:
        if parse(item) is None:
            return f"can't read {item!r}; write {form}"
    return None


VOTERS: Final = Check(
    "id@host:port, ...", partial(_refuse_items, parse_voter, "id@host:port,id@host:port")
)
BOOTSTRAP_SERVERS: Final = Check(
    "host:port, ...", partial(_refuse_items, parse_host_port, "host:port,host:port")
)


def _refuse_throttled_replicas(value: Value) -> str | None:
    if not isinstance(value, tuple) or value in ((), ("*",)):
        return None
    if all(re.fullmatch("[0-9]+:[0-9]+", item) for item in value):
        return None
    return "must be * or a list of partition:broker"


THROTTLED_REPLICAS: Final = Check("* or partition:broker, ...", _refuse_throttled_replicas)

# ISO 8601 in the part that Java's Duration reads, without signs: a reset looks back, never ahead.
_DURATION: Final = (
    r"(?i)P(?=[0-9T])(?:[0-9]+D)?"
    r"(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]{0,9})?S)?)?"
)


def _refuse_offset_reset(value: Value) -> str | None:
    if value in ("latest", "earliest"):
        return None
    if isinstance(value, str) and value.startswith("by_duration:"):
        if re.fullmatch(_DURATION, value.removeprefix("by_duration:")):
            return None
        return "must name a duration such as by_duration:P1DT2H"
    return "must be latest, earliest or by_duration:PnDTnHnMn.nS"


OFFSET_RESET: Final = Check("latest, earliest or by_duration:PnDTnHnMn.nS", _refuse_offset_reset)
