"""Log lines of a node: one line each, `key=value` pairs, time from the node's own clock.

Handlers are set up here, by the command that runs a node, and never by importing something: several
nodes in one interpreter, or a test, decide for themselves where lines go.
"""

from __future__ import annotations

import logging
import sys
import time

from kraftpy.world import Clock

__all__ = ["LogFormatter", "set_up_logging"]


class LogFormatter(logging.Formatter):
    """`2026-11-16T08:00:00.123Z INFO net.listener node=1 listening address=127.0.0.1:9092`."""

    def __init__(self, clock: Clock, node_id: int) -> None:
        super().__init__()
        self._clock = clock
        self._node_id = node_id

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix("kraftpy.")
        line = f"{self._now()} {record.levelname} {name} node={self._node_id} {record.getMessage()}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line

    def _now(self) -> str:
        seconds, milliseconds = divmod(self._clock.wall_ms(), 1000)
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return f"{moment}.{milliseconds:03}Z"


def set_up_logging(clock: Clock, node_id: int, level: str) -> None:
    """Send the process's log lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter(clock, node_id))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
