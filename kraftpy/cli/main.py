"""The `kraftpy` command: finds the module of one noun, imports that alone, and runs it.

A command module offers two functions: `add_arguments(parser)` describes its command line, and
`run(options)` does the work and returns the exit code. Nothing else is imported before the noun is
known, so that `--help` and small commands start at once (tests/cli/test_cli_start.py holds that by
looking at what was imported).

Exit codes: 0 it worked; 1 it failed; 2 the command line or the configuration is wrong;
70 a node stopped itself over a broken invariant; 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import NamedTuple

from kraftpy import __version__
from kraftpy.cli.failure import EXIT_INTERRUPTED, EXIT_USAGE, CommandFailed

__all__ = ["COMMANDS", "Command", "main"]


class Command(NamedTuple):
    """One noun of the command line and the module that knows it."""

    name: str
    module: str
    summary: str


COMMANDS = (
    Command("up", "kraftpy.cli.up", "run a whole cluster on this machine"),
    Command("node", "kraftpy.cli.node", "run one node in the foreground"),
    Command("topics", "kraftpy.cli.topics", "create, list, describe and delete topics"),
    Command("produce", "kraftpy.cli.produce", "send lines from standard input to a topic"),
    Command("consume", "kraftpy.cli.consume", "print the records of a topic"),
    Command("groups", "kraftpy.cli.groups", "list, describe, delete and move consumer groups"),
    Command("api-versions", "kraftpy.cli.api_versions", "show the APIs and versions a node serves"),
    Command("config", "kraftpy.cli.config", "show every configuration key and what it means"),
    Command("log", "kraftpy.cli.log", "show what is in the files of a log"),
    Command("storage", "kraftpy.cli.storage", "format the directories of a node"),
    Command("sim", "kraftpy.cli.sim", "simulate clusters under seeds, replay and shrink failures"),
)

EXAMPLES = """\
examples:
  kraftpy up                                a cluster of three nodes, from 127.0.0.1:9092 on
  kraftpy node                              a node for development, on 127.0.0.1:9092
  kraftpy node server.properties            a node from a Kafka-style properties file
  kraftpy topics create events              a topic
  kraftpy produce events < lines.txt        records into it, one for each line
  kraftpy consume events --from-beginning   and out of it

`kraftpy COMMAND --help` explains one command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the entry point of the `kraftpy` script."""
    if arguments is None:
        arguments = sys.argv[1:]
    position = next((i for i, word in enumerate(arguments) if not word.startswith("-")), None)
    if position is None:
        return _run_without_command(arguments)
    if position > 0:
        _top_parser().error(f"options go behind the command: {' '.join(arguments[:position])}")
    name = arguments[0]
    command = next((command for command in COMMANDS if command.name == name), None)
    if command is None:
        _top_parser().error(f"there is no command {name!r}; choose from {_names()}")
    return _run_command(command, arguments[1:])


def _run_command(command: Command, arguments: Sequence[str]) -> int:
    module = importlib.import_module(command.module)
    parser = ArgumentParser(
        prog=f"kraftpy {command.name}",
        description=module.__doc__,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        exit_code: int = module.run(options)
        sys.stdout.flush()
        return exit_code
    except CommandFailed as failure:
        print(f"kraftpy {command.name}: {failure}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output (`| head`) has left. Nothing more can be written, not even when
        # the interpreter flushes at its end, so the descriptor is pointed elsewhere.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run_without_command(arguments: Sequence[str]) -> int:
    parser = _top_parser()
    options = parser.parse_args(arguments)
    if options.version:
        print(_version_text())
        return 0
    parser.print_help(sys.stderr)
    return EXIT_USAGE


def _top_parser() -> ArgumentParser:
    width = max(len(command.name) for command in COMMANDS)
    listing = "\n".join(f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS)
    parser = ArgumentParser(
        prog="kraftpy",
        usage="kraftpy COMMAND [OPTIONS]",
        description="A Kafka-compatible broker in Python, without ZooKeeper and without a JVM.",
        epilog=f"commands:\n{listing}\n\n{EXAMPLES}",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="store_true", help="print the version and the protocol it speaks"
    )
    return parser


def _names() -> str:
    return ", ".join(command.name for command in COMMANDS)


def _version_text() -> str:
    from kraftpy.api.api_keys import KAFKA_RELEASE, served_ranges

    ranges = ", ".join(f"{name} {low}-{high}" for name, low, high in served_ranges())
    return f"kraftpy {__version__}\nprotocol of Apache Kafka {KAFKA_RELEASE}: {ranges}"


if __name__ == "__main__":
    sys.exit(main())
