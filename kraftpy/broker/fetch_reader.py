"""Reading for a fetch: partition by partition, as a leader for followers and consumers, or as a
follower for consumers near by.

A fetch is read when it comes, and once more when it has waited (REP-30). The first read also tells
the leader how far a follower is: after the read, so that the follower counts as caught up if it had
all that was there, and before the answer, which so carries the high watermark that follows from it
(REP-35). What is read are places in files, never bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kraftpy.broker.fetch_sessions import FetchedPartition, FetchSessions, SessionPartition
from kraftpy.broker.hosted_replicas import HostedReplicas, log_of
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.partition import Partition, ReplicaError
from kraftpy.broker.replica_selector import ReplicaSelector, ReplicaView
from kraftpy.log.errors import LogError
from kraftpy.log.offsets import UNKNOWN, Isolation, OffsetMetadata
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.read_budget import ReadBudget
from kraftpy.observe.topic_metrics import (
    FAILED_FETCH_REQUESTS,
    TOTAL_FETCH_REQUESTS,
    TopicMetrics,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    PartitionData,
)
from kraftpy.records.errors import RecordDataError
from kraftpy.security.replication_quota import ReplicationQuota
from kraftpy.world import Clock

__all__ = ["FetchReader", "FetchResult", "FetchTerms"]

_NOBODY = -1
# What those meet who ask at the wrong moment or the wrong broker; Kafka counts no failure for it.
_EXPECTED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTerms:
    """What holds for all partitions of a fetch. A consumer's replica id is -1."""

    replica_id: int
    replica_epoch: int
    max_bytes: int
    min_bytes: int
    isolation: Isolation
    is_by_id: bool
    # Nobody but the leader may answer: followers want it so, and consumers that know no better.
    is_for_leader: bool
    rack_id: str
    # Whether the asker may have what is in a topic of that name; None if everybody may.
    may_read: Callable[[str], bool] | None = None

    @property
    def is_of_follower(self) -> bool:
        return self.replica_id >= 0


class FetchResult:
    """What was read, in the order of the fetch."""

    __slots__ = ("byte_count", "has_news", "reads")

    def __init__(self) -> None:
        self.reads: list[tuple[FetchedPartition, Partition | None, PartitionData]] = []
        self.byte_count = 0
        # Something that nobody should wait with: an error, a divergence, a better replica.
        self.has_news = False

    def topics(self) -> list[FetchableTopicResponse]:
        """For an answer that says everything."""
        return _grouped((fetched, data) for fetched, _, data in self.reads)


