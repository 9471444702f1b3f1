"""The producer id and epoch of an idempotent producer: got from a node, raised at home.

Without transactions the epoch needs nobody's consent: brokers take a higher one with sequences from
0 as a fresh start (KIP-360). An id whose epochs are used up, or that was taken from us, is replaced
by a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftpy.client.backoff import Backoff
from kraftpy.client.calls import Call
from kraftpy.client.cluster import Cluster
from kraftpy.client.errors import ConnectionLost, KafkaError, error_code
from kraftpy.client.producer_batch import Identity
from kraftpy.client.producer_partition import PartitionQueue
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from kraftpy.client.settings import ProducerSettings
    from kraftpy.world import Address, Random

__all__ = ["IdentityKeeper"]

_MAX_EPOCH = 2**15 - 1
_NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class IdentityKeeper:
    __slots__ = ("_backoff", "_failure", "_in_flight", "_not_before_ms", "current")

    def __init__(self, settings: ProducerSettings, random: Random) -> None:
        self._backoff = Backoff(
            initial_ms=settings.client.retry_backoff_ms,
            max_ms=settings.client.retry_backoff_max_ms,
            random=random,
        )
        self._in_flight = False
        self._not_before_ms = 0
        self.current: Identity | None = None
        self._failure: Exception | None = None

    def must_rise_for(self, queue: PartitionQueue) -> bool:
        return self.current is not None and queue.needs_new_identity(self.current)

    def rise(self) -> None:
        """On to the next epoch."""
        if self.current is None:
            return
        producer_id, epoch = self.current
        self.current = None if epoch >= _MAX_EPOCH - 1 else Identity(producer_id, epoch + 1)

    def forget(self) -> None:
        self.current = None

    def take_failure(self) -> Exception | None:
        """A refusal that asking again would not change; told once."""
        failure, self._failure = self._failure, None
        return failure

    def calls(self, now_ms: int, cluster: Cluster) -> list[Call]:
        due_ms = self.wake_at_ms()
        if due_ms is None or due_ms > now_ms:
            return []
        self._in_flight = True
        address = cluster.any_address()
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS
        )

        def failed(failure: Exception, at_ms: int) -> None:
            self._failed(cluster, address, failure, at_ms)

        return [Call(address, request, answered=self._answered, failed=failed)]

    def wake_at_ms(self) -> int | None:
        return None if self._in_flight or self.current is not None else self._not_before_ms

    def _answered(self, answer: InitProducerIdResponse, now_ms: int) -> None:
        self._in_flight = False
        code = error_code(answer.error_code)
        if code == ErrorCode.NONE:
            self._backoff.succeeded()
            self.current = Identity(answer.producer_id, answer.producer_epoch)
            return
        self._not_before_ms = now_ms + self._backoff.failed()
        if not code.retriable:
            self._failure = KafkaError(code, "no producer id was given")

    def _failed(self, cluster: Cluster, address: Address, failure: Exception, now_ms: int) -> None:
        self._in_flight = False
        cluster.disappoint(address, now_ms)
        self._not_before_ms = now_ms + self._backoff.failed()
        if not isinstance(failure, ConnectionLost):
            self._failure = failure
