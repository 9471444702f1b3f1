"""The command line: `python -m jepsen_tests run|list`, and longer ones (jepsen_tests/long).

Results go to standard output, progress to standard error. Exit codes: 0 every run was valid and
exercised what it claims; 1 one was not; 2 the command line is wrong; 130 interrupted.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any

import trio

from jepsen_tests.clients.table import CLIENTS, find_clients
from jepsen_tests.cluster.capabilities import Capability, probe, table
from jepsen_tests.cluster.errors import HarnessError
from jepsen_tests.long import overload, power, release, soak, tiers
from jepsen_tests.nemeses import kinds, nemesis_of
from jepsen_tests.progress import ProgressLine
from jepsen_tests.report import summary_table, write_report
from jepsen_tests.run import Outcome, RunOptions, perform
from kraftpy.launch.cluster import NODE_COMMAND
from kraftpy.launch.errors import LaunchError
from kraftpy.verify.workloads.catalogue import WORKLOADS, find_workload

__all__ = ["main"]

LONG: dict[str, tuple[Any, str]] = {
    "power": (power, "nodes lose their power, again and again, and nothing acknowledged"),
    "soak": (soak, "one cluster for hours under faults, which must not drift"),
    "overload": (overload, "twice the load that a cluster can carry, and how it recovers"),
    "tier": (tiers, "everything that belongs to a commit, a night, a week or a release"),
    "report": (release, "the report of a release, from what tiers have left"),
}
"""Commands that take hours, or sum them up: modules with `add_arguments` and `run`."""

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

EXAMPLES = """\
examples:
  python -m jepsen_tests list
  python -m jepsen_tests run --workload list-append --nemesis partition --time 60 --seed 7
  python -m jepsen_tests run --workload W1,W3 --nemesis kill,pause --client librdkafka,own
  python -m jepsen_tests run --workload queue-txn --nemesis none --time 20 --format json
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        runs = _runs(options) if options.command == "run" else []
    except ValueError as error:
        parser.exit(EXIT_USAGE, f"jepsen_tests: {error}\n")
    try:
        if options.command == "list":
            return trio.run(_list, options.format)
        if options.command in LONG:
            return trio.run(_stoppable, lambda: _run_long(options))
        return trio.run(_stoppable, lambda: _run_all(runs, options))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


