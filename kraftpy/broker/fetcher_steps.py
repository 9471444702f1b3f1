"""What a fetcher is told to do next, and the settings and ports that it decides by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kraftpy.broker.partition import Partition
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.protocol.schema.k01_fetch import FetchRequest
from kraftpy.protocol.schema.k02_list_offsets import ListOffsetsRequest

__all__ = [
    "ChangeLogs",
    "Fetch",
    "FetcherSettings",
    "FindOffsets",
    "Flush",
    "Idle",
    "LogChange",
    "ReplicationTraffic",
    "Restart",
    "Step",
    "Truncate",
    "UnlimitedTraffic",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """`replica.fetch.*`, and who fetches."""

    broker_id: int
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_ms: int = 1000
    first_backoff_ms: int = 50
    """The first pause after an error, which doubles with each that follows, up to `backoff_ms`.

    Most errors come from metadata that has reached one of the two brokers a moment before the
    other. Kafka waits for the whole `backoff_ms` at once.
    """

    def pause_ms(self, failures: int) -> int:
        """How long to wait after so many failures in a row."""
        return min(self.first_backoff_ms << min(failures - 1, 20), self.backoff_ms)


class ReplicationTraffic(Protocol):
    """The quota for followers (`follower.replication.throttled.rate`), and who counts bytes."""

    def is_exceeded(self) -> bool: ...

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        """Whether the quota is for this partition."""
        ...

    def replicated(self, partition: Partition, byte_count: int) -> None:
        """So much has been appended."""
        ...


class UnlimitedTraffic:
    """No quota, and nobody counts."""

    def is_exceeded(self) -> bool:
        return False

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        del topic_partition
        return False

    def replicated(self, partition: Partition, byte_count: int) -> None:
        del partition, byte_count


# Changes of a log that take time. They are told apart by identity.


@dataclass(frozen=True, slots=True, eq=False)
class Truncate:
    """`log.truncate_to(offset)`, also if that is the log's end: it forgets epochs there."""

    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Restart:
    """`log.truncate_fully_and_start_at(offset)`."""

    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Flush:
    """`log.flush()`: the next fetch will say that what was appended is safe."""

    partition: Partition


LogChange: TypeAlias = Truncate | Restart | Flush


# Steps.


@dataclass(frozen=True, slots=True)
class ChangeLogs:
    """Make the changes, in any order, and report each with `changed`.

    A partition whose log is changed is not fetched meanwhile; others may be.
    """

    changes: Sequence[LogChange]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Send it, with version 15 or higher; then `answered` or `failed`."""

    request: FetchRequest


@dataclass(frozen=True, slots=True)
class FindOffsets:
    """Send it; then `offsets_answered` or `failed`."""

    request: ListOffsetsRequest


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do until then (None: for ever), or until partitions are added."""

    until_ms: int | None


Step: TypeAlias = ChangeLogs | Fetch | FindOffsets | Idle
