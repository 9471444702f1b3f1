"""The option that says which cluster to talk to, and the first connection to it."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import TYPE_CHECKING

from kraftpy.cli.failure import CommandFailed

if TYPE_CHECKING:
    from kraftpy.client.blocking import BlockingConnection
    from kraftpy.world import Address

__all__ = ["add_bootstrap_argument", "connect_to_any", "parse_servers"]

DEFAULT_SERVER = "127.0.0.1:9092"
CLIENT_ID = "kraftpy-cli"


def add_bootstrap_argument(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        "--brokers",
        dest="servers",
        metavar="HOST:PORT[,...]",
        type=parse_servers,
        default=DEFAULT_SERVER,
        help=f"nodes to ask, the first that answers (default: {DEFAULT_SERVER})",
    )


def parse_servers(text: str) -> list[Address]:
    """Addresses from `host:port,[v6]:port`."""
    addresses = []
    for server in text.split(","):
        host, colon, port = server.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
            raise ArgumentTypeError(f"{server.strip()!r} is not HOST:PORT")
        addresses.append((host, int(port)))
    return addresses


def connect_to_any(servers: list[Address]) -> BlockingConnection:
    """A connection to the first of `servers` that takes one."""
    from kraftpy.client.blocking import BlockingConnection
    from kraftpy.client.settings import ClientSettings

    failures = []
    for address in servers:
        try:
            return BlockingConnection(address, ClientSettings(client_id=CLIENT_ID))
        except OSError as error:
            failures.append(f"  {address[0]}:{address[1]}: {error}")
    raise CommandFailed(
        "no node can be reached:\n"
        + "\n".join(failures)
        + "\nIs one running? `kraftpy node` starts one; --bootstrap-server says where to look."
    )
