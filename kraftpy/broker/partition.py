"""One hosted replica: leader or follower, who is in sync with it, and how far it is committed.

Synchronous and without I/O of its own: whatever happens to the replica (metadata, an append, a
fetch of a follower, an answer of the controller, time) is one call, after which its state is whole
again and `events` has been told what others may wait for.

Committing. A record is committed when every member of the ISR has it. The leader's high watermark
is the lowest log end among

- itself, as far as its log counts (flush_bound.py),
- the members of the maximal ISR (isr.py), and
- replicas that keep up and may join the ISR: otherwise a replica that wants to join a leader which
  is alone would chase an end that moves away for ever.

It only grows, and stands still while the ISR, by metadata or by an answer, is smaller than
min.insync.replicas: what is committed then would be on fewer replicas than the operator asked for,
and with eligible leader replicas the controller counts on that.

Epochs. The leader epoch begins with each election and tells apart who may speak for the partition;
the partition epoch counts every change of its metadata. Metadata may arrive behind the answer to a
proposal, so anything with a lower partition epoch than the one known is old news.
"""

from __future__ import annotations

import logging

from kraftpy.broker.flush_bound import FlushBound
from kraftpy.broker.follower_progress import FollowerProgress
from kraftpy.broker.isr import CommittedIsr, IsrAnswer, IsrProposal, IsrState, Verdict
from kraftpy.broker.replica_log import ReplicaLog
from kraftpy.broker.replica_ports import BrokerStates, PartitionEvents, ReplicaError
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.offsets import UNKNOWN, AppendInfo, OffsetMetadata
from kraftpy.log.producers import TRANSACTION_VERSION_UNKNOWN
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.metadata.records import NO_LEADER, PartitionRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.records.validation import AppendOrigin
from kraftpy.world import Buffer

__all__ = ["ALL_IN_SYNC", "BrokerStates", "Partition", "PartitionEvents", "ReplicaError"]

log = logging.getLogger(__name__)

# The acks of a producer that wants every in-sync replica to have its records.
ALL_IN_SYNC = -1


