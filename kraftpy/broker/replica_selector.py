"""Which replica a consumer should read from (KIP-392): Kafka's `replica.selector.class`.

The leader is asked, and knows which followers have what the consumer wants next. A selector picks
one of them and the leader; the consumer is told of it only if that is somebody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = [
    "RACK_AWARE_SELECTOR",
    "RackAwareSelector",
    "ReplicaSelector",
    "ReplicaView",
]

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""What `replica.selector.class` calls the only selector that chooses among followers."""


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica that could serve the fetch."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    ms_since_caught_up: int


class ReplicaSelector(Protocol):
    def select(
        self, rack_id: str, leader: ReplicaView, followers: Sequence[ReplicaView]
    ) -> ReplicaView: ...


class RackAwareSelector:
    """The best replica in the consumer's rack; the leader if it is there, or if nobody is."""

    def select(
        self, rack_id: str, leader: ReplicaView, followers: Sequence[ReplicaView]
    ) -> ReplicaView:
        if not rack_id or leader.rack == rack_id:
            return leader
        near = [each for each in followers if each.rack == rack_id]
        return max(near, key=_freshness, default=leader)


def _freshness(replica: ReplicaView) -> tuple[int, int, int]:
    """The longest log; then who was caught up last; then the lowest id, for a stable choice."""
    return replica.log_end_offset, -replica.ms_since_caught_up, -replica.broker_id
