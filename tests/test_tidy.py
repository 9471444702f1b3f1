"""The sources keep the rules of tests/tidy_checks.py, and each of those sees what it looks for."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tidy_checks import (
    PRODUCT_CHECKS,
    Check,
    Module,
    assertions_stay_on,
    functions_are_short,
    lines_are_short,
    modules_are_short,
    modules_have_docstrings,
    modules_have_no_state,
    no_order_comes_from_a_set,
    no_order_comes_from_identity,
    nobody_relies_on_finalisers,
    nobody_sleeps_for_nothing,
    nothing_is_left_to_be_done,
    requests_wait_in_the_purgatory,
    the_machine_is_reached_through_the_world,
)

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "kraftpy").rglob("*.py"))
OTHER_ROOMS = ("tests", "bench", "spark")
OTHERS = sorted(path for room in OTHER_ROOMS for path in (ROOT / room).rglob("*.py"))

# (check, path) -> why this one is allowed to differ.
EXEMPTIONS: dict[tuple[Check, str], str] = {
    (requests_wait_in_the_purgatory, f"kraftpy/broker/{name}.py"): why
    for name, why in {
        "controller_channel": "it asks, and nobody asks it",
        "lifecycle": "it asks, and nobody asks it",
        "fetcher": "it asks, and nobody asks it",
    }.items()
}
# Where a check looks, if not everywhere.
PLACES: dict[Check, str] = {requests_wait_in_the_purgatory: "kraftpy/api/bad.py"}


@cache
def load(path: Path) -> Module:
    """Parsed once for all checks."""
    return Module(path.relative_to(ROOT).as_posix(), path.read_text())


def complaints(check: Check, paths: list[Path]) -> str:
    return "\n".join(
        f"{module.path}: {complaint}"
        for module in map(load, paths)
        if (check, module.path) not in EXEMPTIONS
        for complaint in check(module)
    )


@pytest.mark.parametrize("check", PRODUCT_CHECKS, ids=lambda check: check.__name__)
def test_the_product_is_tidy(check: Check) -> None:
    """JEP-130 among others; the check's own words say what it is about."""
    assert not complaints(check, SOURCES)


@pytest.mark.parametrize("check", [lines_are_short, functions_are_short, modules_have_docstrings])
def test_tests_and_benches_keep_the_measures(check: Check) -> None:
    assert not complaints(check, OTHERS)


def test_exemptions_are_needed() -> None:
    """An exemption whose reason is gone goes too."""
    for check, name in EXEMPTIONS:
        assert list(check(load(ROOT / name))), (check.__name__, name)


BAD = [
    (lines_are_short, "x = 1" + " " * 96 + "\n", "line 1: 101 columns"),
    (functions_are_short, "def f():\n" + "    x = 1\n" * 70, "f has 71 lines"),
    (modules_are_short, "x = 1\n" * 500, "500 lines of code"),
    (modules_have_docstrings, "x = 1\n", "no docstring"),
    (nothing_is_left_to_be_done, "x = 1  # TODO: more\n", "line 1: TODO"),
    (nothing_is_left_to_be_done, "def f():\n    raise NotImplementedError\n", "line 2"),
    (nothing_is_left_to_be_done, "class A:\n    def f(self):\n        ...\n", "f has no body"),
    (the_machine_is_reached_through_the_world, "import time\n", "imports time"),
    (the_machine_is_reached_through_the_world, "import time as t\n", "imports time"),
    (the_machine_is_reached_through_the_world, "from random import Random\n", "imports random"),
    (the_machine_is_reached_through_the_world, "import concurrent.futures as c\n", "concurrent"),
    (
        the_machine_is_reached_through_the_world,
        "def f():\n    import socket\n",
        "line 2: imports socket",
    ),
    (
        the_machine_is_reached_through_the_world,
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from threading import Lock\n",
        "line 3: imports threading",
    ),
    (
        the_machine_is_reached_through_the_world,
        "import importlib\nimportlib.import_module('ssl')\n",
        "imports ssl",
    ),
    (the_machine_is_reached_through_the_world, "with open('x'):\n    pass\n", "calls open()"),
    (the_machine_is_reached_through_the_world, "import os\nos.urandom(1)\n", "uses os.urandom"),
    (the_machine_is_reached_through_the_world, "import os as o\no.open('x', 0)\n", "uses os.open"),
    (the_machine_is_reached_through_the_world, "from os import urandom\n", "imports os.urandom"),
    (the_machine_is_reached_through_the_world, "from uuid import uuid4 as u\n", "uuid.uuid4"),
    (
        the_machine_is_reached_through_the_world,
        "import trio\nasync def f():\n    await trio.sleep(1)\n",
        "uses trio.sleep",
    ),
    (
        the_machine_is_reached_through_the_world,
        "import trio as t\nwith t.move_on_after(1):\n    pass\n",
        "uses trio.move_on_after",
    ),
    (nobody_sleeps_for_nothing, "time.sleep(1)\n", "calls time.sleep"),
    (nobody_sleeps_for_nothing, "async def f(c):\n    await c.sleep(0)\n", "sleeps for 0"),
    (
        requests_wait_in_the_purgatory,
        "def f(c):\n    with c.move_on_after(1):\n        pass\n",
        "a deadline of its own",
    ),
    (
        requests_wait_in_the_purgatory,
        "async def f(bell):\n    await bell.wait_until(1)\n",
        "a deadline of its own",
    ),
    (no_order_comes_from_a_set, "for x in {1, 2}:\n    pass\n", "line 1: order"),
    (no_order_comes_from_a_set, "for x in set(y) - z:\n    pass\n", "set(y) - z"),
    (no_order_comes_from_a_set, "a = [x for x in frozenset(y)]\n", "frozenset(y)"),
    (no_order_comes_from_a_set, "a = {x: 1 for x in {y for y in z}}\n", "order"),
    (
        no_order_comes_from_a_set,
        "def f():\n    s = set()\n    for x in s:\n        pass\n",
        "set s",
    ),
    (no_order_comes_from_a_set, "def f(x):\n    s: set[int] = x\n    return list(s)\n", "set s"),
    (no_order_comes_from_a_set, "S = frozenset('ab')\ndef f():\n    return ','.join(S)\n", "S"),
    (
        no_order_comes_from_a_set,
        "class A:\n  def a(self):\n    self.s = {1}\n  def b(self):\n    return [*self.s]\n",
        "self.s",
    ),
    (no_order_comes_from_identity, "x = {id(y): y}\n", "uses id()"),
    (no_order_comes_from_identity, "import weakref\nx = weakref.WeakSet()\n", "uses WeakSet()"),
    (modules_have_no_state, "cache = {}\n", "cache is mutable"),
    (modules_have_no_state, "seen: list[int] = []\n", "seen is mutable"),
    (modules_have_no_state, "from collections import deque\nq = deque()\n", "q is mutable"),
    (modules_have_no_state, "A = {}\ndef f():\n    A['x'] = 1\n", "changes the constant A"),
    (modules_have_no_state, "A = []\ndef f():\n    A.append(1)\n", "changes the constant A"),
    (modules_have_no_state, "A = 1\ndef f():\n    global A\n    A = 2\n", "global A"),
    (nobody_relies_on_finalisers, "class A:\n    def __del__(self):\n        pass\n", "__del__"),
    (assertions_stay_on, "assert x\n", "assert x"),
    (assertions_stay_on, "assert x is not None and y > 0\n", "y > 0"),
]


