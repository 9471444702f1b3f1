"""Two tests never get the same ports, although nobody listens on them yet."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from support.ports import unused_ports

ASK = "import random; from support.ports import unused_ports; random.seed(7); print(unused_ports())"


def test_ports_are_given_once() -> None:
    """Not again here, and not to another process that draws the same."""
    before = random.getstate()
    try:
        given = []
        for _ in range(2):
            random.seed(7)
            given.append(unused_ports())
    finally:
        random.setstate(before)
    tests = str(Path(__file__).parents[1])
    told = subprocess.run(
        [sys.executable, "-c", ASK], cwd=tests, capture_output=True, text=True, check=True
    )
    given.append(int(told.stdout))
    assert len(set(given)) == 3
