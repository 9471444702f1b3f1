"""Documents are true: their commands run, their links lead somewhere, their targets exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest
from compat.node_process import running_node
from documents import support_table
from support.components import COMPONENTS, require

from kraftpy.cli import up

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
COMMAND_TIMEOUT_SECONDS = 60

# `make up` on a machine of its own has this address; a test's node has another.
DOCUMENTED_ADDRESS = "127.0.0.1:9092"
DOCUMENTED_COMMAND = ".venv/bin/kraftpy"


def console_commands(text: str) -> list[str]:
    """Lines that begin with `$ ` in blocks marked as console."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def test_console_commands_are_found() -> None:
    text = "a\n```console\n$ one --two\noutput\n$ three\n```\n```python\n$ no\n```\n"
    assert console_commands(text) == ["one --two", "three"]


@pytest.mark.compat
def test_the_commands_of_the_documents_work_as_printed(tmp_path: Path) -> None:
    commands = [command for path in DOCUMENTS for command in console_commands(path.read_text())]
    assert commands
    with running_node(tmp_path) as node:
        for command in commands:
            here = command.replace(DOCUMENTED_ADDRESS, node.bootstrap)
            words = shlex.split(here)
            if words[0] == DOCUMENTED_COMMAND:
                words[:1] = [sys.executable, "-m", "kraftpy.cli.main"]
            elif words[0] in COMPONENTS:
                require(words[0])
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                check=False,
                timeout=COMMAND_TIMEOUT_SECONDS,
                cwd=ROOT,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def python_examples(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.compat
def test_the_python_of_the_documents_works_as_printed(tmp_path: Path) -> None:
    """Each against the same node, in an interpreter of its own."""
    examples = [example for path in DOCUMENTS for example in python_examples(path.read_text())]
    assert examples
    with running_node(tmp_path) as node:
        for example in examples:
            done = subprocess.run(
                [sys.executable, "-c", example.replace(DOCUMENTED_ADDRESS, node.bootstrap)],
                capture_output=True,
                text=True,
                check=False,
                timeout=COMMAND_TIMEOUT_SECONDS,
            )
            assert done.returncode == 0, f"{example}\n{done.stdout}{done.stderr}"


def test_documented_clusters_can_be_asked_for() -> None:
    """Commands that stay in the foreground are not run here, but they are understood."""
    prefix = f"    {DOCUMENTED_COMMAND} up"
    lines = [line for path in DOCUMENTS for line in path.read_text().splitlines()]
    commands = [line for line in lines if line.startswith(prefix)]
    assert len(commands) >= 5
    for command in commands:
        parser = ArgumentParser(allow_abbrev=False)
        up.add_arguments(parser)
        parser.parse_args(shlex.split(command, comments=True)[2:])


def test_documented_modules_exist() -> None:
    """Those of docs/groups.md, which are named as seen from the rooms that it is about."""
    names = re.findall(r"`([a-z0-9_/]+\.py)`", (ROOT / "docs/groups.md").read_text())
    assert len(names) > 20
    for name in names:
        places = [ROOT / folder / name for folder in (".", "kraftpy", "kraftpy/coordinator/groups")]
        assert any(path.exists() for path in places), name


@pytest.mark.parametrize(
    ("page", "pattern", "folder"),
    [
        ("kafka-classes.md", r"`(kraftpy/[a-z0-9_/.]+)`", ""),
        ("support.md", r"`(test_[a-z0-9_]+\.py)`", "tests/compat"),
    ],
)
def test_named_files_exist(page: str, pattern: str, folder: str) -> None:
    names = re.findall(pattern, (ROOT / "docs" / page).read_text())
    assert len(names) > 15
    for name in names:
        assert (ROOT / folder / name).exists(), name


def test_the_table_of_apis_is_current() -> None:
    """JEP-163: the page has every API of Kafka 4.3, and the clients that are tried."""
    _, inside, _ = support_table.split(support_table.PAGE.read_text())
    assert inside == support_table.table(), "run: python tests/documents/support_table.py"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_exist(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} points to {target}"


def test_documented_targets_exist() -> None:
    defined = re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {name for line in defined for name in line.split()}
    for path in DOCUMENTS:
        for name in re.findall(r"(?:^    |`)make ([a-z]+)", path.read_text(), re.MULTILINE):
            assert name in targets, f"{path.name} names `make {name}`"


def test_rooms_of_the_map_are_the_rooms_of_the_code() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    documented = set(re.findall(r"^\| `(kraftpy/[a-z.]+)`", text, re.MULTILINE))
    packages = {f"kraftpy/{path.parent.name}" for path in ROOT.glob("kraftpy/*/__init__.py")}
    assert documented == packages


def test_make_help_shows_every_target() -> None:
    command = ["make", "-s", "help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    for name in ("up", "setup", "test", "lint", "bench", "sim", "exam", "crash", "jepsen", "spark"):
        assert re.search(rf"make (\w+ )*{name}\b", shown.stdout), name
