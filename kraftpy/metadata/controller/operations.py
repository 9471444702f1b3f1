"""Which request is served by what: the table of the controller's operations.

A write goes through the active controller: it may want records, and its answer waits until they,
and everything that it may have read, are committed. A read is served from committed state, by the
active controller as well: a standby may be far behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from kraftpy.metadata.controller.acls import AclControl
from kraftpy.metadata.controller.alter_partition import AlterPartitionControl
from kraftpy.metadata.controller.brokers import BrokerControl
from kraftpy.metadata.controller.configs import ConfigControl
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.controllers import ControllerRegistrations
from kraftpy.metadata.controller.elections import ElectionControl
from kraftpy.metadata.controller.event_queue import EventKind
from kraftpy.metadata.controller.features import FeatureControl
from kraftpy.metadata.controller.producer_ids import ProducerIdControl
from kraftpy.metadata.controller.quotas import QuotaControl
from kraftpy.metadata.controller.reassignment import ReassignmentControl
from kraftpy.metadata.controller.replica_directories import ReplicaDirectories
from kraftpy.metadata.controller.result import Caller, Outcome
from kraftpy.metadata.controller.scram import ScramControl
from kraftpy.metadata.controller.topics import TopicControl
from kraftpy.protocol.schema.k19_create_topics import CreateTopicsRequest
from kraftpy.protocol.schema.k20_delete_topics import DeleteTopicsRequest
from kraftpy.protocol.schema.k30_create_acls import CreateAclsRequest
from kraftpy.protocol.schema.k31_delete_acls import DeleteAclsRequest
from kraftpy.protocol.schema.k33_alter_configs import AlterConfigsRequest
from kraftpy.protocol.schema.k37_create_partitions import CreatePartitionsRequest
from kraftpy.protocol.schema.k43_elect_leaders import ElectLeadersRequest
from kraftpy.protocol.schema.k44_incremental_alter_configs import IncrementalAlterConfigsRequest
from kraftpy.protocol.schema.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from kraftpy.protocol.schema.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from kraftpy.protocol.schema.k49_alter_client_quotas import AlterClientQuotasRequest
from kraftpy.protocol.schema.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)
from kraftpy.protocol.schema.k56_alter_partition import AlterPartitionRequest
from kraftpy.protocol.schema.k57_update_features import UpdateFeaturesRequest
from kraftpy.protocol.schema.k62_broker_registration import BrokerRegistrationRequest
from kraftpy.protocol.schema.k63_broker_heartbeat import BrokerHeartbeatRequest
from kraftpy.protocol.schema.k64_unregister_broker import UnregisterBrokerRequest
from kraftpy.protocol.schema.k67_allocate_producer_ids import AllocateProducerIdsRequest
from kraftpy.protocol.schema.k70_controller_registration import ControllerRegistrationRequest
from kraftpy.protocol.schema.k73_assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kraftpy.world import quickly_made

__all__ = ["Controls", "Operation", "OperationTable", "Turn", "operation_table"]


class Turn(NamedTuple):
    """When an operation runs, in time and in the log: the offset that its first record will get."""

    now_ms: int
    next_offset: int


@quickly_made
@dataclass(frozen=True, slots=True)
class Operation:
    """How one kind of request is served."""

    name: str
    run: Callable[[Any, Caller, Turn], Outcome[object]]
    # What the request is in Kafka's table of events; it may depend on what is asked for.
    kind: Callable[[Any], EventKind | None]
    # What a user asks for must fit one batch, or is refused; what the cluster needs is cut.
    is_users: bool = False
    is_read: bool = False
    # How long a request may wait in the queue; None: as long as the asker does.
    max_queue_ms: int | None = None
    # What is done with a request that has waited too long.
    on_late: Callable[[Any, Turn], None] | None = None


OperationTable: TypeAlias = Mapping[type[Any], Operation]


@dataclass(frozen=True, slots=True)
class Controls:
    """Everybody who decides something, each about its own part of the metadata."""

    context: ControllerContext
    brokers: BrokerControl
    controllers: ControllerRegistrations
    topics: TopicControl
    elections: ElectionControl
    partitions: AlterPartitionControl
    reassignments: ReassignmentControl
    directories: ReplicaDirectories
    configs: ConfigControl
    features: FeatureControl
    producer_ids: ProducerIdControl
    quotas: QuotaControl
    acls: AclControl
    scram: ScramControl


def operation_table(controls: Controls) -> OperationTable:
    c = controls
    election = EventKind.REPLICA_LEADER_ELECTION
    reassignment = EventKind.API_PARTITION_REASSIGNMENT
    return {
        **_broker_operations(c),
        # What users ask for.
        CreateTopicsRequest: _users("createTopics", c.topics.create_topics, EventKind.TOPIC_CHANGE),
        CreatePartitionsRequest: _users(
            "createPartitions", c.topics.create_partitions, EventKind.PARTITION_MODIFICATIONS
        ),
        DeleteTopicsRequest: _users(
            "deleteTopics", c.topics.delete_topics, EventKind.TOPIC_DELETION
        ),
        ElectLeadersRequest: _users("electLeaders", c.elections.elect_leaders, election),
        AlterPartitionReassignmentsRequest: _users(
            "alterPartitionReassignments", c.reassignments.alter_reassignments, reassignment
        ),
        AlterConfigsRequest: _users("legacyAlterConfigs", c.configs.alter_configs),
        IncrementalAlterConfigsRequest: _users(
            "incrementalAlterConfigs", c.configs.incremental_alter_configs
        ),
        UpdateFeaturesRequest: _users("updateFeatures", c.features.update_features),
        AlterClientQuotasRequest: _users("alterClientQuotas", c.quotas.alter_client_quotas),
        CreateAclsRequest: _users("createAcls", c.acls.create_acls),
        DeleteAclsRequest: _users("deleteAcls", c.acls.delete_acls),
        AlterUserScramCredentialsRequest: _users(
            "alterUserScramCredentials", c.scram.alter_user_scram_credentials
        ),
        ListPartitionReassignmentsRequest: Operation(
            "listPartitionReassignments",
            _timeless(c.reassignments.list_reassignments),
            _always(EventKind.LIST_PARTITION_REASSIGNMENTS),
            is_read=True,
        ),
    }


def _broker_operations(controls: Controls) -> dict[type[Any], Operation]:
    """What nodes of the cluster ask for."""
    brokers, context = controls.brokers, controls.context
    return {
        BrokerRegistrationRequest: Operation(
            "registerBroker",
            lambda request, caller, turn: brokers.register_broker(request, caller, *turn),
            partial(_registration_kind, context),
        ),
        BrokerHeartbeatRequest: Operation(
            "processBrokerHeartbeat",
            lambda request, caller, turn: brokers.heartbeat(request, caller, *turn),
            _heartbeat_kind,
            max_queue_ms=context.settings.broker_heartbeat_interval_ms // 2,
            on_late=lambda request, turn: brokers.late_heartbeat(request, *turn),
        ),
        UnregisterBrokerRequest: Operation(
            "unregisterBroker",
            lambda request, caller, turn: brokers.unregister_broker(request, caller),
            _always(EventKind.BROKER_CHANGE),
        ),
        ControllerRegistrationRequest: Operation(
            "registerController",
            _timeless(controls.controllers.register_controller),
            _always(None),
        ),
        AlterPartitionRequest: Operation(
            "alterPartition",
            _timeless(controls.partitions.alter_partition),
            partial(_alteration_kind, context),
        ),
        AssignReplicasToDirsRequest: Operation(
            "assignReplicasToDirs",
            _timeless(controls.directories.assign_replicas),
            _always(None),
        ),
        AllocateProducerIdsRequest: Operation(
            "allocateProducerIds",
            _timeless(controls.producer_ids.allocate_producer_ids),
            _always(None),
        ),
    }


def _users(
    name: str,
    run: Callable[[Any, Caller], Outcome[object]],
    kind: EventKind | None = None,
) -> Operation:
    return Operation(name, _timeless(run), _always(kind), is_users=True)


def _timeless(
    run: Callable[[Any, Caller], Outcome[object]],
) -> Callable[[Any, Caller, Turn], Outcome[object]]:
    return lambda request, caller, turn: run(request, caller)


def _always(kind: EventKind | None) -> Callable[[Any], EventKind | None]:
    return lambda request: kind


def _registration_kind(context: ControllerContext, request: BrokerRegistrationRequest) -> EventKind:
    known = context.image.brokers.get(request.broker_id)
    if known is not None and known.incarnation_id == request.incarnation_id:
        return EventKind.BROKER_MODIFICATIONS
    return EventKind.BROKER_CHANGE


def _heartbeat_kind(request: BrokerHeartbeatRequest) -> EventKind:
    if request.want_shut_down:
        return EventKind.CONTROLLED_SHUTDOWN
    if request.offline_log_dirs:
        return EventKind.LOG_DIR_EVENT_NOTIFICATION
    if request.deleted_topic_ids:
        return EventKind.TOPIC_DELETION_STOP_REPLICA_RESPONSE_RECEIVED
    return EventKind.BROKER_CHANGE


def _alteration_kind(context: ControllerContext, request: AlterPartitionRequest) -> EventKind:
    """An ISR that changes while replicas move may end the move."""
    if context.partitions.reassigning_count == 0:
        return EventKind.ISR_CHANGE_NOTIFICATION
    for topic in request.topics:
        for asked in topic.partitions:
            partition = context.image.partition(topic.topic_id, asked.partition_index)
            if partition is not None and (partition.adding_replicas or partition.removing_replicas):
                return EventKind.PARTITION_REASSIGNMENT_ISR_CHANGE
    return EventKind.ISR_CHANGE_NOTIFICATION
