"""Fetch sessions: what is told, what is looked at, and who keeps a slot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from api.data_rig import Asked, Broker, broker_on, followed, told, values
from broker.replica_rig import Rig, topic
from purgatory.waiting import HandClock

from kraftpy.broker.fetch_purgatory import FetchPurgatory
from kraftpy.broker.fetch_sessions import FetchSessions
from kraftpy.observe.metrics import Gauge, Meter, MetricName, MetricRegistry
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.protocol.schema.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from kraftpy.purgatory.timer import Timer
from kraftpy.records.builder import BatchBuilder
from kraftpy.world import Random


def batch(value: bytes = b"v") -> bytes:
    builder = BatchBuilder()
    builder.append(None, value, timestamp_ms=1_767_225_600_000)
    return bytes(builder.build())


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """`alone` has three partitions on broker 1 only; `t` two, which it leads for 2 and 3."""
    rig = Rig()
    async with broker_on(rig) as broker:
        await rig.apply(*topic("t", 1, 1), *topic("alone", 1, 1, 1, replicas=(1,)))
        yield broker


class Fetcher:
    """The other end of a session."""

    def __init__(self, broker: Broker, **terms: Any) -> None:
        self.broker = broker
        self.terms = terms
        self.session_id = 0
        self.epoch = 0

    def begin(
        self, parts: dict[tuple[str, int], int | FetchPartition] | None = None, **terms: Any
    ) -> Asked:
        asked = self.broker.begin_fetch(
            parts or {},
            session_id=self.session_id,
            session_epoch=self.epoch,
            **{**self.terms, **terms},
        )
        self.epoch += 1
        return asked

    def fetch(
        self, parts: dict[tuple[str, int], int | FetchPartition] | None = None, **terms: Any
    ) -> dict[tuple[str, int], Any]:
        response = self.begin(parts, max_wait_ms=0, **terms).response
        assert response.error_code == ErrorCode.NONE
        self.session_id = response.session_id
        return told(response)


ALONE: dict[tuple[str, int], int | FetchPartition] = {("alone", index): 0 for index in range(3)}


@pytest.mark.parametrize("version", [7, 12, 13, 18])
async def test_only_what_is_new_is_told(broker: Broker, version: int) -> None:
    """NET-96."""
    fetcher = Fetcher(broker, version=version)
    assert len(fetcher.fetch(ALONE)) == 3
    assert fetcher.session_id > 0
    assert fetcher.fetch() == {}
    broker.produce("alone", batch(b"a"), 1)
    [(key, data)] = fetcher.fetch().items()
    assert (key[1], values(data), data.high_watermark) == (1, [b"a"], 1)
    # It has not come further, so it gets the same again.
    assert [values(data) for data in fetcher.fetch().values()] == [[b"a"]]
    assert fetcher.fetch({("alone", 1): 1}) == {}
    assert fetcher.fetch() == {}


async def test_a_forgotten_partition_is_not_told_of(broker: Broker) -> None:
    """NET-96; a session without partitions is over (NET 20.3)."""
    fetcher = Fetcher(broker)
    fetcher.fetch(ALONE)
    assert broker.rig.replicas.fetch_purgatory.interest_count == 3
    fetcher.fetch(forgotten=[("alone", 0), ("alone", 7), ("nobody", 0)])
    broker.produce("alone", batch(), 0)
    broker.produce("alone", batch(), 2)
    assert list(fetcher.fetch()) == [("alone", 2)]
    assert fetcher.fetch(forgotten=[("alone", 1), ("alone", 2)]) == {}
    assert fetcher.session_id == 0
    assert len(broker.sessions) == 0
    assert broker.rig.replicas.fetch_purgatory.interest_count == 0


async def test_a_partition_joins_a_session(broker: Broker) -> None:
    fetcher = Fetcher(broker)
    fetcher.fetch({("alone", 0): 0})
    assert list(fetcher.fetch({("alone", 1): 0})) == [("alone", 1)]
    broker.produce("alone", batch(), 1)
    assert list(fetcher.fetch()) == [("alone", 1)]


async def test_session_errors(broker: Broker) -> None:
    """NET-97."""
    fetcher = Fetcher(broker)
    fetcher.fetch(ALONE)

    def error(**terms: Any) -> ErrorCode:
        response = broker.begin_fetch({}, **terms).response
        assert response.responses == []
        return ErrorCode(response.error_code)

    session_id = fetcher.session_id
    not_found, wrong_epoch = (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    )
    assert error(session_id=session_id + 1, session_epoch=1) is not_found
    assert error(session_id=0, session_epoch=1) is not_found
    assert error(session_id=session_id, session_epoch=2) is wrong_epoch
    assert error(session_id=session_id, session_epoch=-2) is wrong_epoch
    ids = error(session_id=session_id, session_epoch=1, version=13)
    assert ids is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert error(session_id=session_id, session_epoch=1, replica_id=2) is not_found
    assert fetcher.fetch() == {}
    assert error(session_id=session_id, session_epoch=1) is wrong_epoch


async def test_a_final_epoch_ends_the_session(broker: Broker) -> None:
    """NET-97: and is answered in full."""
    fetcher = Fetcher(broker)
    fetcher.fetch(ALONE)
    fetcher.epoch = -1
    assert len(fetcher.fetch(ALONE)) == 3
    assert fetcher.session_id == 0
    assert len(broker.sessions) == 0
    assert broker.rig.replicas.fetch_purgatory.interest_count == 0


async def test_a_new_session_replaces_the_one_it_names(broker: Broker) -> None:
    fetcher = Fetcher(broker)
    fetcher.fetch(ALONE)
    first, fetcher.epoch = fetcher.session_id, 0
    assert len(fetcher.fetch(ALONE)) == 3
    assert fetcher.session_id not in (0, first)
    assert len(broker.sessions) == 1


async def test_a_fetch_that_outlives_its_session_watches_nothing(
    broker: Broker, autojump_clock: object
) -> None:
    """A client that lost its connection begins anew, while its last fetch still waits."""
    fetcher = Fetcher(broker, min_bytes=10_000)
    fetcher.fetch(ALONE)
    waiting = fetcher.begin()
    broker.produce("alone", batch(), 1)
    fetcher.epoch = -1
    fetcher.fetch(ALONE)
    assert len(broker.sessions) == 0
    assert not waiting.is_answered
    await trio.sleep(0.6)
    assert waiting.is_answered
    assert broker.rig.replicas.fetch_purgatory.interest_count == 0


async def test_the_epoch_after_the_last_is_1(broker: Broker) -> None:
    fetcher = Fetcher(broker)
    fetcher.fetch(ALONE)
    broker.sessions.get(fetcher.session_id).epoch = fetcher.epoch = 2**31 - 1
    fetcher.fetch()
    fetcher.epoch = 1
    fetcher.fetch()


async def test_errors_are_told_until_they_are_gone(broker: Broker) -> None:
    """And then the offsets again, whatever was told before."""
    fetcher = Fetcher(broker)
    fetcher.fetch({("later", 0): 0, ("alone", 0): 0})
    for _ in range(2):
        [(_, data)] = fetcher.fetch().items()
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await broker.rig.apply(*topic("later", 1, replicas=(1,)))
    [(_, data)] = fetcher.fetch().items()
    assert (data.error_code, data.high_watermark) == (ErrorCode.NONE, 0)
    assert fetcher.fetch() == {}
    broker.produce("later", batch())
    assert list(fetcher.fetch()) == [("later", 0)]


async def test_a_waiting_fetch_is_woken_by_any_of_its_partitions(
    broker: Broker, autojump_clock: object
) -> None:
    """PUR-53: also by those that the request did not name, and only by those of its session."""
    fetcher = Fetcher(broker)
    first = fetcher.begin(ALONE)
    broker.produce("t", batch())
    assert not first.is_answered
    broker.produce("alone", batch(b"a"), 2)
    assert len(told(first.response)) == 3
    fetcher.session_id = first.response.session_id
    second = fetcher.begin({("alone", 2): 1})
    assert not second.is_answered
    broker.produce("alone", batch(b"b"), 0)
    [(key, data)] = told(second.response).items()
    assert (key, values(data)) == (("alone", 0), [b"b"])
    third = fetcher.begin({("alone", 0): 1})
    await trio.sleep(0.6)
    assert told(third.response) == {}


async def test_who_was_served_waits_for_the_others(broker: Broker) -> None:
    """With a small budget all have their turns (KIP-227)."""
    for index in range(3):
        broker.produce("alone", batch(), index)
    fetcher = Fetcher(broker, max_bytes=1)
    served = [[key for key, data in fetcher.fetch(ALONE).items() if data.records]]
    served += [[key for key, data in fetcher.fetch().items() if data.records] for _ in range(4)]
    assert served == [[("alone", index % 3)] for index in range(5)]


def looked_at(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """From now on, the partitions that are looked for by name."""
    looks: list[tuple[str, int]] = []
    replicas = broker.rig.replicas
    lookup = replicas.lookup

    def note(name: tuple[str, int]) -> Any:
        looks.append(name)
        return lookup(name)

    monkeypatch.setattr(replicas, "lookup", note)
    return looks


async def test_only_partitions_with_news_are_looked_at(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower of thousands of partitions costs what happens in them, not what they are."""
    await broker.rig.apply(*topic("many", *[1] * 300))
    fetcher = Fetcher(broker, replica_id=2)
    fetcher.fetch({("many", index): 0 for index in range(300)})
    looks = looked_at(broker, monkeypatch)
    fetcher.fetch()
    assert looks == []
    waiting = fetcher.begin()
    assert looks == []
    broker.produce("many", batch(), 7)
    assert waiting.is_answered
    assert set(looks) == {("many", 7)}
    looks.clear()
    fetcher.fetch({("many", 7): followed(1)})
    assert looks == [("many", 7)]


