"""Ports for clusters that tests start: in a row, and nobody else's."""

from __future__ import annotations

import fcntl
import os
import random
import socket
from contextlib import ExitStack
from functools import cache

from support.components import cache_folder

_ours: set[int] = set()


def unused_ports(count: int = 12) -> int:
    """The first of some ports in a row, that no other test on this machine gets.

    They lie below those that the system gives out, so that a node that is restarted finds its own;
    and they stay this process's until it ends, since nobody listens on them until a server has
    started, and while it is down.
    """
    for _ in range(100):
        base = random.randrange(10_000, 32_000, count)
        ports = range(base, base + count)
        if _ours.isdisjoint(ports) and _are_reserved(base, count) and _are_free(ports):
            _ours.update(ports)
            return base
    raise AssertionError("no ports")


def _are_reserved(base: int, count: int) -> bool:
    """For this process, unless another one was first."""
    try:
        fcntl.lockf(_register(), fcntl.LOCK_EX | fcntl.LOCK_NB, count, base)
    except OSError:
        return False
    return True


@cache
def _register() -> int:
    """A file whose byte n is locked by who has port n. Never closed: that would give all back."""
    return os.open(cache_folder() / "ports.lock", os.O_RDWR | os.O_CREAT, 0o644)


def _are_free(ports: range) -> bool:
    with ExitStack() as stack:
        try:
            for port in ports:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            return False
    return True
