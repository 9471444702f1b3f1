"""One hosted replica: leader or follower, who is in sync with it, and how far it is committed.

Synchronous and without I/O of its own: whatever happens to the replica (metadata, an append, a
fetch of a follower, an answer of the controller, time) is one call, after which its state is whole
again and `events` has been told what others may wait for.

Committing. A record is committed when every member of the ISR has it. The leader's high watermark
is the lowest log end among

- itself, as far as its log is safe to count (see `flushed`),
- the members of the maximal ISR (isr.py), and
- replicas that keep up and may join the ISR: otherwise a replica that wants to join a leader which
  is alone would chase an end that moves away for ever.

It only grows, and stands still while the ISR is smaller than min.insync.replicas: what is committed
then would be on fewer replicas than the operator asked for, and with eligible leader replicas the
controller counts on that.

Epochs. The leader epoch begins with each election and tells apart who may speak for the partition;
the partition epoch counts every change of its metadata. Metadata may arrive behind the answer to a
proposal, so anything with a lower partition epoch than the one known is old news.
"""

from __future__ import annotations

import logging
from typing import Protocol

from kraftpy.broker.follower_progress import FollowerProgress
from kraftpy.broker.isr import CommittedIsr, IsrAnswer, IsrProposal, Verdict, verdict
from kraftpy.broker.replica_log import ReplicaLog
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


class ReplicaError(Exception):
    """This replica can't do what was asked; `error_code` is what the asker is told."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message


class PartitionEvents(Protocol):
    """Told what has happened, after it has, by the partition that it happened to."""

    def appended(self, partition: Partition) -> None:
        """The leader's log has grown."""
        ...

    def high_watermark_moved(self, partition: Partition) -> None: ...

    def log_start_moved(self, partition: Partition) -> None:
        """Somebody's log start is higher, so perhaps the lowest of all replicas is."""
        ...

    def isr_wanted(self, partition: Partition) -> None:
        """There is a proposal to be sent to the controller."""
        ...

    def role_changed(self, partition: Partition) -> None:
        """It leads, follows, or is led by somebody else than before."""
        ...


class BrokerStates(Protocol):
    """What the metadata says about other brokers."""

    def is_alive(self, broker_id: int) -> bool:
        """Registered and not fenced."""
        ...

    def eligible_epoch(self, broker_id: int) -> int | None:
        """The broker's epoch if it may be in an ISR: alive and not shutting down."""
        ...


