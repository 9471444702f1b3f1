"""The directories of replicas: brokers say where they are, and lose them with their disks.

The controller doesn't choose directories. It takes note of the broker's choice so that, when a
disk fails, it knows which replicas are gone, without hearing from the broker about each of them.
A report can be older than the failure, or be overtaken by it: a replica that is said to be in a
directory which the broker no longer has is as good as one whose disk has just failed.
"""

from __future__ import annotations

from dataclasses import replace

from kraftpy.metadata.controller.alter_partition import check_broker_epoch
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.leader_and_isr import ChangeBuilders
from kraftpy.metadata.controller.replica_states import has_online_directory
from kraftpy.metadata.controller.result import Caller, ControllerError, ControllerResult
from kraftpy.metadata.features import DIRECTORIES_LEVEL
from kraftpy.metadata.image import TopicImage
from kraftpy.metadata.records import PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k73_assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestTopicData,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)

__all__ = ["ReplicaDirectories"]


class ReplicaDirectories:
    __slots__ = ("_context",)

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    def assign_replicas(
        self, request: AssignReplicasToDirsRequest, caller: Caller
    ) -> ControllerResult[AssignReplicasToDirsResponse]:
        """Take note of where a broker has put replicas."""
        del caller
        image = self._context.image
        if image.metadata_version < DIRECTORIES_LEVEL:
            message = f"Directories need metadata.version {DIRECTORIES_LEVEL}."
            raise ControllerError(ErrorCode.UNSUPPORTED_VERSION, message)
        broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
        run = _Assignment(self._context, broker)
        response = AssignReplicasToDirsResponse(
            directories=[run.assign(directory) for directory in request.directories]
        )
        return ControllerResult(tuple(run.records), response, is_atomic=False)


class _Assignment:
    """One report of one broker."""

    __slots__ = ("_broker", "_builders", "_context", "_moved", "_seen", "records")

    def __init__(self, context: ControllerContext, broker: RegisterBrokerRecord) -> None:
        self._context = context
        self._broker = broker
        self._builders = ChangeBuilders(context, self._is_acceptable)
        # The partition at hand, with the replica where the broker says that it is.
        self._moved: PartitionRecord | None = None
        self._seen: set[tuple[Uuid, int]] = set()
        self.records: list[PartitionChangeRecord] = []

    def assign(self, asked: RequestDirectoryData) -> ResponseDirectoryData:
        return ResponseDirectoryData(
            id=asked.id, topics=[self._assign_topic(asked.id, topic) for topic in asked.topics]
        )

    def _assign_topic(self, directory: Uuid, asked: RequestTopicData) -> ResponseTopicData:
        topic = self._context.image.topic_by_id(asked.topic_id)
        return ResponseTopicData(
            topic_id=asked.topic_id,
            partitions=[
                ResponsePartitionData(
                    partition_index=partition.partition_index,
                    error_code=self._assign(directory, topic, partition.partition_index),
                )
                for partition in asked.partitions
            ],
        )

    def _assign(self, directory: Uuid, topic: TopicImage | None, partition_id: int) -> ErrorCode:
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not 0 <= partition_id < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition, broker_id = topic.partitions[partition_id], self._broker.broker_id
        if broker_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if (topic.topic_id, partition_id) in self._seen:
            return ErrorCode.INVALID_REQUEST
        self._seen.add((topic.topic_id, partition_id))
        self._moved = _with_directory(partition, broker_id, directory)
        builder = self._builders.builder(topic, partition)
        builder.assigned_directories = {broker_id: directory}
        if not has_online_directory(self._broker, self._moved):
            builder.isr = tuple([replica for replica in partition.isr if replica != broker_id])
        record = builder.build()
        if record is not None:
            self.records.append(record)
        return ErrorCode.NONE

    def _is_acceptable(self, partition: PartitionRecord, broker_id: int) -> bool:
        return self._context.replica_states.is_online(self._moved or partition, broker_id)


def _with_directory(partition: PartitionRecord, broker_id: int, directory: Uuid) -> PartitionRecord:
    directories = [
        directory if replica == broker_id else partition.directory_of(replica) or directory
        for replica in partition.replicas
    ]
    return replace(partition, directories=tuple(directories))
