"""docs/testing-with-kraftpy.md is true: its examples pass, and its tables are complete."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest
from pytest_runs import run_pytest

from kraftpy.faults.language import FAULTS
from kraftpy.testing.cluster import _HERE, KafkaCluster
from kraftpy.testing.options import ClusterOptions

DOCUMENT = Path(__file__).parents[2] / "docs" / "testing-with-kraftpy.md"


@pytest.mark.compat
def test_the_examples_pass_as_printed(tmp_path: Path) -> None:
    """In files of the names that they begin with, in one run of pytest without our settings."""
    blocks = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(blocks) == DOCUMENT.read_text().count("```python")
    said = run_pytest(tmp_path, dict(blocks))
    tests = sum(len(re.findall(r"^def test_", source, re.MULTILINE)) for _, source in blocks)
    # One of them has two parameters.
    assert f"{tests + 1} passed" in said, said


def test_every_fault_is_in_the_table() -> None:
    rows = re.findall(r"^\| (`\w+\(.*?\)`.*?) \|", DOCUMENT.read_text(), re.MULTILINE)
    calls = [call for row in rows for call in re.findall(r"`(\w+)\((.*?)\)`", row)]
    # The others are for those who run clusters themselves, and `apply` refuses them.
    of_a_cluster = {name.replace("-", "_") for name in FAULTS} & set(dir(KafkaCluster))
    assert {name for name, _ in calls} == of_a_cluster
    assert of_a_cluster == {each.name.replace("-", "_") for each in _HERE}
    for name, arguments in calls:
        told = [each.partition("=")[0].strip() for each in arguments.split(",") if each]
        _, *parameters = inspect.signature(getattr(KafkaCluster, name)).parameters
        assert told == parameters, name


def test_every_argument_of_the_marker_is_in_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ", DOCUMENT.read_text(), re.MULTILINE)
    assert [*rows, "ready_timeout_seconds"] == [each.name for each in fields(ClusterOptions)]
