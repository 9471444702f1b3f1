"""What those who answer clients ask of the replicas on this broker. ReplicaManager is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kraftpy.broker.fetch_purgatory import FetchPurgatory
from kraftpy.broker.partition import Partition
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.partition_log import PartitionLog
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.purgatory.purgatory import Purgatory

__all__ = ["HostedReplicas", "find_again", "log_of"]


class HostedReplicas(Protocol):
    """The partitions that this broker has a replica of, and those who wait for them.

    In each purgatory a partition's name is the key under which its events are looked for.
    """

    produce_purgatory: Purgatory[Any]
    fetch_purgatory: FetchPurgatory
    delete_records_purgatory: Purgatory[Any]

    def lookup(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        """The replica; NOT_LEADER_OR_FOLLOWER where others have it, KAFKA_STORAGE_ERROR while its
        directory is offline, UNKNOWN_TOPIC_OR_PARTITION if there is no such partition.
        """
        ...

    def lookup_by_id(self, topic_id: Uuid, partition_id: int) -> Partition | ErrorCode:
        """Likewise; UNKNOWN_TOPIC_ID if there is no such topic."""
        ...

    def await_leader(
        self, topic: str, topic_id: Uuid, partition_id: int, then: Callable[[], None]
    ) -> bool:
        """Whether this broker is about to host, and to lead, a partition, named by either.

        Clients may know that from another broker before this one has made its log. `then` is called
        when it has, or when it never will.
        """
        return False


def log_of(partition: Partition) -> PartitionLog:
    """The log of a hosted partition, with all that a core does not need of it."""
    log = partition.log
    assert isinstance(log, PartitionLog)
    return log


def find_again(partition: Partition, replicas: HostedReplicas) -> ErrorCode:
    """Whether a partition that was hosted some time ago still is; if not, why."""
    found = replicas.lookup_by_id(partition.topic_id, partition.topic_partition[1])
    if found is partition:
        return ErrorCode.NONE
    if isinstance(found, ErrorCode) and found is not ErrorCode.UNKNOWN_TOPIC_ID:
        return found
    # Its topic is gone. Who asked by name is answered so.
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
