"""`kraftpy node --faults`: wrong addresses are refused, with words."""

from __future__ import annotations

import subprocess
import sys

import pytest

LISTENERS = "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"


@pytest.mark.parametrize(
    ("address", "exit_code", "words"),
    [
        ("nonsense", 2, "'nonsense' is no HOST:PORT"),
        # Nobody listens on port 1.
        ("127.0.0.1:1", 1, "cannot connect to 127.0.0.1:1"),
    ],
)
def test_a_node_does_not_run_without_those_it_was_told_to_obey(
    address: str, exit_code: int, words: str
) -> None:
    command = [sys.executable, "-m", "kraftpy.cli.main", "node", "--set", LISTENERS]
    done = subprocess.run(
        [*command, "--faults", address], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == exit_code, done.stderr
    assert words in done.stderr


def test_a_node_without_faults_imports_none_of_it() -> None:
    """Whatever `kraftpy node` needs; the composition root and the command itself are all of it."""
    source = (
        "import sys, kraftpy.cli.main, kraftpy.cli.node, kraftpy.node, kraftpy.launch.cluster\n"
        "assert not [name for name in sys.modules if name.startswith('kraftpy.faults')]"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
