"""The machine of a partition of `__consumer_offsets`: all groups that belong to it, and offsets.

Operations are methods of its parts: `classic` has the classic protocol, `consumers` that of
KIP-848, `offsets` and `listing` what all groups have in common. Replay goes by the type of a
record's key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from kraftpy.coordinator.groups.classic_bridge import ClassicMembers
from kraftpy.coordinator.groups.classic_groups import ClassicGroups
from kraftpy.coordinator.groups.classic_rebalance import ClassicRebalances
from kraftpy.coordinator.groups.directory import GroupDirectory
from kraftpy.coordinator.groups.listing import GroupListing
from kraftpy.coordinator.groups.offsets import Offsets
from kraftpy.coordinator.groups.offsets_expiry import OffsetsExpiry
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorRecord, Outcome
from kraftpy.coordinator.ports import ShardContext
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.schema.group_records import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kraftpy.protocol.schema.k69_consumer_group_describe import DescribedGroup
from kraftpy.world import Random

__all__ = ["ConsumerSide", "GroupMachine"]


class ConsumerSide(ClassicMembers, Protocol):
    """What the machine and its users need of consumer groups."""

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        api_version: int,
        client_id: str,
        client_host: str,
    ) -> Outcome[ConsumerGroupHeartbeatResponse]: ...

    def describe(self, group_ids: Iterable[str]) -> list[DescribedGroup]: ...

    def replay(self, record: CoordinatorRecord) -> None: ...

    def loaded(self) -> None: ...

    def metadata_changed(self, changes: ImageChanges, image: MetadataImage) -> None: ...


class GroupMachine:
    __slots__ = ("_expiry", "classic", "consumers", "directory", "listing", "offsets")

    def __init__(
        self,
        context: ShardContext,
        settings: GroupSettings,
        random: Random,
        make_consumers: Callable[[GroupDirectory, ClassicRebalances], ConsumerSide],
    ) -> None:
        self.directory = GroupDirectory(context.timeline)
        rebalances = ClassicRebalances(context, self.directory, settings)
        self.consumers = make_consumers(self.directory, rebalances)
        self.classic = ClassicGroups(
            context,
            self.directory,
            settings,
            random,
            rebalances=rebalances,
            consumers=self.consumers,
        )
        self.offsets = Offsets(context, self.directory, settings, self.classic.keep_alive)
        self.listing = GroupListing(self.directory, self.offsets)
        self._expiry = OffsetsExpiry(context, self.directory, self.offsets, settings)

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord
    ) -> None:
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(offset, producer_id, key, value)
        elif isinstance(key, LegacyOffsetCommitKey):
            assert value is None or isinstance(value, LegacyOffsetCommitValue)
            self.offsets.replay(offset, producer_id, key, value)
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
