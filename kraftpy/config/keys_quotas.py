"""Quotas and throttling."""

from __future__ import annotations

from typing import Final

from kraftpy.config.checks import at_least
from kraftpy.config.table import (
    CLASS,
    CLUSTER_WIDE,
    INT,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    PLUGIN,
    YES,
    define,
)

__all__ = ["KEYS"]

# A table, kept to three lines a key.
# fmt: off
KEYS: Final = (
    define("quota.window.num",
           "Samples over which a client's quota is judged.",
           INT, 11, LOW, at_least(1), effect=YES),
    define("quota.window.size.seconds",
           "Length of one of these samples.",
           INT, 1, LOW, at_least(1), effect=YES),
    define("controller.quota.window.num",
           "Samples over which the quota of changes to topics is judged.",
           INT, 11, LOW, at_least(1), effect=YES),
    define("controller.quota.window.size.seconds",
           "Length of one of these samples.",
           INT, 1, LOW, at_least(1), effect=YES),
    define("replication.quota.window.num",
           "Samples over which throttled replication is judged.",
           INT, 11, LOW, at_least(1), effect=YES),
    define("replication.quota.window.size.seconds",
           "Length of one of these samples.",
           INT, 1, LOW, at_least(1), effect=YES),
    define("alter.log.dirs.replication.quota.window.num",
           "Samples over which moves between directories are judged.",
           INT, 11, LOW, at_least(1), effect=YES),
    define("alter.log.dirs.replication.quota.window.size.seconds",
           "Length of one of these samples.",
           INT, 1, LOW, at_least(1), effect=YES),
    define("client.quota.callback.class",
           "Class that decides on the quotas of clients.",
           CLASS, None, LOW, no_effect=PLUGIN),
    define("leader.replication.throttled.rate",
           "Bytes a second that a leader sends to throttled followers.",
           LONG, LONG_MAX, MEDIUM, at_least(0), CLUSTER_WIDE, effect=YES),
    define("follower.replication.throttled.rate",
           "Bytes a second that a follower fetches for throttled replicas.",
           LONG, LONG_MAX, MEDIUM, at_least(0), CLUSTER_WIDE, effect=YES),
    define("replica.alter.log.dirs.io.max.bytes.per.second",
           "Bytes a second for moves between directories.",
           LONG, LONG_MAX, MEDIUM, at_least(0), CLUSTER_WIDE, effect=YES),
)
