"""What a log is given by whoever owns it, and what it asks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kraftpy.log.handles import HandlePool
from kraftpy.log.pacing import Pace
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.world import Clock, Disk, Random

if TYPE_CHECKING:
    from kraftpy.log.log_reading import ReadableLog

__all__ = ["LogEnvironment", "LogOwner"]


class LogOwner(Protocol):
    """The log manager, seen from a log. The calls come from synchronous code and must not wait."""

    def work_pending(self, log: ReadableLog) -> None:
        """A task of the owner's should soon `await log.do_pending_work()`. May come repeatedly."""
        ...

    def unlink_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """These files (`.deleted`) have left the log; remove them when the delay is over.

        A path may come twice, when a segment with the same base has gone the same way.
        """
        ...

    def storage_failed(self, log: ReadableLog, error: OSError) -> None:
        """The log's directory can't be trusted any more: take it offline.

        The log refuses everything from now on.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnvironment:
    """What the logs of one data directory share."""

    disk: Disk
    pool: HandlePool
    clock: Clock
    pace: Pace
    """Of long work on these logs, whoever does it."""
    jitter: Random
    """The stream for `segment.jitter.ms`."""
    owner: LogOwner
    producer_expiration_ms: int = 86_400_000
    """`producer.id.expiration.ms`."""
    verify_transactions: bool = True
    """`transaction.partition.verification.enable`."""
    topic_metrics: TopicMetrics | None = None
    """Where refused batches are counted, if anywhere."""
