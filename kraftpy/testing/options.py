"""What kind of cluster a test gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["TEST_SETTINGS", "ClusterOptions"]

TEST_SETTINGS: Final[Mapping[str, str]] = {
    # A node that is paused or cut off is missed after three seconds instead of nine.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}
"""On top of the settings for development; a test's own settings come on top of these."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The arguments of the marker `kafka_cluster`."""

    nodes: int = 1
    """Ids begin at 1."""
    controllers: int = 0
    """0: every node is broker and controller. Otherwise nodes are brokers, and these follow."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Kafka's keys, for every node."""
    one_process: bool = False
    """Nodes are tasks of one thread in the test's own process: quicker to start, and all of them
    share one processor.
    """
    ready_timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.controllers < 0:
            raise ValueError(f"{self.nodes} nodes and {self.controllers} controllers make none")
