"""Which ports a cluster gets: those asked for, or the usual ones, or others that are free.

A port is free when it can be listened on. All are held until all are known. Between that and the
moment at which a node takes its port somebody else may; then the cluster moves to other ports
(cluster.py), and these are not the usual ones again. Free ports are sought below those that systems
give to outgoing connections, from a random place on: the nodes' own connections can't land on them,
and two clusters that start together rarely choose the same.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import ExitStack

from kraftpy.launch.errors import LaunchError
from kraftpy.world import Network, Random

__all__ = ["USUAL_PORT", "choose_ports"]

USUAL_PORT = 9092

# Linux gives outgoing connections ports from 32,768 on, macOS and others from 49,152.
_FIRST_PORT = 10_000
_LAST_PORT = 32_767
_HIGHEST_PORT = 65_535


async def choose_ports(
    network: Network,
    random: Random,
    *,
    host: str,
    count: int,
    base: int | None,
    prefers_usual: bool = True,
) -> list[int]:
    """`base` and following, which must be free; for None any that are. Raises LaunchError."""
    if base is not None:
        if base + count - 1 > _HIGHEST_PORT:
            raise LaunchError(
                f"{count} ports are needed, and from {base} on there are too few; choose a lower "
                "--port"
            )
        given, taken = await _free(network, host, range(base, base + count), count)
        if len(given) < count:
            raise LaunchError(
                f"ports {base} to {base + count - 1} are needed: {_reason(taken)}\n"
                "Choose another --port, or leave it out to get ports that are free."
            )
        return given
    if prefers_usual:
        usual, _ = await _free(network, host, range(USUAL_PORT, USUAL_PORT + count), count)
        if len(usual) == count:
            return usual
    start = random.randrange(_FIRST_PORT, _LAST_PORT - count)
    candidates = (*range(start, _LAST_PORT + 1), *range(_FIRST_PORT, start))
    found, taken = await _free(network, host, candidates, count, skips=True)
    if len(found) < count:
        raise LaunchError(f"{count} free ports are needed on {host}: {_reason(taken)}")
    return found


async def _free(
    network: Network, host: str, candidates: Iterable[int], count: int, *, skips: bool = False
) -> tuple[list[int], OSError | None]:
    """The first `count` that can be listened on, and why another couldn't.

    Unless it `skips`, it ends at the first that is taken.
    """
    found: list[int] = []
    taken: OSError | None = None
    with ExitStack() as held:
        for port in candidates:
            if len(found) == count:
                break
            try:
                held.callback((await network.listen(host, port)).close)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise LaunchError(str(error.strerror or error)) from error
                taken = error
                if not skips:
                    break
            else:
                found.append(port)
    return found, taken


def _reason(error: OSError | None) -> str:
    return "" if error is None else str(error.strerror or error)
