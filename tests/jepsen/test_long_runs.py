"""The runs that take hours, for a few seconds each: real nodes, and what must never happen.

How quick the machine is decides nothing here: only safety is held against them.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from jepsen_tests.long import overload, power, soak

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize(("mode", "victims"), [("flush", 3), ("default", 1)])
async def test_nothing_acknowledged_is_lost_with_the_power(
    mode: str, victims: int, tmp_path: Path
) -> None:
    """JEP-153: two losses of the two hundred; all nodes in flush mode, one in default mode."""
    plan = power.PowerOptions(cycles=2, mode=mode, seed=153, seconds=1.0)
    print(plan.command)
    progress = io.StringIO()
    outcome = await power.perform(plan, tmp_path, progress)
    assert outcome.verdict.bad == ()
    assert outcome.deaths == []
    assert outcome.acked > 0
    assert "power: 2 of 2" in progress.getvalue()
    facts = power.facts_of(plan, outcome)
    assert (facts["kind"], facts["cycles"], facts["mode"]) == ("power", 2, mode)
    assert len(facts["losses"]) == 2 * victims


async def test_a_soak_goes_window_by_window(tmp_path: Path) -> None:
    """JEP-161: one here; the cluster is measured after each."""
    plan = soak.SoakOptions(
        seconds=0.1,
        window_seconds=4,
        workloads=["queue-txn"],
        nemeses=["kill"],
        seed=161,
        rate=40,
    )
    outcome = await soak.perform(plan, tmp_path, io.StringIO())
    [window] = outcome.windows
    assert window["bad"] == []
    assert outcome.deaths == []
    [sample] = outcome.samples
    for node in (1, 2, 3):
        for name in ("memory", "descriptors", "threads", "disk"):
            assert sample.values[node, name] > 0
    assert soak.facts_of(plan, outcome)["drift"] == "unknown"


async def test_twice_the_load_loses_nothing(tmp_path: Path) -> None:
    """JEP-162: for two seconds; how soon it is as before is for a machine that is not busy."""
    plan = overload.OverloadOptions(seconds=2, measuring_seconds=1, seed=162, patience_seconds=2)
    outcome = await overload.perform(plan, tmp_path, io.StringIO())
    assert [verdict.bad for verdict in outcome.verdicts] == [()] * 3
    assert outcome.deaths == []
    assert outcome.capacity > 0
    assert outcome.carried > 0
