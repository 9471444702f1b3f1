"""One run, from an empty directory to a verdict.

Boot; main, in which the workload and the nemesis are at work; heal; a wait in which nothing is
asked of the cluster; the end of workloads that have one; final read; audit; check. What goes wrong
in the harness itself, such as a cluster that can't be healed, is an `error`, and no verdict on the
product; a node that ends without having been told to makes every run `invalid`.

Schedule and operations are drawn from the seed; what real processes make of them is not.
"""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, Protocol, TypeAlias

import trio

from jepsen_tests.clients.table import ClientKind, open_clients, parse_servers
from jepsen_tests.cluster import (
    ClusterOptions,
    HarnessError,
    JepsenCluster,
    NotHereError,
    Watcher,
    open_cluster,
)
from jepsen_tests.cluster.options import NetworkKind
from jepsen_tests.cluster.process_cluster import HEAL_SECONDS
from jepsen_tests.nemeses import Nemesis
from kraftpy.faults.language import RecreateTopic, parse_fault
from kraftpy.launch.cluster import NODE_COMMAND
from kraftpy.launch.errors import LaunchError
from kraftpy.verify.checkers import Anomaly, Audit, Expectations, Vacuity, Verdict, check
from kraftpy.verify.history import History, Recorder, write_history
from kraftpy.verify.workloads.auditing import Auditor
from kraftpy.verify.workloads.catalogue import Circumstances, Script, Workload
from kraftpy.verify.workloads.keys import KeySpace
from kraftpy.verify.workloads.outcomes import ClientError
from kraftpy.verify.workloads.own_admin import open_own_admin
from kraftpy.verify.workloads.raw_client import open_raw_client
from kraftpy.verify.workloads.session import Pace, Session, now_ns, open_session
from kraftpy.world import World
from kraftpy.world.real import real_world

__all__ = ["Outcome", "RunEvents", "RunOptions", "State", "perform"]

State: TypeAlias = Literal["valid", "invalid", "inconclusive", "error"]

_BOOT_SECONDS: Final = 180.0
_DRAIN_SECONDS: Final = 120.0
_PATIENCE_SECONDS: Final = 600.0
_TICK_SECONDS: Final = 1.0
_MAX_ACKED: Final = 1_000
# In a shorter run a kind of fault may well strike only once.
_LONG_ENOUGH_SECONDS: Final = 60.0
SETTINGS: Final = {
    "transaction.max.timeout.ms": "60000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
}


@dataclass(frozen=True, slots=True)
class RunOptions:
    workload: Workload
    nemesis: Nemesis
    clients: tuple[ClientKind, ...]
    directory: Path
    seconds: float = 60.0
    seed: int = 0
    nodes: int = 3
    network: NetworkKind = "auto"
    rate: float = 100.0
    slots: int = 6
    quiet_seconds: float = 5.0
    recovery_seconds: float = 10.0
    final_read_seconds: float = 200.0
    crash_mean_seconds: float = 30.0
    least_kinds: tuple[str, ...] = ()
    """If one of these kinds of operations was never ok, clients go on after the heal, for as long
    as it takes: for those who want to see something on however slow a machine.
    """
    group_protocol: Literal["classic", "consumer"] | None = None
    """None: drawn from the seed."""
    has_lossy_disks: bool = False
    """Power takes names and single sectors from nodes, too (`--disk lossy`)."""
    heal_seconds: float = HEAL_SECONDS
    """Everything must be undone, and nodes answer, within this time."""
    in_sync_seconds: float = 60.0
    """After the heal, all replicas must be in sync within this time."""
    node_command: tuple[str, ...] = NODE_COMMAND
    """What runs a node: the suite's own exam has nodes that are not as they should be."""
    other_command: tuple[str, ...] | None = None
    """What runs a node of another version (`versions`)."""

    @property
    def command(self) -> str:
        """What repeats the run."""
        words = ["python", "-m", "jepsen_tests", "run", "--workload", self.workload.name]
        words += ["--nemesis", ",".join(self.nemesis.names) or "none"]
        words += ["--client", ",".join(kind.name for kind in self.clients)]
        words += ["--time", f"{self.seconds:g}", "--seed", str(self.seed)]
        words += ["--nodes", str(self.nodes), "--rate", f"{self.rate:g}"]
        words += ["--slots", str(self.slots), "--network", self.network]
        if self.group_protocol is not None:
            words += ["--group-protocol", self.group_protocol]
        if self.has_lossy_disks:
            words += ["--disk", "lossy"]
        if self.node_command != NODE_COMMAND:
            words += ["--node-command", shlex.join(self.node_command)]
        if self.other_command is not None:
            words += ["--other-command", shlex.join(self.other_command)]
        return shlex.join(words)


class RunEvents(Protocol):
    """Told while a run goes on."""

    def phase(self, name: str) -> None: ...

    def tick(self, seconds: float, counts: dict[str, int]) -> None:
        """Every second of the main phase."""
        ...


