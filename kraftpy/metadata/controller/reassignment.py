"""Reassignment: moving the replicas of partitions from brokers to brokers while they are in use.

A move is written into the partition itself: the target replicas first, behind them those that will
go, and which of all are being added and removed. From then on every change of the partition tries
to finish the move (partition_change.py): as soon as what is added is in sync, what is removed
goes. Nothing else has to happen, so that a move survives any failover; a newer move takes the place
of an older one, and a cancelled one leaves what was there before, perhaps in another order.
"""

from __future__ import annotations

from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.leader_and_isr import ChangeBuilders
from kraftpy.metadata.controller.partition_change import PartitionChangeBuilder
from kraftpy.metadata.controller.placement import is_cordoned
from kraftpy.metadata.controller.result import (
    MAX_RECORDS_PER_REQUEST,
    Caller,
    ControllerError,
    ControllerResult,
)
from kraftpy.metadata.image import MetadataImage, TopicImage
from kraftpy.metadata.records import RECOVERING, PartitionChangeRecord, PartitionRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kraftpy.protocol.schema.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

__all__ = ["ReassignmentControl"]


class ReassignmentControl:
    __slots__ = ("_context",)

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest, caller: Caller
    ) -> ControllerResult[AlterPartitionReassignmentsResponse]:
        """Start, replace and cancel moves; each partition has its own answer."""
        del caller
        may_resize = request.allow_replication_factor_change
        run = _Reassignment(self._context, may_resize=may_resize)
        answers = [
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[run.answer(topic.name, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
        response = AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=may_resize, error_message=None, responses=answers
        )
        return ControllerResult(tuple(run.records), response, is_atomic=False)

    def list_reassignments(
        self, request: ListPartitionReassignmentsRequest, caller: Caller
    ) -> ControllerResult[ListPartitionReassignmentsResponse]:
        """The committed moves that are under way, of some partitions or of all."""
        del caller
        image = self._context.stable
        if request.topics is None:
            listed = [_ongoing(topic, topic.partitions) for topic in image.topics.values()]
        else:
            listed = [
                _ongoing(topic, _chosen(topic, asked.partition_indexes))
                for asked in request.topics
                if (topic := image.topics.get(asked.name)) is not None
            ]
        topics = [topic for topic in listed if topic.partitions]
        response = ListPartitionReassignmentsResponse(error_message=None, topics=topics)
        return ControllerResult((), response)


class _Reassignment:
    """One request to move replicas."""

    __slots__ = ("_builders", "_context", "_may_resize", "_seen", "records")

    def __init__(self, context: ControllerContext, *, may_resize: bool) -> None:
        self._context = context
        self._builders = ChangeBuilders(context)
        self._may_resize = may_resize
        self._seen: set[tuple[str, int]] = set()
        self.records: list[PartitionChangeRecord] = []

    def answer(
        self, topic_name: str, asked: ReassignablePartition
    ) -> ReassignablePartitionResponse:
        code, message = ErrorCode.NONE, None
        try:
            self._alter(topic_name, asked)
        except ControllerError as error:
            code, message = error.code, error.message
        return ReassignablePartitionResponse(
            partition_index=asked.partition_index, error_code=code, error_message=message
        )

    def _alter(self, topic_name: str, asked: ReassignablePartition) -> None:
        topic = self._context.image.topics.get(topic_name)
        partition_id = asked.partition_index
        if topic is None or not 0 <= partition_id < len(topic.partitions):
            raise ControllerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic_name, partition_id) in self._seen:
            message = f"{topic_name}-{partition_id} is named more than once."
            raise ControllerError(ErrorCode.INVALID_REQUEST, message)
        self._seen.add((topic_name, partition_id))
        if len(self.records) >= MAX_RECORDS_PER_REQUEST:
            message = f"A request may move at most {MAX_RECORDS_PER_REQUEST} partitions."
            raise ControllerError(ErrorCode.POLICY_VIOLATION, message)
        partition = topic.partitions[partition_id]
        builder = self._builders.builder(topic, partition)
        if asked.replicas is None:
            self._cancel(topic, partition, builder)
        else:
            self._move(partition, tuple(asked.replicas), builder)
        record = builder.build()
        if record is not None:
            self.records.append(record)

    def _move(
        self, partition: PartitionRecord, target: tuple[int, ...], builder: PartitionChangeBuilder
    ) -> None:
        # Of a partition on the move, the replicas that it will have.
        size = len(partition.replicas) - len(partition.removing_replicas)
        if not self._may_resize and len(target) != size:
            message = f"The partition has {size} replicas and would have {len(target)}."
            raise ControllerError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        adding = tuple(sorted(set(target).difference(partition.replicas)))
        removing = tuple(sorted(set(partition.replicas).difference(target)))
        _check_target(self._context.image, target, adding)
        builder.replicas = target + removing
        builder.adding, builder.removing = adding, removing

    def _cancel(
        self, topic: TopicImage, partition: PartitionRecord, builder: PartitionChangeBuilder
    ) -> None:
        """Go back to what was there before the move: everything but what it adds."""
        adding = partition.adding_replicas
        if not adding and not partition.removing_replicas:
            raise ControllerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        replicas = tuple([replica for replica in partition.replicas if replica not in adding])
        isr = tuple([replica for replica in partition.isr if replica not in adding])
        if not replicas:
            message = "Every replica is being added, so that there is nothing to go back to."
            raise ControllerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        if not isr:
            if not self._context.allows_unclean(topic.name):
                message = "No replica is in sync but those being added: records would be lost."
                raise ControllerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            if not self._context.is_elr_enabled:
                # An ISR can't be empty, so that it is who comes first that waits to lead.
                isr = replicas[:1]
                builder.recovery_state = RECOVERING
        builder.replicas, builder.isr = replicas, isr
        builder.adding = builder.removing = ()


def _check_target(image: MetadataImage, target: tuple[int, ...], adding: tuple[int, ...]) -> None:
    """Whether replicas can be where they are wanted; a fenced broker may come back."""
    if not target:
        _refuse_target("there are no replicas")
    if len(set(target)) != len(target):
        _refuse_target("a broker is named twice")
    for broker_id in target:
        if broker_id not in image.brokers:
            _refuse_target(f"broker {broker_id} is not registered")
    for broker_id in adding:
        if is_cordoned(image.brokers[broker_id]):
            _refuse_target(f"all directories of broker {broker_id} are cordoned")


def _refuse_target(reason: str) -> None:
    message = f"The assignment is impossible: {reason}."
    raise ControllerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _chosen(topic: TopicImage, partition_ids: list[int]) -> tuple[PartitionRecord, ...]:
    """Those of the partitions that exist, each once."""
    count = len(topic.partitions)
    return tuple(
        topic.partitions[partition_id]
        for partition_id in dict.fromkeys(partition_ids)
        if 0 <= partition_id < count
    )


def _ongoing(
    topic: TopicImage, partitions: tuple[PartitionRecord, ...]
) -> OngoingTopicReassignment:
    return OngoingTopicReassignment(
        name=topic.name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=partition.partition_id,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for partition in partitions
            if partition.adding_replicas or partition.removing_replicas
        ],
    )
