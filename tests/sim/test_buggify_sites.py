"""The places in the product at which a simulation may have a rare choice made (JEP-135)."""

from __future__ import annotations

import pytest

from kraftpy.sim import buggify
from kraftpy.sim.whole.run import WholeCase, make_case
from kraftpy.sim.whole.swarm import WholeSwarm
from kraftpy.world.real import real_world

LEAST_SITES = 40


def test_every_site_has_a_name_of_its_own() -> None:
    sites = buggify.product_sites()
    assert len(sites) == len(set(sites)) >= LEAST_SITES


def test_none_ever_fires_in_production() -> None:
    world = real_world()
    assert not any(world.buggify(site) for site in buggify.product_sites())


def test_sites_are_reached_and_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them at once, which no drawn run has. The others need more time than there is here:
    `kraftpy sim run` tells which were silent.
    """
    monkeypatch.setattr(buggify, "_ENABLED_SHARE", 1.0)
    swarm = WholeSwarm(workloads=("queue-txn",), faults=("kill", "restart"), buggify=True)
    drawn = make_case(1, seconds=6.0, swarm=swarm)
    outcome = WholeCase(1, swarm, drawn.plan, seconds=6.0).run().value
    fired = [site for site, count in outcome.buggified.items() if count]
    print(sorted(each for each in buggify.product_sites() if each not in fired))
    assert len(fired) >= LEAST_SITES - 10
