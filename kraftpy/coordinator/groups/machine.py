"""The machine of a partition of `__consumer_offsets`: all groups that belong to it, and offsets.

Operations are methods of its parts: `classic` has the classic protocol, `consumers` that of
KIP-848, `offsets` and `listing` what all groups have in common. Replay goes by the type of a
record's key.
"""

from __future__ import annotations

from kraftpy.coordinator.groups.classic_groups import ClassicGroups
from kraftpy.coordinator.groups.classic_rebalance import ClassicRebalances
from kraftpy.coordinator.groups.consumer_groups import ConsumerGroups
from kraftpy.coordinator.groups.directory import GroupDirectory
from kraftpy.coordinator.groups.listing import GroupListing
from kraftpy.coordinator.groups.metrics import GroupMetrics
from kraftpy.coordinator.groups.offsets import Offsets
from kraftpy.coordinator.groups.offsets_expiry import OffsetsExpiry
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorRecord
from kraftpy.coordinator.ports import ShardContext
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.protocol.schema.group_records import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from kraftpy.world import Random

__all__ = ["GroupMachine"]


class GroupMachine:
    __slots__ = ("_expiry", "classic", "consumers", "directory", "listing", "offsets")

    def __init__(
        self,
        context: ShardContext,
        settings: GroupSettings,
        random: Random,
        metrics: GroupMetrics | None = None,
    ) -> None:
        """`metrics` are those of all shards; without them, nobody looks."""
        metrics = GroupMetrics(MetricRegistry()) if metrics is None else metrics
        self.directory = GroupDirectory(context.timeline)
        rebalances = ClassicRebalances(context, self.directory, settings)
        self.consumers = ConsumerGroups(
            context, self.directory, settings, random, rebalances=rebalances, metrics=metrics
        )
        self.classic = ClassicGroups(
            context,
            self.directory,
            settings,
            random,
            rebalances=rebalances,
            consumers=self.consumers,
            metrics=metrics,
        )
        self.offsets = Offsets(
            context, self.directory, settings, metrics, keep_alive=self.classic.keep_alive
        )
        self.listing = GroupListing(self.directory, self.offsets)
        self._expiry = OffsetsExpiry(context, self.directory, self.offsets, settings, metrics)

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord
    ) -> None:
        key = record.key
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            self.offsets.replay(offset, producer_id, key, record.value)
        elif isinstance(key, GroupMetadataKey):
            self.classic.replay(record, key)
        else:
            self.consumers.replay(record)

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        self.offsets.state.end_transaction(producer_id, is_commit=is_commit)

    def loaded(self) -> None:
        self.classic.loaded()
        self.consumers.loaded()
        self._expiry.start()

    def unloaded(self) -> None:
        self.classic.unloaded()

    def metadata_changed(self, changes: ImageChanges, image: MetadataImage) -> None:
        self._expiry.topics_deleted(
            change.before.name
            for change in changes.topics
            if change.before is not None and change.after is None
        )
        self.consumers.metadata_changed(changes, image)
