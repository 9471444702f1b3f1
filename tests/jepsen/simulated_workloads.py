"""A workload against whole nodes in virtual time, from boot to verdict, as a test wants it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

import trio
from support.simulated_nodes import CLIENT, PORT, SimulatedNodes, run_nodes

from kraftpy.verify.checkers import Audit, Verdict, check
from kraftpy.verify.history import History, Recorder
from kraftpy.verify.workloads.auditing import Auditor
from kraftpy.verify.workloads.catalogue import Circumstances, find_workload
from kraftpy.verify.workloads.own_admin import open_own_admin
from kraftpy.verify.workloads.own_client import open_own_client
from kraftpy.verify.workloads.port import ClientSpec, WorkloadClient
from kraftpy.verify.workloads.raw_client import open_raw_client
from kraftpy.verify.workloads.session import FinalRead, Pace, now_ns, open_session
from kraftpy.world import Address, World

NODES = ("n1", "n2", "n3")
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
SLOTS = 4

Opener = Callable[[World, list[Address], ClientSpec], AbstractAsyncContextManager[WorkloadClient]]


@dataclass
class Simulated:
    history: History
    verdict: Verdict
    final: FinalRead | None
    audit: Audit | None
    is_drained: bool

    @property
    def kinds(self) -> Counter[tuple[str, str]]:
        return Counter((each.f, each.type) for each in self.history.operations)


def simulate(
    name: str,
    *,
    seed: int = 1,
    seconds: float = 5.0,
    rate: float = 30.0,
    kills: bool = True,
    open_client: Opener = open_own_client,
    **circumstances: Any,
) -> Simulated:
    """Three nodes, of which one dies in the middle and comes back."""
    found: list[Simulated] = []

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start(*NODES, settings=SETTINGS)
        world = rig.simulation.world(CLIENT)
        servers = [(each, PORT) for each in NODES]
        random = rig.simulation.rng.stream("workload")
        recorder = Recorder(lambda: now_ns(world))
        about = Circumstances(random, slots=SLOTS, key_count=4, crash_mean_ms=4_000)
        script = find_workload(name).build(replace(about, **circumstances))
        async with open_session(
            world,
            servers,
            script,
            pace=Pace(slots=SLOTS, rate=rate),
            recorder=recorder,
            open_client=lambda spec: open_client(world, servers, spec),
            random=random,
        ) as session:
            await session.boot(60)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.run, seconds)
                if kills:
                    await trio.sleep(seconds / 3)
                    rig.kill("n2")
                    await rig.ended["n2"].wait()
                    await trio.sleep(seconds / 3)
                    await rig.start_with("n2", rig.config("n2", NODES, SETTINGS))
            is_drained = await session.drain(100)
            final = await session.final_read() if script.reads_in_the_end else None
            audit = None
            if script.reads_in_the_end:
                async with (
                    open_own_admin(world, servers) as admin,
                    open_raw_client(world, servers, "audit") as raw,
                ):
                    auditor = Auditor(raw, admin, session.keys, world.clock)
                    audit = await auditor.audit(session.topics.known_keys, session.groups)
        history = recorder.history({})
        verdict = check(history, replace(script.expectations, vacuity=None, audit=audit))
        found.append(Simulated(history, verdict, final, audit, is_drained))

    run_nodes(scenario, seed=seed)
    return found[0]
