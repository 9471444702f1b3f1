"""Makes a failing world small: fewer faults, fewer features, less time, the same violation.

A candidate is kept only if it fails with the same code as the world it came from. In this order:
the time after the violation goes; then faults of the plan, by halves, quarters and so on down to
single ones (delta debugging); then features of the swarm, one at a time. Everything hangs on the
seed and on what is left, so the smallest world found can be written down and run again at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from kraftpy.faults.language import format_fault
from kraftpy.sim.whole.run import WholeCase
from kraftpy.sim.whole.schedule import PlannedFault
from kraftpy.sim.whole.swarm import WholeSwarm

__all__ = ["Shrunk", "case_as_test", "shrink"]

_SPARE_SECONDS = 1.0
_LEAST_SECONDS = 2.0

# What a run has come to: the code of its violation, or None.
Verdict = Callable[[WholeCase], str | None]


@dataclass(slots=True)
class Shrunk:
    case: WholeCase
    runs: int


def shrink(
    case: WholeCase,
    code: str,
    run: Verdict,
    *,
    budget: int = 200,
    progress: Callable[[int, str], None] = lambda _runs, _what: None,
) -> Shrunk:
    """`case` has failed with `code`; at most `budget` further runs. `run` may be asked often."""
    state = Shrunk(case, 0)

    def fails(candidate: WholeCase, what: str) -> bool:
        if state.runs >= budget:
            return False
        state.runs += 1
        found = run(candidate)
        progress(state.runs, f"{what}: {'still ' + code if found == code else 'no'}")
        if found == code:
            state.case = candidate
        return found == code

    _cut_time(state, fails)
    _drop_faults(state, fails)
    _drop_features(state, fails)
    _cut_time(state, fails)
    return state


Try = Callable[[WholeCase, str], bool]


def _again(
    case: WholeCase,
    *,
    swarm: WholeSwarm | None = None,
    plan: Sequence[PlannedFault] | None = None,
    seconds: float | None = None,
) -> WholeCase:
    """A case that has not run yet."""
    return WholeCase(
        case.seed,
        swarm or case.swarm,
        case.plan if plan is None else plan,
        seconds=seconds or case.seconds,
    )


def _cut_time(state: Shrunk, fails: Try) -> None:
    """Halve the time with faults as often as that goes well."""
    while (half := state.case.seconds / 2) >= _LEAST_SECONDS:
        plan = [each for each in state.case.plan if each.at_seconds < half]
        if not fails(_again(state.case, plan=plan, seconds=half), f"{half:.1f} s"):
            return


def _drop_faults(state: Shrunk, fails: Try) -> None:
    """ddmin: leave out ever smaller parts of the plan."""
    size = len(state.case.plan)
    while size >= 1:
        start = 0
        while start < len(state.case.plan):
            plan = state.case.plan
            kept = [*plan[:start], *plan[start + size :]]
            left_out = f"without {min(size, len(plan) - start)} of {len(plan)} faults"
            if not fails(_again(state.case, plan=kept), left_out):
                start += size
        size = min(size, len(state.case.plan)) // 2


def _drop_features(state: Shrunk, fails: Try) -> None:
    for name, change in _simplifications(state.case.swarm):
        swarm = replace(state.case.swarm, **change)
        if swarm != state.case.swarm:
            fails(_again(state.case, swarm=swarm), f"plain {name}")


def _simplifications(swarm: WholeSwarm) -> Iterator[tuple[str, dict[str, Any]]]:
    plain = WholeSwarm()
    for workload in swarm.workloads[1:]:
        left = tuple(each for each in swarm.workloads if each != workload)
        yield workload, {"workloads": left}
    for name in (
        *("buggify", "vandals", "has_old_clients", "left_behind", "disk_seconds", "clock_rates"),
        *("wall_offsets_ms", "link", "compression", "node_extremes", "topic_extremes", "keys"),
        *("overlaps", "partitions", "group_protocol", "crash_mean_ms", "has_elr"),
    ):
        yield name, {name: getattr(plain, name)}
    for name in ("node_extremes", "topic_extremes"):
        for key in getattr(swarm, name):
            left_over = {each: value for each, value in getattr(swarm, name).items() if each != key}
            yield key, {name: left_over}
    for slots in range(swarm.slots - 1, 0, -1):
        yield f"{slots} slots", {"slots": slots}


def case_as_test(case: WholeCase, code: str) -> str:
    """A test that fails as long as the bug is there, as text."""
    plain = WholeSwarm()
    differences = [
        f"        {each.name}={getattr(case.swarm, each.name)!r},\n"
        for each in fields(WholeSwarm)
        if getattr(case.swarm, each.name) != getattr(plain, each.name)
    ]
    faults = [
        f"        PlannedFault({each.number}, {each.at_seconds!r}, {each.seconds!r}, "
        f'parse_fault("{format_fault(each.fault)}")),\n'
        for each in case.plan
    ]
    return (
        f"def test_seed_{case.seed}() -> None:\n"
        f'    """Was {code}."""\n'
        f"    swarm = WholeSwarm(\n{''.join(differences)}    )\n"
        f"    plan = [\n{''.join(faults)}    ]\n"
        f"    WholeCase({case.seed}, swarm, plan, seconds={case.seconds!r}).run()\n"
    )
