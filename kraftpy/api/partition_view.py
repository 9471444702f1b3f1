"""What clients are told of a partition: who leads it, where its replicas are, and which are away.

A leader counts only if clients can reach it: it must be live and have the listener that they came
in on. Versions differ in what they say of one that they can't, and version 0 of Metadata leaves out
replicas that are away instead of listing them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kraftpy.broker.metadata_view import reachable_brokers
from kraftpy.metadata.controller.replica_states import has_online_directory
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import PartitionRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid

__all__ = ["INTERNAL_TOPICS", "ListenerView", "PartitionView"]

INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_NO_LEADER: Final = -1


class PartitionView(NamedTuple):
    """A partition as clients of one listener see it."""

    error_code: ErrorCode
    leader_id: int
    offline_replicas: list[int]


class ListenerView:
    """An image as clients of one listener see it; made for one answer."""

    __slots__ = ("_image", "_offline", "_reachable", "_suspected")

    def __init__(
        self, image: MetadataImage, listener_name: str, suspected: Sequence[int] = ()
    ) -> None:
        """Nobody is sent to the `suspected`, who may be dead, though the image has them alive."""
        self._image = image
        self._suspected = suspected
        # Looked up for every replica, so that it pays to judge each broker once.
        self._reachable = reachable_brokers(image, listener_name)
        # Who is away follows from these two alone, and many partitions have the same.
        self._offline: dict[tuple[tuple[int, ...], tuple[Uuid, ...]], list[int]] = {}

    def of(self, partition: PartitionRecord) -> PartitionView:
        """Its leader, if clients can reach it, and the replicas that are away."""
        place = (partition.replicas, partition.directories)
        offline = self._offline.get(place)
        if offline is None:
            offline = self._offline[place] = self._find_offline(partition)
        leader_id = partition.leader
        if leader_id in self._reachable and leader_id not in self._suspected:
            return PartitionView(ErrorCode.NONE, leader_id, offline)
        if leader_id in self._image.brokers and leader_id not in self._suspected:
            return PartitionView(ErrorCode.LISTENER_NOT_FOUND, _NO_LEADER, offline)
        return PartitionView(ErrorCode.LEADER_NOT_AVAILABLE, _NO_LEADER, offline)

    def _find_offline(self, partition: PartitionRecord) -> list[int]:
        return [
            broker_id
            for broker_id in partition.replicas
            if (broker := self._reachable.get(broker_id)) is None
            or not has_online_directory(broker, partition)
        ]
