"""The transaction coordinator and its log."""

from __future__ import annotations

from typing import Final

from kraftpy.config.checks import at_least
from kraftpy.config.table import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT, YES, define

__all__ = ["KEYS"]

# A table, kept to three lines a key.
# fmt: off
KEYS: Final = (
    define("transaction.max.timeout.ms",
           "Longest timeout that a transactional producer may ask for.",
           INT, 900_000, HIGH, at_least(1), effect=YES),
    define("transactional.id.expiration.ms",
           "Idle time after which a transactional id is forgotten.",
           INT, 604_800_000, HIGH, at_least(1), effect=YES),
    define("transaction.abort.timed.out.transaction.cleanup.interval.ms",
           "Pause between two searches for transactions to abort.",
           INT, 10_000, LOW, at_least(1), effect=YES),
    define("transaction.remove.expired.transaction.cleanup.interval.ms",
           "Pause between two searches for ids to forget.",
           INT, 3_600_000, LOW, at_least(1), effect=YES),
    define("transaction.partition.verification.enable",
           "Whether a partition asks the coordinator before it takes a transactional batch.",
           BOOLEAN, True, LOW, None, CLUSTER_WIDE, effect=YES),
    define("transaction.two.phase.commit.enable",
           "Whether transactions of an outside coordinator may stay open without limit.",
           BOOLEAN, False, LOW),
    define("transaction.state.log.num.partitions",
           "Partitions of __transaction_state; fixed once it exists.",
           INT, 50, HIGH, at_least(1), effect=YES),
    define("transaction.state.log.replication.factor",
           "Replicas of __transaction_state.",
           SHORT, 3, HIGH, at_least(1), effect=YES),
    define("transaction.state.log.min.isr",
           "min.insync.replicas of __transaction_state.",
           INT, 2, HIGH, at_least(1), effect=YES),
    define("transaction.state.log.segment.bytes",
           "Segment size of __transaction_state.",
           INT, 104_857_600, HIGH, at_least(1), effect=YES),
    define("transaction.state.log.load.buffer.size",
           "Bytes read at a time when transactions are loaded.",
           INT, 5_242_880, HIGH, at_least(1), effect=YES),
    define("add.partitions.to.txn.retry.backoff.ms",
           "First pause before a partition is again added to a busy transaction.",
           INT, 20, HIGH, at_least(1), effect=YES),
    define("add.partitions.to.txn.retry.backoff.max.ms",
           "How long that is tried in all.",
           INT, 100, HIGH, at_least(0), effect=YES),
)
