"""The simulators behind one door: a level, a seed, a size, and what came of it.

All but `whole` run sans-I/O cores on an event heap (L2), in seconds of virtual time that cost next
to nothing; their size is a number of events. `whole` runs complete nodes and clients (L3); its size
is a number of virtual seconds with faults, or of delivered messages.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from kraftpy.sim.cluster_data_run import data_simulation
from kraftpy.sim.cluster_simulation import ClusterSimulation
from kraftpy.sim.coordinator_simulation import CoordinatorSimulation
from kraftpy.sim.digest import RunTrace
from kraftpy.sim.kernel import EventHeap
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.quorum_simulation import QuorumSimulation
from kraftpy.sim.seed_run import Run, SeededSimulation
from kraftpy.sim.server_simulation import ServerSimulation
from kraftpy.sim.storage_simulation import StorageSimulation
from kraftpy.sim.whole.run import WholeCase, make_case
from kraftpy.sim.whole.timeline import timeline

__all__ = ["LEVELS", "Level", "SeedReport", "Size", "code_of", "find_level", "run_case"]


@dataclass(frozen=True, slots=True)
class Size:
    """None: what is usual for the level."""

    events: int | None = None
    seconds: float | None = None
    messages: int | None = None


@dataclass(frozen=True, slots=True)
class SeedReport:
    """What is to be known of one run, and may be sent from one process to another."""

    level: str
    seed: int
    # None: all was well. Otherwise the name of what was violated.
    code: str | None
    details: str
    # Events of the digest, and what the level counts as the length of a run.
    events: int
    steps: int
    virtual_seconds: float
    processor_seconds: float
    digest: str
    window: tuple[str, ...] = ()
    timeline: tuple[str, ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return self.code is None


def code_of(error: BaseException) -> str:
    """The name of what went wrong, by which two failures are the same."""
    return error.code if isinstance(error, InvariantViolated) else type(error).__name__


@dataclass(frozen=True, slots=True)
class Level:
    name: str
    summary: str
    usual: Size
    run: Callable[[int, Size, range], SeedReport]


def find_level(name: str) -> Level:
    return next(level for level in LEVELS if level.name == name)


def _quiet() -> None:
    """Nodes that are killed all the time have a lot to say."""
    logger = logging.getLogger("kraftpy")
    if not any(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
        logger.addHandler(logging.NullHandler())
    logger.propagate = False


def _on_heap(name: str, make: Callable[[int, range], SeededSimulation[Run]], usual: int) -> Any:
    def run(seed: int, size: Size, window: range) -> SeedReport:
        _quiet()
        began = time.process_time()
        simulation = make(seed, window)
        code, details, virtual_us = None, "", 0
        try:
            virtual_us = simulation.run(size.events or usual).virtual_us
        except Exception as error:
            code, details = code_of(error), str(error)
        trace = simulation.digest.trace()
        # Logs and requests are simulated in trio.
        heap: EventHeap | None = getattr(simulation, "heap", None)
        return SeedReport(
            name,
            seed,
            code,
            details,
            trace.event_count,
            trace.event_count,
            virtual_us / 1e6,
            time.process_time() - began,
            trace.digest,
            trace.window_events,
            figures={} if heap is None else {"heap_events": heap.done_count},
        )

    return run


_WHOLE_SECONDS: Final = 60.0


def run_whole(seed: int, size: Size, window: range) -> SeedReport:
    return run_case(
        make_case(seed, seconds=size.seconds or _WHOLE_SECONDS, messages=size.messages), window
    )


def run_case(case: WholeCase, window: range = range(0)) -> SeedReport:
    """A world of whole nodes, perhaps one that was made smaller."""
    _quiet()
    began = time.process_time()
    code, details = None, ""
    try:
        case.run(window)
    except Exception as error:
        code, details = code_of(error), str(error)
    outcome = case.system.outcome
    trace: RunTrace = case.trace
    return SeedReport(
        "whole",
        case.seed,
        code,
        details,
        trace.event_count,
        outcome.messages,
        case.virtual_seconds,
        time.process_time() - began,
        trace.digest,
        tuple(case.readable(line) for line in trace.window_events),
        tuple(timeline(case.swarm.node_ids, outcome.notes)),
        {
            "operations": outcome.operations,
            "acknowledged": outcome.acknowledged,
            "faults": outcome.faults,
            "workloads": list(case.swarm.workloads),
            "buggified": outcome.buggified,
        },
    )


def _level(
    name: str, summary: str, make: Callable[[int, range], SeededSimulation[Run]], events: int
) -> Level:
    return Level(name, summary, Size(events=events), _on_heap(name, make, events))


LEVELS: Final = (
    Level("whole", "complete nodes and clients", Size(seconds=_WHOLE_SECONDS), run_whole),
    _level(
        "quorum",
        "the Raft quorum of controllers",
        lambda seed, window: QuorumSimulation(seed, window=window),
        20_000,
    ),
    _level(
        "cluster",
        "controllers and brokers, metadata and replication",
        lambda seed, window: ClusterSimulation(seed, window=window),
        20_000,
    ),
    _level("data", "the same, with producers and consumers always", data_simulation, 20_000),
    _level(
        "coordinators",
        "groups, offsets and transactions",
        lambda seed, window: CoordinatorSimulation(seed, window=window),
        5_000,
    ),
    _level(
        "logs",
        "logs on disks that lose power",
        lambda seed, window: StorageSimulation(seed, window=window),
        300,
    ),
    _level(
        "requests",
        "connections, answers that wait, timers",
        lambda seed, window: ServerSimulation(seed, window=window),
        60,
    ),
)
