"""Where a follower stands with one partition, and where its log parts from the leader's."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from kraftpy.broker.fetch_session_client import FetchKey
from kraftpy.broker.fetcher_steps import LogChange
from kraftpy.broker.partition import Partition
from kraftpy.broker.replica_log import ReplicaLog
from kraftpy.log.epochs import UNDEFINED_EPOCH
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k01_fetch import PartitionData
from kraftpy.protocol.schema.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

__all__ = [
    "FetchState",
    "Phase",
    "error_name",
    "first_batch_size",
    "offsets_request",
    "truncation_offset",
]

# Of a batch: where its length is, and the bytes that the length does not count.
_LENGTH_AT: Final = slice(8, 12)
_LENGTH_EXTRA: Final = 12


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
        "kept",
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
        # What is asked of the shell, or being done by it; and what is to be appended then.
        self.change: LogChange | None = None
        self.kept: PartitionData | None = None
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


def first_batch_size(records: memoryview) -> int:
    return int.from_bytes(records[_LENGTH_AT]) + _LENGTH_EXTRA


def offsets_request(
    broker_id: int, states: Iterable[FetchState], timestamp: int
) -> ListOffsetsRequest:
    """Ask the leader where these begin, or end."""
    topics: dict[str, ListOffsetsTopic] = {}
    for state in states:
        name, index = state.partition.topic_partition
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=index,
                current_leader_epoch=state.leader_epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(replica_id=broker_id, topics=list(topics.values()))


def error_name(error_code: int) -> str:
    """Of an error that a leader of a later release may have made up."""
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"
