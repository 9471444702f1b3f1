"""What replication asks of a log; PartitionLog is one, and MemoryReplicaLog in simulations."""

from __future__ import annotations

from typing import Protocol

from kraftpy.log.epochs import LeaderEpochCache
from kraftpy.log.log_config import LogConfig
from kraftpy.log.offsets import AppendInfo, Isolation, OffsetMetadata, ReadInfo
from kraftpy.log.producers import TRANSACTION_VERSION_UNKNOWN
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import Buffer

__all__ = ["ReplicaLog"]


class ReplicaLog(Protocol):
    """The replica's own log, in the words of kraftpy.log.

    Truncation is not among it: that takes time on a real disk, and is what a fetcher asks its shell
    for.
    """

    @property
    def config(self) -> LogConfig: ...

    @property
    def epochs(self) -> LeaderEpochCache: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def log_end(self) -> OffsetMetadata: ...

    @property
    def recovery_point(self) -> int:
        """Everything below is durable."""
        ...

    @property
    def unproven_from(self) -> int | None:
        """Where the last batch would begin, if it seems to come behind a gap since a crash."""
        ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    def begin_epoch(self, epoch: int) -> None:
        """A leadership begins at the log end, whether or not anything will be appended in it."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> AppendInfo: ...

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo: ...

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        *,
        min_one_batch: bool = True,
    ) -> ReadInfo: ...

    def update_high_watermark(self, offset: int) -> int: ...

    def increment_high_watermark(self, new: OffsetMetadata) -> OffsetMetadata | None: ...

    def raise_log_start(self, offset: int) -> bool: ...
