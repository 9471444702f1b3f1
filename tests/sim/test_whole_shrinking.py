"""A failing world is made small, and written down as a test."""

from __future__ import annotations

from typing import Any

from kraftpy.faults.language import Kill, parse_fault
from kraftpy.node.coordinators import internal_topics
from kraftpy.sim.whole.machines import node_settings
from kraftpy.sim.whole.notes import Note
from kraftpy.sim.whole.run import WholeCase, make_case
from kraftpy.sim.whole.schedule import PlannedFault, draw_plan
from kraftpy.sim.whole.shrinking import case_as_test, shrink
from kraftpy.sim.whole.swarm import FAULT_NAMES, WholeSwarm, draw_more, draw_swarm
from kraftpy.sim.whole.timeline import timeline
from kraftpy.world.memory_rng import MemoryRng

# What a topic may be created with.
LEAST_SEGMENT_BYTES = 1_048_576
SNAPSHOTS = "metadata.log.max.record.bytes.between.snapshots"


def drawn(seed: int) -> WholeSwarm:
    random = MemoryRng(seed, "whole")
    return draw_more(random.stream("more"), draw_swarm(random.stream("swarm")))


def test_what_has_no_part_in_it_is_left_out() -> None:
    """JEP-148: it fails as long as faults 3 and 7 are there, and snapshots are frequent."""
    extremes = {
        "metadata.log.max.record.bytes.between.snapshots": "1500",
        "fetch.max.bytes": "1024",
    }
    swarm = WholeSwarm(
        node_extremes=extremes,
        buggify=True,
        vandals=2,
        workloads=("queue-assign", "metadata"),
        faults=("kill",),
    )
    plan = [PlannedFault(number, number + 0.5, 1.0, Kill(1)) for number in range(20)]
    case = WholeCase(1, swarm, plan, seconds=60.0)
    asked = []

    def run(candidate: WholeCase) -> str | None:
        asked.append(candidate)
        has_both = {3, 7} <= {each.number for each in candidate.plan}
        return "bad" if has_both and SNAPSHOTS in candidate.swarm.node_extremes else "other"

    shrunk = shrink(case, "bad", run)
    assert [each.number for each in shrunk.case.plan] == [3, 7]
    assert shrunk.case.swarm == WholeSwarm(
        node_extremes={SNAPSHOTS: "1500"},
        faults=("kill",),
        slots=1,
    )
    assert shrunk.case.seconds < 30
    assert shrunk.runs == len(asked) < 100


def test_the_budget_is_kept() -> None:
    plan = [PlannedFault(number, 1.0, 1.0, Kill(1)) for number in range(50)]
    case = WholeCase(1, WholeSwarm(), plan, seconds=60.0)
    assert shrink(case, "bad", lambda _: "bad", budget=7).runs == 7


def test_the_text_of_a_test_is_the_case_itself() -> None:
    case = make_case(11, seconds=40.0)
    assert case.plan
    runs: list[Any] = []

    class Kept(WholeCase):
        def run(self, window: range = range(0)) -> Any:
            runs.append(self)

    names = {
        "WholeSwarm": WholeSwarm,
        "PlannedFault": PlannedFault,
        "parse_fault": parse_fault,
        "WholeCase": Kept,
        "LinkProfile": type(case.swarm.link),
        "inf": float("inf"),
    }
    exec(case_as_test(case, "bad"), names)
    names["test_seed_11"]()
    [again] = runs
    assert (again.seed, again.swarm, again.plan) == (case.seed, case.swarm, case.plan)


def test_a_column_for_each_node() -> None:
    lines = list(timeline((1, 2), [Note(1.5, 2, "is killed"), Note(2.0, 0, "the faults are over")]))
    assert lines[0].split("|")[1:] == [f" {'all':<26} ", f" {'node 1':<26} ", " node 2"]
    assert lines[2].split("|")[3].strip() == "is killed"
    assert lines[3].split("|")[1].strip() == "the faults are over"


def test_the_settings_of_a_world_are_legal() -> None:
    """Of nodes, and of the topics that coordinators have created by themselves."""
    for seed in range(60):
        swarm = drawn(seed)
        config = node_settings(1, swarm.controllers, swarm.brokers, swarm.node_settings)
        if config.is_broker:
            for template in internal_topics(config).values():
                assert int(template.configs["segment.bytes"]) >= LEAST_SEGMENT_BYTES


def test_worlds_differ_and_make_sense() -> None:
    """JEP-146: within some hundred seeds everything that can be drawn is drawn."""
    swarms = [drawn(seed) for seed in range(300)]
    assert {len(each.node_ids) for each in swarms} == {3, 4, 5}
    assert {each.buggify for each in swarms} == {True, False}
    assert {name for each in swarms for name in each.faults} == set(FAULT_NAMES)
    assert len({name for each in swarms for name in each.workloads}) == 16
    assert any(each.controllers != each.brokers for each in swarms)
    for number, swarm in enumerate(swarms):
        plan = draw_plan(MemoryRng(number, "whole").stream("plan"), swarm, 20.0)
        assert [each.number for each in plan] == list(range(len(plan)))
        assert all(each.fault.name in swarm.faults for each in plan)
