"""What clients are told of a partition: who leads it, where its replicas are, and which are away.

A leader counts only if clients can reach it: it must be live and have the listener that they came
in on. Versions differ in what they say of one that they can't, and version 0 of Metadata leaves out
replicas that are away instead of listing them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftpy.broker.metadata_view import endpoint_of, offline_replicas
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import PartitionRecord
from kraftpy.protocol.errors import ErrorCode

__all__ = ["INTERNAL_TOPICS", "PartitionView", "view_partition"]

INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as clients of one listener see it."""

    error_code: ErrorCode
    leader_id: int
    offline_replicas: list[int]


def view_partition(
    image: MetadataImage, partition: PartitionRecord, listener_name: str
) -> PartitionView:
    """Its leader, if clients of this listener can reach it, and the replicas that they can't."""
    offline = offline_replicas(image, partition, listener_name)
    leader = image.brokers.get(partition.leader)
    if leader is None:
        return PartitionView(ErrorCode.LEADER_NOT_AVAILABLE, _NO_LEADER, offline)
    if leader.fenced or endpoint_of(leader.end_points, listener_name) is None:
        return PartitionView(ErrorCode.LISTENER_NOT_FOUND, _NO_LEADER, offline)
    return PartitionView(ErrorCode.NONE, partition.leader, offline)
