"""Finding the node that coordinates a group or a transactional id, and talking to it.

Any node knows who the coordinator is. It is asked when somebody wants to talk to the coordinator
and none is known, and again when the one that was known is lost: unreachable, or not the
coordinator any more. Calls to it have a connection of their own, because those of others wait
(a Fetch for records, a JoinGroup for the other members).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftpy.client.backoff import Backoff
from kraftpy.client.calls import Call
from kraftpy.client.cluster import Cluster
from kraftpy.client.errors import ConnectionLost, KafkaError, error_code
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kraftpy.protocol.tables import Request

if TYPE_CHECKING:
    from kraftpy.client.settings import ClientSettings
    from kraftpy.world import Address, Random

__all__ = ["GROUP", "LANE", "TRANSACTION", "CoordinatorFinder"]

GROUP = 0
TRANSACTION = 1

LANE = "coordinator"
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class CoordinatorFinder:
    __slots__ = (
        "_backoff",
        "_cluster",
        "_in_flight",
        "_key",
        "_key_type",
        "_not_before_ms",
        "address",
        "failure",
        "is_wanted",
    )

    def __init__(
        self, key: str, key_type: int, cluster: Cluster, settings: ClientSettings, random: Random
    ) -> None:
        self._key = key
        self._key_type = key_type
        self._cluster = cluster
        self._backoff = Backoff(
            initial_ms=settings.retry_backoff_ms,
            max_ms=settings.retry_backoff_max_ms,
            random=random,
        )
        self._in_flight = False
        self._not_before_ms = 0
        self.address: Address | None = None
        self.is_wanted = False
        # A refusal that asking again would not change.
        self.failure: Exception | None = None

    def calls(self, now_ms: int) -> list[Call]:
        due_ms = self.wake_at_ms()
        if due_ms is None or due_ms > now_ms:
            return []
        self._in_flight = True
        address = self._cluster.any_address()
        request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self._key])

        def failed(failure: Exception, at_ms: int) -> None:
            self._in_flight = False
            self._cluster.disappoint(address, at_ms)
            self._not_before_ms = at_ms + self._backoff.failed()
            if not isinstance(failure, ConnectionLost | OSError):
                self.failure = failure

        return [Call(address, request, answered=self._answered, failed=failed, lane=LANE)]

    def wake_at_ms(self) -> int | None:
        if not self.is_wanted or self._in_flight or self.address or self.failure:
            return None
        return self._not_before_ms

    def call(
        self,
        message: Request,
        answered: Callable[[Any, int], None],
        failed: Callable[[Exception, int], None],
        *,
        timeout_ms: int | None = None,
        max_version: int | None = None,
        lane: str = LANE,
    ) -> Call:
        """A call to the coordinator, which must be known; a lost one is looked for again."""
        address = self.address
        if address is None:
            raise RuntimeError("the coordinator is not known")

        def lost(failure: Exception, at_ms: int) -> None:
            if isinstance(failure, ConnectionLost | OSError):
                self.lose(address, at_ms)
            failed(failure, at_ms)

        return Call(
            address,
            message,
            answered=answered,
            failed=lost,
            timeout_ms=timeout_ms,
            max_version=max_version,
            lane=lane,
        )

    def has_moved(self, code: ErrorCode, now_ms: int) -> bool:
        """Does this answer mean that the coordinator is another one now? Then look for it."""
        if code not in _MOVED:
            return False
        self.address = None
        self._not_before_ms = max(self._not_before_ms, now_ms + self._backoff.failed())
        return True

    def lose(self, address: Address, now_ms: int) -> None:
        self._cluster.disappoint(address, now_ms)
        if self.address == address:
            self.address = None

    def _answered(self, answer: FindCoordinatorResponse, now_ms: int) -> None:
        self._in_flight = False
        self._not_before_ms = now_ms + self._backoff.failed()
        for each in answer.coordinators:
            code = error_code(each.error_code)
            if code == ErrorCode.NONE:
                self._backoff.succeeded()
                self.address = (each.host, each.port)
            elif not code.retriable:
                self.failure = KafkaError(code, each.error_message)
