"""The suite with network namespaces for those who are not root: as root of a world of its own.

    python -m jepsen_tests.cluster.unprivileged run --workload list-append --nemesis partition

Everything after the module's name is for `python -m jepsen_tests`. It runs in new user, network and
mount namespaces (`unshare`), in which it is root: it may build networks there, and reaches none
outside. Its loopback is its own, so clients have to run inside, too, as they do.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from jepsen_tests.cluster.errors import HarnessError

__all__ = ["wrapped"]

# `ip netns` keeps its names in /run, which belongs to the machine's root.
_SCRIPT = 'mount -t tmpfs tmpfs /run && ip link set lo up && exec "$@"'


def wrapped(command: Sequence[str]) -> list[str]:
    """The command that runs it there. Raises HarnessError."""
    if shutil.which("unshare") is None:
        raise HarnessError("unshare (util-linux) is not installed")
    namespaces = ("--user", "--map-root-user", "--net", "--mount")
    return ["unshare", *namespaces, "--", "sh", "-c", _SCRIPT, "sh", *command]


if __name__ == "__main__":
    arguments = wrapped([sys.executable, "-m", "jepsen_tests", *sys.argv[1:]])
    os.execvp(arguments[0], arguments)
