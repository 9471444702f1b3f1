"""Run one node in the foreground, until Ctrl-C or SIGTERM stops it cleanly.

CONFIG is a properties file with Kafka's keys. Environment variables of the form KAFKA_NODE_ID (for
node.id; two underscores stand for one, three for a hyphen) override it, and --set overrides both.
Without CONFIG the node has settings for development: broker and controller in one, listening on
127.0.0.1:9092 and 9093, or on free ports where those are taken.

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

import logging
import os
import signal
import socket
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from kraftpy.cli.failure import EXIT_FAILED, EXIT_INVARIANT

if TYPE_CHECKING:
    from kraftpy.config import NodeConfig
    from kraftpy.node import Node, NodeAddresses

__all__ = ["add_arguments", "run"]

log = logging.getLogger(__name__)

DEVELOPMENT_HOST = "127.0.0.1"
DEVELOPMENT_PORTS = (9092, 9093)
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
        "--log-level", choices=LEVELS, default="INFO", help="how much to log (INFO)"
    )


def run(options: Namespace) -> int:
    import trio

    from kraftpy.cli.log_lines import set_up_logging
    from kraftpy.config import cluster_id
    from kraftpy.node import Node
    from kraftpy.protocol.ids import format_uuid, random_uuid
    from kraftpy.world import InternalInvariant
    from kraftpy.world.real import real_world

    config = _load_config(options)
    world = real_world()
    set_up_logging(world.clock, config.node_id, options.log_level)
    identity = cluster_id(os.environ) or format_uuid(random_uuid(world.rng.stream("uuid")))
    node = Node(config, world, cluster_id=identity, host_name=socket.gethostname())
    try:
        return trio.run(_run_until_signal, node, config.node_id, identity, options.ready_file)
    except BaseExceptionGroup as group:
        if group.subgroup(InternalInvariant) is None:
            raise
        log.critical("a broken invariant stops the node", exc_info=group)
        return EXIT_INVARIANT


async def _run_until_signal(
    node: Node, node_id: int, cluster_id: str, ready_file: str | None
) -> int:
    import trio

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            try:
                addresses: NodeAddresses = await nursery.start(node.run)
            except OSError as error:
                print(
                    f"kraftpy node: can't listen: {error}\n"
                    "`--set listeners=NAME://HOST:PORT,...` chooses other addresses.",
                    file=sys.stderr,
                )
                return EXIT_FAILED
            _announce(addresses, node_id, cluster_id, ready_file)
            async for number in signals:
                log.info("received signal=%s", signal.Signals(number).name)
                node.stop()
                break
    return 0


def _announce(
    addresses: NodeAddresses, node_id: int, cluster_id: str, ready_file: str | None
) -> None:
    from kraftpy.cli.ready import describe_ready, write_ready_file

    ready = describe_ready(addresses, node_id=node_id, pid=os.getpid(), cluster_id=cluster_id)
    if ready_file is not None:
        write_ready_file(Path(ready_file), ready)
    print(f"bootstrap.servers={ready['bootstrap']}", flush=True)


def _load_config(options: Namespace) -> NodeConfig:
    from kraftpy.cli.node_settings import file_layer, load_node_config
    from kraftpy.config import from_mapping

    if options.config is None:
        base = from_mapping(_development_settings(), "settings for development")
    else:
        base = file_layer(options.config)
    return load_node_config(base, options.assignments)


def _development_settings() -> dict[str, str]:
    from kraftpy.config.development import development_settings
    from kraftpy.config.topology import Voter

    broker_port, controller_port = choose_ports(DEVELOPMENT_HOST, DEVELOPMENT_PORTS)
    return development_settings(
        node_id=1,
        voters=[Voter(1, DEVELOPMENT_HOST, controller_port)],
        host=DEVELOPMENT_HOST,
        port=broker_port,
        data_dir=str(Path(tempfile.gettempdir()) / "kraftpy-node-1"),
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
