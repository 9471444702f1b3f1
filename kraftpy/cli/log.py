"""Show what is in the files of a log: segments, indexes, snapshots, checkpoints.

Prints what Kafka's dump tool prints, for every file in a data directory. Files are never changed,
so those of a running node can be looked at. Exit code 1 tells that something is damaged.

examples:
  kraftpy log dump t-0/00000000000000000000.log                    batches
  kraftpy log dump --print-data-log t-0/*.log                      and records with their data
  kraftpy log dump t-0/*.index t-0/*.timeindex                     compared with the log beside them
  kraftpy log dump --verify-index-only t-0/*index                  only what is wrong
  kraftpy log dump --offsets-decoder __consumer_offsets-0/*.log    committed offsets and groups
  kraftpy log dump --format json recovery-point-offset-checkpoint  one object a line
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any

from kraftpy.cli.bytes_text import json_bytes, printable
from kraftpy.cli.failure import EXIT_FAILED, EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from kraftpy.log.dump import Entry
    from kraftpy.log.dump_decoders import RecordDecoder
    from kraftpy.records.reader import Record

__all__ = ["add_arguments", "run"]

_UUID_BYTES = 16
# By topic.
_DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__share_group_state": "--share-group-state-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}
# What may be missing; Kafka prints these as Java shows an optional number.
_OPTIONAL_NUMBERS = ("deleteHorizonMs", "currentTxnFirstOffset")


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    dumping = verbs.add_parser("dump", help="print what is in files of a log")
    dumping.add_argument("files", nargs="+", metavar="FILE")
    dumping.add_argument(
        "--deep-iteration", action="store_true", help="show the records of each batch"
    )
    dumping.add_argument("--print-data-log", action="store_true", help="with their keys and values")
    dumping.add_argument(
        "--verify-index-only", action="store_true", help="of indexes, show only what is wrong"
    )
    dumping.add_argument(
        "--max-bytes", type=_positive, metavar="N", help="read about so much of each .log"
    )
    decoders = dumping.add_mutually_exclusive_group()
    for topic, option in _DECODERS.items():
        decoders.add_argument(
            option,
            dest="decoder",
            action="store_const",
            const=topic,
            help=f"show keys and values as records of {topic}",
        )
    dumping.add_argument(
        "--format", choices=("text", "json"), default="text", help="how to print (text)"
    )


def _decoder(topic: str | None) -> RecordDecoder:
    from kraftpy.log.dump_decoders import as_bytes, coordinator_decoder
    from kraftpy.protocol import coordinator_records

    match topic:
        case None:
            return as_bytes
        case "__consumer_offsets":
            return coordinator_decoder(coordinator_records.GROUP_RECORDS)
        case "__transaction_state":
            return coordinator_decoder(coordinator_records.TRANSACTION_RECORDS)
        case "__share_group_state":
            return coordinator_decoder(coordinator_records.SHARE_STATE_RECORDS)
    return _metadata_facts


def _metadata_facts(record: Record) -> dict[str, Any]:
    """A record of the metadata log, whose format is our own."""
    from dataclasses import asdict

    from kraftpy.log.dump_decoders import UndecodableError
    from kraftpy.metadata.record_format import MetadataRecordError, decode_record

    try:
        decoded = decode_record(record.value or b"")
    except MetadataRecordError as error:
        raise UndecodableError(str(error)) from error
    return {"payload": {"type": type(decoded).__name__, "data": _plain(asdict(decoded))}}


def _plain(value: Any) -> Any:
    """The values of a metadata record; the bytes in it are uuids, but for a salt or a key."""
    from kraftpy.protocol.ids import Uuid, format_uuid

    match value:
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case bytes() if len(value) == _UUID_BYTES:
            return format_uuid(Uuid(value))
    return value


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no number of bytes")
    return int(text)


def run(options: Namespace) -> int:
    from kraftpy.log.dump import DumpOptions, EntryKind, UnknownFileError, dump_file
    from kraftpy.world.real_disk import RealDisk

    disk = RealDisk()
    wishes = DumpOptions(
        shows_records=options.deep_iteration or options.print_data_log or bool(options.decoder),
        shown=_decoder(options.decoder) if options.decoder or options.print_data_log else None,
        only_checks=options.verify_index_only,
        max_bytes=options.max_bytes,
    )
    show = _show_json if options.format == "json" else _show_text
    problems = 0
    for path in options.files:
        try:
            for entry in dump_file(disk, path, wishes):
                show(path, entry)
                problems += entry.kind is EntryKind.PROBLEM
        except UnknownFileError as error:
            raise CommandFailed(str(error), exit_code=EXIT_USAGE) from error
        except IsADirectoryError as error:
            raise CommandFailed(
                f"{path} is a directory; name its files, as in {path.rstrip('/')}/*.log",
                exit_code=EXIT_USAGE,
            ) from error
        except FileNotFoundError as error:
            raise CommandFailed(f"there is no file {path}", exit_code=EXIT_USAGE) from error
        except OSError as error:
            raise CommandFailed(f"{path} can't be read: {error.strerror or error}") from error
    return EXIT_FAILED if problems else 0


def _show_json(path: str, entry: Entry) -> None:
    print(json.dumps({"file": path, "type": entry.kind.value, **entry.facts}, default=json_bytes))


def _show_text(path: str, entry: Entry) -> None:
    from kraftpy.log.dump import EntryKind

    facts = entry.facts
    match entry.kind:
        case EntryKind.FILE:
            print(f"Dumping {path}")
            if path.endswith(".log") and "baseOffset" in facts:
                print(f"Log starting offset: {facts['baseOffset']}")
        case EntryKind.NOTE | EntryKind.PROBLEM:
            print(f"{entry.kind.value}: {facts['message']}")
        case EntryKind.RECORD:
            print(f"| {_line(facts)}")
        case _:
            print(_line(facts))


def _line(facts: dict[str, Any]) -> str:
    words = []
    for name, value in facts.items():
        if name == "timestampType":
            words.append(f"{value}: {facts['timestamp']}")
        elif name != "timestamp" or "timestampType" not in facts:
            words.append(f"{name}: {_text(name, value)}")
    return " ".join(words)


def _text(name: str, value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "OptionalLong.empty" if name in _OPTIONAL_NUMBERS else "-"
        case int() if name in _OPTIONAL_NUMBERS:
            return f"OptionalLong[{value}]"
        case bytes():
            return printable(value.decode(errors="replace"))
        case list():
            return f"[{','.join(printable(each) for each in value)}]"
        case dict():
            return json.dumps(value, separators=(",", ":"), default=json_bytes)
        case _:
            return str(value)
