"""Assertions that stay on: a broken invariant stops the node, rather than let it go on wrong.

`assert` vanishes under `python -O`; these never do.
"""

from __future__ import annotations

__all__ = ["InternalInvariant", "assert_always"]


class InternalInvariant(Exception):  # noqa: N818 (it names what was broken)
    """Our own code is wrong. Nobody catches this but the node's root, which stops."""


def assert_always(condition: object, code: str, **facts: object) -> None:
    """Raise InternalInvariant(code) unless `condition` holds; `facts` go into the message."""
    if not condition:
        details = "".join(f" {name}={value!r}" for name, value in facts.items())
        raise InternalInvariant(code + details)
