"""A node with a seeded bug: `kraftpy node` with one method replaced.

    python tests/bugs/buggy_node.py "replication: leader alone commits" CONFIG [OPTION...]

The bug is named by its suite and itself; whatever follows goes to `kraftpy node`. The process exam
has the Jepsen-style suite start nodes like this. The product has no switch for it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seeded_bugs import Bug

SCRIPT = Path(__file__).resolve()


def node_command(suite: str, bug: str) -> tuple[str, ...]:
    """What runs such a node, as NODE_COMMAND of the launcher runs a good one."""
    return (sys.executable, "-P", str(SCRIPT), f"{suite}: {bug}", "--stop-with-parent")


def find_bug(title: str) -> Bug:
    """Raises SystemExit. Of all suites only its own is imported, so that nodes start quickly."""
    suite, _, name = title.partition(": ")
    if not SCRIPT.with_name(f"{suite}_bugs.py").exists():
        raise SystemExit(f"there is no suite {suite!r}")
    for bug in importlib.import_module(f"{suite}_bugs").BUGS:
        if bug.name == name:
            found: Bug = bug
            return found
    raise SystemExit(f"there is no bug {name!r} in the suite {suite!r}")


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 2
    from kraftpy.cli.main import main as kraftpy

    with find_bug(sys.argv[1]).seeded():
        return kraftpy(["node", *sys.argv[2:]])


if __name__ == "__main__":
    # The launcher keeps a script's directory off the path.
    sys.path.insert(0, str(SCRIPT.parent))
    sys.exit(main())
