"""Print the records of a topic, all partitions or one, as they come.

Without a group nothing is committed, and nobody shares the partitions. Begins at the end unless
told otherwise, and goes on until Ctrl-C, -n or --exit-at-end.

With --group the members of the group share the partitions, and go on where the group has come to;
--from-beginning then is for partitions of which it has read nothing yet. What was printed is
committed.

examples:
  kraftpy consume events                                what comes from now on
  kraftpy consume events --from-beginning -n 10         the first ten
  kraftpy consume events --from-beginning --exit-at-end --format json
  kraftpy consume events --partition 0 --offset 4711    from one offset
  kraftpy consume events --offset -5 --exit-at-end      the last five of each partition
  kraftpy consume events --key-separator :              keys and values
  kraftpy consume events --group readers                what nobody of the group has read yet
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Literal

from kraftpy.cli.bootstrap import add_bootstrap_argument
from kraftpy.cli.bytes_text import json_bytes
from kraftpy.cli.clients import API_TIMEOUT_MS, Progress, client_settings, explained
from kraftpy.cli.failure import EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from kraftpy.client.blocking_clients import BlockingConsumer
    from kraftpy.client.calls import TopicPartition
    from kraftpy.records.reader import Record

__all__ = ["add_arguments", "run"]

_POLL_RECORDS = 5_000
_POLL_MS = 500


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_argument(parser)
    parser.add_argument(
        "--from-beginning", action="store_true", help="the same as --offset beginning"
    )
    parser.add_argument("-p", "--partition", type=_number, metavar="P", help="only this one")
    parser.add_argument(
        "-o",
        "--offset",
        type=_offset,
        metavar="O",
        help="beginning, end, an offset, or -N for N before the end (end)",
    )
    parser.add_argument("-g", "--group", metavar="G", help="as a member of this consumer group")
    parser.add_argument(
        "--protocol",
        choices=("classic", "consumer"),
        help="how the group agrees: the members, or the coordinator (KIP-848) (classic)",
    )
    parser.add_argument("-n", "--count", type=_number, metavar="N", help="stop after N records")
    parser.add_argument(
        "-e", "--exit-at-end", action="store_true", help="stop at the present end of the topic"
    )
    parser.add_argument(
        "--read-committed", action="store_true", help="nothing of open or aborted transactions"
    )
    parser.add_argument(
        "-k", "--key-separator", metavar="TEXT", help="print keys too, with this behind them"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="values as they are, or one object a line (text)",
    )


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is no number")
    return int(text)


def _offset(text: str) -> str | int:
    if text in ("beginning", "end"):
        return text
    if not text.removeprefix("-").isdecimal():
        raise ArgumentTypeError(f"{text!r} is neither beginning, end nor a number")
    return int(text)


def run(options: Namespace) -> int:
    from kraftpy.client.blocking_clients import BlockingConsumer
    from kraftpy.client.settings import ConsumerSettings, IsolationLevel

    if options.from_beginning and options.offset is not None:
        raise CommandFailed("--from-beginning and --offset contradict", exit_code=EXIT_USAGE)
    _check_group(options)
    if options.count == 0:
        return 0
    level = IsolationLevel.READ_COMMITTED if options.read_committed else 0
    settings = ConsumerSettings(
        client=client_settings(options),
        auto_offset_reset=_policy(options),
        isolation_level=IsolationLevel(level),
        default_api_timeout_ms=API_TIMEOUT_MS,
        group_id=options.group,
        group_protocol=options.protocol or "classic",
        partition_assignment_strategy=("cooperative-sticky",),
        enable_auto_commit=False,
    )
    progress = Progress("consumed")
    try:
        with explained(), BlockingConsumer(options.servers, settings) as consumer:
            partitions = _partitions(consumer, options)
            if options.group is None:
                consumer.assign(partitions)
                _seek(consumer, options)
            else:
                consumer.subscribe([options.topic])
            _print_records(consumer, options, progress)
    finally:
        progress.end()
    return 0


def _check_group(options: Namespace) -> None:
    if options.group is None:
        if options.protocol is not None:
            raise CommandFailed("--protocol needs --group", exit_code=EXIT_USAGE)
        return
    if not options.group:
        raise CommandFailed("--group must not be empty", exit_code=EXIT_USAGE)
    for name in ("partition", "offset"):
        if getattr(options, name) is not None:
            why = f"--{name} is not for groups, which share partitions and know where to go on"
            raise CommandFailed(why, exit_code=EXIT_USAGE)
    if options.exit_at_end:
        why = "--exit-at-end is not for groups: other members may have the last records"
        raise CommandFailed(why, exit_code=EXIT_USAGE)


def _policy(options: Namespace) -> Literal["earliest", "latest", "none"]:
    if options.group is None:
        return "none"
    return "earliest" if options.from_beginning else "latest"


def _partitions(consumer: BlockingConsumer, options: Namespace) -> list[TopicPartition]:
    partitions = consumer.partitions_of(options.topic)
    if options.partition is None:
        return partitions
    chosen = [each for each in partitions if each.partition == options.partition]
    if not chosen:
        raise CommandFailed(
            f"{options.topic} has the partitions 0 to {len(partitions) - 1}, not"
            f" {options.partition}"
        )
    return chosen


def _seek(consumer: BlockingConsumer, options: Namespace) -> None:
    offset = "beginning" if options.from_beginning else options.offset
    partitions = consumer.assignment
    if isinstance(offset, int) and offset < 0:
        firsts = consumer.beginning_offsets(partitions)
        for where, end in consumer.end_offsets(partitions).items():
            consumer.seek(where, max(firsts[where], end + offset))
        return
    for where in partitions:
        if offset == "beginning":
            consumer.seek_to_beginning(where)
        elif isinstance(offset, int):
            consumer.seek(where, offset)
        else:
            consumer.seek_to_end(where)


def _print_records(consumer: BlockingConsumer, options: Namespace, progress: Progress) -> None:
    ends = consumer.end_offsets(consumer.assignment) if options.exit_at_end else None
    left = options.count
    committed = 0
    show = _show_json if options.format == "json" else _show_text
    separator = None if options.key_separator is None else options.key_separator.encode()
    write = sys.stdout.buffer.write
    while left is None or left > 0:
        if ends is not None:
            ends = {where: end for where, end in ends.items() if consumer.position(where) < end}
            if not ends:
                return
        most = _POLL_RECORDS if left is None else min(left, _POLL_RECORDS)
        for topic, partition, records in consumer.poll(_POLL_MS, max_records=most):
            for record in records:
                write(show(topic, partition, record, separator))
            size = sum(len(each.value or b"") + len(each.key or b"") for each in records)
            progress.add(len(records), size)
            if left is not None:
                left -= len(records)
        sys.stdout.buffer.flush()
        if options.group is not None and progress.records > committed:
            # Only now: whoever interrupts us has seen what is committed.
            consumer.commit()
            committed = progress.records


def _show_text(topic: str, partition: int, record: Record, separator: bytes | None) -> bytes:
    value = b"null" if record.value is None else record.value
    if separator is None:
        return value + b"\n"
    key = b"null" if record.key is None else record.key
    return key + separator + value + b"\n"


def _show_json(topic: str, partition: int, record: Record, separator: bytes | None) -> bytes:
    facts = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }
    return json.dumps(facts).encode() + b"\n"
