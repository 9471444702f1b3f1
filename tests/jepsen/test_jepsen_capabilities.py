"""The probe tries what the machine offers, and says so."""

from __future__ import annotations

import pytest

from jepsen_tests.cluster import capabilities
from jepsen_tests.cluster.capabilities import Capability, probe, table
from jepsen_tests.cluster.errors import HarnessError


def test_the_table_says_what_is_missing_and_why() -> None:
    """JEP-119"""
    found = [Capability("kill", "signals", None), Capability("loss", "netem", "no such thing")]
    assert table(found).splitlines() == [
        "faults  by       here",
        "kill    signals  yes",
        "loss    netem    no such thing",
    ]


async def test_what_needs_no_privileges_is_always_there() -> None:
    """JEP-119, JEP-122"""
    found = {(each.faults, each.backend): each.problem for each in await probe()}
    assert found["delay, reset, hold", "proxy"] is None
    assert found["kill, pause, restart", "signals"] is None
    assert ("partitions, cut clients", "network namespaces") in found


async def test_a_trial_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """JEP-119"""

    async def fails() -> None:
        raise HarnessError("no rights\nat all")

    monkeypatch.setattr(capabilities, "_try_namespaces", fails)
    found = {each.backend: each.problem for each in await probe()}
    assert found["network namespaces"] == "no rights"
    assert found["netem"] == "no rights"
