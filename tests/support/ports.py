"""Ports for clusters that tests start: in a row, and unlikely to be somebody else's."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack


def unused_ports(count: int = 12) -> int:
    """The first of some ports in a row, where no other test on this machine is likely to look.

    They lie below those that the system gives out, so that a node that is restarted finds its own;
    and tests that run at the same time don't all begin at 9092.
    """
    for _ in range(100):
        base = random.randrange(10_000, 32_000, count)
        with ExitStack() as stack:
            try:
                for port in range(base, base + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return base
    raise AssertionError("no ports")
