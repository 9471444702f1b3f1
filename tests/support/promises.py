"""Promises about real time.

They come from the protocol, and a machine that does other work is late with them. So what was
measured is always printed, and every run holds it against the promise with a wide margin; with
KRAFTPY_TIMES=1 there is none: `make times`, for a machine that has nothing else to do. What is
promised is tested in virtual time as well, where no machine is too slow.
"""

from __future__ import annotations

import os

__all__ = ["IS_QUIET_MACHINE", "promised"]

IS_QUIET_MACHINE = os.environ.get("KRAFTPY_TIMES") == "1"
MARGIN_SECONDS = 0 if IS_QUIET_MACHINE else 20


def promised(what: str, took_seconds: float, *, most_seconds: float) -> None:
    print(f"{what}: {took_seconds:.3f} s, promised within {most_seconds:g} s")
    assert took_seconds < most_seconds + MARGIN_SECONDS, what