class Partition:
    """Made when the broker becomes a replica, with its log; lives until it is none any more."""

    __slots__ = (
        "_brokers",
        "_epoch_start_offset",
        "_events",
        "_flush",
        "_followers",
        "_isr_state",
        "broker_id",
        "lag_time_max_ms",
        "leader_id",
        "log",
        "min_insync_replicas",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        broker_id: int,
        replica_log: ReplicaLog,
        *,
        brokers: BrokerStates,
        events: PartitionEvents,
        lag_time_max_ms: int,
        min_insync_replicas: int = 1,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.log = replica_log
        self._brokers = brokers
        self._events = events
        # Settings, which may change at any time.
        self.lag_time_max_ms = lag_time_max_ms
        self.min_insync_replicas = min_insync_replicas
        self.leader_id = NO_LEADER
        self.replicas: tuple[int, ...] = ()
        self._isr_state = IsrState()
        self._followers: dict[int, FollowerProgress] = {}
        self._epoch_start_offset = UNKNOWN
        self._flush = FlushBound()

    def __repr__(self) -> str:
        name = "{}-{}".format(*self.topic_partition)
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"Partition({name}, {role}, epoch {self.leader_epoch}, isr {self.isr})"

    # What it is.

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.broker_id

    @property
    def leader_epoch(self) -> int:
        return self._isr_state.committed.leader_epoch

    @property
    def partition_epoch(self) -> int:
        return self._isr_state.committed.partition_epoch

    @property
    def isr(self) -> tuple[int, ...]:
        """As committed; empty on a follower, who does not decide by it."""
        return self._isr_state.committed.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR, and who may be in it as far as this leader can know."""
        return self._isr_state.maximal

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self._needed_size

    @property
    def _needed_size(self) -> int:
        return min(self.min_insync_replicas, len(self.replicas))

    @property
    def may_commit(self) -> bool:
        """It leads, and the ISR is large enough, as far as it can know."""
        return self.is_leader and self._isr_state.certain_size >= self._needed_size

    @property
    def is_under_replicated(self) -> bool:
        """For the metric: this leader misses somebody."""
        return self.is_leader and len(self._isr_state.committed.isr) < len(self.replicas)

    @property
    def low_watermark(self) -> int:
        """Everybody who is alive has deleted what lies below; this leader's log start if alone."""
        lowest = self.log.log_start_offset
        for follower in self._followers.values():
            if self._brokers.is_alive(follower.broker_id):
                lowest = min(lowest, follower.log_start_offset)
        return lowest

    def follower(self, broker_id: int) -> FollowerProgress | None:
        """For metrics and preferred read replicas; to look at only."""
        return self._followers.get(broker_id)

    # Roles.

    def lead(self, record: PartitionRecord, now_ms: int) -> bool:
        """The metadata says that this broker leads; whether it did not before.

        Nobody may be truncating the log any more.
        """
        if record.partition_epoch < self.partition_epoch:
            return False
        is_new_leader = not self.is_leader
        is_new_epoch = record.leader_epoch > self.leader_epoch
        if record.leader_epoch > self.leader_epoch + 1:
            # Under a leader in between, whose metadata was skipped, they may have lost records.
            self._followers = {}
        self._take(record, record.isr)
        others = [each for each in record.replicas if each != self.broker_id]
        self._followers = {
            each: self._followers.get(each) or FollowerProgress(each) for each in others
        }
        if is_new_epoch:
            self._begin_epoch(record, now_ms, is_new_leader=is_new_leader)
        has_moved = self._advance_high_watermark(now_ms)
        if is_new_leader:
            self._events.role_changed(self)
        if has_moved:
            self._events.high_watermark_moved(self)
        return is_new_leader

    def _begin_epoch(self, record: PartitionRecord, now_ms: int, *, is_new_leader: bool) -> None:
        end = self.log.log_end_offset
        self.log.begin_epoch(record.leader_epoch)
        self._epoch_start_offset = end
        for follower in self._followers.values():
            follower.begin_epoch(now_ms, end, is_in_sync=follower.broker_id in record.isr)
        flushed = self.log.recovery_point
        if is_new_leader and end - flushed >= self.log.config.flush_messages:
            # Replicated, but not flushed before its leader was gone.
            self._flush.require(OffsetMetadata(flushed), end)

    def follow(self, record: PartitionRecord) -> bool:
        """The metadata says that another broker leads, or nobody; whether that is news."""
        if record.partition_epoch < self.partition_epoch:
            return False
        is_news = self.leader_id != record.leader or record.leader_epoch > self.leader_epoch
        self._take(record, ())
        self._followers = {}
        self._flush.lift()
        self._epoch_start_offset = UNKNOWN
        if is_news:
            self._events.role_changed(self)
        return is_news

    def _take(self, record: PartitionRecord, isr: tuple[int, ...]) -> None:
        self.leader_id = record.leader
        self.replicas = record.replicas
        metadata = CommittedIsr(isr, record.leader_epoch, record.partition_epoch)
        self._isr_state.adopt(metadata, record.replicas)

    # The leader's log.

    def append(
        self,
        records: Buffer,
        *,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: VerificationGuard = NO_GUARD,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> AppendInfo:
        """Append at the leader's log end.

        If the result says that it must be flushed, it does not count for the high watermark before
        `flushed`. Raises ReplicaError, LogError or RecordDataError; all have an error code.
        """
        self.check_leader()
        if required_acks == ALL_IN_SYNC and self.is_under_min_isr:
            raise ReplicaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the in-sync replicas {list(self.isr)} are fewer than the "
                f"{self.min_insync_replicas} of min.insync.replicas",
            )
        end_before = self.log.log_end
        info = self.log.append_as_leader(
            records,
            self._isr_state.committed.leader_epoch,
            origin=origin,
            guard=guard,
            transaction_version=transaction_version,
        )
        if info.must_flush and not info.is_duplicate:
            self._flush.require(end_before, info.last_offset + 1)
        has_moved = self._advance_high_watermark(now_ms)
        if self.log.log_end_offset != end_before.offset:
            self._events.appended(self)
        if has_moved:
            self._events.high_watermark_moved(self)
        return info

    @property
    def awaits_flush(self) -> bool:
        """Something in this leader's log does not count before a flush, and `flushed`."""
        return self._flush.bound is not None

    def flushed(self, recovery_point: int, now_ms: int) -> None:
        """Everything below is durable, so that it may be told to others."""
        if self._flush.bound is not None:
            self._flush.flushed(recovery_point)
            self.commit_further(now_ms)

    def check_leader(self) -> None:
        if not self.is_leader:
            raise ReplicaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is asked to lead")

    def check_epoch(self, leader_epoch: int) -> ErrorCode:
        """Whether the asker's idea of the leadership, if it has one, is this one."""
        known = self._isr_state.committed.leader_epoch
        if leader_epoch == known or leader_epoch < 0:
            return ErrorCode.NONE
        if leader_epoch < known:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def divergence(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Where a log that ends at `fetch_offset`, in that epoch, stops being like this one.

        The epoch and its end here; None if everything that the asker has is here too. Raises
        ReplicaError if that is out of range: below the log start nothing can be compared.
        """
        epoch, end_offset = self.log.end_offset_for_epoch(last_fetched_epoch)
        if epoch == UNKNOWN or fetch_offset < self.log.log_start_offset:
            raise ReplicaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {fetch_offset} of epoch {last_fetched_epoch} is before this log",
            )
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    def raise_log_start(self, offset: int) -> int:
        """Delete what is below `offset` (DeleteRecords); the low watermark after that."""
        self.check_leader()
        if self.log.raise_log_start(offset):
            self._events.log_start_moved(self)
        return self.low_watermark

    # The leader's followers.

    def follower_fetched(
        self,
        broker_id: int,
        end: OffsetMetadata,
        *,
        log_start_offset: int,
        leader_end_offset: int,
        broker_epoch: int,
        now_ms: int,
    ) -> bool:
        """A follower asked for `end`, which is in range and where its log is like this one.

        False if that does not count: it is no replica of this partition, or the fetch is of a
        process that has been replaced since, and whose end may be beyond its successor's.
        `leader_end_offset` is where this log ended when the answer was read.
        """
        follower = self._followers.get(broker_id)
        if follower is None or self._is_past(broker_id, broker_epoch):
            return False
        old_log_start = follower.log_start_offset
        follower.fetched(
            end,
            log_start_offset=log_start_offset,
            leader_end_offset=leader_end_offset,
            broker_epoch=broker_epoch,
            now_ms=now_ms,
        )
        is_joining = (
            self._isr_state.pending is None
            and broker_id not in self.isr
            and self._propose_joining(follower)
        )
        has_moved = self._advance_high_watermark(now_ms)
        if is_joining:
            self._events.isr_wanted(self)
        if has_moved:
            self._events.high_watermark_moved(self)
        if log_start_offset != old_log_start:
            self._events.log_start_moved(self)
        return True

    def _is_past(self, broker_id: int, broker_epoch: int) -> bool:
        registered = self._brokers.eligible_epoch(broker_id)
        return registered is not None and UNKNOWN != broker_epoch < registered

    def _propose_joining(self, follower: FollowerProgress) -> bool:
        """Propose a follower that has everything committed, and has followed this leadership."""
        offset = follower.end.offset
        if (
            offset < self.log.high_watermark
            or offset < self._epoch_start_offset
            or not self._may_join(follower)
        ):
            return False
        self._propose((*self._isr_state.committed.isr, follower.broker_id))
        return True

    def _may_join(self, follower: FollowerProgress) -> bool:
        """Alive, not leaving, and the incarnation that fetched is the one that is registered."""
        registered = self._brokers.eligible_epoch(follower.broker_id)
        return registered is not None and follower.broker_epoch in (UNKNOWN, registered)

    def _advance_high_watermark(self, now_ms: int) -> bool:
        """As far as it may; whether it moved, which the caller tells when all is done."""
        if not self.may_commit:
            return False
        log_end = self.log.log_end
        lowest = self._flush.bound or log_end
        maximal_isr = self.maximal_isr
        for follower in self._followers.values():
            if follower.end.offset < lowest.offset and (
                follower.broker_id in maximal_isr
                or (
                    follower.is_caught_up(log_end.offset, now_ms, self.lag_time_max_ms)
                    and self._may_join(follower)
                )
            ):
                lowest = follower.end
        if lowest.offset < 0:
            # Somebody who counts has not fetched from this leader yet.
            return False
        old = self.log.increment_high_watermark(lowest)
        # The same offset at another place, after a roll, is news to nobody.
        return old is not None and old.offset != lowest.offset

    def commit_further(self, now_ms: int) -> None:
        """Something else than a fetch may have ended what held the high watermark back."""
        if self._advance_high_watermark(now_ms):
            self._events.high_watermark_moved(self)

    def shrink_isr(self, now_ms: int) -> None:
        """Ask for an ISR without those that have not kept up; to be called now and then."""
        self.commit_further(now_ms)  # Replicas outside of it are not waited for any longer either.
        if not self.is_leader or self._isr_state.pending is not None:
            return
        end = self.log.log_end_offset
        late = [
            each
            for each in self.isr
            if each in self._followers
            and not self._followers[each].is_caught_up(end, now_ms, self.lag_time_max_ms)
        ]
        if not late:
            return
        log.info(
            "in-sync replicas fall behind partition=%s-%d isr=%s late=%s high_watermark=%d end=%d",
            *self.topic_partition,
            list(self.isr),
            [(each, self._followers[each].end.offset) for each in late],
            self.log.high_watermark,
            end,
        )
        self._propose(tuple([each for each in self.isr if each not in late]))
        self._events.isr_wanted(self)

    # Proposals to the controller.

    @property
    def proposal(self) -> IsrProposal | None:
        """What the controller should be asked for now; the same until something decides it."""
        return self._isr_state.to_send

    def _propose(self, isr: tuple[int, ...]) -> None:
        self._isr_state.propose(isr, tuple(map(self._epoch_of, isr)))

    def _epoch_of(self, broker_id: int) -> int:
        """The incarnation that is meant: of a follower, the one whose fetches were counted."""
        follower = self._followers.get(broker_id)
        if follower is not None:
            return follower.broker_epoch
        epoch = self._brokers.eligible_epoch(broker_id)
        return UNKNOWN if epoch is None else epoch

    def proposal_answered(self, proposal: IsrProposal, answer: IsrAnswer, now_ms: int) -> None:
        """What the controller said; ignored if metadata has decided in the meantime."""
        match self._isr_state.answered(proposal, answer):
            case Verdict.COMMITTED | Verdict.NOT_DONE:
                self.commit_further(now_ms)
            case Verdict.RETRY:
                self._events.isr_wanted(self)

    # The follower.

    def append_replicated(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        fetch_offset: int,
        leader_high_watermark: int,
        leader_log_start: int,
    ) -> AppendInfo:
        """Take over what the leader of `leader_epoch` answered to a fetch at `fetch_offset`.

        If the result says that it must be flushed, the next fetch waits for that: it tells the
        leader that the records are safe here. Raises ReplicaError, LogError or RecordDataError.
        """
        self._check_following(leader_epoch)
        if fetch_offset != self.log.log_end_offset:
            raise ReplicaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"records from {fetch_offset} on for a log that ends at {self.log.log_end_offset}",
            )
        info = self.log.append_as_follower(records, leader_epoch)
        self.follow_watermarks(leader_epoch, leader_high_watermark, leader_log_start)
        return info

    def follow_watermarks(
        self, leader_epoch: int, leader_high_watermark: int, leader_log_start: int
    ) -> None:
        """Note how far the leader says that the log is committed, and deleted.

        The log start follows as far as this replica's high watermark has come; the rest comes with
        a later fetch.
        """
        self._check_following(leader_epoch)
        before = self.log.high_watermark
        high_watermark = self.log.update_high_watermark(max(leader_high_watermark, 0))
        self.log.raise_log_start(min(leader_log_start, high_watermark))
        if high_watermark != before:
            self._events.high_watermark_moved(self)  # Consumers may read from followers.

    def _check_following(self, leader_epoch: int) -> None:
        """An answer of another leadership's time must not get into the log of this one."""
        if self.is_leader or leader_epoch != self.leader_epoch:
            raise ReplicaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"an answer of epoch {leader_epoch} to {self}",
            )
