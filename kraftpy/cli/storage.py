"""Make ids for the storage of a cluster.

examples:
  kraftpy storage random-uuid      a new cluster id, as `kafka-storage.sh random-uuid` makes them
"""

from __future__ import annotations

import random
from argparse import ArgumentParser, Namespace

from kraftpy.protocol.ids import Uuid, format_uuid

__all__ = ["add_arguments", "random_uuid", "run"]


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("random-uuid", help="print a new random id for a cluster or a directory")


def run(_options: Namespace) -> int:
    print(random_uuid(random.SystemRandom()))
    return 0


def random_uuid(source: random.Random) -> str:
    """A random id in Kafka's text form: 22 characters of URL-safe base64.

    Ids that start with a dash are avoided, because tools would take them for an option.
    """
    while True:
        number = source.getrandbits(128)
        # Version 4 and variant 1, the marks that RFC 4122 asks of a random UUID.
        number = number & ~(0xF << 76) | 0x4 << 76
        number = number & ~(0x3 << 62) | 0x2 << 62
        text = format_uuid(Uuid(number.to_bytes(16, "big")))
        if not text.startswith("-"):
            return text
