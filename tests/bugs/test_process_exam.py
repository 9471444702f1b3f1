"""The machinery of the process exam: nodes with a seeded bug, and what is recorded of trials.

The exam itself takes hours: `make exam-processes`.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import buggy_node
import pytest
from buggy_node import find_bug, node_command
from exam import SUITES
from exam_table import PROCESS_RESULTS
from process_exam import LIMIT_SECONDS
from process_trials import TRIALS

from jepsen_tests.cli import _parser, _runs
from jepsen_tests.clients.table import find_clients, parse_servers
from jepsen_tests.cluster import ClusterOptions, open_cluster
from jepsen_tests.nemeses import nemesis_of
from jepsen_tests.run import RunOptions
from kraftpy.broker.partition import Partition
from kraftpy.cli import main as kraftpy
from kraftpy.client.calls import TopicPartition
from kraftpy.verify.workloads.catalogue import find_workload
from kraftpy.verify.workloads.own_admin import open_own_admin
from kraftpy.verify.workloads.own_client import open_own_client
from kraftpy.verify.workloads.payload import Content, encode
from kraftpy.verify.workloads.port import Ack, ClientSpec
from kraftpy.world.real import real_world

JEPSEN = Path(__file__).parents[2] / "docs" / "jepsen.md"


def test_a_buggy_node_is_a_node_with_one_method_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(vars(Partition))
    seen: list[tuple[Any, dict[str, Any]]] = []

    def node(arguments: list[str]) -> int:
        seen.append((arguments, dict(vars(Partition))))
        return 7

    monkeypatch.setattr(kraftpy, "main", node)
    words = [
        "buggy_node.py",
        "replication: leader alone commits",
        "--faults",
        "a:1",
        "x.properties",
    ]
    monkeypatch.setattr(sys, "argv", words)
    assert buggy_node.main() == 7
    [(arguments, during)] = seen
    assert arguments == ["node", "--faults", "a:1", "x.properties"]
    assert [name for name in before if before[name] is not during[name]] == [
        "_advance_high_watermark"
    ]


@pytest.mark.parametrize("title", ["replication: none such", "none such: leader alone commits"])
def test_a_bug_that_there_is_not_starts_no_node(title: str) -> None:
    with pytest.raises(SystemExit, match="none such"):
        find_bug(title)


@pytest.mark.compat
async def test_a_buggy_node_serves_and_has_its_bug(tmp_path: Path) -> None:
    """One unstable record is shown: that of a transaction which nobody has ended."""
    world = real_world()
    options = ClusterOptions(
        nodes=1,
        network="proxy",
        directory=str(tmp_path),
        command=node_command("replication", "one unstable record is shown"),
        uses_shim=False,
    )
    where = TopicPartition("t", 0)
    async with open_cluster(world, options) as cluster:
        servers = parse_servers(cluster.bootstrap_servers)
        spec = ClientSpec("p", transactional_id="x", transaction_timeout_ms=60_000)
        async with (
            open_own_admin(world, servers) as admin,
            open_own_client(world, servers, spec) as client,
        ):
            await admin.create_topic("t", 1, 1, {})
            await client.init_transactions()
            await client.begin()
            record = encode(Content(key=0, value=0, process=0, operation=0))
            assert await client.send([(where, record)]) == [Ack(0, 0)]
            assert (await admin.log_ends([where]))[where] == (0, 1, 1)
            await client.abort_transaction()


def test_a_run_of_buggy_nodes_can_be_repeated(tmp_path: Path) -> None:
    trial = TRIALS[0]
    options = RunOptions(
        find_workload(trial.workload),
        nemesis_of(trial.nemeses),
        tuple(find_clients(["own"])),
        tmp_path,
    )
    assert "--node-command" not in options.command
    buggy = node_command(trial.suite, trial.bug)
    for asked in (options, replace(options, node_command=buggy, group_protocol="consumer")):
        words = shlex.split(asked.command)[3:]
        [again] = _runs(_parser().parse_args(words))
        assert again.node_command == asked.node_command
        assert again.group_protocol == asked.group_protocol


def test_trials_are_of_bugs_workloads_faults_and_anomalies_that_there_are() -> None:
    """Each bug once, and nothing that the checkers could never say."""
    bugs = {f"{suite.name}: {bug.name}" for suite in SUITES for bug in suite.bugs}
    titles = [trial.title for trial in TRIALS]
    assert set(titles) <= bugs
    assert len(set(titles)) == len(titles)
    rows = re.findall(r"^\| (?:[AGLT]\d+[, ]*)+\| ([^|]*) \|", JEPSEN.read_text(), re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")}
    for trial in TRIALS:
        find_workload(trial.workload)
        nemesis_of(trial.nemeses)
        assert trial.anomalies
        assert set(trial.anomalies) <= named


def test_twelve_bugs_or_more_were_found_by_processes_within_five_minutes() -> None:
    recorded = json.loads(PROCESS_RESULTS.read_text())
    trials = {trial.title: trial for trial in TRIALS}
    assert len(recorded) >= 12
    for title, found in recorded.items():
        trial = trials[title]
        assert found["code"] in trial.anomalies
        assert (found["workload"], tuple(found["nemeses"])) == (trial.workload, trial.nemeses)
        assert 0 < found["seconds"] <= LIMIT_SECONDS == 300
