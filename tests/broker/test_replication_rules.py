"""Rules of replication that are nobody's in particular: sizes of reads, errors, counters."""

from __future__ import annotations

import pytest
from core_rig import TOPIC_ID, batch, data_of, memory_log, record
from fetch_rig import Fetcher, data, follower

from kraftpy.broker.hosted import HostedPartitions
from kraftpy.broker.memory_replica_log import MemoryReplicaLog
from kraftpy.broker.replication_traffic import CountedTraffic
from kraftpy.log.errors import StorageError
from kraftpy.log.offsets import AppendInfo, Isolation
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, Provenance
from kraftpy.metadata.records import PartitionChangeRecord, TopicRecord
from kraftpy.observe.metrics import Meter, MetricRegistry
from kraftpy.observe.topic_metrics import TopicMetrics, metric_name
from kraftpy.security.quota_metrics import QuotaKind, QuotaMetrics
from kraftpy.security.replication_quota import ReplicationQuota
from kraftpy.security.windows import QuotaWindow
from kraftpy.world import Buffer
from kraftpy.world.memory_clock import MemoryClock


def test_a_hard_limit_is_never_exceeded() -> None:
    """REP-33: not by a byte, where otherwise one batch would come however large it is."""
    log = memory_log()
    for _ in range(3):
        log.append_as_leader(batch(b"v" * 50), 1)
    size = len(batch(b"v" * 50))
    for limit in (0, 1, size - 1, size, size + 1, 3 * size):
        hard = data_of(log.read(0, limit, Isolation.LOG_END, min_one_batch=False))
        assert len(hard) == limit
        soft = data_of(log.read(0, limit, Isolation.LOG_END))
        assert len(soft) == max(limit, size)


class FailingLog(MemoryReplicaLog):
    """Its directory does not take anything."""

    __slots__ = ()

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        raise StorageError("no space, or worse")


def test_a_storage_error_delays_one_partition() -> None:
    """REP-73, REP-68: the others of the same request are appended, and asked for again at once."""
    well = memory_log()
    broken = FailingLog(well._clock, well.config)
    fetcher = Fetcher(follower(("t", 0), log=broken), follower(("t", 1), log=well))
    fetcher.fetch()
    records = batch(b"a", leader_epoch=5)
    fetcher.answer(data(0, records), data(1, bytearray(records)))
    assert (broken.log_end_offset, well.log_end_offset) == (0, 1)
    assert {index: each.fetch_offset for index, each in fetcher.asked().items()} == {1: 1}
    fetcher.answer(data(1))
    fetcher.now_ms = 100
    assert list(fetcher.asked()) == [0]
    assert fetcher.core.failed == {}


async def test_what_is_copied_of_throttled_partitions_counts_for_the_quota() -> None:
    """REP-70."""
    clock, registry = MemoryClock(), MetricRegistry()
    metrics = QuotaMetrics(QuotaKind.FOLLOWER_REPLICATION, registry, clock.monotonic_ms)
    quota = ReplicationQuota(QuotaWindow(), metrics)
    quota.change_limit(749)
    traffic = CountedTraffic(HostedPartitions(), TopicMetrics(registry), clock, quota)
    traffic.replicated(follower(), 10_000)
    quota.change_throttled("t", frozenset((0,)))
    traffic.replicated(follower(("t", 1)), 10_000)
    traffic.replicated(follower(), 700)
    assert not traffic.is_exceeded()
    traffic.replicated(follower(), 50)
    assert traffic.is_exceeded()
    assert [traffic.is_throttled(("t", number)) for number in (0, 1)] == [True, False]
    quota.change_throttled("t", frozenset())
    assert not traffic.is_exceeded()


@pytest.mark.parametrize("is_added", [False, True])
async def test_what_is_copied_is_counted(is_added: bool) -> None:
    """REP-78: for everybody, and once more for a replica that a reassignment adds."""
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(TopicRecord("t", TOPIC_ID))
    delta.replay(record(2))
    if is_added:
        delta.replay(PartitionChangeRecord(0, TOPIC_ID, adding_replicas=(1,)))
    hosted = HostedPartitions()
    hosted.image = delta.apply(Provenance(1, 1, 1))
    registry = MetricRegistry()
    traffic = CountedTraffic(hosted, TopicMetrics(registry), MemoryClock())
    traffic.replicated(follower(), 700)
    traffic.replicated(follower(), 50)
    meters = [
        registry.get(metric_name(name))
        for name in ("ReplicationBytesInPerSec", "ReassignmentBytesInPerSec")
    ]
    counts = [each.count if isinstance(each, Meter) else 0 for each in meters]
    assert counts == [750, 750 if is_added else 0]
