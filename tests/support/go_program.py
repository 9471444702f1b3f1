"""Go programs that tests speak to, built once for each state of their sources."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from support.components import cache_folder, exclusively, require

# The modules are compiled too, once for each machine: half a minute of one core.
BUILD_TIMEOUT_SECONDS = 900


def build_go_program(sources: Path, what: str) -> Path:
    """The program of a folder. Where it can't be had the test is skipped: `what` is missing."""
    require("go")
    contents = b"".join(path.read_bytes() for path in sorted(sources.iterdir()))
    name = sources.name.replace("_", "-")
    program = cache_folder() / f"{name}-{hashlib.sha256(contents).hexdigest()[:16]}"
    with exclusively(program.with_name(f"{name}.lock")):
        if not program.exists():
            done = subprocess.run(
                ["go", "build", "-o", str(program), "."],
                cwd=sources,
                capture_output=True,
                text=True,
                check=False,
                timeout=BUILD_TIMEOUT_SECONDS,
            )
            if done.returncode != 0:
                pytest.skip(f"missing: {what} (go: {done.stderr.strip()[-200:]})")
    return program