@dataclass(slots=True)
class Outcome:
    options: RunOptions
    history: History
    state: State = "error"
    verdict: Verdict | None = None
    error: str | None = None
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds that each took."""

    @property
    def is_good(self) -> bool:
        return self.state == "valid"

    @property
    def shown_verdict(self) -> Verdict:
        """For reports: a run that failed by itself says nothing about the product."""
        return self.verdict or Verdict("inconclusive", reasons=(self.error or "not judged",))

    @property
    def history_path(self) -> Path:
        return self.options.directory / "history.msgpack"

    @property
    def report_path(self) -> Path:
        return self.options.directory / "report.html"


async def perform(options: RunOptions, events: RunEvents) -> Outcome:
    """Carry out the run and judge it. What it leaves is in its directory."""
    run = _Run(options, events)
    error = None
    try:
        await run.go()
    except* (HarnessError, NotHereError, LaunchError, ClientError, trio.TooSlowError) as failures:
        error = "; ".join(_texts(failures))
    except* Exception as failures:
        # A mistake in the harness: what it was about is kept with the rest of the run.
        error = "; ".join(_texts(failures))
        text = "".join(traceback.format_exception(failures))
        (options.directory / "traceback.txt").write_text(text)
    outcome = Outcome(options, run.recorder.history(run.facts()), error=error, phases=run.phases)
    with outcome.history_path.open("wb") as stream:
        write_history(stream, outcome.history)
    if error is None:
        outcome.verdict = await trio.to_thread.run_sync(run.judge, outcome.history)
        outcome.state = outcome.verdict.state
    return outcome


def recreated_keys(history: History, keys: KeySpace | None = None) -> dict[int, int]:
    """Of topics that the nemesis has deleted and made again, or has tried to; with the index of the
    event that says so, of the last time.
    """
    space = keys or KeySpace()
    return {
        key: event.index
        for event in history.nemesis_events
        for text in (*event.value.get("faults", ()), *event.value.get("doubtful", ()))
        if isinstance(fault := parse_fault(text), RecreateTopic)
        for key in space.keys_of(fault.topic)
    }


def _texts(failures: BaseExceptionGroup[Any]) -> Iterator[str]:
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _texts(failure)
        else:
            yield f"{type(failure).__name__}: {failure}"


class _Run:
    def __init__(self, options: RunOptions, events: RunEvents) -> None:
        self._options = options
        self._events = events
        self._world: World = real_world()
        self.recorder = Recorder(lambda: now_ns(self._world))
        self.phases: dict[str, float] = {}
        self._random = Random(f"{options.seed}/workload")
        self._script = options.workload.build(self._circumstances())
        self._audit: Audit | None = None
        self._watcher: Watcher | None = None
        self._deaths: list[str] = []
        self._laggards: list[str] = []
        self._is_drained = True
        self._network = ""

    def _circumstances(self) -> Circumstances:
        options = self._options
        draw = Random(f"{options.seed}/circumstances")
        protocols: list[Literal["classic", "consumer"]] = ["classic"]
        if all(kind.has_consumer_protocol for kind in options.clients):
            protocols.append("consumer")
        drawn = draw.choice(protocols)
        return Circumstances(
            self._random,
            slots=options.slots,
            brokers=tuple(range(1, options.nodes + 1)),
            crash_mean_ms=options.crash_mean_seconds * 1000,
            group_protocol=options.group_protocol or drawn,
            compression=draw.choice(["none", "gzip", "lz4", "zstd"]),
        )

    async def go(self) -> None:
        options = self._options
        with self._phase("boot"):
            data = options.directory / "cluster"
            data.mkdir(parents=True, exist_ok=True)
        network = "proxy" if options.nemesis.needs_proxy else options.network
        cluster_options = ClusterOptions(
            nodes=options.nodes,
            network=network,
            seed=options.seed,
            directory=str(data),
            settings=SETTINGS,
            has_lossy_disks=options.has_lossy_disks,
            command=options.node_command,
            other_command=options.other_command,
        )
        async with open_cluster(self._world, cluster_options) as cluster:
            try:
                await self._with(cluster)
            finally:
                self._network = cluster.network
                self._deaths = [
                    f"node {each.node_id} ended with code {each.exit_code}: "
                    + " | ".join(each.last_lines[-3:])
                    for each in cluster.deaths
                ]

    async def _with(self, cluster: JepsenCluster) -> None:
        options = self._options
        servers = parse_servers(cluster.bootstrap_servers)
        pace = Pace(options.slots, options.rate, final_read_seconds=options.final_read_seconds)
        async with (
            open_clients(options.clients, self._world, cluster.bootstrap_servers) as open_client,
            open_session(
                self._world,
                servers,
                self._script,
                pace=pace,
                recorder=self.recorder,
                open_client=open_client,
                random=self._random,
            ) as session,
        ):
            with self._phase("boot"):
                await session.boot(_BOOT_SECONDS)
                await self._world.clock.sleep(options.quiet_seconds)
            with self._phase("main"):
                await self._main(cluster, session)
            with self._phase("heal"):
                await options.nemesis.heal(cluster, seconds=options.heal_seconds)
            with self._phase("recovery"):
                await self._recover(cluster)
            with self._phase("drain"):
                self._is_drained = await session.drain(_DRAIN_SECONDS)
                if not await session.has_done(options.least_kinds):
                    await session.run_until(
                        lambda: session.has_done(options.least_kinds), _PATIENCE_SECONDS
                    )
            if self._script.reads_in_the_end:
                with self._phase("final read"):
                    await session.final_read(recreated_keys(self.recorder.history({})))
                with self._phase("audit"):
                    self._audit = await self._look_into_logs(session)

    async def _main(self, cluster: JepsenCluster, session: Session) -> None:
        options = self._options
        self._watcher = Watcher(cluster.inspect, lambda: now_ns(self._world), self._world.clock)
        async with trio.open_nursery() as beside:
            beside.start_soon(self._watcher.run)
            beside.start_soon(self._tick, session)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.run, options.seconds)
                nursery.start_soon(
                    options.nemesis.run,
                    cluster,
                    self.recorder,
                    Random(f"{options.seed}/nemesis"),
                    options.seconds,
                )
            beside.cancel_scope.cancel()

    async def _tick(self, session: Session) -> None:
        begun = self._world.clock.monotonic()
        while True:
            await self._world.clock.sleep(_TICK_SECONDS)
            self._events.tick(self._world.clock.monotonic() - begun, dict(session.counts))

    async def _recover(self, cluster: JepsenCluster) -> None:
        """Nothing is asked of the cluster but how it is: every replica is to be in sync again."""
        clock = self._world.clock
        begun = clock.monotonic()
        await clock.sleep(self._options.recovery_seconds)
        while clock.monotonic() < begun + self._options.in_sync_seconds:
            found = await cluster.inspect()
            if found is not None:
                self._laggards = [
                    f"{where}: in sync are {state.isr} of {state.replicas}"
                    for where, state in sorted(found.partitions.items())
                    if len(state.isr) < len(state.replicas)
                ]
                if not self._laggards:
                    return
            await clock.sleep(_TICK_SECONDS)

    async def _look_into_logs(self, session: Session) -> Audit:
        servers = session.servers
        async with (
            open_own_admin(self._world, servers) as admin,
            open_raw_client(self._world, servers, "audit") as raw,
        ):
            auditor = Auditor(raw, admin, session.keys, self._world.clock)
            return await auditor.audit(session.topics.known_keys, session.groups)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self._events.phase(name)
        begun = self._world.clock.monotonic()
        try:
            yield
        finally:
            took = self._world.clock.monotonic() - begun
            self.phases[name] = self.phases.get(name, 0.0) + took

    def facts(self) -> dict[str, Any]:
        """What a report and a later reader want to know of the run."""
        options = self._options
        return {
            "workload": options.workload.name,
            "nemesis": list(options.nemesis.names),
            "clients": [kind.name for kind in options.clients],
            "seed": options.seed,
            "seconds": options.seconds,
            "nodes": options.nodes,
            "network": self._network,
            "command": options.command,
            "python": sys.version.split()[0],
            "phases": self.phases,
            "timeline": [] if self._watcher is None else self._watcher.samples,
            "skipped": dict(options.nemesis.skipped),
            "deaths": self._deaths,
        }

    def judge(self, history: History) -> Verdict:
        seconds = self._options.in_sync_seconds
        verdict = check(history, self._expectations(self._script, history))
        extra = [
            Anomaly("N0", "node-death", (), f"{death} (nobody had asked for it)")
            for death in self._deaths
        ]
        extra += [
            Anomaly("L1", "not-in-sync", (), f"{laggard}, {seconds:g} s after the heal")
            for laggard in self._laggards[:10]
        ]
        if not extra:
            return verdict
        return replace(verdict, state="invalid", anomalies=(*extra, *verdict.anomalies))

    def _expectations(self, script: Script, history: History) -> Expectations:
        options = self._options
        usual = script.acked_share * options.rate * options.seconds
        vacuity = Vacuity(
            # A cluster that is ill half of the time, on a machine that is busy, does much less.
            min_acked_values=min(_MAX_ACKED, int(usual / 20)),
            nemeses=options.nemesis.names,
            min_fires=2 if options.seconds >= _LONG_ENOUGH_SECONDS else 1,
            needs_final_read=script.reads_in_the_end,
            needs_audit=script.reads_in_the_end,
        )
        return replace(
            script.expectations,
            vacuity=vacuity,
            audit=self._audit,
            leaders_changed=bool(history.nemesis_events),
            recreated_keys=frozenset(recreated_keys(history)),
            is_drained=self._is_drained,
        )