class Partition:
    """Made when the broker becomes a replica, with its log; lives until it is none any more."""

    __slots__ = (
        "_brokers",
        "_committed",
        "_epoch_start_offset",
        "_events",
        "_followers",
        "_is_proposal_held",
        "_own_end",
        "_proposal",
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
        # Epochs of -1: no metadata has been applied yet.
        self._committed = CommittedIsr((), UNKNOWN, UNKNOWN)
        self._proposal: IsrProposal | None = None
        # The proposal's answer left open what became of it: it waits for metadata.
        self._is_proposal_held = False
        self._followers: dict[int, FollowerProgress] = {}
        self._epoch_start_offset = UNKNOWN
        # How far this leader's own log counts for the high watermark; None for all of it.
        self._own_end: OffsetMetadata | None = None

    def __repr__(self) -> str:
        topic, partition_id = self.topic_partition
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return (
            f"Partition({topic}-{partition_id}, {role}, epoch {self.leader_epoch}, isr {self.isr})"
        )

    # What it is.

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.broker_id

    @property
    def leader_epoch(self) -> int:
        return self._committed.leader_epoch

    @property
    def partition_epoch(self) -> int:
        return self._committed.partition_epoch

    @property
    def isr(self) -> tuple[int, ...]:
        """As committed; on a follower, as its metadata says."""
        return self._committed.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """All who may be in the ISR, as far as this leader can know."""
        return self._committed.isr if self._proposal is None else self._proposal.maximal_isr

    @property
    def is_under_min_isr(self) -> bool:
        return len(self._committed.isr) < min(self.min_insync_replicas, len(self.replicas))

    @property
    def is_under_replicated(self) -> bool:
        """For the metric: this leader misses somebody."""
        return self.is_leader and len(self._committed.isr) < len(self.replicas)

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
        """The metadata says that this broker leads; whether it did not before."""
        if record.partition_epoch < self.partition_epoch:
            return False
        is_new_leader = not self.is_leader
        is_new_epoch = record.leader_epoch > self.leader_epoch
        self._take(record)
        if is_new_epoch:
            end = self.log.log_end_offset
            self.log.begin_epoch(record.leader_epoch)
            self._epoch_start_offset = end
            for follower in self._followers.values():
                is_in_sync = follower.broker_id in record.isr
                if is_new_leader:
                    follower.begin_leadership(now_ms, is_in_sync=is_in_sync)
                else:
                    follower.begin_epoch(now_ms, end, is_in_sync=is_in_sync)
        if is_new_leader:
            self._own_end = None
            self._events.role_changed(self)
        self._advance_high_watermark(now_ms)
        return is_new_leader

    def follow(self, record: PartitionRecord) -> bool:
        """The metadata says that another broker leads, or nobody; whether that is news."""
        if record.partition_epoch < self.partition_epoch:
            return False
        is_news = self.leader_id != record.leader or record.leader_epoch > self.leader_epoch
        self._take(record)
        self._followers.clear()
        self._own_end = None
        self._epoch_start_offset = UNKNOWN
        if is_news:
            self._events.role_changed(self)
        return is_news

    def _take(self, record: PartitionRecord) -> None:
        """Whatever was proposed, this is how things are."""
        self.leader_id = record.leader
        self.replicas = record.replicas
        self._commit(CommittedIsr(record.isr, record.leader_epoch, record.partition_epoch))
        others = [each for each in record.replicas if each != self.broker_id]
        self._followers = {
            each: self._followers.get(each) or FollowerProgress(each) for each in others
        }

    def _commit(self, committed: CommittedIsr) -> None:
        self._committed = committed
        self._proposal = None
        self._is_proposal_held = False

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
            self._committed.leader_epoch,
            origin=origin,
            guard=guard,
            transaction_version=transaction_version,
        )
        if info.must_flush and not info.is_duplicate and self._own_end is None:
            self._own_end = end_before
        self._events.appended(self)
        self._advance_high_watermark(now_ms)
        return info

    def flushed(self, recovery_point: int, now_ms: int) -> None:
        """Everything below is durable, so that it may be told to others.

        With flush.messages=1 nothing is committed that this leader has not on its disk.
        """
        if self._own_end is None:
            return
        if recovery_point >= self.log.log_end_offset:
            self._own_end = None
        elif recovery_point > self._own_end.offset:
            self._own_end = OffsetMetadata(recovery_point)
        self._advance_high_watermark(now_ms)

    def check_leader(self) -> None:
        if not self.is_leader:
            raise ReplicaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the leader is {self.leader_id}, in epoch {self.leader_epoch}",
            )

    def check_epoch(self, leader_epoch: int) -> ErrorCode:
        """Whether the asker's idea of the leadership, if it has one, is this one."""
        known = self._committed.leader_epoch
        if leader_epoch in (known, UNKNOWN):
            return ErrorCode.NONE
        if leader_epoch < known:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def divergence(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Where a log that ends at `fetch_offset`, in that epoch, stops being like this one.

        The epoch and its end here; None if everything that the asker has is here too.
        """
        epoch, end_offset = self.log.end_offset_for_epoch(last_fetched_epoch)
        if epoch == UNKNOWN:
            raise ReplicaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"epoch {last_fetched_epoch} is not known here, nor any before it",
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
        """A follower asked for `end`; False if it is no replica of this partition.

        `leader_end_offset` is where this log ended when the answer was read.
        """
        follower = self._followers.get(broker_id)
        if follower is None:
            return False
        old_log_start = follower.log_start_offset
        follower.fetched(
            end,
            log_start_offset=log_start_offset,
            leader_end_offset=leader_end_offset,
            broker_epoch=broker_epoch,
            now_ms=now_ms,
        )
        if self._proposal is None and broker_id not in self._committed.isr:
            self._propose_joining(follower)
        self._advance_high_watermark(now_ms)
        if log_start_offset != old_log_start:
            self._events.log_start_moved(self)
        return True

    def _propose_joining(self, follower: FollowerProgress) -> None:
        """Ask for a follower that has everything committed, and has followed this leadership."""
        offset = follower.end.offset
        if (
            offset >= self.log.high_watermark
            and offset >= self._epoch_start_offset
            and self._may_join(follower)
        ):
            self._propose((*self._committed.isr, follower.broker_id))

    def _may_join(self, follower: FollowerProgress) -> bool:
        """Alive, not leaving, and the incarnation that fetched is the one that is registered."""
        registered = self._brokers.eligible_epoch(follower.broker_id)
        return registered is not None and follower.broker_epoch in (UNKNOWN, registered)

    def _advance_high_watermark(self, now_ms: int) -> None:
        if not self.is_leader or self.is_under_min_isr:
            return
        log_end = self.log.log_end
        lowest = log_end if self._own_end is None else self._own_end
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
            return
        if self.log.increment_high_watermark(lowest) is not None:
            self._events.high_watermark_moved(self)

    def shrink_isr(self, now_ms: int) -> None:
        """Ask for an ISR without those that have not kept up; to be called now and then."""
        if not self.is_leader or self._proposal is not None:
            return
        end = self.log.log_end_offset
        late = [
            each
            for each in self._committed.isr
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
        self._propose(tuple([each for each in self._committed.isr if each not in late]))

    # Proposals to the controller.

    @property
    def proposal(self) -> IsrProposal | None:
        """What the controller should be asked for now; the same until something decides it."""
        return None if self._is_proposal_held else self._proposal

    def _propose(self, isr: tuple[int, ...]) -> None:
        self._proposal = IsrProposal(self._committed, isr, tuple(map(self._epoch_of, isr)))
        self._events.isr_wanted(self)

    def _epoch_of(self, broker_id: int) -> int:
        """The incarnation that is meant: of a follower, the one whose fetches were counted."""
        follower = self._followers.get(broker_id)
        if follower is not None:
            return follower.broker_epoch
        epoch = self._brokers.eligible_epoch(broker_id)
        return UNKNOWN if epoch is None else epoch

    def proposal_answered(self, proposal: IsrProposal, answer: IsrAnswer, now_ms: int) -> None:
        """What the controller said; ignored if metadata has decided in the meantime."""
        if proposal is not self._proposal:
            return
        match verdict(answer.error):
            case Verdict.COMMITTED:
                self._proposal_committed(answer, now_ms)
            case Verdict.NOT_DONE:
                self._commit(self._committed)
                self._advance_high_watermark(now_ms)
            case Verdict.IN_DOUBT:
                self._is_proposal_held = True
            case Verdict.RETRY:
                self._events.isr_wanted(self)

    def _proposal_committed(self, answer: IsrAnswer, now_ms: int) -> None:
        if (
            answer.leader_epoch != self.leader_epoch
            or answer.partition_epoch < self.partition_epoch
        ):
            # Of another time; metadata is on its way.
            self._is_proposal_held = True
            return
        self._commit(CommittedIsr(answer.isr, answer.leader_epoch, answer.partition_epoch))
        self._advance_high_watermark(now_ms)

    # The follower.

    def append_replicated(
        self, records: Buffer, *, leader_high_watermark: int, leader_log_start: int
    ) -> AppendInfo:
        """Take over what the leader answered, and how far it says that is committed.

        The log start follows as far as this replica's high watermark has come; the rest comes with
        a later fetch.
        """
        info = self.log.append_as_follower(records, self._committed.leader_epoch)
        self.follow_watermarks(leader_high_watermark, leader_log_start)
        return info

    def follow_watermarks(self, leader_high_watermark: int, leader_log_start: int) -> None:
        """The leader answered without records, or with these watermarks."""
        before = self.log.high_watermark
        high_watermark = self.log.update_high_watermark(max(leader_high_watermark, 0))
        self.log.raise_log_start(min(leader_log_start, high_watermark))
        if high_watermark != before:
            # Consumers may read from this follower.
            self._events.high_watermark_moved(self)
