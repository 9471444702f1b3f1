"""Show which APIs a node serves, in which versions, and which version kraftpy's client would use.

examples:
  kraftpy api-versions                                   the node on 127.0.0.1:9092
  kraftpy api-versions -b host:9092 --format json        for scripts
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, NamedTuple

from kraftpy.cli.bootstrap import add_bootstrap_argument, connect_to_any

if TYPE_CHECKING:
    from kraftpy.client.core import ConnectionCore

__all__ = ["add_arguments", "run"]


def add_arguments(parser: ArgumentParser) -> None:
    add_bootstrap_argument(parser)
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="how to print (table)"
    )


def run(options: Namespace) -> int:
    with connect_to_any(options.servers) as connection:
        host, port = connection.address
        rows = _rows(connection.core)
    if options.format == "json":
        listing = {"node": f"{host}:{port}", "apis": [row._asdict() for row in rows]}
        print(json.dumps(listing, indent=2))
        return 0
    print(f"{host}:{port} serves {len(rows)} APIs")
    print(f"{'key':>5}  {'versions':<9} {'used':<5} name")
    for row in rows:
        versions = f"{row.min_version}-{row.max_version}"
        used = "-" if row.used_version is None else str(row.used_version)
        print(f"{row.key:>5}  {versions:<9} {used:<5} {row.name}")
    return 0


class _Row(NamedTuple):
    key: int
    name: str
    min_version: int
    max_version: int
    used_version: int | None


def _rows(core: ConnectionCore) -> list[_Row]:
    from kraftpy.client.errors import UnsupportedVersion
    from kraftpy.protocol.registry import API

    rows = []
    for key, (low, high) in sorted(core.versions.items()):
        api = API.get(key)
        used: int | None = None
        if api is not None:
            try:
                used = core.choose_version(api)
            except UnsupportedVersion:
                used = None
        rows.append(_Row(key, api.name if api else "unknown to kraftpy", low, high, used))
    return rows
