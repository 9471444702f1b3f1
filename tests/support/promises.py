"""Promises about real time.

A machine that does other work keeps no promise about it, and a test that fails there says nothing.
So what was measured is always printed, and held against the promise with KRAFTPY_TIMES=1 only:
`make times`, for a machine that has nothing else to do. What is promised is tested in virtual time
as well, where no machine is too slow.
"""

from __future__ import annotations

import os

__all__ = ["IS_QUIET_MACHINE", "promised"]

IS_QUIET_MACHINE = os.environ.get("KRAFTPY_TIMES") == "1"


def promised(what: str, took_seconds: float, *, most_seconds: float) -> None:
    print(f"{what}: {took_seconds:.3f} s, promised within {most_seconds:g} s")
    if IS_QUIET_MACHINE:
        assert took_seconds < most_seconds, what
