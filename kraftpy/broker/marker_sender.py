"""Sends the markers of ended transactions to the leaders of their partitions: WriteTxnMarkers.

The rules are in marker_queues.py. Markers for partitions that this broker leads itself take the
same way but for the network. A leader that does not answer is left when the metadata names another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from kraftpy.broker.broker_peers import BrokerPeers
from kraftpy.broker.marker_queues import MarkerBatch, MarkerQueues
from kraftpy.broker.marker_writer import MarkerWriter
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.coordinator.transactions.ports import MarkerJob
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.protocol.schema.k27_write_txn_markers import WriteTxnMarkersResponse
from kraftpy.world import Clock

__all__ = ["TransactionMarkerSender"]

log = logging.getLogger(__name__)

_UNKNOWN_DESTINATIONS: Final = MetricName(
    "kafka.coordinator.transaction",
    "TransactionMarkerChannelManager",
    "UnknownDestinationQueueSize",
)


class TransactionMarkerSender:
    """A MarkerSender, and a Publisher of metadata. Its tasks live in `nursery`."""

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        nursery: trio.Nursery,
        *,
        peers: BrokerPeers,
        writer: MarkerWriter,
        registry: MetricRegistry,
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._nursery = nursery
        self._peers = peers
        self._writer = writer
        self._image = EMPTY_IMAGE
        self._queues = MarkerQueues(self._leader_of)
        self._attempts: dict[MarkerBatch, trio.CancelScope] = {}
        self._is_pumping = False
        self._pumps_later = False
        self._is_retrying = False
        registry.gauge(_UNKNOWN_DESTINATIONS, lambda: self._queues.waiting_count)

    @property
    def name(self) -> str:
        return "TransactionMarkerSender"

    def send(self, job: MarkerJob, done: Callable[[], None]) -> None:
        """In a later turn of the loop: the producer is being answered in this one, and should not
        wait until markers are written. Those of others that are decided now go along.
        """
        self._queues.add(job, done, self._clock.monotonic_ms())
        self._pump_later()

    def cancel(self, shard: int) -> None:
        self._queues.cancel(shard)

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        self._image = image
        if self._queues.job_count:
            for batch in self._queues.metadata_changed(self._clock.monotonic_ms()):
                scope = self._attempts.get(batch)
                if scope is not None:
                    scope.cancel()
            self._pump()

    def _leader_of(self, name: TopicPartition) -> int | None:
        topic = self._image.topics.get(name[0])
        if topic is None or name[1] >= len(topic.partitions):
            return None
        return topic.partitions[name[1]].leader

    def _pump(self) -> None:
        """Send what can be sent now, and leave the rest to a later moment.

        Not from within itself: an answer may come while it is sent.
        """
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            for batch in self._queues.take():
                self._start(batch)
        finally:
            self._is_pumping = False
        if self._queues.has_more:
            self._pump_later()
        if self._queues.next_retry_ms() is not None and not self._is_retrying:
            self._is_retrying = True
            self._nursery.start_soon(self._retry, name="transaction-markers-retry")

    def _pump_later(self) -> None:
        if not self._pumps_later:
            self._pumps_later = True
            self._nursery.start_soon(self._pump_in_turn, name="transaction-markers-later")

    async def _pump_in_turn(self) -> None:
        self._pumps_later = False
        self._pump()

    def _start(self, batch: MarkerBatch) -> None:
        if batch.broker_id == self._broker_id:
            self._writer.write(batch.request, partial(self._answered, batch))
        else:
            self._nursery.start_soon(self._ask, batch, name="transaction-markers")

    async def _ask(self, batch: MarkerBatch) -> None:
        answer: WriteTxnMarkersResponse | None = None
        scope = self._attempts[batch] = trio.CancelScope()
        try:
            with scope:
                answer = await self._peers.request(batch.broker_id, batch.request)
        except (ConnectionError, UnsupportedVersion) as error:
            log.info("markers not written broker=%d: %s", batch.broker_id, error)
        finally:
            del self._attempts[batch]
        if answer is None:
            self._queues.failed(batch, self._clock.monotonic_ms())
            if scope.cancelled_caught:
                self._queues.metadata_changed(self._clock.monotonic_ms())
            self._pump()
        else:
            self._answered(batch, answer)

    def _answered(self, batch: MarkerBatch, answer: WriteTxnMarkersResponse) -> None:
        self._queues.answered(batch, answer, self._clock.monotonic_ms())
        self._pump()

    async def _retry(self) -> None:
        """As long as something waits."""
        try:
            while (retry_ms := self._queues.next_retry_ms()) is not None:
                await self._clock.sleep_until(retry_ms / 1000)
                self._queues.retry_due(self._clock.monotonic_ms())
                self._pump()
        finally:
            self._is_retrying = False