@pytest.mark.parametrize(("check", "source", "complaint"), BAD)
def test_a_check_sees_what_it_looks_for(check: Check, source: str, complaint: str) -> None:
    found = list(check(Module(PLACES.get(check, "kraftpy/net/bad.py"), source)))
    assert any(complaint in each for each in found), found


GOOD = '''"""A module with everything that looks forbidden and is not."""

import os
from typing import Protocol, overload

NAMES = ["a", "b"]
_TABLE = {name: 1 for name in NAMES}
__all__ = ["NAMES"]
SET = frozenset(NAMES)


class Port(Protocol):
    def read(self) -> bytes: ...


@overload
def f(x: int) -> int: ...


def f(x):
    assert x is not None
    s = {1, 2}
    local = {}
    local["x"] = sorted(s)
    for name in sorted(SET):
        local[name] = os.strerror(1)
    for name in NAMES:
        local.setdefault(name, any(x in y for y in s))
    t = {y + 1 for y in s}
    return len(s), max(x for x in t), disk.open("x"), x.clock.sleep(0.5)
'''


@pytest.mark.parametrize("check", PRODUCT_CHECKS, ids=lambda check: check.__name__)
def test_a_check_leaves_good_code_alone(check: Check) -> None:
    assert list(check(Module("kraftpy/net/good.py", GOOD))) == []


def test_every_check_has_a_bad_example() -> None:
    assert [check for check in PRODUCT_CHECKS if check not in [bad for bad, _, _ in BAD]] == []


def test_the_machines_rooms_may_touch_it_and_no_others() -> None:
    bad = "import time\n"
    check = the_machine_is_reached_through_the_world
    assert not list(check(Module("kraftpy/world/real_clock.py", bad)))
    for room in ("kraftpy/net/x.py", "kraftpy/client/core.py", "kraftpy/worldly.py"):
        assert list(check(Module(room, bad)))


def test_ruff_fires_on_every_banned_name() -> None:
    """JEP-130: the same net a second time, in every editor. One line for each banned name."""
    configuration = (ROOT / "pyproject.toml").read_text()
    section = configuration.partition("banned-api]")[2].partition("\n[")[0]
    names = re.findall(r'^"([\w.]+)"\.msg', section, re.MULTILINE)
    assert len(names) > 20
    lines = []
    for name in names:
        parent, _, last = name.rpartition(".")
        lines.append(f"from {parent} import {last}" if parent else f"import {name} as alias")
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise"]
    done = subprocess.run(
        [*command, "--select=TID251", "--stdin-filename=kraftpy/net/bad.py", "-"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    found = {int(line) for line in re.findall(r"bad\.py:(\d+):.*TID251", done.stdout)}
    assert found == set(range(1, len(lines) + 1)), done.stdout + done.stderr
