"""A fetch that found too little, and waits for more.

To look is cheap: where the offset lies was learned by the first read, so that the bytes to come are
the difference of two positions. What is found when it ends, for whatever reason, is read anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kraftpy.broker.fetch_reader import FetchReader, FetchTerms
from kraftpy.broker.fetch_sessions import FetchedPartition
from kraftpy.broker.hosted_replicas import log_of
from kraftpy.broker.partition import Partition, ReplicaError
from kraftpy.log.errors import LogError
from kraftpy.log.offsets import UNKNOWN, Isolation, OffsetMetadata
from kraftpy.log.partition_log import PartitionLog
from kraftpy.protocol.errors import ErrorCode
from kraftpy.purgatory.operation import DelayedOperation
from kraftpy.records.errors import RecordDataError

__all__ = ["DelayedFetch"]


class DelayedFetch(DelayedOperation):
    __slots__ = ("_on_expired", "_reader", "_respond", "_terms", "_wanted")

    def __init__(
        self,
        delay_ms: int,
        terms: FetchTerms,
        reader: FetchReader,
        *,
        wanted: Callable[[], Iterable[FetchedPartition]],
        respond: Callable[[], None],
        on_expired: Callable[[], None],
    ) -> None:
        """`wanted` gives the partitions that may have something, of a session the stirred ones."""
        super().__init__(delay_ms)
        self._terms = terms
        self._reader = reader
        self._wanted = wanted
        self._respond = respond
        self._on_expired = on_expired

    def try_complete(self) -> bool:
        terms = self._terms
        missing = terms.min_bytes
        for fetched in self._wanted():
            if fetched.place is None:
                # Nobody has read from it yet: it has come to the session since.
                return self.force_complete()
            partition = self._reader.find(fetched, terms)
            if isinstance(partition, ErrorCode):
                return self.force_complete()
            try:
                count = self._readable_bytes(fetched, fetched.place, partition)
            except (ReplicaError, LogError, RecordDataError):
                # The read will say so.
                return self.force_complete()
            if count is None:
                return self.force_complete()
            missing -= count
            if missing <= 0:
                return self.force_complete()
        return False

    def on_complete(self) -> None:
        self._respond()

    def on_expiration(self) -> None:
        self._on_expired()

    def _readable_bytes(
        self, fetched: FetchedPartition, place: OffsetMetadata, partition: Partition
    ) -> int | None:
        """How much there is to read now; None if that is for a read to tell, at once."""
        if (
            fetched.last_fetched_epoch != UNKNOWN
            and partition.divergence(fetched.last_fetched_epoch, fetched.fetch_offset) is not None
        ):
            return None
        log = log_of(partition)
        end = _end_of(log, self._terms.isolation)
        if log.log_end_offset < place.offset:
            # The log was truncated.
            return None
        if end.offset <= place.offset or self._reader.holds_back(partition, self._terms):
            return 0
        return _bytes_between(place, end, fetched.max_bytes)


def _end_of(log: PartitionLog, isolation: Isolation) -> OffsetMetadata:
    if isolation is Isolation.LOG_END:
        return log.log_end
    if isolation is Isolation.HIGH_WATERMARK:
        return log.high_watermark_metadata()
    return log.last_stable_metadata()


def _bytes_between(place: OffsetMetadata, end: OffsetMetadata, max_bytes: int) -> int | None:
    if end.is_offset_only or place.is_offset_only or not end.is_on_same_segment(place):
        # A segment was rolled.
        return None
    return min(end.bytes_since(place), max_bytes)
