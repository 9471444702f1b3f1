"""Commands of the system: `ip` and `cc`, which are asked and answer at once."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import trio

from jepsen_tests.cluster.errors import HarnessError

__all__ = ["ask", "ip_batch"]


async def ask(command: Sequence[str], *, given: bytes = b"", check: bool = True) -> str:
    """What it prints. Raises HarnessError when it fails, or is not there."""
    try:
        done = await trio.run_process(
            list(command),
            stdin=given,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    except OSError as error:
        raise HarnessError(f"{command[0]}: {error.strerror}") from error
    if check and done.returncode:
        raise HarnessError(_words(command, done))
    return done.stdout.decode(errors="replace")


async def ip_batch(lines: Sequence[str], *, namespace: str | None = None) -> None:
    """Several commands of `ip` in one process; the first that fails ends it."""
    inside = [] if namespace is None else ["-n", namespace]
    await ask(["ip", *inside, "-batch", "-"], given="\n".join(lines).encode())


def _words(command: Sequence[str], done: subprocess.CompletedProcess[bytes]) -> str:
    said = done.stderr.decode(errors="replace").strip() or "no reason was given"
    return f"{' '.join(command)} failed with {done.returncode}: {said}"
