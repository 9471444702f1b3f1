"""Both kinds of network between nodes do the same to the same faults (JEP-120, JEP-122).

That nothing passes is waited for only shortly: a machine that is slow makes these tests weaker,
never red.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trio
from jepsen_network_kit import End, opened

from jepsen_tests.cluster.capabilities import user_namespaces_problem
from jepsen_tests.cluster.commands import ask
from jepsen_tests.cluster.errors import NotHereError
from jepsen_tests.cluster.unprivileged import wrapped
from kraftpy.faults.language import CutClients, Delay, Fault, Hold, OneWay, Partition, Reset

KINDS = pytest.mark.parametrize("kind", ["namespaces", "proxy"])
SILENCE_SECONDS = 0.3
PATIENCE_SECONDS = 120.0


async def arrives(end: End, data: bytes) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        assert await end.receive(len(data)) == data


async def stays_away(end: End) -> None:
    with trio.move_on_after(SILENCE_SECONDS) as scope:
        await end.receive(1)
    assert scope.cancelled_caught


@KINDS
async def test_a_partition_stops_everything_and_heals(kind: str, tmp_path: Path) -> None:
    """N1, JEP-90: what was sent arrives after healing, and nothing is left."""
    async with opened(kind, tmp_path) as (links, machines):
        one, two = await machines.connect(1, 2)
        await one.send(b"before")
        await arrives(two, b"before")
        await links.apply(Partition((1,), (2, 3)))
        assert await links.cut_count() == 4
        await one.send(b"there")
        await two.send(b"back")
        await stays_away(two)
        await stays_away(one)
        with trio.move_on_after(SILENCE_SECONDS) as scope:
            await machines.connect(1, 3)
        assert scope.cancelled_caught
        with trio.fail_after(PATIENCE_SECONDS):
            others, _ = await machines.connect(3, 2)
            await others.send(b"not cut")
        await links.heal()
        assert await links.cut_count() == 0
        await arrives(two, b"there")
        await arrives(one, b"back")


@KINDS
async def test_one_way_stops_one_way(kind: str, tmp_path: Path) -> None:
    """N1, JEP-90: "can't send", for a connection that stood before."""
    async with opened(kind, tmp_path) as (links, machines):
        one, two = await machines.connect(1, 2)
        await two.send(b"before")
        await arrives(one, b"before")
        await links.apply(OneWay((1,), (2,)))
        assert await links.cut_count() == 1
        await two.send(b"heard")
        await arrives(one, b"heard")
        await one.send(b"mute")
        await stays_away(two)
        await links.heal()
        await arrives(two, b"mute")


@KINDS
async def test_clients_are_cut_and_nodes_are_not(kind: str, tmp_path: Path) -> None:
    """N1, client-cut, JEP-90"""
    async with opened(kind, tmp_path) as (links, machines):
        client, served = await machines.connect(None, 2)
        one, two = await machines.connect(1, 2)
        await client.send(b"before")
        await arrives(served, b"before")
        await links.apply(CutClients((2,)))
        await client.send(b"request")
        await served.send(b"answer")
        await stays_away(served)
        await stays_away(client)
        await one.send(b"node")
        await arrives(two, b"node")
        await links.heal()
        assert await links.cut_count() == 0
        await arrives(served, b"request")
        await arrives(client, b"answer")


async def test_the_same_holds_in_namespaces_without_root() -> None:
    """JEP-121: the tests above once more, as root of a world of its own."""
    reason = await user_namespaces_problem()
    if reason is not None:
        pytest.skip(f"missing: user namespaces ({reason})")
    tests = [sys.executable, "-m", "pytest", __file__, "-k", "namespaces and not without_root"]
    said = await ask(wrapped([*tests, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]))
    assert "3 passed" in said


@pytest.mark.parametrize(
    "fault", [Delay((1,), (2,), 5), Reset((1,), (2,)), Hold(1, "Fetch")], ids=lambda each: each.name
)
async def test_a_real_network_says_what_it_can_not_do(fault: Fault, tmp_path: Path) -> None:
    """JEP-119: skipped, never passed in silence."""
    async with opened("namespaces", tmp_path) as (links, _):
        with pytest.raises(NotHereError, match="needs the proxy"):
            await links.apply(fault)  # type: ignore[arg-type]
