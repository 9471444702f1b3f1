"""Runs of pytest as a user has them, with this tree's plugin and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_SECONDS = 250


def run_pytest(directory: Path, sources: Mapping[str, str], *options: str) -> str:
    """What pytest prints about tests in these files."""
    (directory / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    for name, source in sources.items():
        (directory / name).write_text(source)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-p", "kraftpy.testing.plugin", *options),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
        cwd=directory,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return done.stdout + done.stderr
