"""What a leader sends to throttled followers (KIP-73), against real replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from api.data_rig import Asked, Broker, broker_on, followed, only_data, told, values
from broker.replica_rig import Rig, topic

from kraftpy.observe.metrics import Gauge, MetricName, MetricRegistry
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.builder import BatchBuilder
from kraftpy.security.quota_metrics import QuotaKind, QuotaMetrics
from kraftpy.security.replication_quota import ALL_PARTITIONS, ReplicationQuota
from kraftpy.security.windows import QuotaWindow
from kraftpy.world.memory_clock import MemoryClock

BYTE_RATE = MetricName("kafka.server", "LeaderReplication", "byte-rate", is_attribute=True)


def batch(value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(None, value, timestamp_ms=1_767_225_600_000)
    return bytes(builder.build())


SIZE = len(batch(bytes(10_000)))


@pytest.fixture
def registry() -> MetricRegistry:
    return MetricRegistry()


@pytest.fixture
def quota(registry: MetricRegistry) -> ReplicationQuota:
    """Throttled is t-0, to a batch a second."""
    clock = MemoryClock()
    metrics = QuotaMetrics(QuotaKind.LEADER_REPLICATION, registry, clock.monotonic_ms)
    quota = ReplicationQuota(QuotaWindow(), metrics)
    quota.change_throttled("t", frozenset((0,)))
    quota.change_limit(SIZE)
    return quota


@pytest.fixture
async def broker(quota: ReplicationQuota) -> AsyncIterator[Broker]:
    """Broker 1 leads t-0 and t-1, with three batches each; of the followers 2 is in sync, 3 not."""
    rig = Rig()
    async with broker_on(rig, quota=quota) as broker:
        await rig.apply(*topic("t", 1, 1))
        for partition in (0, 1):
            rig.metadata.change("t", partition, isr=(1, 2))
        await rig.settle()
        for value in (b"a", b"b", b"c"):
            for partition in (0, 1):
                produced = broker.produce("t", batch(value * 10_000), partition)
                assert produced.error_code == ErrorCode.NONE
        yield broker


def ask(broker: Broker, *offsets: int, replica_id: int = 3, **terms: Any) -> Asked:
    """A follower's fetch of t-0, and t-1, from these offsets."""
    parts = {("t", index): followed(offset) for index, offset in enumerate(offsets)}
    return broker.begin_fetch(parts, replica_id=replica_id, max_bytes=SIZE, **terms)


def byte_rate(registry: MetricRegistry) -> float:
    gauge = registry.get(BYTE_RATE)
    assert isinstance(gauge, Gauge)
    return gauge.read()


def sizes(asked: Asked) -> dict[int, int]:
    return {index: len(data.records or b"") for (_, index), data in told(asked.response).items()}


async def test_beyond_the_rate_a_follower_that_lags_gets_nothing(
    broker: Broker, registry: MetricRegistry, autojump_clock: trio.testing.MockClock
) -> None:
    """REP-70: the rate itself is not beyond it. Others go on, and none is sent in its place."""
    assert sizes(ask(broker, 0)) == {0: SIZE}
    assert byte_rate(registry) == SIZE
    assert sizes(ask(broker, 1)) == {0: SIZE}
    assert byte_rate(registry) == 2 * SIZE
    # The whole of the answer is for the partition that isn't throttled.
    assert sizes(ask(broker, 2, 0)) == {0: 0, 1: SIZE}
    assert byte_rate(registry) == 2 * SIZE
    follower = broker.rig.partition("t").follower(3)
    assert follower is not None
    assert follower.end.offset == 2


async def test_who_is_in_sync_is_not_held_back_and_counts(
    broker: Broker, registry: MetricRegistry, autojump_clock: trio.testing.MockClock
) -> None:
    """REP-70."""
    for offset in range(3):
        assert sizes(ask(broker, offset, replica_id=2)) == {0: SIZE}
    assert byte_rate(registry) == 3 * SIZE
    assert sizes(ask(broker, 0, max_wait_ms=0)) == {0: 0}


async def test_consumers_are_not_concerned(
    broker: Broker, autojump_clock: trio.testing.MockClock
) -> None:
    ask(broker, 0)
    ask(broker, 1)
    broker.begin_fetch({("t", 0): followed(3)}, replica_id=2)
    broker.begin_fetch({("t", 0): followed(3)}, replica_id=3)
    assert values(broker.fetch("t", 0)) != []


async def test_a_fetch_that_is_held_back_waits(
    broker: Broker, autojump_clock: trio.testing.MockClock
) -> None:
    """And not in vain: it is read again when its time is over."""
    ask(broker, 0)
    ask(broker, 1)
    held_back = ask(broker, 2, max_wait_ms=500)
    later = ask(broker, 2, max_wait_ms=2_000)
    assert not held_back.is_answered
    # What happens to the partition does not end the wait.
    broker.produce("t", batch(b"d"))
    assert not held_back.is_answered
    await trio.sleep(0.6)
    assert sizes(held_back) == {0: 0}
    # Two batches in a window that is two seconds old by then.
    await trio.sleep(1.5)
    assert values(only_data(later))[0] == b"c" * 10_000


async def test_a_segment_that_was_rolled_does_not_end_the_wait(
    broker: Broker, quota: ReplicationQuota, autojump_clock: trio.testing.MockClock
) -> None:
    """PUR 10.2: otherwise leader and follower would ask and answer without a pause."""
    ask(broker, 0)
    ask(broker, 1)
    held_back = ask(broker, 1, max_wait_ms=500)
    log: Any = broker.rig.partition("t").log
    log.roll()
    broker.produce("t", batch(b"d"))
    assert not held_back.is_answered
    quota.change_throttled("t", frozenset((1,)))
    broker.produce("t", batch(b"e"))
    assert held_back.is_answered


async def test_a_session_forgets_nothing_that_was_held_back(
    broker: Broker, quota: ReplicationQuota, autojump_clock: trio.testing.MockClock
) -> None:
    ask(broker, 0)
    ask(broker, 1)
    opened = ask(broker, 2, 3, session_epoch=0, max_wait_ms=0)
    assert sizes(opened) == {0: 0, 1: 0}
    session_id = opened.response.session_id

    def go_on(epoch: int) -> Asked:
        return broker.begin_fetch(
            {}, replica_id=3, session_id=session_id, session_epoch=epoch, max_wait_ms=0
        )

    assert sizes(go_on(1)) == {}
    quota.change_limit(10**9)
    assert sizes(go_on(2)) == {0: SIZE}


async def test_a_limit_of_nothing_lets_one_answer_through(
    broker: Broker, quota: ReplicationQuota, autojump_clock: trio.testing.MockClock
) -> None:
    """As in Kafka: what is sent is looked at afterwards."""
    quota.change_limit(0)
    quota.change_throttled("t", ALL_PARTITIONS)
    assert sizes(ask(broker, 0)) == {0: SIZE}
    assert sizes(ask(broker, 1, 0, max_wait_ms=0)) == {0: 0, 1: 0}
