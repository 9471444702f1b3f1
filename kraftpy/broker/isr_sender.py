"""Takes the leaders' proposals for their ISRs to the controller: AlterPartition.

One request is under way at a time, with everything that waits when it leaves; whatever comes
meanwhile goes along with the next. A proposal is read from its partition at that moment, so that
one that metadata has decided by then is not sent. It is sent until it is answered, however long
that takes: a partition whose proposal is pending can't propose anything else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import trio

from kraftpy.broker.controller_channel import ControllerChannel
from kraftpy.broker.isr import IsrAnswer, IsrProposal
from kraftpy.broker.partition import Partition
from kraftpy.broker.replica_metrics import ReplicaMetrics
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.metadata.records import RECOVERED
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from kraftpy.world import LATE_SECONDS, Buggify, Clock, never

__all__ = ["IsrSender", "ProposalBatch", "answers_in", "proposal_topics"]

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.05

_Key: TypeAlias = tuple[Uuid, int]
ProposalBatch: TypeAlias = dict[_Key, tuple[Partition, IsrProposal]]


class IsrSender:
    """`submit` whenever a partition has a proposal; `run` as a task."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        channel: ControllerChannel,
        clock: Clock,
        metrics: ReplicaMetrics,
        *,
        buggify: Buggify = never,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._clock = clock
        self._metrics = metrics
        self._buggify = buggify
        self._waiting: dict[_Key, Partition] = {}
        self._wake = trio.Event()

    def submit(self, partition: Partition) -> None:
        self._waiting[partition.topic_id, partition.topic_partition[1]] = partition
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            if self._buggify("isr-sent-late"):
                await self._clock.sleep(LATE_SECONDS)
            batch = self._take()
            if batch and not await self._send(batch):
                await self._clock.sleep(_RETRY_SECONDS)

    def _take(self) -> ProposalBatch:
        waiting, self._waiting = self._waiting, {}
        return {
            key: (partition, proposal)
            for key, partition in waiting.items()
            if (proposal := partition.proposal) is not None
        }

    async def _send(self, batch: ProposalBatch) -> bool:
        """Ask for a batch; False if something of it must be asked for again."""
        request = AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=proposal_topics(batch),
        )
        try:
            answer = await self._channel.request(request)
        except UnsupportedVersion as error:
            log.error("the controller can't be asked for in-sync replicas: %s", error)
            answer = AlterPartitionResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if answer.error_code != ErrorCode.NONE:
            # Of these, STALE_BROKER_EPOCH passes when the broker has registered anew.
            log.warning("in-sync replicas not changed error=%d", answer.error_code)
            for partition, _ in batch.values():
                self.submit(partition)
            return False
        self._deliver(batch, answers_in(answer))
        return not any(key in self._waiting for key in batch)

    def _deliver(self, batch: ProposalBatch, answers: Mapping[_Key, IsrAnswer]) -> None:
        now_ms = self._clock.monotonic_ms()
        silence = IsrAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)
        for key, (partition, proposal) in batch.items():
            # Where asking again may help, the partition submits itself.
            answer = answers.get(key, silence)
            self._metrics.proposal_answered(proposal, answer)
            partition.proposal_answered(proposal, answer, now_ms)


def proposal_topics(batch: ProposalBatch) -> list[RequestTopicData]:
    topics: dict[Uuid, RequestTopicData] = {}
    for (topic_id, partition_index), (_, proposal) in batch.items():
        topic = topics.setdefault(topic_id, RequestTopicData(topic_id=topic_id, partitions=[]))
        topic.partitions.append(
            RequestPartitionData(
                partition_index=partition_index,
                leader_epoch=proposal.base.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=broker_id, broker_epoch=broker_epoch)
                    for broker_id, broker_epoch in zip(
                        proposal.isr, proposal.broker_epochs, strict=True
                    )
                ],
                # A leader elected from outside the ISR has recovered as soon as it leads.
                leader_recovery_state=RECOVERED,
                partition_epoch=proposal.base.partition_epoch,
            )
        )
    return list(topics.values())


def answers_in(answer: AlterPartitionResponse) -> dict[_Key, IsrAnswer]:
    return {
        (topic.topic_id, partition.partition_index): IsrAnswer(
            _error(partition.error_code),
            partition.leader_id,
            tuple(partition.isr),
            partition.leader_epoch,
            partition.partition_epoch,
        )
        for topic in answer.topics
        for partition in topic.partitions
    }


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
