"""Run a whole cluster on this machine, until Ctrl-C or SIGTERM stops it cleanly.

Three nodes, each a process, broker and controller in one; --controllers and --brokers split the
roles. They listen on 127.0.0.1, from port 9092 on, or on free ports where those are taken. When
every node serves clients, standard output has one line to copy:
  bootstrap.servers=127.0.0.1:9092,127.0.0.1:9095,127.0.0.1:9098

With --dir the data stays, and the same command goes on with it. Otherwise it lies in a temporary
directory that is removed at the end. A second Ctrl-C does not wait for the nodes.

Settings are those for development and --set; KAFKA_... variables have no effect here.

examples:
  kraftpy up                                            three nodes for now
  kraftpy up --nodes 1                                  a single one
  kraftpy up --dir data --port 19092                    keep the data; ports 19092 to 19100
  kraftpy up --controllers 1 --brokers 2                split roles
  kraftpy up --set num.partitions=8                     with other values
  kraftpy up --ready-file ready.json                    for scripts: JSON, written when ready
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kraftpy.cli.failure import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    import trio

    from kraftpy.launch.cluster import Cluster, ClusterSpec, NodeDeath
    from kraftpy.launch.plan import Shape

__all__ = ["add_arguments", "run"]

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MAX_NODES = 100


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--nodes", type=_count, metavar="N", help="nodes that are broker and controller (3)"
    )
    parser.add_argument("--controllers", type=_count, metavar="N", help="nodes that only control")
    parser.add_argument("--brokers", type=_count, metavar="N", help="nodes that only keep data")
    parser.add_argument("--dir", metavar="DIR", help="keep the data there, and go on with it")
    parser.add_argument(
        "--port", type=_port, metavar="BASE", help="take ports from here on (9092, or free ones)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="HOST", help="listen there (127.0.0.1)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="assignments",
        metavar="KEY=VALUE",
        help="set one configuration key of all nodes; may be given many times",
    )
    parser.add_argument(
        "--ready-file", metavar="FILE", help="write addresses and ids there, as JSON, when ready"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_NODES:
        raise ArgumentTypeError(f"{text!r} is no number of nodes from 1 to {_MAX_NODES}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise ArgumentTypeError(f"{text!r} is no port")
    return int(text)


def run(options: Namespace) -> int:
    import trio

    from kraftpy.launch.errors import LaunchError, WrongSettingsError

    shape = _shape(options)
    if options.ready_file is not None and not Path(options.ready_file).absolute().parent.is_dir():
        raise CommandFailed(
            f"--ready-file: there is no directory {Path(options.ready_file).parent}",
            exit_code=EXIT_USAGE,
        )
    settings = _settings(options.assignments)
    try:
        return trio.run(_Session(options, shape, settings).run)
    except WrongSettingsError as error:
        raise CommandFailed(str(error), exit_code=EXIT_USAGE) from None
    except LaunchError as error:
        raise CommandFailed(str(error)) from None


def _shape(options: Namespace) -> Shape | None:
    from kraftpy.launch.plan import combined_shape, split_shape

    if options.controllers is None and options.brokers is None:
        return None if options.nodes is None else combined_shape(options.nodes)
    if options.nodes is not None:
        raise CommandFailed(
            "--nodes has both roles in each node, --controllers and --brokers split them; give "
            "one or the other",
            exit_code=EXIT_USAGE,
        )
    return split_shape(controllers=options.controllers or 1, brokers=options.brokers or 1)


def _settings(assignments: Sequence[str]) -> dict[str, str]:
    from kraftpy.config import ConfigurationError, from_assignments

    try:
        return {key: setting.text for key, setting in from_assignments(assignments).items()}
    except ConfigurationError as error:
        raise CommandFailed("\n".join(map(str, error.problems)), exit_code=EXIT_USAGE) from None


class _Session:
    """One run of the command. What happens to the cluster is told on standard error."""

    def __init__(self, options: Namespace, shape: Shape | None, settings: dict[str, str]) -> None:
        self._options = options
        self._shape = shape
        self._settings = settings
        self._kept = "" if options.dir is None else str(Path(options.dir).absolute())
        self._ready_file = None if options.ready_file is None else Path(options.ready_file)
        self._cluster: Cluster | None = None
        self._was_ready = False

    async def run(self) -> int:
        """The exit code. Raises LaunchError."""
        import trio

        failure: Exception | None = None
        code = EXIT_INTERRUPTED
        with trio.open_signal_receiver(*_STOP_SIGNALS) as signals:
            async with trio.open_nursery() as nursery:
                work = trio.CancelScope()
                nursery.start_soon(self._watch_signals, signals, work)
                try:
                    with work:
                        code = await self._run_cluster()
                except Exception as error:
                    # Raised outside, as itself: the nursery would wrap it in a group.
                    failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return 0 if work.cancelled_caught and self._was_ready else code

    async def _watch_signals(self, signals: AsyncIterator[int], work: trio.CancelScope) -> None:
        async for number in signals:
            if not work.cancel_called:
                _tell(f"{signal.Signals(number).name}: stopping; once more does not wait")
                work.cancel()
            elif self._cluster is not None:
                self._cluster.kill_all()

    async def _run_cluster(self) -> int:
        """Returns when no node is left."""
        from kraftpy.launch.cluster import open_cluster
        from kraftpy.world.real import real_world
        from kraftpy.world.real_processes import RealProcesses

        temporary = None if self._kept else tempfile.mkdtemp(prefix="kraftpy-up-")
        try:
            self._forget_ready()
            async with open_cluster(
                self._spec(temporary or self._kept),
                world=real_world(),
                processes=RealProcesses(),
                events=self,
            ) as cluster:
                self._cluster = cluster
                await cluster.start()
                self._announce(cluster)
                await cluster.wait_all_gone()
                _tell("no node is left")
                return EXIT_FAILED
        finally:
            self._forget_ready()
            if temporary is not None:
                shutil.rmtree(temporary)

    def _spec(self, directory: str) -> ClusterSpec:
        from kraftpy.launch.cluster import ClusterSpec

        return ClusterSpec(
            directory=directory,
            shape=self._shape,
            host=self._options.host,
            base_port=self._options.port,
            settings=self._settings,
        )

    def _announce(self, cluster: Cluster) -> None:
        from kraftpy.cli.ready import write_ready_file

        self._was_ready = True
        if self._ready_file is not None:
            write_ready_file(self._ready_file, cluster.describe())
        print(f"bootstrap.servers={cluster.bootstrap}")
        print(
            "Ctrl-C stops it. Try in another terminal, with kcat, confluent-kafka, Kafka's tools:"
        )
        for line in examples(cluster.bootstrap):
            print(f"  {line}")
        sys.stdout.flush()

    def _forget_ready(self) -> None:
        if self._ready_file is not None:
            self._ready_file.unlink(missing_ok=True)

    # ClusterEvents.

    def warned(self, warning: str) -> None:
        _tell(f"configuration: {warning}")

    def formatted(self, node_ids: Sequence[int]) -> None:
        if node_ids:
            _tell(f"formatted {_named(node_ids)}")

    def started(self, node_id: int, pid: int) -> None:
        _tell(f"node {node_id} starts (process {pid})")

    def moved(self, node_id: int) -> None:
        _tell(f"node {node_id} finds its port taken; all nodes start again on other ports")

    def ready(self, node_id: int, seconds: float) -> None:
        _tell(f"node {node_id} is ready after {seconds:.2f} s")

    def died(self, death: NodeDeath) -> None:
        how = f"with exit code {death.exit_code}"
        if death.exit_code < 0:
            how = f"by {signal.Signals(-death.exit_code).name}"
        _tell(f"node {death.node_id} ended {how}; the last lines of {death.log_path}:")
        for line in death.last_lines:
            _tell(f"  {line}")

    def killed(self, node_id: int, seconds: float) -> None:
        _tell(f"node {node_id} has not stopped within {seconds:g} s and is killed")


def examples(bootstrap: str) -> tuple[str, str, str]:
    """What to try next; each works as it is printed."""
    server = bootstrap.partition(",")[0]
    python = (
        f"from confluent_kafka import Producer; p = Producer({{'bootstrap.servers': '{server}'}}); "
        "p.produce('greetings', 'hello', partition=0); p.flush()"
    )
    consumer = f"kafka-console-consumer.sh --bootstrap-server {server} --topic greetings"
    return (
        f"echo hello | kcat -P -b {server} -t greetings -p 0",
        f'python3 -c "{python}"',
        f"{consumer} --partition 0 --offset earliest",
    )


def _named(node_ids: Sequence[int]) -> str:
    return f"node{'s' * (len(node_ids) > 1)} {', '.join(map(str, node_ids))}"


def _tell(line: str) -> None:
    # Nobody may be left to read it, which is no reason to end a cluster.
    with suppress(OSError):
        print(f"kraftpy up: {line}", file=sys.stderr, flush=True)
