"""A workload on a cluster that stays: several of them follow one another there, or last for hours.

`jepsen_tests.run` has a cluster for each run. Here the cluster belongs to the caller, who decides
what befalls it and when, and asks for a verdict in the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import trio

from jepsen_tests.clients.table import find_clients, open_clients, parse_servers
from jepsen_tests.cluster import JepsenCluster
from jepsen_tests.run import recreated_keys
from kraftpy.verify.checkers import Vacuity, Verdict, check
from kraftpy.verify.history import History, Recorder
from kraftpy.verify.workloads.auditing import Auditor
from kraftpy.verify.workloads.catalogue import Circumstances, Script, find_workload
from kraftpy.verify.workloads.keys import KeySpace
from kraftpy.verify.workloads.own_admin import open_own_admin
from kraftpy.verify.workloads.raw_client import open_raw_client
from kraftpy.verify.workloads.session import Pace, Session, now_ns, open_session
from kraftpy.world import World

__all__ = ["Stage", "StagePlan", "open_stage", "wait_whole"]

_BOOT_SECONDS: Final = 180.0
_DRAIN_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class StagePlan:
    workload: str
    seed: int = 0
    rate: float = 100.0
    slots: int = 6
    keys: int = 10
    prefix: str = "t"
    """Of the names of its topics: those of another stage on the same cluster differ."""
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    clients: Sequence[str] = ("own",)


class Stage:
    """Made by `open_stage`."""

    def __init__(self, world: World, script: Script, session: Session, recorder: Recorder) -> None:
        self._world = world
        self._script = script
        self.session = session
        self.recorder = recorder

    @property
    def history(self) -> History:
        return self.recorder.history({})

    async def judge(self, *, nemeses: Sequence[str] = (), min_acked: int = 1) -> Verdict:
        """Read everything, look into every replica, and check; the cluster must be well."""
        session, script = self.session, self._script
        is_drained = await session.drain(_DRAIN_SECONDS)
        audit = None
        again = recreated_keys(self.history, session.keys)
        if script.reads_in_the_end:
            await session.final_read(again)
            async with (
                open_own_admin(self._world, session.servers) as admin,
                open_raw_client(self._world, session.servers, "audit") as raw,
            ):
                auditor = Auditor(raw, admin, session.keys, self._world.clock)
                audit = await auditor.audit(session.topics.known_keys, session.groups)
        vacuity = Vacuity(
            min_acked_values=min_acked,
            # Of faults that leave no quorum, most operations may be in doubt.
            min_ok_fraction=0.05,
            nemeses=tuple(nemeses),
            min_fires=1,
            needs_final_read=script.reads_in_the_end,
            needs_audit=script.reads_in_the_end,
        )
        expectations = replace(
            script.expectations,
            vacuity=vacuity,
            audit=audit,
            leaders_changed=True,
            recreated_keys=frozenset(again),
            is_drained=is_drained,
        )
        return await trio.to_thread.run_sync(check, self.history, expectations)


@asynccontextmanager
async def open_stage(world: World, cluster: JepsenCluster, plan: StagePlan) -> AsyncIterator[Stage]:
    """When topics can be made there. Raises TooSlowError if that takes long."""
    random = Random(f"{plan.seed}/workload")
    about = Circumstances(random, slots=plan.slots, brokers=cluster.node_ids, key_count=plan.keys)
    built = find_workload(plan.workload).build(about)
    script = replace(built, topic_configs={**built.topic_configs, **plan.topic_configs})
    recorder = Recorder(lambda: now_ns(world))
    clients = tuple(find_clients(plan.clients))
    async with (
        open_clients(clients, world, cluster.bootstrap_servers) as open_client,
        open_session(
            world,
            parse_servers(cluster.bootstrap_servers),
            script,
            pace=Pace(plan.slots, plan.rate),
            recorder=recorder,
            open_client=open_client,
            random=random,
            keys=KeySpace(plan.prefix),
        ) as session,
    ):
        await session.boot(_BOOT_SECONDS)
        yield Stage(world, script, session, recorder)


async def wait_whole(world: World, cluster: JepsenCluster, seconds: float) -> list[str]:
    """Until every replica is in sync; which are not after that time."""
    laggards = ["nobody tells"]
    with world.clock.move_on_after(seconds):
        while laggards:
            found = await cluster.inspect()
            if found is not None:
                laggards = [
                    f"{where}: in sync are {state.isr} of {state.replicas}"
                    for where, state in sorted(found.partitions.items())
                    if len(state.isr) < len(state.replicas)
                ]
            if laggards:
                await world.clock.sleep(_POLL_SECONDS)
    return laggards