async def _run_long(options: Namespace) -> int:
    """A ValueError is about the command line; what fails in the harness is no verdict either."""
    try:
        code: int = await LONG[options.command][0].run(options)
    except ValueError as error:
        print(f"jepsen_tests: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (HarnessError, LaunchError, trio.TooSlowError) as error:
        print(f"jepsen_tests: {options.command} could not be done: {error}", file=sys.stderr)
        return 1
    return code


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m jepsen_tests",
        description="Real nodes, real clients, real faults, and a verdict.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    names = "|".join(("run", "list", *LONG))
    commands = parser.add_subparsers(dest="command", required=True, metavar=names)
    run = commands.add_parser(
        "run",
        help="run workloads under faults, and judge what clients saw",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    add = run.add_argument
    add("--workload", required=True, metavar="W", help="names or ids, with commas: one run each")
    add("--nemesis", default="none", metavar="N", help="names or ids, with commas: all at once")
    add("--client", default="own", metavar="C", help="names, with commas: processes take turns")
    add("--time", type=float, default=60.0, metavar="SECONDS", help="of the main phase (60)")
    add("--seed", type=int, help="of operations and faults (drawn, and printed)")
    add("--nodes", type=int, default=3, help="(3)")
    add("--rate", type=float, default=100.0, help="operations a second (100)")
    add("--slots", type=int, default=6, help="clients at a time (6)")
    add("--group-protocol", choices=("classic", "consumer"), help="of groups (drawn)")
    add("--network", choices=("auto", "namespaces", "proxy"), default="auto", help="(auto)")
    add(
        "--disk",
        choices=("plain", "lossy"),
        default="plain",
        help="lossy: in memory, where `power` takes names and sectors, too; needs FUSE (plain)",
    )
    add("--out", type=Path, default=Path("jepsen-runs"), metavar="DIR", help="(jepsen-runs)")
    add("--keep", action="store_true", help="keep the nodes' files of valid runs too")
    add("--quick", action="store_true", help="short waits before and after the main phase")
    add(
        "--node-command",
        metavar="COMMAND",
        help="what runs a node (`kraftpy node --stop-with-parent`); arguments follow it",
    )
    add(
        "--other-command",
        metavar="COMMAND",
        help="what runs a node of another version, for --nemesis versions",
    )
    shown = commands.add_parser(
        "list", help="list workloads, nemeses and clients, and what this machine has of them"
    )
    for name, (module, words) in LONG.items():
        longer = commands.add_parser(
            name,
            help=words,
            description=module.__doc__,
            formatter_class=RawDescriptionHelpFormatter,
        )
        module.add_arguments(longer)
    for command in (run, shown):
        command.add_argument("--format", choices=("text", "json"), default="text", help="(text)")
    return parser


def _runs(options: Namespace) -> list[RunOptions]:
    """Raises ValueError with what is wrong."""
    if options.time <= 0 or options.rate <= 0:
        raise ValueError("--time and --rate must be more than 0")
    if options.nodes < 1 or options.slots < 3:
        raise ValueError("--nodes must be at least 1, and --slots at least 3")
    seed = SystemRandom().getrandbits(32) if options.seed is None else options.seed
    clients = tuple(find_clients(options.client.split(",")))
    command: tuple[str, ...] = NODE_COMMAND
    if options.node_command is not None:
        command = tuple(shlex.split(options.node_command))
    other = None if options.other_command is None else tuple(shlex.split(options.other_command))
    found = []
    for name in options.workload.split(","):
        workload = find_workload(name)
        nemesis = nemesis_of(options.nemesis.split(","))
        nemesis.check(
            nodes=options.nodes, network=options.network, has_other_version=other is not None
        )
        faults = "+".join(nemesis.names) or "none"
        quiet, recovery = (0.5, 1.0) if options.quick else (5.0, 10.0)
        found.append(
            RunOptions(
                workload,
                nemesis,
                clients,
                _fresh(options.out.resolve() / f"{workload.name}-{faults[:60]}-{seed}"),
                seconds=options.time,
                seed=seed,
                nodes=options.nodes,
                network=options.network,
                rate=options.rate,
                slots=options.slots,
                group_protocol=options.group_protocol,
                has_lossy_disks=options.disk == "lossy",
                quiet_seconds=quiet,
                recovery_seconds=recovery,
                node_command=command,
                other_command=other,
            )
        )
    return found


def _fresh(path: Path) -> Path:
    """A name that nothing has yet: an earlier run of the same seed stays."""
    number = 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}.{number}")
    return candidate


async def _stoppable(work: Callable[[], Awaitable[int]]) -> int:
    """SIGTERM ends a run as Ctrl-C does: everything is cleaned up."""
    result = EXIT_INTERRUPTED
    async with trio.open_nursery() as nursery:

        async def stop_on_signal(task_status: trio.TaskStatus[None]) -> None:
            with trio.open_signal_receiver(signal.SIGTERM) as signals:
                task_status.started()
                async for _ in signals:
                    nursery.cancel_scope.cancel()

        await nursery.start(stop_on_signal)
        result = await work()
        nursery.cancel_scope.cancel()
    return result


async def _run_all(runs: list[RunOptions], options: Namespace) -> int:
    outcomes = [await _run_one(run, keeps=options.keep) for run in runs]
    if options.format == "json":
        print(json.dumps([_facts(outcome) for outcome in outcomes], indent=2))
    else:
        judged = ((each.history, each.shown_verdict, each.history.run) for each in outcomes)
        print(summary_table(judged))
        print("\n".join(_places(outcome) for outcome in outcomes))
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


async def _run_one(run: RunOptions, *, keeps: bool) -> Outcome:
    run.directory.mkdir(parents=True)
    title = f"{run.workload.name} under {', '.join(run.nemesis.names) or 'no faults'}"
    progress = ProgressLine(sys.stderr, title, run.seconds)
    outcome = await perform(run, progress)
    progress.end(f"{title}: {outcome.state}")
    write_report(outcome.report_path, outcome.history, outcome.shown_verdict, outcome.history.run)
    (run.directory / "verdict.json").write_text(json.dumps(_facts(outcome), indent=2) + "\n")
    if outcome.is_good and not keeps:
        shutil.rmtree(run.directory / "cluster", ignore_errors=True)
    return outcome


def _places(outcome: Outcome) -> str:
    """Where to look, and how to see it again."""
    lines = [f"\n{outcome.options.workload.name}: {outcome.state}"]
    if outcome.error is not None:
        lines.append(f"  the run itself failed: {outcome.error}")
    skipped = outcome.options.nemesis.skipped
    lines += [f"  skipped {name}: {why}" for name, why in skipped.items()]
    lines.append(f"  history  {outcome.history_path}")
    lines.append(f"  report   {outcome.report_path}")
    lines.append(f"  repeat   {outcome.options.command}")
    return "\n".join(lines)


def _facts(outcome: Outcome) -> dict[str, Any]:
    verdict = outcome.verdict
    counts: dict[str, int] = {}
    for operation in outcome.history.operations:
        counts[operation.type] = counts.get(operation.type, 0) + 1
    return {
        "workload": outcome.options.workload.name,
        "nemesis": list(outcome.options.nemesis.names),
        "clients": [kind.name for kind in outcome.options.clients],
        "seed": outcome.options.seed,
        "seconds": outcome.options.seconds,
        "state": outcome.state,
        "error": outcome.error,
        "operations": counts,
        "anomalies": [
            {
                "id": each.id,
                "name": each.name,
                "bad": each.is_bad,
                "text": each.text,
                "operations": list(each.operations),
            }
            for each in (verdict.anomalies if verdict else ())
        ],
        "reasons": list(verdict.reasons) if verdict else [],
        "skipped": dict(outcome.options.nemesis.skipped),
        "phases": outcome.phases,
        "history": str(outcome.history_path),
        "report": str(outcome.report_path),
        "repeat": outcome.options.command,
    }


async def _list(form: str) -> int:
    found = await probe()
    if form == "json":
        print(json.dumps(_listing(found), indent=2))
        return 0
    print("workloads")
    for workload in WORKLOADS:
        print(f"  {workload.id:<4} {workload.name:<18} {workload.summary}")
    print("\nnemeses (and none)")
    for kind in kinds():
        needs = "; needs --network proxy" if kind.needs_proxy else ""
        print(f"  {kind.id:<4} {kind.name:<18} {kind.summary}{needs}")
    print("\nclients")
    for client in CLIENTS:
        print(f"  {client.name:<18}      {client.summary}: {client.missing() or 'here'}")
    print(f"\n{table(found)}")
    return 0


def _listing(found: Sequence[Capability]) -> dict[str, Any]:
    return {
        "workloads": [
            {"id": each.id, "name": each.name, "summary": each.summary} for each in WORKLOADS
        ],
        "nemeses": [
            {
                "id": each.id,
                "name": each.name,
                "summary": each.summary,
                "needs_proxy": each.needs_proxy,
            }
            for each in kinds()
        ],
        "clients": [
            {"name": each.name, "summary": each.summary, "missing": each.missing()}
            for each in CLIENTS
        ],
        "capabilities": [
            {"faults": each.faults, "backend": each.backend, "problem": each.problem}
            for each in found
        ],
    }
