"""Fetch (1) on a controller's listener: the metadata log, to voters and observers (KIP-595).

Nothing but that one partition is served there, and there are no fetch sessions: each request names
the partition and stands for itself. Topics of clients are fetched from brokers.

Replicas fetch with version 12 or higher, because before it there was no way to state the last epoch
fetched. A lower one is answered INVALID_REQUEST by the core, for that epoch is missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftpy.api.raft_handler import RaftHandler
from kraftpy.protocol.schema.k01_fetch import FetchResponse, LeaderIdAndEpoch

__all__ = ["FetchMetadataHandler"]


_FIRST_VERSION_WITH_LEADER = 12
_FIRST_VERSION_WITH_ENDPOINTS = 16


class FetchMetadataHandler(RaftHandler):
    api_key = 1

    def fit(self, response: FetchResponse, version: int) -> None:
        if version < _FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = []
        if version < _FIRST_VERSION_WITH_LEADER:
            for topic in response.responses:
                for partition in topic.partitions:
                    partition.current_leader = LeaderIdAndEpoch()

    def error_codes(self, response: FetchResponse) -> Iterable[int]:
        yield response.error_code
        for topic in response.responses:
            for partition in topic.partitions:
                yield partition.error_code
