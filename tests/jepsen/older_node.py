"""A node as of an earlier version: `kraftpy node` that offers clients less.

    python tests/jepsen/older_node.py CONFIG [OPTION...]

Of each API that clients and other brokers use, the newest version is missing. There is no earlier
release yet; when there is one, it takes this one's place.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kraftpy.cli.main import main
from kraftpy.protocol.registry import API

COMMAND = (sys.executable, "-P", str(Path(__file__).resolve()), "--stop-with-parent")
# Produce to ListOffsets, Metadata, offsets, groups, transactions.
OLDER = (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 22, 24, 25, 26, 28)

if __name__ == "__main__":
    for key in OLDER:
        API[key].max_version -= 1
    sys.exit(main(["node", *sys.argv[1:]]))
