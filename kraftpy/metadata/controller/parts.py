"""What a controller is made of, and the one place that puts it together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kraftpy.config.dynamic import DynamicConfig
from kraftpy.metadata.controller.acls import AclControl
from kraftpy.metadata.controller.activation import take_absent_offline
from kraftpy.metadata.controller.alter_partition import AlterPartitionControl
from kraftpy.metadata.controller.brokers import BrokerControl
from kraftpy.metadata.controller.configs import ConfigControl
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.controllers import ControllerRegistrations
from kraftpy.metadata.controller.elections import ElectionControl
from kraftpy.metadata.controller.features import FeatureControl, QuorumVersion
from kraftpy.metadata.controller.operations import Controls, OperationTable, operation_table
from kraftpy.metadata.controller.periodic import PeriodicTask, periodic_tasks
from kraftpy.metadata.controller.producer_ids import ProducerIdControl
from kraftpy.metadata.controller.quotas import QuotaControl
from kraftpy.metadata.controller.reassignment import ReassignmentControl
from kraftpy.metadata.controller.replica_directories import ReplicaDirectories
from kraftpy.metadata.controller.result import Outcome
from kraftpy.metadata.controller.scram import ScramControl
from kraftpy.metadata.controller.topic_names import TopicNames
from kraftpy.metadata.controller.topics import TopicControl
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import MetadataRecord

if TYPE_CHECKING:
    from kraftpy.world.ports import Random

__all__ = ["ControllerParts", "assemble", "make_controls"]


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """What a controller does, as it sees it."""

    operations: OperationTable
    tasks: Sequence[PeriodicTask]
    # The records that an empty log begins with; metadata.version is the first.
    bootstrap: tuple[MetadataRecord, ...]
    # What a new controller finds to be put right.
    reevaluate: Callable[[], Outcome[None]]
    # Leaders for the partitions that have none, of one topic or of all; whether there are more.
    bring_online: Callable[[str | None], Outcome[bool]]
    # Fences a broker of whose death there is evidence.
    fence_dead: Callable[[int], Outcome[object]]
    # The image before the transaction that the committed log leaves open, if it does.
    open_transaction: Callable[[], MetadataImage | None]


def make_controls(
    context: ControllerContext, node: DynamicConfig, quorum: QuorumVersion, random: Random
) -> Controls:
    """`node` is this node's own configuration; `random` places replicas and makes ids."""
    names = TopicNames()
    context.follow(names)
    configs = ConfigControl(context, node)
    return Controls(
        context=context,
        brokers=BrokerControl(context),
        controllers=ControllerRegistrations(context),
        topics=TopicControl(context, names, configs, random),
        elections=ElectionControl(context),
        partitions=AlterPartitionControl(context),
        reassignments=ReassignmentControl(context),
        directories=ReplicaDirectories(context),
        configs=configs,
        features=FeatureControl(context, quorum),
        producer_ids=ProducerIdControl(context),
        quotas=QuotaControl(context),
        acls=AclControl(context, random),
        scram=ScramControl(context),
    )


def assemble(
    controls: Controls,
    bootstrap: tuple[MetadataRecord, ...],
    open_transaction: Callable[[], MetadataImage | None],
) -> ControllerParts:
    """`open_transaction` is the loader's."""
    context, brokers, elections = controls.context, controls.brokers, controls.elections
    return ControllerParts(
        operations=operation_table(controls),
        tasks=periodic_tasks(context.settings, brokers, elections),
        bootstrap=bootstrap,
        reevaluate=partial(take_absent_offline, context),
        bring_online=elections.bring_online,
        fence_dead=brokers.fence_dead,
        open_transaction=open_transaction,
    )
