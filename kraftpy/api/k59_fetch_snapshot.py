"""FetchSnapshot (59): a piece of a snapshot of the metadata log (KIP-630)."""

from __future__ import annotations

from kraftpy.api.raft_handler import PartitionRaftHandler

__all__ = ["FetchSnapshotHandler"]


class FetchSnapshotHandler(PartitionRaftHandler):
    api_key = 59
