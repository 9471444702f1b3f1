"""The plugin in pytest runs of its own: fixtures, marker, seed, and the report of a failure."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from pytest_runs import run_pytest


def test_pytest_finds_the_plugin_where_kraftpy_is_installed(request: pytest.FixtureRequest) -> None:
    [found] = [each for each in entry_points(group="pytest11") if each.name == "kraftpy"]
    assert found.value == "kraftpy.testing.plugin"
    assert request.config.pluginmanager.hasplugin("kraftpy")


def test_a_run_without_clusters_pays_nothing(tmp_path: Path) -> None:
    """Whoever has kraftpy installed has the plugin loaded in every run."""
    source = """
import sys

def test_nothing_heavy():
    assert "kraftpy.testing.plugin" in sys.modules
    heavy = [name for name in sys.modules if name.startswith(("kraftpy.node", "kraftpy.testing.c"))]
    assert heavy == []
    assert "trio" not in sys.modules
"""
    said = run_pytest(tmp_path, {"test_user.py": source})
    assert "1 passed" in said, said


FAILING = """
import pytest

pytestmark = pytest.mark.kafka_cluster(nodes=3, one_process=True)

def test_bad_luck(kafka_cluster):
    assert len(kafka_cluster.nodes) == 3
    kafka_cluster.strike(["delay", "fail-next"])
    kafka_cluster.strike(["delay", "fail-next"])
    assert False

def test_good_luck(kafka_cluster):
    kafka_cluster.strike(["delay"])
"""


def test_a_failure_tells_its_seed_and_the_seed_repeats_it(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, {"test_user.py": FAILING})
    assert "1 failed, 1 passed" in said, said
    [command] = re.findall(r"^again: pytest (.*)$", said, re.MULTILINE)
    faults = re.findall(r"^ +[\d.]+ s  (.*)$", said, re.MULTILINE)
    assert len(faults) == 2
    assert re.fullmatch(r"--kafka-seed \d+ 'test_user.py::test_bad_luck'", command)
    assert len(re.findall(r"^node \d runs$", said, re.MULTILINE)) == 3

    options = command.replace("'", "").split()
    again = run_pytest(tmp_path, {"test_user.py": FAILING}, *options)
    assert "1 failed" in again
    assert re.findall(r"^ +[\d.]+ s  (.*)$", again, re.MULTILINE) == faults


SHARED = """
import os
import pytest
from kraftpy.testing.options import ClusterOptions

@pytest.fixture(scope="session")
def kafka_cluster_options():
    return ClusterOptions(nodes=2, one_process=True)

def test_one(kafka_cluster_session):
    kafka_cluster_session.kill(2)
    assert kafka_cluster_session.running == (1,)
    os.environ["FIRST"] = kafka_cluster_session.bootstrap_servers

def test_two(kafka_cluster_session):
    assert kafka_cluster_session.running == (1, 2)
    assert kafka_cluster_session.journal == []
    assert kafka_cluster_session.bootstrap_servers == os.environ["FIRST"]

def test_three(kafka_cluster):
    assert kafka_cluster.nodes == (1, 2)
    assert kafka_cluster.bootstrap_servers != os.environ["FIRST"]
"""


def test_a_session_has_one_cluster_that_is_healed_between_tests(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, {"test_user.py": SHARED})
    assert "3 passed" in said, said


WRONG = """
import pytest

@pytest.mark.kafka_cluster(nodes=1, settings={"broker.session.timeout.ms": "soon"})
def test_never(kafka_cluster):
    pass
"""


def test_wrong_settings_are_an_error_that_names_them(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, {"test_user.py": WRONG})
    assert "1 error" in said, said
    assert "broker.session.timeout.ms" in said
    assert "WrongSettingsError" in said
