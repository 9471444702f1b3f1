"""The run-time guard: inside a simulation nobody reaches the machine (rules 1 to 4 and 6).

Two nets, because the interpreter offers two kinds of hooks:

- Files, sockets, threads and processes raise audit events inside the interpreter, which no way of
  importing a function avoids. An audit hook can't be removed; it is installed with the first
  simulation of a process and does nothing while no guard is armed.
- Clocks and randomness raise none (and threads none before Python 3.12), so the functions that
  lead there are replaced by refusing ones while the guard is armed. Code that took such a function
  earlier by `from time import monotonic` escapes here, and so does `datetime.now`, a method of a
  type in C; both are for the linter, which bans those imports outside kraftpy/world.

Only the simulation's own thread is watched, and only on behalf of code that has no business with
the machine: Python's own importing, tracebacks and logging, and pytest's rewriting of imported
tests, go on. Who asks is told by the module of the nearest frame on the stack.
"""

from __future__ import annotations

import _thread
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType, ModuleType
from typing import Any, NoReturn

import trio

__all__ = ["SimulationRuleBroken", "guarded"]


class SimulationRuleBroken(BaseException):
    """Simulated code reached for the machine.

    Not an Exception: a handler that survives everything must not survive this.
    """


_CLOCK = "rule 1: all time comes from world.Clock"
_RANDOMNESS = "rule 2: all randomness comes from world.Rng"
_SOCKETS = "rule 3: all sockets come from world.Network"
_FILES = "rule 4: all files come from world.Disk"
_THREADS = "rule 6: one thread, one process"

# Audit events by their name or the part before the first dot.
_AUDIT_RULES = {
    "open": _FILES,
    "mmap": _FILES,
    "shutil": _FILES,
    "tempfile": _FILES,
    "glob": _FILES,
    "os.chmod": _FILES,
    "os.link": _FILES,
    "os.listdir": _FILES,
    "os.mkdir": _FILES,
    "os.remove": _FILES,
    "os.rename": _FILES,
    "os.rmdir": _FILES,
    "os.scandir": _FILES,
    "os.symlink": _FILES,
    "os.truncate": _FILES,
    "os.utime": _FILES,
    "socket": _SOCKETS,
    "_thread": _THREADS,
    "subprocess": _THREADS,
    "os.exec": _THREADS,
    "os.fork": _THREADS,
    "os.forkpty": _THREADS,
    "os.posix_spawn": _THREADS,
    "os.spawn": _THREADS,
    "os.system": _THREADS,
}

_CLOCK_NAMES = (
    "clock_gettime",
    "clock_gettime_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "process_time_ns",
    "sleep",
    "thread_time",
    "thread_time_ns",
    "time",
    "time_ns",
)

# Modules that only pass a wish on; who wished is further up the stack.
_MESSENGERS = frozenset(
    {
        "codecs",
        "contextlib",
        "io",
        "os",
        "pathlib",
        "pathlib._local",
        "random",
        "secrets",
        "shutil",
        "socket",
        "subprocess",
        "tempfile",
        "threading",
        "uuid",
        __name__,
    }
)
_PRIVILEGED = frozenset(
    {
        "importlib._bootstrap",
        "importlib._bootstrap_external",
        "linecache",
        "logging",
        "tokenize",
        "traceback",
        "zipimport",
    }
)
_PRIVILEGED_PREFIX = "_pytest."


class _AuditHook:
    """Refuses while armed, in the thread that armed it."""

    __slots__ = ("_rules", "thread")

    def __init__(self) -> None:
        self.thread: int | None = None
        # By event, once it was met: some come with every timer.
        self._rules: dict[str, str | None] = {}

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        if self.thread is None:
            return
        try:
            rule = self._rules[event]
        except KeyError:
            rule = _AUDIT_RULES.get(event) or _AUDIT_RULES.get(event.partition(".")[0])
            self._rules[event] = rule
        if rule is not None and threading.get_ident() == self.thread:
            _refuse_unless_privileged(f"{event}{args!r}", rule)


@cache
def _audit_hook() -> _AuditHook:
    """The only one of this process, installed when first asked for."""
    hook = _AuditHook()
    sys.addaudithook(hook)
    return hook


@contextmanager
def guarded() -> Iterator[None]:
    """Refuse the machine to this thread until left."""
    hook = _audit_hook()
    replaced: list[tuple[object, str, object]] = []
    try:
        for owner, name, rule in _names_to_replace():
            original = getattr(owner, name)
            replaced.append((owner, name, original))
            setattr(owner, name, _refusing(original, f"{_label(owner)}.{name}", rule))
        replaced.append((random.Random, "seed", random.Random.seed))
        random.Random.seed = _seeding(random.Random.seed)  # type: ignore[method-assign]
        hook.thread = threading.get_ident()
        yield
    finally:
        hook.thread = None
        for owner, name, original in reversed(replaced):
            setattr(owner, name, original)


def _names_to_replace() -> Iterator[tuple[object, str, str]]:
    for name in _CLOCK_NAMES:
        if hasattr(time, name):
            yield time, name, _CLOCK
    for name in ("urandom", "getrandom"):
        if hasattr(os, name):
            yield os, name, _RANDOMNESS
    # SystemRandom, and with it all of `secrets`, reads the kernel through this name.
    yield random, "_urandom", _RANDOMNESS
    # An idle thread of trio's cache would be used again without being started.
    yield trio.to_thread, "run_sync", _THREADS
    yield threading.Thread, "start", _THREADS
    yield _thread, "start_new_thread", _THREADS
    for name in random.__all__:
        # The functions of the module are methods of one hidden, shared Random.
        if isinstance(getattr(getattr(random, name), "__self__", None), random.Random):
            yield random, name, _RANDOMNESS


def _label(owner: object) -> str:
    return owner.__name__ if isinstance(owner, ModuleType) else repr(owner)


def _refusing(original: Any, label: str, rule: str) -> Callable[..., Any]:
    thread = threading.get_ident()

    def refuse(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            _refuse_unless_privileged(label, rule)
        return original(*args, **kwargs)

    return refuse


def _seeding(original: Callable[..., None]) -> Callable[..., None]:
    """A Random without a seed takes one from the kernel."""
    thread = threading.get_ident()

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        if a is None and threading.get_ident() == thread:
            _refuse_unless_privileged("random.Random() without a seed", _RANDOMNESS)
        original(self, a, version)

    return seed


def _refuse_unless_privileged(what: str, rule: str) -> None:
    # The caller of our caller: the function that was replaced, or that raised the event.
    frame: FrameType | None = sys._getframe(2)
    module = ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module not in _MESSENGERS:
            break
        frame = frame.f_back
    if module not in _PRIVILEGED and not module.startswith(_PRIVILEGED_PREFIX):
        _refuse(what, rule, module)


def _refuse(what: str, rule: str, module: str) -> NoReturn:
    raise SimulationRuleBroken(f"{module} used {what} inside a simulation ({rule})")
