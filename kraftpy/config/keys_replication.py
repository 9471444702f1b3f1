"""Followers that fetch, and the ISR."""

from __future__ import annotations

from typing import Final

from kraftpy.config.checks import at_least
from kraftpy.config.table import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    MEDIUM,
    STRING,
    THREADS,
    YES,
    define,
)

__all__ = ["KEYS"]

# A table, kept to three lines a key.
# fmt: off
KEYS: Final = (
    define("num.replica.fetchers",
           "Fetcher threads to each leader's broker.",
           INT, 1, HIGH, at_least(1), CLUSTER_WIDE, effect=YES),
    define("num.replica.alter.log.dirs.threads",
           "Threads that move replicas between directories.",
           INT, None, HIGH, no_effect=THREADS),
    define("replica.fetch.max.bytes",
           "Bytes of one partition that a follower asks for.",
           INT, 1_048_576, MEDIUM, at_least(0), effect=YES),
    define("replica.fetch.min.bytes",
           "Bytes for which a leader lets a follower wait.",
           INT, 1, HIGH, effect=YES),
    define("replica.fetch.response.max.bytes",
           "Bytes of all partitions that a follower asks for at once.",
           INT, 10_485_760, MEDIUM, at_least(0), effect=YES),
    define("replica.fetch.wait.max.ms",
           "How long a leader may let a follower wait.",
           INT, 500, HIGH, effect=YES),
    define("replica.fetch.backoff.ms",
           "Pause of a follower after a failed fetch.",
           INT, 1000, MEDIUM, at_least(0), effect=YES),
    define("replica.lag.time.max.ms",
           "Time without catching up after which a follower leaves the ISR.",
           LONG, 30_000, HIGH, effect=YES),
    define("replica.high.watermark.checkpoint.interval.ms",
           "Pause between two writes of the high watermarks.",
           LONG, 5000, HIGH, effect=YES),
    define("replica.socket.timeout.ms",
           "Longest wait of a follower for its leader's answer.",
           INT, 30_000, HIGH, effect=YES),
    define("replica.socket.receive.buffer.bytes",
           "Receive buffer of a follower's socket.",
           INT, 65_536, HIGH),
    define("replica.selector.class",
           "Class that chooses which replica a consumer reads from.",
           STRING, None, MEDIUM, effect=YES),
)
