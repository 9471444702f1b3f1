"""The handlers of groups, put together."""

from __future__ import annotations

from kraftpy.api.group_requests import GroupRuntime
from kraftpy.api.handler import Handler
from kraftpy.api.k08_offset_commit import OffsetCommitHandler
from kraftpy.api.k09_offset_fetch import OffsetFetchHandler
from kraftpy.api.k11_join_group import JoinGroupHandler
from kraftpy.api.k12_heartbeat import HeartbeatHandler
from kraftpy.api.k13_leave_group import LeaveGroupHandler
from kraftpy.api.k14_sync_group import SyncGroupHandler
from kraftpy.api.k15_describe_groups import DescribeGroupsHandler
from kraftpy.api.k16_list_groups import ListGroupsHandler
from kraftpy.api.k42_delete_groups import DeleteGroupsHandler
from kraftpy.api.k47_offset_delete import OffsetDeleteHandler
from kraftpy.api.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from kraftpy.api.k69_consumer_group_describe import ConsumerGroupDescribeHandler
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.metadata_view import BrokerMetadata

__all__ = ["group_handlers"]


def group_handlers(
    runtime: GroupRuntime, lookup: CoordinatorLookup, cluster: BrokerMetadata
) -> list[Handler]:
    """`runtime` and `lookup` are those of `__consumer_offsets`."""
    return [
        OffsetCommitHandler(runtime, lookup, cluster),
        OffsetFetchHandler(runtime, lookup, cluster),
        JoinGroupHandler(runtime, lookup),
        HeartbeatHandler(runtime, lookup),
        LeaveGroupHandler(runtime, lookup),
        SyncGroupHandler(runtime, lookup),
        DescribeGroupsHandler(runtime, lookup),
        ListGroupsHandler(runtime),
        DeleteGroupsHandler(runtime, lookup),
        OffsetDeleteHandler(runtime, lookup, cluster),
        ConsumerGroupHeartbeatHandler(runtime, lookup),
        ConsumerGroupDescribeHandler(runtime, lookup),
    ]
