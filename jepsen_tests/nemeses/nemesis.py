"""The nemesis of a run: carries out a schedule, and writes down what it does and what came of it.

Every window is two events in the history, `start` and `end`. The first names the kind and is there
before anything is done; the second has the faults as they were resolved and the effects that were
seen: what was done to a node for certain, leaders that changed and replicas that fell behind. What
could not be done has none, with the reason in `refused` or `skipped`: a run that counts on it is
then inconclusive, not valid. What failed on the way is `doubtful`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

from jepsen_tests.cluster import HarnessError, Inspection, JepsenCluster, NotHereError
from jepsen_tests.cluster.process_cluster import HEAL_SECONDS
from jepsen_tests.nemeses.catalogue import CATALOGUE, NONE
from jepsen_tests.nemeses.kind import Kind, Scene
from jepsen_tests.nemeses.schedule import Window, draw_schedule
from kraftpy.faults.switchboard import FaultRefusedError
from kraftpy.launch.errors import LaunchError
from kraftpy.verify.history import Recorder

__all__ = ["Nemesis", "kinds", "nemesis_of"]

log = logging.getLogger(__name__)


def kinds() -> Sequence[Kind]:
    """All there are."""
    return tuple(CATALOGUE.values())


def nemesis_of(names: Sequence[str]) -> Nemesis:
    """By names or ids; an id stands for all kinds that have it. Raises ValueError."""
    chosen: dict[str, Kind] = {}
    for name in names:
        found = [kind for kind in CATALOGUE.values() if name in (kind.name, kind.id)]
        if not found and name != NONE:
            known = ", ".join(CATALOGUE)
            raise ValueError(f"{name!r} is no nemesis; there are {known}, their ids, and {NONE}")
        chosen |= {kind.name: kind for kind in found}
    return Nemesis(tuple(chosen.values()))


@dataclass(slots=True)
class Nemesis:
    """Made by `nemesis_of`."""

    kinds: tuple[Kind, ...]
    skipped: dict[str, str] = field(default_factory=dict)
    """Kinds that this cluster can't have, and why."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(kind.name for kind in self.kinds)

    @property
    def needs_proxy(self) -> bool:
        """Whether a real network is not enough: the proxy can do more to connections."""
        return any(kind.needs_proxy for kind in self.kinds)

    def check(self, *, nodes: int, network: str, has_other_version: bool) -> None:
        """Raises ValueError if a kind can't happen: its run would end without a verdict."""
        for kind in self.kinds:
            if nodes < kind.min_nodes:
                least = kind.min_nodes
                raise ValueError(f"{kind.name} needs {least} nodes: run it with --nodes {least}")
            if kind.needs_proxy and network == "namespaces":
                raise ValueError(f"{kind.name} needs the proxy: run it with --network proxy")
            if kind.needs_other_version and not has_other_version:
                raise ValueError(f"{kind.name} needs another version: name it by --other-command")

    async def run(
        self, cluster: JepsenCluster, recorder: Recorder, random: Random, seconds: float
    ) -> None:
        """Strike for so long, as drawn from `random`; every window is over when this returns."""
        possible = [kind.name for kind in self.kinds if self._is_possible(kind, cluster)]
        if not possible:
            return
        windows = draw_schedule(random, possible, seconds)
        strikes: dict[str, list[tuple[Window, _Strike]]] = {name: [] for name in possible}
        for window in windows:
            scene = Scene(cluster, Random(random.getrandbits(64)))
            strike = _Strike(CATALOGUE[window.name], scene, recorder)
            strikes[window.name].append((window, strike))
        async with trio.open_nursery() as nursery:
            lock = trio.Lock()
            for turns in strikes.values():
                nursery.start_soon(_take_turns, cluster, turns, lock)

    async def heal(self, cluster: JepsenCluster, *, seconds: float = HEAL_SECONDS) -> None:
        """Everything is well again. Raises HarnessError if it does not become so."""
        await cluster.heal(seconds=seconds)

    def _is_possible(self, kind: Kind, cluster: JepsenCluster) -> bool:
        if kind.needs_proxy and cluster.network != "proxy":
            self.skipped[kind.name] = "needs the proxy between nodes (--network proxy)"
        elif len(cluster.node_ids) < kind.min_nodes:
            self.skipped[kind.name] = f"needs {kind.min_nodes} nodes"
        else:
            return True
        return False


async def _take_turns(
    cluster: JepsenCluster, turns: list[tuple[Window, _Strike]], lock: trio.Lock
) -> None:
    """One kind, window by window. One that is over before its turn comes is left out."""
    begun = cluster.now
    for window, strike in turns:
        await cluster.sleep(begun + window.start - cluster.now)
        if cluster.now < begun + window.end:
            await strike.run(begun + window.end, lock)


class _Strike:
    """One window."""

    def __init__(self, kind: Kind, scene: Scene, recorder: Recorder) -> None:
        self._kind = kind
        self._scene = scene
        self._recorder = recorder
        self._words: dict[str, str] = {}

    async def run(self, end: float, lock: trio.Lock) -> None:
        """Until then. One thing at a time is done to a cluster; several last at a time."""
        scene = self._scene
        before = await scene.inspect()
        self._recorder.nemesis({"name": self._kind.name, "id": self._kind.id, "phase": "start"})
        async with lock:
            has_begun = await self._try(self._kind.begin)
        await scene.cluster.sleep(end - scene.cluster.now)
        after = await scene.inspect()
        async with lock:
            if has_begun or scene.faults:
                await self._try(self._kind.end)
        scene.effects += _changes(before, after)
        self._recorder.nemesis(
            {
                "name": self._kind.name,
                "id": self._kind.id,
                "phase": "end",
                "faults": scene.faults,
                "doubtful": scene.doubtful,
                "effects": scene.effects if scene.faults else [],
                **self._words,
            }
        )

    async def _try(self, part: Callable[[Scene], Awaitable[Any]]) -> bool:
        try:
            await part(self._scene)
        except NotHereError as error:
            self._words["skipped"] = str(error)
        except (FaultRefusedError, LaunchError, HarnessError) as error:
            self._words["refused"] = str(error)
        else:
            return True
        log.info("%s: %s", self._kind.name, self._words)
        return False


def _changes(before: Inspection | None, after: Inspection | None) -> list[str]:
    """What the cluster itself says has changed in between."""
    if before is None or after is None:
        return [] if before is None else ["nobody answered any more"]
    found = []
    if before.controller_epoch != after.controller_epoch:
        found.append(f"the controller is {after.controller}, it was {before.controller}")
    changed = [
        where
        for where, state in after.partitions.items()
        if where in before.partitions and state.epoch != before.partitions[where].epoch
    ]
    if changed:
        found.append(f"leaders changed in {len(changed)} partitions")
    shrunk = [
        where
        for where, state in after.partitions.items()
        if where in before.partitions and len(state.isr) < len(before.partitions[where].isr)
    ]
    if shrunk:
        found.append(f"in-sync replicas are fewer in {len(shrunk)} partitions")
    return found
