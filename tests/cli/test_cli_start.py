"""A command starts quickly because it imports only what it needs: held here by what is imported,
since time on a shared machine proves nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from compat.node_process import LISTENERS

# trio alone takes a tenth of a second; the others are a node's, or stand for a whole family.
HEAVY = ["trio", "kraftpy.node", "kraftpy.net.server", "kraftpy.world.real", "asyncio", "logging"]
PROTOCOL = ["kraftpy.protocol.registry", "kraftpy.client.core"]
CONFIG = ["kraftpy.config.definitions"]
# `_ssl` and `_hashlib` are OpenSSL; `email` and its like come with importlib.metadata.
UNUSED = [
    *("_ssl", "_hashlib", "importlib.metadata", "email", "asyncio"),
    *("re2", "lz4", "zstandard", "cramjam", "h11"),
]

REPORT = """
import json, sys
from kraftpy.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        ("--help", HEAVY + PROTOCOL + CONFIG),
        ("", HEAVY + PROTOCOL + CONFIG),
        ("up --help", HEAVY + PROTOCOL + CONFIG),
        ("node --help", HEAVY[:-1] + PROTOCOL + CONFIG),
        ("api-versions --help", HEAVY + PROTOCOL + CONFIG),
        ("config --help", HEAVY + PROTOCOL + CONFIG),
        ("log --help", HEAVY + PROTOCOL + CONFIG),
        ("topics --help", HEAVY + PROTOCOL + CONFIG),
        ("produce --help", HEAVY + PROTOCOL + CONFIG),
        ("consume --help", HEAVY + PROTOCOL + CONFIG),
        ("groups --help", HEAVY + PROTOCOL + CONFIG),
        ("groups list -b 127.0.0.1:1", [*HEAVY[:-1], *CONFIG]),
        ("topics list -b 127.0.0.1:1", [*HEAVY[:-1], *CONFIG]),
        ("storage random-uuid", HEAVY + PROTOCOL + CONFIG),
        ("config list", HEAVY + PROTOCOL),
        ("api-versions -b 127.0.0.1:1", [*HEAVY[:-1], *CONFIG]),
        ("--version", ["trio", *CONFIG]),
    ],
)
def test_imports_only_what_is_needed(arguments: str, unwanted: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments.split()],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    imported = json.loads(done.stderr.splitlines()[-1])
    assert [name for name in unwanted if name in imported] == []


def test_package_imports_nothing() -> None:
    code = "import sys; before = set(sys.modules); import kraftpy; print(set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "{'kraftpy'}"


def test_a_node_loads_only_what_it_uses() -> None:
    """From its start to its end: this is memory of every idle node, not time alone.

    OpenSSL comes with TLS, with a password and with the first log that is compacted, RE2 with the
    first group that subscribes by a pattern, a codec with the first batch in it.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", REPORT, "node", "--stop-with-parent", "--set", LISTENERS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("bootstrap.servers=")
    # Its input ends here.
    _, said = process.communicate(timeout=60)
    imported = json.loads(said.splitlines()[-1])
    assert "kraftpy.node.node" in imported
    assert [name for name in UNUSED if name in imported] == []
