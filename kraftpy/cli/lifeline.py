"""A node that does not outlive whoever started it.

`kraftpy/launch` gives each node a standard input on which nothing is ever sent, and whose other end
it holds. When that end is gone, however the launcher ended, nobody is left who would stop the node.
"""

from __future__ import annotations

import os

import trio

__all__ = ["wait_for_end_of_input"]

_STANDARD_INPUT = 0


async def wait_for_end_of_input(descriptor: int = _STANDARD_INPUT) -> None:
    """Return when the other end of a pipe is closed; what is sent on it is dropped."""
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        if not os.read(descriptor, 4096):
            return
