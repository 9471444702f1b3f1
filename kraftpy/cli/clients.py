"""What the commands with a client in them share: a first look at the cluster, failures in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kraftpy.cli.bootstrap import CLIENT_ID, connect_to_any
from kraftpy.cli.failure import CommandFailed

if TYPE_CHECKING:
    from argparse import Namespace

    from kraftpy.client.settings import ClientSettings

__all__ = ["Progress", "client_settings", "explained"]

# Soon enough for somebody who waits at a terminal.
API_TIMEOUT_MS = 20_000

_HINTS = {
    "UNKNOWN_TOPIC_OR_PARTITION": "`kraftpy topics list` shows what there is,"
    " `kraftpy topics create NAME` makes a topic.",
    "GROUP_ID_NOT_FOUND": "`kraftpy groups list` shows what there is.",
    "NON_EMPTY_GROUP": "it has members; `kraftpy groups describe GROUP` shows them.",
    "UNKNOWN_MEMBER_ID": "the group has members; stop them first"
    " (`kraftpy groups describe GROUP` shows them).",
    "TOPIC_ALREADY_EXISTS": "`kraftpy topics describe NAME` shows it; --if-not-exists accepts it.",
    "INVALID_REPLICATION_FACTOR": "--replication-factor can't be more than there are brokers.",
    "MESSAGE_TOO_LARGE": "the topic's max.message.bytes or --max-request-size may be too small.",
    "OFFSET_OUT_OF_RANGE": "--offset beginning or --offset end are always there.",
    "NOT_ENOUGH_REPLICAS": "too few brokers are in sync; `kraftpy topics describe` shows which.",
    "REQUEST_TIMED_OUT": "is the whole cluster up? `kraftpy topics describe` shows the leaders.",
}


def client_settings(options: Namespace) -> ClientSettings:
    """The settings of a command's client, once some node can be reached at all.

    A client tries for a long time what a person wants to hear about now.
    """
    from kraftpy.client.settings import ClientSettings

    connect_to_any(options.servers).close()
    return ClientSettings(client_id=CLIENT_ID)


@contextmanager
def explained() -> Iterator[None]:
    """Failures of the client, with what to do next."""
    from kraftpy.client.errors import KafkaError, UnsupportedVersion

    try:
        yield
    except KafkaError as failure:
        hint = _HINTS.get(failure.code.name)
        raise CommandFailed(str(failure) + (f"\n{hint}" if hint else "")) from failure
    except (ConnectionError, UnsupportedVersion) as failure:
        raise CommandFailed(str(failure)) from failure


class Progress:
    """Records and bytes so far, on a terminal, now and then."""

    INTERVAL_SECONDS = 1.0

    def __init__(self, verb: str) -> None:
        from time import monotonic

        self._now = monotonic
        self._verb = verb
        # Where records go to the same terminal, a line in between would only disturb.
        self._is_shown = sys.stderr.isatty() and not sys.stdout.isatty()
        self._started = self._shown = monotonic()
        self._was_shown = False
        self.records = 0
        self.bytes = 0

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        if self._is_shown and self._now() - self._shown >= self.INTERVAL_SECONDS:
            self._shown = self._now()
            self._was_shown = True
            rate = self.bytes / max(self._shown - self._started, 1e-9) / 1e6
            text = f"{self.records:,} records {self._verb}, {rate:.1f} MB/s"
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._was_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
