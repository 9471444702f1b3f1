"""The table of APIs in docs/support.md: every API of Kafka 4.3, its versions, and who serves it.

`python tests/documents/support_table.py` writes it into the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kraftpy.api.api_keys import (
    API_VERSIONS_KEY,
    BROKER_LISTENER_APIS,
    CONTROLLER_LISTENER_APIS,
)
from kraftpy.protocol.registry import API

PAGE: Final = Path(__file__).parents[2] / "docs/support.md"
BEGIN: Final = "<!-- python tests/documents/support_table.py -->\n"
END: Final = "<!-- the end of the table -->\n"

# Why an API of Kafka 4.3 is on no listener.
REASONS: Final = {
    range(17, 18): "SASL comes later",
    range(36, 37): "SASL comes later",
    range(38, 42): "delegation tokens come with SASL",
    range(71, 73): "as with Kafka where no plug-in takes clients' metrics",
    range(76, 80): "share groups",
    range(83, 88): "share groups",
    range(88, 90): "streams groups",
    range(90, 93): "share groups",
}


def table() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "| key | API | versions | brokers | controllers |"
    yield "| --- | --- | --- | --- | --- |"
    for key in sorted(API):
        api = API[key]
        on_brokers = key in BROKER_LISTENER_APIS
        on_controllers = key in (API_VERSIONS_KEY, *CONTROLLER_LISTENER_APIS)
        if on_brokers or on_controllers:
            places = f"{'yes' if on_brokers else ''} | {'yes' if on_controllers else ''}"
        else:
            reason = next(why for keys, why in REASONS.items() if key in keys)
            places = f"no: {reason} | "
        yield f"| {key} | {api.name} | {api.min_version}-{api.max_version} | {places} |"


def split(page: str) -> tuple[str, str, str]:
    """What stands before the table, the table, and what follows."""
    before, _, rest = page.partition(BEGIN)
    inside, _, after = rest.partition(END)
    return before + BEGIN, inside, END + after


if __name__ == "__main__":
    head, _, tail = split(PAGE.read_text())
    PAGE.write_text(head + table() + tail)
