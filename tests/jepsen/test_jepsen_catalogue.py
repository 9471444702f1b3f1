"""Kinds of faults: names, ids, targets, and what a nemesis makes of them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from jepsen_tests.cluster import JepsenCluster
from jepsen_tests.cluster.errors import NotHereError
from jepsen_tests.nemeses import kinds, nemesis_of
from jepsen_tests.nemeses.catalogue import CATALOGUE
from jepsen_tests.nemeses.kind import Scene
from jepsen_tests.nemeses.targets import SETS, draw_nodes, draw_one, draw_text
from jepsen_tests.run import recreated_keys
from kraftpy.faults.language import Fault, RecreateTopic, Reset
from kraftpy.faults.switchboard import FaultRefusedError
from kraftpy.verify.history import Recorder

# Of the specification's N1 to N29 those that only the simulator has, or the workloads.
ELSEWHERE = {"N7", "N25"}


def test_every_fault_of_the_specification_that_processes_can_have_is_there() -> None:
    """JEP-90 to JEP-118"""
    ids = {kind.id for kind in kinds()}
    assert ids == {f"N{number}" for number in range(1, 30)} - ELSEWHERE


def test_names_are_unique_and_speak() -> None:
    names = [kind.name for kind in kinds()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)
    assert all(kind.summary for kind in kinds())


def test_the_document_has_them_all() -> None:
    document = (Path(__file__).parents[2] / "docs" / "jepsen.md").read_text()
    for kind in kinds():
        assert f"| {kind.id} | {kind.name} | {kind.summary} |" in document


def test_kinds_are_chosen_by_name_or_id() -> None:
    assert nemesis_of(["kill", "pause", "kill"]).names == ("kill", "pause")
    assert nemesis_of(["N3"]).names == ("restart", "rolling-restart")
    assert nemesis_of(["none"]).names == ()
    assert nemesis_of([]).names == ()
    with pytest.raises(ValueError, match="'meteor' is no nemesis; there are partition, "):
        nemesis_of(["kill", "meteor"])


def test_a_nemesis_knows_what_it_needs() -> None:
    assert nemesis_of(["kill", "hold"]).needs_proxy
    assert not nemesis_of(["kill", "partition"]).needs_proxy


def test_keys_that_began_anew_are_known_from_what_was_done_or_tried() -> None:
    recorder = Recorder(lambda: 0)
    for more in (
        {"faults": ["kill node=1", "recreate-topic topic=t1"], "doubtful": []},
        {"faults": [], "doubtful": ["recreate-topic topic=t3"]},
        {},
    ):
        recorder.nemesis({"name": "recreate-topic", "phase": "end", **more})
    assert recreated_keys(recorder.history({})) == {2: 0, 3: 0, 6: 1, 7: 1}


def test_sets_of_nodes_have_the_sizes_they_should_have() -> None:
    """Section 5.1"""
    sizes = {
        name: Counter(len(draw_nodes(Random(seed), [1, 2, 3, 4, 5], [name])) for seed in range(60))
        for name in SETS
    }
    assert sizes["one"].keys() == {1}
    assert sizes["minority"].keys() == {2}
    assert sizes["majority"].keys() == {3}
    assert sizes["all"].keys() == {5}
    assert sizes["some"].keys() == {1, 2, 3, 4, 5}
    assert all(set(draw_nodes(Random(seed), [2, 4])) <= {2, 4} for seed in range(20))


def test_without_targets_there_is_no_fault() -> None:
    """JEP-119"""
    assert draw_one(Random(1), [], [3]) == 3
    assert draw_one(Random(1), [2], [3]) == 2
    for attempt in (
        lambda: draw_nodes(Random(1), []),
        lambda: draw_one(Random(1), [], []),
        lambda: draw_text(Random(1), []),
    ):
        with pytest.raises(NotHereError):
            attempt()


class SlowLinks:
    """As much of a cluster as kinds of the network need."""

    node_ids = (1, 2, 3)

    def __init__(self, struck: int) -> None:
        self.switchboard = SimpleNamespace(delayed_count=7, reset_count=7)
        self._struck = struck

    async def apply(self, fault: Fault) -> None:
        counter = "reset_count" if isinstance(fault, Reset) else "delayed_count"
        setattr(self.switchboard, counter, 7 + self._struck)

    async def heal_links(self) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "effect"),
    [("delay", "3 pieces of data were late"), ("reset", "3 connections were reset")],
)
async def test_what_befell_a_link_is_an_effect(name: str, effect: str) -> None:
    """JEP-110, JEP-111: a run under nothing else is not vacuous. What hit nobody is none."""
    for struck, effects in [(3, [effect]), (0, [])]:
        scene = Scene(cast("JepsenCluster", SlowLinks(struck)), Random(1))
        await CATALOGUE[name].begin(scene)
        await CATALOGUE[name].end(scene)
        assert scene.effects == effects


class Refusing:
    """A cluster that gives up on the way, except with resets."""

    async def apply(self, fault: Fault) -> None:
        if not isinstance(fault, Reset):
            raise FaultRefusedError("no answer")


async def test_what_failed_on_the_way_is_doubtful() -> None:
    scene = Scene(cast("JepsenCluster", Refusing()), Random(1))
    await scene.do(Reset((1,), (2,)))
    with pytest.raises(FaultRefusedError):
        await scene.do(RecreateTopic("t1"))
    assert (scene.faults, scene.doubtful) == (["reset a=1 b=2"], ["recreate-topic topic=t1"])
