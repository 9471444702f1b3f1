"""What this machine offers for faults. Tried, not guessed; a fault without means is skipped, and a
run that asked for it is not valid.

    python -m jepsen_tests.cluster.capabilities
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from jepsen_tests.cluster.commands import ask
from jepsen_tests.cluster.errors import HarnessError, NotHereError
from jepsen_tests.cluster.lossy_disk import open_lossy_disk
from jepsen_tests.cluster.namespaces import open_namespaces
from jepsen_tests.cluster.networks import may_have_namespaces
from jepsen_tests.cluster.reaper import open_reaper
from jepsen_tests.cluster.shim import build_shim
from jepsen_tests.cluster.unprivileged import wrapped
from kraftpy.world.real_processes import RealProcesses

__all__ = ["Capability", "namespaces_problem", "probe", "table", "user_namespaces_problem"]

_REFUSED: Final = """
import errno, socket, sys
with socket.socket() as stream:
    stream.settimeout(10)
    sys.exit(stream.connect_ex((sys.argv[1], 1)) != errno.ECONNREFUSED)
"""


@dataclass(frozen=True, slots=True)
class Capability:
    faults: str
    backend: str
    problem: str | None
    """None: it works."""


async def probe() -> list[Capability]:
    """For each group of faults its means, the first that works being the one that is used."""
    namespaces = await namespaces_problem()
    shim = await _problem(_try_shim)
    netem = namespaces or await _problem(_try_netem)
    return [
        Capability("partitions, cut clients", "network namespaces", namespaces),
        Capability("partitions, cut clients", "proxy", None),
        Capability("partitions without root", "user namespaces", await user_namespaces_problem()),
        Capability("delay, reset, hold", "proxy", None),
        Capability("loss, reordering", "netem", netem),
        Capability("kill, pause, restart", "signals", None),
        Capability("clocks, slow and failing disks", "preload shim", shim),
        Capability("clocks, slow and failing disks", "inside of the node", None),
        Capability("full disk, torn write, power", "inside of the node", None),
        Capability("power with names and sectors", "FUSE", await _problem(_try_fuse)),
        Capability("bit flips, truncation, wipe", "files", None),
        Capability("descriptors", "prlimit", _missing_prlimit()),
    ]


def table(found: Sequence[Capability]) -> str:
    """For people."""
    rows = [("faults", "by", "here")]
    rows += [(each.faults, each.backend, each.problem or "yes") for each in found]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in rows)


async def namespaces_problem() -> str | None:
    """Why there are no network namespaces here; None if there are."""
    return await _problem(_try_namespaces)


async def user_namespaces_problem() -> str | None:
    """Why nobody can be root of namespaces of their own (`unprivileged`); None if they can."""
    return await _problem(_try_unshare)


async def _problem(trial: Callable[[], Awaitable[None]]) -> str | None:
    try:
        await trial()
    except HarnessError as error:
        return str(error).splitlines()[0]
    return None


async def _in_namespace(command: Sequence[str]) -> None:
    """Run it on a machine of two nodes, as the first of them."""
    reason = may_have_namespaces()
    if reason is not None:
        raise HarnessError(reason)
    with tempfile.TemporaryDirectory() as directory:
        async with (
            open_reaper(Path(directory), RealProcesses()) as reaper,
            open_namespaces([1, 2], random.Random(), reaper) as net,
        ):
            await ask([*net.prefix(1), *(part.format(other=net.host(2)) for part in command)])


async def _try_namespaces() -> None:
    """A connection to the other node is refused, so something has passed both ways."""
    await _in_namespace([sys.executable, "-S", "-c", _REFUSED, "{other}"])


async def _try_netem() -> None:
    await _in_namespace([*["tc", "qdisc", "add", "dev", "eth0", "root", "netem", "loss", "20%"]])


async def _try_unshare() -> None:
    await ask(wrapped(["ip", "netns", "add", "trial"]))


async def _try_shim() -> None:
    with tempfile.TemporaryDirectory() as directory:
        shim = await build_shim(Path(directory), [1])
        await ask([*shim.prefix(1), "true"])


async def _try_fuse() -> None:
    with tempfile.TemporaryDirectory() as directory:
        try:
            async with open_lossy_disk(Path(directory) / "disk"):
                pass
        except NotHereError as error:
            raise HarnessError(str(error)) from error


def _missing_prlimit() -> str | None:
    return None if hasattr(resource, "prlimit") else "this system has no prlimit"


if __name__ == "__main__":
    print(table(trio.run(probe)))
