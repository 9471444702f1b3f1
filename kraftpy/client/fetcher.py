"""A consumer's way to one node: its fetch session, and the one fetch under way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kraftpy.client.backoff import Backoff
from kraftpy.client.calls import Call, TopicPartition
from kraftpy.client.cluster import Broker
from kraftpy.client.errors import error_code
from kraftpy.client.fetch_session import FetchSession, Wish
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k01_fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from kraftpy.client.settings import ConsumerSettings
    from kraftpy.world import Random

__all__ = ["NodeFetcher"]


class NodeFetcher:
    __slots__ = ("_backoff", "_session", "_settings", "is_busy", "not_before_ms")

    def __init__(self, settings: ConsumerSettings, random: Random) -> None:
        client = settings.client
        self._settings = settings
        self._backoff = Backoff(
            initial_ms=client.retry_backoff_ms, max_ms=client.retry_backoff_max_ms, random=random
        )
        self._session = FetchSession()
        self.is_busy = False
        self.not_before_ms = 0

    def call(
        self,
        broker: Broker,
        wishes: Mapping[TopicPartition, Wish],
        *,
        received: Callable[[FetchResponse, int], None],
        failed: Callable[[Exception, int], None],
        refused: Callable[[ErrorCode], None],
    ) -> Call:
        """The next fetch. One of the three is called: for an answer with partitions in it, for a
        connection that failed, for an answer that concerns the fetch as a whole.
        """
        settings = self._settings
        request = FetchRequest(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=settings.isolation_level,
            rack_id=settings.client_rack,
        )
        self._session.fill(request, wishes)
        self.is_busy = True

        def on_answer(answer: FetchResponse, now_ms: int) -> None:
            self.is_busy = False
            code = error_code(answer.error_code)
            self._session.answered(code, answer.session_id)
            if code == ErrorCode.NONE:
                self._backoff.succeeded()
                received(answer, now_ms)
                return
            if code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.not_before_ms = now_ms + self._backoff.failed()
            refused(code)

        def on_failure(failure: Exception, now_ms: int) -> None:
            self.is_busy = False
            self._session.lost()
            self.not_before_ms = now_ms + self._backoff.failed()
            failed(failure, now_ms)

        timeout_ms = settings.client.request_timeout_ms + settings.fetch_max_wait_ms
        return Call(
            broker.address, request, answered=on_answer, failed=on_failure, timeout_ms=timeout_ms
        )
