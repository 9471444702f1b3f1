"""The clients of a run: the workloads of `kraftpy.verify`, in virtual time.

They are the same generators, executor, client and checkers that the Jepsen-style suite has on real
processes. Each workload has topics and a history of its own; a history is judged when the run is
over, together with what every replica holds then.

Besides, for worlds that have them: clients that speak old versions of the protocol, and vandals,
who send what is no request and don't read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

import trio

from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.simulation import Simulation
from kraftpy.sim.whole.swarm import WholeSwarm
from kraftpy.verify.checkers import Audit, Verdict, check
from kraftpy.verify.history import History, Recorder
from kraftpy.verify.workloads.auditing import Auditor
from kraftpy.verify.workloads.catalogue import Circumstances, Script, find_workload
from kraftpy.verify.workloads.keys import KeySpace
from kraftpy.verify.workloads.own_admin import open_own_admin
from kraftpy.verify.workloads.own_client import open_own_client
from kraftpy.verify.workloads.port import ClientSpec, OpenClient
from kraftpy.verify.workloads.raw_client import open_raw_client
from kraftpy.verify.workloads.session import FinalRead, Pace, Session, now_ns, open_session
from kraftpy.world import Address, World

__all__ = ["Load", "Work", "open_load"]

# As an old client would have them: before topic ids, and mostly before flexible versions.
_OLD_VERSIONS: Final = {0: 7, 1: 12, 2: 5, 3: 8, 8: 7, 11: 5, 12: 3, 13: 4, 14: 3}
_BOOT_SECONDS: Final = 60.0
_DRAIN_SECONDS: Final = 120.0
_FINAL_READ_SECONDS: Final = 120.0


@dataclass(slots=True)
class Work:
    """One workload: its clients, and what they have written down."""

    name: str
    script: Script
    recorder: Recorder
    session: Session
    audit: Audit | None = None
    final_read: FinalRead | None = None
    is_drained: bool = True

    def history(self) -> History:
        return self.recorder.history({"workload": self.name})


@asynccontextmanager
async def open_load(
    simulation: Simulation, world: World, bootstrap: Sequence[Address], swarm: WholeSwarm
) -> AsyncIterator[Load]:
    async with AsyncExitStack() as stack:
        works = []
        for number, name in enumerate(swarm.workloads):
            random = simulation.rng.stream(f"workload {number}")
            script = _script_of(swarm, name, random)
            recorder = Recorder(lambda: now_ns(world))
            session = await stack.enter_async_context(
                open_session(
                    world,
                    bootstrap,
                    script,
                    pace=Pace(swarm.slots, swarm.rate, final_read_seconds=_FINAL_READ_SECONDS),
                    recorder=recorder,
                    open_client=_opener(world, bootstrap, swarm),
                    random=random,
                    keys=KeySpace(f"w{number}t", swarm.partitions),
                )
            )
            works.append(Work(name, script, recorder, session))
        yield Load(simulation, world, bootstrap, swarm, works)


def _script_of(swarm: WholeSwarm, name: str, random: Any) -> Script:
    script = find_workload(name).build(
        Circumstances(
            random,
            slots=swarm.slots,
            brokers=swarm.brokers,
            key_count=swarm.keys,
            max_writes_per_key=swarm.writes_per_key,
            crash_mean_ms=swarm.crash_mean_ms,
            group_protocol=cast("Literal['classic', 'consumer']", swarm.group_protocol),
            compression=cast("Any", swarm.compression),
        )
    )
    configs = {**swarm.topic_settings, **script.topic_configs, **swarm.topic_extremes}
    if swarm.min_isr == 1:
        configs["min.insync.replicas"] = "1"
    return replace(script, topic_configs=configs)


def _opener(world: World, bootstrap: Sequence[Address], swarm: WholeSwarm) -> OpenClient:
    """Every process of an odd number is an old one, where there are any."""

    def open_client(spec: ClientSpec) -> Any:
        is_old = swarm.has_old_clients and spec.client_id.endswith(tuple("13579"))
        if is_old and spec.transactional_id is None and spec.group_protocol == "classic":
            spec = replace(spec, max_versions=_OLD_VERSIONS)
        return open_own_client(world, bootstrap, spec)

    return open_client


class Load:
    """Made by `open_load`."""

    def __init__(
        self,
        simulation: Simulation,
        world: World,
        bootstrap: Sequence[Address],
        swarm: WholeSwarm,
        works: list[Work],
    ) -> None:
        self._simulation = simulation
        self._world = world
        self._bootstrap = list(bootstrap)
        self._swarm = swarm
        self.works = works

    async def boot(self) -> None:
        for work in self.works:
            await work.session.boot(_BOOT_SECONDS)

    async def run(self, seconds: float) -> None:
        """What is under way when the time is over, or at `end_soon`, is finished."""
        async with trio.open_nursery() as nursery:
            for number in range(self._swarm.vandals):
                nursery.start_soon(self._send_garbage, number)
            async with trio.open_nursery() as working:
                for work in self.works:
                    working.start_soon(work.session.run, seconds)
            nursery.cancel_scope.cancel()

    def end_soon(self) -> None:
        for work in self.works:
            work.session.end_soon()

    def befall(self, name: str, phase: str) -> None:
        """A fault begins or ends."""
        for work in self.works:
            work.recorder.nemesis({"name": name, "phase": phase})

    async def _send_garbage(self, number: int) -> None:
        """Half a frame, a frame that is no request, a size that can't be; and never reading."""
        random = self._simulation.rng.stream(f"vandal {number}")
        while True:
            await trio.sleep(random.expovariate(2))
            try:
                with trio.fail_after(1):
                    stream = await self._world.network.connect(*random.choice(self._bootstrap))
            except (OSError, trio.TooSlowError):
                continue
            with trio.move_on_after(random.expovariate(2)):
                try:
                    stream.send([random.randbytes(random.randint(1, 40))])
                    await stream.wait_readable()
                except OSError:
                    pass
            stream.close()

    # The end.

    async def finish(self) -> None:
        """What has an end comes to it; then everything is read, and every replica is looked at."""
        for work in self.works:
            work.is_drained = await work.session.drain(_DRAIN_SECONDS)
            if work.script.reads_in_the_end:
                work.final_read = await work.session.final_read()
                work.audit = await self._audit(work)

    async def _audit(self, work: Work) -> Audit:
        async with (
            open_own_admin(self._world, self._bootstrap) as admin,
            open_raw_client(self._world, self._bootstrap, "audit") as raw,
        ):
            auditor = Auditor(raw, admin, work.session.keys, self._world.clock)
            return await auditor.audit(work.session.topics.known_keys, work.session.groups)

    def judge(self) -> None:
        """Raises InvariantViolated for what no client should have seen."""
        for work in self.works:
            if not work.is_drained:
                raise InvariantViolated("not-live", f"{work.name} does not come to its end")
            if work.final_read is not None and not work.final_read.is_complete:
                raise InvariantViolated(
                    "not-live", f"{work.name}: unread are keys {sorted(work.final_read.behind)}"
                )
            verdict = self._verdict_on(work)
            if verdict.bad:
                first = verdict.bad[0]
                raise InvariantViolated(first.name, f"{work.name}: {first.text}")

    def _verdict_on(self, work: Work) -> Verdict:
        expectations = replace(
            work.script.expectations,
            vacuity=None,
            audit=work.audit,
            leaders_changed=bool(self._swarm.faults or self._swarm.more_faults),
            lost_unsynced_data=not self._swarm.is_safe,
        )
        return check(work.history(), expectations)

    @property
    def counts(self) -> dict[str, int]:
        """How operations ended, of all workloads together."""
        total = {"ok": 0, "fail": 0, "info": 0}
        for work in self.works:
            for kind, count in work.session.counts.items():
                total[kind] += count
        return total
