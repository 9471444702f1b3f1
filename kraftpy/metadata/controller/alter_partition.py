"""AlterPartition: a leader reports who is in sync.

The leader decides about the ISR, because it alone sees how far its followers are; the controller
decides whether the leader may still speak. Leader epoch and partition epoch are compare-and-set:
a request that was made from an older state changes nothing. One that was made from a *newer*
state proves that this controller is not the active one any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.leader_and_isr import ChangeBuilders
from kraftpy.metadata.controller.result import (
    Caller,
    ControllerError,
    ControllerResult,
    Outcome,
    in_parts,
)
from kraftpy.metadata.image import MetadataImage, TopicImage
from kraftpy.metadata.records import (
    LEADER_UNCHANGED,
    RECOVERED,
    RECOVERING,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)

__all__ = ["AlterPartitionControl", "check_broker_epoch"]

_FIRST_VERSION_WITH_EPOCHS: Final = 3
_UNCHECKED_EPOCH: Final = -1


def check_broker_epoch(
    image: MetadataImage, broker_id: int, broker_epoch: int
) -> RegisterBrokerRecord:
    """The broker that speaks; STALE_BROKER_EPOCH if it isn't the present incarnation."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        message = f"Broker {broker_id} is not registered."
        raise ControllerError(ErrorCode.STALE_BROKER_EPOCH, message)
    if broker.broker_epoch != broker_epoch:
        message = f"Broker {broker_id} has the epoch {broker.broker_epoch}, not {broker_epoch}."
        raise ControllerError(ErrorCode.STALE_BROKER_EPOCH, message)
    return broker


class AlterPartitionControl:
    __slots__ = ("_context",)

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    def alter_partition(
        self, request: AlterPartitionRequest, caller: Caller
    ) -> Outcome[AlterPartitionResponse]:
        """Change ISRs; each partition is answered with what it then is, or with its own error.

        A leader that lost a follower speaks for all that it leads: in parts, as each partition's
        change stands for itself.
        """
        context = self._context
        check_broker_epoch(context.image, request.broker_id, request.broker_epoch)
        has_epochs = caller.api_version >= _FIRST_VERSION_WITH_EPOCHS
        run = _Alteration(context, request.broker_id, has_epochs=has_epochs)

        def finish(
            records: tuple[PartitionChangeRecord, ...], _: int
        ) -> ControllerResult[AlterPartitionResponse]:
            response = AlterPartitionResponse(topics=run.answers)
            return ControllerResult(records, response, is_atomic=False)

        changes = run.changes(request.topics)
        return in_parts(changes, context.settings.partitions_at_once, finish, 0)


class _Alteration:
    """One request of one leader."""

    __slots__ = ("_builders", "_context", "_has_epochs", "_leader", "_seen", "answers")

    def __init__(self, context: ControllerContext, leader: int, *, has_epochs: bool) -> None:
        self._context = context
        self._builders = ChangeBuilders(context)
        self._leader = leader
        self._has_epochs = has_epochs
        self._seen: set[tuple[Uuid, int]] = set()
        self.answers: list[ResponseTopicData] = []

    def changes(self, asked: Iterable[RequestTopicData]) -> Iterator[PartitionChangeRecord | None]:
        """What each partition's part of the request writes; the answers grow on the way."""
        for each in asked:
            topic = self._context.image.topic_by_id(each.topic_id)
            answer = ResponseTopicData(topic_id=each.topic_id)
            self.answers.append(answer)
            for data in each.partitions:
                record, partition_answer = self._alter(topic, data)
                answer.partitions.append(partition_answer)
                yield record

    def _alter(
        self, topic: TopicImage | None, data: RequestPartitionData
    ) -> tuple[PartitionChangeRecord | None, ResponsePartitionData]:
        if topic is None:
            return None, _refused(data, ErrorCode.UNKNOWN_TOPIC_ID)
        if not 0 <= data.partition_index < len(topic.partitions):
            return None, _refused(data, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if (topic.topic_id, data.partition_index) in self._seen:
            return None, _refused(data, ErrorCode.INVALID_REQUEST)
        self._seen.add((topic.topic_id, data.partition_index))
        partition = topic.partitions[data.partition_index]
        if self._has_epochs:
            members = data.new_isr_with_epochs
        else:
            members = [BrokerState(broker_id=broker_id) for broker_id in data.new_isr]
        code = self._check(partition, data, members)
        if code is not ErrorCode.NONE:
            return None, _refused(data, code)
        builder = self._builders.builder(topic, partition)
        builder.isr = tuple([member.broker_id for member in members])
        builder.recovery_state = data.leader_recovery_state
        record = builder.build()
        if record is not None:
            partition = partition.changed_by(record)
            if record.leader not in (LEADER_UNCHANGED, self._leader):
                # The new ISR has ended a reassignment that takes the leader away. It is an error
                # to the leader, which must look at the metadata, and written all the same.
                return record, _refused(data, ErrorCode.NEW_LEADER_ELECTED)
        return record, ResponsePartitionData(
            partition_index=data.partition_index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _check(
        self, partition: PartitionRecord, data: RequestPartitionData, members: list[BrokerState]
    ) -> ErrorCode:
        """The first rule that is broken; their order is part of the protocol."""
        if (
            data.leader_epoch > partition.leader_epoch
            or data.partition_epoch > partition.partition_epoch
        ):
            return ErrorCode.NOT_CONTROLLER
        if data.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if self._leader != partition.leader:
            return ErrorCode.INVALID_REQUEST
        if data.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if not _is_possible_isr(partition, [member.broker_id for member in members]):
            return ErrorCode.INVALID_REQUEST
        if not _is_possible_recovery(partition, data.leader_recovery_state, len(members)):
            return ErrorCode.INVALID_REQUEST
        if not all(self._is_eligible(member) for member in members):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def _is_eligible(self, member: BrokerState) -> bool:
        """Whether a broker may be in an ISR, in the incarnation that the leader speaks of.

        A follower that died and came back may have lost what the leader saw it fetch.
        """
        broker = self._context.image.brokers.get(member.broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.in_controlled_shutdown
            and member.broker_epoch in (_UNCHECKED_EPOCH, broker.broker_epoch)
        )


def _is_possible_isr(partition: PartitionRecord, isr: list[int]) -> bool:
    return (
        len(set(isr)) == len(isr)
        and partition.leader in isr
        and all(broker_id in partition.replicas for broker_id in isr)
    )


def _is_possible_recovery(partition: PartitionRecord, state: int, isr_size: int) -> bool:
    """Recovery ends before anybody joins the leader, and only an unclean election begins one."""
    if state == RECOVERING:
        return isr_size == 1 and partition.leader_recovery_state == RECOVERING
    return state == RECOVERED


def _refused(data: RequestPartitionData, code: ErrorCode) -> ResponsePartitionData:
    return ResponsePartitionData(partition_index=data.partition_index, error_code=code)
