"""JEP-160: nodes are upgraded and downgraded one by one, under load, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from jepsen.older_node import COMMAND
from jepsen.test_jepsen_smoke import Silence

from jepsen_tests.clients.table import find_clients
from jepsen_tests.cluster import ClusterOptions, NotHereError, open_cluster
from jepsen_tests.nemeses import nemesis_of
from jepsen_tests.run import RunOptions, perform
from kraftpy.faults.language import SwitchVersion
from kraftpy.verify.workloads.catalogue import find_workload
from kraftpy.world.real import real_world

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]


async def test_nodes_roll_to_another_version_and_back(tmp_path: Path) -> None:
    """JEP-160, JEP-117: also half-way, in a cluster of both."""
    options = RunOptions(
        find_workload("queue-txn"),
        nemesis_of(["versions"]),
        tuple(find_clients(["own"])),
        tmp_path,
        seconds=15,
        seed=160,
        network="proxy",
        rate=40,
        slots=4,
        quiet_seconds=0,
        recovery_seconds=1,
        final_read_seconds=600,
        heal_seconds=300,
        in_sync_seconds=300,
        least_kinds=("txn",),
        other_command=COMMAND,
    )
    print(options.command)
    outcome = await perform(options, Silence())
    assert outcome.error is None
    assert outcome.verdict is not None
    assert outcome.verdict.bad == ()
    effects = [
        text for event in outcome.history.nemesis_events for text in event.value.get("effects", ())
    ]
    assert any("of the other version are " in text for text in effects), effects
    assert not any(event.value.get("refused") for event in outcome.history.nemesis_events)


async def test_without_another_version_it_is_skipped(tmp_path: Path) -> None:
    """JEP-119: the command that is missing is named."""
    options = ClusterOptions(nodes=1, network="proxy", directory=str(tmp_path))
    async with open_cluster(real_world(), options) as cluster:
        missing = None
        try:
            await cluster.apply(SwitchVersion(1))
        except NotHereError as error:
            missing = str(error)
    assert missing == "there is no other version (--other-command)"
