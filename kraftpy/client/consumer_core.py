"""A consumer of assigned partitions, without I/O: positions in, Fetch calls out, records out.

Each node that leads some of the partitions has a fetch session and at most one fetch under way;
what comes is buffered until the user takes it, in the order of arrival. Fetching goes on while the
buffer is smaller than `fetch_max_bytes`, so that the next answer is on its way while the user
works.

A cut log (an unclean election, a follower ahead of its new leader) is noticed in two ways: every
fetch names the epoch of the last record read, and the leader answers with the place where its log
parts from that (KIP-595); and when the leader changes, OffsetForLeaderEpoch asks first (KIP-320).
If records that the user has seen are gone, `auto_offset_reset` decides: "none" raises LogTruncated,
the others go on where the logs part.

Failures that the user must know of are raised by `take`, one at a time, in the order in which they
came up; the partition then waits for a seek, or goes on trying if that can help.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from kraftpy.client.calls import Call, TopicPartition, earliest
from kraftpy.client.cluster import Broker, Cluster, TopicInfo
from kraftpy.client.errors import (
    ConnectionLost,
    KafkaError,
    LogTruncated,
    OffsetOutOfRange,
    UnsupportedVersion,
    error_code,
)
from kraftpy.client.fetch_session import Wish
from kraftpy.client.fetched import Fetched
from kraftpy.client.fetcher import NodeFetcher
from kraftpy.client.leader_questions import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochEnds,
    LeaderQuestions,
    OffsetAnswer,
    OffsetLookup,
    OffsetsByTime,
    Question,
)
from kraftpy.client.positions import PartitionProgress, PartitionState
from kraftpy.client.settings import ConsumerSettings, IsolationLevel
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k01_fetch import FetchResponse, PartitionData
from kraftpy.records.errors import RecordDataError
from kraftpy.records.reader import Record
from kraftpy.records.walker import AnyBatch
from kraftpy.world import FileSlice, assert_always

if TYPE_CHECKING:
    from kraftpy.world import Address, Random

__all__ = ["ConsumerCore", "PartitionBatches", "PartitionRecords"]

T = TypeVar("T")
# The states of partitions, and their generations, when a fetch was sent.
_Asked: TypeAlias = dict[TopicPartition, tuple[PartitionState, int]]

_RESETS = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP, "none": None}


class PartitionRecords(NamedTuple):
    """Some records of one partition, in order."""

    topic: str
    partition: int
    records: list[Record]


class PartitionBatches(NamedTuple):
    """Some batches of one partition, in order."""

    topic: str
    partition: int
    batches: list[AnyBatch]


class ConsumerCore:
    __slots__ = (
        "_buffer",
        "_epochs",
        "_failures",
        "_fetchers",
        "_looked_ms",
        "_offsets",
        "_policy",
        "_random",
        "_settings",
        "_states",
        "buffered_bytes",
        "cluster",
    )

    def __init__(
        self, bootstrap: Sequence[Address], settings: ConsumerSettings, random: Random
    ) -> None:
        client = settings.client
        self._settings = settings
        self._random = random
        self._looked_ms = 0
        self._policy = _RESETS[settings.auto_offset_reset]
        self.cluster = Cluster(
            bootstrap, client, random, allow_auto_create=settings.allow_auto_create_topics
        )
        by_time = OffsetsByTime(settings.isolation_level)
        self._offsets = LeaderQuestions(by_time, self.cluster, client, random)
        self._epochs = LeaderQuestions(EpochEnds(), self.cluster, client, random)
        self._states: dict[TopicPartition, PartitionState] = {}
        self._fetchers: dict[int, NodeFetcher] = {}
        self._buffer: deque[Fetched] = deque()
        self._failures: deque[tuple[TopicPartition | None, Exception]] = deque()
        self.buffered_bytes = 0

    # What users do.

    @property
    def assignment(self) -> list[TopicPartition]:
        return list(self._states)

    def assign(self, wheres: Iterable[TopicPartition], *, holds_new: bool = False) -> None:
        """Consume these partitions and no others; those that stay keep their positions.

        With `holds_new` the others wait for `release` (or a seek) to know where to begin.
        """
        states = {}
        for where in wheres:
            self.cluster.want(where.topic)
            state = self._states.get(where)
            if state is None:
                state = PartitionState(where, self._policy)
                state.is_held = holds_new
            states[where] = state
        for where in self._states:
            if where not in states:
                self._drop(where)
        self._states = states

    def release(self, where: TopicPartition, offset: int, leader_epoch: int) -> None:
        """Begin a partition that was held: here, or without an offset where the policy says."""
        state = self._states.get(where)
        if state is None or not state.is_held:
            return
        if offset >= 0:
            state.seek(offset, leader_epoch)
        else:
            state.is_held = False

    def positions(self) -> dict[TopicPartition, OffsetAnswer]:
        """What the user has not seen yet begins here, with the epoch of the record before."""
        return {
            where: OffsetAnswer(state.position, state.position_epoch)
            for where, state in self._states.items()
            if state.position is not None
        }

    def seek(self, where: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Go on here; with the epoch of the record before, a cut log is noticed."""
        if offset < 0:
            raise ValueError(f"offset {offset}")
        self._drop(where)
        self._state(where).seek(offset, leader_epoch)

    def seek_to_timestamp(self, where: TopicPartition, timestamp: int) -> None:
        """Go on with the first record of this time or later; or at the end, if there is none."""
        self._drop(where)
        self._state(where).reset(timestamp)

    def pause(self, where: TopicPartition) -> None:
        self._drop(where)
        state = self._state(where)
        state.is_paused = True
        state.rewind()

    def resume(self, where: TopicPartition) -> None:
        self._state(where).is_paused = False

    def position(self, where: TopicPartition) -> int | None:
        """The offset of the next record; None while it is being looked up."""
        return self._state(where).position

    def require_position(self, where: TopicPartition) -> int:
        """The same, for those who have waited for it."""
        position = self.position(where)
        if position is None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no position for {where}")
        return position

    def progress(self, where: TopicPartition) -> PartitionProgress:
        """What the last fetch said about the log's ends."""
        return self._state(where).progress

    def look_up(self, timestamps: Mapping[TopicPartition, int], now_ms: int) -> OffsetLookup:
        """Ask for offsets by time; the partitions need not be assigned."""
        lookup = OffsetLookup(timestamps)
        expires_ms = now_ms + self._settings.default_api_timeout_ms
        for where, timestamp in timestamps.items():
            settle = partial(lookup.settle, where)
            self._offsets.ask(Question(where, timestamp, settle, expires_ms=expires_ms))
        return lookup

    @property
    def has_output(self) -> bool:
        return bool(self._buffer or self._failures)

    def take(self, max_records: int) -> list[PartitionRecords]:
        """Records that have come, at most so many; none does not mean that there are no more.

        Raises a failure that was found, once.
        """
        taken = self._take(max_records, Fetched.take)
        return [PartitionRecords(*where, records) for where, records in taken]

    def take_batches(self) -> list[PartitionBatches]:
        """The batches of one fetch that has come, as whole as they are; raises as `take` does."""
        taken = self._take(1, lambda fetched, _: fetched.take_batches())
        return [PartitionBatches(*where, batches) for where, batches in taken]

    def _take(
        self, count: int, take_from: Callable[[Fetched, int], list[T]]
    ) -> list[tuple[TopicPartition, list[T]]]:
        taken: list[tuple[TopicPartition, list[T]]] = []
        left = count
        while self._buffer and left > 0 and not (self._failures and taken):
            if self._failures:
                raise self._failures.popleft()[1]
            fetched = self._buffer[0]
            state = self._state(fetched.where)
            try:
                found = take_from(fetched, left)
            except RecordDataError as damage:
                self._drop(fetched.where)
                state.rewind()
                failure = KafkaError(damage.error_code, f"{fetched.where}: {damage}")
                self._failures.append((fetched.where, failure))
                continue
            state.position = fetched.position
            state.position_epoch = fetched.position_epoch
            if found:
                taken.append((fetched.where, found))
                left -= len(found)
            if fetched.is_empty:
                self._buffer.popleft()
                self.buffered_bytes -= fetched.size
        if self._failures and not taken:
            raise self._failures.popleft()[1]
        return taken

    def report(self, failure: Exception) -> None:
        """Tell the user, with the next `take`, of what concerns no single partition."""
        self._failures.append((None, failure))

    # What the shell does.

    def calls(self, now_ms: int) -> list[Call]:
        self._looked_ms = now_ms
        for state in self._states.values():
            self._ask_if_needed(state)
        calls = self.cluster.calls(now_ms)
        calls += self._offsets.calls(now_ms)
        calls += self._epochs.calls(now_ms)
        if self.buffered_bytes < self._settings.fetch_max_bytes:
            calls += self._fetch_calls(now_ms)
        return calls

    def wake_at_ms(self) -> int | None:
        moments = [
            self.cluster.wake_at_ms(),
            self._offsets.wake_at_ms(),
            self._epochs.wake_at_ms(),
        ]
        waits = [state.not_before_ms for state in self._states.values()]
        waits += [fetcher.not_before_ms for fetcher in self._fetchers.values()]
        # What was due at the last look has been looked at.
        moments += [wait_ms for wait_ms in waits if wait_ms > self._looked_ms]
        return earliest(*moments)

    # Positions.

    def _state(self, where: TopicPartition) -> PartitionState:
        state = self._states.get(where)
        if state is None:
            raise ValueError(f"{where} is not assigned")
        return state

    def _drop(self, where: TopicPartition) -> None:
        """Forget what is buffered of a partition, failures included: the user has moved on."""
        self._failures = deque(each for each in self._failures if each[0] != where)
        self._buffer = deque(each for each in self._buffer if each.where != where)
        self.buffered_bytes = sum(each.size for each in self._buffer)

    def _fail(self, state: PartitionState, failure: Exception) -> None:
        """Tell the user, with the next `take`, unless a seek makes it pointless."""
        self._failures.append((state.where, failure))

    def _ask_if_needed(self, state: PartitionState) -> None:
        """Look up or check the position, if it must be before anything is fetched."""
        if state.is_asking or state.is_held:
            return
        if state.position is None:
            state.is_asking = True
            if state.reset_to is None:
                why = f"{state.where} has no position, and auto_offset_reset is none"
                self._fail(state, KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why))
                return
            found = partial(self._found, state, state.generation)
            self._offsets.ask(Question(state.where, state.reset_to, found, expires_ms=None))
            return
        leader = self.cluster.leader(state.where)
        if leader is None:
            return
        if state.must_check(leader.epoch):
            state.is_asking = True
            checked = partial(self._checked, state, state.generation, leader.epoch)
            self._epochs.ask(Question(state.where, state.fetch_epoch, checked, expires_ms=None))
        else:
            state.checked_epoch = max(state.checked_epoch, leader.epoch)

    def _found(
        self, state: PartitionState, generation: int, outcome: OffsetAnswer | Exception
    ) -> None:
        """The answer to where the position should be."""
        if state.generation != generation:
            return
        if isinstance(outcome, Exception):
            # The partition stays as it is until the user seeks or assigns anew.
            self._fail(state, outcome)
        elif outcome.offset < 0:
            # No record is that young: the end is where it will come.
            state.reset(LATEST_TIMESTAMP)
        else:
            state.seek(outcome.offset, -1)

    def _checked(
        self,
        state: PartitionState,
        generation: int,
        leader_epoch: int,
        outcome: OffsetAnswer | Exception,
    ) -> None:
        """The answer to whether the leader's log is the one that was read."""
        if state.generation != generation:
            return
        state.is_asking = False
        state.checked_epoch = max(state.checked_epoch, leader_epoch)
        if isinstance(outcome, UnsupportedVersion):
            return
        if isinstance(outcome, Exception):
            self._fail(state, outcome)
        elif outcome.offset < state.fetch_offset or outcome.leader_epoch < state.fetch_epoch:
            self._diverged(state, outcome.offset, outcome.leader_epoch)

    def _diverged(self, state: PartitionState, end_offset: int, epoch: int) -> None:
        """The leader's log parts from the one that was read at `end_offset`, or before."""
        position = state.position or 0
        is_ahead = state.fetch_offset > position
        self._drop(state.where)
        if is_ahead and end_offset >= position:
            # Only records that nobody has seen are gone.
            state.rewind()
        elif self._policy is None:
            state.is_asking = True
            state.generation += 1
            self._fail(state, LogTruncated(*state.where, position, min(end_offset, position)))
        elif end_offset < 0 or epoch < 0:
            state.reset(self._policy)
        else:
            state.seek(min(end_offset, position), epoch)

    # Fetching.

    def _fetch_calls(self, now_ms: int) -> list[Call]:
        wishes: dict[int, dict[TopicPartition, Wish]] = {}
        for state in self._states.values():
            if not state.can_fetch(now_ms):
                continue
            where = state.where
            leader = self.cluster.leader(where)
            topic = self.cluster.topic(where.topic)
            if leader is None or topic is None:
                self._without_leader(state, topic)
                continue
            node_id = leader.broker.node_id
            if state.replica_until_ms > now_ms and state.replica_id in self.cluster.brokers:
                node_id = state.replica_id
            fetcher = self._fetchers.get(node_id)
            if fetcher is None:
                fetcher = self._fetchers[node_id] = NodeFetcher(self._settings, self._random)
            if fetcher.is_busy or fetcher.not_before_ms > now_ms:
                continue
            wishes.setdefault(node_id, {})[where] = Wish(
                topic.topic_id,
                state.fetch_offset,
                leader.epoch,
                state.fetch_epoch,
                self._settings.max_partition_fetch_bytes,
            )
        return [
            self._fetch_call(self._fetchers[node_id], self.cluster.brokers[node_id], of_node)
            for node_id, of_node in wishes.items()
        ]

    def _without_leader(self, state: PartitionState, topic: TopicInfo | None) -> None:
        error = ErrorCode.NONE if topic is None else topic.error
        if error != ErrorCode.NONE and not error.retriable:
            state.is_asking = True
            self._fail(state, KafkaError(error, f"topic {state.where.topic}: {error.message}"))
        else:
            self.cluster.refresh()

    def _fetch_call(
        self, fetcher: NodeFetcher, broker: Broker, wishes: dict[TopicPartition, Wish]
    ) -> Call:
        states = [self._states[where] for where in wishes]
        asked: _Asked = {state.where: (state, state.generation) for state in states}

        def received(answer: FetchResponse, now_ms: int) -> None:
            endpoints = {
                each.node_id: Broker(each.node_id, each.host, each.port, each.rack)
                for each in answer.node_endpoints
            }
            for topic in answer.responses:
                name = topic.topic or self.cluster.name_of(topic.topic_id) or ""
                for data in topic.partitions:
                    where = TopicPartition(name, data.partition_index)
                    leader = data.current_leader
                    self.cluster.learn_leader(
                        where,
                        leader.leader_id,
                        leader.leader_epoch,
                        endpoints.get(leader.leader_id),
                    )
                    state = self._still_asked(where, asked)
                    if state is not None:
                        self._received(state, data, now_ms)

        def failed(failure: Exception, now_ms: int) -> None:
            self.cluster.disappoint(broker.address, now_ms)
            for where in wishes:
                if where in self._states:
                    self._states[where].replica_id = -1
            if not isinstance(failure, ConnectionLost):
                self._failures.append((None, failure))

        def refused(code: ErrorCode) -> None:
            self.cluster.refresh()
            if not code.retriable:
                self._failures.append((None, KafkaError(code)))

        return fetcher.call(broker, wishes, received=received, failed=failed, refused=refused)

    def _still_asked(self, where: TopicPartition, asked: _Asked) -> PartitionState | None:
        """A partition that stands where it stood when it was asked about.

        One that went and came back has another state, of perhaps the same generation.
        """
        state = self._states.get(where)
        if state is None or asked.get(where) != (state, state.generation):
            return None
        return state

    def _received(self, state: PartitionState, data: PartitionData, now_ms: int) -> None:
        code = error_code(data.error_code)
        client = self._settings.client
        if code == ErrorCode.NONE:
            state.progress = PartitionProgress(
                data.high_watermark, data.last_stable_offset, data.log_start_offset
            )
            if data.preferred_read_replica >= 0:
                state.replica_id = data.preferred_read_replica
                state.replica_until_ms = now_ms + client.metadata_max_age_ms
            if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
                diverging = data.diverging_epoch
                self._diverged(state, diverging.end_offset, diverging.epoch)
            elif data.records is not None and len(data.records):
                self._keep(state, data)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state, now_ms)
        elif code.retriable or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            state.replica_id = -1
            state.not_before_ms = now_ms + client.retry_backoff_ms
            self.cluster.refresh()
        else:
            state.not_before_ms = now_ms + client.retry_backoff_max_ms
            self._fail(state, KafkaError(code, f"{state.where}: {code.message}"))

    def _keep(self, state: PartitionState, data: PartitionData) -> None:
        records = data.records
        aborted = data.aborted_transactions or ()
        if self._settings.isolation_level != IsolationLevel.READ_COMMITTED:
            aborted = ()
        # Only a node's own log has file slices; from the network come bytes.
        assert_always(records is not None and not isinstance(records, FileSlice), "fetched-slice")
        try:
            fetched = Fetched(
                state.where,
                records,  # type: ignore[arg-type]
                position=state.fetch_offset,
                position_epoch=state.fetch_epoch,
                aborted=aborted,
                check_crcs=self._settings.check_crcs,
                max_batch_bytes=self._settings.max_batch_bytes,
            )
        except RecordDataError as damage:
            state.is_asking = True
            self._fail(state, KafkaError(damage.error_code, f"{state.where}: {damage}"))
            return
        end = fetched.end
        if end is None:
            state.is_asking = True
            why = f"the batch at {state.where} {state.fetch_offset} doesn't fit into a fetch"
            self._fail(state, KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why))
            return
        state.fetch_offset, state.fetch_epoch = end
        self._buffer.append(fetched)
        self.buffered_bytes += fetched.size

    def _out_of_range(self, state: PartitionState, now_ms: int) -> None:
        is_ahead = state.fetch_offset != state.position
        if state.replica_id >= 0 or is_ahead:
            # The leader has the last word, once the user has what is buffered.
            state.replica_id = -1
            state.not_before_ms = now_ms + self._settings.client.retry_backoff_ms
        elif self._policy is None:
            state.is_asking = True
            self._fail(state, OffsetOutOfRange(*state.where, state.fetch_offset))
        else:
            state.reset(self._policy)
