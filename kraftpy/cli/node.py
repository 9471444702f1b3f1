"""Run one node in the foreground, until Ctrl-C or SIGTERM stops it cleanly.

CONFIG is a properties file with Kafka's keys. Environment variables of the form KAFKA_NODE_ID (for
node.id; two underscores stand for one, three for a hyphen) override it, and --set overrides both.
The directories must have been formatted: see `kraftpy storage format`.

Without CONFIG the node has settings for development: broker and controller in one, listening on
127.0.0.1:9092 and 9093, or on free ports where those are taken, with its data in a temporary
directory that is removed at the end (--set log.dirs=DIR keeps it).

When clients can connect, one line goes to standard output:
  bootstrap.servers=127.0.0.1:9092

examples:
  kraftpy node                                          for development
  kraftpy node server.properties                        from a file
  kraftpy node --set num.partitions=8                   with other values
  KAFKA_NODE_ID=2 kraftpy node server.properties        one file, several nodes
  kraftpy node --ready-file ready.json                  for scripts: JSON, written when ready
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kraftpy.cli.failure import EXIT_INVARIANT, EXIT_USAGE, CommandFailed
from kraftpy.cli.put_off import put_off

if TYPE_CHECKING:
    from kraftpy.config import NodeConfig
    from kraftpy.faults.control import FaultyWorld
    from kraftpy.metadata.directories import DirectoryPaths
    from kraftpy.node import NodeAddresses
    from kraftpy.world import World

__all__ = ["add_arguments", "run"]

log = logging.getLogger(__name__)

DEVELOPMENT_HOST = "127.0.0.1"
DEVELOPMENT_PORTS = (9092, 9093)
# What the system says of an address that can't be listened on.
_NO_PORT = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG", help="a Kafka-style properties file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="assignments",
        metavar="KEY=VALUE",
        help="set one configuration key; may be given many times",
    )
    parser.add_argument(
        "--ready-file", metavar="FILE", help="write addresses and ids there, as JSON, when ready"
    )
    parser.add_argument(
        "--stop-with-parent",
        action="store_true",
        help="stop when standard input ends, as it does when whoever started the node is gone",
    )
    parser.add_argument(
        "--faults",
        metavar="HOST:PORT",
        help="for tests: whoever listens there cuts connections, fills the disk, fails requests",
    )
    parser.add_argument(
        "--faults-without-routing",
        action="store_true",
        help="for tests: with --faults, connect to other nodes directly",
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, default="INFO", help="how much to log (INFO)"
    )


def run(options: Namespace) -> int:
    put_off("ssl", "hmac")
    if options.config is not None:
        return _run(options, _load_config(options))
    with tempfile.TemporaryDirectory(prefix="kraftpy-node-") as data_dir:
        return _run(options, _load_config(options, data_dir))


def _run(options: Namespace, config: NodeConfig) -> int:
    import trio

    from kraftpy.broker.lifecycle_core import RegistrationTimedOut
    from kraftpy.cli.log_lines import set_up_logging
    from kraftpy.log.errors import StorageError
    from kraftpy.raft.election_state import QuorumStateError
    from kraftpy.world import InternalInvariant
    from kraftpy.world.real import real_world

    world = real_world()
    set_up_logging(world.clock, config.node_id, options.log_level)
    try:
        trio.run(_run_until_signal, options, config, world)
    except BaseExceptionGroup as group:
        if group.subgroup(InternalInvariant) is not None:
            log.critical("a broken invariant stops the node", exc_info=group)
            return EXIT_INVARIANT
        expected, others = group.split(
            (StorageError, QuorumStateError, OSError, RegistrationTimedOut)
        )
        if expected is None or others is not None:
            raise
        raise CommandFailed(_words(expected)) from None
    return 0


def _words(group: BaseExceptionGroup[BaseException]) -> str:
    """What a group of errors says; those about ports with what to do next."""
    from kraftpy.launch.errors import CANT_LISTEN

    words = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            words.append(_words(error))
        elif isinstance(error, OSError) and error.errno in _NO_PORT:
            hint = "`--set listeners=NAME://HOST:PORT,...` chooses other addresses."
            words.append(f"{CANT_LISTEN}{error}\n{hint}")
        else:
            words.append(str(error))
    return "\n".join(words)


async def _run_until_signal(options: Namespace, config: NodeConfig, world: World) -> None:
    import trio

    from kraftpy.metadata.directories import directory_paths
    from kraftpy.node import Node

    paths = directory_paths(config, str(Path.cwd()))
    if options.config is None:
        await _format(config, paths, world)
    faulty = None if options.faults is None else _faulty_world(options, config, world)
    node = Node(
        config,
        world if faulty is None else faulty.world,
        paths,
        host_name=socket.gethostname(),
        config_path=options.config or "CONFIG",
        decorate=None if faulty is None else faulty.decorate,
    )

    async def stop_at_signal() -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                log.info("received signal=%s", signal.Signals(number).name)
                node.stop()

    async def stop_with_parent() -> None:
        from kraftpy.cli.lifeline import wait_for_end_of_input

        await wait_for_end_of_input()
        log.info("whoever started this node is gone")
        node.stop()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_at_signal)
        if options.stop_with_parent:
            nursery.start_soon(stop_with_parent)
        if faulty is not None:
            await nursery.start(faulty.obey)
        # A node that is stopped before it is up never says so, which `nursery.start` can't bear.
        announcer = _Announcer(config, options.ready_file)
        await node.run(task_status=cast("trio.TaskStatus[NodeAddresses]", announcer))
        nursery.cancel_scope.cancel()


def _faulty_world(options: Namespace, config: NodeConfig, world: World) -> FaultyWorld:
    from kraftpy.faults.control import FaultyWorld

    host, _, port = options.faults.rpartition(":")
    if not port.isdecimal():
        raise CommandFailed(f"--faults: {options.faults!r} is no HOST:PORT", exit_code=EXIT_USAGE)

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    return FaultyWorld(
        world,
        config.node_id,
        (host, int(port)),
        die=die,
        is_routed=not options.faults_without_routing,
    )


async def _format(config: NodeConfig, paths: DirectoryPaths, world: World) -> None:
    """For development: directories that nobody has formatted are, without being asked."""
    from kraftpy.config import cluster_id
    from kraftpy.metadata.directories import present_cluster_id
    from kraftpy.metadata.format import FormatRequest, format_storage
    from kraftpy.protocol.ids import format_uuid, random_uuid

    identity = (
        cluster_id(os.environ)
        or await present_cluster_id(world.disk, paths)
        or format_uuid(random_uuid(world.rng.stream("uuid")))
    )
    await format_storage(config, FormatRequest(identity, ignores_formatted=True), paths, world)


class _Announcer:
    """Tells people and scripts when the node is up."""

    def __init__(self, config: NodeConfig, ready_file: str | None) -> None:
        self._config = config
        self._ready_file = ready_file

    def started(self, addresses: NodeAddresses) -> None:
        from kraftpy.cli.ready import describe_ready, write_ready_file

        ready = describe_ready(
            addresses,
            node_id=self._config.node_id,
            pid=os.getpid(),
            data_dir=self._config.log_dirs[0],
            http_port=None if addresses.http is None else addresses.http[1],
        )
        if self._ready_file is not None:
            write_ready_file(Path(self._ready_file), ready)
        print(f"bootstrap.servers={ready['bootstrap']}", flush=True)


def _load_config(options: Namespace, data_dir: str = "") -> NodeConfig:
    from kraftpy.cli.node_settings import file_layer, load_node_config
    from kraftpy.config import from_mapping

    if options.config is None:
        base = from_mapping(_development_settings(data_dir), "settings for development")
    else:
        base = file_layer(options.config)
    return load_node_config(base, options.assignments)


def _development_settings(data_dir: str) -> dict[str, str]:
    from kraftpy.config.development import development_settings
    from kraftpy.config.topology import Voter

    broker_port, controller_port = choose_ports(DEVELOPMENT_HOST, DEVELOPMENT_PORTS)
    return development_settings(
        node_id=1,
        voters=[Voter(1, DEVELOPMENT_HOST, controller_port)],
        host=DEVELOPMENT_HOST,
        port=broker_port,
        data_dir=data_dir,
        broker_count=1,
    )


def choose_ports(host: str, wanted: tuple[int, ...]) -> list[int]:
    """The wanted ports if all of them are free, otherwise as many others that are."""
    if all(_probe(host, port) is not None for port in wanted):
        return list(wanted)
    # All are held until all are known, or the system might give one of them twice.
    sockets = [socket.create_server((host, 0)) for _ in wanted]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _probe(host: str, port: int) -> int | None:
    try:
        with socket.create_server((host, port)):
            return port
    except OSError:
        return None
