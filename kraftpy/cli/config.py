"""Show the configuration keys: type, default, who may change them, and what they are for.

examples:
  kraftpy config list                              every key of a node
  kraftpy config list --for topic                  every key of a topic
  kraftpy config describe log.segment.bytes        one key
  kraftpy config list --format json                for scripts
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftpy.cli.failure import EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from kraftpy.config.definition import Definition

__all__ = ["add_arguments", "run"]

KINDS = ("node", "topic", "group")


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="all keys, one line each")
    listing.add_argument("--for", dest="kind", choices=KINDS, default="node", help="whose (node)")
    describing = verbs.add_parser("describe", help="all that is known about a key")
    describing.add_argument("key", metavar="KEY")
    for verb in (listing, describing):
        verb.add_argument(
            "--format", choices=("table", "json"), default="table", help="how to print (table)"
        )


def run(options: Namespace) -> int:
    if options.verb == "list":
        _list(_tables()[options.kind], options.format)
    else:
        _describe(options.key, options.format)
    return 0


def _tables() -> dict[str, Mapping[str, Definition]]:
    from kraftpy.config.definitions import GROUP, NODE, TOPIC

    return dict(zip(KINDS, (NODE, TOPIC, GROUP), strict=True))


def _list(definitions: Mapping[str, Definition], form: str) -> None:
    if form == "json":
        print(json.dumps([_facts(each) for each in definitions.values()], indent=2))
        return
    width = max(map(len, definitions))
    for name, definition in sorted(definitions.items()):
        default = _default_text(definition)
        print(f"{name:<{width}}  {'-' if default is None else default}")


def _describe(key: str, form: str) -> None:
    found = {kind: table[key] for kind, table in _tables().items() if key in table}
    if not found:
        raise CommandFailed(_unknown(key), exit_code=EXIT_USAGE)
    if form == "json":
        print(json.dumps({kind: _facts(each) for kind, each in found.items()}, indent=2))
        return
    for kind, definition in found.items():
        print(f"{key} (of a {kind})")
        print(f"  {definition.doc}")
        for name, value in _facts(definition).items():
            if name not in ("name", "documentation"):
                print(f"  {name}: {'-' if value is None else value}")


def _unknown(key: str) -> str:
    from kraftpy.config.definitions import nearest_node_key

    nearest = nearest_node_key(key)
    hint = f"did you mean {nearest}?" if nearest else "`kraftpy config list` shows all keys."
    return f"there is no key {key}; {hint}"


def _facts(definition: Definition) -> dict[str, str | None]:
    return {
        "name": definition.name,
        "documentation": definition.doc,
        "type": definition.type.value,
        "default": _default_text(definition),
        "importance": definition.importance.value,
        "update_mode": definition.mode.value,
        "effect": definition.effect.value,
        "reason": definition.reason or None,
    }


def _default_text(definition: Definition) -> str | None:
    from kraftpy.config.definition import REQUIRED, render

    if definition.default is REQUIRED:
        return "(must be set)"
    return render(definition.default)
