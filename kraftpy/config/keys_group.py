"""What can be set for single groups; brokers give the defaults and the bounds."""

from __future__ import annotations

from typing import Final

from kraftpy.config.checks import OFFSET_RESET, at_least, one_of
from kraftpy.config.table import BOOLEAN, INT, MEDIUM, SHARE, STREAMS, STRING, define

__all__ = ["KEYS"]

# A table, kept to three lines a key.
# fmt: off
KEYS: Final = (
    define("consumer.session.timeout.ms",
           "Silence after which a member is removed.",
           INT, 45_000, MEDIUM, at_least(1), synonyms=("group.consumer.session.timeout.ms",)),
    define("consumer.heartbeat.interval.ms",
           "Pause between heartbeats that members are told to keep.",
           INT, 5000, MEDIUM, at_least(1), synonyms=("group.consumer.heartbeat.interval.ms",)),
    define("consumer.assignment.interval.ms",
           "Least time between two assignments.",
           INT, 1000, MEDIUM, at_least(0), synonyms=("group.consumer.assignment.interval.ms",)),
    define("share.session.timeout.ms",
           "Silence after which a share member is removed.",
           INT, 45_000, MEDIUM, at_least(1), no_effect=SHARE,
           synonyms=("group.share.session.timeout.ms",)),
    define("share.heartbeat.interval.ms",
           "Pause between heartbeats that share members are told to keep.",
           INT, 5000, MEDIUM, at_least(1), no_effect=SHARE,
           synonyms=("group.share.heartbeat.interval.ms",)),
    define("share.assignment.interval.ms",
           "Least time between two assignments.",
           INT, 1000, MEDIUM, at_least(0), no_effect=SHARE,
           synonyms=("group.share.assignment.interval.ms",)),
    define("share.auto.offset.reset",
           "Where a new share group begins to read.",
           STRING, "latest", MEDIUM, OFFSET_RESET, no_effect=SHARE),
    define("share.isolation.level",
           "Whether records of open transactions are delivered.",
           STRING, "read_uncommitted", MEDIUM, one_of("read_committed", "read_uncommitted"),
           no_effect=SHARE),
    define("share.delivery.count.limit",
           "How often a record is delivered before it is given up.",
           INT, 5, MEDIUM, at_least(2), no_effect=SHARE,
           synonyms=("group.share.delivery.count.limit",)),
    define("share.record.lock.duration.ms",
           "How long an acquired record belongs to its consumer.",
           INT, 30_000, MEDIUM, at_least(1000), no_effect=SHARE,
           synonyms=("group.share.record.lock.duration.ms",)),
    define("share.partition.max.record.locks",
           "Records of one partition that may be in flight.",
           INT, 2000, MEDIUM, at_least(100), no_effect=SHARE,
           synonyms=("group.share.partition.max.record.locks",)),
    define("share.renew.acknowledge.enable",
           "Whether a consumer may extend its hold on a record.",
           BOOLEAN, True, MEDIUM, no_effect=SHARE),
    define("streams.session.timeout.ms",
           "Silence after which a Streams member is removed.",
           INT, 45_000, MEDIUM, at_least(1), no_effect=STREAMS,
           synonyms=("group.streams.session.timeout.ms",)),
    define("streams.heartbeat.interval.ms",
           "Pause between heartbeats that Streams members are told to keep.",
           INT, 5000, MEDIUM, at_least(1), no_effect=STREAMS,
           synonyms=("group.streams.heartbeat.interval.ms",)),
    define("streams.assignment.interval.ms",
           "Least time between two assignments.",
           INT, 1000, MEDIUM, at_least(0), no_effect=STREAMS,
           synonyms=("group.streams.assignment.interval.ms",)),
    define("streams.initial.rebalance.delay.ms",
           "How long a new group waits for more members.",
           INT, 3000, MEDIUM, at_least(0), no_effect=STREAMS,
           synonyms=("group.streams.initial.rebalance.delay.ms",)),
    define("streams.num.standby.replicas",
           "Standby tasks for each task.",
           INT, 0, MEDIUM, at_least(0), no_effect=STREAMS,
           synonyms=("group.streams.num.standby.replicas",)),
)