async def test_a_follower_that_is_not_in_sync_never_rests(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its fetches may be the one that lets it join."""
    broker.rig.metadata.change("t", 0, isr=(1, 3))
    await broker.rig.settle()
    fetcher = Fetcher(broker, replica_id=2)
    fetcher.fetch({("t", 0): 0, ("t", 1): 0})
    looks = looked_at(broker, monkeypatch)
    fetcher.fetch()
    assert looks == [("t", 0)]
    broker.rig.metadata.change("t", 0, isr=(1, 3, 2))
    await broker.rig.settle()
    fetcher.fetch()
    looks.clear()
    fetcher.fetch()
    assert looks == []


async def test_a_follower_that_leaves_the_isr_does_not_rest(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller may take it out of the ISR of a partition where nothing happens."""
    fetcher = Fetcher(broker, replica_id=2)
    fetcher.fetch({("t", 0): 0})
    fetcher.fetch()
    broker.rig.metadata.change("t", 0, isr=(1, 3))
    await broker.rig.settle()
    looks = looked_at(broker, monkeypatch)
    fetcher.fetch()
    assert looks == [("t", 0)]


async def test_a_waiting_follower_hears_of_a_new_epoch_at_once(broker: Broker) -> None:
    """The leader is the same, and counts on nobody before they have fetched in its new epoch."""
    fetcher = Fetcher(broker, replica_id=2)
    fetcher.fetch({("t", 0): followed(0, epoch=0)})
    waiting = fetcher.begin()
    broker.rig.metadata.change("t", 0, isr=(1, 3))
    await broker.rig.settle()
    assert not waiting.is_answered
    broker.rig.metadata.change("t", 0, leader=1)
    await broker.rig.settle()
    assert broker.rig.partition("t").leader_epoch == 1
    [data] = told(waiting.response).values()
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_resting_follower_keeps_up(broker: Broker, autojump_clock: object) -> None:
    """REP 15.1: it is caught up as of its last fetch, although nobody looked at the partition."""
    fetchers = [Fetcher(broker, replica_id=each) for each in (2, 3)]
    for each in fetchers:
        each.fetch({("t", 0): 0})
    partition = broker.rig.partition("t")
    for _ in range(100):
        await trio.sleep(1)
        fetchers[0].fetch()
    await trio.sleep(5)
    broker.produce("t", batch())
    now_ms = broker.rig.world.clock.monotonic_ms()
    two, three = partition.follower(2), partition.follower(3)
    assert two is not None
    assert three is not None
    assert now_ms - two.last_caught_up_ms == 5_000
    assert now_ms - three.last_caught_up_ms == 105_000
    partition.shrink_isr(now_ms)
    assert partition.proposal is not None
    assert partition.proposal.isr == (1, 2)


async def test_an_old_session_takes_nothing_back(broker: Broker, autojump_clock: object) -> None:
    """What a follower has said since, in another session, holds."""
    old = Fetcher(broker, replica_id=2)
    old.fetch({("t", 0): 0})
    broker.produce("t", batch(), 1)
    await trio.sleep(1)
    # The old session rests at offset 0 while the log grows: only the new fetch knows.
    partition = broker.rig.partition("t")
    session = broker.sessions.get(old.session_id)
    broker.produce("t", batch())
    broker.fetch("t", followed(1), replica_id=2)
    follower = partition.follower(2)
    assert follower is not None
    assert follower.end.offset == 1
    [resting] = session.partitions.values()
    resting.rest(partition)
    broker.produce("t", batch())
    assert follower.end.offset == 1


async def test_a_raised_log_start_is_told(broker: Broker) -> None:
    """PUR-57: or followers would never delete what they should."""
    broker.produce("alone", batch())
    fetcher = Fetcher(broker)
    fetcher.fetch({("alone", 0): 1})
    assert fetcher.fetch() == {}
    broker.rig.partition("alone").raise_log_start(1)
    [(_, data)] = fetcher.fetch().items()
    assert data.log_start_offset == 1


async def test_a_moved_high_watermark_is_told(broker: Broker) -> None:
    """NET-96: with the next answer; it ends no wait."""
    fetcher = Fetcher(broker, replica_id=2)
    broker.produce("t", batch())
    fetcher.fetch({("t", 0): followed(1)})
    waiting = fetcher.begin()
    broker.fetch("t", followed(1), replica_id=3)
    assert not waiting.is_answered
    broker.produce("t", batch(), 0)
    assert told(waiting.response)["t", 0].high_watermark == 1


async def test_a_moved_high_watermark_alone_is_told(broker: Broker) -> None:
    """NET-96."""
    fetcher = Fetcher(broker, replica_id=2)
    broker.produce("t", batch())
    fetcher.fetch({("t", 0): followed(1)})
    assert fetcher.fetch() == {}
    broker.fetch("t", followed(1), replica_id=3)
    [(_, data)] = fetcher.fetch().items()
    assert (data.high_watermark, data.records) == (1, b"")
    assert fetcher.fetch() == {}


async def test_a_resting_follower_is_the_process_that_it_was(broker: Broker) -> None:
    """Its incarnation goes with what is noted for it."""
    fetcher = Fetcher(broker, replica_id=2, replica_epoch=102, version=15)
    fetcher.fetch({("t", 0): 0})
    fetcher.fetch()
    broker.produce("t", batch())
    follower = broker.rig.partition("t").follower(2)
    assert follower is not None
    assert follower.broker_epoch == 102


async def test_a_topic_made_again_is_another(broker: Broker) -> None:
    """By id it is gone, by name it is new; neither is missed."""
    by_id, by_name = Fetcher(broker, version=13), Fetcher(broker, version=12)
    for each in (by_id, by_name):
        each.fetch({("alone", 0): 0})
    broker.rig.metadata.remove("alone")
    await broker.rig.settle()
    await broker.rig.apply(*topic("alone", 1, replicas=(1,), generation=1))
    [(_, gone)] = by_id.fetch().items()
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    broker.produce("alone", batch(b"new"))
    [(_, new)] = by_name.fetch().items()
    assert values(new) == [b"new"]


# The cache.

EVICTION_MS = 120_000


class Cache:
    def __init__(self, slots: int) -> None:
        self.clock: Any = HandClock()
        self.registry = MetricRegistry()
        purgatory = FetchPurgatory("Fetch", Timer("t", self.clock), self.registry)
        self.sessions = FetchSessions(
            purgatory, self.registry, clock=self.clock, random=Random(1), slots=slots
        )

    def open(self, count: int = 1, replica_id: int = -1) -> int:
        """A session of so many partitions; its id, 0 if there was no slot."""
        partitions = [FetchPartition(partition=index) for index in range(count)]
        request = FetchRequest(topics=[FetchTopic(topic="t", partitions=partitions)])
        session = self.sessions.open(request, replica_id, uses_ids=False)
        return 0 if session is None else session.session_id

    def use(self, session_id: int, epoch: int) -> None:
        request = FetchRequest(session_id=session_id, session_epoch=epoch)
        assert not isinstance(self.sessions.resume(request, -1, uses_ids=False), ErrorCode | None)

    def metric(self, name: str) -> float:
        found = self.registry.get(MetricName("kafka.server", "FetchSessionCache", name))
        if isinstance(found, Meter):
            return found.count
        assert isinstance(found, Gauge)
        return found.read()


def test_no_slot_no_session() -> None:
    """NET-97."""
    cache = Cache(slots=2)
    assert cache.open()
    assert cache.open()
    assert not cache.open()
    assert not Cache(slots=0).open()
    assert cache.metric("NumIncrementalFetchSessions") == 2
    assert cache.metric("NumIncrementalFetchPartitionsCached") == 2
    assert cache.metric("IncrementalFetchSessionEvictionsPerSec") == 0


def test_one_unused_for_too_long_goes() -> None:
    """Two minutes, and a millisecond."""
    cache = Cache(slots=2)
    first, second = cache.open(9), cache.open(9)
    cache.clock.now_ms = 60_000
    cache.use(first, 1)
    cache.clock.now_ms = EVICTION_MS
    assert not cache.open(1)
    cache.clock.now_ms = EVICTION_MS + 1
    assert cache.open(1)
    assert cache.sessions.get(second) is None
    assert cache.sessions.get(first) is not None
    assert cache.metric("IncrementalFetchSessionEvictionsPerSec") == 1


def test_one_worth_less_goes_once_it_has_been_there_for_long() -> None:
    cache = Cache(slots=2)
    small, large = cache.open(2), cache.open(5)
    assert not cache.open(9)
    cache.clock.now_ms = EVICTION_MS + 1
    cache.use(small, 1)
    cache.use(large, 1)
    assert not cache.open(2)
    assert cache.open(3)
    assert cache.sessions.get(small) is None
    assert cache.sessions.get(large) is not None


def test_followers_go_before_consumers() -> None:
    """At once, and never the other way."""
    cache = Cache(slots=1)
    consumer = cache.open(100)
    follower = cache.open(1, replica_id=2)
    assert follower
    assert cache.sessions.get(consumer) is None
    cache.clock.now_ms = EVICTION_MS
    assert not cache.open(100)
    assert not cache.open(100, replica_id=3)


def test_a_request_without_partitions_gets_no_session() -> None:
    cache = Cache(slots=1)
    assert cache.open(0) == 0
    assert len(cache.sessions) == 0


def test_a_partition_named_twice_is_one() -> None:
    cache = Cache(slots=1)
    partitions = [FetchPartition(partition=1, fetch_offset=offset) for offset in (1, 2)]
    request = FetchRequest(
        topics=[FetchTopic(topic="t", topic_id=ZERO_UUID, partitions=partitions)]
    )
    session = cache.sessions.open(request, -1, uses_ids=False)
    assert session is not None
    [partition] = session.partitions.values()
    assert partition.fetch_offset == 2
