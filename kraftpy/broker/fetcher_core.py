"""A fetcher: copies partitions from the broker that leads them. One request at a time, no I/O.

The shell asks for the `next_step`, carries it out, reports, and asks again. Records are appended
here, because that is synchronous; what takes time with a log (truncation, flushing) is a step.

A partition is in one of these phases:

- fetching: it is asked for from the end of its log on, which is all that a fetch has to say;
- changing: its log is truncated or flushed;
- finding the leader's end, then its start: the leader had said that the fetch is out of its range.

In any of them it may be delayed after an error, which touches no other partition. It fails, until
metadata adds it again, when only new metadata can help.

How logs become alike. A fetch tells the epoch of the last record that the follower has. If the
leader has no such epoch, or less of it, its answer tells the latest epoch that it knows of those,
and where that ends. The follower cuts its log there, or where its own records of that epoch end,
and asks again, until both logs end alike (KIP-595). OffsetsForLeaderEpoch, an older way to learn
the same, is not used: every peer knows this one. A log whose epochs are not known is cut to its
high watermark, below which all replicas are alike. A last batch that may not be in its place, since
a disk was damaged, is fetched again (recovery.py): no CRC covers its offset.

Answers are about the past: partitions may have been removed, added again or changed since the
request. The session (fetch_session_client.py) knows which of them are still current.

Cost. Partitions without news are not touched at all: a request tells changes, an answer has news,
delayed partitions wait in a heap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Final

from kraftpy.broker.fetch_session_client import FetchKey, FetchSessionClient
from kraftpy.broker.fetch_state import (
    FetchState,
    Phase,
    error_name,
    first_batch_size,
    offsets_request,
    truncation_offset,
)
from kraftpy.broker.fetcher_steps import (
    ChangeLogs,
    Fetch,
    FetcherSettings,
    FindOffsets,
    Flush,
    Idle,
    LogChange,
    ReplicationTraffic,
    Restart,
    Step,
    Truncate,
)
from kraftpy.broker.partition import Partition
from kraftpy.broker.replica_ports import ReplicaError
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.epochs import UNDEFINED_EPOCH
from kraftpy.log.errors import LogError, OffsetsOutOfOrderError, UnexpectedAppendOffsetError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from kraftpy.protocol.schema.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
)
from kraftpy.records.errors import RecordDataError
from kraftpy.world import FileSlice, InternalInvariant

__all__ = ["FetcherCore", "Phase"]

_log = logging.getLogger(__name__)

_LATEST: Final = -1
_EARLIEST: Final = -2


class FetcherCore:
    """All partitions that one broker leads, or those of them that fall to this fetcher."""

    def __init__(
        self,
        settings: FetcherSettings,
        traffic: ReplicationTraffic,
        broker_epoch: Callable[[], int],
    ) -> None:
        """`broker_epoch` tells this broker's epoch, which the leader must know to count on it."""
        self.settings = settings
        self._traffic = traffic
        self._broker_epoch = broker_epoch
        self._session = FetchSessionClient()
        self._states: dict[TopicPartition, FetchState] = {}
        self._by_key: dict[FetchKey, FetchState] = {}
        # Why those that failed did.
        self.failed: dict[TopicPartition, str] = {}
        self._changes: dict[TopicPartition, LogChange] = {}
        self._finding: dict[Phase, dict[TopicPartition, FetchState]] = {
            Phase.FINDING_END: {},
            Phase.FINDING_START: {},
        }
        # Behind their leaders, or not known not to be; some are held back by the quota.
        self._lagging: dict[TopicPartition, FetchState] = {}
        self._held_back: dict[TopicPartition, FetchState] = {}
        # Time, a number that makes it unique, and whose delay ends then.
        self._delays: list[tuple[int, int, FetchState]] = []
        self._delay_count = 0
        # The request under way, and how the whole fetcher fares.
        self._in_flight: Fetch | FindOffsets | None = None
        self._failures = 0
        self._paused_until_ms = 0

    # What is fetched.

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._states

    def phase_of(self, topic_partition: TopicPartition) -> Phase:
        return self._states[topic_partition].phase

    def lag_of(self, topic_partition: TopicPartition) -> int | None:
        """Records behind the leader's high watermark; None if not known (yet)."""
        state = self._states.get(topic_partition)
        return None if state is None else state.lag

    def max_lag(self) -> int:
        """For the metric; only those that lag are looked at."""
        return max((state.lag or 0 for state in self._lagging.values()), default=0)

    def add(self, partition: Partition) -> None:
        """Follow it, in its leader epoch of this moment; in place of what was known of it."""
        topic_partition = partition.topic_partition
        self.remove((topic_partition,))
        state = FetchState(partition)
        self._states[topic_partition] = self._by_key[state.key] = state
        self._lagging[topic_partition] = state
        self._begin(state)

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Forget them. A change of a log that is under way goes on; its end is for the shell."""
        for topic_partition in topic_partitions:
            self.failed.pop(topic_partition, None)
            state = self._states.pop(topic_partition, None)
            if state is None:
                continue
            del self._by_key[state.key]
            self._session.drop(state.key)
            self._lagging.pop(topic_partition, None)
            self._held_back.pop(topic_partition, None)
            self._changes.pop(topic_partition, None)
            for finding in self._finding.values():
                finding.pop(topic_partition, None)

    def _begin(self, state: FetchState) -> None:
        """With a log that can be compared with the leader's, and is as safe as a fetch says."""
        log = state.partition.log
        if log.unproven_from is not None:
            self._want(state, Truncate(state.partition, log.unproven_from))
        elif log.epochs.latest_epoch is None and log.log_end_offset > log.high_watermark:
            self._want(state, Truncate(state.partition, log.high_watermark))
        elif log.log_end_offset - log.recovery_point >= log.config.flush_messages:
            # What it got from another leader, or as a leader, and nobody has flushed since.
            self._want(state, Flush(state.partition))
        else:
            self._fetch_on(state)

    def _fetch_on(self, state: FetchState) -> None:
        """From the end of its log."""
        state.phase = Phase.FETCHING
        if state.delayed_until_ms is not None or (
            state.partition.topic_partition in self._held_back
        ):
            return
        log = state.partition.log
        epoch = log.epochs.latest_epoch
        wanted = FetchPartition(
            partition=state.key[1],
            current_leader_epoch=state.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=UNDEFINED_EPOCH if epoch is None else epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self.settings.partition_max_bytes,
        )
        self._session.put(state.key, wanted)

    # Steps.

    def next_step(self, now_ms: int) -> Step:
        """What the shell should do now. Truncation comes before fetching."""
        if self._in_flight is not None:
            raise InternalInvariant("a fetcher has one request under way at a time")
        self._end_delays(now_ms)
        if self._changes:
            changes = ChangeLogs(tuple(self._changes.values()))
            self._changes.clear()
            return changes
        if now_ms < self._paused_until_ms:
            return Idle(self._paused_until_ms)
        for phase, timestamp in ((Phase.FINDING_END, _LATEST), (Phase.FINDING_START, _EARLIEST)):
            if self._finding[phase]:
                asked = self._finding[phase].values()
                request = offsets_request(self.settings.broker_id, asked, timestamp)
                self._in_flight = FindOffsets(request)
                return self._in_flight
        self._apply_quota()
        fetch = self._fetch_request(now_ms)
        if fetch is not None:
            self._in_flight = Fetch(fetch)
            return self._in_flight
        until_ms = self._delays[0][0] if self._delays else None
        if self._held_back and until_ms is None:
            until_ms = now_ms + self.settings.backoff_ms
        return Idle(until_ms)

    def _fetch_request(self, now_ms: int) -> FetchRequest | None:
        told = self._session.next_request()
        if told is None:
            return None
        settings = self.settings
        max_wait_ms = settings.max_wait_ms
        if self._delays:
            # Whose delay ends meanwhile shall not wait until somebody else has news.
            max_wait_ms = min(max_wait_ms, self._delays[0][0] - now_ms)
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=settings.broker_id, replica_epoch=self._broker_epoch()
            ),
            max_wait_ms=max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=told.session_id,
            session_epoch=told.session_epoch,
            topics=told.topics,
            forgotten_topics_data=told.forgotten,
        )

    def _apply_quota(self) -> None:
        """While the quota is exceeded, those that it is for and that lag are not asked for."""
        traffic = self._traffic
        is_exceeded = traffic.is_exceeded()
        for topic_partition in tuple(self._held_back):
            if not (is_exceeded and traffic.is_throttled(topic_partition)):
                state = self._held_back.pop(topic_partition)
                if state.phase is Phase.FETCHING:
                    self._fetch_on(state)
        if is_exceeded:
            for topic_partition, state in self._lagging.items():
                if traffic.is_throttled(topic_partition):
                    self._held_back[topic_partition] = state
                    self._session.drop(state.key)

    def failed_request(self, now_ms: int, reason: object) -> None:
        """The request has no answer: after a pause, everything is told anew."""
        _log.info("a fetcher's request failed: %s", reason)
        self.abandoned()
        self._pause(now_ms)

    def abandoned(self) -> None:
        """Nobody waits for the answer any more: everything is told anew."""
        self._in_flight = None
        self._session.lost()

    def _pause(self, now_ms: int) -> None:
        self._failures += 1
        self._paused_until_ms = now_ms + self.settings.pause_ms(self._failures)

    # Answers to fetches.

    def answered(self, response: FetchResponse, now_ms: int) -> None:
        for _ in self.answered_in_pieces(response, now_ms):
            pass

    def answered_in_pieces(self, response: FetchResponse, now_ms: int) -> Iterator[int]:
        """As `answered`, a partition at a time, with the bytes that each has brought.

        Others may run in between: what is no longer current when its turn comes is left out.
        """
        was_incremental = self._session.is_incremental
        self._in_flight = None
        if not self._session.answered(response):
            _log.info("a fetch session ends: %s", error_name(response.error_code))
            if not was_incremental:
                # A new session is no remedy, at least not at once.
                self._pause(now_ms)
            return
        self._failures = 0
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                asked = self._session.current(key)
                if asked is not None:
                    self._take(self._by_key[key], asked, data, now_ms)
                    yield 0 if data.records is None else len(data.records)

    def _take(
        self, state: FetchState, asked: FetchPartition, data: PartitionData, now_ms: int
    ) -> None:
        match data.error_code:
            case ErrorCode.NONE:
                self._try_data(state, asked.fetch_offset, data, now_ms)
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                self._session.drop(state.key)
                self._find(state, Phase.FINDING_END)
            case ErrorCode.FENCED_LEADER_EPOCH:
                self._fail(state, f"its leader epoch {state.leader_epoch} is over", logging.INFO)
            case error_code:
                self._delay(state, now_ms, error_name(error_code))

    def _try_data(
        self, state: FetchState, fetch_offset: int, data: PartitionData, now_ms: int
    ) -> None:
        log = state.partition.log
        try:
            self._take_data(state, fetch_offset, data)
        except UnexpectedAppendOffsetError as error:
            end = log.log_end_offset
            if max(log.log_start_offset, data.log_start_offset) >= end <= error.last_offset:
                # The leader's log begins within a batch (DeleteRecords), and has nothing that is in
                # this one, which shall begin with that batch.
                assert isinstance(data.records, (bytes, bytearray, memoryview))
                data.records = bytes(data.records)
                state.kept = data
                self._want(state, Restart(state.partition, error.first_offset))
            else:
                self._fail(state, str(error))
        except OffsetsOutOfOrderError as error:
            self._fail(state, str(error))
        except (ReplicaError, LogError, RecordDataError) as error:
            self._delay(state, now_ms, error)

    def _take_data(self, state: FetchState, fetch_offset: int, data: PartitionData) -> None:
        diverging = data.diverging_epoch
        partition = state.partition
        if diverging.epoch >= 0:
            if diverging.end_offset < 0:
                raise ReplicaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a divergence at {diverging}")
            offset = truncation_offset(partition.log, diverging.epoch, diverging.end_offset)
            self._want(state, Truncate(partition, offset))
            return
        log_start_before = partition.log.log_start_offset
        records = data.records
        must_flush = False
        if records:
            if isinstance(records, FileSlice):
                raise InternalInvariant("records come as bytes")
            if len(records) > self.settings.partition_max_bytes:
                # A leader sends a batch larger than the limit rather than none at all.
                size = first_batch_size(memoryview(records))
                if size > self.settings.partition_max_bytes:
                    _log.warning("%d bytes are more than it should be for %s", size, partition)
            info = partition.append_replicated(
                records,
                leader_epoch=state.leader_epoch,
                fetch_offset=fetch_offset,
                leader_high_watermark=data.high_watermark,
                leader_log_start=data.log_start_offset,
            )
            must_flush = info.must_flush and info.valid_bytes > 0
            self._traffic.replicated(partition, info.valid_bytes)
        else:
            partition.follow_watermarks(
                state.leader_epoch, data.high_watermark, data.log_start_offset
            )
        state.failures = 0
        self._set_lag(state, max(0, data.high_watermark - partition.log.log_end_offset))
        if must_flush:
            self._want(state, Flush(partition))
        elif records or partition.log.log_start_offset != log_start_before:
            self._fetch_on(state)

    def _set_lag(self, state: FetchState, lag: int) -> None:
        state.lag = lag
        if lag > 0:
            self._lagging[state.partition.topic_partition] = state
        else:
            self._lagging.pop(state.partition.topic_partition, None)

    # Changes of logs.

    def _want(self, state: FetchState, change: LogChange) -> None:
        state.phase = Phase.CHANGING
        state.change = self._changes[state.partition.topic_partition] = change
        self._session.drop(state.key)

    def changed(self, change: LogChange, now_ms: int, error: Exception | None = None) -> None:
        """The shell has made a change, or failed to."""
        state = self._states.get(change.partition.topic_partition)
        if state is None or state.change is not change:
            return
        state.change = None
        if isinstance(change, Flush):
            if error is None:
                self._fetch_on(state)
            else:
                # What it has is not safe, and the next fetch would say that it is.
                self._fail(state, str(error))
        elif error is None:
            kept, state.kept = state.kept, None
            self._begin(state)
            if kept is not None:
                self._try_data(state, state.partition.log.log_end_offset, kept, now_ms)
        else:
            state.phase = Phase.FETCHING
            self._delay(state, now_ms, error)

    # Offsets of the leader.

    def _find(self, state: FetchState, phase: Phase) -> None:
        state.phase = phase
        self._finding[phase][state.partition.topic_partition] = state

    def offsets_answered(self, response: ListOffsetsResponse, now_ms: int) -> None:
        """The leader's end, or its start, of those that asked for it."""
        asked, self._in_flight = self._in_flight, None
        if not isinstance(asked, FindOffsets):
            raise InternalInvariant("nobody has asked for offsets")
        self._failures = 0
        epochs = {
            (topic.name, each.partition_index): each
            for topic in asked.request.topics
            for each in topic.partitions
        }
        for topic in response.topics:
            for found in topic.partitions:
                topic_partition = (topic.name, found.partition_index)
                state = self._states.get(topic_partition)
                question = epochs.get(topic_partition)
                if (
                    state is not None
                    and question is not None
                    and question.current_leader_epoch == state.leader_epoch
                    and state.phase is _PHASE_OF[question.timestamp]
                ):
                    self._found(state, found, now_ms)

    def _found(self, state: FetchState, found: ListOffsetsPartitionResponse, now_ms: int) -> None:
        phase, partition = state.phase, state.partition
        del self._finding[phase][partition.topic_partition]
        end = partition.log.log_end_offset
        if found.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._fail(state, f"its leader epoch {state.leader_epoch} is over", logging.INFO)
        elif found.error_code != ErrorCode.NONE:
            self._delay(state, now_ms, error_name(found.error_code))
        elif found.offset < 0:
            self._delay(state, now_ms, f"its leader says that it has offset {found.offset}")
        elif phase is Phase.FINDING_END and found.offset >= end:
            self._find(state, Phase.FINDING_START)
        elif phase is Phase.FINDING_END:
            _log.warning("%s ends at %d, its leader at %d", partition, end, found.offset)
            self._want(state, Truncate(partition, found.offset))
        elif found.offset > end:
            _log.info("%s ends at %d, its leader begins at %d", partition, end, found.offset)
            self._want(state, Restart(partition, found.offset))
        else:
            # In range after all: the leader's log has changed since. Not at once again.
            state.phase = Phase.FETCHING
            self._delay(state, now_ms, "its range has changed")

    # Trouble.

    def _delay(self, state: FetchState, now_ms: int, reason: object) -> None:
        """Leave this partition alone for a while."""
        state.failures += 1
        until_ms = now_ms + self.settings.pause_ms(state.failures)
        state.delayed_until_ms = until_ms
        self._delay_count += 1
        heappush(self._delays, (until_ms, self._delay_count, state))
        self._session.drop(state.key)
        _log.info("%s is not fetched for a while: %s", state.partition, reason)

    def _end_delays(self, now_ms: int) -> None:
        while self._delays and self._delays[0][0] <= now_ms:
            until_ms, _, state = heappop(self._delays)
            topic_partition = state.partition.topic_partition
            if state.delayed_until_ms != until_ms or (
                self._states.get(topic_partition) is not state
            ):
                continue
            state.delayed_until_ms = None
            if state.phase in self._finding:
                self._find(state, state.phase)
            else:
                self._begin(state)

    def _fail(self, state: FetchState, reason: str, level: int = logging.WARNING) -> None:
        """Only metadata can help: it adds the partition again, and is often on its way."""
        topic_partition = state.partition.topic_partition
        _log.log(level, "%s is not fetched any more: %s", state.partition, reason)
        self.remove((topic_partition,))
        self.failed[topic_partition] = reason


_PHASE_OF: Final = {_LATEST: Phase.FINDING_END, _EARLIEST: Phase.FINDING_START}
