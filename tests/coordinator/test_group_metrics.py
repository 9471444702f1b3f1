"""What a broker shows of its groups."""

from __future__ import annotations

from random import Random

from coordinator.classic_kit import ClassicRig, rebalance
from coordinator.shard_kit import ShardRig

from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.groups.metrics import GroupGauges, GroupMetrics
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.observe.metrics import Counter, Gauge, MetricName, MetricRegistry
from kraftpy.protocol.coordinator_records import GROUP_RECORDS
from kraftpy.protocol.schema.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


class MeasuredRig(ClassicRig):
    def __init__(self) -> None:
        self.registry = MetricRegistry()
        metrics = GroupMetrics(self.registry)
        self.group_settings = GroupSettings()
        random = Random(1)
        ShardRig.__init__(
            self,
            lambda context: GroupMachine(context, self.group_settings, random, metrics),
            GROUP_RECORDS,
            commits_at_once=True,
        )
        GroupGauges(
            self.registry,
            self.clock,
            groups=self.machine.directory.committed_all,
            offset_count=lambda: self.machine.offsets.state.count,
        )

    def count(self, name: str) -> int:
        metric = self.registry.get(
            MetricName("kafka.server", "group-coordinator-metrics", f"{name}-count")
        )
        assert isinstance(metric, Counter)
        return metric.count

    def shown(self, name: str) -> float:
        metric = self.registry.get(
            MetricName("kafka.coordinator.group", "GroupMetadataManager", name)
        )
        assert isinstance(metric, Gauge)
        return metric.read()

    def tagged(self, name: str, tag: str, value: str) -> float:
        metric = self.registry.get(
            MetricName("kafka.server", "group-coordinator-metrics", name, ((tag, value),))
        )
        assert isinstance(metric, Gauge)
        return metric.read()


def test_counters() -> None:
    rig = MeasuredRig()
    (member,) = rig.stable()
    assert rig.count("group-completed-rebalance") == 1
    member.join()
    rebalance([member])
    assert rig.count("group-completed-rebalance") == 2
    member.commit(1)
    rig.commit_offset("u", 0, 1, generation=2, member_id=member.member_id)
    member.commit(1, generation=7)
    assert rig.count("offset-commit") == 2
    topic = OffsetDeleteRequestTopic(
        name="u",
        partitions=[
            OffsetDeleteRequestPartition(partition_index=0),
            OffsetDeleteRequestPartition(partition_index=1),
        ],
    )
    request = OffsetDeleteRequest(group_id="g", topics=[topic])
    rig.call(lambda machine: machine.offsets.delete(request))
    assert rig.count("offset-deletion") == 1
    rig.commit_offset("t", 0, 1, group_id="old", retention_ms=1, version=4)
    rig.clock.now_ms += 600_000
    rig.advance(100)
    assert rig.count("offset-expiration") == 1


def test_gauges() -> None:
    """A look holds for a second."""
    rig = MeasuredRig()
    assert rig.shown("NumGroups") == 0
    rig.stable()
    rig.commit_offset("t", 0, 1, group_id="s")
    rig.member(group_id="e").join()
    rig.advance(1000)
    names = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead", "")
    assert [rig.shown(f"NumGroups{name}") for name in names] == [0, 0, 1, 2, 0, 3]
    assert rig.shown("NumOffsets") == 1
    assert rig.tagged("group-count", "protocol", "classic") == 3
    assert rig.tagged("group-count", "protocol", "consumer") == 0
    assert rig.tagged("consumer-group-count", "state", "stable") == 0
    rig.call(lambda machine: machine.listing.delete(["e"]))
    assert rig.shown("NumGroups") == 3
    rig.advance(1000)
    assert rig.shown("NumGroups") == 2
