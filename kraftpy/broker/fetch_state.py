"""Where a follower stands with one partition, and where its log parts from the leader's."""

from __future__ import annotations

from enum import Enum

from kraftpy.broker.fetch_session_client import FetchKey
from kraftpy.broker.fetcher_steps import LogChange
from kraftpy.broker.partition import Partition
from kraftpy.broker.replica_log import ReplicaLog
from kraftpy.log.epochs import UNDEFINED_EPOCH

__all__ = ["FetchState", "Phase", "truncation_offset"]


class Phase(Enum):
    FETCHING = "fetching"
    CHANGING = "changing"
    FINDING_END = "finding the leader's end"
    FINDING_START = "finding the leader's start"


class FetchState:
    """Of one partition, while it is fetched."""

    __slots__ = (
        "change",
        "delayed_until_ms",
        "failures",
        "key",
        "lag",
        "leader_epoch",
        "partition",
        "phase",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: FetchKey = (partition.topic_id, partition.topic_partition[1])
        self.leader_epoch = partition.leader_epoch
        self.phase = Phase.FETCHING
        # What is asked of the shell, or being done by it.
        self.change: LogChange | None = None
        self.delayed_until_ms: int | None = None
        # In a row.
        self.failures = 0
        # Behind the leader's high watermark; None if that is not known yet.
        self.lag: int | None = None


def truncation_offset(log: ReplicaLog, leader_epoch: int, leader_end_offset: int) -> int:
    """Where to cut a log of which the leader says that it has no more than this in common.

    `leader_epoch` is the latest epoch that the leader has of those up to the log's last one; there
    it ends at `leader_end_offset`. If this log has nothing of it, the next fetch goes on from its
    end of the epoch before.
    """
    epoch, end_offset = log.end_offset_for_epoch(leader_epoch)
    if epoch == UNDEFINED_EPOCH:
        return min(leader_end_offset, log.log_end_offset)
    if epoch != leader_epoch:
        return min(end_offset, log.log_end_offset)
    return min(end_offset, leader_end_offset, log.log_end_offset)
