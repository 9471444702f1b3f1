"""Markers of transactions between simulated brokers: the real queues, and messages between them.

The coordinator's broker fills requests from its queues; a leader writes markers into the logs that
it leads, or has its group coordinator write them, and answers when they are committed. A request
that is not answered in time is given up, and comes again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kraftpy.broker.marker_queues import MarkerBatch, MarkerQueues
from kraftpy.coordinator.batch import Producer
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.coordinator.ports import ShardContext
from kraftpy.coordinator.transactions.machine import TransactionMachine
from kraftpy.coordinator.transactions.ports import MarkerJob
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraftpy.records.control import EndTransactionMarker, build_end_transaction

if TYPE_CHECKING:
    from kraftpy.sim.coordinator_broker import CoordinatorBroker
    from kraftpy.sim.coordinator_network import CoordinatorNetwork

__all__ = ["MarkerMessages"]

_PATIENCE_US: Final = 1_000_000
_ABORT_INTERVAL_MS: Final = 200
_GROUP_TOPIC: Final = "__consumer_offsets"


class MarkerMessages:
    """A MarkerSender."""

    def __init__(self, broker: CoordinatorBroker) -> None:
        self._broker = broker
        self.queues = MarkerQueues(self._leader_of)
        self._is_planned = False

    def machine(self, context: ShardContext) -> TransactionMachine:
        settings = TransactionSettings(abort_interval_ms=_ABORT_INTERVAL_MS)
        return TransactionMachine(context, settings, self, self._broker.provide_producer_id)

    def send(self, job: MarkerJob, done: Callable[[], None]) -> None:
        self._broker.decided(job)
        self.queues.add(job, done, self._now_ms)

    def cancel(self, shard: int) -> None:
        self.queues.cancel(shard)

    def metadata_changed(self) -> None:
        if self.queues.job_count:
            self.queues.metadata_changed(self._now_ms)

    def pump(self) -> None:
        """Send what there is; called at the end of each round."""
        self.queues.retry_due(self._now_ms)
        for batch in list(self.queues.take()):
            self._ask(batch)
        retry_ms = self.queues.next_retry_ms()
        if retry_ms is not None and not self._is_planned:
            self._is_planned = True
            delay_us = self._broker.clock.us_until(retry_ms)
            self._broker.post(delay_us, "retry markers", self._retry)

    def _retry(self) -> None:
        self._is_planned = False

    @property
    def network(self) -> CoordinatorNetwork:
        return self._broker.network

    @property
    def _now_ms(self) -> int:
        return self._broker.clock.monotonic_ms()

    def _leader_of(self, name: TopicPartition) -> int | None:
        partition = self.network.partitions.get(name)
        return None if partition is None else self._broker.leader_of(partition)

    # Requests.

    def _ask(self, batch: MarkerBatch) -> None:
        open_batches = [batch]
        request = batch.request

        def answered(answer: WriteTxnMarkersResponse | None) -> None:
            if open_batches:
                open_batches.clear()
                if answer is None:
                    self.queues.failed(batch, self._now_ms)
                else:
                    self.queues.answered(batch, answer, self._now_ms)

        leader = self.network.brokers[batch.broker_id]
        reply = _reply_to(self._broker, self.network, answered)
        self.network.request(
            batch.broker_id, "markers", lambda: leader.markers.write(request, reply)
        )
        self._broker.post(_PATIENCE_US, "markers given up", lambda: answered(None))

    # The leader's side.

    def write(
        self, request: WriteTxnMarkersRequest, reply: Callable[[WriteTxnMarkersResponse], None]
    ) -> None:
        answer = WriteTxnMarkersResponse()
        work: list[tuple[WritableTxnMarker, str, WritableTxnMarkerPartitionResult]] = []
        done_count = 0

        def done(result: WritableTxnMarkerPartitionResult, code: ErrorCode) -> None:
            nonlocal done_count
            result.error_code = code
            done_count += 1
            if done_count == len(work):
                reply(answer)

        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                results = [
                    WritableTxnMarkerPartitionResult(partition_index=index)
                    for index in topic.partition_indexes
                ]
                work += [(marker, topic.name, result) for result in results]
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
            answer.markers.append(
                WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)
            )
        for marker, name, result in work:
            self._write_one(marker, (name, result.partition_index), partial(done, result))

    def _write_one(
        self, marker: WritableTxnMarker, name: TopicPartition, done: Callable[[ErrorCode], None]
    ) -> None:
        broker = self._broker
        if name[0] == _GROUP_TOPIC:
            broker.groups.complete_transaction(
                name[1],
                EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch),
                lambda found: done(
                    found.code if isinstance(found, CoordinatorError) else ErrorCode.NONE
                ),
                Producer(marker.producer_id, marker.producer_epoch),
                marker.transaction_version,
            )
            return
        reign = broker.leads(self.network.partitions[name])
        if reign is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        batch = build_end_transaction(
            EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=broker.clock.wall_ms(),
        )
        try:
            reign.append(batch, transaction_version=marker.transaction_version)
        except CoordinatorError as error:
            done(error.code)
        else:
            broker.when_committed(reign, lambda: done(ErrorCode.NONE))


def _reply_to(
    broker: CoordinatorBroker,
    network: CoordinatorNetwork,
    answered: Callable[[WriteTxnMarkersResponse | None], None],
) -> Callable[[WriteTxnMarkersResponse], None]:
    return lambda answer: network.answer_broker(
        broker, "markers answered", lambda: answered(answer)
    )
