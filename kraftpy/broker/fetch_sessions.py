"""Fetch sessions (KIP-227): the partitions of a fetcher, remembered between its requests.

The first request of a session names all partitions, later ones what is new, changed or to be
forgotten, and the answers what has changed. The epoch counts the requests, so that a lost answer
is noticed: the fetcher and the broker would no longer agree on what was told.

Stirred partitions. Kafka looks at all partitions of a session for each request. With thousands, of
which few have news, that would cost more than all the rest; here a request looks at those that are
stirred: which it names, which something has happened to since they were last answered for (the
fetch purgatory tells), or which were not done with: they had records, or an error. A partition
comes to rest when its answer was "nothing new".

What a follower's fetch means for partitions at rest. It asks for the end of their logs, again and
again, so it keeps up; Kafka notes the time with each. Here it is noted when the rest ends, because
only then does it make a difference: a follower that has everything counts as caught up anyway. A
follower that is not in the ISR never rests: each of its fetches may be the one that lets it join.

The cache has a fixed number of slots. A new session gets the slot of one that has not been used for
`eviction_ms`; else, if it is worth more, of one that has been there for that long: followers are
worth more than consumers, then many partitions more than few. Without a slot the fetcher is
answered all the same, and goes on without a session.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, TypeAlias

from kraftpy.broker.fetch_purgatory import FetchPurgatory, Interest
from kraftpy.broker.partition import Partition
from kraftpy.client.session_term import epoch_after
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.offsets import UNKNOWN, OffsetMetadata
from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k01_fetch import FetchPartition, FetchRequest
from kraftpy.world import Buggify, Clock, Random, never

__all__ = ["FetchSession", "FetchSessions", "FetchedPartition", "SessionPartition"]

FINAL_EPOCH: Final = -1
_LAST_SESSION_ID: Final = 2**31 - 1
MIN_EVICTION_MS: Final = 120_000

# The topic as the fetcher names it, and the number of the partition.
_Key: TypeAlias = tuple[str | Uuid, int]


class FetchedPartition:
    """One partition as somebody fetches it; by name or by id, the other of which is empty."""

    __slots__ = (
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "place",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: Uuid, wanted: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = wanted.partition
        # Where the offset lies, once it was read from.
        self.place: OffsetMetadata | None = None
        self.update(wanted)

    def update(self, wanted: FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset
        self.max_bytes = max(0, wanted.partition_max_bytes)


class SessionPartition(FetchedPartition, Interest):
    """A partition of a session, and what its fetcher was last told."""

    __slots__ = (
        "_partition_at_rest",
        "sent_high_watermark",
        "sent_log_start",
        "session",
        "watched",
    )

    def __init__(
        self, session: FetchSession, topic: str, topic_id: Uuid, wanted: FetchPartition
    ) -> None:
        super().__init__(topic, topic_id, wanted)
        self.session = session
        self.sent_high_watermark = UNKNOWN
        self.sent_log_start = UNKNOWN
        # The name that it has in the fetch purgatory, once it is known.
        self.watched: TopicPartition | None = None
        self._partition_at_rest: Partition | None = None

    def rest(self, partition: Partition) -> None:
        """The fetcher has been told that there is nothing new."""
        self.session.stirred.pop(self, None)
        self._partition_at_rest = partition

    def stir(self) -> Hashable | None:
        session = self.session
        if self in session.stirred:
            return session
        session.stirred[self] = None
        partition = self._partition_at_rest
        self._partition_at_rest = None
        if partition is not None:
            self._note_rest_of_follower(partition)
        return session

    def _note_rest_of_follower(self, partition: Partition) -> None:
        """Until its last fetch, the follower had all there was.

        Unless this leader knows something else by now: from another session of the follower, or
        because its leadership is another one.
        """
        session = self.session
        follower = partition.follower(session.replica_id)
        place = self.place
        if follower is not None and place is not None and follower.end.offset == place.offset:
            partition.follower_fetched(
                session.replica_id,
                place,
                log_start_offset=self.log_start_offset,
                leader_end_offset=place.offset,
                broker_epoch=session.replica_epoch,
                now_ms=session.last_used_ms,
            )


class FetchSession:
    """Hashed by identity: its waiting fetch is found under it."""

    __slots__ = (
        "created_ms",
        "epoch",
        "last_used_ms",
        "partitions",
        "replica_epoch",
        "replica_id",
        "session_id",
        "stirred",
        "uses_ids",
    )

    def __init__(self, session_id: int, replica_id: int, *, uses_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.replica_epoch = UNKNOWN
        self.uses_ids = uses_ids
        # What the next request must have.
        self.epoch = 1
        self.created_ms = self.last_used_ms = now_ms
        self.partitions: dict[_Key, SessionPartition] = {}
        # Those to look at, who waits longest first.
        self.stirred: dict[SessionPartition, None] = {}

    @property
    def is_of_follower(self) -> bool:
        return self.replica_id >= 0

    @property
    def worth(self) -> tuple[bool, int]:
        return self.is_of_follower, len(self.partitions)

    def want(self, request: FetchRequest) -> None:
        """Take in the partitions that the request names."""
        for topic in request.topics:
            name = topic.topic_id if self.uses_ids else topic.topic
            for wanted in topic.partitions:
                key = (name, wanted.partition)
                known = self.partitions.get(key)
                if known is None:
                    known = SessionPartition(self, topic.topic, topic.topic_id, wanted)
                    self.partitions[key] = known
                else:
                    known.update(wanted)
                self.stirred[known] = None

    def served(self, partition: SessionPartition) -> None:
        """It got records: next time others come first."""
        self.stirred.pop(partition, None)
        self.stirred[partition] = None

    def advance_epoch(self) -> None:
        self.epoch = epoch_after(self.epoch)


class FetchSessions:
    """The cache of all sessions."""

    __slots__ = (
        "_buggify",
        "_clock",
        "_eviction_ms",
        "_evictions",
        "_purgatory",
        "_random",
        "_sessions",
        "_slots",
    )

    def __init__(
        self,
        purgatory: FetchPurgatory,
        registry: MetricRegistry,
        *,
        clock: Clock,
        random: Random,
        slots: int = 1000,
        eviction_ms: int = MIN_EVICTION_MS,
        buggify: Buggify = never,
    ) -> None:
        self._purgatory = purgatory
        self._clock = clock
        self._random = random
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._buggify = buggify
        # Least recently used first.
        self._sessions: dict[int, FetchSession] = {}
        registry.gauge(_name("NumIncrementalFetchSessions"), lambda: len(self._sessions))
        registry.gauge(_name("NumIncrementalFetchPartitionsCached"), self._partition_count)
        now = clock.monotonic()
        self._evictions = registry.meter(_name("IncrementalFetchSessionEvictionsPerSec"), now)

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def open(
        self, request: FetchRequest, replica_id: int, *, uses_ids: bool
    ) -> FetchSession | None:
        """A session for a full request that asks for one; None if there is no slot for it.

        The session that the request comes from, if it names one, is over.
        """
        self.close(request.session_id)
        now_ms = self._clock.monotonic_ms()
        session = FetchSession(self._new_id(), replica_id, uses_ids=uses_ids, now_ms=now_ms)
        session.want(request)
        if self._sessions and self._buggify("session-evicted"):
            self._evict(next(iter(self._sessions.values())))
        if self._buggify("session-refused"):
            return None
        if not session.partitions or not self._make_room(session, now_ms):
            return None
        self._sessions[session.session_id] = session
        return session

    def resume(
        self, request: FetchRequest, replica_id: int, *, uses_ids: bool
    ) -> FetchSession | ErrorCode | None:
        """The session of an incremental request, which is taken in.

        None if that leaves no partition in it: then the session is over.
        """
        session = self._sessions.get(request.session_id)
        if session is None or session.replica_id != replica_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        self._forget(session, request)
        session.want(request)
        session.advance_epoch()
        if not session.partitions:
            self.close(session.session_id)
            return None
        session.last_used_ms = self._clock.monotonic_ms()
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._unwatch(session.partitions.values())

    def watch(self, partition: SessionPartition, name: TopicPartition) -> None:
        """Have it stirred by the events of the partition of this name, while its session lasts."""
        session = partition.session
        if partition.watched != name and self._sessions.get(session.session_id) is session:
            self._unwatch([partition])
            partition.watched = name
            self._purgatory.add_interest(name, partition)

    def _unwatch(self, partitions: Iterable[SessionPartition]) -> None:
        for each in partitions:
            if each.watched is not None:
                self._purgatory.remove_interest(each.watched, each)
                each.watched = None

    def _forget(self, session: FetchSession, request: FetchRequest) -> None:
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if session.uses_ids else topic.topic
            for index in topic.partitions:
                known = session.partitions.pop((name, index), None)
                if known is not None:
                    session.stirred.pop(known, None)
                    self._unwatch([known])

    def _make_room(self, newcomer: FetchSession, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            self._evict(oldest)
            return True
        cheapest = min(self._evictable(newcomer, now_ms), key=_worth, default=None)
        if cheapest is None or newcomer.worth <= cheapest.worth:
            return False
        self._evict(cheapest)
        return True

    def _evictable(self, newcomer: FetchSession, now_ms: int) -> Sequence[FetchSession]:
        """Those that have been there for a while; to a follower, any consumer's too."""
        return [
            each
            for each in self._sessions.values()
            if now_ms - each.created_ms > self._eviction_ms
            or (newcomer.is_of_follower and not each.is_of_follower)
        ]

    def _evict(self, session: FetchSession) -> None:
        self.close(session.session_id)
        self._evictions.mark(self._clock.monotonic())

    def _new_id(self) -> int:
        """Not one that is taken, and not guessed easily by those who look for others' sessions."""
        while True:
            session_id = self._random.randint(1, _LAST_SESSION_ID)
            if session_id not in self._sessions:
                return session_id

    def _partition_count(self) -> int:
        return sum(len(each.partitions) for each in self._sessions.values())


def _worth(session: FetchSession) -> tuple[bool, int]:
    return session.worth


def _name(name: str) -> MetricName:
    return MetricName("kafka.server", "FetchSessionCache", name)