class FetchReader:
    def __init__(
        self,
        replicas: HostedReplicas,
        sessions: FetchSessions,
        cluster: BrokerMetadata,
        *,
        clock: Clock,
        metrics: TopicMetrics,
        selector: ReplicaSelector | None = None,
        quota: ReplicationQuota | None = None,
    ) -> None:
        """Without a selector, consumers read from leaders unless they want it otherwise. `quota` is
        for what goes to followers.
        """
        self._replicas = replicas
        self._sessions = sessions
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics
        self._selector = selector
        self._quota = quota

    def read(
        self, wanted: Iterable[FetchedPartition], terms: FetchTerms, *, is_first: bool
    ) -> FetchResult:
        """Read what is there. A fetch that `is_first` has just come, and tells of a follower."""
        result = FetchResult()
        budget = ReadBudget(terms.max_bytes)
        now = self._clock.monotonic()
        for fetched in wanted:
            partition = self.find(fetched, terms)
            if isinstance(partition, ErrorCode):
                data = self._failed(fetched, partition, None, now)
                result.reads.append((fetched, None, data))
                result.has_news = True
                continue
            if isinstance(fetched, SessionPartition):
                self._sessions.watch(fetched, partition.topic_partition)
            self._metrics.mark(TOTAL_FETCH_REQUESTS, partition.topic_partition[0], now)
            try:
                data = self._read(fetched, partition, terms, budget, is_first=is_first)
            except (ReplicaError, LogError, RecordDataError) as error:
                data = self._failed(fetched, error.error_code, partition, now)
                result.has_news = True
            else:
                result.byte_count += len(data.records or b"")
                if data.diverging_epoch.epoch != UNKNOWN or data.preferred_read_replica >= 0:
                    result.has_news = True
            result.reads.append((fetched, partition, data))
        return result

    def find(self, fetched: FetchedPartition, terms: FetchTerms) -> Partition | ErrorCode:
        """The replica that answers for a partition."""
        if terms.may_read is not None and self._is_refused(fetched, terms, terms.may_read):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if terms.is_by_id:
            found = self._replicas.lookup_by_id(fetched.topic_id, fetched.index)
        else:
            found = self._replicas.lookup((fetched.topic, fetched.index))
        if isinstance(found, ErrorCode):
            return found
        code = found.check_epoch(fetched.leader_epoch)
        if code != ErrorCode.NONE:
            return code
        if terms.is_for_leader and not found.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if terms.is_of_follower and found.follower(terms.replica_id) is None:
            # This leader does not know yet that the asker is a replica, or knows that it is none.
            if fetched.leader_epoch == UNKNOWN:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return found

    def _is_refused(
        self, fetched: FetchedPartition, terms: FetchTerms, may_read: Callable[[str], bool]
    ) -> bool:
        """An id that nobody knows is another error."""
        if not terms.is_by_id:
            return not may_read(fetched.topic)
        topic = self._cluster.image.topic_by_id(fetched.topic_id)
        return topic is not None and not may_read(topic.name)

    def holds_back(self, partition: Partition, terms: FetchTerms) -> bool:
        """Whether a follower gets nothing of a partition for now, because too much was sent.

        One that is in sync gets what there is: it would leave the ISR otherwise (REP-70).
        """
        quota = self._quota
        return (
            quota is not None
            and quota.is_used
            and terms.is_of_follower
            and terms.replica_id not in partition.isr
            and quota.is_throttled(*partition.topic_partition)
            and quota.is_exceeded(self._clock.monotonic_ms())
        )

    def sent(self, result: FetchResult) -> None:
        """This goes to a follower; what is throttled of it counts, in sync or not."""
        quota = self._quota
        if quota is None or not quota.is_used:
            return
        now_ms = self._clock.monotonic_ms()
        for _, partition, data in result.reads:
            if (
                partition is not None
                and data.records
                and quota.is_throttled(*partition.topic_partition)
            ):
                quota.record(len(data.records), now_ms)

    def _read(
        self,
        fetched: FetchedPartition,
        partition: Partition,
        terms: FetchTerms,
        budget: ReadBudget,
        *,
        is_first: bool,
    ) -> PartitionData:
        log = log_of(partition)
        data = PartitionData(partition_index=fetched.index, aborted_transactions=None, records=b"")
        fetched.place = None
        if fetched.last_fetched_epoch != UNKNOWN:
            divergence = partition.divergence(fetched.last_fetched_epoch, fetched.fetch_offset)
            if divergence is not None:
                epoch, end_offset = divergence
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                return _with_offsets(data, log)
        if self._selector is not None and terms.rack_id and partition.is_leader:
            preferred = self._preferred(self._selector, fetched, partition, terms.rack_id)
            if preferred != partition.broker_id:
                data.preferred_read_replica = preferred
                return _with_offsets(data, log)
        end_offset = log.log_end_offset
        if self.holds_back(partition, terms):
            info = log.read(fetched.fetch_offset, 0, terms.isolation, min_one_batch=False)
        else:
            info = budget.read(log, fetched.fetch_offset, fetched.max_bytes, terms.isolation)
        place = info.fetch_offset
        if place.offset != fetched.fetch_offset:
            # Nothing lies there, nor behind it.
            place = OffsetMetadata(fetched.fetch_offset)
        fetched.place = place
        if info.records is not None:
            data.records = info.records
        if info.aborted_transactions is not None:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in info.aborted_transactions
            ]
        if is_first and terms.is_of_follower:
            self._note_follower(fetched, partition, terms, place, end_offset)
        return _with_offsets(data, log)

    def _note_follower(
        self,
        fetched: FetchedPartition,
        partition: Partition,
        terms: FetchTerms,
        place: OffsetMetadata,
        end_offset: int,
    ) -> None:
        counts = partition.follower_fetched(
            terms.replica_id,
            place,
            log_start_offset=fetched.log_start_offset,
            leader_end_offset=end_offset,
            broker_epoch=terms.replica_epoch,
            now_ms=self._clock.monotonic_ms(),
        )
        if not counts:
            raise ReplicaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {terms.replica_id} of epoch {terms.replica_epoch} is out of date",
            )

    def _preferred(
        self,
        selector: ReplicaSelector,
        fetched: FetchedPartition,
        partition: Partition,
        rack_id: str,
    ) -> int:
        """Who should answer: this broker, or one that has the offset, and is alive."""
        brokers = self._cluster.image.brokers
        now_ms = self._clock.monotonic_ms()
        followers = []
        for broker_id in partition.isr:
            follower = partition.follower(broker_id)
            broker = brokers.get(broker_id)
            if (
                follower is not None
                and broker is not None
                and not broker.fenced
                and follower.log_start_offset <= fetched.fetch_offset <= follower.end.offset
            ):
                late_ms = now_ms - follower.last_caught_up_ms
                followers.append(ReplicaView(broker_id, broker.rack, follower.end.offset, late_ms))
        own = brokers.get(partition.broker_id)
        own_rack = None if own is None else own.rack
        leader = ReplicaView(partition.broker_id, own_rack, partition.log.log_end_offset, 0)
        return selector.select(rack_id, leader, followers).broker_id

    def _failed(
        self, fetched: FetchedPartition, code: ErrorCode, partition: Partition | None, now: float
    ) -> PartitionData:
        fetched.place = None
        if code not in _EXPECTED:
            if partition is None:
                self._metrics.mark_all(FAILED_FETCH_REQUESTS, now)
            else:
                self._metrics.mark(FAILED_FETCH_REQUESTS, partition.topic_partition[0], now)
        return PartitionData(
            partition_index=fetched.index,
            error_code=code,
            high_watermark=UNKNOWN,
            aborted_transactions=None,
            records=b"",
        )

    def news(self, result: FetchResult) -> list[FetchableTopicResponse]:
        """For an answer that says what has changed since the session's last."""
        told = []
        for fetched, _, data in result.reads:
            assert isinstance(fetched, SessionPartition)
            if self._is_news(fetched, data):
                told.append((fetched, data))
        return _grouped(told)

    def settle(self, result: FetchResult, terms: FetchTerms) -> None:
        """The session's fetcher is told: note that. Partitions that are done with come to rest."""
        for fetched, partition, data in result.reads:
            assert isinstance(fetched, SessionPartition)
            self._settle(fetched, partition, data, terms)

    @staticmethod
    def _is_news(fetched: SessionPartition, data: PartitionData) -> bool:
        return (
            data.error_code != ErrorCode.NONE
            or len(data.records or b"") > 0
            or data.high_watermark != fetched.sent_high_watermark
            or data.log_start_offset != fetched.sent_log_start
            or data.preferred_read_replica >= 0
            or data.diverging_epoch.epoch != UNKNOWN
        )

    def _settle(
        self,
        fetched: SessionPartition,
        partition: Partition | None,
        data: PartitionData,
        terms: FetchTerms,
    ) -> None:
        # After an error these are -1, so that the next answer tells them again.
        fetched.sent_high_watermark = data.high_watermark
        fetched.sent_log_start = data.log_start_offset
        place = fetched.place
        if len(data.records or b"") > 0:
            fetched.session.served(fetched)
        elif (
            partition is not None
            and place is not None
            and place.offset >= bound_offset(partition, terms.isolation)
            and (not terms.is_of_follower or terms.replica_id in partition.isr)
        ):
            fetched.rest(partition)


def bound_offset(partition: Partition, isolation: Isolation) -> int:
    """Up to where a reader may see."""
    if isolation is Isolation.LOG_END:
        return partition.log.log_end_offset
    if isolation is Isolation.HIGH_WATERMARK:
        return partition.log.high_watermark
    return partition.log.last_stable_offset


def _with_offsets(data: PartitionData, log: PartitionLog) -> PartitionData:
    data.high_watermark = log.high_watermark
    data.last_stable_offset = log.last_stable_offset
    data.log_start_offset = log.log_start_offset
    return data


def _grouped(
    reads: Iterable[tuple[FetchedPartition, PartitionData]],
) -> list[FetchableTopicResponse]:
    """By topics, in the order in which each comes first."""
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for fetched, data in reads:
        key = (fetched.topic, fetched.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchableTopicResponse(
                topic=fetched.topic, topic_id=fetched.topic_id
            )
        topic.partitions.append(data)
    return list(topics.values())
