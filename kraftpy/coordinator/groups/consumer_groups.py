"""The consumer groups of a shard: KIP-848 from the outside.

`heartbeat` and the methods of `classic` are operations, `describe` is a read, `replay` takes over
records of types 3 to 8 and 16. The parts:

- consumer_heartbeat.py, what members say; consumer_classic.py, what classic members say
- consumer_core.py, what every change consists of; reconciler.py, a member's way to its target
- target_assignment.py and the assignors, the target; regex_refresh.py, patterns of topics
- consumer_group.py, the state; consumer_replay.py, how it is made from records
- migration.py, from classic groups to consumer groups and back
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kraftpy.coordinator.groups.classic_member import JoinCall, SyncReply
from kraftpy.coordinator.groups.classic_rebalance import ClassicRebalances
from kraftpy.coordinator.groups.consumer_classic import ClassicMembersOfConsumerGroups
from kraftpy.coordinator.groups.consumer_core import ConsumerCore
from kraftpy.coordinator.groups.consumer_describe import describe_groups
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_heartbeat import ConsumerHeartbeats
from kraftpy.coordinator.groups.consumer_replay import ConsumerReplay
from kraftpy.coordinator.groups.consumer_topics import changed_topics
from kraftpy.coordinator.groups.directory import GroupDirectory
from kraftpy.coordinator.groups.group import Group
from kraftpy.coordinator.groups.metrics import GroupMetrics
from kraftpy.coordinator.groups.migration import Migration
from kraftpy.coordinator.groups.regex_refresh import RegexRefresh
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorRecord, Outcome
from kraftpy.coordinator.ports import ShardContext
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.schema.k11_join_group import JoinGroupResponse
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftpy.protocol.schema.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kraftpy.protocol.schema.k69_consumer_group_describe import DescribedGroup
from kraftpy.world import Random

__all__ = ["ConsumerGroups"]


class ConsumerGroups:
    __slots__ = ("_classic", "_core", "_heartbeats", "_regexes", "_replay")

    def __init__(
        self,
        context: ShardContext,
        directory: GroupDirectory,
        settings: GroupSettings,
        random: Random,
        *,
        rebalances: ClassicRebalances,
        metrics: GroupMetrics,
    ) -> None:
        self._core = ConsumerCore(context, directory, settings, metrics)
        migration = Migration(self._core, rebalances)
        self._core.downgrade = migration.downgrade
        self._classic = ClassicMembersOfConsumerGroups(self._core, random, migration.downgrade)
        self._regexes = RegexRefresh(self._core)
        self._replay = ConsumerReplay(directory, context.timeline, self._core.topics)
        self._heartbeats = ConsumerHeartbeats(self._core, self._regexes, random, migration.upgrade)

    # Operations.

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        api_version: int,
        client_id: str,
        client_host: str,
        may_describe: Callable[[str], bool] = lambda _topic: True,
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        """`may_describe` says which topics the member may know of."""
        return self._heartbeats.heartbeat(
            request,
            api_version=api_version,
            client_id=client_id,
            client_host=client_host,
            may_describe=may_describe,
        )

    def describe(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """What is committed; a group that is not there is described by an error."""
        return describe_groups(self._core, group_ids)

    # Members that speak the classic protocol: see classic_bridge.ClassicMembers.

    def join(self, group: Group, call: JoinCall) -> Outcome[JoinGroupResponse]:
        return self._classic.join(group, call)

    def sync(
        self, group: Group, request: SyncGroupRequest, reply: SyncReply
    ) -> Outcome[SyncGroupResponse]:
        return self._classic.sync(group, request, reply)

    def classic_heartbeat(
        self, group: Group, request: HeartbeatRequest
    ) -> Outcome[HeartbeatResponse]:
        return self._classic.classic_heartbeat(group, request)

    def leave(self, group: Group, request: LeaveGroupRequest) -> Outcome[LeaveGroupResponse]:
        return self._classic.leave(group, request)

    # Replay and life.

    def replay(self, record: CoordinatorRecord) -> None:
        self._replay.replay(record)

    def loaded(self) -> None:
        self._replay.is_loading = False
        self._regexes.loaded()
        for group in self._core.directory.all():
            if isinstance(group, ConsumerGroup):
                self._core.timers.start_all(group)

    def metadata_changed(self, changes: ImageChanges, image: MetadataImage) -> None:
        """Groups that read what has changed compare their topics at the next heartbeat."""
        self._regexes.metadata_changed(changes)
        changed = changed_topics(changes)
        if not changed:
            return
        for group in self._core.directory.all():
            if isinstance(group, ConsumerGroup) and group.reads_any_of(changed):
                group.needs_refresh = True
