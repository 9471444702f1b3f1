"""Send lines from standard input to a topic, one record for each line.

Every record is acknowledged before the command ends with exit code 0. What is typed by hand is sent
line by line.

examples:
  kraftpy produce events < lines.txt
  echo 'user7:login' | kraftpy produce events --key-separator :
  kraftpy produce events --compression zstd --acks 1 < big.txt
  kraftpy produce events --format json < lines.txt      where each record went
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kraftpy.cli.bootstrap import add_bootstrap_argument
from kraftpy.cli.clients import API_TIMEOUT_MS, Progress, client_settings, explained
from kraftpy.cli.failure import EXIT_FAILED, EXIT_USAGE, CommandFailed

if TYPE_CHECKING:
    from kraftpy.client.blocking_clients import BlockingProducer
    from kraftpy.client.producer_batch import Delivery
    from kraftpy.client.settings import ProducerSettings

__all__ = ["add_arguments", "run"]

_READ_BYTES = 1 << 16
_ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}
# Larger than Kafka's default, which suits senders of single records rather than of files.
_BATCH_BYTES = 128 * 1024


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_argument(parser)
    parser.add_argument(
        "-k",
        "--key-separator",
        metavar="TEXT",
        help="what stands before its first occurrence in a line is the key",
    )
    parser.add_argument("-p", "--partition", type=_number, metavar="P", help="(by key, or spread)")
    parser.add_argument(
        "-H",
        "--header",
        type=_header,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header for every record",
    )
    parser.add_argument(
        "--acks", choices=tuple(_ACKS), default="all", help="who must have a record (all)"
    )
    parser.add_argument(
        "-z",
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        default="none",
        help="of batches (none)",
    )
    parser.add_argument(
        "--batch-size",
        type=_number,
        default=_BATCH_BYTES,
        metavar="BYTES",
        help=f"({_BATCH_BYTES})",
    )
    parser.add_argument(
        "--max-request-size", type=_number, default=1 << 20, metavar="BYTES", help="(1048576)"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="json prints where each record went, one object a line (text: nothing)",
    )


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is no number")
    return int(text)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value.encode()


def run(options: Namespace) -> int:
    from kraftpy.client.blocking_clients import BlockingProducer

    if options.key_separator == "":
        raise CommandFailed("--key-separator is empty", exit_code=EXIT_USAGE)
    settings = _settings(options)
    if sys.stdin.isatty():
        print(f"one record a line for {options.topic}; Ctrl-D ends", file=sys.stderr)
    progress = Progress("produced")
    report = _Report(is_json=options.format == "json")
    try:
        with explained(), BlockingProducer(options.servers, settings) as producer:
            _send_lines(producer, options, progress, report)
    finally:
        progress.end()
    report.settle()
    if report.failure is not None:
        with explained():
            print(f"{report.failed} of {report.total} records were not written", file=sys.stderr)
            raise report.failure
    if options.format == "text":
        print(f"{report.total} records produced to {options.topic}", file=sys.stderr)
    return EXIT_FAILED if report.failed else 0


def _settings(options: Namespace) -> ProducerSettings:
    from kraftpy.client.settings import ProducerSettings

    return ProducerSettings(
        client=client_settings(options),
        acks=_ACKS[options.acks],  # type: ignore[arg-type]  # The parser allows no others.
        compression_type=options.compression,
        batch_size=options.batch_size,
        max_request_size=options.max_request_size,
        max_block_ms=API_TIMEOUT_MS,
    )


def _send_lines(
    producer: BlockingProducer, options: Namespace, progress: Progress, report: _Report
) -> None:
    separator = None if options.key_separator is None else options.key_separator.encode()
    for line in _lines(producer, report):
        key: bytes | None = None
        value = line
        if separator is not None:
            key, found, value = line.partition(separator)
            if not found:
                raise CommandFailed(
                    f"line {report.total + 1} has no {options.key_separator!r}: {line[:60]!r};"
                    " without --key-separator lines are values"
                )
        delivery = producer.send(
            options.topic, value, key=key, partition=options.partition, headers=options.header
        )
        report.add(delivery)
        progress.add(1, len(line))


def _lines(producer: BlockingProducer, report: _Report) -> Iterator[bytes]:
    """The lines of standard input, without their ends.

    Before waiting for more input, what has come is sent and acknowledged: a blocking producer does
    nothing while we wait.
    """
    import select

    descriptor = sys.stdin.fileno()
    rest = b""
    while True:
        if not select.select([descriptor], [], [], 0)[0]:
            producer.flush()
            report.settle()
        chunk = os.read(descriptor, _READ_BYTES)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


class _Report:
    """What became of the records, in their order."""

    MAX_PENDING = 10_000

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self._pending: deque[Delivery] = deque()
        self.total = 0
        self.failed = 0
        self.failure: Exception | None = None

    def add(self, delivery: Delivery) -> None:
        self._pending.append(delivery)
        self.total += 1
        if len(self._pending) > self.MAX_PENDING:
            self.settle()

    def settle(self) -> None:
        """Look at those that are done."""
        while self._pending and self._pending[0].is_done:
            delivery = self._pending.popleft()
            try:
                metadata = delivery.result()
            except Exception as failure:
                self.failed += 1
                self.failure = self.failure or failure
                facts: dict[str, object] = {"topic": delivery.topic, "error": str(failure)}
            else:
                facts = metadata._asdict()
            if self._is_json:
                print(json.dumps(facts), flush=not self._pending)
